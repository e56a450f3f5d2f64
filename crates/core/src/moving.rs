//! What a live migration asks of a store beside the ports: entities as a whole, by key and one after the other, and which
//! of them were written and are not yet copied.
//!
//! A migration copies states, not operations. What is copied is the entity as the deciding store has it now, under its
//! version, and whoever has a newer one keeps it. So copies may be late, come twice or overtake each other.
//!
//! *Tracked* writes go through a second view of the same store ([`Side::tracked`]): every write through it leaves a mark on what
//! it changed, in the same step or before it, until somebody says that it is copied ([`Movable::mirrored`]). A process may
//! die at any moment: what it did not copy is marked.

use std::{
    collections::BTreeMap,
    fmt::{self, Debug, Display},
    hash::Hash,
    sync::Arc,
};

use async_trait::async_trait;
use sha2::{Digest, Sha256};

use crate::{
    cart::{self, Owner, StoredCart},
    id::{OrderId, SessionId, UserId},
    order::{Order, StatusChange},
    ports::{CartStore, OrderHistoryStore, OrderStore, SessionStore, StoreError, StoreResult},
    secret::SecretHash,
    session::{Holder, RefreshToken, Session, SessionState},
    time::{Month, Timestamp, Version},
};

/// An entity with all that belongs to it.
pub trait Whole: Clone + Debug + PartialEq + Send + Sync + 'static {
    type Key: Copy + Ord + Hash + Debug + Display + Send + Sync + 'static;

    fn key(&self) -> Self::Key;

    /// Of two states of the same entity the newer one has the greater version.
    fn version(&self) -> Version;

    /// When it is gone, if it ever is by itself.
    fn expires_at(&self) -> Option<Timestamp>;

    /// Whether entities of this kind belong to months, and not to the present.
    const IS_DATED: bool = false;

    /// When it happened, if it is of such a kind.
    fn month(&self) -> Option<Month> {
        None
    }

    /// What it says, in words that do not depend on the store.
    fn facts(&self) -> Facts;
}

/// An order and every move it made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WholeOrder {
    pub order: Order,
    pub history: Vec<StatusChange>,
}

/// An order as a separate history has it: a copy, under the version of the order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryEntry(pub Order);

/// Where an order stands in a separate history. None of it ever changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HistoryKey {
    pub user: UserId,
    pub created_at: Timestamp,
    pub order: OrderId,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WholeCart {
    pub owner: Owner,
    pub cart: StoredCart,
    pub version: Version,
}

/// Sessions move together with their refresh tokens, which are changed apart from them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WholeSession {
    Session(Session),
    Token { token: RefreshToken, used: bool },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SessionKey {
    Session(SessionId),
    Token(SecretHash),
}

/// Field by field what is said of an entity, or of a copy that has some of its fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts(BTreeMap<&'static str, String>);

/// An entity as it was found, and the marks that it had no later than that.
#[derive(Clone, Debug, PartialEq)]
pub struct Found<W: Whole> {
    pub whole: Option<W>,
    pub marks: Vec<Mark<W::Key>>,
    /// A write of it has begun and not ended: it may be in `whole`, and its mark is not given out yet. Only where
    /// marks stand apart from what is written.
    pub is_being_written: bool,
}

/// Says that an entity was written and not copied since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark<K> {
    pub key: K,
    pub since: Timestamp,
    /// Tells it from marks of later writes.
    pub seal: u64,
}

/// How much is not copied yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    pub entities: u64,
    pub oldest: Option<Timestamp>,
}

/// Where in the order of a store's keys something stands. Only the store that gave it out can tell what it means.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place(pub Vec<u8>);

/// What lies behind `after` and no further than `to`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Range {
    pub after: Option<Place>,
    pub to: Option<Place>,
}

/// Some entities of a range, in order.
#[derive(Debug)]
pub struct Scanned<W: Whole> {
    pub items: Vec<Result<W, Unreadable>>,
    /// Where to go on; `None` at the end of the range.
    pub next: Option<Place>,
}

/// Something is there that is no entity.
#[derive(Debug)]
pub struct Unreadable {
    /// As a person would look for it.
    pub key: String,
    pub error: StoreError,
}

/// What one table says of an entity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InTable {
    pub table: &'static str,
    /// `None` when the table has no row where one should be.
    pub facts: Option<Facts>,
}

