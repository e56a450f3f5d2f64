//! What a migration asks of these stores, on a real ring.

use mobimir_cassandra::CassandraOrderHistory;
use mobimir_core::{
    id::OrderId,
    moving::{Facts, Movable, Movables, Range, SessionKey, Whole, WholeOrder, WholeSession},
    order::{Order, OrderStatus, StatusChange},
    policy::{Entity, HistoryBucket, StatusLayout},
    session::{Holder, RefreshToken, RefreshUse, Session, SessionState},
    time::{Clock, SystemClock, Timestamp},
};
use mobimir_testkit::{conformance, model::ModelStore};

use crate::{
    carts,
    orders::{self, CALM, block_on, change, order, user},
    policies, sessions,
    support::{self, Fresh},
};

const HOUR_US: i64 = 3_600_000_000;

fn conform_orders(policy_name: &str) {
    let ring = support::shared();
    let policy = support::policy(policy_name);
    let factory = || async {
        let fresh = support::fresh(ring.ring, &policy, &[Entity::Orders]).await;
        let orders = orders::open(&fresh.cluster, &policy, Default::default()).await;
        Movables { orders: orders.side(), ..ModelStore::movables() }
    };
    conformance::moving_orders(&factory, policies::options(&policy, Entity::Orders));
}

fn conform_history(bucket: HistoryBucket) {
    let ring = support::shared();
    let policy = support::policy("history-only");
    let mut settings = support::settings(&policy, Entity::OrderHistory);
    settings.history_bucket = Some(bucket);
    let factory = || async {
        let fresh = support::fresh(ring.ring, &policy, &[Entity::OrderHistory]).await;
        let history = CassandraOrderHistory::open(fresh.cluster.clone(), settings.clone()).await;
        history.expect("the history can be opened").side()
    };
    conformance::moving_order_history(&factory, policies::options(&policy, Entity::OrderHistory));
}

fn conform_sessions(policy_name: &str) {
    let ring = support::shared();
    let policy = support::policy(policy_name);
    let factory = || async {
        let fresh = support::fresh(ring.ring, &policy, &[Entity::Sessions]).await;
        Movables { sessions: sessions::open(&fresh, &policy).await.side(), ..ModelStore::movables() }
    };
    conformance::moving_sessions(&factory, policies::options(&policy, Entity::Sessions));
}

#[test]
fn orders_with_the_status_in_a_column() {
    conform_orders("default");
}

#[test]
fn orders_with_a_log_of_statuses() {
    let settings = support::settings(&support::policy("status-log"), Entity::Orders);
    assert_eq!(settings.status, Some(StatusLayout::Log));
    conform_orders("status-log");
}

#[test]
fn an_order_history_by_month() {
    conform_history(HistoryBucket::Month);
}

#[test]
fn an_order_history_in_one_partition() {
    conform_history(HistoryBucket::None);
}

#[test]
fn sessions_with_a_partition_each() {
    conform_sessions("default");
}

#[test]
fn sessions_in_shared_partitions() {
    let settings = support::settings(&support::policy("bucketed"), Entity::Sessions);
    assert!(settings.buckets.is_some_and(|buckets| buckets > 0));
    conform_sessions("bucketed");
}

#[test]
fn all_carts() {
    let ring = support::shared();
    let policy = support::policy("default");
    let factory = || async {
        let fresh = support::fresh(ring.ring, &policy, &[Entity::Carts]).await;
        Movables { carts: carts::open(&fresh, &policy).await.side(), ..ModelStore::movables() }
    };
    conformance::moving_carts(&factory, policies::options(&policy, Entity::Carts));
}

