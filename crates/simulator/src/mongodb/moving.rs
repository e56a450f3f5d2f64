//! What can move, in the replica set: carts, orders, sessions. A tracked write
//! leaves its mark in the same entry of the log.

use std::sync::Arc;

use async_trait::async_trait;
use mobimir_core::{
    cart::{CartChange, CartPosition, Owner, StoredCart},
    id::{OrderId, SessionId, UserId},
    moving::{Backlog, Facts, Found, InTable, Mark, Movable, Place, Range, Row, Rows, Scanned, Side, Whole},
    order::{Order, OrderPosition, OrderStatus, StatusChange},
    page::Page,
    ports::{CartStore, DayFilter, OrderStore, Period, SessionStore, StoreResult, Transition},
    secret::SecretHash,
    session::{RefreshToken, RefreshUse, Session, SessionPosition},
    time::{Day, Timestamp, Version},
};
use mobimir_migrate::phase::Which;
use mobimir_testkit::model::ModelStore;

use super::{MongoStores, ReplicaSet, at_once};
use crate::{migration::Deciding, planted::PlantedFault, world::lock};

/// Marks that a planted fault removes.
const MARKS_MAX: usize = 1_000_000;

pub struct MongoSide {
    stores: Arc<MongoStores>,
    is_tracked: bool,
    deciding: Deciding,
}

impl MongoSide {
    /// The side of a migration that these stores are. `port` says which of their ports.
    pub fn of<W: Whole, P: ?Sized>(
        stores: &Arc<MongoStores>,
        deciding: &Deciding,
        port: impl Fn(Arc<MongoSide>) -> Arc<P>,
    ) -> Side<W, P>
    where
        ModelStore: Movable<W>,
    {
        let view = |is_tracked| {
            Arc::new(MongoSide { stores: stores.clone(), is_tracked, deciding: deciding.clone() })
        };
        Side { port: port(view(false)), tracked: port(view(true)), moving: view(false) }
    }

    /// A write of whoever decides.
    async fn write<T: Send + 'static>(
        &self,
        name: &'static str,
        operation: impl Fn(&ModelStore) -> StoreResult<T> + Send + Sync + 'static,
    ) -> StoreResult<T> {
        let is_tracked = self.is_tracked;
        let write = move |store: &ModelStore| {
            if is_tracked { operation(&store.tracked()) } else { operation(store) }
        };
        let written = self.stores.write(name, write).await;
        if written.is_ok() {
            self.deciding.wrote(Which::Source);
        }
        written
    }
}

impl ReplicaSet {
    /// What a majority has, as nobody in the simulation can see it.
    pub fn peek<T>(&self, read: impl FnOnce(&ModelStore) -> T) -> T {
        read(&lock(&self.set).committed.store)
    }
}

#[async_trait]
impl<W: Whole> Movable<W> for MongoSide
where
    ModelStore: Movable<W>,
{
    fn tables(&self) -> &'static [&'static str] {
        Movable::<W>::tables(&ModelStore::default())
    }

    async fn whole(&self, key: W::Key) -> StoreResult<Found<W>> {
        self.stores.read("whole", move |store| at_once(Movable::<W>::whole(store, key))).await
    }

    async fn count(&self) -> StoreResult<u64> {
        self.stores.read("count", |store| at_once(Movable::<W>::count(store))).await
    }

    /// Few, because there is little to scan.
    async fn ranges(&self, parts: usize) -> StoreResult<Vec<Range>> {
        at_once(Movable::<W>::ranges(&ModelStore::default(), parts.min(2)))
    }

    async fn scan(&self, range: &Range, limit: usize) -> StoreResult<Scanned<W>> {
        let range = range.clone();
        self.stores.read("scan", move |store| at_once(Movable::<W>::scan(store, &range, limit))).await
    }

    async fn put(&self, wholes: Vec<W>, now: Timestamp) -> StoreResult<()> {
        let ignores_versions = self.stores.set.world.planted(PlantedFault::CopiedWithoutVersion);
        let put = move |store: &ModelStore| {
            for whole in wholes.iter().filter(|_| ignores_versions) {
                let row = Row { key: whole.key(), facts: Facts::default(), place: Place(Vec::new()) };
                at_once(Movable::<W>::remove(store, "", &row))?;
            }
            at_once(Movable::<W>::put(store, wholes.clone(), now))
        };
        self.stores.write("put", put).await
    }

    async fn in_tables(&self, whole: &W) -> StoreResult<Vec<InTable>> {
        let whole = whole.clone();
        self.stores.read("in_tables", move |store| at_once(Movable::<W>::in_tables(store, &whole))).await
    }

    async fn rows(
        &self,
        table: &'static str,
        after: Option<&Place>,
        limit: usize,
    ) -> StoreResult<Rows<W::Key>> {
        let after = after.cloned();
        let rows = move |store: &ModelStore| at_once(Movable::<W>::rows(store, table, after.as_ref(), limit));
        self.stores.read("rows", rows).await
    }

    async fn remove(&self, table: &'static str, row: &Row<W::Key>) -> StoreResult<()> {
        let row = row.clone();
        let remove = move |store: &ModelStore| at_once(Movable::<W>::remove(store, table, &row));
        self.stores.write("remove", remove).await
    }

    async fn unmirrored(&self, limit: usize) -> StoreResult<Vec<Mark<W::Key>>> {
        self.stores.read("unmirrored", move |store| at_once(Movable::<W>::unmirrored(store, limit))).await
    }

    async fn backlog(&self) -> StoreResult<Backlog> {
        self.stores.read("backlog", |store| at_once(Movable::<W>::backlog(store))).await
    }

    async fn mirrored(&self, marks: &[Mark<W::Key>], read_at: Timestamp) -> StoreResult<()> {
        let marks = marks.to_vec();
        let ignores_seals = self.stores.set.world.planted(PlantedFault::MarkOfLaterWriteRemoved);
        let remove = move |store: &ModelStore| {
            let mut removed = marks.clone();
            if ignores_seals {
                let all = at_once(Movable::<W>::unmirrored(store, MARKS_MAX))?;
                let keys: Vec<W::Key> = marks.iter().map(|mark| mark.key).collect();
                removed.extend(all.into_iter().filter(|mark| keys.contains(&mark.key)));
            }
            at_once(Movable::<W>::mirrored(store, &removed, read_at))
        };
        self.stores.write("mirrored", remove).await
    }
}

