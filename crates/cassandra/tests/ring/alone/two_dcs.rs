//! Two data centres, one of them lost: first the other one, then the home of decisions. No hints are kept
//! meanwhile, as if it had been away for longer than they are: what it gets is what was noted as owed.

use std::{sync::Arc, time::Instant};

use axum::{
    body::{Body, to_bytes},
    http::{Request, StatusCode, header},
};
use mobimir_cassandra::DcState;
use mobimir_core::{
    cart::{self, CartChange, Effect, Owner},
    id::{self, ChangeId, ProductId, SessionId},
    order::{OrderStatus, StatusChange},
    policy::{Level, OnDcLoss, Policy, Replication},
    ports::{CartStore, OrderStore, SessionStore, StoreError, StoreResult, Transition},
    session::{RefreshToken, RefreshUse, Session, SessionState},
    time::{Clock, SystemClock},
};
use mobimir_http::{App, AppState, Backend, Limits};
use mobimir_lab::{Ring, RingSpec, Sight};
use mobimir_shop::{PlaceOrderError, Shop, faults::Faults};
use serde_json::{Value, json};

use crate::{
    sessions::{session, token},
    support,
    world::{ENTITIES, World, order_of, order_of_cart},
};

/// Nodes, and so replicas, of each data centre. One is enough to lose a data centre; the shipped policies have three.
const NODES_VARIABLE: &str = "MOBIMIR_NODES_PER_DC";

fn nodes_per_dc() -> u16 {
    std::env::var(NODES_VARIABLE).map_or(1, |text| text.parse().expect("a number of nodes"))
}

/// The nodes of `dc1` and of `dc2`.
fn nodes() -> [Vec<u16>; 2] {
    let count = nodes_per_dc();
    [(1..=count).collect(), (count + 1..=2 * count).collect()]
}

fn policy() -> Policy {
    let replicas = u8::try_from(nodes_per_dc()).expect("a few nodes");
    let both = Replication::from(["dc1", "dc2"].map(|dc| (dc.to_owned(), replicas)));
    support::policy("default").in_data_centres(&both)
}

/// Everything in every data centre, and in the one that is left when the other is lost.
fn goes_on() -> Policy {
    let mut policy = policy();
    let Policy { carts, orders, sessions, .. } = &mut policy;
    let of = [&mut carts.placement, &mut orders.placement, &mut sessions.placement];
    for settings in of.into_iter().filter_map(|placement| placement.cassandra.as_mut()) {
        (settings.write, settings.on_dc_loss) = (Level::EachQuorum, OnDcLoss::LocalQuorum);
        settings.read_repair = true;
    }
    policy
}

/// Orders in every data centre or not at all; carts and sessions in the one next to the shop, or not at all.
fn refuses() -> Policy {
    let mut policy = policy();
    let Policy { carts, orders, sessions, .. } = &mut policy;
    let of = [&mut carts.placement, &mut orders.placement, &mut sessions.placement];
    for settings in of.into_iter().filter_map(|placement| placement.cassandra.as_mut()) {
        settings.on_dc_loss = OnDcLoss::Refuse;
    }
    policy
}

/// Has nothing to say: what is asked for is in the ring.
struct Silent;

impl Backend for Silent {
    fn trouble(&self) -> Option<String> {
        None
    }

    fn dump(&self, _: &mut dyn std::io::Write) -> std::io::Result<()> {
        Ok(())
    }
}

fn app(shop: Shop) -> App {
    let limits = Limits { request_ms_max: 120_000, ..Limits::default() };
    mobimir_http::app(AppState::new(shop, &[], limits, Box::new(Silent), Value::Null))
}

