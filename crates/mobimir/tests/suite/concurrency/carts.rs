//! Carts that many change at once.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use hyper::Method;
use serde_json::json;

use super::{CLIENTS, PATIENCE};
use crate::support::{
    Client, Customer,
    instances::{Setting, with_shop_of},
    process::SETTLING_REQUEST_LIMIT,
    servers,
    shop::{PASSWORD, assert_no_violation, product},
    with_shop,
};

/// CRT-1: 64 parallel "add 1" of one line end at 64.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parallel_changes_of_a_cart_all_count() {
    with_shop(async |shop| {
        let host = shop.host.clone();
        let phone = product(&host, 1_000_000).await;
        for round in if servers::are_real() { 1..=2 } else { 1..=3 } {
            let customer = Customer::new(&host).await;
            let token = customer.login["token"].as_str().unwrap().to_owned();
            let adds: Vec<_> = (0..CLIENTS)
                .map(|n| {
                    let (host, token, phone) = (host.clone(), token.clone(), phone.clone());
                    tokio::spawn(async move {
                        let mut client = Client::with_token(&host, &token);
                        for m in 0..round {
                            let key = format!("{n}-{m}");
                            let body = json!({ "product_id": phone, "quantity": 1, "geo_zone": "MSK" });
                            // Each is sent twice under its key, as a client does that lost the answer.
                            for _ in 0..2 {
                                let keyed = [("idempotency-key", key.as_str())];
                                client
                                    .certain(Method::POST, "/v1/cart/items", &keyed, Some(body.clone()))
                                    .await
                                    .expect(200);
                            }
                        }
                    })
                })
                .collect();
            for add in adds {
                add.await.unwrap();
            }
            let cart = Client::with_token(&host, &token).get("/v1/cart").await.expect(200);
            assert_eq!(cart["items"][0]["quantity"], CLIENTS * round, "{cart}");
            assert_eq!(cart["amount"], format!("{}.00", 100 * CLIENTS * round));
        }
    })
    .await;
}

/// When a request was sent and when its answer came, as numbers of one sequence: an answer with a smaller
/// number than another request's start came before that request was sent.
struct Span {
    sent: u64,
    answered: u64,
}

impl Span {
    async fn of<T>(sequence: &AtomicU64, request: impl Future<Output = T>) -> (Self, T) {
        let sent = sequence.fetch_add(1, Ordering::SeqCst);
        let answer = request.await;
        (Self { sent, answered: sequence.fetch_add(1, Ordering::SeqCst) }, answer)
    }

    fn is_before(&self, other: &Self) -> bool {
        self.answered < other.sent
    }
}

/// CRT-1: a clear removes what was acknowledged before it was sent. What is sent after its answer stays;
/// what runs beside it is removed or stays, each add as a whole.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_add_beside_a_clear_survives_it() {
    const ADDERS: usize = 16;
    let rounds_min = if servers::are_real() { 2 } else { 5 };
    with_shop(async |shop| {
    let host = shop.host.clone();
    let mut products = Vec::new();
    for _ in 0..ADDERS {
        products.push(product(&host, 1_000_000).await);
    }
    let started = Instant::now();
    let (mut before, mut beside, mut after, mut rounds) = (0, 0, 0, 0);
    // As often as it takes until an add has run beside a clear.
    while rounds < rounds_min || beside == 0 {
        assert!(started.elapsed() < PATIENCE, "no add runs beside a clear in {rounds} rounds");
        rounds += 1;
        let customer = Customer::new(&host).await;
        let token = customer.login["token"].as_str().unwrap().to_owned();
        let (sequence, is_cleared) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let added = Arc::new(AtomicUsize::new(0));
        let adders: Vec<_> = products
            .iter()
            .map(|product| {
                let (host, token, product) = (host.clone(), token.clone(), product.clone());
                let (sequence, is_cleared, added) = (sequence.clone(), is_cleared.clone(), added.clone());
                tokio::spawn(async move {
                    let mut client = Client::with_token(&host, &token);
                    let mut adds = Vec::new();
                    loop {
                        // The last one begins after the clear was answered.
                        let is_last = is_cleared.load(Ordering::SeqCst);
                        let body = json!({ "product_id": product, "quantity": 1 });
                        let (span, answer) = Span::of(&sequence, client.post("/v1/cart/items", body)).await;
                        answer.expect(200);
                        adds.push(span);
                        added.fetch_add(1, Ordering::SeqCst);
                        if is_last {
                            return (product, adds);
                        }
                    }
                })
            })
            .collect();
        // Something is acknowledged before the clear, and everybody is adding.
        while added.load(Ordering::SeqCst) < 2 * ADDERS {
            assert!(started.elapsed() < PATIENCE, "nothing is added");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let mut clearing = Client::with_token(&host, &token);
        let (clear, answer) = Span::of(&sequence, clearing.delete("/v1/cart")).await;
        answer.expect(200);
        is_cleared.store(true, Ordering::SeqCst);

        let mut adds_of = HashMap::new();
        for adder in adders {
            let (product, adds) = adder.await.unwrap();
            adds_of.insert(product, adds);
        }
        let cart = clearing.get("/v1/cart").await.expect(200);
        let mut quantities: HashMap<&str, usize> = HashMap::new();
        for item in cart["items"].as_array().unwrap() {
            let quantity = item["quantity"].as_u64().unwrap() as usize;
            assert!(quantities.insert(item["product_id"].as_str().unwrap(), quantity).is_none(), "{cart}");
        }
        for (product, adds) in &adds_of {
            let removed = adds.iter().filter(|add| add.is_before(&clear)).count();
            let kept = adds.iter().filter(|add| clear.is_before(add)).count();
            let either = adds.len() - removed - kept;
            let quantity = quantities.remove(product.as_str()).unwrap_or(0);
            assert!(
                (kept..=kept + either).contains(&quantity),
                "CRT-1: {quantity} units of {removed} adds before a clear, {either} beside it, {kept} after it"
            );
            assert!(kept > 0, "the last add begins after the clear");
            (before, beside, after) = (before + removed, beside + either, after + kept);
        }
        assert!(quantities.is_empty(), "never added: {quantities:?}");
    }
    assert!(before > 0 && after > 0, "{before} before, {beside} beside, {after} after");
    println!("{rounds} rounds: {before} adds before the clear, {beside} beside it, {after} after it");
    assert_no_violation(&host).await;
    })
    .await;
}

