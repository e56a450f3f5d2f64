//! 64 clients at once, over HTTP.

mod carts;

use std::{
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};

use hyper::Method;
use serde_json::{Value, json};

use crate::support::{
    Answer, Client, Customer, servers,
    shop::{
        PASSWORD, assert_no_violation, assert_orders_found, assert_refused, guest, items, operator, product,
        stock, unique,
    },
    with_shop,
};

const CLIENTS: usize = 64;
/// How long to wait for what is certain to come. It only ends a test that hangs.
const PATIENCE: Duration = Duration::from_secs(600);

/// Orders without repeating the request, whatever is answered.
async fn order_once(host: &str, token: &str, key: &str, body: Value) -> Answer {
    let keyed = [("idempotency-key", key)];
    Client::with_token(host, token).send(Method::POST, "/v1/orders", &keyed, Some(body)).await.unwrap()
}

/// STK-1, STK-2, ORD-1: buyers, an operator who restocks and cancels, one hot product, and its whole history adds up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_hot_product_is_sold_exactly_as_often_as_there_are_units() {
    // On servers an order takes a hundred times as long, and a race is met as often.
    let (orders_per_client, units, units_per_restock) =
        if servers::are_real() { (2, 80, 1) } else { (5, 300, 5) };
    // By four each: fewer than a product may have holds, because whoever finds it full waits for a limited
    // time.
    const CANCELLED_AT_ONCE: usize = 50;
    with_shop(async |shop| {
        let host = shop.host.clone();
        let hot = product(&host, units).await;

        let buyers = (0..CLIENTS).map(|_| {
            let (host, hot) = (host.clone(), hot.clone());
            tokio::spawn(async move {
                let mut customer = Customer::new(&host).await;
                let mut bought: Vec<(Value, u64)> = Vec::new();
                for n in 0..orders_per_client {
                    let quantity = 1 + (n as u64 % 3);
                    let answer = customer.client.order(&format!("key-{n}"), items(&hot, quantity)).await;
                    match answer.status.as_u16() {
                        201 => bought.push((answer.json(), quantity)),
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
                        .put(&format!("/v1/products/{hot}/stock/MSK"), json!({ "delta": units_per_restock }))
                        .await
                        .expect(200);
                    added += units_per_restock;
                }
                added
            })
        };
        let mut bought = HashMap::new();
        for buyer in buyers.collect::<Vec<_>>() {
            let (mut customer, orders) = buyer.await.unwrap();
            let answers: Vec<Value> = orders.iter().map(|(order, _)| order.clone()).collect();
            assert_orders_found(&host, &mut customer.client, &answers).await;
            let id_of =
                |(order, quantity): (Value, u64)| (order["order_id"].as_str().unwrap().to_owned(), quantity);
            bought.extend(orders.into_iter().map(id_of));
        }
        let added = restocker.await.unwrap();
        let sold: u64 = bought.values().sum();
        let (available, reserved, sold_by_books) = stock(&host, &hot).await;
        assert_eq!((reserved, sold_by_books), (0, sold));
        assert_eq!(available + sold, units + added, "STK-1");
        assert!(sold >= units, "there was enough demand to sell out, but {available} are left");

        // Half of the orders are cancelled, each by four at once: the stock comes back once.
        let cancelled: Vec<(String, u64)> =
            bought.iter().take(bought.len() / 2).map(|(id, n)| (id.clone(), *n)).collect();
        let mut won = HashSet::new();
        for some in cancelled.chunks(CANCELLED_AT_ONCE) {
            let four_each = some.iter().flat_map(|(id, _)| std::iter::repeat_n(id.clone(), 4));
            let cancellations: Vec<_> = four_each
                .map(|id| {
                    let host = host.clone();
                    tokio::spawn(async move {
                        let (path, body) =
                            (format!("/v1/orders/{id}/status"), json!({ "status": "cancelled" }));
                        (id, operator(&host).post(&path, body).await)
                    })
                })
                .collect();
            for cancellation in cancellations {
                let (id, answer) = cancellation.await.unwrap();
                match answer.status.as_u16() {
                    200 => assert!(won.insert(id), "one order was cancelled by two"),
                    _ => drop(answer.problem(409, "bad_transition")),
                }
            }
        }
        assert!(!cancelled.is_empty());
        assert_eq!(won.len(), cancelled.len(), "every order was cancelled by exactly one of those who tried");
        let back: u64 = cancelled.iter().map(|(_, quantity)| quantity).sum();
        assert_eq!(stock(&host, &hot).await, (available + back, 0, sold - back));
        assert_no_violation(&host).await;
    })
    .await;
}

/// ORD-2: one key, one order, one answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_key_makes_one_order_however_many_send_it() {
    with_shop(async |shop| {
        let host = shop.host.clone();
        let phone = product(&host, 1_000).await;
        let customer = Customer::new(&host).await;
        let token = customer.login["token"].as_str().unwrap().to_owned();
        for round in 0..5 {
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
                    _ => panic!("{answer:?}"),
                }
            }
            assert_eq!((first, bodies.len()), (1, 1), "round {round}");
        }
        assert_eq!(stock(&host, &phone).await, (990, 0, 10));
    })
    .await;
}

