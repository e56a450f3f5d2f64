//! The tables of every policy on a real ring: made, compared, changed, never dropped.

use std::collections::BTreeMap;

use mobimir_cassandra::{
    Cluster,
    schema::{self, Change, SchemaError},
};
use mobimir_core::policy::{BUILT_IN, Compaction, Entity, Period, Policy, Store};

use crate::support;

fn prefix() -> String {
    let random = mobimir_core::secret::random_bytes::<4>();
    format!("s{}", random.map(|byte| format!("{byte:02x}")).concat())
}

async fn apply(cluster: &Cluster, keyspaces: &[schema::Keyspace]) -> Vec<Change> {
    let plan = schema::plan(cluster, keyspaces).await.unwrap();
    let mut told = Vec::new();
    schema::apply(cluster, &plan, |done, change| {
        assert_eq!(done, told.len());
        told.push(change.clone());
    })
    .await
    .unwrap();
    assert_eq!(told, plan.changes);
    told
}

#[test]
fn every_policy_gets_its_tables_and_a_second_time_nothing_happens() {
    let ring = support::shared();
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        for built_in in BUILT_IN {
            let policy = support::policy(built_in.name);
            if !policy.uses(Store::Cassandra) {
                assert!(schema::keyspaces(&policy, "none").is_empty());
                continue;
            }
            // They are made once for all tests, by `schema::apply`.
            let common = support::common(ring.ring, &policy, Entity::ALL).await;
            let cluster = common.cluster;
            let nowhere = schema::keyspaces(&policy, &prefix());
            let tables: usize = nowhere.iter().map(|keyspace| keyspace.tables.len()).sum();
            let all = schema::plan(&cluster, &nowhere).await.unwrap();
            assert_eq!(all.changes.len(), nowhere.len() + tables, "{}", built_in.name);
            let keyspaces = schema::keyspaces(&policy, &common.prefix);
            let again = schema::plan(&cluster, &keyspaces).await.unwrap();
            assert_eq!(again, schema::Plan::default(), "{}", built_in.name);
            for keyspace in &keyspaces {
                read_back(&cluster, keyspace, &policy).await;
            }
        }
    });
}

/// What the cluster itself says, not by way of the plan.
async fn read_back(cluster: &Cluster, keyspace: &schema::Keyspace, policy: &Policy) {
    type Row = (String, BTreeMap<String, String>, i32, i32, String, String);
    let cql = format!(
        "SELECT table_name, compaction, default_time_to_live, gc_grace_seconds, read_repair, comment \
        FROM system_schema.tables WHERE keyspace_name = '{}'",
        keyspace.name
    );
    let result = cluster.session().query_unpaged(cql, ()).await.unwrap().into_rows_result().unwrap();
    let rows: Vec<Row> = result.rows::<Row>().unwrap().map(Result::unwrap).collect();
    assert_eq!(rows.len(), keyspace.tables.len());
    let settings = support::settings(policy, keyspace.entity);
    for (name, compaction, default_ttl_s, gc_grace_s, read_repair, comment) in rows {
        let table = keyspace.tables.iter().find(|table| table.name == name).unwrap();
        assert_eq!(i64::from(gc_grace_s), table.options.gc_grace_s, "{name}");
        assert!(i64::from(gc_grace_s) * 1_000 <= settings.gc_grace.as_ms(), "{name}");
        assert_eq!(i64::from(default_ttl_s), table.options.default_ttl_s, "{name}");
        assert_eq!(read_repair == "BLOCKING", settings.read_repair, "{name}");
        assert_eq!(comment, table.comment);
        let class = match table.options.compaction {
            Compaction::SizeTiered => "SizeTieredCompactionStrategy",
            Compaction::Leveled => "LeveledCompactionStrategy",
            Compaction::TimeWindow(_) => "TimeWindowCompactionStrategy",
        };
        assert!(compaction["class"].ends_with(class), "{name}: {compaction:?}");
    }
}

