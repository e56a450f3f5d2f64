use std::sync::Arc;

use mobimir_core::{
    moving::{HistoryEntry, HistoryKey, HistorySide},
    order::Order,
    ports::{OrderHistoryStore, StoreResult},
};

use super::{
    super::arena::Universe,
    Subject, at,
    orders::{MOVES, order},
};

/// Orders that are copied to a history whenever they have moved.
pub(super) struct History;

impl Subject for History {
    type W = HistoryEntry;
    type Port = dyn OrderHistoryStore;
    type Stores = HistorySide;

    const NAME: &'static str = "order history";
    const CHANGES_MAX: usize = MOVES.len();
    const LASTS_MS: Option<i64> = None;

    fn side(stores: &HistorySide) -> &HistorySide {
        stores
    }

    fn keys(universe: &Universe, n: usize) -> Vec<HistoryKey> {
        vec![HistoryKey::of(&made(universe, n))]
    }

    async fn make(universe: &Universe, port: &Arc<dyn OrderHistoryStore>, n: usize) -> StoreResult<()> {
        port.append(vec![made(universe, n)]).await
    }

    /// Together with the state before it, as a delivery that comes late or twice does.
    async fn change(
        universe: &Universe,
        port: &Arc<dyn OrderHistoryStore>,
        n: usize,
        change: usize,
    ) -> StoreResult<()> {
        let moved = |order: Order, (change, status)| order.moved(status, at(universe, change));
        let ways = MOVES.into_iter().enumerate();
        let before = ways.clone().take(change).fold(made(universe, n), moved);
        let after = ways.take(change + 1).fold(made(universe, n), moved);
        port.append(vec![after.clone(), before]).await?;
        port.append(vec![after]).await
    }
}

/// In several months, as far as its window of time allows it.
fn made(universe: &Universe, n: usize) -> Order {
    const MONTH_MS: i64 = 31 * 86_400_000;
    let order = order(universe, n);
    let created_at = order.created_at.plus_ms(-MONTH_MS * (n % 3) as i64);
    Order { created_at, ..order }
}
