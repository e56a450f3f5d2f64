//! Orders: a copy replaces the order and its history where it stands as it was read, and is listed.

use async_trait::async_trait;
use mobimir_core::{
    id::{OrderId, UserId},
    moving::{
        Backlog, Facts, Found, InTable, Mark, Movable, Place, Range, Row, Rows as MovedRows, Scanned, Whole,
        WholeOrder, order_facts,
    },
    order::{Order, OrderPosition, OrderStatus, StatusChange},
    page::Page,
    ports::{DayFilter, OrderStore, Period, StoreResult, Transition},
    time::{Day, Timestamp},
};

use super::{
    super::{
        Cell, Key, Level, Orders, Outcome, Rows, Value,
        orders::{BY_DAY, BY_USER, ORDERS, order_of},
    },
    Moving, PUT_DECISIONS_MAX,
};
use crate::{
    network::{unavailable, unknown},
    planted::PlantedFault,
};

fn whole((order, history): (Order, Vec<StatusChange>)) -> WholeOrder {
    WholeOrder { order, history }
}

impl Moving<Orders> {
    async fn all(&self) -> StoreResult<Vec<WholeOrder>> {
        let rows = self.table("orders", ORDERS).await?;
        let orders = rows.into_values().filter_map(|cell| match cell.value {
            Some(Value::Order(order, history)) => Some(WholeOrder { order: *order, history }),
            _ => None,
        });
        Ok(orders.collect())
    }

    async fn list(&self, order: &Order) -> StoreResult<()> {
        self.store.write("order_list", Level::EachQuorum, Orders::listed(order), order.id).await
    }

    async fn put_one(&self, copy: &WholeOrder) -> StoreResult<()> {
        let id = copy.order.id;
        let mut stands = self.store.stored(id).await?;
        for _ in 0..PUT_DECISIONS_MAX {
            let ignores_versions = self.ring.world().planted(PlantedFault::CopiedWithoutVersion);
            if let Some((order, _)) = &stands
                && order.version >= copy.order.version
                && !ignores_versions
            {
                return self.list(order).await;
            }
            let expected = stands.as_ref().map(|(order, _)| order.version);
            let replacement = copy.clone();
            let put = move |rows: &Rows| {
                let seen = order_of(rows).map(|(order, _)| order.version);
                let WholeOrder { order, history } = replacement;
                let value = Value::Order(Box::new(order), history);
                let cell = || (Key::new(ORDERS, id.as_bytes(), b""), Cell::new(0, value));
                (seen == expected).then(|| vec![cell()])
            };
            let (link, key) = (&self.store.link, id.as_bytes());
            if let Outcome::Applied =
                link.decide("order_put", Level::LocalQuorum, ORDERS, key, key, put).await?
            {
                return self.list(&copy.order).await;
            }
            stands = self.store.stored_decided(id).await?;
        }
        Err(unknown("order_put"))
    }

    /// What a list says of an order.
    async fn listed(&self, table: &'static str, order: &Order) -> StoreResult<InTable> {
        let wanted = Orders::listed(order).into_iter().map(|(key, _)| key).find(|key| key.table == table);
        let Some(wanted) = wanted else { return Ok(InTable { table, facts: None }) };
        let rows: Rows = self.store.rows("order_list", table, wanted.partition.to_vec()).await?;
        let facts = rows.get(&wanted).and_then(|cell| match &cell.value {
            Some(Value::Listed(order)) => Some(order_facts(order)),
            _ => None,
        });
        Ok(InTable { table, facts })
    }
}