/// A row of a table, whatever it stands there for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row<K> {
    pub key: K,
    pub facts: Facts,
    /// Tells it from every other row of the table. Where to go on is said by [`Rows::next`] alone.
    pub place: Place,
}

/// Rows of a table, in its own order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rows<K> {
    pub items: Vec<Row<K>>,
    /// What stands under a key that no entity can have, as a person would look for it.
    pub nameless: Vec<String>,
    pub next: Option<Place>,
}

/// A store as a migration sees it. Every implementation passes the suite in `mobimir-testkit`.
#[async_trait]
pub trait Movable<W: Whole>: Send + Sync {
    /// The tables that entities stand in; the one that decides comes first.
    fn tables(&self) -> &'static [&'static str];

    /// The entity as it is, whether it has expired or not. A mark that comes with it was there before it was read, so
    /// that whoever copies it may remove the mark.
    async fn whole(&self, key: W::Key) -> StoreResult<Found<W>>;

    /// About how many entities there are, without looking at each of many.
    async fn count(&self) -> StoreResult<u64>;

    /// About so many ranges that together are everything, in order. There is one at least.
    async fn ranges(&self, parts: usize) -> StoreResult<Vec<Range>>;

    /// Entities of a range that are there from before the call until after it; those that come or go meanwhile may be
    /// among them.
    async fn scan(&self, range: &Range, limit: usize) -> StoreResult<Scanned<W>>;

    /// Writes each entity, unless a version as new is there, and makes the tables that are derived from it say what it
    /// says, also if it was there. Leaves no marks. One that has expired by `now` is left out.
    async fn put(&self, wholes: Vec<W>, now: Timestamp) -> StoreResult<()>;

    /// The same, for a store that nobody but copies has written to. It may take these entities for new, and see by its decision
    /// where that was wrong.
    async fn put_first(&self, wholes: Vec<W>, now: Timestamp) -> StoreResult<()> {
        self.put(wholes, now).await
    }

    /// What each table in which this entity should stand says of it. Fields that the entity does not have are not compared.
    async fn in_tables(&self, whole: &W) -> StoreResult<Vec<InTable>>;

    /// All rows of one of the tables, to find those that should not be there.
    async fn rows(
        &self,
        table: &'static str,
        after: Option<&Place>,
        limit: usize,
    ) -> StoreResult<Rows<W::Key>>;

    /// Whether a row of this table that was removed can be written again under the same version. Asked of the
    /// table that decides about an entity. A row that cannot be replaced is left to people when it says
    /// something else under its version: to remove it would lose it.
    fn is_replaceable(&self, _table: &str) -> bool {
        true
    }

    /// Removes a row that should not be there.
    async fn remove(&self, table: &'static str, row: &Row<W::Key>) -> StoreResult<()>;

    /// Marked entities, the longest marked first as a rule.
    async fn unmirrored(&self, limit: usize) -> StoreResult<Vec<Mark<W::Key>>>;

    async fn backlog(&self) -> StoreResult<Backlog>;

    /// Removes these marks: what was read at `read_at` is copied. Those of later writes stay. Where an entity
    /// has one mark for all of its writes, and was written after it was read, the mark is from then on since
    /// `read_at`: an entity that is written all the time is not one that is never copied.
    async fn mirrored(&self, marks: &[Mark<W::Key>], read_at: Timestamp) -> StoreResult<()>;

    /// Nobody is at a tracked write, and none that was begun can still arrive. From now on, in this process, a mark that
    /// stands now is given out with its entity, also if its write never said how it ended. Only a store that marks apart from
    /// the write has such marks.
    async fn nobody_writes(&self) -> StoreResult<()> {
        Ok(())
    }
}

/// One of the two stores of a migration.
pub struct Side<W: Whole, P: ?Sized> {
    pub port: Arc<P>,
    /// The same store; what is written through it is marked, and reading through it writes nothing that would make an
    /// entity say something else, or be newer.
    pub tracked: Arc<P>,
    pub moving: Arc<dyn Movable<W>>,
}

pub type OrderSide = Side<WholeOrder, dyn OrderStore>;
/// Of an order history that has a home of its own.
pub type HistorySide = Side<HistoryEntry, dyn OrderHistoryStore>;
pub type CartSide = Side<WholeCart, dyn CartStore>;
pub type SessionSide = Side<WholeSession, dyn SessionStore>;

