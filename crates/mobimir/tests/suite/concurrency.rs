//! 64 clients at once, over HTTP.

use std::{
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};

use hyper::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{
    Answer, Client, Customer, Process, servers,
    shop::{guest, items, operator, product, settled_stock, stock, unique},
};

const CLIENTS: usize = 64;
/// How long to wait for what is certain to come.
const PATIENCE: Duration = Duration::from_secs(120);

/// Orders, and takes whatever is said first.
async fn order_once(host: &str, token: &str, key: &str, body: Value) -> Answer {
    let keyed = [("idempotency-key", key)];
    Client::with_token(host, token).send(Method::POST, "/v1/orders", &keyed, Some(body)).await.unwrap()
}

/// STK-1, STK-2, ORD-1: buyers, an operator who restocks and cancels, one hot product, and its whole history adds up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_hot_product_is_sold_exactly_as_often_as_there_are_units() {
    const ORDERS_PER_CLIENT: usize = 5;
    let dir = TempDir::new().unwrap();
    let shop = Process::serve(&dir.path().join("data"));
    let host = shop.host.clone();
    let hot = product(&host, 300).await;

    let buyers = (0..CLIENTS).map(|_| {
        let (host, hot) = (host.clone(), hot.clone());
        tokio::spawn(async move {
            let mut customer = Customer::new(&host).await;
            let mut bought: Vec<(String, u64)> = Vec::new();
            let mut doubts = 0;
            for n in 0..ORDERS_PER_CLIENT {
                let quantity = 1 + (n as u64 % 3);
                let answer = customer.client.order(&format!("key-{n}"), items(&hot, quantity)).await;
                doubts += usize::from(answer.repeated);
                match answer.status.as_u16() {
                    201 => bought.push((answer.json()["order_id"].as_str().unwrap().to_owned(), quantity)),
                    // It was asked again too late.
                    409 if answer.repeated && answer.json()["code"] == "checkout_aborted" => {}
                    409 => {
                        let problem = answer.problem(409, "out_of_stock");
                        assert_eq!(problem["lines"][0]["product_id"], hot.as_str());
                        assert_eq!(problem["lines"][0]["requested"], quantity);
                    }
                    _ => panic!("{answer:?}"),
                }
            }
            (customer, bought, doubts)
        })
    });
    let restocker = {
        let (host, hot) = (host.clone(), hot.clone());
        tokio::spawn(async move {
            let mut added = 0;
            for _ in 0..20 {
                operator(&host)
                    .put(&format!("/v1/products/{hot}/stock/MSK"), json!({ "delta": 5 }))
                    .await
                    .expect(200);
                added += 5;
            }
            added
        })
    };
    let mut bought = HashMap::new();
    let mut doubts = 0;
    for buyer in buyers.collect::<Vec<_>>() {
        let (mut customer, orders, in_doubt) = buyer.await.unwrap();
        doubts += in_doubt;
        // ORD-1: what was acknowledged is in the owner's history, and nothing else is.
        let history = customer.client.get("/v1/orders?limit=100").await.expect(200);
        let listed: HashSet<&str> =
            history["items"].as_array().unwrap().iter().map(|o| o["order_id"].as_str().unwrap()).collect();
        assert_eq!(listed, orders.iter().map(|(id, _)| id.as_str()).collect(), "{}", customer.email);
        bought.extend(orders);
    }
    let added = restocker.await.unwrap();
    let sold: u64 = bought.values().sum();
    let (available, reserved, sold_by_books) = stock_after(doubts, &host, &hot).await;
    assert_eq!((reserved, sold_by_books), (0, sold));
    assert_eq!(available + sold, 300 + added, "STK-1");
    assert!(sold >= 300, "there was enough demand to sell out, but {available} are left");

    // Half of the orders are cancelled, each by four at once: the stock comes back once.
    let cancelled: Vec<(String, u64)> =
        bought.iter().take(bought.len() / 2).map(|(id, n)| (id.clone(), *n)).collect();
    let cancellations: Vec<_> = cancelled
        .iter()
        .flat_map(|(id, _)| std::iter::repeat_n(id.clone(), 4))
        .map(|id| {
            let host = host.clone();
            tokio::spawn(async move {
                let (path, body) = (format!("/v1/orders/{id}/status"), json!({ "status": "cancelled" }));
                (id, operator(&host).certain(Method::POST, &path, &[], Some(body)).await)
            })
        })
        .collect();
    let (mut won, mut perhaps) = (HashSet::new(), HashSet::new());
    for cancellation in cancellations {
        let (id, answer) = cancellation.await.unwrap();
        doubts += usize::from(answer.repeated);
        match answer.status.as_u16() {
            200 => assert!(won.insert(id), "one order was cancelled by two"),
            // Whoever got no answer at first may have done it.
            409 if answer.repeated => {
                perhaps.insert(id);
            }
            409 => {}
            _ => panic!("{answer:?}"),
        }
    }
    let is_cancelled = |(id, _): &&(String, u64)| won.contains(id) || perhaps.contains(id);
    let count = cancelled.iter().filter(is_cancelled).count();
    assert_eq!(count, cancelled.len(), "every order was cancelled by exactly one of those who tried");
    let back: u64 = cancelled.iter().map(|(_, quantity)| quantity).sum();
    assert_eq!(stock_after(doubts, &host, &hot).await, (available + back, 0, sold - back));
    assert_no_violation(&host).await;
}