/// A mark is there before the write, and does not go while nobody knows what became of it.
#[test]
fn a_write_that_fails_leaves_its_mark() {
    let ring = support::shared();
    let policy = support::policy("default");
    block_on(async {
        let fresh = support::fresh(ring.ring, &policy, &[Entity::Orders]).await;
        let side = orders::open(&fresh.cluster, &policy, CALM).await.side();
        let (lost, kept) =
            (order(user(), "lost", SystemClock.now()), order(user(), "kept", SystemClock.now()));
        side.tracked.insert(vec![kept.clone()]).await.unwrap();
        {
            let _tables = support::TABLES.lock().await;
            let cql = format!("DROP TABLE {}.orders_by_day", fresh.cluster.keyspace(Entity::Orders));
            support::change_tables(fresh.cluster.session(), &cql).await;
        }
        side.tracked.insert(vec![lost.clone()]).await.expect_err("a table is missing");
        let marked = side.moving.unmirrored(10).await.unwrap();
        let marked: Vec<_> = marked.iter().map(|mark| mark.key).collect();
        assert_eq!(marked, [kept.id, lost.id], "the longest marked first");
        assert_eq!(side.moving.backlog().await.unwrap().entities, 2);
        let found = side.moving.whole(lost.id).await.unwrap();
        assert_eq!(found.marks, [], "the write may still happen");
        let found = side.moving.whole(kept.id).await.unwrap();
        assert_eq!(found.marks.len(), 1);
        side.moving.mirrored(&found.marks, SystemClock.now()).await.unwrap();
        assert_eq!(side.moving.backlog().await.unwrap().entities, 1);

        // One that was left an hour ago goes by being copied, also when only its slot has it.
        let keyspace = fresh.cluster.keyspace(Entity::Orders);
        for cql in [
            format!("INSERT INTO {keyspace}.registers (list, entry) VALUES ('outbox', {GENERATION})"),
            format!(
                "INSERT INTO {keyspace}.state (name, value, at) \
                VALUES ('outbox {GENERATION}', 'newest 0, closed below 0', toTimestamp(now()))"
            ),
        ] {
            run(&fresh, &cql).await;
        }
        let left_us = first_write_us();
        for tables in [&["outbox", "outbox_slots"][..], &["outbox_slots"]] {
            let old = order(user(), "old", SystemClock.now()).id;
            for table in tables {
                enter(&fresh, table, GENERATION, old, left_us).await;
            }
            let marked = side.moving.unmirrored(10).await.unwrap();
            assert!(marked.iter().any(|mark| mark.key == old));
            let found = side.moving.whole(old).await.unwrap();
            assert_eq!((found.whole, found.marks.len()), (None, 1), "it stands in {tables:?}");
            assert_eq!(found.marks[0].since.as_millis(), left_us / 1_000);
            side.moving.mirrored(&found.marks, SystemClock.now()).await.unwrap();
            assert_eq!(side.moving.backlog().await.unwrap().entities, 1);
        }

        // One whose slot was drained and forgotten has been copied, whatever still says that it waits.
        let copied = order(user(), "copied", SystemClock.now()).id;
        enter(&fresh, "outbox", GENERATION + 1, copied, left_us).await;
        assert_eq!(side.moving.whole(copied).await.unwrap().marks, []);

        // One of which it is known that its write is over, and not yet that it began, goes by being copied.
        let (now_ms, early) = (SystemClock.now().as_millis(), order(user(), "early", SystemClock.now()).id);
        enter(&fresh, "outbox_slots", GENERATION, early, now_ms * 1_000).await;
        let cql = format!(
            "UPDATE {keyspace}.outbox USING TIMESTAMP {} SET is_over = true \
            WHERE key = 0x{} AND seal = {} AND generation = {GENERATION} AND slot = 0",
            now_ms * 1_000,
            early.0.simple(),
            now_ms << 20,
        );
        run(&fresh, &cql).await;
        let marked = side.moving.unmirrored(10).await.unwrap();
        assert!(marked.iter().any(|mark| mark.key == early && mark.since.as_millis() == now_ms));
        let found = side.moving.whole(early).await.unwrap();
        assert_eq!((found.whole, found.marks.len()), (None, 1));
        side.moving.mirrored(&found.marks, SystemClock.now()).await.unwrap();
        assert_eq!(side.moving.backlog().await.unwrap().entities, 1);

        // The one whose write failed just now goes when it is certain that nobody is at it; but not one that comes later.
        side.moving.nobody_writes().await.unwrap();
        let found = side.moving.whole(lost.id).await.unwrap();
        assert_eq!(found.marks.len(), 1, "whatever of it was written");
        side.tracked.insert(vec![lost.clone()]).await.expect_err("a table is missing");
        let again = side.moving.whole(lost.id).await.unwrap();
        assert_eq!(again.marks, found.marks, "that write may still happen");
        side.moving.mirrored(&found.marks, SystemClock.now()).await.unwrap();
        assert_eq!(side.moving.backlog().await.unwrap().entities, 1);
    });
}

