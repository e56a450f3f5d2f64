//! A replica set of three members. Writes are acknowledged by a majority, reads see what a majority has; a
//! primary that is lost takes with it what only it had.

mod moving;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex},
    time::Duration,
};

use crate::{
    history_only::{self, Owed},
    network::{Kind, Network, unavailable, unknown},
    planted::PlantedFault,
    world::{Watched, World, lock},
};
use async_trait::async_trait;
use futures_util::FutureExt;
use mobimir_core::{
    checkout::Checkout,
    id::{OrderId, ProductId, UserId},
    notes::{Expected, NoteStore},
    page::Page,
    policy::ReadOperation,
    ports::{ProductStore, StoreResult, UserStore},
    product::{
        Hold, HoldOutcome, Product, ProductEdit, ProductPosition, ProductQuery, StockChange, StockOutcome,
        Verdict,
    },
    reading,
    time::{Timestamp, Version},
    user::{Email, User},
    zone::Zone,
};
use mobimir_testkit::model::ModelStore;

pub use self::moving::MongoSide;

const MEMBERS: usize = 3;
const MAJORITY: usize = 2;
/// How long a write waits for a majority.
const MAJORITY_WAIT: Duration = Duration::from_secs(5);
/// The staleness budget of the reads that may go to a secondary.
pub const BUDGET_MS: i64 = 2_000;

#[derive(Clone)]
pub struct ReplicaSet {
    world: World,
    set: Arc<Mutex<Set>>,
    /// Somebody has more of the log, or is elected.
    changed: Arc<Watched<()>>,
    /// Entries of the outbox of a separate order history, by name.
    outbox: Arc<Mutex<BTreeMap<String, OutboxSpan>>>,
}

/// Since when an entry of the outbox may be there, and until when, in milliseconds of the run.
pub(crate) type OutboxSpan = (i64, Option<i64>);

struct Set {
    members: Vec<Member>,
    primary: Option<usize>,
    term: u64,
    /// What a majority has.
    committed: Applied,
    last_entry: u64,
}

struct Member {
    log: Vec<Entry>,
    applied: Applied,
    /// Until when it lags, in milliseconds of the world.
    lags_until_ms: i64,
    is_away: bool,
}

#[derive(Clone)]
struct Entry {
    number: u64,
    written_ms: i64,
    apply: Arc<dyn Fn(&ModelStore) + Send + Sync>,
}

/// The first entries of a log, applied.
#[derive(Default)]
struct Applied {
    store: ModelStore,
    entries: usize,
}

impl Applied {
    fn catch_up(&mut self, log: &[Entry]) {
        if self.entries > log.len() {
            // Only a planted fault calls something committed that is taken away.
            *self = Self::default();
        }
        for entry in &log[self.entries..] {
            (entry.apply)(&self.store);
        }
        self.entries = log.len();
    }
}

impl ReplicaSet {
    pub fn new(world: World) -> Self {
        let member =
            || Member { log: Vec::new(), applied: Applied::default(), lags_until_ms: 0, is_away: false };
        let set = Set {
            members: (0..MEMBERS).map(|_| member()).collect(),
            primary: Some(0),
            term: 1,
            committed: Applied::default(),
            last_entry: 0,
        };
        Self { world, set: Arc::new(Mutex::new(set)), changed: Arc::default(), outbox: Arc::default() }
    }

    /// When copies of orders were owed, as far as the outbox knew.
    pub fn owed(&self) -> Vec<Owed> {
        let owed = |(name, (from_ms, to_ms)): (&String, &(i64, Option<i64>))| Owed {
            order: history_only::order_of(name).to_owned(),
            from_ms: *from_ms,
            to_ms: to_ms.unwrap_or(i64::MAX),
        };
        lock(&self.outbox).iter().map(owed).collect()
    }

