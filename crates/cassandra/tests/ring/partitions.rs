//! Large partitions are found, by what was written to them and by what the nodes say.

use mobimir_cassandra::{CassandraOrders, OrderOptions, measure};
use mobimir_core::{
    id::{self, OrderId, UserId},
    order::{Order, OrderStatus},
    policy::Entity,
    ports::OrderStore,
    time::{Clock, SystemClock, Version},
    zone::Zone,
};

use crate::support;

#[test]
fn the_largest_partitions_are_named() {
    const ORDERS: u64 = 300;
    let ring = support::shared();
    let policy = support::policy("quorum");
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        // Only what is in Cassandra in this policy, so that all keyspaces are there.
        let fresh = support::fresh(ring.ring, &policy, Entity::ALL).await;
        let second = support::connect(ring.ring, &policy, &fresh.prefix, None).await;
        let now = SystemClock.now();
        let customer = UserId(id::fresh(now));
        for (n, cluster) in [&fresh.cluster, &second].into_iter().enumerate() {
            let settings = support::settings(&policy, Entity::Orders);
            let orders =
                CassandraOrders::open(cluster.clone(), settings, policy.orders.buckets, OrderOptions::default())
                    .await
                    .unwrap();
            let order = |at: u64| Order {
                id: OrderId::of(customer, &format!("{n}/{at}")),
                // One customer has most of the orders, and one bucket a third of them.
                user_id: if at.is_multiple_of(10) { UserId(id::fresh(now)) } else { customer },
                status: OrderStatus::Paid,
                geo_zone: Zone::parse("MSK").unwrap(),
                lines: Vec::new(),
                shipping_address: Some("х".repeat(5_000)),
                payment_method: None,
                created_at: now,
                updated_at: now,
                bucket: (at % 3) as u16,
                version: Version::default().next(now),
            };
            orders.insert((0..ORDERS / 2).map(order).collect()).await.unwrap();
            cluster.write_partition_stats().await;
            let metrics = cluster.metrics();
            let line = "mobimir_cassandra_partition_written_rows_max{entity=\"orders\",table=\"orders_by_user\"} 135";
            assert!(metrics.contains(line), "{metrics}");
        }
        let keyspace = fresh.cluster.keyspace(Entity::Orders);
        for node in 1..=3 {
            ring.ring.flush(node, &keyspace).unwrap();
        }

        // One replica says how much was written, and may hear of it late.
        let report = support::until_some("all that was written is counted", async || {
            let report = measure(&fresh.cluster, &policy, 3).await.ok()?;
            let has = |table: &str, count: usize, rows: u64| {
                let largest = report.partitions.iter().filter(|stat| stat.table == table).take(count);
                largest.filter(|stat| stat.rows == rows && stat.written_rows == rows).count() == count
            };
            let nodes = report.nodes.iter().filter(|stat| stat.table == "orders_by_user").count();
            let is_whole = has("orders_by_user", 1, 270) && has("orders_by_day", 3, 100) && nodes == 3;
            is_whole.then_some(report)
        })
        .await;
        let largest = |table: &str| report.partitions.iter().find(|stat| stat.table == table).unwrap();
        let by_user = largest("orders_by_user");
        assert!(by_user.key.starts_with(&customer.to_string()), "{}", by_user.key);
        assert_eq!((by_user.rows, by_user.written_rows, by_user.has_more_rows), (270, 270, false));
        assert!(by_user.estimated_bytes > 270 * 10_000, "{by_user:?}");
        let by_day = largest("orders_by_day");
        assert_eq!((by_day.rows, by_day.written_rows), (100, 100));
        assert_eq!(report.partitions.iter().filter(|stat| stat.table == "orders_by_day").count(), 3);
        // Three nodes with three replicas: each has it all. How large what is on the disk is, is known after a while.
        let of_table = |table: &str| report.nodes.iter().filter(|stat| stat.table == table).collect::<Vec<_>>();
        assert_eq!(of_table("orders_by_user").len(), 3);
        let mib = of_table("orders_by_user").iter().map(|stat| stat.largest_partition_mib).collect::<Vec<_>>();
        println!("{mib:?}; {}", serde_json::to_string_pretty(&report.partitions).unwrap());
        assert!(mib.iter().all(Option::is_some), "{mib:?}");
        support::until("every node knows its largest partition", support::PATIENCE, async || {
            let Ok(report) = measure(&fresh.cluster, &policy, 1).await else { return false };
            let of_table = report.nodes.iter().filter(|stat| stat.table == "orders_by_user");
            of_table.filter(|stat| stat.largest_partition_mib >= Some(1)).count() == 3
        })
        .await;
    });
}