/// An instance that nobody is.
const GENERATION: i64 = 7;

/// Leaves an entry in one of the tables of the outbox, in the first slot of a generation.
async fn enter(fresh: &Fresh, table: &str, generation: i64, id: OrderId, left_us: i64) {
    let cql = format!(
        "INSERT INTO {}.{table} (key, seal, generation, slot) VALUES (0x{}, {}, {generation}, 0) \
        USING TIMESTAMP {left_us}",
        fresh.cluster.keyspace(Entity::Orders),
        id.0.simple(),
        (left_us / 1_000) << 20,
    );
    run(fresh, &cql).await;
}

async fn run(fresh: &Fresh, cql: &str) {
    let session = fresh.cluster.session();
    support::answered(cql, || session.query_unpaged(cql, ())).await;
}

/// The stamp of a first write that was begun now.
fn first_write_us() -> i64 {
    SystemClock.now().as_millis() * 1_000 - HOUR_US
}

fn whole(order: &Order, statuses: &[OrderStatus], at: Timestamp) -> WholeOrder {
    let changes = statuses.iter().map(|status| StatusChange { status: *status, at, operator: None });
    let status = statuses.last().copied().unwrap_or(order.status);
    let order = Order { status, updated_at: at, version: order.version.next(at), ..order.clone() };
    WholeOrder { order, history: changes.collect() }
}

/// An earlier attempt has moved the order on this side, further than the copy that is newer.
#[test]
fn an_order_that_is_put_wins_over_what_was_decided_before_and_what_is_written_late() {
    let ring = support::shared();
    for name in ["default", "status-log"] {
        let policy = support::policy(name);
        let is_log = support::settings(&policy, Entity::Orders).status == Some(StatusLayout::Log);
        block_on(async {
            let fresh = support::common(ring.ring, &policy, &[Entity::Orders]).await;
            let side = orders::open(&fresh.cluster, &policy, CALM).await.side();
            let now = SystemClock.now();
            let made = order(user(), "diverged", now);
            side.port.insert(vec![made.clone()]).await.unwrap();
            let steps =
                [(OrderStatus::Paid, OrderStatus::Shipped), (OrderStatus::Shipped, OrderStatus::Delivered)];
            for (from, to) in steps {
                side.port.transition(made.id, from, change(to)).await.unwrap();
            }
            let later = now.plus_s(60);
            let cancelled = whole(&made, &[OrderStatus::Paid, OrderStatus::Cancelled], later);
            side.moving.put(vec![cancelled.clone()], now).await.unwrap();
            let stored = side.moving.whole(made.id).await.unwrap().whole;
            assert_eq!(stored.as_ref(), Some(&cancelled), "{name}");
            assert_eq!(side.port.history(made.id).await.unwrap(), cancelled.history, "{name}");

            // One that is put where nothing was, and whose first write by the port comes after it.
            let late = order(user(), "late", now);
            let shipped = whole(&late, &[OrderStatus::Paid, OrderStatus::Shipped], later);
            side.moving.put(vec![shipped.clone()], now).await.unwrap();
            let (more, stands) = if is_log { ("", "") } else { (", stands_at, moves", ", 'paid', 0") };
            let cql = format!(
                "INSERT INTO {}.orders (order_id, seq, user_id, geo_zone, created_at, bucket, total, body, status, at, \
                updated_at, version{more}) VALUES ({}, 0, {}, 'SPB', 5, 9, '0.00', 0x00, 'paid', 5, 5, 5{stands}) \
                USING TIMESTAMP {}",
                fresh.cluster.keyspace(Entity::Orders),
                late.id,
                late.user_id,
                first_write_us()
            );
            run(&fresh, &cql).await;
            assert_eq!(side.moving.whole(late.id).await.unwrap().whole, Some(shipped), "{name}");
        });
    }
}