#[test]
fn a_changed_policy_changes_options_and_adds_columns_and_leaves_the_rest() {
    let ring = support::shared();
    let policy = support::policy("default");
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let fresh = support::fresh(ring.ring, &policy, &[Entity::Sessions]).await;
        let _tables = support::TABLES.lock().await;
        let cluster = &fresh.cluster;
        let mut keyspaces = schema::keyspaces(&policy, &fresh.prefix);
        keyspaces.retain(|keyspace| keyspace.entity == Entity::Sessions);
        let name = keyspaces[0].name.clone();
        let run = async |cql: String| support::change_tables(cluster.session(), &cql).await;
        // What somebody has done by hand.
        run(format!("ALTER TABLE {name}.sessions ADD note text")).await;
        run(format!("CREATE TABLE {name}.by_hand (id int PRIMARY KEY)")).await;
        run(format!("ALTER TABLE {name}.sessions_by_user WITH compaction = {{'class': 'LeveledCompactionStrategy', 'sstable_size_in_mb': '64'}}")).await;
        run(format!("ALTER TABLE {name}.refresh_tokens DROP used_by")).await;
        // What a policy may say otherwise.
        let sessions = keyspaces[0].tables.iter_mut().find(|table| table.name == "sessions").unwrap();
        sessions.options.compaction = Compaction::TimeWindow(Period::hours(36));
        sessions.options.gc_grace_s = 7_200;
        sessions.options.speculative_retry = "MIN(99.5p,50ms)".to_owned();
        sessions.options.blocking_read_repair = !sessions.options.blocking_read_repair;

        let made = apply(cluster, &keyspaces).await;
        let cql: Vec<String> = made.iter().map(Change::cql).collect();
        assert_eq!(cql.len(), 2, "{cql:#?}");
        assert!(cql[0].starts_with(&format!("ALTER TABLE {name}.sessions WITH compaction = ")), "{}", cql[0]);
        assert_eq!(cql[1], format!("ALTER TABLE {name}.refresh_tokens ADD (used_by uuid)"));
        let again = schema::plan(cluster, &keyspaces).await.unwrap();
        assert!(again.is_empty(), "{again:?}");
        let left_alone = [format!("column note of {name}.sessions"), format!("table {name}.by_hand")];
        assert_eq!(again.left_alone, left_alone);
        let select = format!("SELECT table_name FROM system_schema.tables WHERE keyspace_name = '{name}'");
        let tables = cluster.session().query_unpaged(select, ()).await.unwrap();
        assert_eq!(tables.into_rows_result().unwrap().rows_num(), keyspaces[0].tables.len() + 1);
    });
}

#[test]
fn what_cannot_be_changed_in_place_stops_everything() {
    let ring = support::shared();
    let policy = support::policy("default");
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let fresh = support::fresh(ring.ring, &policy, &[Entity::Sessions]).await;
        let _tables = support::TABLES.lock().await;
        // The same sessions in shared partitions, and carts that are not there yet.
        let bucketed = support::policy("bucketed");
        let keyspaces = schema::keyspaces(&bucketed, &fresh.prefix);
        let plan = schema::plan(&fresh.cluster, &keyspaces).await.unwrap();
        let table = format!("{}.sessions", fresh.cluster.keyspace(Entity::Sessions));
        assert_eq!(plan.conflicts.len(), 1, "{plan:?}");
        assert_eq!(plan.conflicts[0].table, table);
        assert!(!plan.changes.is_empty());
        let refused = schema::apply(&fresh.cluster, &plan, |_, change| panic!("{change}")).await;
        assert!(matches!(refused, Err(SchemaError::Conflicts(tables)) if tables == [table]));
        assert_eq!(schema::plan(&fresh.cluster, &keyspaces).await.unwrap(), plan);
    });
}

/// The script is what `apply` does, statement by statement.
#[test]
fn the_printed_script_makes_the_same_tables() {
    let ring = support::shared();
    let policy = support::policy("history-only");
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let _tables = support::TABLES.lock().await;
        let prefix = prefix();
        let keyspaces = schema::keyspaces(&policy, &prefix);
        let cluster = support::connect(ring.ring, &policy, &prefix, None).await;
        for statement in
            schema::script(&keyspaces).split(";\n").filter(|statement| !statement.trim().is_empty())
        {
            support::change_tables(cluster.session(), statement).await;
        }
        let plan = schema::plan(&cluster, &keyspaces).await.unwrap();
        assert_eq!(plan, schema::Plan::default());
    });
}