    /// What stands in the outbox.
    pub fn outbox(&self) -> Vec<String> {
        let set = lock(&self.set);
        let notes = at_once(NoteStore::list(&set.committed.store, history_only::OWED, None, usize::MAX));
        notes.unwrap_or_default().into_iter().map(|note| note.name).collect()
    }

    /// A fault: all entries of an order go before it is copied.
    pub async fn forget_owed(&self, order: &str) {
        let of_order = |name: &String| history_only::order_of(name) == order;
        for name in self.outbox().into_iter().filter(of_order) {
            let of = name.clone();
            let remove = move |store: &ModelStore| at_once(NoteStore::remove(store, &of, Expected::Anything));
            if self.write("note_remove", remove).await.is_ok() {
                self.paid(&name);
            }
        }
    }

    fn paid(&self, name: &str) {
        if let Some((_, to_ms)) = lock(&self.outbox).get_mut(name) {
            to_ms.get_or_insert(self.world.elapsed_ms());
        }
    }

    /// The products and users of an instance.
    pub fn reached_by(&self, network: Network) -> Arc<MongoStores> {
        Arc::new(MongoStores { set: self.clone(), network })
    }

    /// The primary is lost, and after a while another member is elected.
    pub async fn fail_over(&self) {
        // Mostly it is cut off before it is lost, and what it takes meanwhile is what no majority has.
        if self.world.permille(700) {
            let until_ms = self.world.elapsed_ms() + 400;
            lock(&self.set).members.iter_mut().for_each(|member| member.lags_until_ms = until_ms);
            self.world.sleep_ms(20, 300).await;
        }
        let lost = {
            let mut set = lock(&self.set);
            let Some(lost) = set.primary.take() else { return };
            set.members[lost].is_away = true;
            set.term += 1;
            lost
        };
        self.world.note("primary lost", lost);
        self.tell();
        self.world.sleep_ms(300, 4_000).await;
        let first = self.world.below(MEMBERS as u64) as usize;
        let rolled_back = {
            let mut set = lock(&self.set);
            let candidates = (0..MEMBERS).map(|at| (first + at) % MEMBERS).filter(|at| *at != lost);
            let Some(elected) = candidates.max_by_key(|at| set.members[*at].log.len()) else { return };
            set.primary = Some(elected);
            set.follow(elected)
        };
        self.world.note("primary elected", rolled_back);
        if rolled_back > 0 {
            self.world.note("writes rolled back", rolled_back);
        }
        self.tell();
        self.world.sleep_ms(500, 8_000).await;
        let mut set = lock(&self.set);
        set.members[lost].is_away = false;
        let primary = set.primary;
        if let Some(primary) = primary.filter(|primary| *primary != lost) {
            set.replicate(primary, lost, usize::MAX);
        }
        drop(set);
        self.tell();
    }

    /// One of the secondaries falls behind.
    pub fn lag(&self, ms: u64) {
        let mut set = lock(&self.set);
        let secondary = (0..MEMBERS).find(|at| Some(*at) != set.primary);
        if let Some(secondary) = secondary {
            set.members[secondary].lags_until_ms = self.world.elapsed_ms() + ms.cast_signed();
        }
    }

    fn tell(&self) {
        self.changed.change(|()| {});
    }

