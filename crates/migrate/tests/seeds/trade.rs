//! What shoppers do with one entity, and what they must see afterwards.

mod history;

use std::{collections::BTreeSet, sync::Arc};

use mobimir_core::{
    cart::{self, CartChange, Effect, Owner},
    id::{ChangeId, OrderId, ProductId, SessionId, UserId, derived},
    moving::{SessionKey, Side, Whole, WholeCart, WholeOrder, WholeSession},
    order::{Order, OrderStatus, StatusChange},
    ports::{CartStore, OrderStore, SessionStore, StoreError, StoreResult, Transition},
    secret::SecretHash,
    session::{Holder, RefreshToken, RefreshUse, Session, SessionState},
    time::{Timestamp, Version},
    zone::Zone,
};
use mobimir_migrate::{migrating::Migrating, shadow::Shadow, standing::Standing};
use mobimir_testkit::model::ModelStore;

pub(crate) use self::history::HistoryTrade;
use crate::{
    chance::Chance,
    faulty::{self, Faults},
    world::Now,
};

/// A promise was broken.
#[derive(Debug)]
pub(crate) struct Broken(pub(crate) String);

/// What a shopper does next. An error of the store is what shoppers have to live with.
pub(crate) type Done = Result<StoreResult<()>, Broken>;

/// What moves, and the same as a port.
pub(crate) type Ports<W, P> = (Arc<Migrating<W, P>>, Arc<P>);

/// One shopper, who does one thing after the other with one entity.
pub(crate) trait Trade: Clone + Send + Sync + 'static {
    type W: Whole;
    type Port: ?Sized + Send + Sync + 'static;

    const ENTITY: &'static str;

    fn new(n: u64) -> Self;
    fn side(store: &ModelStore, faults: &Arc<Faults>) -> Side<Self::W, Self::Port>;
    fn port(
        source: Side<Self::W, Self::Port>,
        target: Side<Self::W, Self::Port>,
        standing: Arc<Standing>,
        clock: Arc<Now>,
    ) -> Ports<Self::W, Self::Port>;
    fn keys(&self) -> Vec<<Self::W as Whole>::Key>;

    /// One thing with the entity, and what is known of it then. Given back in any case: also what was lost may have happened.
    fn act(
        &mut self,
        port: Arc<Self::Port>,
        chance: &Chance,
        now: Timestamp,
    ) -> impl Future<Output = Done> + Send;

    /// Looks whether everything is there that was acknowledged.
    fn look(&self, port: Arc<Self::Port>, now: Timestamp) -> impl Future<Output = Done> + Send;
}

fn moving<W: Whole, P: ?Sized>(
    source: Side<W, P>,
    target: Side<W, P>,
    standing: Arc<Standing>,
    clock: Arc<Now>,
) -> Arc<Migrating<W, P>> {
    let migrating = Migrating::new(source, standing, clock).with_shadow(Shadow::new(300));
    migrating.set_target(target);
    Arc::new(migrating)
}

/// From one entity of a shopper to the next, so that no two have the same.
const NEXT: u64 = 1_000;

fn broken<T>(what: impl Into<String>) -> Result<T, Broken> {
    Err(Broken(what.into()))
}

fn id(kind: &str, n: u64) -> uuid::Uuid {
    derived(kind, &[&n.to_be_bytes()])
}

/// The `n`th order, made at a time.
pub(crate) fn order(n: u64, made: Timestamp) -> Order {
    Order {
        id: OrderId(id("order", n)),
        user_id: UserId(id("user", n % 2)),
        status: OrderStatus::Confirmed,
        geo_zone: Zone::parse("MSK").expect("a zone"),
        lines: Vec::new(),
        shipping_address: None,
        payment_method: None,
        created_at: made,
        updated_at: made,
        bucket: 0,
        version: Version::default().next(made),
    }
}

#[derive(Clone)]
pub(crate) struct OrderTrade {
    n: u64,
    is_inserted: bool,
    /// Moves that were acknowledged, and those that were tried.
    moved: usize,
    tried: usize,
    /// The orders before this one, all delivered.
    done: Vec<u64>,
}

const WAY: [OrderStatus; 4] =
    [OrderStatus::Confirmed, OrderStatus::Paid, OrderStatus::Shipped, OrderStatus::Delivered];

impl OrderTrade {
    fn order(&self) -> Order {
        order(self.n, Timestamp::from_millis(1_000_000 + i64::try_from(self.n).unwrap_or_default()))
    }

