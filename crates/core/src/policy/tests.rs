//! Every error with its key and line, every shipped policy with its effective tables.

use proptest::prelude::*;

use super::*;
use crate::invariant::Invariant;

fn built_in(name: &str) -> Policy {
    Policy::built_in(name).unwrap().unwrap_or_else(|error| panic!("{error}"))
}

/// The errors of a file, one a line.
fn errors(text: &str) -> String {
    Policy::parse(text, "x.toml").unwrap_err().to_string()
}

#[test]
fn every_shipped_policy_parses_and_is_named_like_its_file() {
    for built_in in BUILT_IN {
        let policy = built_in.policy().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(policy.name, built_in.name);
        assert!(!policy.description.is_empty());
    }
    assert!(Policy::built_in("nothing").is_none());
}

#[test]
fn the_effective_tables_of_every_shipped_policy() {
    for built_in in BUILT_IN {
        insta::assert_snapshot!(built_in.name, built_in.policy().unwrap().tables());
    }
}

#[test]
fn the_embedded_policy_is_what_an_empty_file_is() {
    assert_eq!(built_in("embedded"), Policy::embedded());
    assert_eq!(Policy::default(), Policy::embedded());
    let empty = Policy::parse("", "dir/embedded.toml").unwrap();
    assert_eq!(Policy { description: Policy::embedded().description, ..empty }, Policy::embedded());
}

#[test]
fn the_accessors_tell_the_defaults() {
    let policy = Policy::embedded();
    assert_eq!(policy.checkout_deadline_ms(), 15_000);
    assert_eq!(policy.session_cache_ms(), 2000);
    assert_eq!(policy.session_ttl_ms(), 30 * 86_400_000);
    assert_eq!(policy.guest_session_ttl_ms(), 30 * 86_400_000);
    assert_eq!(policy.guest_cart_ttl_ms(), 7 * 86_400_000);
    assert_eq!(policy.user_cart_ttl_ms(), Some(30 * 86_400_000));
    assert_eq!(policy.abandoned_after_ms(), 86_400_000);
    assert_eq!(policy.order_buckets(), 8);
    assert!(policy.uses(Store::Embedded) && !policy.uses(Store::Mongodb));
    assert_eq!(built_in("history-only").user_cart_ttl_ms(), None);
}

#[test]
fn what_the_shipped_policies_give_up() {
    let names = |name: &str| -> Vec<&str> {
        built_in(name).given_up().iter().map(|given_up| given_up.invariant.name()).collect()
    };
    assert_eq!(names("embedded"), [""; 0]);
    assert_eq!(names("default"), [""; 0]);
    assert_eq!(names("bucketed"), [""; 0]);
    assert_eq!(names("history-only"), ["ORD-1", "SES-1", "SES-2", "SES-3", "RD-1"]);
    assert_eq!(names("status-log"), ["SES-1", "SES-2", "SES-3", "RD-1"]);
    assert_eq!(names("quorum"), ["CRT-1", "CRT-2", "RD-1"]);
    assert!(built_in("quorum").gives_up(Invariant::Crt1));
    assert_eq!(
        built_in("quorum").given_up()[0].to_string(),
        "CRT-1 (concurrent changes of a cart all count): carts written at ONE and read at LOCAL_QUORUM need not \
         meet: what was acknowledged may be read late, or lost with one node"
    );
}

