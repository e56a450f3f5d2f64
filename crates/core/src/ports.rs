//! What the shop asks of a store: one trait an entity. Every store implements them, the conformance suite in
//! `mobimir-testkit` says what each operation means, and a migration is the same trait made of two others.
//!
//! All operations are atomic and, once they return `Ok`, durable and visible. Everything that a shop expects to
//! happen (a taken email, too little stock, a lost race) is an `Ok` value; [`StoreError`] is for what it does not.
//! Operations take the time from the caller, and no read returns what has expired by it.

use std::{collections::HashMap, sync::Arc};

use async_trait::async_trait;
use thiserror::Error;

use crate::{
    cart::{CartChange, CartPosition, Owner, StoredCart},
    checkout::Checkout,
    id::{OrderId, ProductId, SessionId, UserId},
    order::{Order, OrderPosition, OrderStatus, StatusChange},
    page::Page,
    product::{
        Hold, HoldOutcome, Product, ProductEdit, ProductPosition, ProductQuery, StockChange, StockOutcome,
        Verdict,
    },
    secret::SecretHash,
    session::{RefreshToken, RefreshUse, Session, SessionPosition},
    time::{Day, Timestamp, Version},
    user::{Email, User},
    zone::Zone,
};

type Cause = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug, Error)]
pub enum StoreError {
    /// The store cannot do it now. Nothing was changed.
    #[error("the store is unavailable: {what}")]
    Unavailable {
        what: String,
        #[source]
        source: Option<Cause>,
    },
    /// The answer was lost: the change may have happened, may still happen, or may not. Read it back.
    #[error("the outcome is unknown: {what}")]
    Unknown {
        what: String,
        #[source]
        source: Option<Cause>,
    },
    /// What is stored makes no sense.
    #[error("stored data is damaged: {what}")]
    Corrupt {
        what: String,
        #[source]
        source: Option<Cause>,
    },
}

pub type StoreResult<T> = Result<T, StoreError>;

/// Products with their stock, and the checkout records that decide over it.
#[async_trait]
pub trait ProductStore: Send + Sync {
    /// What time it is by the clock of the store, when it is `now` by that of the caller. Deadlines of checkouts are set and
    /// judged by it, so that instances whose clocks differ agree on them. A store in the caller's process has the same clock.
    fn clock(&self, now: Timestamp) -> Timestamp {
        now
    }

    /// Inserts all products whose id is new; returns how many were.
    async fn insert(&self, products: Vec<Product>) -> StoreResult<usize>;

    async fn get(&self, id: ProductId) -> StoreResult<Option<Arc<Product>>>;

    /// The products that exist of those asked for.
    async fn get_many(&self, ids: &[ProductId]) -> StoreResult<HashMap<ProductId, Arc<Product>>>;

    /// Changes the named fields and leaves everything else, stock included, to whoever changes it meanwhile.
    async fn edit(
        &self,
        id: ProductId,
        edit: ProductEdit,
        now: Timestamp,
    ) -> StoreResult<Option<Arc<Product>>>;

    async fn change_stock(
        &self,
        id: ProductId,
        zone: Zone,
        change: StockChange,
        now: Timestamp,
    ) -> StoreResult<StockOutcome>;

    /// See [`Product::hold`]. After [`StoreError::Unknown`] the hold may still arrive, even after everything was settled:
    /// the run that placed it must give up, and never place it again under the same attempt.
    async fn hold(&self, id: ProductId, hold: Hold, now: Timestamp) -> StoreResult<HoldOutcome>;

    /// See [`Product::settle`]. A product that does not exist has nothing to settle.
    async fn settle(
        &self,
        id: ProductId,
        order: OrderId,
        verdict: Verdict,
        now: Timestamp,
    ) -> StoreResult<bool>;

    /// See [`ProductQuery`].
    async fn list(&self, query: ProductQuery) -> StoreResult<Page<Arc<Product>, ProductPosition>>;