/// A cart is ordered once, whatever keys its owner sends at once; and what is over is told again without waiting.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_cart_makes_one_order_under_many_keys() {
    with_shop(async |shop| {
        let host = shop.host.clone();
        let phone = product(&host, 1_000).await;
        let mut customer = Customer::new(&host).await;
        customer
            .client
            .post("/v1/cart/items", json!({ "product_id": phone, "quantity": 5 }))
            .await
            .expect(200);
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
        let mut placed = None;
        for (n, answer) in tries.into_iter().enumerate() {
            let answer = answer.await.unwrap();
            match answer.status.as_u16() {
                201 => assert!(placed.replace((n, answer.json())).is_none(), "the cart was sold twice"),
                // The other instance had read the cart already.
                _ if answer.json()["code"] == "cart_ordered" => drop(answer.problem(409, "cart_ordered")),
                _ => drop(answer.problem(409, "empty_cart")),
            }
        }
        assert_eq!(stock(&host, &phone).await, (995, 0, 5));
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
                if answer.status == 409 {
                    answer.problem(409, "in_progress");
                    unsettled = Some(answer);
                } else {
                    assert_eq!(answer.expect(201), first);
                }
            }
            let Some(unsettled) = unsettled else { return };
            assert!(started.elapsed() < PATIENCE, "what is over keeps others waiting: {unsettled:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
}

/// Logins that succeed are not limited, however many run at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parallel_logins_all_succeed() {
    with_shop(async |shop| {
        let customer = Customer::new(&shop.host).await;
        let logins: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let (host, body) =
                    (shop.host.clone(), json!({ "email": customer.email, "password": PASSWORD }));
                tokio::spawn(async move { Client::new(&host).post("/v1/sessions/login", body).await })
            })
            .collect();
        for login in logins {
            login.await.unwrap().expect(200);
        }
    })
    .await;
}

/// SES-2: of many who present one refresh token one gets a pair, and then the whole family is dead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refresh_token_works_once() {
    with_shop(async |shop| {
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
            assert_refused(&mut Client::with_token(&host, token)).await;
            let body = json!({ "refresh_token": pair["refresh_token"] });
            let dead = Client::new(&host).post("/v1/sessions/refresh", body).await;
            dead.expect(401);
        }
        let mut old = customer.client;
        assert_refused(&mut old).await;
    })
    .await;
}

/// 64 sign-ups with one email make one user.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_email_belongs_to_one_user() {
    with_shop(async |shop| {
        let host = shop.host.clone();
        let email = format!("many-{}@example.ru", unique());
        let tries: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let (host, email) = (host.clone(), email.clone());
                tokio::spawn(async move {
                    let body = json!({ "email": email, "password": "12345678" });
                    Client::new(&host).post("/v1/users", body).await
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
        assert_eq!(made, 1, "users with one email");
        guest(&host).await.get("/v1/cart").await.expect(200);
    })
    .await;
}
