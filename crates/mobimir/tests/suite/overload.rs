//! Admission control in the running program: the only shop of these tests whose limit on lateness can be reached.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use hyper::Method;
use tempfile::TempDir;

use crate::support::{Client, Process, shop::product};

/// More than those below which nobody is turned away.
const CLIENTS: usize = 300;
/// So many requests of each, and as many more as it takes.
const REQUESTS_MIN: usize = 3;
const PRODUCTS: &str = "/v1/products?limit=100";
/// How long to wait for what is certain to come. It only ends a test that hangs.
const PATIENCE: Duration = Duration::from_secs(600);

/// Requests at once on connections of their own, until `enough` of them were shed; how many were served and shed.
async fn crowd(host: &str, enough: usize) -> (usize, usize) {
    let (served, shed) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let started = Instant::now();
    let visitors: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let (host, served, shed) = (host.to_owned(), served.clone(), shed.clone());
            tokio::spawn(async move {
                let mut visitor = Client::new(&host);
                let mut requests = 0;
                while requests < REQUESTS_MIN || shed.load(Ordering::SeqCst) < enough {
                    assert!(started.elapsed() < PATIENCE, "nobody is turned away");
                    requests += 1;
                    let answer = visitor.send(Method::GET, PRODUCTS, &[], None).await.unwrap();
                    if answer.status == 503 {
                        answer.problem(503, "overloaded");
                        assert!(answer.header("retry-after").is_some());
                        shed.fetch_add(1, Ordering::SeqCst);
                    } else {
                        answer.expect(200);
                        served.fetch_add(1, Ordering::SeqCst);
                    }
                }
            })
        })
        .collect();
    for visitor in visitors {
        visitor.await.unwrap();
    }
    (served.load(Ordering::SeqCst), shed.load(Ordering::SeqCst))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shop_that_is_late_sheds_requests_and_serves_again_when_it_is_over() {
    let dir = TempDir::new().unwrap();
    let shop = Process::start(&["serve"], &dir.path().join("hasty"), &[("MOBIMIR_LIMITS_LATE_MS_MAX", "1")]);
    for _ in 0..5 {
        product(&shop.host, 10).await;
    }
    let (served, shed) = crowd(&shop.host, 10).await;
    assert!(served > 0 && shed >= 10, "{served} served, {shed} shed");
    // The connections are closed, so there is no queue any more.
    let started = Instant::now();
    let mut visitor = Client::new(&shop.host);
    while visitor.send(Method::GET, PRODUCTS, &[], None).await.unwrap().status != 200 {
        assert!(started.elapsed() < PATIENCE, "requests are shed for ever");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shop_with_a_generous_limit_sheds_nothing() {
    let dir = TempDir::new().unwrap();
    let shop = Process::serve(&dir.path().join("data"));
    product(&shop.host, 10).await;
    assert_eq!(crowd(&shop.host, 0).await, (CLIENTS * REQUESTS_MIN, 0));
}
