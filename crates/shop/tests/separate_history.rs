//! A history with a home of its own gets every order and every move, whoever dies when, however old the order
//! is.

#![expect(clippy::disallowed_methods, reason = "only the simulation has to be repeatable")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use mobimir_core::{
    id::{self, OrderId, UserId},
    moving::{
        Backlog, Found, InTable, Mark, Movable, OrderSide, Place, Range, Row, Rows, Scanned, WholeOrder,
    },
    notes::NoteStore,
    order::{Order, OrderPosition, OrderStatus, StatusChange},
    page::Page,
    ports::{OrderHistoryStore, OrderStore, Period, StoreError, StoreResult, Transition},
    time::{Clock, SystemClock, Timestamp, Version},
    zone::Zone,
};
use mobimir_shop::SeparateHistory;
use mobimir_testkit::model::ModelStore;

/// Longer than an entry waits before others take it for left behind.
const LONG: Duration = Duration::from_secs(120);

/// A history that can be away, or keep whoever writes to it waiting for ever.
struct History {
    model: ModelStore,
    is_away: AtomicBool,
    hangs: AtomicBool,
    /// After so many calls of `append` it is away, or hangs.
    appends_left: AtomicUsize,
}

#[async_trait]
impl OrderHistoryStore for History {
    async fn append(&self, orders: Vec<Order>) -> StoreResult<()> {
        let take_one = |left: usize| left.checked_sub(1);
        let is_up = self.appends_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take_one).is_ok();
        if self.hangs.load(Ordering::SeqCst) && !is_up {
            std::future::pending::<()>().await;
        }
        if self.is_away.load(Ordering::SeqCst) && !is_up {
            return Err(StoreError::Unavailable { what: "away".into(), source: None });
        }
        OrderHistoryStore::append(&self.model, orders).await
    }

    async fn by_user(
        &self,
        user: UserId,
        period: Period,
        after: Option<OrderPosition>,
        limit: usize,
    ) -> StoreResult<Page<Order, OrderPosition>> {
        OrderHistoryStore::by_user(&self.model, user, period, after, limit).await
    }
}

struct World {
    orders: OrderSide,
    history: Arc<History>,
    outbox: Arc<ModelStore>,
    user: UserId,
}

impl World {
    fn new() -> Self {
        let history = History {
            model: ModelStore::default(),
            is_away: AtomicBool::default(),
            hangs: AtomicBool::default(),
            appends_left: AtomicUsize::default(),
        };
        Self {
            orders: ModelStore::movables().orders,
            history: Arc::new(history),
            outbox: Arc::default(),
            user: UserId(id::fresh(SystemClock.now())),
        }
    }

    /// One more process.
    fn start(&self) -> SeparateHistory {
        self.start_filling_from(self.orders.moving.clone())
    }

    fn start_filling_from(&self, moving: Arc<dyn Movable<WholeOrder>>) -> SeparateHistory {
        let port = self.orders.port.clone();
        let (history, outbox) = (self.history.clone(), self.outbox.clone());
        SeparateHistory::new(
            port,
            history,
            outbox,
            moving,
            mobimir_shop::environment::Environment::system(Arc::new(SystemClock)),
        )
    }

    /// One that was placed long ago.
    fn order(&self, key: &str) -> Order {
        let created_at = Timestamp::parse("2025-01-01T00:00:00Z").unwrap();
        Order {
            id: OrderId::of(self.user, key),
            user_id: self.user,
            status: OrderStatus::Confirmed,
            geo_zone: Zone::parse("MSK").unwrap(),
            lines: Vec::new(),
            shipping_address: None,
            payment_method: None,
            created_at,
            updated_at: created_at,
            bucket: 0,
            version: Version::default().next(created_at),
        }
    }

    /// How many orders the history itself has, however many there are.
    async fn copied_ids(&self) -> BTreeSet<OrderId> {
        let (mut ids, mut after) = (BTreeSet::new(), None);
        loop {
            let everything = Period::default();
            let page = OrderHistoryStore::by_user(self.history.as_ref(), self.user, everything, after, 1_000);
            let page = page.await.unwrap();
            ids.extend(page.items.iter().map(|order| order.id));
            match page.next {
                Some(next) => after = Some(next),
                None => return ids,
            }
        }
    }