    fn seen(&self, order: &Order) -> Result<usize, Broken> {
        let at = WAY.iter().position(|status| *status == order.status).unwrap_or(usize::MAX);
        if at < self.moved || at > self.tried {
            return broken(format!(
                "order {} stands at {}, after {} acknowledged moves and {} tried",
                self.n, order.status, self.moved, self.tried
            ));
        }
        Ok(at)
    }
}

impl Trade for OrderTrade {
    type W = WholeOrder;
    type Port = dyn OrderStore;

    const ENTITY: &'static str = "orders";

    fn new(n: u64) -> Self {
        Self { n, is_inserted: false, moved: 0, tried: 0, done: Vec::new() }
    }

    fn side(store: &ModelStore, faults: &Arc<Faults>) -> Side<WholeOrder, dyn OrderStore> {
        faulty::movables(&store.as_movables(), faults).orders
    }

    fn port(
        source: Side<WholeOrder, dyn OrderStore>,
        target: Side<WholeOrder, dyn OrderStore>,
        standing: Arc<Standing>,
        clock: Arc<Now>,
    ) -> Ports<WholeOrder, dyn OrderStore> {
        let migrating = moving(source, target, standing, clock);
        (migrating.clone(), migrating)
    }

    fn keys(&self) -> Vec<OrderId> {
        self.done.iter().chain([&self.n]).map(|n| OrderId(id("order", *n))).collect()
    }

    async fn act(&mut self, port: Arc<dyn OrderStore>, chance: &Chance, now: Timestamp) -> Done {
        let order = self.order();
        if !self.is_inserted {
            match port.insert(vec![order]).await {
                Ok(_) => self.is_inserted = true,
                Err(error) => return Ok(Err(error)),
            }
            return Ok(Ok(()));
        }
        if self.moved + 1 >= WAY.len() {
            let mut done = std::mem::take(&mut self.done);
            done.push(self.n);
            *self = Self { done, ..Self::new(self.n + NEXT) };
            return Ok(Ok(()));
        }
        if chance.permille(300) {
            return self.look(port, now).await;
        }
        let (from, to) = (WAY[self.moved], self.moved + 1);
        self.tried = self.tried.max(to);
        let change = StatusChange { status: WAY[to], at: now, operator: Some(format!("move {to}")) };
        match port.transition(order.id, from, change).await {
            Ok(Transition::Moved(moved)) => {
                self.seen(&moved)?;
                self.moved = to;
            }
            // An earlier try may have happened after all.
            Ok(Transition::StandsAt(status)) => {
                self.moved = self.seen(&Order { status, ..order })?;
                if self.moved < to {
                    return broken(format!("order {} refuses to move from where it stands", self.n));
                }
            }
            Ok(Transition::NoSuchOrder) => return broken(format!("MIG-1: order {} is gone", self.n)),
            Err(error) => return Ok(Err(error)),
        }
        Ok(Ok(()))
    }

    async fn look(&self, port: Arc<dyn OrderStore>, _now: Timestamp) -> Done {
        for n in self.done.iter().rev().take(3) {
            match port.get(OrderId(id("order", *n))).await {
                Ok(Some(order)) if order.status == OrderStatus::Delivered => {}
                Ok(order) => return broken(format!("MIG-1: order {n} was delivered and is {order:?}")),
                Err(error) => return Ok(Err(error)),
            }
        }
        let id = self.order().id;
        match port.get(id).await {
            Ok(Some(order)) => {
                self.seen(&order)?;
            }
            Ok(None) if self.is_inserted => return broken(format!("MIG-1: order {} is not found", self.n)),
            Ok(None) => return Ok(Ok(())),
            Err(error) => return Ok(Err(error)),
        }
        let history = match port.history(id).await {
            Ok(history) => history,
            Err(error) => return Ok(Err(error)),
        };
        let statuses: Vec<OrderStatus> = history.iter().map(|line| line.status).collect();
        if statuses.len() <= self.moved || statuses[..] != WAY[..statuses.len()] {
            return broken(format!(
                "ORD-3: order {} has the history {statuses:?} after {}",
                self.n, self.moved
            ));
        }
        Ok(Ok(()))
    }
}

#[derive(Clone)]
pub(crate) struct CartTrade {
    n: u64,
    made: u64,
    added: BTreeSet<ChangeId>,
    /// Covered by a clear that was tried, or that was acknowledged.
    maybe_cleared: BTreeSet<ChangeId>,
    cleared: BTreeSet<ChangeId>,
}

const CART_LASTS_MS: i64 = 30 * 86_400_000;

