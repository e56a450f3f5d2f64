//! A separate order history: copies of orders that are decided elsewhere, each repeated until it is
//! acknowledged, as the outbox does.

use std::sync::Arc;

use mobimir_core::{
    moving::{HistoryEntry, HistoryKey, HistorySide},
    order::Order,
    ports::{OrderHistoryStore, Period},
    time::Timestamp,
};
use mobimir_migrate::standing::Standing;
use mobimir_testkit::model::ModelStore;

use super::{Done, NEXT, Ports, Trade, WAY, broken, moving, order};
use crate::{
    chance::Chance,
    faulty::{self, Faults},
    world::Now,
};

/// More orders than a run makes.
const ORDERS_MAX: usize = 10_000;
const MOVE_MS: i64 = 10_000;

#[derive(Clone)]
pub(crate) struct HistoryTrade {
    n: u64,
    /// How often the order has moved, and up to which move it was acknowledged that the history has it.
    moved: usize,
    copied: Option<usize>,
    /// The orders before this one, all delivered and copied.
    done: Vec<u64>,
}

/// The order after so many moves.
fn after(n: u64, moves: usize) -> Order {
    let made = Timestamp::from_millis(1_000_000 + i64::try_from(n).unwrap_or_default());
    let moved = |order: Order, status| {
        let at = order.updated_at.plus_ms(MOVE_MS);
        order.moved(status, at)
    };
    WAY[1..=moves].iter().copied().fold(order(n, made), moved)
}

impl HistoryTrade {
    fn all(&self) -> impl Iterator<Item = u64> {
        self.done.iter().copied().chain([self.n])
    }
}

impl Trade for HistoryTrade {
    type W = HistoryEntry;
    type Port = dyn OrderHistoryStore;

    const ENTITY: &'static str = "order_history";

    fn new(n: u64) -> Self {
        Self { n, moved: 0, copied: None, done: Vec::new() }
    }

    fn side(store: &ModelStore, faults: &Arc<Faults>) -> HistorySide {
        faulty::order_history(&store.movable_history(), faults)
    }

    fn port(
        source: HistorySide,
        target: HistorySide,
        standing: Arc<Standing>,
        clock: Arc<Now>,
    ) -> Ports<HistoryEntry, dyn OrderHistoryStore> {
        let migrating = moving(source, target, standing, clock);
        (migrating.clone(), migrating)
    }

    fn keys(&self) -> Vec<HistoryKey> {
        self.all().map(|n| HistoryKey::of(&after(n, 0))).collect()
    }

    async fn act(&mut self, port: Arc<dyn OrderHistoryStore>, chance: &Chance, now: Timestamp) -> Done {
        if self.copied == Some(WAY.len() - 1) {
            let mut done = std::mem::take(&mut self.done);
            done.push(self.n);
            *self = Self { done, ..Self::new(self.n + NEXT) };
        } else if chance.permille(300) {
            return self.look(port, now).await;
        } else if self.moved + 1 < WAY.len() && (self.copied == Some(self.moved) || chance.permille(200)) {
            // Orders move whether their history is there or not.
            self.moved += 1;
        }
        let mut orders = vec![after(self.n, self.moved)];
        if chance.permille(200) {
            // Somebody else read it earlier and comes later.
            orders.push(after(self.n, chance.below(1 + self.moved as u64) as usize));
        }
        match port.append(orders).await {
            Ok(()) => self.copied = Some(self.moved),
            Err(error) => return Ok(Err(error)),
        }
        Ok(Ok(()))
    }

    async fn look(&self, port: Arc<dyn OrderHistoryStore>, _now: Timestamp) -> Done {
        let user = after(self.n, 0).user_id;
        let history = match port.by_user(user, Period::default(), None, ORDERS_MAX).await {
            Ok(history) => history.items,
            Err(error) => return Ok(Err(error)),
        };
        for n in self.all() {
            let (copied, moved) =
                if n == self.n { (self.copied, self.moved) } else { (Some(WAY.len() - 1), WAY.len() - 1) };
            let id = after(n, 0).id;
            let Some(listed) = history.iter().find(|order| order.id == id) else {
                if copied.is_some() {
                    return broken(format!("MIG-1: order {n} is missing in the history"));
                }
                continue;
            };
            let stands = (0..=moved).find(|moves| after(n, *moves) == *listed);
            if stands.is_none() || stands < copied {
                return broken(format!(
                    "MIG-1: order {n} is {listed:?} in the history after {copied:?} moves"
                ));
            }
        }
        Ok(Ok(()))
    }
}