    /// What the history itself has, in no order.
    async fn copied(&self) -> Vec<Order> {
        let everything = Period::default();
        let page = OrderHistoryStore::by_user(self.history.as_ref(), self.user, everything, None, 1_000);
        let mut orders = page.await.unwrap().items;
        orders.sort_by_key(|order| order.id);
        orders
    }

    async fn owed(&self) -> usize {
        self.outbox.list("order-history/owed/", None, 1_000).await.unwrap().len()
    }
}

fn paid() -> StatusChange {
    StatusChange { status: OrderStatus::Paid, at: SystemClock.now(), operator: None }
}

async fn statuses(orders: &dyn OrderStore, user: UserId) -> Vec<OrderStatus> {
    let page = orders.by_user(user, Period::default(), None, 100).await.unwrap();
    page.items.iter().map(|order| order.status).collect()
}

#[tokio::test(start_paused = true)]
async fn a_move_whose_process_dies_before_the_copy_is_copied_by_another() {
    let world = World::new();
    let dying = world.start();
    let order = world.order("old");
    dying.insert(vec![order.clone()]).await.unwrap();
    world.history.hangs.store(true, Ordering::SeqCst);
    let moving = dying.transition(order.id, OrderStatus::Confirmed, paid());
    assert!(tokio::time::timeout(Duration::from_secs(1), moving).await.is_err(), "it waits for the history");
    drop(dying);
    world.history.hangs.store(false, Ordering::SeqCst);
    assert_eq!(world.copied().await[0].status, OrderStatus::Confirmed, "the copy is stale");

    let other = world.start();
    tokio::time::sleep(LONG).await;
    assert_eq!(statuses(&other, world.user).await, [OrderStatus::Paid]);
    assert!(other.is_filled());
    assert_eq!(world.copied().await[0].status, OrderStatus::Paid);
    assert_eq!(world.owed().await, 0, "what is copied is owed no longer");
}