    async fn write<T: Send + 'static>(
        &self,
        name: &'static str,
        operation: impl Fn(&ModelStore) -> StoreResult<T> + Send + Sync + 'static,
    ) -> StoreResult<T> {
        let operation = Arc::new(operation);
        let (answer, number, primary) = {
            let mut set = lock(&self.set);
            let Some(primary) = set.primary else { return Err(unavailable(name)) };
            set.last_entry += 1;
            let (number, written_ms) = (set.last_entry, self.world.elapsed_ms());
            let replay = operation.clone();
            let apply = Arc::new(move |store: &ModelStore| {
                let _ = replay(store);
            });
            let member = &mut set.members[primary];
            let answer = operation(&member.applied.store);
            member.log.push(Entry { number, written_ms, apply });
            member.applied.entries = member.log.len();
            (answer, number, primary)
        };
        for secondary in (0..MEMBERS).filter(|at| *at != primary) {
            self.replicate_later(primary, secondary, number);
        }
        if self.world.plan().planted == Some(PlantedFault::AcknowledgedByPrimaryAlone) {
            let mut set = lock(&self.set);
            if set.primary == Some(primary) {
                let log = set.members[primary].log.clone();
                set.committed.catch_up(&log);
            }
            return answer;
        }
        // Not before a majority has it.
        let told = self.changed.wait_for(|()| lock(&self.set).has(number).is_some());
        let told = tokio::time::timeout(MAJORITY_WAIT, told).await;
        if told.is_ok() && lock(&self.set).has(number) == Some(true) { answer } else { Err(unknown(name)) }
    }

    fn replicate_later(&self, primary: usize, secondary: usize, number: u64) {
        let this = self.clone();
        self.world.spawn(async move {
            this.world.travel().await;
            let behind_ms = lock(&this.set).members[secondary].lags_until_ms - this.world.elapsed_ms();
            if behind_ms > 0 {
                tokio::time::sleep(Duration::from_millis(behind_ms.unsigned_abs())).await;
            }
            let mut set = lock(&this.set);
            if set.primary == Some(primary) && !set.members[secondary].is_away {
                let position = position(&set.members[primary].log, number);
                set.replicate(primary, secondary, position.map_or(0, |at| at + 1));
                drop(set);
                this.tell();
            }
        });
    }

    /// What a majority has; a secondary that is certain to be within the budget, where the read may go there.
    fn read<T>(&self, name: &'static str, read: impl Fn(&ModelStore) -> StoreResult<T>) -> StoreResult<T> {
        let reading = reading::current();
        let may_lag = !reading.newest
            && matches!(reading.operation, Some(ReadOperation::ProductPage | ReadOperation::CatalogueSearch));
        let any = self.world.planted(PlantedFault::StockReadFromSecondary);
        let set = lock(&self.set);
        if (may_lag || any) && self.world.permille(700) {
            let now_ms = self.world.elapsed_ms();
            let log = set.primary.map(|primary| set.members[primary].log.as_slice()).unwrap_or_default();
            let secondary = (0..MEMBERS).filter(|at| Some(*at) != set.primary && !set.members[*at].is_away);
            let keeps_budget = |member: &&Member| {
                let first_missing = log.get(member.applied.entries);
                any || first_missing.is_none_or(|entry| now_ms - entry.written_ms < BUDGET_MS)
                    || self.world.planted(PlantedFault::BudgetIgnored)
            };
            let mut members = secondary.map(|at| &set.members[at]).filter(keeps_budget);
            if let Some(member) = members.find(|member| member.applied.entries < log.len()) {
                self.world.note("read from a secondary that lags", name);
                return read(&member.applied.store);
            }
        }
        if set.primary.is_none() {
            return Err(unavailable(name));
        }
        read(&set.committed.store)
    }
}

impl Set {
    /// Everybody who is there drops what the elected primary does not have. Returns how much was dropped.
    fn follow(&mut self, elected: usize) -> usize {
        let log = self.members[elected].log.clone();
        let mut dropped = 0;
        for member in &mut self.members {
            let shared = member.log.iter().zip(&log).take_while(|(one, other)| one.number == other.number);
            let shared = shared.count();
            if member.log.len() > shared {
                dropped += member.log.len() - shared;
                member.log.truncate(shared);
                member.applied = Applied::default();
                member.applied.catch_up(&member.log);
            }
        }
        self.advance();
        dropped
    }

    fn replicate(&mut self, primary: usize, secondary: usize, to: usize) {
        let log = &self.members[primary].log;
        let have = self.members[secondary].log.len();
        let missing: Vec<Entry> = log.iter().take(to).skip(have).cloned().collect();
        let member = &mut self.members[secondary];
        member.log.extend(missing);
        member.applied.catch_up(&member.log);
        self.advance();
    }

