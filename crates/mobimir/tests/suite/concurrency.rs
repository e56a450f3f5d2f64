//! 64 clients at once, over HTTP.

use std::collections::{HashMap, HashSet};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{
    Client, Customer, Process,
    shop::{guest, items, operator, product, stock, unique},
};

const CLIENTS: usize = 64;

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
            for n in 0..ORDERS_PER_CLIENT {
                let quantity = 1 + (n as u64 % 3);
                let answer = customer.client.order(&format!("key-{n}"), items(&hot, quantity)).await;
                match answer.status.as_u16() {
                    201 => bought.push((answer.json()["order_id"].as_str().unwrap().to_owned(), quantity)),
                    409 => {
                        let problem = answer.problem(409, "out_of_stock");
                        assert_eq!(problem["lines"][0]["product_id"], hot.as_str());
                        assert_eq!(problem["lines"][0]["requested"], quantity);
                    }
                    _ => panic!("{answer:?}"),
                }
            }
            (customer, bought)
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
    for buyer in buyers.collect::<Vec<_>>() {
        let (mut customer, orders) = buyer.await.unwrap();
        // ORD-1: what was acknowledged is in the owner's history, and nothing else is.
        let history = customer.client.get("/v1/orders?limit=100").await.expect(200);
        let listed: HashSet<&str> =
            history["items"].as_array().unwrap().iter().map(|o| o["order_id"].as_str().unwrap()).collect();
        assert_eq!(listed, orders.iter().map(|(id, _)| id.as_str()).collect(), "{}", customer.email);
        bought.extend(orders);
    }
    let added = restocker.await.unwrap();
    let sold: u64 = bought.values().sum();
    let (available, reserved, sold_by_books) = stock(&host, &hot).await;
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
                operator(&host)
                    .post(&format!("/v1/orders/{id}/status"), json!({ "status": "cancelled" }))
                    .await
                    .status
                    .as_u16()
            })
        })
        .collect();
    let mut won = 0;
    for cancellation in cancellations {
        let status = cancellation.await.unwrap();
        assert!(status == 200 || status == 409, "{status}");
        won += usize::from(status == 200);
    }
    assert_eq!(won, cancelled.len(), "every order was cancelled by exactly one of those who tried");
    let back: u64 = cancelled.iter().map(|(_, quantity)| quantity).sum();
    assert_eq!(stock(&host, &hot).await, (available + back, 0, sold - back));
    assert_no_violation(&host).await;
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
    for round in 0..5 {
        let tries: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let (host, token, phone) = (host.clone(), token.clone(), phone.clone());
                tokio::spawn(async move {
                    Client::with_token(&host, &token).order(&format!("round-{round}"), items(&phone, 2)).await
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
                _ => panic!("{answer:?}"),
            }
        }
        assert_eq!((first, bodies.len()), (1, 1), "round {round}");
    }
    assert_eq!(stock(&host, &phone).await, (990, 0, 10));
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
                            client
                                .send(
                                    hyper::Method::POST,
                                    "/v1/cart/items",
                                    &[("idempotency-key", &key)],
                                    Some(body.clone()),
                                )
                                .await
                                .unwrap()
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
                    let mut acknowledged = 0;
                    for _ in 0..10 {
                        let answer = client
                            .post("/v1/cart/items", json!({ "product_id": phone, "quantity": 1 }))
                            .await;
                        match answer.status.as_u16() {
                            200 => acknowledged += 1,
                            401 => break,
                            _ => panic!("{answer:?}"),
                        }
                    }
                    acknowledged
                })
            })
            .collect();
        // Several logins at once bring the same guest along.
        let logins: Vec<_> = (0..3)
            .map(|_| {
                let (host, token, email) = (host.clone(), guest_token.clone(), customer.email.clone());
                tokio::spawn(async move {
                    let body = json!({ "email": email, "password": crate::support::shop::PASSWORD });
                    Client::with_token(&host, &token).post("/v1/sessions/login", body).await.expect(200);
                })
            })
            .collect();
        for login in logins {
            login.await.unwrap();
        }
        let mut acknowledged = 0;
        for fill in filling {
            acknowledged += fill.await.unwrap();
        }
        expected.push((customer, acknowledged));
    }
    // The last look at the guests' carts comes when none of their requests can be running any more.
    let patience = std::time::Instant::now();
    loop {
        let mut wrong = Vec::new();
        for (customer, acknowledged) in &mut expected {
            let cart = customer.client.get("/v1/cart").await.expect(200);
            let quantity = cart["items"][0]["quantity"].as_u64().unwrap_or(0);
            assert!(quantity <= *acknowledged, "merged twice: {quantity} of {acknowledged}");
            if quantity != *acknowledged {
                wrong.push((quantity, *acknowledged));
            }
        }
        if wrong.is_empty() {
            break;
        }
        assert!(patience.elapsed().as_secs() < 60, "lost in a merge (there, acknowledged): {wrong:?}");
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
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
    let order = |key: String| {
        let (host, token) = (host.clone(), token.clone());
        tokio::spawn(async move {
            Client::with_token(&host, &token).order(&key, json!({ "geo_zone": "MSK" })).await
        })
    };
    let tries: Vec<_> = (0..10).map(|n| order(format!("key-{n}"))).collect();
    let mut placed = None;
    for (n, answer) in tries.into_iter().enumerate() {
        let answer = answer.await.unwrap();
        match answer.status.as_u16() {
            201 => assert!(placed.replace((n, answer.json())).is_none(), "the cart was sold twice"),
            _ => drop(answer.problem(409, "empty_cart")),
        }
    }
    assert_eq!(stock(&host, &phone).await, (995, 0, 5));
    let (n, first) = placed.unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    let replays: Vec<_> = (0..CLIENTS).map(|_| order(format!("key-{n}"))).collect();
    for replay in replays {
        assert_eq!(replay.await.unwrap().expect(201), first);
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
            tokio::spawn(async move { Client::new(&host).post("/v1/sessions/login", body).await })
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
    for answer in tries {
        let answer = answer.await.unwrap();
        match answer.status.as_u16() {
            200 => pairs.push(answer.json()),
            // The winner, too, is told so when the family was ended before its new pair was written.
            401 => {
                let code = answer.json()["code"].clone();
                assert!(code == "refresh_token_used" || code == "bad_refresh_token", "{code}");
            }
            _ => panic!("{answer:?}"),
        }
    }
    assert!(pairs.len() <= 1, "{}", pairs.len());
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
                Client::new(&host).post("/v1/users", json!({ "email": email, "password": "12345678" })).await
            })
        })
        .collect();
    let mut made = 0;
    for answer in tries {
        let answer = answer.await.unwrap();
        if answer.status.as_u16() == 201 {
            made += 1;
        } else {
            answer.problem(409, "email_taken");
        }
    }
    assert_eq!(made, 1);
    let _ = guest(&host).await;
}

async fn assert_no_violation(host: &str) {
    let invariants = operator(host).get("/v1/ops/invariants").await.expect(200);
    for invariant in invariants["items"].as_array().unwrap() {
        assert_eq!(invariant["violations"], 0, "{invariant}");
    }
}
