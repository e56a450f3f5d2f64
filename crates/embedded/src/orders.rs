//! Orders on the engine: by id, by user, by day, and their history.

use async_trait::async_trait;
use fjall::{Readable, Snapshot};
use mobimir_core::{
    id::{OrderId, UserId},
    order::{Order, OrderPosition, OrderStatus, StatusChange},
    page::Page,
    ports::{DayFilter, OrderStore, Period, StoreResult, Transition},
    time::Day,
};

use crate::{
    EmbeddedStore,
    engine::{Key, Space, Txn, after_key, after_prefix},
    error::{damaged, read_failed},
    records::{
        self,
        order::{self, StoredOrder},
        order_by_day::{self, Traits},
        order_by_user, order_history, unmirrored,
    },
    store::Shared,
};

mod moving;

/// Entries of a day that one call looks at to find those a filter asks for. A page may end here, with a `next`.
const DAY_SCAN_ENTRIES_MAX: usize = 10_000;

#[async_trait]
impl OrderStore for EmbeddedStore {
    async fn insert(&self, orders: Vec<Order>) -> StoreResult<usize> {
        let marking = self.marking();
        self.write(move |shared, txn| {
            let mut inserted = 0;
            for order in orders {
                if txn.contains(&order::key(order.id))? {
                    continue;
                }
                marking.leave(shared, txn, unmirrored::order_key(order.id))?;
                txn.put(order_history::key(order.id, 0), order_history::encode(&order.first_change()));
                txn.put(order_by_user::key(order.user_id, order.position()), records::nothing());
                put(txn, &StoredOrder { order, history_lines: 1 });
                inserted += 1;
            }
            Ok(inserted)
        })
        .await
    }

    async fn get(&self, id: OrderId) -> StoreResult<Option<Order>> {
        self.read_in_place(move |shared| {
            let found = shared.tables.get(&order::key(id))?;
            found.map(|bytes| order::decode(id, &bytes).map(|stored| stored.order)).transpose()
        })
        .await
    }

    async fn history(&self, id: OrderId) -> StoreResult<Vec<StatusChange>> {
        self.read_in_place(move |shared| {
            let lines = shared.tables.keyspace(Space::Orders).prefix(&order_history::all(id).bytes);
            lines.map(|line| order_history::decode(&line.value().map_err(read_failed)?)).collect()
        })
        .await
    }

    async fn transition(
        &self,
        id: OrderId,
        from: OrderStatus,
        change: StatusChange,
    ) -> StoreResult<Transition> {
        let marking = self.marking();
        self.write(move |shared, txn| {
            let Some(stored) = txn.get(&order::key(id))? else { return Ok(Transition::NoSuchOrder) };
            let stored = order::decode(id, &stored)?;
            if stored.order.status != from {
                return Ok(Transition::StandsAt(stored.order.status));
            }
            let moved = stored.order.moved(change.status, change.at);
            // A move that was decided before another was written stands after it, and so does its time.
            let change = StatusChange { at: moved.updated_at, ..change };
            marking.leave(shared, txn, unmirrored::order_key(id))?;
            txn.put(order_history::key(id, stored.history_lines), order_history::encode(&change));
            put(txn, &StoredOrder { order: moved.clone(), history_lines: stored.history_lines + 1 });
            Ok(Transition::Moved(moved))
        })
        .await
    }

    async fn by_user(
        &self,
        user: UserId,
        period: Period,
        after: Option<OrderPosition>,
        limit: usize,
    ) -> StoreResult<Page<Order, OrderPosition>> {
        self.read_in_place(move |shared| {
            let snapshot = shared.tables.snapshot();
            // Newest first: the list starts past all of `to`, which is not part of it, and ends with `from`, which is.
            let all = order_by_user::all(user);
            let mut start = match period.to {
                Some(to) => after_prefix(&order_by_user::at(user, to)),
                None => all.clone(),
            };
            if let Some(after) = after {
                start = start.max(after_key(&order_by_user::key(user, after)));
            }
            let end = after_prefix(&period.from.map_or(all, |from| order_by_user::at(user, from)));
            if start >= end {
                return Ok(Page::empty());
            }
            let rows = snapshot.range(shared.tables.keyspace(Space::Orders), start.bytes..end.bytes);
            let mut orders = Vec::new();
            for row in rows.take(limit.saturating_add(1)) {
                let position = order_by_user::read_key(&row.key().map_err(read_failed)?)?;
                orders.push(shared.listed_order(&snapshot, position)?);
            }
            Ok(Page::cut(orders, limit, Order::position))
        })
        .await
    }

    async fn by_day(
        &self,
        day: Day,
        filter: DayFilter,
        after: Option<OrderPosition>,
        limit: usize,
    ) -> StoreResult<Page<Order, OrderPosition>> {
        self.read(move |shared| {
            let snapshot = shared.tables.snapshot();
            let all = order_by_day::all(day);
            let start = after.map_or(all.clone(), |after| after_key(&order_by_day::key(day, after)));
            let end = after_prefix(&all);
            if start >= end {
                return Ok(Page::empty());
            }
            let rows = snapshot.range(shared.tables.keyspace(Space::Orders), start.bytes..end.bytes);
            let mut orders = Vec::new();
            for (looked_at, row) in rows.enumerate() {
                let (key, value) = row.into_inner().map_err(read_failed)?;
                let position = order_by_day::read_key(&key)?;
                if order_by_day::decode(&value)?.match_filter(&filter) {
                    orders.push(shared.listed_order(&snapshot, position)?);
                }
                if orders.len() > limit {
                    break;
                }
                if looked_at + 1 == DAY_SCAN_ENTRIES_MAX {
                    return Ok(Page { items: orders, next: Some(position) });
                }
            }
            Ok(Page::cut(orders, limit, Order::position))
        })
        .await
    }
}

/// Writes the order and what its day's table says of it.
fn put(txn: &mut Txn<'_>, stored: &StoredOrder) {
    let order = &stored.order;
    txn.put(order_by_day::key(order.day(), order.position()), order_by_day::encode(Traits::of(order)));
    txn.put(order::key(order.id), order::encode(stored));
}

impl Shared {
    /// An order that an index names, which therefore is there (ORD-1).
    fn listed_order(&self, snapshot: &Snapshot, position: OrderPosition) -> StoreResult<Order> {
        let id = position.order_id;
        let Key { space, bytes } = order::key(id);
        match snapshot.get(self.tables.keyspace(space), &bytes).map_err(read_failed)? {
            Some(bytes) => order::decode(id, &bytes).map(|stored| stored.order),
            None => Err(damaged(format!("order {id} is listed but not there"))),
        }
    }
}