/// Larger than what a batch may hold that decides nothing.
#[test]
fn a_large_order_is_put_whole() {
    let ring = support::shared();
    let policy = support::policy("default");
    block_on(async {
        let fresh = support::common(ring.ring, &policy, &[Entity::Orders]).await;
        let side = orders::open(&fresh.cluster, &policy, CALM).await.side();
        let now = SystemClock.now();
        let small = order(user(), "large", now);
        let large = Order { shipping_address: Some("a".repeat(200_000)), ..small };
        let copy = WholeOrder { history: vec![large.first_change()], order: large.clone() };
        side.moving.put(vec![copy.clone()], now).await.unwrap();
        assert_eq!(side.moving.whole(large.id).await.unwrap().whole, Some(copy));
    });
}

/// A move that nobody made, and an order of which only a part is there.
#[test]
fn what_somebody_wrote_by_hand_is_met_and_can_be_mended() {
    let ring = support::shared();
    for name in ["default", "status-log"] {
        let policy = support::policy(name);
        block_on(async {
            let fresh = support::common(ring.ring, &policy, &[Entity::Orders]).await;
            let side = orders::open(&fresh.cluster, &policy, CALM).await.side();
            let now = SystemClock.now();
            let made = order(user(), "by hand", now);
            let copy = whole(&made, &[OrderStatus::Paid, OrderStatus::Shipped], now);
            side.moving.put(vec![copy.clone()], now).await.unwrap();
            let row = async |id| {
                let mut after = None;
                loop {
                    let page = side.moving.rows("orders", after.as_ref(), 1_000).await.unwrap();
                    let found = page.items.into_iter().find(|row| row.key == id);
                    after = page.next;
                    if found.is_some() || after.is_none() {
                        return found;
                    }
                }
            };
            assert_eq!(row(made.id).await.unwrap().facts, copy.facts(), "{name}");

            let (keyspace, part) = (fresh.cluster.keyspace(Entity::Orders), order(user(), "a part", now).id);
            for (id, seq) in [(made.id, 1), (part, 0)] {
                let cql = format!(
                    "UPDATE {keyspace}.orders SET status = 'cancelled' WHERE order_id = {id} AND seq = {seq}"
                );
                run(&fresh, &cql).await;
            }
            let differs = row(made.id).await.unwrap();
            assert_ne!(differs.facts, copy.facts(), "{name}");
            assert_eq!(row(part).await.unwrap().facts, Facts::unreadable(), "{name}");
            for wrong in [differs, row(part).await.unwrap()] {
                side.moving.remove("orders", &wrong).await.unwrap();
            }
            side.moving.put(vec![copy.clone()], now).await.unwrap();
            assert_eq!(side.moving.whole(made.id).await.unwrap().whole, Some(copy), "{name}");
            assert_eq!(row(part).await, None, "{name}");
        });
    }
}