    /// What a majority has, no fail-over takes away.
    fn advance(&mut self) {
        let Some(primary) = self.primary else { return };
        let mut lengths: Vec<usize> = self.members.iter().map(|member| member.log.len()).collect();
        lengths.sort_unstable();
        let agreed = lengths[MEMBERS - MAJORITY];
        if agreed > self.committed.entries {
            self.committed.catch_up(&self.members[primary].log[..agreed]);
        }
    }

    /// Whether a majority has the entry; `None` as long as that is open.
    fn has(&self, number: u64) -> Option<bool> {
        let primary = self.primary?;
        let log = &self.members[primary].log;
        match position(log, number) {
            Some(at) => (at < self.committed.entries).then_some(true),
            None => Some(false),
        }
    }
}

/// Where an entry stands in a log. Numbers only rise.
fn position(log: &[Entry], number: u64) -> Option<usize> {
    log.binary_search_by_key(&number, |entry| entry.number).ok()
}

/// The stores as one instance reaches them.
pub struct MongoStores {
    set: ReplicaSet,
    network: Network,
}

pub(crate) fn at_once<T>(operation: impl Future<Output = StoreResult<T>>) -> StoreResult<T> {
    operation.now_or_never().unwrap_or_else(|| Err(unavailable("the model waits for something")))
}

impl MongoStores {
    pub(crate) fn planted(&self, fault: PlantedFault) -> bool {
        self.set.world.planted(fault)
    }

    /// An entry of the outbox may be there from now on.
    pub(crate) fn owes(&self, name: &str) {
        lock(&self.set.outbox).insert(name.to_owned(), (self.set.world.elapsed_ms(), None));
        self.set.world.note("copy owed", "");
    }

    pub(crate) fn paid(&self, name: &str) {
        self.set.paid(name);
    }

    pub(crate) async fn write<T: Send + 'static>(
        &self,
        name: &'static str,
        operation: impl Fn(&ModelStore) -> StoreResult<T> + Send + Sync + 'static,
    ) -> StoreResult<T> {
        let set = self.set.clone();
        self.network.call(Kind::Write, name, async move { set.write(name, operation).await }).await
    }

    pub(crate) async fn read<T: Send + 'static>(
        &self,
        name: &'static str,
        read: impl Fn(&ModelStore) -> StoreResult<T> + Send + 'static,
    ) -> StoreResult<T> {
        let set = self.set.clone();
        self.network.call(Kind::Read, name, async move { set.read(name, read) }).await
    }
}

#[async_trait]
impl ProductStore for MongoStores {
    fn clock(&self, _now: Timestamp) -> Timestamp {
        self.set.world.now()
    }

    async fn insert(&self, products: Vec<Product>) -> StoreResult<usize> {
        let insert = move |store: &ModelStore| at_once(ProductStore::insert(store, products.clone()));
        self.write("product_insert", insert).await
    }

    async fn get(&self, id: ProductId) -> StoreResult<Option<Arc<Product>>> {
        self.read("product_get", move |store| at_once(ProductStore::get(store, id))).await
    }

    async fn get_many(&self, ids: &[ProductId]) -> StoreResult<HashMap<ProductId, Arc<Product>>> {
        let ids = ids.to_vec();
        self.read("product_get_many", move |store| at_once(store.get_many(&ids))).await
    }

    async fn edit(
        &self,
        id: ProductId,
        edit: ProductEdit,
        now: Timestamp,
    ) -> StoreResult<Option<Arc<Product>>> {
        self.write("product_edit", move |store| at_once(store.edit(id, edit.clone(), now))).await
    }

    async fn change_stock(
        &self,
        id: ProductId,
        zone: Zone,
        change: StockChange,
        now: Timestamp,
    ) -> StoreResult<StockOutcome> {
        self.write("stock_change", move |store| at_once(store.change_stock(id, zone, change, now))).await
    }

