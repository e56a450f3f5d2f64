//! Orders: one partition with status and history, and full copies in the lists of the user and of the day. A
//! note of what is to be listed is there before anything else is written.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use mobimir_core::{
    id::{OrderId, UserId},
    order::{Order, OrderPosition, OrderStatus, StatusChange},
    page::Page,
    policy::Entity,
    ports::{DayFilter, OrderStore, Period, StoreResult, Transition},
    time::Day,
};
use mobimir_shop::environment::Environment;

use super::{Cell, Debts, Key, Level, Link, Outcome, Ring, Rows, Stamps, Value, open};
use crate::{
    network::{Network, unavailable, unknown},
    planted::PlantedFault,
};

pub(super) const ORDERS: &str = "orders";
pub(super) const BY_USER: &str = "orders_by_user";
pub(super) const BY_DAY: &str = "orders_by_day";
const NOTES: &str = "pending_moves";
/// When a note was left behind by somebody who died.
const HEAL_AFTER_MS: i64 = 10_000;
/// When a request that was sent can no longer arrive, whatever the clocks say.
const GIVEN_UP_AFTER_MS: i64 = 65_000;
const HEAL_EVERY: Duration = Duration::from_secs(5);
const DECISIONS_MAX: usize = 4;

#[derive(Clone)]
pub struct Orders {
    pub(super) ring: Ring,
    pub(super) link: Link,
    stamps: Stamps,
}

impl Orders {
    /// The store of an instance, which from then on lists what others left behind.
    pub fn open(ring: Ring, network: Network, environment: &Environment, dc: usize) -> Arc<Self> {
        let link = Link::open(ring.clone(), network, environment, Entity::Orders, dc);
        let orders = Arc::new(Self { ring, link, stamps: Stamps::new(environment.clock.clone()) });
        let debts: Arc<dyn Debts> = orders.clone();
        orders.link.watch(Arc::downgrade(&debts), environment);
        let heals = Self::clone(&orders);
        environment.tasks.spawn(Box::pin(async move {
            loop {
                tokio::time::sleep(HEAL_EVERY).await;
                // What could not be listed now is listed next time.
                let _ = heals.heal().await;
            }
        }));
        orders
    }

    pub(super) async fn write(
        &self,
        name: &'static str,
        level: Level,
        cells: Vec<(Key, Cell)>,
        order: OrderId,
    ) -> StoreResult<()> {
        self.link.write(name, level, cells, order.as_bytes()).await
    }

    pub(super) async fn rows(
        &self,
        name: &'static str,
        table: &'static str,
        partition: Vec<u8>,
    ) -> StoreResult<Rows> {
        self.link.read(name, table, &partition).await
    }

    pub(super) async fn stored(&self, id: OrderId) -> StoreResult<Option<(Order, Vec<StatusChange>)>> {
        Ok(order_of(&self.rows("order_get", ORDERS, id.as_bytes().to_vec()).await?))
    }

    pub(super) async fn stored_decided(
        &self,
        id: OrderId,
    ) -> StoreResult<Option<(Order, Vec<StatusChange>)>> {
        Ok(order_of(&self.link.read_decided("order_get", ORDERS, id.as_bytes()).await?))
    }

    pub(super) fn listed(order: &Order) -> Vec<(Key, Cell)> {
        let stamp = order.version.0.cast_signed();
        let cell = || Cell::new(stamp, Value::Listed(Box::new(order.clone())));
        vec![
            (Key::new(BY_USER, order.user_id.as_bytes(), order.id.as_bytes()), cell()),
            (Key::new(BY_DAY, order.day().to_string().as_bytes(), order.id.as_bytes()), cell()),
        ]
    }

    fn first_rows(&self, order: &Order) -> Vec<(Key, Cell)> {
        let first = Value::Order(Box::new(order.clone()), vec![order.first_change()]);
        let key = Key::new(ORDERS, order.id.as_bytes(), b"");
        let mut cells = vec![(key, Cell::new(self.stamps.first_write(), first))];
        cells.extend(Self::listed(order));
        cells
    }

