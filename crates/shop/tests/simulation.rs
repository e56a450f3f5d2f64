//! Several instances of the shop over the same stores, each slow or crashing at random, and time that moves
//! in jumps: whatever happens, the books balance in the end and everybody was told the truth. A failure
//! names its seed. Whatever can happen is counted over all seeds, and has to have happened.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod support;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use mobimir_core::{
    id::{OrderId, ProductId, UserId},
    invariant::Invariant,
    order::OrderStatus,
    ports::Period,
};
use mobimir_shop::{
    Caller, LoginError, MoveOrderError, PlaceOrderError, Shop,
    faults::{Fault, Faults, Step},
};
use support::World;

const SEEDS_DEFAULT: u64 = 400;
const BUYERS: u64 = 6;
const KEYS_PER_BUYER: u64 = 3;
const GUESTS: usize = 2;
const PASSWORD: &str = "correct horse";

/// What has to happen in some seed, besides a crash at every step.
const EVENTS: [&str; 19] = [
    "order placed",
    "order replayed",
    "order out of stock",
    "order expired",
    "order in progress",
    "order interrupted",
    "cart ordered",
    "cart ordered by another",
    "cart empty",
    "move to paid",
    "move to shipped",
    "move to cancelled",
    "move refused",
    "move interrupted",
    "merge by login",
    "merge interrupted",
    "merge by reconciler",
    "checkout by reconciler",
    "hold by reconciler",
];

/// SplitMix64: repeatable, and good enough to be unfair in many ways.
#[derive(Clone)]
struct Chance(Arc<AtomicU64>);

impl Chance {
    fn of(&self, n: u64) -> u64 {
        let mut z = self.0.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::SeqCst);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % n
    }
}

/// How often each kind of event happened.
#[derive(Clone, Default)]
struct Tally(Arc<Mutex<BTreeMap<String, usize>>>);

impl Tally {
    fn count(&self, event: &str, times: usize) {
        *self.0.lock().unwrap().entry(event.to_owned()).or_default() += times;
    }

    /// Fails with all counts if something never happened.
    fn assert_everything_happened(&self) {
        let counts = self.0.lock().unwrap();
        let crashes = Step::ALL.map(|step| format!("crash at {step:?}"));
        let expected = crashes.into_iter().chain(EVENTS.map(str::to_owned));
        let missing: Vec<String> =
            expected.filter(|event| counts.get(event).copied().unwrap_or_default() == 0).collect();
        assert!(missing.is_empty(), "never happened: {missing:?}; what did: {counts:#?}");
    }
}

