//! Two instances, each with its own way to the stores. That of one is slow, cut, and cut one way only, while
//! people buy at both; then everything that anybody asked and was answered is judged by the simulator's checker.

mod data_centres;
mod market;
mod namespaces;
mod settled;
mod shopper;
mod wrong;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use mobimir_lab::{Path, StoreProxies};
use mobimir_simulator::history::Answer;
use tempfile::TempDir;

use self::{
    market::{Dice, Market, ShopKeeper},
    settled::{assert_all_is_true, missing},
    shopper::Shopper,
};
use crate::support::{
    Instances,
    servers::{self, Tables},
    shop::assert_no_violation,
};

/// How long to wait for what is certain to come. It only ends a test that hangs.
const PATIENCE: Duration = Duration::from_secs(600);
/// Two share each account.
const SHOPPERS: usize = 6;
/// Of the instance whose way is hurt, and of the other.
const HURT: usize = 0;
const WHOLE: usize = 1;
/// Every trouble lasts at least as long, and until the other instance has taken an order.
const LASTS: Duration = Duration::from_secs(2);
const DELAY: Duration = Duration::from_millis(150);
/// Before the next step of a client.
const THINKS_MS_MAX: u64 = 200;
const ORDERED: &str = "cart ordered";

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
    let hosts = shop.hosts().map(str::to_owned).to_vec();
    let market = Market::open(&shop.host, hosts, SHOPPERS / 2).await;
    let shopping = Crowd::open(&market, false);
    let (cassandra, mongodb) = ways[HURT].connections();
    assert!(cassandra >= 3 && mongodb >= 3, "no way goes beside the proxies: {cassandra}, {mongodb}");

    for (name, trouble) in TROUBLES {
        let began_ms = market.now_ms();
        trouble(&ways[HURT]);
        tokio::time::sleep(LASTS).await;
        goes_on(&market, &[WHOLE], began_ms, name).await;
        let healed_ms = market.now_ms();
        ways[HURT].set(Path::OPEN);
        goes_on(&market, &[HURT, WHOLE], healed_ms, "all is well again").await;
    }
    until_all_was_tried(&market).await;
    shopping.close().await;

    let open = [HURT, WHOLE].map(|instance| open_at(&market, instance));
    println!("{} operations, {open:?} of them open", market.operations().len());
    assert!(open[HURT] > 0, "nobody was kept waiting or failed at the instance whose way was hurt");
    assert_all_is_true(&market).await;
    assert_no_violation(&shop.host).await;
}

/// Shoppers, and who runs the shop.
struct Crowd {
    over: Arc<AtomicBool>,
    clients: Vec<tokio::task::JoinHandle<()>>,
}

impl Crowd {
    fn open(market: &Market, late_guests: bool) -> Self {
        let over = Arc::<AtomicBool>::default();
        let mut clients = Vec::new();
        let count = market.customers().len() * 2;
        for client in 0..count {
            let mut shopper = Shopper::new(market.clone(), client, client / 2, late_guests);
            let (over, dice) = (over.clone(), Dice::new());
            clients.push(tokio::spawn(async move {
                while !over.load(Ordering::SeqCst) {
                    shopper.step().await;
                    dice.sleep_ms(0, THINKS_MS_MAX).await;
                }
            }));
        }
        let keeper = ShopKeeper { market: market.clone(), client: count, dice: Dice::new() };
        let is_over = over.clone();
        clients.push(tokio::spawn(async move {
            while !is_over.load(Ordering::SeqCst) {
                keeper.work().await;
                keeper.dice.sleep_ms(0, THINKS_MS_MAX).await;
            }
        }));
        Self { over, clients }
    }

    async fn close(mut self) {
        self.over.store(true, Ordering::SeqCst);
        for client in std::mem::take(&mut self.clients) {
            client.await.unwrap();
        }
    }
}

/// When a test has failed nobody shops where nobody sells any more.
impl Drop for Crowd {
    fn drop(&mut self) {
        self.clients.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

/// Waits until these instances have taken orders.
async fn goes_on(market: &Market, instances: &[usize], since_ms: i64, when: &str) {
    let started = Instant::now();
    while !instances.iter().all(|instance| market.count(since_ms, *instance, ORDERED) > 0) {
        assert!(started.elapsed() < PATIENCE, "{instances:?} take no orders while {when}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// What was hardly tried proves nothing.
async fn until_all_was_tried(market: &Market) {
    let started = Instant::now();
    loop {
        let missing = missing(&market.operations());
        if missing.is_empty() {
            return;
        }
        assert!(started.elapsed() < PATIENCE, "never happened: {missing:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

fn open_at(market: &Market, instance: usize) -> usize {
    let operations = market.operations();
    let is_open = |answer: &Answer| matches!(answer, Answer::Open | Answer::NotNow);
    operations.iter().filter(|operation| operation.instance == instance && is_open(&operation.answer)).count()
}