#[test]
fn a_session_that_is_put_wins_over_what_is_written_late() {
    let ring = support::shared();
    let policy = support::policy("default");
    block_on(async {
        let fresh = support::common(ring.ring, &policy, &[Entity::Sessions]).await;
        let side = sessions::open(&fresh, &policy).await.side();
        let now = SystemClock.now();
        let first = sessions::session(now);
        let put = Session { version: first.version.next(now.plus_s(60)), ..first.clone() };
        let token: RefreshToken = sessions::token(&first);
        let used = WholeSession::Token { token, used: true };
        side.moving.put(vec![WholeSession::Session(put.clone()), used.clone()], now).await.unwrap();
        let keyspace = fresh.cluster.keyspace(Entity::Sessions);
        let stamp = first_write_us();
        let late = format!(
            "UPDATE {keyspace}.sessions USING TTL 600 AND TIMESTAMP {stamp} SET device = 'late', version = 5, \
            state = 'revoked' WHERE bucket = 0 AND session_id = {}",
            first.id
        );
        run(&fresh, &late).await;
        let stored = side.moving.whole(SessionKey::Session(first.id)).await.unwrap().whole;
        assert_eq!(stored, Some(WholeSession::Session(put)));
        assert_eq!(side.port.use_refresh(token.hash, now).await.unwrap(), RefreshUse::Again(first.id));
        let hash: String = token.hash.0.iter().map(|byte| format!("{byte:02x}")).collect();
        let late = format!(
            "INSERT INTO {keyspace}.refresh_tokens (hash, session_id, expires_at) VALUES (0x{hash}, {}, 5) \
            USING TTL 600 AND TIMESTAMP {stamp}",
            first.id
        );
        run(&fresh, &late).await;
        assert_eq!(side.moving.whole(SessionKey::Token(token.hash)).await.unwrap().whole, Some(used));
    });
}

/// A cart that was changed on this side is replaced as a whole, by one that knows nothing of these changes.
#[test]
fn a_cart_that_is_put_replaces_what_was_added_just_before() {
    let ring = support::shared();
    let policy = support::policy("default");
    block_on(async {
        let fresh = support::common(ring.ring, &policy, &[Entity::Carts]).await;
        let side = carts::open(&fresh, &policy).await.side();
        let (owner, other, now) = (carts::owner(), carts::owner(), SystemClock.now());
        let expires_at = now.plus_s(3_600);
        for owner in [owner, owner, owner, other] {
            side.port.append(owner, vec![carts::add(owner, now)], expires_at, now).await.unwrap();
        }
        let mut copy = side.moving.whole(other).await.unwrap().whole.unwrap();
        copy.owner = owner;
        let stored = side.moving.whole(owner).await.unwrap().whole.unwrap();
        copy.version = stored.version;
        side.moving.put(vec![copy.clone()], now).await.unwrap();
        assert_eq!(side.moving.whole(owner).await.unwrap().whole.unwrap().cart.changes.len(), 3);
        copy.version = stored.version.next(now);
        side.moving.put(vec![copy.clone()], now).await.unwrap();
        let put = side.moving.whole(owner).await.unwrap().whole.unwrap();
        assert_eq!((put.version, put.cart.changes.len()), (copy.version, 1));
        assert_eq!(mobimir_core::cart::fold(&put.cart.changes), mobimir_core::cart::fold(&copy.cart.changes));
        // What is added then makes it newer than the copy.
        side.port.append(owner, vec![carts::add(owner, now)], expires_at, now).await.unwrap();
        assert!(side.moving.whole(owner).await.unwrap().whole.unwrap().version > copy.version);
    });
}

/// A row in a partition that is not registered is met by nobody who reads the list.
#[test]
fn what_no_list_leads_to_is_missing_and_is_put_back() {
    let ring = support::shared();
    let policy = support::policy("default");
    block_on(async {
        let fresh =
            support::fresh(ring.ring, &policy, &[Entity::Orders, Entity::Carts, Entity::Sessions]).await;
        let now = SystemClock.now();

        let orders = orders::open(&fresh.cluster, &policy, CALM).await.side().moving;
        let placed = whole(&order(user(), "listed", now), &[OrderStatus::Paid], now);
        found_again(&fresh, Entity::Orders, &*orders, placed, &["orders_by_user", "orders_by_day"]).await;

        let carts = carts::open(&fresh, &policy).await.side();
        let owner = carts::owner();
        carts.port.append(owner, vec![carts::add(owner, now)], now.plus_s(3_600), now).await.unwrap();
        let cart = carts.moving.whole(owner).await.unwrap().whole.unwrap();
        found_again(&fresh, Entity::Carts, &*carts.moving, cart, &["carts_by_touch"]).await;

        let sessions = sessions::open(&fresh, &policy).await.side().moving;
        let state = SessionState::Closed { at: now, into: user(), merged: false };
        let closed =
            WholeSession::Session(Session { state, holder: Holder::Guest, ..sessions::session(now) });
        found_again(&fresh, Entity::Sessions, &*sessions, closed, &["sessions_unmerged"]).await;
    });
}