impl CartTrade {
    fn owner(&self) -> Owner {
        Owner::User(UserId(id("user", self.n)))
    }

    fn live(&self, changes: &[CartChange]) -> Result<BTreeSet<ChangeId>, Broken> {
        let live: BTreeSet<ChangeId> = cart::fold(changes).made_of().into_iter().collect();
        if let Some(lost) =
            self.added.iter().find(|id| !self.maybe_cleared.contains(id) && !live.contains(id))
        {
            return broken(format!("MIG-1: a change {lost} of cart {} is lost", self.n));
        }
        match self.cleared.iter().find(|id| live.contains(id)) {
            Some(back) => broken(format!("a change {back} of cart {} has come back", self.n)),
            None => Ok(live),
        }
    }
}

impl Trade for CartTrade {
    type W = WholeCart;
    type Port = dyn CartStore;

    const ENTITY: &'static str = "carts";

    fn new(n: u64) -> Self {
        Self { n, made: 0, added: BTreeSet::new(), maybe_cleared: BTreeSet::new(), cleared: BTreeSet::new() }
    }

    fn side(store: &ModelStore, faults: &Arc<Faults>) -> Side<WholeCart, dyn CartStore> {
        faulty::movables(&store.as_movables(), faults).carts
    }

    fn port(
        source: Side<WholeCart, dyn CartStore>,
        target: Side<WholeCart, dyn CartStore>,
        standing: Arc<Standing>,
        clock: Arc<Now>,
    ) -> Ports<WholeCart, dyn CartStore> {
        let migrating = moving(source, target, standing, clock);
        (migrating.clone(), migrating)
    }

    fn keys(&self) -> Vec<Owner> {
        vec![self.owner()]
    }

    async fn act(&mut self, port: Arc<dyn CartStore>, chance: &Chance, now: Timestamp) -> Done {
        let owner = self.owner();
        self.made += 1;
        let change_id = ChangeId(derived("change", &[&self.n.to_be_bytes(), &self.made.to_be_bytes()]));
        let mut effect =
            Effect::Add { product: ProductId(id("product", self.made % 3)), quantity: 1, zone: None };
        let mut covers = BTreeSet::new();
        if chance.permille(250) {
            match port.read(owner, now).await {
                Ok(Some(cart)) => covers = self.live(&cart.changes)?,
                Ok(None) => return self.look(port, now).await,
                Err(error) => return Ok(Err(error)),
            }
            effect = Effect::Cover { covers: covers.iter().copied().collect(), order: None };
        }
        let is_add = matches!(effect, Effect::Add { .. });
        self.maybe_cleared.extend(covers.iter().copied());
        let change = CartChange { id: change_id, at: now, origin: owner, keyed: false, effect };
        if let Err(error) = port.append(owner, vec![change], now.plus_ms(CART_LASTS_MS), now).await {
            return Ok(Err(error));
        }
        if is_add {
            self.added.insert(change_id);
        }
        self.cleared.extend(covers);
        Ok(Ok(()))
    }

    async fn look(&self, port: Arc<dyn CartStore>, now: Timestamp) -> Done {
        match port.read(self.owner(), now).await {
            Ok(cart) => self.live(&cart.map(|cart| cart.changes).unwrap_or_default()).map(|_| Ok(())),
            Err(error) => Ok(Err(error)),
        }
    }
}

#[derive(Clone)]
pub(crate) struct SessionTrade {
    n: u64,
    is_inserted: bool,
    /// When it was last seen, as acknowledged.
    last_active: Timestamp,
    is_revoked: bool,
    is_refreshed: bool,
    /// Whether a use of the token may have happened.
    is_used: bool,
    /// The sessions before this one, all revoked.
    done: Vec<u64>,
}

impl SessionTrade {
    fn session(&self, now: Timestamp) -> (Session, RefreshToken) {
        let id = SessionId(id("session", self.n));
        let expires_at = now.plus_ms(CART_LASTS_MS);
        let session = Session {
            id,
            holder: Holder::User(UserId(crate::trade::id("user", self.n % 2))),
            token_hash: SecretHash([1; 32]),
            state: SessionState::Live,
            ip_address: None,
            user_agent: None,
            device: None,
            created_at: now,
            last_active: now,
            expires_at,
            version: Version::default().next(now),
        };
        (session, RefreshToken { hash: self.hash(), session: id, expires_at })
    }

    fn hash(&self) -> SecretHash {
        SecretHash::of(&self.n.to_be_bytes())
    }

