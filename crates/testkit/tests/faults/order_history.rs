use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use mobimir_core::{
    id::{OrderId, UserId},
    order::{Order, OrderPosition},
    page::Page,
    ports::{OrderHistoryStore, Period, StoreResult},
};
use mobimir_testkit::{conformance, model::ModelStore};
use tokio::sync::Mutex;

use crate::{Door, OPTIONS, must_be_found};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    LetsAnOlderVersionReplaceANewer,
    KeepsTheFirstVersion,
    LosesOrdersThatRace,
    EndsAPeriodTooLate,
    OrdersEqualTimesByFallingId,
}

#[test]
fn order_history() {
    use Fault::*;
    for fault in [
        LetsAnOlderVersionReplaceANewer,
        KeepsTheFirstVersion,
        LosesOrdersThatRace,
        EndsAPeriodTooLate,
        OrdersEqualTimesByFallingId,
    ] {
        let store = || async move {
            Arc::new(Faulty { fault, orders: Mutex::default(), door: Door::default() })
                as Arc<dyn OrderHistoryStore>
        };
        must_be_found(&fault, || conformance::order_history(&store, OPTIONS));
    }
}

struct Faulty {
    fault: Fault,
    orders: Mutex<BTreeMap<OrderId, Order>>,
    door: Door,
}

#[async_trait]
impl OrderHistoryStore for Faulty {
    async fn append(&self, orders: Vec<Order>) -> StoreResult<()> {
        let is_first = self.door.enter().await;
        self.door.leave();
        if self.fault == Fault::LosesOrdersThatRace && !is_first {
            return Ok(());
        }
        let mut stored = self.orders.lock().await;
        for order in orders {
            let replaces = match (self.fault, stored.get(&order.id)) {
                (_, None) | (Fault::LetsAnOlderVersionReplaceANewer, _) => true,
                (Fault::KeepsTheFirstVersion, Some(_)) => false,
                (_, Some(older)) => older.version < order.version,
            };
            if replaces {
                stored.insert(order.id, order);
            }
        }
        Ok(())
    }

    async fn by_user(
        &self,
        user: UserId,
        mut period: Period,
        after: Option<OrderPosition>,
        limit: usize,
    ) -> StoreResult<Page<Order, OrderPosition>> {
        if self.fault == Fault::EndsAPeriodTooLate {
            period.to = period.to.map(|to| to.plus_ms(1));
        }
        let sound = ModelStore::order_history();
        let orders = self.orders.lock().await;
        sound.append(orders.values().filter(|order| order.user_id == user).cloned().collect()).await?;
        let mut page = sound.by_user(user, period, after, limit).await?;
        if self.fault == Fault::OrdersEqualTimesByFallingId {
            page.items.sort_by_key(|order| std::cmp::Reverse((order.created_at, order.id)));
        }
        Ok(page)
    }
}