/// Everything of a store that can be moved.
#[derive(Clone)]
pub struct Movables {
    pub orders: OrderSide,
    pub carts: CartSide,
    pub sessions: SessionSide,
}

impl<W: Whole, P: ?Sized> Clone for Side<W, P> {
    fn clone(&self) -> Self {
        Self { port: self.port.clone(), tracked: self.tracked.clone(), moving: self.moving.clone() }
    }
}

impl Facts {
    pub fn new(facts: impl IntoIterator<Item = (&'static str, String)>) -> Self {
        Self(facts.into_iter().collect())
    }

    pub fn get(&self, field: &str) -> Option<&str> {
        self.0.get(field).map(String::as_str)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.0.iter().map(|(field, value)| (*field, value.as_str()))
    }

    /// Of something that is there and cannot be read. Every entity has one of these fields, and none says this.
    pub fn unreadable() -> Self {
        Self::new(["version", "used", "lines"].map(|field| (field, "unreadable".to_owned())))
    }

    /// Only these fields.
    #[must_use]
    pub fn of(mut self, fields: &[&str]) -> Self {
        self.0.retain(|field, _| fields.contains(field));
        self
    }

    /// The same facts have the same digest, and others another.
    pub fn digest(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        for (field, value) in &self.0 {
            for text in [*field, value] {
                hash.update((text.len() as u64).to_be_bytes());
                hash.update(text);
            }
        }
        hash.finalize().into()
    }
}

impl<W: Whole> Found<W> {
    pub fn nothing() -> Self {
        Self { whole: None, marks: Vec::new(), is_being_written: false }
    }
}

/// What an order says of itself, without its history.
pub fn order_facts(order: &Order) -> Facts {
    // Without a rest pattern, so that nothing new is forgotten.
    let Order {
        id: _,
        user_id,
        status,
        geo_zone,
        lines,
        shipping_address,
        payment_method,
        created_at,
        updated_at,
        bucket,
        version,
    } = order;
    let lines: Vec<String> = lines
        .iter()
        .map(|line| {
            format!(
                "{} {:?} {:?} {} x{}",
                line.product_id, line.name, line.category, line.price, line.quantity
            )
        })
        .collect();
    Facts::new([
        ("user_id", user_id.to_string()),
        ("status", status.to_string()),
        ("geo_zone", geo_zone.to_string()),
        ("lines", lines.join(", ")),
        ("shipping_address", format!("{shipping_address:?}")),
        ("payment_method", format!("{payment_method:?}")),
        ("created_at", created_at.to_string()),
        ("updated_at", updated_at.to_string()),
        ("bucket", bucket.to_string()),
        ("version", version.0.to_string()),
    ])
}

impl Whole for WholeOrder {
    type Key = OrderId;
    const IS_DATED: bool = true;

    fn key(&self) -> OrderId {
        self.order.id
    }

    fn version(&self) -> Version {
        self.order.version
    }

    fn expires_at(&self) -> Option<Timestamp> {
        None
    }

    fn month(&self) -> Option<Month> {
        Some(Month::of(self.order.created_at.day()))
    }

    fn facts(&self) -> Facts {
        let mut facts = order_facts(&self.order);
        let moves: Vec<String> = self
            .history
            .iter()
            .map(|StatusChange { status, at, operator }| format!("{status} at {at} by {operator:?}"))
            .collect();
        facts.0.insert("history", moves.join(", "));
        facts
    }
}

impl HistoryKey {
    pub fn of(order: &Order) -> Self {
        Self { user: order.user_id, created_at: order.created_at, order: order.id }
    }
}

impl Display for HistoryKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { user, created_at, order } = self;
        write!(f, "{order} of {user} at {created_at}")
    }
}

impl Whole for HistoryEntry {
    type Key = HistoryKey;
    const IS_DATED: bool = true;

    fn key(&self) -> HistoryKey {
        HistoryKey::of(&self.0)
    }

    fn version(&self) -> Version {
        self.0.version
    }

    fn expires_at(&self) -> Option<Timestamp> {
        None
    }

    fn month(&self) -> Option<Month> {
        Some(Month::of(self.0.created_at.day()))
    }

    fn facts(&self) -> Facts {
        order_facts(&self.0)
    }
}

impl Whole for WholeCart {
    type Key = Owner;

