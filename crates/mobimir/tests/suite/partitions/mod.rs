//! Two instances, each with its own way to the stores. That of one is slow, cut, and cut one way only, while
//! people buy at both; then everything that anybody asked and was answered is held against the invariants.

mod record;
mod shopper;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use hyper::Method;
use mobimir_lab::{Path, StoreProxies};
use serde_json::{Value, json};
use tempfile::TempDir;

use self::{
    record::{Outcome, Record, account_of, counts, longest},
    shopper::Shopper,
};
use crate::support::{
    Client, Instances,
    servers::{self, Tables},
    shop::{PASSWORD, assert_no_violation, assert_orders_found, product, settled_stock},
};

/// How long to wait for what is certain to come. It only ends a test that hangs.
const PATIENCE: Duration = Duration::from_secs(600);
const SHOPPERS: usize = 4;
const PRODUCTS: usize = 2;
const UNITS: u64 = 1_000_000;
/// Of the instance whose way is hurt, and of the other.
const HURT: usize = 0;
const WHOLE: usize = 1;
/// Every trouble lasts at least as long, and until the other instance has taken an order.
const LASTS: Duration = Duration::from_secs(2);
const DELAY: Duration = Duration::from_millis(150);

type Trouble = fn(&StoreProxies);

/// In this order. After each all is well again until both instances have taken an order.
const TROUBLES: [(&str, Trouble); 4] = [
    ("both stores are slow", |way| way.set(Path::delayed(DELAY))),
    ("both stores are cut off", |way| way.set(Path::CUT)),
    ("Cassandra is not reached, and nobody is told", |way| way.set_cassandra(Path::REQUESTS_HELD)),
    ("MongoDB does what it is asked, and nobody is told", |way| way.set_mongodb(Path::ANSWERS_HELD)),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_that_loses_its_stores_for_a_while_breaks_nothing() {
    let Some(real) = servers::real() else {
        panic!("two instances share servers: set MOBIMIR_SUITE_POLICY=default");
    };
    let dir = TempDir::new().unwrap();
    let straight = servers::production_environment(&dir.path().join("data"), Tables::Shared);
    let ways = [(); 2].map(|()| StoreProxies::start(&real.ring, &real.mongo).unwrap());
    let [hurt, whole] = [HURT, WHOLE].map(|number| servers::through(&ways[number], &straight));
    let shop = Instances::on_servers(dir, &["serve"], [&hurt, &whole]);
    let mut products = Vec::new();
    for _ in 0..PRODUCTS {
        products.push(product(&shop.host, UNITS).await);
    }
    let (record, over) = (Record::new(), Arc::<AtomicBool>::default());
    let mut shopping = Vec::new();
    for number in 0..SHOPPERS {
        let hosts = shop.hosts().map(str::to_owned);
        let shopper = Shopper::new(number, hosts, record.clone(), products.clone()).await;
        shopping.push(tokio::spawn(shopper.shop(over.clone())));
    }
    let (cassandra, mongodb) = ways[HURT].connections();
    assert!(cassandra >= 3 && mongodb >= 3, "no way goes beside the proxies: {cassandra}, {mongodb}");

    for (name, trouble) in TROUBLES {
        let began_us = record.now_us();
        trouble(&ways[HURT]);
        tokio::time::sleep(LASTS).await;
        goes_on(&record, &[WHOLE], began_us, name).await;
        let healed_us = record.now_us();
        ways[HURT].set(Path::OPEN);
        goes_on(&record, &[HURT, WHOLE], healed_us, "all is well again").await;
    }
    over.store(true, Ordering::SeqCst);
    let mut shoppers = Vec::new();
    for shopper in shopping {
        shoppers.push(shopper.await.unwrap());
    }

    let operations = record.operations();
    let [at_hurt, at_whole] = counts(&operations);
    println!("done, refused, unknown: {at_hurt:?} where the way was hurt, {at_whole:?} at the other");
    let [hurt, whole] = [HURT, WHOLE].map(|instance| longest(instance, &operations));
    println!("the longest request took {hurt:?} where the way was hurt, {whole:?} at the other");
    assert!(at_hurt[2] > 0, "nobody was kept waiting or failed: {at_hurt:?}");
    let mut sold = 0;
    for shopper in &shoppers {
        let account = account_of(shopper.number, &operations);
        let login = log_in(&shop.host, &shopper.email).await;
        let mut client = Client::with_token(&shop.host, login["token"].as_str().unwrap());
        assert_orders_found(&shop.host, &mut client, &account.orders).await;
        let possible = account.units_added..=account.units_added + account.units_in_doubt;
        for _ in 0..client.instances() {
            let cart = client.get("/v1/cart").await.expect(200);
            let items = cart["items"].as_array().unwrap().iter();
            let left: u64 = items.map(|item| item["quantity"].as_u64().unwrap()).sum();
            let found = account.units_ordered + left;
            assert!(
                possible.contains(&found),
                "CRT-1, CRT-4: {} units ordered and {left} in the cart of {possible:?} that were added",
                account.units_ordered
            );
        }
        assert!(!account.orders.is_empty(), "somebody has ordered nothing");
        sold += account.units_ordered;
        a_refresh_token_works_once(&shop, &login).await;
    }
    let mut sold_by_books = 0;
    for product in &products {
        let (available, reserved, sold) = settled_stock(&shop.host, product).await;
        assert_eq!((available + sold, reserved), (UNITS, 0), "STK-1");
        sold_by_books += sold;
    }
    assert_eq!(sold_by_books, sold, "STK-1: what was sold is what was acknowledged");
    assert_no_violation(&shop.host).await;
}

/// Waits until these instances have taken orders.
async fn goes_on(record: &Record, instances: &[usize], since_us: u128, when: &str) {
    let started = Instant::now();
    while !instances.iter().all(|instance| record.has_ordered_since(*instance, since_us)) {
        assert!(started.elapsed() < PATIENCE, "{instances:?} take no orders while {when}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn log_in(host: &str, email: &str) -> Value {
    let who = json!({ "email": email, "password": PASSWORD });
    let mut anyone = Client::new(host);
    anyone.certain(Method::POST, "/v1/sessions/login", &[], Some(who)).await.expect(200)
}

/// SES-2: whichever instances it is shown to, at the same moment or later.
async fn a_refresh_token_works_once(shop: &Instances, login: &Value) {
    let refresh = |host: String| {
        let body = json!({ "refresh_token": login["refresh_token"] });
        async move {
            let mut client = Client::new(&host);
            match client.send(Method::POST, "/v1/sessions/refresh", &[], Some(body)).await {
                Ok(answer) if answer.status == 200 => Outcome::Done(answer.json()),
                Ok(answer) if answer.status == 401 => Outcome::Refused { status: 401, code: String::new() },
                other => Outcome::Unknown(format!("{other:?}")),
            }
        }
    };
    let [here, there] = shop.hosts().map(str::to_owned);
    let at_once = tokio::join!(refresh(here.clone()), refresh(there.clone()));
    let outcomes = [at_once.0, at_once.1, refresh(here).await, refresh(there).await];
    let done = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Done(_))).count();
    assert!(done <= 1, "SES-2: {outcomes:?}");
}