/// What the shop answers over HTTP: its status, its `Retry-After` and its body.
async fn post(
    app: &App,
    path: &str,
    headers: &[(&str, &str)],
    body: Value,
) -> (StatusCode, Option<String>, Value) {
    let mut request = Request::post(path).header(header::CONTENT_TYPE, "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Body::from(body.to_string())).expect("a request");
    let (head, body) = app.answer(request, None).await.into_parts();
    let retry_after = head.headers.get(header::RETRY_AFTER).map(|value| value.to_str().unwrap().to_owned());
    let body = to_bytes(body, usize::MAX).await.expect("a body");
    (head.status, retry_after, serde_json::from_slice(&body).expect("JSON"))
}

/// The token of somebody who has signed up.
async fn signed_up(app: &App) -> String {
    let who = json!({ "email": "anna@example.ru", "password": "a long password" });
    assert_eq!(post(app, "/v1/users", &[], who.clone()).await.0, StatusCode::CREATED);
    let (status, _, session) = post(app, "/v1/sessions/login", &[], who).await;
    assert_eq!(status, StatusCode::OK, "{session}");
    session["token"].as_str().expect("a token").to_owned()
}

/// Somebody who is logged in, and how the session is refreshed.
struct LoggedIn {
    session: Session,
    token: RefreshToken,
}

impl LoggedIn {
    fn new() -> Self {
        let session = session(SystemClock.now());
        Self { token: token(&session), session }
    }

    async fn insert(&self, world: &World) -> StoreResult<()> {
        world.sessions.insert(self.session.clone(), Some(self.token)).await
    }

    async fn end(&self, world: &World) -> StoreResult<bool> {
        let now = SystemClock.now();
        let version = self.session.version.next(now);
        let ended = Session { state: SessionState::Revoked { at: now }, version, ..self.session.clone() };
        world.sessions.update(ended, self.session.version, None).await
    }

    async fn refresh(&self, world: &World) -> StoreResult<RefreshUse> {
        world.sessions.use_refresh(self.token.hash, SystemClock.now()).await
    }

    async fn state(&self, world: &World) -> Option<SessionState> {
        let found = world.sessions.get(self.session.id, SystemClock.now()).await;
        found.expect("it can be read").map(|session| session.state)
    }

    /// Those that are listed for the same user.
    async fn listed(&self, world: &World) -> Vec<SessionId> {
        let user = self.session.user().expect("a user's session");
        let page = world.sessions.by_user(user, None, 10, SystemClock.now()).await;
        page.expect("a list").items.into_iter().map(|session| session.id).collect()
    }
}

async fn add(world: &World, owner: Owner, product: ProductId) -> StoreResult<()> {
    let now = SystemClock.now();
    let effect = Effect::Add { product, quantity: 2, zone: None };
    let change = CartChange { id: ChangeId(id::fresh(now)), at: now, origin: owner, keyed: true, effect };
    world.carts.append(owner, vec![change], now.plus_s(3_600), now).await
}

/// What was added in all.
async fn units(world: &World, owner: Owner, product: ProductId) -> u64 {
    let cart = world.carts.read(owner, SystemClock.now()).await.expect("a cart can be read");
    cart.map_or(0, |cart| cart::fold(&cart.changes).quantity(product))
}

fn is_refused<T>(outcome: &StoreResult<T>) -> bool {
    matches!(outcome, Err(StoreError::Unavailable { .. }))
}

/// Kills all nodes of a data centre, and waits until all of the other know. They keep no hints for it.
fn lose(ring: &Ring, lost: &[u16], left: &[u16]) {
    left.iter().for_each(|node| drop(ring.nodetool(*node, &["disablehandoff"]).expect("no hints are kept")));
    lost.iter().for_each(|node| ring.kill(*node).expect("a node is killed"));
    for (witness, node) in left.iter().flat_map(|witness| lost.iter().map(move |node| (*witness, *node))) {
        ring.wait_until_seen(witness, node, Sight::Down).expect("it is seen down");
    }
}

fn bring_back(ring: &Ring, nodes: &[u16]) {
    nodes.iter().for_each(|node| ring.spawn_node(*node).expect("a node starts"));
    nodes.iter().for_each(|node| ring.wait_ready(*node).expect("a node answers"));
    let all = ring.nodes();
    all.iter().for_each(|node| ring.wait_until_up(node.id, all.len()).expect("all see all"));
}

fn paid() -> StatusChange {
    StatusChange { status: OrderStatus::Paid, at: SystemClock.now(), operator: Some("анна".into()) }
}

#[test]
fn a_data_centre_is_lost_and_comes_back() {
    let _alone = support::alone();
    // A node that is late is not one that is lost.
    let [dc1, dc2] = nodes();
    let spec = RingSpec::for_tests_in(&[nodes_per_dc(); 2]).patient().with_quick_tables();
    let ring = Ring::ephemeral(&spec).expect("a ring can be started");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let (goes_on, refuses) = (goes_on(), refuses());
    runtime.block_on(async {
        let blocking = |work: &dyn Fn()| tokio::task::block_in_place(work);
        let clock = || -> Arc<dyn Clock> { Arc::new(SystemClock) };
        let fresh = support::fresh(&ring, &goes_on, &ENTITIES).await;
        let here = World::on(fresh.cluster.clone(), &goes_on, clock()).await;
        let there_cluster = support::connect_in(&ring, &goes_on, &fresh.prefix, None, Some("dc2")).await;
        let there = World::on(there_cluster, &goes_on, clock()).await;
        let strict = World::new(&ring, &refuses, clock()).await;
        // As the policy is shipped: orders in every data centre, carts in one.
        let usual_policy = policy();
        let usual_tables = support::fresh(&ring, &usual_policy, &ENTITIES).await;
        let usual = World::on(usual_tables.cluster.clone(), &usual_policy, clock()).await;
        let usual_there =
            support::connect_in(&ring, &usual_policy, &usual_tables.prefix, None, Some("dc2")).await;
        let usual_there = World::on(usual_there, &usual_policy, clock()).await;

        // Somebody next to the data centre that will be lost, and known in both before.
        let (refreshed, ended) = (LoggedIn::new(), LoggedIn::new());
        for logged_in in [&refreshed, &ended] {
            logged_in.insert(&usual_there).await.expect("both are there");
            support::until("it is at home", support::PATIENCE, async || {
                logged_in.state(&usual).await.is_some()
            })
            .await;
        }

        // EACH_QUORUM: acknowledged here, and read there at once. If one seemed to be lost meanwhile, it is tried again.
        let (shop, user, product) = (here.shop(Faults::none()), here.user(), here.product(100).await);
        let mut whole: usize = 0;
        let (first, found) = support::until_some("both data centres answer in time", async || {
            support::until("both data centres are there", support::PATIENCE, async || {
                here.orders.dc_state() == DcState::Whole
            })
            .await;
            whole += 1;
            let placed = shop.place_order(user, &format!("whole {whole}"), order_of(product, 1)).await;
            let placed = placed.expect("both are there").order;
            let found = there.orders.get(placed.id).await.expect("it can be read");
            (here.orders.dc_state() == DcState::Whole).then_some((placed, found))
        })
        .await;
        assert_eq!(found.as_ref(), Some(&first));

        // The other data centre is lost.
        blocking(&|| lose(&ring, &dc2, &dc1));
        let mut meanwhile = Vec::new();
        for key in ["lost 1", "lost 2", "lost 3"] {
            let placed = shop.place_order(user, key, order_of(product, 1)).await.expect("orders go on");
            meanwhile.push(placed.order);
        }
        assert_eq!(here.orders.dc_state(), DcState::Degraded);
        assert!(
            here.cluster.metrics().contains("mobimir_cassandra_degraded{entity=\"orders\"} 1"),
            "it is to be seen"
        );
        assert_eq!(here.check_orders(user).await, whole + 3, "ORD-1");
        let caller = here.caller(&shop, user).await;
        shop.add_to_cart(&caller, product, 3, None, None).await.expect("carts go on");
        assert_eq!(here.carts.dc_state(), DcState::Degraded);
        assert_eq!(here.sessions.dc_state(), DcState::Degraded);
        let moved = here.orders.transition(meanwhile[0].id, OrderStatus::Confirmed, paid()).await;
        let Ok(Transition::Moved(moved)) = moved else { panic!("a move is decided at home: {moved:?}") };
        meanwhile[0] = moved;

        let (strict_shop, strict_user) = (strict.shop(Faults::none()), strict.user());
        let strict_product = strict.product(100).await;
        let started = Instant::now();
        let refused = strict_shop.place_order(strict_user, "refused", order_of(strict_product, 1)).await;
        eprintln!("refused after {} ms", started.elapsed().as_millis());
        assert!(
            matches!(refused, Err(PlaceOrderError::Store(StoreError::Unavailable { .. }))),
            "an order that cannot be everywhere is refused: {refused:?}"
        );
        assert_eq!(strict.orders.dc_state(), DcState::Whole);
        let strict_app = app(strict_shop.clone());
        let token = format!("Bearer {}", signed_up(&strict_app).await);
        let body = json!({
            "geo_zone": "MSK",
            "items": [{ "product_id": strict_product.to_string(), "quantity": 1 }],
        });
        let headers = [("authorization", token.as_str()), ("idempotency-key", "refused over HTTP")];
        let (status, retry_after, problem) = post(&strict_app, "/v1/orders", &headers, body.clone()).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{problem}");
        assert_eq!(problem["code"], "unavailable");
        assert!(retry_after.is_some(), "whoever is refused is told when to come again");
        let strict_caller = strict.caller(&strict_shop, strict_user).await;
        let cart = strict_shop.add_to_cart(&strict_caller, strict_product, 1, None, None).await;
        assert!(cart.is_ok(), "carts need one data centre only: {cart:?}");

        // CRT-4: what is ordered meanwhile is as certainly out of the cart as the order is placed.
        let (usual_shop, usual_user) = (usual.shop(Faults::none()), usual.user());
        let (usual_product, usual_caller) =
            (usual.product(100).await, usual.caller(&usual_shop, usual_user).await);
        for key in ["usual 1", "usual 2"] {
            let added = usual_shop.add_to_cart(&usual_caller, usual_product, 2, None, None).await;
            added.expect("carts need one data centre only");
            let placed = usual_shop.place_order(usual_user, key, order_of_cart()).await;
            assert_eq!(placed.expect("orders go on").order.lines[0].quantity, 2, "{key}");
        }
        assert_eq!(usual.carts.dc_state(), DcState::Degraded, "the lost one is owed what was ordered");

        // Whoever is next to the lost one goes on in the other, which is the home of decisions.
        let there_owner = Owner::User(usual.user());
        let begun = LoggedIn::new();
        add(&usual_there, there_owner, usual_product).await.expect("carts go on elsewhere");
        begun.insert(&usual_there).await.expect("sessions go on elsewhere");
        let first = refreshed.refresh(&usual_there).await.expect("home decides");
        assert_eq!(first, RefreshUse::First(refreshed.session.id));
        assert!(ended.end(&usual_there).await.expect("home decides"));
        assert_eq!(usual_there.carts.dc_state(), DcState::Degraded);
        assert_eq!(usual_there.sessions.dc_state(), DcState::Degraded);
        assert_eq!(units(&usual_there, there_owner, usual_product).await, 2);

        // It comes back, and gets all it has missed.
        blocking(&|| bring_back(&ring, &dc2));
        support::until("all data centres have everything", support::PATIENCE, async || {
            let states = [here.orders.dc_state(), here.carts.dc_state(), here.sessions.dc_state()];
            states.iter().all(|state| *state == DcState::Whole)
        })
        .await;
        support::until("it has what was ordered of carts", support::PATIENCE, async || {
            usual.carts.dc_state() == DcState::Whole
        })
        .await;
        support::until("it has what was written elsewhere", support::PATIENCE, async || {
            let states = [usual_there.carts.dc_state(), usual_there.sessions.dc_state()];
            states.iter().all(|state| *state == DcState::Whole)
        })
        .await;
        assert_eq!(units(&usual_there, there_owner, usual_product).await, 2, "CRT-1");
        assert_eq!(begun.state(&usual_there).await, Some(SessionState::Live), "SES-3");
        assert_eq!(begun.listed(&usual_there).await, [begun.session.id]);
        let state = ended.state(&usual_there).await;
        assert!(matches!(state, Some(SessionState::Revoked { .. })), "SES-1: {state:?}");
        let again = refreshed.refresh(&usual_there).await.expect("home decides");
        assert_eq!(again, RefreshUse::Again(refreshed.session.id), "SES-2");

        let ordered = usual_there.carts.read(usual_caller.cart_owner(), SystemClock.now()).await;
        let ordered = ordered.expect("a cart").map(|cart| cart.changes).unwrap_or_default();
        assert_eq!(mobimir_core::cart::fold(&ordered).lines, [], "CRT-4");
        for order in &meanwhile {
            let found = support::answered("it can be read", || there.orders.get(order.id)).await;
            assert_eq!(found.as_ref(), Some(order));
        }
        assert_eq!(there.check_orders(user).await, whole + 3, "ORD-1 in the data centre that was lost");
        let (owner, now) = (caller.cart_owner(), SystemClock.now());
        let (left, right) = (here.carts.read(owner, now).await, there.carts.read(owner, now).await);
        let changes = left.expect("a cart").expect("it is there").changes;
        assert_eq!(changes.len(), 1);
        assert_eq!(right.expect("a cart").expect("it is there, too").changes, changes, "CRT-1");
        let session = there.sessions.get(caller.session.id, now).await.expect("a session");
        assert_eq!(session.map(|session| session.id), Some(caller.session.id));
        support::until("what was refused is finished", support::PATIENCE, async || {
            strict_shop.reconcile().await;
            strict_shop.place_order(strict_user, "refused", order_of(strict_product, 1)).await.is_ok()
        })
        .await;
        assert_eq!(strict.check_orders(strict_user).await, 1, "ORD-2");
        support::until("what was refused over HTTP is finished", support::PATIENCE, async || {
            post(&strict_app, "/v1/orders", &headers, body.clone()).await.0 == StatusCode::CREATED
        })
        .await;

        support::until(
            "nobody next to the other has anything to bring over",
            support::PATIENCE,
            async || {
                let states = [there.orders.dc_state(), there.carts.dc_state(), there.sessions.dc_state()];
                let usual_states =
                    [usual.orders.dc_state(), usual.carts.dc_state(), usual.sessions.dc_state()];
                states.iter().chain(&usual_states).all(|state| *state == DcState::Whole)
            },
        )
        .await;

        // The home of decisions is lost: orders go on there, decisions wait.
        blocking(&|| lose(&ring, &dc1, &dc2));
        let (home_owner, met) = (Owner::User(usual.user()), LoggedIn::new());
        add(&usual, home_owner, usual_product).await.expect("carts go on elsewhere");
        assert_eq!(units(&usual, home_owner, usual_product).await, 2);
        met.insert(&usual).await.expect("sessions go on elsewhere");
        assert_eq!(met.state(&usual).await, Some(SessionState::Live));
        assert_eq!(usual.carts.dc_state(), DcState::Degraded);
        assert_eq!(usual.sessions.dc_state(), DcState::Degraded);
        let undecided = met.refresh(&usual).await;
        assert!(is_refused(&undecided), "nobody but home uses a token up: {undecided:?}");
        let undecided = met.end(&usual).await;
        assert!(is_refused(&undecided), "nobody but home ends a session: {undecided:?}");
        // Local means local: the other data centre does not answer in its place.
        let strict_owner = Owner::User(strict.user());
        let refused = add(&strict, strict_owner, strict_product).await;
        assert!(is_refused(&refused), "{refused:?}");
        let refused = strict.carts.read(strict_owner, SystemClock.now()).await;
        assert!(is_refused(&refused), "{refused:?}");
        let refused = LoggedIn::new().insert(&strict).await;
        assert!(is_refused(&refused), "{refused:?}");
        assert_eq!(strict.carts.dc_state(), DcState::Whole);
        let (shop, user, product) = (there.shop(Faults::none()), there.user(), there.product(100).await);
        let placed =
            shop.place_order(user, "without a home", order_of(product, 1)).await.expect("orders go on").order;
        assert_eq!(there.check_orders(user).await, 1, "ORD-1");
        let undecided = there.orders.transition(placed.id, OrderStatus::Confirmed, paid()).await;
        assert!(
            matches!(undecided, Err(StoreError::Unavailable { .. })),
            "nobody decides but home: {undecided:?}"
        );
        blocking(&|| bring_back(&ring, &dc1));
        support::until("all data centres have everything", support::PATIENCE, async || {
            there.orders.dc_state() == DcState::Whole
        })
        .await;
        let found = support::answered("it can be read", || here.orders.get(placed.id)).await;
        assert_eq!(found.as_ref(), Some(&placed));
        support::until("home has what was written elsewhere", support::PATIENCE, async || {
            let states = [usual.carts.dc_state(), usual.sessions.dc_state()];
            states.iter().all(|state| *state == DcState::Whole)
        })
        .await;
        // Its nodes are reached a little later than they are there.
        let read = || usual.carts.read(home_owner, SystemClock.now());
        let cart = support::answered("home answers", read).await.expect("CRT-1: it is at home");
        assert_eq!(cart::fold(&cart.changes).quantity(usual_product), 2, "CRT-1");
        assert_eq!(met.state(&usual).await, Some(SessionState::Live), "SES-3");
        assert_eq!(met.listed(&usual).await, [met.session.id]);
        let uses = [met.refresh(&usual).await, met.refresh(&usual).await];
        let expected = [RefreshUse::First(met.session.id), RefreshUse::Again(met.session.id)];
        assert_eq!(uses.map(|used| used.expect("home decides")), expected, "SES-2");
        assert!(met.end(&usual).await.expect("home decides"));
        // Its nodes are reached a little later than they are there.
        let decided = support::until_some("home decides again", async || {
            match there.orders.transition(placed.id, OrderStatus::Confirmed, paid()).await {
                Err(StoreError::Unavailable { .. }) => None,
                decided => Some(decided),
            }
        })
        .await;
        assert!(matches!(decided, Ok(Transition::Moved(_))), "{decided:?}");
    });
}