    /// The categories that products are in, sorted.
    async fn categories(&self) -> StoreResult<Vec<String>>;

    /// Products, by rising id, with a hold placed before `placed_before` that is not settled.
    async fn with_holds(
        &self,
        placed_before: Timestamp,
        after: Option<ProductId>,
        limit: usize,
    ) -> StoreResult<Vec<Arc<Product>>>;

    /// Inserts the record unless one with that order id exists; then that one is returned.
    async fn insert_checkout(&self, checkout: Checkout) -> StoreResult<Option<Checkout>>;

    async fn get_checkout(&self, id: OrderId) -> StoreResult<Option<Checkout>>;

    /// Replaces the record if it still has version `expected`; says whether it did.
    async fn update_checkout(&self, checkout: Checkout, expected: Version) -> StoreResult<bool>;

    /// Records whose `due_at` lies before `now`, the longest due first.
    async fn due_checkouts(&self, now: Timestamp, limit: usize) -> StoreResult<Vec<Checkout>>;

    /// Of these, the ones that are not committed. What they hold has to be given back, however many committed ones are due
    /// because the store of orders does not answer.
    async fn due_uncommitted(&self, now: Timestamp, limit: usize) -> StoreResult<Vec<Checkout>>;

    /// The checkout that last claimed the user's cart, whatever became of it.
    async fn cart_claim(&self, user: UserId) -> StoreResult<Option<OrderId>>;

    /// Compare-and-set of the claim, from `expected` to `order`; returns whether `order` holds the claim now. Claiming twice
    /// is claiming once: an order that holds the claim already gets `true`.
    async fn claim_cart(&self, user: UserId, expected: Option<OrderId>, order: OrderId) -> StoreResult<bool>;
}

#[async_trait]
pub trait UserStore: Send + Sync {
    /// Inserts a user unless the email or the id is taken; says whether it did.
    async fn insert(&self, user: User) -> StoreResult<bool>;

    async fn get(&self, id: UserId) -> StoreResult<Option<User>>;

    async fn by_email(&self, email: &Email) -> StoreResult<Option<User>>;

    /// Replaces the user (the email stays) if the stored one still has version `expected`; says whether it did.
    async fn update(&self, user: User, expected: Version) -> StoreResult<bool>;
}

#[async_trait]
pub trait CartStore: Send + Sync {
    /// Adds changes to the cart, each once by its id, and makes it last until `expires_at` at least. A cart that
    /// has expired by `now` starts anew.
    async fn append(
        &self,
        owner: Owner,
        changes: Vec<CartChange>,
        expires_at: Timestamp,
        now: Timestamp,
    ) -> StoreResult<()>;

    async fn read(&self, owner: Owner, now: Timestamp) -> StoreResult<Option<StoredCart>>;

    /// Carts untouched since `untouched_since` (inclusive), longest first. Empty ones may be among them, since only
    /// a fold can tell.
    async fn untouched(
        &self,
        untouched_since: Timestamp,
        after: Option<CartPosition>,
        limit: usize,
        now: Timestamp,
    ) -> StoreResult<Page<(Owner, StoredCart), CartPosition>>;
}

#[async_trait]
pub trait OrderStore: Send + Sync {
    /// Writes orders that are not there yet, each with the first line of its history ([`Order::first_change`]).
    /// One that is there stays as it is. Returns how many were new as far as this caller can tell: of several who
    /// write the same order at the same moment, more than one may count it as new.
    async fn insert(&self, orders: Vec<Order>) -> StoreResult<usize>;

    async fn get(&self, id: OrderId) -> StoreResult<Option<Order>>;

    async fn history(&self, id: OrderId) -> StoreResult<Vec<StatusChange>>;

    /// Moves the order from `from` and writes the move to its history, if `from` is where it stands. Times in a history do
    /// not run backwards: a move counts as no earlier than the one before.
    async fn transition(
        &self,
        id: OrderId,
        from: OrderStatus,
        change: StatusChange,
    ) -> StoreResult<Transition>;