/// What is settled before its answer is settled now; what nobody was told in time may take longer.
async fn stock_after(doubts: usize, host: &str, product: &str) -> (u64, u64, u64) {
    if doubts > 0 { settled_stock(host, product).await } else { stock(host, product).await }
}

/// ORD-2: one key, one order, one answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_key_makes_one_order_however_many_send_it() {
    let dir = TempDir::new().unwrap();
    let shop = Process::serve(&dir.path().join("data"));
    let host = shop.host.clone();
    let phone = product(&host, 1_000).await;
    let customer = Customer::new(&host).await;
    let token = customer.login["token"].as_str().unwrap().to_owned();
    let mut doubts = 0;
    for round in 0..5 {
        let doubts_before = doubts;
        let tries: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let (host, token, phone) = (host.clone(), token.clone(), phone.clone());
                tokio::spawn(async move {
                    order_once(&host, &token, &format!("round-{round}"), items(&phone, 2)).await
                })
            })
            .collect();
        let mut first = 0;
        let mut bodies = HashSet::new();
        for answer in tries {
            let answer = answer.await.unwrap();
            match answer.status.as_u16() {
                201 => {
                    first += usize::from(answer.header("idempotent-replayed").is_none());
                    bodies.insert(answer.json().to_string());
                }
                409 => {
                    answer.problem(409, "in_progress");
                    assert!(answer.header("retry-after").is_some());
                }
                503 => doubts += 1,
                _ => panic!("{answer:?}"),
            }
        }
        if doubts > doubts_before {
            // One who got no answer may have been the first.
            let mut client = Client::with_token(&host, &token);
            let answer = client.order(&format!("round-{round}"), items(&phone, 2)).await;
            bodies.insert(answer.expect(201).to_string());
            assert!(first <= 1, "round {round}: {first} were the first");
            first = 1;
        }
        assert_eq!((first, bodies.len()), (1, 1), "round {round}");
    }
    assert_eq!(stock_after(doubts, &host, &phone).await, (990, 0, 10));
}

/// CRT-1: 64 parallel "add 1" of one line end at 64; an add beside a clear survives it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parallel_changes_of_a_cart_all_count() {
    let dir = TempDir::new().unwrap();
    let shop = Process::serve(&dir.path().join("data"));
    let host = shop.host.clone();
    let phone = product(&host, 1_000_000).await;
    for round in 1..=3 {
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
}