#[test]
fn the_truth_survives_slow_and_crashing_instances() {
    let seeds =
        std::env::var("MOBIMIR_SIMULATION_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(SEEDS_DEFAULT);
    let only = std::env::var("MOBIMIR_SIMULATION_SEED").ok().and_then(|n| n.parse::<u64>().ok());
    let tally = Tally::default();
    for seed in only.map_or(0..seeds, |seed| seed..seed + 1) {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let run = std::panic::AssertUnwindSafe(|| runtime.block_on(simulate(seed, &tally)));
        if let Err(panic) = std::panic::catch_unwind(run) {
            eprintln!("failed with MOBIMIR_SIMULATION_SEED={seed}");
            std::panic::resume_unwind(panic);
        }
    }
    // A few seeds need not have everything.
    if only.is_none() && seeds >= SEEDS_DEFAULT {
        tally.assert_everything_happened();
    }
}

async fn simulate(seed: u64, tally: &Tally) {
    let chance = Chance(Arc::new(AtomicU64::new(seed.wrapping_mul(0x2545_F491_4F6C_DD1D))));
    let world = World::new();
    let products = Arc::new(world.products(3, 6).await);
    let instances: Vec<Shop> = (0..3)
        .map(|_| {
            let (chance, tally) = (chance.clone(), tally.clone());
            world.shop(Faults::planned(move |step| match chance.of(12) {
                0 => {
                    tally.count(&format!("crash at {step:?}"), 1);
                    Fault::Stop
                }
                1..=4 => Fault::Pause { turns: chance.of(40) as u32 },
                _ => Fault::None,
            }))
        })
        .collect();

    // One after the other and before anybody else: passwords are hashed on other threads, which would make
    // a seed irreproducible.
    let mut merged = Vec::new();
    for _ in 0..GUESTS {
        merged.push(Merged::log_in(&chance, tally, &world, &instances).await);
    }

    let mut people = Vec::new();
    for _ in 0..BUYERS {
        let user = world.user();
        for key in 0..KEYS_PER_BUYER {
            // Each key is tried by two at once, on different instances.
            for _ in 0..2 {
                let (chance, shop) = (chance.clone(), instances[chance.of(3) as usize].clone());
                let request = world.order_of(&products[..1 + (key as usize % 3)], 1 + key % 2);
                let tally = tally.clone();
                people.push(tokio::spawn(async move {
                    buy(&chance, &tally, &shop, user, &key.to_string(), request).await
                }));
            }
        }
    }
    // CRT-4: each merged cart is ordered under three keys at once, on different instances.
    for user in merged.iter().map(|merged| merged.user) {
        for key in ["cart", "cart", "again", "again", "once more"] {
            let (chance, shop) = (chance.clone(), instances[chance.of(3) as usize].clone());
            let (request, tally) = (world.cart_order(), tally.clone());
            people.push(tokio::spawn(async move {
                let told = buy(&chance, &tally, &shop, user, key, request).await;
                tally.count("cart ordered", usize::from(matches!(told, Some((_, true)))));
                told
            }));
        }
    }
    for _ in 0..4 {
        let (chance, shop, clock) =
            (chance.clone(), instances[chance.of(3) as usize].clone(), world.clock.clone());
        let tally = tally.clone();
        people.push(tokio::spawn(async move {
            for _ in 0..6 {
                pause(&chance).await;
                match chance.of(4) {
                    0 => clock.advance_ms(chance.of(25_000) as i64),
                    1 => reconcile(&tally, &shop).await,
                    _ => meddle(&chance, &tally, &shop).await,
                }
            }
            None
        }));
    }
    let mut told = HashMap::new();
    for person in people {
        if let Some((order, placed)) = person.await.unwrap() {
            let before = told.insert(order, placed);
            assert!(before.is_none_or(|before| before == placed), "one key was told two things");
        }
    }

    // All crash; one starts anew, and time passes.
    let shop = world.shop(Faults::none());
    for _ in 0..3 {
        world.clock.advance_ms(60_000);
        reconcile(tally, &shop).await;
        world.let_spawned_work_run().await;
    }
    world.check_settled(&shop).await;
    for (order, placed) in told {
        let found = shop.order(order).await.unwrap().is_some();
        assert_eq!(found, placed, "ORD-1: told {placed}, found {found}");
        if found {
            let history = shop.order_history(order).await.unwrap();
            let legal = history.windows(2).all(|pair| pair[0].status.can_become(pair[1].status));
            assert!(legal, "ORD-3: {history:?}");
        }
    }
    for merged in &merged {
        merged.check(&shop).await;
    }
    for shop in instances.iter().chain([&shop]) {
        for invariant in Invariant::ALL {
            assert_eq!(shop.invariants().violations(invariant), 0, "{}", invariant.name());
        }
    }
}

async fn pause(chance: &Chance) {
    for _ in 0..chance.of(60) {
        tokio::task::yield_now().await;
    }
}

async fn reconcile(tally: &Tally, shop: &Shop) {
    let done = shop.reconcile().await;
    tally.count("checkout by reconciler", done.checkouts);
    tally.count("hold by reconciler", done.holds);
    tally.count("merge by reconciler", done.merges);
}

/// A user who has logged in with a guest's cart, perhaps on an instance that crashed meanwhile.
struct Merged {
    user: UserId,
    caller: Caller,
    product: ProductId,
    units: u64,
}

impl Merged {
    async fn log_in(chance: &Chance, tally: &Tally, world: &World, instances: &[Shop]) -> Self {
        let product = world.products(1, 1_000).await[0];
        let any = |chance: &Chance| instances[chance.of(instances.len() as u64) as usize].clone();
        let email = format!("anna-{product}@example.ru");
        let user = any(chance).register(&email, PASSWORD).await.unwrap();
        let caller = world.log_in(user).await;
        let guest = world.guest(&any(chance)).await;
        let (of_guest, of_user) = (1 + chance.of(3), chance.of(3));
        any(chance).add_to_cart(&guest, product, of_guest, None, None).await.unwrap();
        if of_user > 0 {
            any(chance).add_to_cart(&caller, product, of_user, None, None).await.unwrap();
        }
        for _ in 0..1 + chance.of(2) {
            match any(chance).log_in(&email, PASSWORD, Some(guest.clone()), Default::default()).await {
                Ok(_) => {
                    tally.count("merge by login", 1);
                    break;
                }
                Err(LoginError::Stopped(_)) => tally.count("merge interrupted", 1),
                Err(error) => panic!("{error}"),
            }
        }
        Self { user, caller, product, units: of_guest + of_user }
    }

    /// CRT-2: every unit was merged once, and is in the cart or in an order.
    async fn check(&self, shop: &Shop) {
        let cart = shop.cart(&self.caller).await.unwrap();
        let in_cart: u64 = cart.items.iter().map(|item| item.quantity).sum();
        let orders = shop.orders_of(self.user, Period::default(), None, 100).await.unwrap().items;
        let lines = orders.iter().flat_map(|order| &order.lines);
        let ordered: u64 =
            lines.inspect(|line| assert_eq!(line.product_id, self.product)).map(|line| line.quantity).sum();
        assert_eq!(in_cart + ordered, self.units, "CRT-2: {in_cart} in the cart, {ordered} ordered");
    }
}

/// Places an order, maybe repeatedly; what the client was told in the end, if anything definite.
async fn buy(
    chance: &Chance,
    tally: &Tally,
    shop: &Shop,
    user: UserId,
    key: &str,
    request: mobimir_shop::OrderRequest,
) -> Option<(OrderId, bool)> {
    for _ in 0..1 + chance.of(3) {
        pause(chance).await;
        let (event, told) = match shop.place_order(user, key, request.clone()).await {
            Ok(placed) if placed.replayed => ("order replayed", Some((placed.order.id, true))),
            Ok(placed) => ("order placed", Some((placed.order.id, true))),
            Err(PlaceOrderError::OutOfStock { .. }) => {
                ("order out of stock", Some((OrderId::of(user, key), false)))
            }
            Err(PlaceOrderError::Expired) => ("order expired", Some((OrderId::of(user, key), false))),
            Err(PlaceOrderError::Stopped(_)) => ("order interrupted", None),
            Err(PlaceOrderError::InProgress) => ("order in progress", None),
            Err(PlaceOrderError::CartOrdered { .. }) => {
                ("cart ordered by another", Some((OrderId::of(user, key), false)))
            }
            // It may be filled before the next try.
            Err(PlaceOrderError::EmptyCart { .. }) => ("cart empty", None),
            Err(error) => panic!("{error}"),
        };
        tally.count(event, 1);
        if told.is_some() {
            return told;
        }
    }
    None
}

/// Moves some order of the day somewhere.
async fn meddle(chance: &Chance, tally: &Tally, shop: &Shop) {
    let day = shop.orders_of_day(shop.now().day(), Default::default(), None, 100).await.unwrap();
    if day.items.is_empty() {
        return;
    }
    let order = &day.items[chance.of(day.items.len() as u64) as usize];
    let to = [OrderStatus::Paid, OrderStatus::Shipped, OrderStatus::Cancelled, OrderStatus::Cancelled]
        [chance.of(4) as usize];
    match shop.move_order(order.id, to, "op").await {
        Ok(_) => tally.count(&format!("move to {to}"), 1),
        Err(MoveOrderError::BadTransition { .. }) => tally.count("move refused", 1),
        Err(MoveOrderError::Stopped(_)) => tally.count("move interrupted", 1),
        Err(error) => panic!("{error}"),
    }
}
