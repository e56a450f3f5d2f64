//! The policy `history-only`: orders stand in MongoDB, and their history by customer in Cassandra. The shop's
//! own [`SeparateHistory`] copies, over models of both.

use std::sync::Arc;

use async_trait::async_trait;
use mobimir_core::{
    id::{OrderId, UserId},
    moving::{Backlog, Found, InTable, Mark, Movable, Place, Range, Row, Rows, Scanned, WholeOrder},
    notes::{Expected, Note, NoteStore},
    order::{Order, OrderPosition, OrderStatus, StatusChange},
    page::Page,
    ports::{DayFilter, OrderHistoryStore, OrderStore, Period, StoreResult, Transition},
    time::{Day, Timestamp},
};
use mobimir_shop::{SeparateHistory, Shop, environment::Environment};

use crate::{
    cassandra::{OrderHistory, Ring},
    checker::{FinalState, Violation},
    history::{Answer, Call, Operation},
    instance::Heard,
    mongodb::{MongoStores, ReplicaSet, at_once},
    network::Network,
    planted::PlantedFault,
    shoppers::Market,
};

/// Where entries of the outbox stand: `order-history/owed/<order>/<id>`.
pub(crate) const OWED: &str = "order-history/owed/";

/// The orders of an instance.
pub fn orders(
    set: &ReplicaSet,
    ring: Ring,
    network: Network,
    environment: &Environment,
) -> Arc<dyn OrderStore> {
    let mongodb = set.reached_by(network.clone());
    let history = Arc::new(OrderHistory::open(ring, set.clone(), network, environment));
    let (notes, existing) = (mongodb.clone(), mongodb.clone());
    Arc::new(SeparateHistory::new(mongodb, history, notes, existing, environment.clone()))
}

#[async_trait]
impl OrderStore for MongoStores {
    async fn insert(&self, orders: Vec<Order>) -> StoreResult<usize> {
        self.write("order_insert", move |store| at_once(OrderStore::insert(store, orders.clone()))).await
    }

    async fn get(&self, id: OrderId) -> StoreResult<Option<Order>> {
        self.read("order_get", move |store| at_once(OrderStore::get(store, id))).await
    }

    async fn history(&self, id: OrderId) -> StoreResult<Vec<StatusChange>> {
        self.read("order_history", move |store| at_once(store.history(id))).await
    }

    async fn transition(
        &self,
        id: OrderId,
        from: OrderStatus,
        change: StatusChange,
    ) -> StoreResult<Transition> {
        self.write("order_move", move |store| at_once(store.transition(id, from, change.clone()))).await
    }

    async fn by_user(
        &self,
        user: UserId,
        period: Period,
        after: Option<OrderPosition>,
        limit: usize,
    ) -> StoreResult<Page<Order, OrderPosition>> {
        let list = move |store: &_| at_once(OrderStore::by_user(store, user, period, after, limit));
        self.read("order_list", list).await
    }

    async fn by_day(
        &self,
        day: Day,
        filter: DayFilter,
        after: Option<OrderPosition>,
        limit: usize,
    ) -> StoreResult<Page<Order, OrderPosition>> {
        let list = move |store: &_| at_once(OrderStore::by_day(store, day, filter, after, limit));
        self.read("order_list", list).await
    }
}

#[async_trait]
impl NoteStore for MongoStores {
    async fn get(&self, name: &str) -> StoreResult<Option<Note>> {
        let name = name.to_owned();
        self.read("note_get", move |store| at_once(NoteStore::get(store, &name))).await
    }

    async fn list(&self, prefix: &str, after: Option<&str>, limit: usize) -> StoreResult<Vec<Note>> {
        let (prefix, after) = (prefix.to_owned(), after.map(str::to_owned));
        let list = move |store: &_| at_once(NoteStore::list(store, &prefix, after.as_deref(), limit));
        self.read("note_list", list).await
    }