    fn key(&self) -> Owner {
        self.owner
    }

    fn version(&self) -> Version {
        self.version
    }

    fn expires_at(&self) -> Option<Timestamp> {
        Some(self.cart.expires_at)
    }

    fn facts(&self) -> Facts {
        cart_facts(&self.cart)
    }
}

/// What a cart's changes fold to. Stores pack them when it suits them, so neither the changes nor their number are told, nor
/// the version, which packing raises, too.
pub fn cart_facts(cart: &StoredCart) -> Facts {
    let StoredCart { changes, created_at, updated_at, expires_at } = cart;
    let view = cart::fold(changes);
    let lines: Vec<String> =
        view.lines.iter().map(|line| format!("{} x{}", line.product, line.quantity)).collect();
    Facts::new([
        ("lines", lines.join(", ")),
        ("geo_zone", view.geo_zone.map(|zone| zone.to_string()).unwrap_or_default()),
        ("created_at", created_at.to_string()),
        ("updated_at", updated_at.to_string()),
        ("expires_at", expires_at.to_string()),
    ])
}

impl Whole for WholeSession {
    type Key = SessionKey;

    fn key(&self) -> SessionKey {
        match self {
            Self::Session(session) => SessionKey::Session(session.id),
            Self::Token { token, .. } => SessionKey::Token(token.hash),
        }
    }

    fn version(&self) -> Version {
        match self {
            Self::Session(session) => session.version,
            // It changes once.
            Self::Token { used, .. } => Version(1 + u64::from(*used)),
        }
    }

    fn expires_at(&self) -> Option<Timestamp> {
        Some(match self {
            Self::Session(session) => session.expires_at,
            Self::Token { token, .. } => token.expires_at,
        })
    }

    fn facts(&self) -> Facts {
        match self {
            Self::Session(session) => session_facts(session),
            Self::Token { token: RefreshToken { hash: _, session, expires_at }, used } => Facts::new([
                ("session", session.to_string()),
                ("expires_at", expires_at.to_string()),
                ("used", used.to_string()),
            ]),
        }
    }
}

/// What a session says of itself, without its secrets.
pub fn session_facts(session: &Session) -> Facts {
    let Session {
        id: _,
        holder,
        token_hash,
        state,
        ip_address,
        user_agent,
        device,
        created_at,
        last_active,
        expires_at,
        version,
    } = session;
    let state = match state {
        SessionState::Live => "live".to_owned(),
        SessionState::Revoked { at } => format!("revoked at {at}"),
        SessionState::Closed { at, into, merged } => format!("closed at {at} into {into}, merged: {merged}"),
    };
    let user_id = match holder {
        Holder::Guest => String::new(),
        Holder::User(user) => user.to_string(),
    };
    Facts::new([
        ("user_id", user_id),
        ("token", fingerprint(token_hash)),
        ("state", state),
        ("ip_address", ip_address.map(|address| address.to_string()).unwrap_or_default()),
        ("user_agent", format!("{user_agent:?}")),
        ("device", format!("{device:?}")),
        ("created_at", created_at.to_string()),
        ("last_active", last_active.to_string()),
        ("expires_at", expires_at.to_string()),
        ("version", version.0.to_string()),
    ])
}

/// Tells one secret's hash from another without being of use to anybody.
fn fingerprint(hash: &SecretHash) -> String {
    let digest = Sha256::digest(hash.0);
    digest[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Display for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Session(id) => write!(f, "session {id}"),
            Self::Token(hash) => write!(f, "token {}", fingerprint(hash)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_tells_facts_apart() {
        let one = Facts::new([("a", "b".to_owned()), ("c", "d".to_owned())]);
        let other = Facts::new([("a", "bc".to_owned()), ("c", "d".to_owned())]);
        let shifted = Facts::new([("a", "b1cd".to_owned())]);
        assert_eq!(one.digest(), one.clone().digest());
        assert_ne!(one.digest(), other.digest());
        assert_ne!(one.digest(), shifted.digest());
        assert_eq!(one.of(&["c"]), Facts::new([("c", "d".to_owned())]));
    }

    #[test]
    fn facts_of_secrets_are_no_secrets() {
        let hash = SecretHash([7; 32]);
        let text = format!("{} {}", SessionKey::Token(hash), fingerprint(&hash));
        assert!(!text.contains("0707"), "{text}");
    }
}