#[async_trait]
impl Movable<WholeOrder> for Moving<Orders> {
    fn tables(&self) -> &'static [&'static str] {
        &[ORDERS, BY_USER, BY_DAY]
    }

    async fn whole(&self, id: OrderId) -> StoreResult<Found<WholeOrder>> {
        let waiting = self.outbox.of(id).await?;
        let mut decided = None;
        if waiting.is_in_doubt {
            // Whoever left the entry may have left a note, too, by which somebody would write the order later.
            self.store.heal().await?;
            decided = self.store.stored_decided(id).await?;
        }
        let standing = [decided, self.store.stored(id).await?].into_iter().flatten();
        let newest = standing.map(whole).max_by_key(|whole| whole.order.version);
        Ok(waiting.found(newest))
    }

    async fn count(&self) -> StoreResult<u64> {
        Ok(self.all().await?.len() as u64)
    }

    async fn ranges(&self, _parts: usize) -> StoreResult<Vec<Range>> {
        Ok(vec![Range::default()])
    }

    async fn scan(&self, _range: &Range, _limit: usize) -> StoreResult<Scanned<WholeOrder>> {
        Ok(Scanned { items: self.all().await?.into_iter().map(Ok).collect(), next: None })
    }

    async fn put(&self, wholes: Vec<WholeOrder>, _now: Timestamp) -> StoreResult<()> {
        for whole in &wholes {
            self.put_one(whole).await?;
        }
        Ok(())
    }

    async fn in_tables(&self, whole: &WholeOrder) -> StoreResult<Vec<InTable>> {
        let stands = self.store.stored(whole.order.id).await?.map(self::whole);
        Ok(vec![
            InTable { table: ORDERS, facts: stands.map(|stands| stands.facts()) },
            self.listed(BY_USER, &whole.order).await?,
            self.listed(BY_DAY, &whole.order).await?,
        ])
    }

    async fn rows(
        &self,
        table: &'static str,
        _after: Option<&Place>,
        _limit: usize,
    ) -> StoreResult<MovedRows<OrderId>> {
        let row = |(key, cell): (Key, Cell)| {
            let (id, facts): (OrderId, Facts) = match cell.value? {
                Value::Order(order, history) => (order.id, WholeOrder { order: *order, history }.facts()),
                Value::Listed(order) => (order.id, order_facts(&order)),
                _ => return None,
            };
            Some(Row { key: id, facts, place: Place([key.partition, key.row].concat()) })
        };
        let items = self.table("order_rows", table).await?.into_iter().filter_map(row).collect();
        Ok(MovedRows { items, nameless: Vec::new(), next: None })
    }

    async fn remove(&self, _table: &'static str, _row: &Row<OrderId>) -> StoreResult<()> {
        Err(unavailable("repairs are not simulated"))
    }

    async fn unmirrored(&self, limit: usize) -> StoreResult<Vec<Mark<OrderId>>> {
        self.outbox.unmirrored(limit).await
    }

    async fn backlog(&self) -> StoreResult<Backlog> {
        self.outbox.backlog::<OrderId>().await
    }

    async fn mirrored(&self, marks: &[Mark<OrderId>], _read_at: Timestamp) -> StoreResult<()> {
        self.outbox.remove(marks).await
    }

    async fn nobody_writes(&self) -> StoreResult<()> {
        self.outbox.nobody_writes::<OrderId>().await
    }
}

#[async_trait]
impl OrderStore for Moving<Orders> {
    async fn insert(&self, orders: Vec<Order>) -> StoreResult<usize> {
        let mut inserted = 0;
        for order in orders {
            inserted += self.write(&[order.id], self.store.insert(vec![order])).await?;
        }
        Ok(inserted)
    }

    async fn get(&self, id: OrderId) -> StoreResult<Option<Order>> {
        self.store.get(id).await
    }

    async fn history(&self, id: OrderId) -> StoreResult<Vec<StatusChange>> {
        self.store.history(id).await
    }

    async fn transition(
        &self,
        id: OrderId,
        from: OrderStatus,
        change: StatusChange,
    ) -> StoreResult<Transition> {
        self.write(&[id], self.store.transition(id, from, change)).await
    }

    async fn by_user(
        &self,
        user: UserId,
        period: Period,
        after: Option<OrderPosition>,
        limit: usize,
    ) -> StoreResult<Page<Order, OrderPosition>> {
        self.store.by_user(user, period, after, limit).await
    }

    async fn by_day(
        &self,
        day: Day,
        filter: DayFilter,
        after: Option<OrderPosition>,
        limit: usize,
    ) -> StoreResult<Page<Order, OrderPosition>> {
        self.store.by_day(day, filter, after, limit).await
    }
}