/// CRT-2: a guest's cart that is being filled while its owner logs in arrives whole, once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_merge_beside_running_changes_loses_nothing_and_applies_once() {
    let dir = TempDir::new().unwrap();
    let shop = Process::serve(&dir.path().join("data"));
    let host = shop.host.clone();
    let phone = product(&host, 1_000_000).await;
    let mut expected = Vec::new();
    for _ in 0..8 {
        let customer = Customer::new(&host).await;
        let guest_token = Client::new(&host).post("/v1/sessions", json!({})).await.expect(201)["token"]
            .as_str()
            .unwrap()
            .to_owned();
        let filling: Vec<_> = (0..16)
            .map(|_| {
                let (host, token, phone) = (host.clone(), guest_token.clone(), phone.clone());
                tokio::spawn(async move {
                    let mut client = Client::with_token(&host, &token);
                    let (mut acknowledged, mut in_doubt) = (0, 0);
                    for _ in 0..10 {
                        let answer = client
                            .post("/v1/cart/items", json!({ "product_id": phone, "quantity": 1 }))
                            .await;
                        match answer.status.as_u16() {
                            200 => acknowledged += 1,
                            503 => in_doubt += 1,
                            401 => break,
                            _ => panic!("{answer:?}"),
                        }
                    }
                    (acknowledged, in_doubt)
                })
            })
            .collect();
        // Several logins at once bring the same guest along.
        let logins: Vec<_> = (0..3)
            .map(|_| {
                let (host, token, email) = (host.clone(), guest_token.clone(), customer.email.clone());
                tokio::spawn(async move {
                    let body = json!({ "email": email, "password": crate::support::shop::PASSWORD });
                    let mut client = Client::with_token(&host, &token);
                    client.certain(Method::POST, "/v1/sessions/login", &[], Some(body)).await.expect(200);
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
        expected.push((customer, acknowledged, most));
    }
    // The last look at the guests' carts comes when none of their requests can be running any more.
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
}

/// A cart is ordered once, whatever keys its owner sends at once; and what is over is told again without waiting.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_cart_makes_one_order_under_many_keys() {
    let dir = TempDir::new().unwrap();
    let shop = Process::serve(&dir.path().join("data"));
    let host = shop.host.clone();
    let phone = product(&host, 1_000).await;
    let mut customer = Customer::new(&host).await;
    customer.client.post("/v1/cart/items", json!({ "product_id": phone, "quantity": 5 })).await.expect(200);
    let token = customer.login["token"].as_str().unwrap().to_owned();
    let tries: Vec<_> = (0..10)
        .map(|n| {
            let (host, token) = (host.clone(), token.clone());
            tokio::spawn(async move {
                let mut client = Client::with_token(&host, &token);
                client.order(&format!("key-{n}"), json!({ "geo_zone": "MSK" })).await
            })
        })
        .collect();
    let (mut placed, mut doubts) = (None, 0);
    for (n, answer) in tries.into_iter().enumerate() {
        let answer = answer.await.unwrap();
        doubts += usize::from(answer.repeated);
        match answer.status.as_u16() {
            201 => assert!(placed.replace((n, answer.json())).is_none(), "the cart was sold twice"),
            _ => drop(answer.problem(409, "empty_cart")),
        }
    }
    assert_eq!(stock_after(doubts, &host, &phone).await, (995, 0, 5));
    let (n, first) = placed.unwrap();
    // Nobody waited for the note that it is over, so it may come a little later.
    let started = Instant::now();
    loop {
        let replays: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let (host, token) = (host.clone(), token.clone());
                tokio::spawn(async move {
                    order_once(&host, &token, &format!("key-{n}"), json!({ "geo_zone": "MSK" })).await
                })
            })
            .collect();
        let mut unsettled = None;
        for replay in replays {
            let answer = replay.await.unwrap();
            if answer.is_unsettled() {
                unsettled = Some(answer);
            } else {
                assert_eq!(answer.expect(201), first);
            }
        }
        let Some(unsettled) = unsettled else { return };
        assert!(started.elapsed() < PATIENCE, "what is over keeps others waiting: {unsettled:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Logins that succeed are not limited, however many run at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parallel_logins_all_succeed() {
    let dir = TempDir::new().unwrap();
    let shop = Process::serve(&dir.path().join("data"));
    let customer = Customer::new(&shop.host).await;
    let logins: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let (host, body) = (
                shop.host.clone(),
                json!({ "email": customer.email, "password": crate::support::shop::PASSWORD }),
            );
            tokio::spawn(async move {
                Client::new(&host).certain(Method::POST, "/v1/sessions/login", &[], Some(body)).await
            })
        })
        .collect();
    for login in logins {
        login.await.unwrap().expect(200);
    }
}