/// Puts an entity, forgets which partitions its keyspace has, and puts it again; `lists` are those that cannot do without.
async fn found_again<W: Whole>(
    fresh: &Fresh,
    entity: Entity,
    moving: &dyn Movable<W>,
    whole: W,
    lists: &[&str],
) {
    let now = SystemClock.now();
    let missing = async || -> Vec<&str> {
        let in_tables = moving.in_tables(&whole).await.unwrap();
        in_tables.iter().filter(|told| told.facts.is_none()).map(|told| told.table).collect()
    };
    moving.put(vec![whole.clone()], now).await.unwrap();
    assert_eq!(missing().await, [""; 0]);
    // A replica that is late may still write a register after all were removed.
    support::until("no register leads to it", support::PATIENCE, async || {
        run(fresh, &format!("TRUNCATE {}.registers", fresh.cluster.keyspace(entity))).await;
        missing().await == lists
    })
    .await;
    moving.put(vec![whole.clone()], now).await.unwrap();
    assert_eq!(missing().await, [""; 0]);
}

#[test]
fn what_stands_under_a_key_that_nobody_has_is_told() {
    let ring = support::shared();
    let policy = support::policy("default");
    block_on(async {
        let fresh = support::fresh(ring.ring, &policy, &[Entity::Carts, Entity::Sessions]).await;
        let carts = carts::open(&fresh, &policy).await.side().moving;
        let sessions = sessions::open(&fresh, &policy).await.side().moving;
        let owner = carts::owner().uuid();
        let [of_carts, of_sessions] = [Entity::Carts, Entity::Sessions].map(|of| fresh.cluster.keyspace(of));
        for cql in [
            format!(
                "INSERT INTO {of_carts}.cart_changes (owner_kind, owner, change_id, written_us) \
                VALUES (9, {owner}, {owner}, 5)"
            ),
            format!(
                "INSERT INTO {of_carts}.carts_by_touch (day, shard, touched_at, owner_kind, owner) \
                VALUES (7, 3, 5, 9, {owner})"
            ),
            format!("INSERT INTO {of_sessions}.refresh_tokens (hash, session_id) VALUES (0xABCD, {owner})"),
        ] {
            run(&fresh, &cql).await;
        }
        let stranger = format!("owner_kind 9, owner {owner}");
        assert_eq!(nameless(&*carts, "carts_by_touch").await, [format!("{stranger} of day 7, shard 3")]);
        assert_eq!(nameless(&*carts, "cart_changes").await, [stranger]);
        assert_eq!(nameless(&*sessions, "refresh_tokens").await, ["hash 0xabcd"]);
        // And where it is to be copied from there.
        let met = carts.scan(&Range::default(), 100).await.unwrap().items;
        let keys: Vec<String> =
            met.into_iter().filter_map(Result::err).map(|unreadable| unreadable.key).collect();
        assert_eq!(keys, [format!("owner_kind 9, owner {owner} in cart_changes")]);
    });
}

async fn nameless<W: Whole>(moving: &dyn Movable<W>, table: &'static str) -> Vec<String> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let rows = moving.rows(table, after.as_ref(), 100).await.unwrap();
        all.extend(rows.nameless);
        match rows.next {
            Some(next) => after = Some(next),
            None => return all,
        }
    }
}