    async fn note(&self, order: &Order) -> StoreResult<Option<Key>> {
        if self.ring.world().planted(PlantedFault::NoNoteBeforeListing) {
            return Ok(None);
        }
        let stamp = self.stamps.next();
        let row = [stamp.to_be_bytes().as_slice(), order.id.as_bytes()].concat();
        let key = Key::new(NOTES, b"", &row);
        let cell = Cell::new(stamp, Value::Listed(Box::new(order.clone())));
        self.write("order_note", Level::EachQuorum, vec![(key.clone(), cell)], order.id).await?;
        Ok(Some(key))
    }

    fn remove_later(&self, note: Option<Key>, order: OrderId) {
        let Some(note) = note else { return };
        let (this, stamp) = (self.clone(), self.stamps.next());
        self.ring.world().spawn(async move {
            let cells = vec![(note, Cell::tombstone(stamp))];
            let _ = this.write("order_note_remove", Level::EachQuorum, cells, order).await;
        });
    }

    /// Writes the lists of orders whose note was left behind.
    pub(super) async fn heal(&self) -> StoreResult<()> {
        let old_us = (self.stamps.now().as_millis() - HEAL_AFTER_MS) * 1_000;
        let given_up_us = (self.stamps.now().as_millis() - GIVEN_UP_AFTER_MS) * 1_000;
        for (key, cell) in self.rows("order_notes", NOTES, Vec::new()).await? {
            let Some(Value::Listed(noted)) = &cell.value else { continue };
            if cell.stamp > old_us {
                continue;
            }
            match self.stored_decided(noted.id).await? {
                // As long as somebody may wait for it, the move may still be decided.
                Some((order, _)) if order.version < noted.version && cell.stamp > given_up_us => continue,
                Some((order, _)) => self.list(&order).await?,
                None => {
                    let rows = self.first_rows(noted);
                    self.write("order_insert", Level::EachQuorum, rows, noted.id).await?;
                }
            }
            self.ring.world().note("order listed by another", noted.id);
            self.remove_later(Some(key), noted.id);
        }
        Ok(())
    }

    async fn list(&self, order: &Order) -> StoreResult<()> {
        self.write("order_list", Level::EachQuorum, Self::listed(order), order.id).await
    }

    async fn insert_one(&self, order: Order) -> StoreResult<bool> {
        let note = self.note(&order).await?;
        if let Some((stored, _)) = self.stored(order.id).await.map_err(open)? {
            self.list(&stored).await.map_err(open)?;
            self.remove_later(note, order.id);
            return Ok(false);
        }
        if self.ring.world().planted(PlantedFault::NoNoteBeforeListing) {
            let mut cells = self.first_rows(&order);
            let lists = cells.split_off(1);
            self.write("order_insert", Level::EachQuorum, cells, order.id).await.map_err(open)?;
            // Nobody waits for the lists, and whoever dies leaves them out.
            let _ = self.write("order_list", Level::EachQuorum, lists[1..].to_vec(), order.id).await;
            return Ok(true);
        }
        self.write("order_insert", Level::EachQuorum, self.first_rows(&order), order.id)
            .await
            .map_err(open)?;
        if self.ring.is_any_lost() {
            self.ring.world().note("order taken without a data centre", order.id);
        }
        self.remove_later(note, order.id);
        Ok(true)
    }

    async fn page(
        &self,
        table: &'static str,
        partition: Vec<u8>,
        wanted: impl Fn(&Order) -> bool,
        after: Option<OrderPosition>,
        limit: usize,
    ) -> StoreResult<Page<Order, OrderPosition>> {
        let rows = self.rows("order_list", table, partition).await?;
        let listed = rows.into_values().filter_map(|cell| match cell.value {
            Some(Value::Listed(order)) => Some(*order),
            _ => None,
        });
        let mut orders: Vec<Order> = listed.filter(|order| wanted(order)).collect();
        orders.sort_by_key(|order| order.position().key());
        orders.retain(|order| after.is_none_or(|after| order.position().key() > after.key()));
        Ok(Page::cut(orders, limit, Order::position))
    }
}

pub(super) fn order_of(rows: &Rows) -> Option<(Order, Vec<StatusChange>)> {
    rows.values().find_map(|cell| match &cell.value {
        Some(Value::Order(order, history)) => Some(((**order).clone(), history.clone())),
        _ => None,
    })
}

