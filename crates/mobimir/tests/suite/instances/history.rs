//! What becomes of the separate order history when an instance dies that could not write it. An entry in the
//! outbox is left alone for a minute, so this waits, and runs beside everything else that leaves the servers
//! whole (`scripts/test`).

use std::time::{Duration, Instant};

use hyper::Method;
use mobimir_lab::{Path, StoreProxies};
use mongodb::bson::doc;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{PATIENCE, need_servers};
use crate::support::{
    Client, Customer, Instances,
    servers::{self, Tables},
    shop::{items, operator, product},
};

/// Nobody delivers what another instance owes before.
const ABANDONED_AFTER: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(100);
/// How long it is watched that a copy which came late changes nothing.
const WATCHED_FOR: Duration = Duration::from_secs(2);
const FILLED: &str = "order-history/filled";
const OWED: &str = "order-history/owed";

struct Shop {
    instances: Instances,
    environments: [Vec<(&'static str, String)>; 2],
    /// Of the instance that dies, and of the other.
    ways: [StoreProxies; 2],
    database: String,
    customer: Client,
}

/// Three orders are moved by instances that reach MongoDB and not Cassandra, and that are then killed:
///
/// - *late* and *overtaken* while requests to Cassandra are held. They arrive when the way is open again, and
///   so after the other instance has moved *overtaken* once more.
/// - *cut off* while connections are cut. Nothing of it can ever arrive: only the outbox can deliver it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_dead_instance_owes_the_history_is_delivered_by_another() {
    need_servers();
    let mut shop = Shop::start().await;
    let phone = product(shop.other(), 10).await;
    let mut orders = Vec::new();
    for key in ["late", "overtaken", "cut off"] {
        let order = shop.customer.order(key, items(&phone, 1)).await.expect(201);
        orders.push(order["order_id"].as_str().unwrap().to_owned());
    }
    let [late, overtaken, cut_off] = orders.try_into().unwrap();
    for order in [&late, &overtaken, &cut_off] {
        shop.until_listed(order, "confirmed").await;
    }

    shop.ways[0].set_cassandra(Path::REQUESTS_HELD);
    let held_at = Instant::now();
    let asked = [&late, &overtaken].map(|order| shop.pay_at_the_first(order));
    shop.until_moved(&late, "paid").await;
    shop.until_moved(&overtaken, "paid").await;
    let status = format!("/v1/orders/{overtaken}/status");
    let shipped = operator(shop.other()).post(&status, json!({ "status": "shipped" })).await;
    assert_eq!(shipped.expect(200)["status"], "shipped");
    // Its copy is under way when it gives up waiting and answers.
    for asked in asked {
        asked.await.unwrap();
    }
    shop.instances.kill_first();
    assert_eq!(shop.listed(&late).await, "confirmed", "nothing has arrived yet");
    shop.ways[0].set_cassandra(Path::OPEN);
    shop.until_listed(&late, "paid").await;
    let entries = shop.owed(&late).await;
    if held_at.elapsed() < ABANDONED_AFTER {
        assert_eq!(entries, 1, "it arrived late; nobody has delivered it");
    }
    let watched = Instant::now();
    while watched.elapsed() < WATCHED_FOR {
        assert_eq!(shop.listed(&overtaken).await, "shipped", "what came late has undone a later move");
        tokio::time::sleep(PAUSE).await;
    }

    shop.instances.start_first_again(&shop.environments[0]);
    for way in &shop.ways {
        way.set_cassandra(Path::CUT);
    }
    let cut_at = Instant::now();
    let asked = shop.pay_at_the_first(&cut_off);
    shop.until_moved(&cut_off, "paid").await;
    asked.await.unwrap();
    assert_eq!(shop.owed(&cut_off).await, 1);
    shop.instances.kill_first();
    // The ring is back for the one that lives, and for nothing that the dead one has sent.
    shop.ways[1].set_cassandra(Path::OPEN);
    let listed = shop.listed(&cut_off).await;
    if cut_at.elapsed() < ABANDONED_AFTER {
        assert_eq!(listed, "confirmed", "a history that lacks the copy is read");
    }
    shop.until_listed(&cut_off, "paid").await;
    for order in [&late, &overtaken, &cut_off] {
        shop.until_nothing_is_owed(order).await;
    }
    let final_states = [(&late, "paid"), (&overtaken, "shipped"), (&cut_off, "paid")];
    for (order, status) in final_states {
        assert_eq!(shop.listed(order).await, status);
    }
}

impl Shop {
    /// Once histories are read from their own home.
    async fn start() -> Self {
        let real = servers::real().unwrap();
        let dir = TempDir::new().unwrap();
        let data = dir.path().join("data");
        let straight = servers::production_environment_under("history-only", &data, Tables::Own);
        let database =
            straight.iter().find(|(name, _)| *name == "MOBIMIR_MONGODB_DATABASE").unwrap().1.clone();
        let ways = [(); 2].map(|()| StoreProxies::start(&real.ring, &real.mongo).unwrap());
        let environments = [0, 1].map(|number| servers::through(&ways[number], &straight));
        let instances = Instances::on_servers(dir, &["serve"], [&environments[0], &environments[1]]);
        let customer = Customer::new(instances.host_of(1)).await;
        let customer = customer.client.tolerating_503("its way to Cassandra is cut for a while");
        let shop = Self { instances, environments, ways, database, customer };
        let started = Instant::now();
        while shop.notes(FILLED).await == 0 {
            assert!(started.elapsed() < PATIENCE, "the history is never filled");
            tokio::time::sleep(PAUSE).await;
        }
        shop
    }