    async fn write(&self, name: &str, expected: Expected, body: Vec<u8>) -> StoreResult<Option<u64>> {
        let is_entry = name.starts_with(OWED);
        if is_entry && self.planted(PlantedFault::OutboxInMemoryOnly) {
            return Ok(Some(1));
        }
        if is_entry {
            self.owes(name);
        }
        let name = name.to_owned();
        let write = move |store: &_| at_once(NoteStore::write(store, &name, expected, body.clone()));
        MongoStores::write(self, "note_write", write).await
    }

    async fn remove(&self, name: &str, expected: Expected) -> StoreResult<bool> {
        let of = name.to_owned();
        let remove = move |store: &_| at_once(NoteStore::remove(store, &of, expected));
        let removed = MongoStores::write(self, "note_remove", remove).await;
        if removed.is_ok() && name.starts_with(OWED) {
            self.paid(name);
        }
        removed
    }
}

#[async_trait]
impl Movable<WholeOrder> for MongoStores {
    fn tables(&self) -> &'static [&'static str] {
        &["orders"]
    }

    async fn whole(&self, key: OrderId) -> StoreResult<Found<WholeOrder>> {
        self.read("order_whole", move |store| at_once(Movable::<WholeOrder>::whole(store, key))).await
    }

    async fn count(&self) -> StoreResult<u64> {
        self.read("order_count", |store| at_once(Movable::<WholeOrder>::count(store))).await
    }

    async fn ranges(&self, parts: usize) -> StoreResult<Vec<Range>> {
        self.read("order_ranges", move |store| at_once(Movable::<WholeOrder>::ranges(store, parts))).await
    }

    async fn scan(&self, range: &Range, limit: usize) -> StoreResult<Scanned<WholeOrder>> {
        let range = range.clone();
        let scan = move |store: &_| at_once(Movable::<WholeOrder>::scan(store, &range, limit));
        self.read("order_scan", scan).await
    }

    async fn put(&self, wholes: Vec<WholeOrder>, now: Timestamp) -> StoreResult<()> {
        MongoStores::write(self, "order_put", move |store| at_once(store.put(wholes.clone(), now))).await
    }

    async fn in_tables(&self, whole: &WholeOrder) -> StoreResult<Vec<InTable>> {
        let whole = whole.clone();
        self.read("order_in_tables", move |store| at_once(store.in_tables(&whole))).await
    }

    async fn rows(
        &self,
        table: &'static str,
        after: Option<&Place>,
        limit: usize,
    ) -> StoreResult<Rows<OrderId>> {
        let after = after.cloned();
        let rows = move |store: &_| at_once(Movable::<WholeOrder>::rows(store, table, after.as_ref(), limit));
        self.read("order_rows", rows).await
    }

    async fn remove(&self, table: &'static str, row: &Row<OrderId>) -> StoreResult<()> {
        let row = row.clone();
        let remove = move |store: &_| at_once(Movable::<WholeOrder>::remove(store, table, &row));
        MongoStores::write(self, "order_remove", remove).await
    }

    async fn unmirrored(&self, limit: usize) -> StoreResult<Vec<Mark<OrderId>>> {
        self.read("order_marks", move |store| at_once(Movable::<WholeOrder>::unmirrored(store, limit))).await
    }

    async fn backlog(&self) -> StoreResult<Backlog> {
        self.read("order_backlog", |store| at_once(Movable::<WholeOrder>::backlog(store))).await
    }

    async fn mirrored(&self, marks: &[Mark<OrderId>], read_at: Timestamp) -> StoreResult<()> {
        let marks = marks.to_vec();
        let mirrored = move |store: &_| at_once(Movable::<WholeOrder>::mirrored(store, &marks, read_at));
        MongoStores::write(self, "order_mirrored", mirrored).await
    }
}