/// CRT-2: a guest's cart that is being filled while its owner logs in arrives whole, once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_merge_beside_running_changes_loses_nothing_and_applies_once() {
    // The last look at a guest's cart comes when no request of the guest can be running any more, so
    // requests may not take minutes.
    let setting = Setting { embedded: &[SETTLING_REQUEST_LIMIT], ..Setting::SHARED };
    with_shop_of(setting, async |shop| {
        let host = shop.host.clone();
        let phone = product(&host, 1_000_000).await;
        let started = Instant::now();
        let mut expected = Vec::new();
        let guests = if servers::are_real() { 3 } else { 8 };
        for _ in 0..guests {
            let customer = Customer::new(&host).await;
            let guest_token = Client::new(&host).post("/v1/sessions", json!({})).await.expect(201)["token"]
                .as_str()
                .unwrap()
                .to_owned();
            let added = Arc::new(AtomicUsize::new(0));
            let filling: Vec<_> = (0..16)
                .map(|_| {
                    let (host, token, phone) = (host.clone(), guest_token.clone(), phone.clone());
                    let added = added.clone();
                    tokio::spawn(async move {
                        let mut client = Client::with_token(&host, &token);
                        let (mut acknowledged, mut in_doubt) = (0, 0);
                        // Until the guest's session is closed by the login.
                        loop {
                            let body = json!({ "product_id": phone, "quantity": 1 });
                            let answer =
                                client.send(Method::POST, "/v1/cart/items", &[], Some(body)).await.unwrap();
                            match answer.status.as_u16() {
                                200 => acknowledged += 1,
                                // It took longer than requests may take here.
                                503 => in_doubt += 1,
                                401 => return (acknowledged, in_doubt),
                                _ => panic!("{answer:?}"),
                            }
                            added.fetch_add(1, Ordering::SeqCst);
                        }
                    })
                })
                .collect();
            while added.load(Ordering::SeqCst) < filling.len() {
                assert!(started.elapsed() < PATIENCE, "nothing is added");
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            // Several logins at once bring the same guest along.
            let logins: Vec<_> = (0..3)
                .map(|_| {
                    let (host, token, email) = (host.clone(), guest_token.clone(), customer.email.clone());
                    tokio::spawn(async move {
                        let body = json!({ "email": email, "password": PASSWORD });
                        Client::with_token(&host, &token).post("/v1/sessions/login", body).await.expect(200);
                    })
                })
                .collect();
            for login in logins {
                login.await.unwrap();
            }
            let (mut acknowledged, mut most) = (0, 0);
            for fill in filling {
                let (certain, in_doubt) = fill.await.unwrap();
                acknowledged += certain;
                most += certain + in_doubt;
            }
            assert!(acknowledged > 0, "nothing was there to merge");
            expected.push((customer, acknowledged, most));
        }
        let started = Instant::now();
        loop {
            let mut wrong = Vec::new();
            for (customer, acknowledged, most) in &mut expected {
                let cart = customer.client.get("/v1/cart").await.expect(200);
                let quantity = cart["items"][0]["quantity"].as_u64().unwrap_or(0);
                assert!(quantity <= *most, "merged twice: {quantity} of {most}");
                if quantity < *acknowledged {
                    wrong.push((quantity, *acknowledged));
                }
            }
            if wrong.is_empty() {
                break;
            }
            assert!(started.elapsed() < PATIENCE, "lost in a merge (there, acknowledged): {wrong:?}");
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        assert_no_violation(&host).await;
    })
    .await;
}