    async fn hold(&self, id: ProductId, hold: Hold, now: Timestamp) -> StoreResult<HoldOutcome> {
        self.write("hold", move |store| at_once(store.hold(id, hold, now))).await
    }

    async fn settle(
        &self,
        id: ProductId,
        order: OrderId,
        verdict: Verdict,
        now: Timestamp,
    ) -> StoreResult<bool> {
        self.write("settle", move |store| at_once(store.settle(id, order, verdict, now))).await
    }

    async fn list(&self, query: ProductQuery) -> StoreResult<Page<Arc<Product>, ProductPosition>> {
        self.read("product_list", move |store| at_once(ProductStore::list(store, query.clone()))).await
    }

    async fn categories(&self) -> StoreResult<Vec<String>> {
        self.read("categories", |store| at_once(store.categories())).await
    }

    async fn with_holds(
        &self,
        placed_before: Timestamp,
        after: Option<ProductId>,
        limit: usize,
    ) -> StoreResult<Vec<Arc<Product>>> {
        self.read("with_holds", move |store| at_once(store.with_holds(placed_before, after, limit))).await
    }

    async fn insert_checkout(&self, checkout: Checkout) -> StoreResult<Option<Checkout>> {
        self.write("checkout_insert", move |store| at_once(store.insert_checkout(checkout.clone()))).await
    }

    async fn get_checkout(&self, id: OrderId) -> StoreResult<Option<Checkout>> {
        self.read("checkout_get", move |store| at_once(store.get_checkout(id))).await
    }

    async fn update_checkout(&self, checkout: Checkout, expected: Version) -> StoreResult<bool> {
        let ignores = self.set.world.planted(PlantedFault::CheckoutUpdatedUnconditionally);
        let update = move |store: &ModelStore| {
            let mut expected = expected;
            if ignores && let Some(stored) = at_once(store.get_checkout(checkout.order_id))? {
                expected = stored.version;
            }
            at_once(store.update_checkout(checkout.clone(), expected))
        };
        self.write("checkout_update", update).await
    }

    async fn due_checkouts(&self, now: Timestamp, limit: usize) -> StoreResult<Vec<Checkout>> {
        self.read("due_checkouts", move |store| at_once(store.due_checkouts(now, limit))).await
    }

    async fn due_uncommitted(&self, now: Timestamp, limit: usize) -> StoreResult<Vec<Checkout>> {
        self.read("due_uncommitted", move |store| at_once(store.due_uncommitted(now, limit))).await
    }

    async fn cart_claim(&self, user: UserId) -> StoreResult<Option<OrderId>> {
        self.read("cart_claim", move |store| at_once(store.cart_claim(user))).await
    }

    async fn claim_cart(&self, user: UserId, expected: Option<OrderId>, order: OrderId) -> StoreResult<bool> {
        let ignores = self.set.world.planted(PlantedFault::ClaimSetUnconditionally);
        let claim = move |store: &ModelStore| {
            let expected = if ignores { at_once(store.cart_claim(user))? } else { expected };
            at_once(store.claim_cart(user, expected, order))
        };
        self.write("claim_cart", claim).await
    }
}

#[async_trait]
impl UserStore for MongoStores {
    async fn insert(&self, user: User) -> StoreResult<bool> {
        self.write("user_insert", move |store| at_once(UserStore::insert(store, user.clone()))).await
    }

    async fn get(&self, id: UserId) -> StoreResult<Option<User>> {
        self.read("user_get", move |store| at_once(UserStore::get(store, id))).await
    }

    async fn by_email(&self, email: &Email) -> StoreResult<Option<User>> {
        let email = email.clone();
        self.read("user_by_email", move |store| at_once(store.by_email(&email))).await
    }

    async fn update(&self, user: User, expected: Version) -> StoreResult<bool> {
        self.write("user_update", move |store| at_once(UserStore::update(store, user.clone(), expected)))
            .await
    }
}