#[async_trait]
impl OrderHistoryStore for OrderHistory {
    async fn append(&self, orders: Vec<Order>) -> StoreResult<()> {
        for order in orders {
            if self.planted(PlantedFault::OutboxEntryRemovedBeforeCopy) {
                self.forget(order.id).await;
            }
            let copied = self.put(order).await;
            if copied.is_err() {
                self.behind();
                if !self.planted(PlantedFault::CopyAssumed) {
                    return copied;
                }
            }
        }
        Ok(())
    }

    async fn by_user(
        &self,
        user: UserId,
        period: Period,
        after: Option<OrderPosition>,
        limit: usize,
    ) -> StoreResult<Page<Order, OrderPosition>> {
        self.page(user, period, after, limit).await
    }
}

/// When a copy of an order was owed, as the outbox said.
#[derive(Clone, Debug)]
pub struct Owed {
    pub order: String,
    pub from_ms: i64,
    pub to_ms: i64,
}

/// The order of an entry.
pub fn order_of(entry: &str) -> &str {
    entry.strip_prefix(OWED).and_then(|rest| rest.split('/').next()).unwrap_or_default()
}

impl FinalState {
    /// Whether the history may be behind with an order, at some moment of the read.
    pub fn was_owed(&self, order: &str, read: &Operation) -> bool {
        self.owed.iter().any(|owed| {
            owed.order == order && owed.from_ms <= read.answered_ms && owed.to_ms >= read.asked_ms
        })
    }
}

/// Somebody who looks at the orders of a customer.
pub struct Reader {
    pub market: Market,
    pub client: usize,
}

impl Reader {
    pub async fn read(self, steps: usize) {
        for _ in 0..steps {
            self.market.world.sleep_ms(200, 9_000).await;
            let customer = self.market.world.below(self.market.users.len() as u64) as usize;
            let (user, _) = self.market.users[customer];
            let instance = self.market.any_instance();
            let answer = async {
                let list = move |shop: Shop| async move {
                    shop.orders_of(user, Period::default(), None, 1_000).await
                };
                match instance.read(list).await {
                    Heard::Answer(Ok(page)) => {
                        let line = |order: Order| (order.id.to_string(), order.status.to_string());
                        Answer::Statuses(page.items.into_iter().map(line).collect())
                    }
                    _ => Answer::NotNow,
                }
            };
            self.market.ask(self.client, &instance, Call::ListStatuses { customer }, answer).await;
        }
    }
}

/// ORD-1, ORD-3: a history says what was acknowledged, or the outbox says that it is behind.
pub fn check(operations: &[Operation], end: &FinalState) -> Vec<Violation> {
    let mut failures = Vec::new();
    let mut fail = |invariant, what| failures.push(Violation { invariant, what });
    for read in operations {
        let (Call::ListStatuses { customer }, Answer::Statuses(listed)) = (&read.call, &read.answer) else {
            continue;
        };
        let ours = end.orders.iter().filter(|((of, _), _)| of == customer);
        for order in ours.filter_map(|(_, order)| order.as_ref()) {
            if end.was_owed(&order.id, read) {
                continue;
            }
            let steps: Vec<&str> = order.history.iter().map(|(status, _)| status.as_str()).collect();
            let at = |status: &str| steps.iter().position(|step| *step == status);
            let status = listed.iter().find(|(id, _)| *id == order.id).map(|(_, status)| status.as_str());
            for acknowledged in operations.iter().filter(|earlier| earlier.answered_ms <= read.asked_ms) {
                match (&acknowledged.call, &acknowledged.answer) {
                    (_, Answer::Placed { order: id, .. }) if *id == order.id && status.is_none() => {
                        fail("ORD-1", format!("order {id} is missing in {read:?}"));
                    }
                    (Call::Move { order: id, to, .. }, Answer::Done)
                        if *id == order.id && status.is_some_and(|status| at(status) < at(to)) =>
                    {
                        fail("ORD-3", format!("before {acknowledged:?} in {read:?}"));
                    }
                    _ => {}
                }
            }
        }
    }
    failures
}