/// SES-2: of many who present one refresh token one gets a pair, and then the whole family is dead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refresh_token_works_once() {
    let dir = TempDir::new().unwrap();
    let shop = Process::serve(&dir.path().join("data"));
    let host = shop.host.clone();
    let customer = Customer::new(&host).await;
    let refresh = customer.login["refresh_token"].as_str().unwrap().to_owned();
    let tries: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let (host, refresh) = (host.clone(), refresh.clone());
            tokio::spawn(async move {
                Client::new(&host).post("/v1/sessions/refresh", json!({ "refresh_token": refresh })).await
            })
        })
        .collect();
    let mut pairs: Vec<Value> = Vec::new();
    let mut is_seen_twice = false;
    for answer in tries {
        let answer = answer.await.unwrap();
        match answer.status.as_u16() {
            200 => pairs.push(answer.json()),
            // The winner, too, is told so when the family was ended before its new pair was written.
            401 => {
                let code = answer.json()["code"].clone();
                assert!(code == "refresh_token_used" || code == "bad_refresh_token", "{code}");
                is_seen_twice = true;
            }
            503 => {}
            _ => panic!("{answer:?}"),
        }
    }
    assert!(pairs.len() <= 1, "{}", pairs.len());
    if !is_seen_twice {
        // All others were told to come later, which servers that are very slow may do.
        assert!(servers::are_real(), "nobody was told that it was used");
        return;
    }
    for pair in &pairs {
        let token = pair["token"].as_str().unwrap();
        Client::with_token(&host, token).get("/v1/cart").await.problem(401, "unauthorized");
        let body = json!({ "refresh_token": pair["refresh_token"] });
        let dead = Client::new(&host).post("/v1/sessions/refresh", body).await;
        dead.expect(401);
    }
    let mut old = customer.client;
    old.get("/v1/cart").await.problem(401, "unauthorized");
}

/// 64 sign-ups with one email make one user.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_email_belongs_to_one_user() {
    let dir = TempDir::new().unwrap();
    let shop = Process::serve(&dir.path().join("data"));
    let host = shop.host.clone();
    let email = format!("many-{}@example.ru", unique());
    let tries: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let (host, email) = (host.clone(), email.clone());
            tokio::spawn(async move {
                let body = json!({ "email": email, "password": "12345678" });
                Client::new(&host).certain(Method::POST, "/v1/users", &[], Some(body)).await
            })
        })
        .collect();
    let (mut made, mut perhaps) = (0, 0);
    for answer in tries {
        let answer = answer.await.unwrap();
        if answer.status.as_u16() == 201 {
            made += 1;
        } else {
            answer.problem(409, "email_taken");
            // Whoever got no answer at first may have been the one.
            perhaps += usize::from(answer.repeated);
        }
    }
    assert!(made == 1 || made == 0 && perhaps > 0, "{made} users were made");
    let _ = guest(&host).await;
}

async fn assert_no_violation(host: &str) {
    let invariants = operator(host).get("/v1/ops/invariants").await.expect(200);
    for invariant in invariants["items"].as_array().unwrap() {
        assert_eq!(invariant["violations"], 0, "{invariant}");
    }
}