#[async_trait]
impl CartStore for MongoSide {
    async fn append(
        &self,
        owner: Owner,
        changes: Vec<CartChange>,
        expires_at: Timestamp,
        now: Timestamp,
    ) -> StoreResult<()> {
        let append = move |store: &ModelStore| at_once(store.append(owner, changes.clone(), expires_at, now));
        self.write("cart_append", append).await
    }

    async fn read(&self, owner: Owner, now: Timestamp) -> StoreResult<Option<StoredCart>> {
        self.stores.read("cart_read", move |store| at_once(CartStore::read(store, owner, now))).await
    }

    async fn untouched(
        &self,
        untouched_since: Timestamp,
        after: Option<CartPosition>,
        limit: usize,
        now: Timestamp,
    ) -> StoreResult<Page<(Owner, StoredCart), CartPosition>> {
        let untouched =
            move |store: &ModelStore| at_once(store.untouched(untouched_since, after, limit, now));
        self.stores.read("carts_untouched", untouched).await
    }
}

#[async_trait]
impl OrderStore for MongoSide {
    async fn insert(&self, orders: Vec<Order>) -> StoreResult<usize> {
        let insert = move |store: &ModelStore| at_once(OrderStore::insert(store, orders.clone()));
        self.write("order_insert", insert).await
    }

    async fn get(&self, id: OrderId) -> StoreResult<Option<Order>> {
        self.stores.read("order_get", move |store| at_once(OrderStore::get(store, id))).await
    }

    async fn history(&self, id: OrderId) -> StoreResult<Vec<StatusChange>> {
        self.stores.read("order_history", move |store| at_once(store.history(id))).await
    }

    async fn transition(
        &self,
        id: OrderId,
        from: OrderStatus,
        change: StatusChange,
    ) -> StoreResult<Transition> {
        let transition = move |store: &ModelStore| at_once(store.transition(id, from, change.clone()));
        self.write("order_move", transition).await
    }

    async fn by_user(
        &self,
        user: UserId,
        period: Period,
        after: Option<OrderPosition>,
        limit: usize,
    ) -> StoreResult<Page<Order, OrderPosition>> {
        let by_user =
            move |store: &ModelStore| at_once(OrderStore::by_user(store, user, period, after, limit));
        self.stores.read("orders_by_user", by_user).await
    }

    async fn by_day(
        &self,
        day: Day,
        filter: DayFilter,
        after: Option<OrderPosition>,
        limit: usize,
    ) -> StoreResult<Page<Order, OrderPosition>> {
        let by_day = move |store: &ModelStore| at_once(store.by_day(day, filter, after, limit));
        self.stores.read("orders_by_day", by_day).await
    }
}

#[async_trait]
impl SessionStore for MongoSide {
    async fn insert(&self, session: Session, refresh: Option<RefreshToken>) -> StoreResult<()> {
        let insert = move |store: &ModelStore| at_once(SessionStore::insert(store, session.clone(), refresh));
        self.write("session_insert", insert).await
    }

    async fn get(&self, id: SessionId, now: Timestamp) -> StoreResult<Option<Session>> {
        self.stores.read("session_get", move |store| at_once(SessionStore::get(store, id, now))).await
    }

    async fn by_user(
        &self,
        user: UserId,
        after: Option<SessionPosition>,
        limit: usize,
        now: Timestamp,
    ) -> StoreResult<Page<Session, SessionPosition>> {
        let by_user =
            move |store: &ModelStore| at_once(SessionStore::by_user(store, user, after, limit, now));
        self.stores.read("sessions_by_user", by_user).await
    }

    async fn use_refresh(&self, hash: SecretHash, now: Timestamp) -> StoreResult<RefreshUse> {
        self.write("token_use", move |store| at_once(store.use_refresh(hash, now))).await
    }

    async fn update(
        &self,
        session: Session,
        expected: Version,
        refresh: Option<RefreshToken>,
    ) -> StoreResult<bool> {
        let update = move |store: &ModelStore| {
            at_once(SessionStore::update(store, session.clone(), expected, refresh))
        };
        self.write("session_update", update).await
    }

    async fn unmerged(
        &self,
        closed_before: Timestamp,
        limit: usize,
        now: Timestamp,
    ) -> StoreResult<Vec<Session>> {
        self.stores.read("unmerged", move |store| at_once(store.unmerged(closed_before, limit, now))).await
    }
}