    /// The instance that lives on.
    fn other(&self) -> &str {
        let [.., last] = self.instances.host.split(',').collect::<Vec<_>>()[..] else { unreachable!() };
        last
    }

    /// How it is answered does not matter: it waits for Cassandra as long as it has time.
    fn pay_at_the_first(&self, order: &str) -> tokio::task::JoinHandle<()> {
        let (host, path) = (self.instances.host_of(0).to_owned(), format!("/v1/orders/{order}/status"));
        tokio::spawn(async move {
            let paid = Some(json!({ "status": "paid" }));
            let answer = operator(&host).send(Method::POST, &path, &[], paid).await;
            assert!(
                answer.as_ref().is_ok_and(|answer| [200, 503].contains(&answer.status.as_u16())),
                "{answer:?}"
            );
        })
    }

    /// Waits until the orders themselves say so.
    async fn until_moved(&self, order: &str, status: &str) {
        let started = Instant::now();
        let mut operator = operator(self.other()).tolerating_503("the way to Cassandra is cut");
        while operator.get(&format!("/v1/orders/{order}")).await.expect(200)["status"] != status {
            assert!(started.elapsed() < PATIENCE, "{order} is never {status}");
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// As the history has it at the instance that lives on.
    async fn listed(&mut self, order: &str) -> String {
        let history = self.customer.get("/v1/orders?limit=100").await.expect(200);
        let is_it = |listed: &&Value| listed["order_id"] == order;
        let listed = history["items"].as_array().unwrap().iter().find(is_it).cloned();
        listed.map_or_else(|| "missing".to_owned(), |listed| listed["status"].as_str().unwrap().to_owned())
    }

    async fn until_listed(&mut self, order: &str, status: &str) {
        let started = Instant::now();
        while self.listed(order).await != status {
            assert!(started.elapsed() < PATIENCE, "the history never says that {order} is {status}");
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn owed(&self, order: &str) -> i32 {
        self.notes(&format!("{OWED}/{order}/")).await
    }

    async fn until_nothing_is_owed(&self, order: &str) {
        let started = Instant::now();
        while self.owed(order).await > 0 {
            assert!(started.elapsed() < PATIENCE, "{order} stays in the outbox");
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// How many notes have names that begin so.
    async fn notes(&self, prefix: &str) -> i32 {
        let (database, prefix) = (self.database.clone(), prefix.to_owned());
        let counted = tokio::task::spawn_blocking(move || {
            let mongo = &servers::real().unwrap().mongo;
            let named = doc! { "_id": { "$gte": &prefix, "$lt": format!("{prefix}{}", char::MAX) } };
            let count = doc! { "count": "notes", "query": named };
            mongo.run_on(mongo.primary().unwrap(), &database, count)
        });
        counted.await.unwrap().unwrap().get_i32("n").unwrap()
    }
}