#[tokio::test(start_paused = true)]
async fn what_is_written_while_the_history_is_away_is_copied_when_it_is_back() {
    let world = World::new();
    let shop = world.start();
    let first = world.order("before");
    shop.insert(vec![first.clone()]).await.unwrap();
    world.history.is_away.store(true, Ordering::SeqCst);
    shop.insert(vec![world.order("meanwhile")]).await.unwrap();
    let moved = shop.transition(first.id, OrderStatus::Confirmed, paid()).await.unwrap();
    assert!(matches!(moved, Transition::Moved(_)), "{moved:?}");
    assert_eq!(world.owed().await, 2);
    tokio::time::sleep(LONG).await;
    assert_eq!(world.owed().await, 2, "nothing is forgotten, however long it is away");

    world.history.is_away.store(false, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(world.copied().await.len(), 2);
    assert!(world.copied().await.iter().any(|order| order.status == OrderStatus::Paid));
    assert_eq!(world.owed().await, 0);
}

/// ORD-1, RD-1: the history may be back a moment before this process has made its copies.
#[tokio::test(start_paused = true)]
async fn whoever_is_owed_a_copy_reads_what_was_acknowledged() {
    let world = World::new();
    let shop = world.start();
    let everything = async |user| {
        let page = shop.by_user(user, Period::default(), None, 100).await.unwrap();
        page.items.iter().map(|order| (order.id, order.status)).collect::<Vec<_>>()
    };
    let (first, second) = (world.order("first"), world.order("second"));
    shop.insert(vec![first.clone()]).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(shop.is_filled());

    world.history.is_away.store(true, Ordering::SeqCst);
    shop.insert(vec![second.clone()]).await.unwrap();
    world.history.is_away.store(false, Ordering::SeqCst);
    assert_eq!(world.owed().await, 1);
    let listed = everything(world.user).await;
    assert!(listed.contains(&(second.id, OrderStatus::Confirmed)), "a new order is missing: {listed:?}");

    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(world.owed().await, 0);
    world.history.is_away.store(true, Ordering::SeqCst);
    shop.transition(first.id, OrderStatus::Confirmed, paid()).await.unwrap();
    world.history.is_away.store(false, Ordering::SeqCst);
    let listed = everything(world.user).await;
    assert!(listed.contains(&(first.id, OrderStatus::Paid)), "a move is missing: {listed:?}");

    // Nobody else's history is read from the orders, nor this one when nothing is owed any more.
    let mut of_other = Order { user_id: UserId(id::fresh(SystemClock.now())), ..world.order("other") };
    of_other.id = OrderId::of(of_other.user_id, "other");
    OrderHistoryStore::append(&world.history.model, vec![of_other.clone()]).await.unwrap();
    assert_eq!(world.owed().await, 1);
    assert_eq!(everything(of_other.user_id).await, [(of_other.id, OrderStatus::Confirmed)]);
    let copied_only = world.order("in the history alone");
    OrderHistoryStore::append(&world.history.model, vec![copied_only.clone()]).await.unwrap();
    assert_eq!(everything(world.user).await.len(), 2);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(world.owed().await, 0);
    assert!(everything(world.user).await.contains(&(copied_only.id, OrderStatus::Confirmed)));
}

/// Others look at the entry while its process still works at the move: it stays until it is certain that
/// nobody does.
#[tokio::test(start_paused = true)]
async fn an_entry_of_a_move_under_way_is_left_to_its_process() {
    let world = World::new();
    let (shop, _other) = (world.start(), world.start());
    let order = world.order("slow");
    shop.insert(vec![order.clone()]).await.unwrap();
    world.history.hangs.store(true, Ordering::SeqCst);
    let moving = tokio::spawn(async move { shop.transition(order.id, OrderStatus::Confirmed, paid()).await });
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(world.owed().await, 1);
    moving.abort();
}

#[tokio::test(start_paused = true)]
async fn what_was_ordered_before_is_filled_in_and_read_from_the_orders_until_then() {
    const ORDERS: usize = 250;
    let world = World::new();
    let before: Vec<Order> = (0..ORDERS).map(|n| world.order(&n.to_string())).collect();
    world.orders.port.insert(before.clone()).await.unwrap();
    world.history.is_away.store(true, Ordering::SeqCst);
    let shop = world.start();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(!shop.is_filled());
    assert_eq!(statuses(&shop, world.user).await.len(), 100, "a page of what the orders' own store has");

    world.history.is_away.store(false, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(shop.is_filled());
    assert_eq!(world.copied().await.len(), ORDERS);
    let filled = world.start();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(filled.is_filled(), "nobody fills it again");

    // A shop without a separate history copies nothing, so the next one with one has to begin anew.
    SeparateHistory::forget_backfill(world.outbox.as_ref()).await.unwrap();
    world.history.is_away.store(true, Ordering::SeqCst);
    let again = world.start();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!again.is_filled());
}

#[tokio::test(start_paused = true)]
async fn a_refused_move_leaves_nothing_behind() {
    let world = World::new();
    let shop = world.start();
    let order = world.order("paid already");
    shop.insert(vec![order.clone()]).await.unwrap();
    let refused = shop.transition(order.id, OrderStatus::Shipped, paid()).await.unwrap();
    assert!(matches!(refused, Transition::StandsAt(OrderStatus::Confirmed)), "{refused:?}");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(world.owed().await, 0);
}

/// Orders as a backfill reads them; counts what was read.
struct Existing {
    orders: Arc<dyn Movable<WholeOrder>>,
    read: AtomicUsize,
}

impl Existing {
    fn of(world: &World) -> Arc<Self> {
        Arc::new(Self { orders: world.orders.moving.clone(), read: AtomicUsize::default() })
    }

    fn orders_read(&self) -> usize {
        self.read.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Movable<WholeOrder> for Existing {
    fn tables(&self) -> &'static [&'static str] {
        self.orders.tables()
    }

    async fn whole(&self, id: OrderId) -> StoreResult<Found<WholeOrder>> {
        self.orders.whole(id).await
    }

    async fn count(&self) -> StoreResult<u64> {
        self.orders.count().await
    }

    async fn ranges(&self, parts: usize) -> StoreResult<Vec<Range>> {
        self.orders.ranges(parts).await
    }

    async fn scan(&self, range: &Range, limit: usize) -> StoreResult<Scanned<WholeOrder>> {
        let scanned = self.orders.scan(range, limit).await?;
        self.read.fetch_add(scanned.items.len(), Ordering::SeqCst);
        Ok(scanned)
    }

    async fn put(&self, wholes: Vec<WholeOrder>, now: Timestamp) -> StoreResult<()> {
        self.orders.put(wholes, now).await
    }

    async fn in_tables(&self, whole: &WholeOrder) -> StoreResult<Vec<InTable>> {
        self.orders.in_tables(whole).await
    }

    async fn rows(
        &self,
        table: &'static str,
        after: Option<&Place>,
        limit: usize,
    ) -> StoreResult<Rows<OrderId>> {
        self.orders.rows(table, after, limit).await
    }

    async fn remove(&self, table: &'static str, row: &Row<OrderId>) -> StoreResult<()> {
        self.orders.remove(table, row).await
    }

    async fn unmirrored(&self, limit: usize) -> StoreResult<Vec<Mark<OrderId>>> {
        self.orders.unmirrored(limit).await
    }

    async fn backlog(&self) -> StoreResult<Backlog> {
        self.orders.backlog().await
    }

    async fn mirrored(&self, marks: &[Mark<OrderId>], read_at: Timestamp) -> StoreResult<()> {
        self.orders.mirrored(marks, read_at).await
    }
}

#[derive(Clone, Copy, Debug)]
enum Interrupted {
    /// Its process ends, in the middle of a page.
    ByDeath,
    /// The history is away for a while.
    ByFailure,
}

/// Progress is written down every 2,000 orders, so no more than those are copied twice. At every point around
/// one at which that happens.
#[tokio::test(start_paused = true)]
async fn an_interrupted_backfill_goes_on_where_it_was_and_leaves_nothing_out() {
    const ORDERS: usize = 4_750;
    const PAGE: usize = 100;
    const COPIED_TWICE_MAX: usize = 2_000;
    for how in [Interrupted::ByDeath, Interrupted::ByFailure] {
        for pages in [0, 1, 19, 20, 21, 39, 40, 41, 47] {
            let world = World::new();
            let before: Vec<Order> = (0..ORDERS).map(|n| world.order(&n.to_string())).collect();
            let expected: BTreeSet<OrderId> = before.iter().map(|order| order.id).collect();
            world.orders.port.insert(before).await.unwrap();
            world.history.appends_left.store(pages, Ordering::SeqCst);
            match how {
                Interrupted::ByDeath => world.history.hangs.store(true, Ordering::SeqCst),
                Interrupted::ByFailure => world.history.is_away.store(true, Ordering::SeqCst),
            }
            let mut existing = Existing::of(&world);
            let shop = world.start_filling_from(existing.clone());
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert!(!shop.is_filled());
            assert_eq!(world.copied_ids().await.len(), pages * PAGE, "{how:?} after {pages} pages");
            world.history.hangs.store(false, Ordering::SeqCst);
            world.history.is_away.store(false, Ordering::SeqCst);
            let shop = match how {
                Interrupted::ByDeath => {
                    drop(shop);
                    existing = Existing::of(&world);
                    world.start_filling_from(existing.clone())
                }
                Interrupted::ByFailure => shop,
            };
            let read_before = existing.orders_read();
            tokio::time::sleep(Duration::from_secs(3)).await;
            assert!(shop.is_filled(), "{how:?} after {pages} pages");
            let is_whole = world.copied_ids().await == expected;
            assert!(is_whole, "{how:?} after {pages} pages: something is left out");
            let read = existing.orders_read() - read_before;
            let missing = ORDERS - pages * PAGE;
            assert!(
                (missing..missing + COPIED_TWICE_MAX).contains(&read),
                "{how:?} after {pages} pages: {read} orders were read to copy the last {missing}"
            );
        }
    }
}