#[test]
fn warnings_name_their_key() {
    let warnings: Vec<String> = built_in("history-only").warnings().iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(warnings.join("\n"), @r#"products.mongodb.shard_key: "{category: 1, _id: 1}": one popular category can make one shard hot"#);
}

#[test]
fn carts_that_are_not_repaired_may_forget_what_orders_took() {
    let mut policy = built_in("default");
    policy.carts.placement.cassandra.as_mut().unwrap().read_repair = false;
    assert!(policy.gives_up(Invariant::Crt4));
    policy.orders.placement.cassandra.as_mut().unwrap().on_dc_loss = OnDcLoss::Refuse;
    assert!(!policy.gives_up(Invariant::Crt4), "no order is placed then");
}

#[test]
fn what_goes_on_elsewhere_needs_read_repair_unless_it_is_written_once_more() {
    let carts = |loss: &str, replication: &str| {
        let text = format!(
            "[carts]\nhome = \"cassandra\"\n[carts.cassandra]\nread_repair = false\n\
             on_dc_loss = {loss:?}\nreplication = {replication}\n"
        );
        Policy::parse(&text, "x.toml").map(|_| ()).map_err(|error| error.to_string())
    };
    let two = "{ dc1 = 3, dc2 = 3 }";
    insta::assert_snapshot!(carts("local_quorum", two).unwrap_err(), @r#"x.toml:4: carts.cassandra.read_repair: expected true, because a lost data centre gets what it has missed by read repair (or on_dc_loss = "refuse"), got false"#);
    assert_eq!(carts("refuse", two), Ok(()));
    assert_eq!(carts("local_quorum", "{ dc1 = 3 }"), Ok(()), "nobody can go on elsewhere");
    // Sessions have none, and go on.
    let sessions = built_in("default").sessions.placement.cassandra.unwrap();
    assert_eq!((sessions.read_repair, sessions.on_dc_loss), (false, OnDcLoss::LocalQuorum));
    assert!(sessions.is_stopped_by_dc_loss());
}

#[test]
fn who_refuses_next_to_a_lost_data_centre_is_warned() {
    let mut policy = built_in("default");
    policy.sessions.placement.cassandra.as_mut().unwrap().on_dc_loss = OnDcLoss::Refuse;
    let warnings: Vec<String> = policy.warnings().iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(warnings.join("\n"), @r"
    carts.cassandra.read: LOCAL_QUORUM and LOCAL_QUORUM meet only within one data centre; keep each customer's requests in one; while it is lost, what only it has is missing in the other
    sessions.cassandra.read: LOCAL_QUORUM and LOCAL_QUORUM meet only within one data centre; keep each customer's requests in one
    sessions.cassandra.on_dc_loss: LOCAL_QUORUM and LOCAL_QUORUM refuse sessions next to a data centre that is lost
    ");
}

#[test]
fn a_write_that_a_failover_may_take_back_is_named() {
    let policy =
        Policy::parse("[products]\nhome = \"mongodb\"\nmongodb = { write = \"primary\" }\n", "x").unwrap();
    let names: Vec<&str> = policy.given_up().iter().map(|given_up| given_up.invariant.name()).collect();
    assert_eq!(names, ["STK-1", "ORD-2", "CRT-4", "RD-1"]);
}

#[test]
fn an_unknown_key_is_named_at_every_level() {
    insta::assert_snapshot!(errors(
        r#"
cart = 1
colour = "red"
[times]
checkout_dedline = "15s"
[carts]
hom = "embedded"
[carts.ttl]
gest = "7d"
[sessions]
home = "cassandra"
[sessions.cassandra]
hint_windw = "1h"
status = "log"
[orders]
buckets = { cuont = 3 }
[reads]
catalog_search = { from = "secondary" }
product_page = { form = "secondary" }
[alerts]
latncy = {}
[alerts.shards]
cpu_pecent = 3
"#
    ), @r#"
    x.toml:2: cart: unknown key; did you mean "carts"?
    x.toml:3: colour: unknown key; expected one of alerts, carts, cassandra, description, name, order_history, orders, products, reads, sessions, times, users
    x.toml:5: times.checkout_dedline: unknown key; did you mean "checkout_deadline"?
    x.toml:7: carts.hom: unknown key; did you mean "home"?
    x.toml:9: carts.ttl.gest: unknown key; did you mean "guest"?
    x.toml:13: sessions.cassandra.hint_windw: unknown key; did you mean "hint_window"?
    x.toml:14: sessions.cassandra.status: unknown key; expected one of buckets, compaction, gc_grace, hint_window, home_dc, on_dc_loss, read, read_repair, repair, replication, serial, speculative_retry, timeout, write
    x.toml:16: orders.buckets.cuont: unknown key; did you mean "count"?
    x.toml:18: reads.catalog_search: unknown key; did you mean "catalogue_search"?
    x.toml:19: reads.product_page.form: unknown key; did you mean "from"?
    x.toml:21: alerts.latncy: unknown key; did you mean "latency"?
    x.toml:23: alerts.shards.cpu_pecent: unknown key; did you mean "cpu_percent"?
    "#);
}

#[test]
fn a_wrong_type_is_named() {
    insta::assert_snapshot!(errors(
        r#"
name = 3
times = "15s"
[carts]
home = ["embedded"]
ttl = { guest = 7, user = true }
[orders]
buckets = { count = "8", adaptive = "yes", max = 1.5 }
[reads]
analytics = "60s"
[alerts.shards]
cpu_percent = -1
chunk_size = 64
jumbo_chunks = { a = 1 }
"#
    ), @r#"
    x.toml:2: name: expected a text, got 3
    x.toml:3: times: expected a table, got "15s"
    x.toml:5: carts.home: expected one of "embedded", "mongodb", "cassandra", got an array
    x.toml:6: carts.ttl.guest: expected a duration like "7d", got 7
    x.toml:6: carts.ttl.user: expected a duration like "7d", or "never", got true
    x.toml:8: orders.buckets.count: expected a whole number from 1 to 256, got "8"
    x.toml:8: orders.buckets.max: expected a whole number from 1 to 256, got 1.5
    x.toml:8: orders.buckets.adaptive: expected true or false, got "yes"
    x.toml:10: reads.analytics: expected a table, got "60s"
    x.toml:12: alerts.shards.cpu_percent: expected a whole number from 0 to 1000, got -1
    x.toml:13: alerts.shards.chunk_size: expected a size like "64MiB", got 64
    x.toml:14: alerts.shards.jumbo_chunks: expected a whole number from 0 to 1000000000000, got a table
    "#);
}

#[test]
fn a_bad_value_is_named() {
    insta::assert_snapshot!(errors(
        r#"
[times]
checkout_deadline = "11m"
session_cache_s = 61
idempotency_keys = "1h"
[carts]
home = "postgres"
ttl = { guest = "7 days", user = "0s" }
[orders]
home = "cassandra"
buckets = { count = 0 }
[orders.cassandra]
write = "each_quorum"
repair = "weekly"
compaction = "twcs"
timeout = "50ms"
speculative_retry = "MIN(99p,95p)"
replication = { dc1 = 0, "d c" = 3, dc3 = 3 }
[products]
home = "mongodb"
mongodb = { shard_key = "_id" }
"#
    ), @r#"
    x.toml:3: times.checkout_deadline: expected a duration from 1s to 10m, got 11m
    x.toml:4: times.session_cache_s: expected a whole number from 0 to 60, got 61
    x.toml:5: times.idempotency_keys: expected a duration from 1d to 365d, got 1h
    x.toml:7: carts.home: expected one of "embedded", "mongodb", "cassandra", got "postgres"
    x.toml:8: carts.ttl.guest: expected a duration like "7d", got "7 days"
    x.toml:8: carts.ttl.user: expected at least 1s, or "never", got 0s
    x.toml:11: orders.buckets.count: expected a whole number from 1 to 256, got 0
    x.toml:13: orders.cassandra.write: expected one of "ANY", "ONE", "TWO", "THREE", "LOCAL_ONE", "QUORUM", "LOCAL_QUORUM", "EACH_QUORUM", "ALL", got "each_quorum"
    x.toml:14: orders.cassandra.repair: expected "none", an interval of at least "1h", or a time like "Sunday 02:00" or "day 1 03:00", got "weekly"
    x.toml:15: orders.cassandra.compaction: expected "stcs", "lcs" or "twcs 1d" with a window of whole minutes, got "twcs"
    x.toml:16: orders.cassandra.timeout: expected a duration from 100ms to 1m, got 50ms
    x.toml:17: orders.cassandra.speculative_retry: expected "none", "always", a percentile like "99p", a time like "50ms", or MIN or MAX of both like "MIN(99p,50ms)", got "MIN(99p,95p)"
    x.toml:18: orders.cassandra.replication."d c": expected a data centre named with letters, digits, '_' and '-'
    x.toml:18: orders.cassandra.replication.dc1: expected a whole number of replicas from 1 to 9, got 0
    x.toml:21: products.mongodb.shard_key: expected a shard key like "{category: 1, _id: 1}" or "{_id: hashed}", or "none", got "_id"
    "#);
}

#[test]
fn what_contradicts_itself_is_named() {
    insta::assert_snapshot!(errors(
        r#"
[sessions]
ttl = { user = "2d", guest = "1d" }
[times]
abandoned_after = "12h"
[carts]
ttl.guest = "7d"
ttl.user = "12h"
[carts.cassandra]
write = "ONE"
[products]
home = "cassandra"
[users]
home = "embedded"
migration_store = "cassandra"
[orders]
home = "mongodb"
migration_store = "mongodb"
buckets = { count = 200, max = 100, refresh = "1m", ahead = "1m" }
[order_history]
home = "mongodb"
[reads]
cart = { budget = "2s" }
stock_at_checkout = { from = "secondary" }
order_card = { from = "primary", budget = "2s" }
product_page = { budget = "0s" }
"#
    ), @r#"
    x.toml:5: times.abandoned_after: expected less than carts.ttl.user of 12h, got 12h
    x.toml:7: carts.ttl.guest: expected at most sessions.ttl.guest of 1d, got 7d
    x.toml:9: carts.cassandra: expected home or migration_store to be "cassandra", but home is "embedded"
    x.toml:12: products.home: expected "embedded" or "mongodb", got "cassandra"
    x.toml:15: users.migration_store: expected "embedded" or "mongodb", got "cassandra"
    x.toml:18: orders.migration_store: expected a store other than the home, got "mongodb"
    x.toml:19: orders.buckets.max: expected at least orders.buckets.count of 200, got 100
    x.toml:19: orders.buckets.ahead: expected at least two refresh periods, 2m, got 1m
    x.toml:21: order_history.home: expected "orders" or a migration_store, because orders live there too, got "mongodb"
    x.toml:23: reads.cart.budget: expected none, because this is read from the primary, got 2s
    x.toml:24: reads.stock_at_checkout.from: expected "primary", because this must be current, got "secondary"
    x.toml:25: reads.order_card.budget: expected none, because this is read from the primary, got 2s
    x.toml:26: reads.product_page.budget: expected a duration from 1ms to 1d, got 0s
    "#);
}

#[test]
fn cassandra_settings_that_cannot_work_are_named() {
    insta::assert_snapshot!(errors(
        r#"
[cassandra]
replication = { dc1 = 1, dc2 = 1 }
home_dc = "dc3"
[carts]
home = "cassandra"
[carts.cassandra]
home_dc = "dc4"
read = "EACH_QUORUM"
write = "THREE"
timeout = "200ms"
speculative_retry = "200ms"
[orders]
home = "cassandra"
[orders.cassandra]
repair = "30d"
gc_grace = "10d"
speculative_retry = "MAX(99p,5000ms)"
[sessions]
home = "cassandra"
[sessions.cassandra]
hint_window = "2h"
gc_grace = "1h"
replication = {}
write = "EACH_QUORUM"
[order_history]
mongodb = { shard_key = "none" }
[users]
home = "mongodb"
mongodb = { shard_key = "{_id: hashed}" }
"#
    ), @r#"
    x.toml:4: cassandra.home_dc: expected a data centre of the replication (dc1, dc2), got "dc3"
    x.toml:8: carts.cassandra.home_dc: expected a data centre of the replication (dc1, dc2), got "dc4"
    x.toml:9: carts.cassandra.read: expected a level that Cassandra reads at, got EACH_QUORUM
    x.toml:10: carts.cassandra.write: expected at most 2 replicas, got THREE
    x.toml:12: carts.cassandra.speculative_retry: expected a time within the timeout of 200ms, got "200ms"
    x.toml:17: orders.cassandra.gc_grace: expected at least the repair interval of 30d, got 10d
    x.toml:18: orders.cassandra.speculative_retry: expected a time within the timeout of 5s, got "MAX(99p,5000ms)"
    x.toml:23: sessions.cassandra.gc_grace: expected at least the hint window of 2h, got 1h
    x.toml:24: sessions.cassandra.replication: expected at least one data centre, like { dc1 = 3 }
    x.toml:27: order_history.mongodb: expected a home of its own, but home is "orders"
    x.toml:30: users.mongodb.shard_key: expected "none" or "{email: 1}", because emails are unique, got "{_id: hashed}"
    "#);
}

/// Such a history was served from the orders' own tables, and nobody was told.
#[test]
fn a_separate_history_lives_on_servers_and_beside_its_orders_only_while_it_moves() {
    let history = |text: &str| format!("[orders]\nhome = \"mongodb\"\n[order_history]\n{text}\n");
    insta::assert_snapshot!(errors(&history("home = \"embedded\"")), @r#"x.toml:4: order_history.home: expected "mongodb" or "cassandra", got "embedded""#);
    insta::assert_snapshot!(errors(&history("home = \"cassandra\"\nmigration_store = \"embedded\"")), @r#"x.toml:5: order_history.migration_store: expected "mongodb" or "cassandra", got "embedded""#);
    for (home, other) in [("cassandra", "mongodb"), ("mongodb", "cassandra")] {
        let text = history(&format!("home = \"{home}\"\nmigration_store = \"{other}\""));
        let policy = Policy::parse(&text, "x.toml").unwrap();
        let placement = policy.placement(Entity::OrderHistory).unwrap();
        assert!(placement.uses(Store::Mongodb) && placement.uses(Store::Cassandra), "{text}");
    }
}

#[test]
fn broken_toml_is_named_by_line_and_key() {
    insta::assert_snapshot!(errors("[times]\nabandoned_after = 24h\n"), @"x.toml:2: times.abandoned_after: string values must be quoted, expected literal string");
    insta::assert_snapshot!(errors("[times]\nsession_cache_s = 1\nsession_cache_s = 2\n"), @"x.toml:3: times.session_cache_s: duplicate key");
    insta::assert_snapshot!(errors("[times\n"), @"x.toml:1: times: unclosed table, expected `]`");
}

#[test]
fn the_key_that_somebody_wrote_is_named() {
    insta::assert_snapshot!(errors("[carts.ttl]\nuser = \"12h\"\n"), @"x.toml:2: carts.ttl.user: expected more than times.abandoned_after of 1d, got 12h");
}

#[test]
fn a_policy_moves_to_other_data_centres() {
    let one = Replication::from([("datacenter1".to_owned(), 1)]);
    let policy = built_in("history-only").in_data_centres(&one);
    for entity in [Entity::Carts, Entity::OrderHistory, Entity::Sessions] {
        let settings = policy.placement(entity).unwrap().cassandra.as_ref().unwrap();
        assert_eq!((settings.home_dc.as_str(), &settings.replication), ("datacenter1", &one));
    }
    assert_eq!(Policy::parse(&policy.to_toml().unwrap(), "x.toml").unwrap(), policy);
}

#[test]
fn a_guest_cart_defaults_to_its_session() {
    let policy = Policy::parse("[sessions.ttl]\nuser = \"2d\"\n", "x.toml").unwrap();
    assert_eq!(policy.carts.ttl.guest, Period::days(2));
}

#[test]
fn a_later_grace_follows_a_rare_repair() {
    let settings = built_in("status-log").sessions.placement.cassandra.unwrap();
    assert_eq!((settings.repair.interval(), settings.gc_grace), (Some(Period::days(30)), Period::days(33)));
}

#[test]
fn the_effective_policy_is_a_policy() {
    for built_in in BUILT_IN {
        let policy = built_in.policy().unwrap();
        let text = policy.to_toml().unwrap();
        let again = Policy::parse(&text, built_in.file).unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(again, policy);
    }
}

fn any_period(from: Period, to: Period) -> impl Strategy<Value = String> {
    (from.as_ms()..=to.as_ms()).prop_map(|ms| Period::millis(ms).to_string())
}

fn any_word(words: &'static [&'static str]) -> impl Strategy<Value = &'static str> {
    prop::sample::select(words)
}

prop_compose! {
    fn any_cassandra()(
        write in any_word(&["ANY", "ONE", "LOCAL_ONE", "QUORUM", "LOCAL_QUORUM", "EACH_QUORUM", "ALL"]),
        read in any_word(&["ONE", "TWO", "LOCAL_ONE", "QUORUM", "LOCAL_QUORUM", "ALL"]),
        serial in any_word(&["SERIAL", "LOCAL_SERIAL"]),
        loss in any_word(&["local_quorum", "refuse"]),
        repair in any_word(&["none", "1h", "90m", "40d", "Monday 00:00", "day 28 23:59"]),
        compaction in any_word(&["stcs", "lcs", "twcs 90m", "twcs 30d"]),
        read_repair: bool,
        timeout in any_period(Period::millis(100), Period::seconds(60)),
        speculation in any_word(&["none", "always", "99p", "99.95p", "50ms", "MIN(99p,70000ms)", "MAX(90p,99ms)"]),
        hint_window in any_period(Period::seconds(0), Period::days(7)),
        replicas in 2u8..=9,
    ) -> String {
        // Whoever goes on without a data centre needs read repair.
        let read_repair = read_repair || loss == "local_quorum";
        format!(
            "write = {write:?}\nread = {read:?}\nserial = {serial:?}\non_dc_loss = {loss:?}\nrepair = {repair:?}\n\
             compaction = {compaction:?}\nread_repair = {read_repair}\nhint_window = {hint_window:?}\n\
             timeout = {timeout:?}\nspeculative_retry = {speculation:?}\n\
             replication = {{ a-1 = {replicas}, b_2 = 3 }}\nhome_dc = \"b_2\"\n"
        )
    }
}

proptest! {
    #[test]
    fn what_is_serialised_parses_to_the_same(
        name in "[a-z\"\\\\ а-я]{0,12}",
        carts in any_cassandra(),
        orders in any_cassandra(),
        history in any_cassandra(),
        deadline in any_period(Period::seconds(1), Period::minutes(10)),
        guest in any_period(Period::seconds(1), Period::days(30)),
        budget in any_period(Period::millis(1), Period::hours(24)),
        shard_key in any_word(&["none", "{_id: hashed}", "{category: 1, _id: 1}"]),
        (count, cache, jumbo) in (1u16..=256, 0u64..=60, 0u64..=1_000_000),
        own_history: bool,
        bytes: u64,
    ) {
        let name = toml::Value::String(name);
        let orders_home = if own_history { "mongodb" } else { "cassandra" };
        let history = if own_history {
            format!("[order_history]\nhome = \"cassandra\"\n[order_history.cassandra]\n{history}")
        } else {
            String::new()
        };
        let text = format!(
            "name = {name}\n[times]\ncheckout_deadline = {deadline:?}\nsession_cache_s = {cache}\n\
             [products]\nhome = \"mongodb\"\nmongodb = {{ shard_key = {shard_key:?} }}\n\
             [carts]\nhome = \"cassandra\"\nttl = {{ guest = {guest:?}, user = \"never\" }}\n\
             [carts.cassandra]\n{carts}\
             [orders]\nhome = {orders_home:?}\nmigration_store = \"{}\"\nbuckets = {{ count = {count} }}\n\
             [orders.cassandra]\n{orders}{history}\
             [reads]\norder_card = {{ budget = {budget:?} }}\nanalytics = {{ from = \"primary\" }}\n\
             [alerts.shards]\njumbo_chunks = {jumbo}\nchunk_size = \"{bytes}B\"\n",
            if own_history { "cassandra" } else { "embedded" },
        );
        let policy = Policy::parse(&text, "x.toml").map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
        let written = policy.to_toml().unwrap();
        let again = Policy::parse(&written, "other.toml")
            .map_err(|error| TestCaseError::fail(format!("{error}\n{written}")))?;
        prop_assert_eq!(again, policy);
    }
}