#[async_trait]
impl OrderStore for Orders {
    async fn insert(&self, orders: Vec<Order>) -> StoreResult<usize> {
        let mut inserted = 0;
        for order in orders {
            inserted += usize::from(self.insert_one(order).await?);
        }
        Ok(inserted)
    }

    async fn get(&self, id: OrderId) -> StoreResult<Option<Order>> {
        Ok(self.stored(id).await?.map(|(order, _)| order))
    }

    async fn history(&self, id: OrderId) -> StoreResult<Vec<StatusChange>> {
        Ok(self.stored(id).await?.map(|(_, history)| history).unwrap_or_default())
    }

    async fn transition(
        &self,
        id: OrderId,
        from: OrderStatus,
        change: StatusChange,
    ) -> StoreResult<Transition> {
        let stored = match self.stored(id).await? {
            Some(stored) if stored.0.status == from => Some(stored),
            stored => self.stored_decided(id).await?.or(stored),
        };
        let Some((order, history)) = stored else { return Ok(Transition::NoSuchOrder) };
        if order.status != from {
            return Ok(Transition::StandsAt(order.status));
        }
        let moved = order.moved(change.status, change.at);
        let mut longer = history.clone();
        longer.push(StatusChange { at: moved.updated_at, ..change });
        let note = self.note(&moved).await?;
        let ignores = self.ring.world().planted(PlantedFault::MovedUnconditionally);
        for _ in 0..DECISIONS_MAX {
            let expected = history.len();
            let (moved, longer) = (moved.clone(), longer.clone());
            let (decided_order, decided_history) = (moved.clone(), longer.clone());
            let key = id.as_bytes();
            let plan = move |rows: &Rows| {
                let (_, seen) = order_of(rows)?;
                let may = seen.len() == expected || ignores;
                let value = Value::Order(Box::new(moved), longer);
                may.then(|| vec![(Key::new(ORDERS, id.as_bytes(), b""), Cell::new(0, value))])
            };
            let decide = self.link.decide("order_move", Level::EachQuorum, ORDERS, key, key, plan);
            match decide.await {
                Ok(Outcome::Applied) => {
                    self.list(&decided_order).await.map_err(open)?;
                    self.remove_later(note, id);
                    return Ok(Transition::Moved(decided_order));
                }
                Err(error) if matches!(error, mobimir_core::ports::StoreError::Unavailable { .. }) => {
                    return Err(open(error));
                }
                Ok(Outcome::Refused | Outcome::Lost) | Err(_) => {}
            }
            // Whose move took the number tells the history.
            let Some((order, history)) = self.stored_decided(id).await.map_err(open)? else { continue };
            match history.get(expected) {
                Some(taken) if Some(taken) == decided_history.last() && taken.operator.is_some() => {
                    self.list(&decided_order).await.map_err(open)?;
                    return Ok(Transition::Moved(decided_order));
                }
                Some(_) => return Ok(Transition::StandsAt(order.status)),
                None => {}
            }
        }
        Err(unknown("order_move"))
    }

    async fn by_user(
        &self,
        user: UserId,
        period: Period,
        after: Option<OrderPosition>,
        limit: usize,
    ) -> StoreResult<Page<Order, OrderPosition>> {
        let wanted = |order: &Order| period.contains(order.created_at);
        self.page(BY_USER, user.as_bytes().to_vec(), wanted, after, limit).await
    }

    async fn by_day(
        &self,
        day: Day,
        filter: DayFilter,
        after: Option<OrderPosition>,
        limit: usize,
    ) -> StoreResult<Page<Order, OrderPosition>> {
        if filter != DayFilter::default() {
            return Err(unavailable("filters of a day are not simulated"));
        }
        self.page(BY_DAY, day.to_string().into_bytes(), |_| true, after, limit).await
    }
}

#[async_trait]
impl Debts for Orders {
    async fn settle(&self, key: &[u8]) -> StoreResult<()> {
        let rows = self.link.read_of_all_replicas("order_settle", ORDERS, key).await?;
        let Some((order, _)) = order_of(&rows) else { return Ok(()) };
        let (user, day) = (order.user_id.as_bytes().to_vec(), order.day().to_string().into_bytes());
        self.link.read_of_all_replicas("order_settle", BY_USER, &user).await?;
        self.link.read_of_all_replicas("order_settle", BY_DAY, &day).await?;
        Ok(())
    }
}