    /// Orders of one user with `from <= created_at < to`, newest first.
    async fn by_user(
        &self,
        user: UserId,
        period: Period,
        after: Option<OrderPosition>,
        limit: usize,
    ) -> StoreResult<Page<Order, OrderPosition>>;

    /// Orders of one day in UTC, newest first.
    async fn by_day(
        &self,
        day: Day,
        filter: DayFilter,
        after: Option<OrderPosition>,
        limit: usize,
    ) -> StoreResult<Page<Order, OrderPosition>>;
}

/// The orders of users, kept for reading apart from where they are decided. Whoever fills it may be late, may come twice
/// and may be overtaken by a later one.
#[async_trait]
pub trait OrderHistoryStore: Send + Sync {
    /// Writes each order as it stands. One with a newer version replaces the older; an older one changes nothing.
    async fn append(&self, orders: Vec<Order>) -> StoreResult<()>;

    /// As [`OrderStore::by_user`].
    async fn by_user(
        &self,
        user: UserId,
        period: Period,
        after: Option<OrderPosition>,
        limit: usize,
    ) -> StoreResult<Page<Order, OrderPosition>>;
}

/// `from <= time < to`; an end that is not given is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Period {
    pub from: Option<Timestamp>,
    pub to: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DayFilter {
    pub status: Option<OrderStatus>,
    pub zone: Option<Zone>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transition {
    Moved(Order),
    /// The order stands elsewhere, and nothing was done.
    StandsAt(OrderStatus),
    NoSuchOrder,
}

#[async_trait]
pub trait SessionStore: Send + Sync {
    /// Writes a new session and, for a user, its first refresh token.
    async fn insert(&self, session: Session, refresh: Option<RefreshToken>) -> StoreResult<()>;

    /// A session that has not expired; it may have been revoked or closed.
    async fn get(&self, id: SessionId, now: Timestamp) -> StoreResult<Option<Session>>;

    /// The same, read where updates are decided: it sees every update that was acknowledged to anybody. A store in which
    /// every read does needs no other.
    async fn get_decided(&self, id: SessionId, now: Timestamp) -> StoreResult<Option<Session>> {
        self.get(id, now).await
    }

    /// The live sessions of a user, newest first.
    async fn by_user(
        &self,
        user: UserId,
        after: Option<SessionPosition>,
        limit: usize,
        now: Timestamp,
    ) -> StoreResult<Page<Session, SessionPosition>>;

    /// Uses a refresh token up. Of any number of callers exactly one is told `First`.
    async fn use_refresh(&self, hash: SecretHash, now: Timestamp) -> StoreResult<RefreshUse>;

    /// Replaces the session if the stored one still has version `expected`, and writes the refresh token that goes
    /// with it; says whether it did. Holder and times of creation stay.
    async fn update(
        &self,
        session: Session,
        expected: Version,
        refresh: Option<RefreshToken>,
    ) -> StoreResult<bool>;

    /// Guest sessions closed before `closed_before` whose cart is not known to be merged, oldest first.
    async fn unmerged(
        &self,
        closed_before: Timestamp,
        limit: usize,
        now: Timestamp,
    ) -> StoreResult<Vec<Session>>;
}

/// The stores of a shop, one an entity.
#[derive(Clone)]
pub struct Stores {
    pub products: Arc<dyn ProductStore>,
    pub users: Arc<dyn UserStore>,
    pub carts: Arc<dyn CartStore>,
    pub orders: Arc<dyn OrderStore>,
    pub sessions: Arc<dyn SessionStore>,
}

impl Period {
    pub fn contains(&self, time: Timestamp) -> bool {
        self.from.is_none_or(|from| time >= from) && self.to.is_none_or(|to| time < to)
    }
}

impl DayFilter {
    pub fn matches(&self, order: &Order) -> bool {
        self.status.is_none_or(|status| order.status == status)
            && self.zone.is_none_or(|zone| order.geo_zone == zone)
    }
}