    fn seen(&self, session: &Session) -> Result<(), Broken> {
        if self.is_revoked && session.state == SessionState::Live {
            return broken(format!("SES-1: session {} lives after it was revoked", self.n));
        }
        if session.last_active < self.last_active {
            return broken(format!("MIG-1: a change of session {} is lost", self.n));
        }
        Ok(())
    }
}

impl Trade for SessionTrade {
    type W = WholeSession;
    type Port = dyn SessionStore;

    const ENTITY: &'static str = "sessions";

    fn new(n: u64) -> Self {
        Self {
            n,
            is_inserted: false,
            last_active: Timestamp::default(),
            is_revoked: false,
            is_refreshed: false,
            is_used: false,
            done: Vec::new(),
        }
    }

    fn side(store: &ModelStore, faults: &Arc<Faults>) -> Side<WholeSession, dyn SessionStore> {
        faulty::movables(&store.as_movables(), faults).sessions
    }

    fn port(
        source: Side<WholeSession, dyn SessionStore>,
        target: Side<WholeSession, dyn SessionStore>,
        standing: Arc<Standing>,
        clock: Arc<Now>,
    ) -> Ports<WholeSession, dyn SessionStore> {
        let migrating = moving(source, target, standing, clock);
        (migrating.clone(), migrating)
    }

    fn keys(&self) -> Vec<SessionKey> {
        vec![SessionKey::Session(SessionId(id("session", self.n))), SessionKey::Token(self.hash())]
    }

    async fn act(&mut self, port: Arc<dyn SessionStore>, chance: &Chance, now: Timestamp) -> Done {
        if !self.is_inserted {
            // A session whose insert was lost is never heard of again: it has another id then.
            let (session, token) = self.session(now);
            if let Err(error) = port.insert(session, Some(token)).await {
                self.n += NEXT;
                return Ok(Err(error));
            }
            (self.is_inserted, self.last_active) = (true, now);
            return Ok(Ok(()));
        }
        if !self.is_used && chance.permille(150) {
            self.is_used = true;
            match port.use_refresh(self.hash(), now).await {
                Ok(RefreshUse::First(_)) => self.is_refreshed = true,
                Ok(other) => return broken(format!("the token of session {} is {other:?}", self.n)),
                Err(error) => return Ok(Err(error)),
            }
            return Ok(Ok(()));
        }
        let stored = match port.get(SessionId(id("session", self.n)), now).await {
            Ok(Some(stored)) => stored,
            Ok(None) => return broken(format!("MIG-1: session {} is gone", self.n)),
            Err(error) => return Ok(Err(error)),
        };
        self.seen(&stored)?;
        if self.is_revoked {
            let mut done = std::mem::take(&mut self.done);
            done.push(self.n);
            *self = Self { done, ..Self::new(self.n + NEXT) };
            return Ok(Ok(()));
        }
        let is_last = chance.permille(100);
        let state = if is_last { SessionState::Revoked { at: now } } else { stored.state };
        let (version, at) = (stored.version, stored.last_active.max(now));
        let next = Session { last_active: at, state, version: version.next(now), ..stored };
        match port.update(next, version, None).await {
            Ok(true) => {
                self.last_active = at;
                self.is_revoked |= is_last;
                Ok(Ok(()))
            }
            // An earlier one has arrived in between.
            Ok(false) => Ok(Ok(())),
            Err(error) => Ok(Err(error)),
        }
    }

    async fn look(&self, port: Arc<dyn SessionStore>, now: Timestamp) -> Done {
        for n in self.done.iter().rev().take(3) {
            match port.get(SessionId(id("session", *n)), now).await {
                Ok(Some(Session { state: SessionState::Revoked { .. }, .. })) => {}
                Ok(session) => return broken(format!("session {n} was revoked and is {session:?}")),
                Err(error) => return Ok(Err(error)),
            }
        }
        if !self.is_inserted {
            return Ok(Ok(()));
        }
        match port.get(SessionId(id("session", self.n)), now).await {
            Ok(Some(stored)) => self.seen(&stored)?,
            Ok(None) => return broken(format!("MIG-1: session {} is not found", self.n)),
            Err(error) => return Ok(Err(error)),
        }
        if self.is_refreshed {
            match port.use_refresh(self.hash(), now).await {
                Ok(RefreshUse::Again(_))
                | Err(StoreError::Unavailable { .. } | StoreError::Unknown { .. }) => {}
                other => return broken(format!("SES-2: the used token of session {} is {other:?}", self.n)),
            }
        }
        Ok(Ok(()))
    }
}
