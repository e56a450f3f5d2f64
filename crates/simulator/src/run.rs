//! One run of a plan, from an empty shop to the judgement.

use std::{
    collections::{BTreeMap, BTreeSet},
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex},
    time::Duration,
};

use mobimir_core::{
    id::{self, OrderId, ProductId},
    invariant::Invariant,
    money::Money,
    order::Order,
    ports::{DayFilter, Period, StoreResult},
    product::Product,
    time::Day,
};
use mobimir_shop::Shop;

use crate::{
    abandoned::{self, GUEST_CART_TTL_MS, Lister, Visitor, Visitors},
    cassandra::{HOME, Ring},
    checker::{self, FinalOrder, FinalState, FinalStock, Limits, Violation},
    history::{Call, Operation},
    history_only::Reader,
    instance::Instance,
    migration,
    mongodb::{BUDGET_MS, ReplicaSet},
    plan::Plan,
    reach::DataCentres,
    shoppers::{Market, Operator, PASSWORD, Shopper, zone},
    world::{World, lock},
};

const PRODUCTS: usize = 4;
/// How long the shop has to settle what trouble left: beyond every deadline and every late message.
const SETTLING: Duration = Duration::from_secs(120);
const SESSION_CACHE_MS: i64 = 2_000;
const CHECKOUT_DEADLINE_MS: i64 = 15_000;
const TRIES_MAX: usize = 100;

#[derive(Clone, Debug)]
pub struct Report {
    pub violations: Vec<Violation>,
    /// The same for the same plan.
    pub trace_hash: u64,
    /// How often what happened.
    pub tally: BTreeMap<&'static str, u64>,
}

/// Runs a plan on a runtime of its own.
pub fn run(plan: Plan) -> Report {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return failed("runtime", error.to_string()),
    };
    // A panic is a violation like any other, so that its plan can be made smaller, too.
    let ran = std::panic::catch_unwind(AssertUnwindSafe(|| runtime.block_on(simulate(plan))));
    ran.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        failed("panic", text.unwrap_or_default())
    })
}

/// The smallest plan found that breaks the same invariant.
pub fn smallest(plan: Plan, invariant: &'static str) -> Plan {
    let breaks = |plan: &Plan| run(*plan).violations.iter().any(|violation| violation.invariant == invariant);
    let mut smallest = plan;
    while let Some(smaller) = smallest.smaller().into_iter().find(breaks) {
        smallest = smaller;
    }
    smallest
}

fn failed(invariant: &'static str, what: String) -> Report {
    Report { violations: vec![Violation { invariant, what }], trace_hash: 0, tally: BTreeMap::new() }
}

async fn simulate(plan: Plan) -> Report {
    let world = World::new(plan);
    let (set, ring) = (ReplicaSet::new(world.clone()), Ring::new(world.clone()));
    let instances: Vec<Arc<Instance>> = (0..plan.instances)
        .map(|number| Instance::start(number, world.clone(), set.clone(), ring.clone()))
        .collect();
    let shop = started(&instances[0]);
    let (products, initial) = stock_up(&shop, &world).await;
    let mut users = Vec::new();
    // Two shoppers share an account, and so a cart.
    for number in 0..plan.shoppers.div_ceil(2) {
        let email = format!("customer{number}@example.ru");
        match shop.register(&email, PASSWORD).await {
            Ok(user) => users.push((user, email)),
            Err(error) => return failed("set-up", error.to_string()),
        }
    }
    let market = Market::new(world.clone(), instances.clone(), products, users);

    world.set_calm(false);
    let mut clients = Vec::new();
    for client in 0..plan.shoppers {
        let shopper = Shopper::new(market.clone(), client, client / 2);
        clients.push(tokio::spawn(shopper.shop(plan.steps)));
    }
    let operator = Operator { market: market.clone(), client: plan.shoppers };
    clients.push(tokio::spawn(operator.work(plan.steps)));
    let (features, client) = (plan.features(), plan.shoppers + 1);
    let visitors = Visitors::default();
    if features.has_history_apart {
        let reader = Reader { market: market.clone(), client };
        clients.push(tokio::spawn(reader.read(2 * plan.steps)));
    }
    if features.lists_abandoned {
        let visitor = Visitor { market: market.clone(), client, visitors: visitors.clone() };
        clients.push(tokio::spawn(visitor.browse(plan.steps / 4)));
        let lister = Lister { market: market.clone(), client: client + 1, visitors: visitors.clone() };
        clients.push(tokio::spawn(lister.list(plan.steps)));
    }
    let trouble = tokio::spawn(make_trouble(world.clone(), instances.clone(), set.clone(), ring.clone()));
    let (operations, moving) = migration::begin(&plan, &world, &set, &instances);
    // Whoever changes sides shops as long as others do.
    let crossing = features.loses_data_centres.then(|| {
        let shopper = Shopper::new(market.clone(), client, 0);
        tokio::spawn(shopper.change_sides(ring.clone()))
    });
    let losses = tokio::spawn(lose_data_centres(world.clone(), ring.clone()));
    let mut panicked = Vec::new();
    for client in clients {
        if let Err(error) = client.await {
            panicked.push(error.to_string());
        }
    }
    losses.abort();
    ring.nothing_more_is_lost();
    if let Some(Err(error)) = futures_util::future::OptionFuture::from(crossing).await {
        panicked.push(error.to_string());
    }
    trouble.abort();
    moving.iter().for_each(tokio::task::JoinHandle::abort);
    world.set_calm(true);
    for instance in &instances {
        if instance.shop().is_none() {
            instance.start_again();
        }
    }
    let unmoved = operations.finish().await;
    tokio::time::sleep(SETTLING).await;
    if features.lists_abandoned {
        tokio::time::sleep(Duration::from_millis(GUEST_CART_TTL_MS.unsigned_abs())).await;
    }

    let operations = market.history.operations();
    let mut violations: Vec<Violation> =
        panicked.into_iter().map(|what| Violation { invariant: "panic", what }).collect();
    violations.extend(unmoved);
    violations.extend(lock(world.violations()).clone());
    // Everything is in every data centre that somebody reads in.
    let mut dcs_met = BTreeSet::new();
    let in_each_dc = instances.iter().filter(|instance| dcs_met.insert(ring.dc_of(instance.number)));
    for shop in in_each_dc.map(|instance| started(instance)) {
        match final_state(&shop, &market, &operations, &initial).await {
            Ok((mut end, left)) => {
                end.data_centres = data_centres(&ring, &instances);
                end.owed = set.owed();
                if features.lists_abandoned {
                    match abandoned::in_the_end(&shop, &market, &visitors).await {
                        Ok(lists) => end.abandoned = Some(lists),
                        Err(error) => {
                            violations.push(Violation { invariant: "settling", what: error.to_string() });
                        }
                    }
                }
                for entry in set.outbox() {
                    violations
                        .push(Violation { invariant: "settling", what: format!("still owed: {entry}") });
                }
                let limits = Limits {
                    session_cache_ms: SESSION_CACHE_MS,
                    staleness_ms: BUDGET_MS,
                    checkout_deadline_ms: CHECKOUT_DEADLINE_MS,
                };
                violations.extend(left);
                violations.extend(checker::check(&operations, &end, limits));
            }
            Err(error) => violations.push(Violation { invariant: "settling", what: error.to_string() }),
        }
    }
    for instance in &instances {
        for invariant in Invariant::ALL {
            // What the shop counts does not know that around a loss the next read may be that of another data
            // centre. The checker does.
            let is_told_by_checker = invariant == Invariant::Crt1 && features.loses_data_centres;
            if instance.violations(invariant) > 0 && !is_told_by_checker {
                let what = format!("counted on instance {}", instance.number);
                violations.push(Violation { invariant: invariant.name(), what });
            }
        }
    }
    Report { violations, trace_hash: world.trace_hash(), tally: world.tally() }
}

#[expect(clippy::expect_used, reason = "it was started and nothing has crashed it")]
fn started(instance: &Instance) -> Shop {
    instance.shop().expect("the instance runs")
}

async fn stock_up(shop: &Shop, world: &World) -> (Vec<ProductId>, Vec<u64>) {
    let (mut ids, mut initial, mut products) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..PRODUCTS {
        let id = ProductId(id::derived("simulated product", &[&number.to_be_bytes()]));
        let stock = world.between(6, 60);
        let (name, category) = (format!("Телефон {number}"), "Электроника".to_owned());
        let zones = BTreeMap::from([(zone(), stock)]);
        let price = Money::from_kopecks(100);
        let product = Product::new(id, name, category, price, BTreeMap::new(), zones, world.now());
        ids.push(id);
        initial.push(stock);
        products.extend(product);
    }
    // Nothing goes wrong yet.
    let _ = shop.stores().products.insert(products).await;
    (ids, initial)
}

async fn make_trouble(world: World, instances: Vec<Arc<Instance>>, set: ReplicaSet, ring: Ring) {
    let trouble = world.plan().faults;
    loop {
        world.sleep_ms(500, 15_000).await;
        let instance = world.pick(&instances).clone();
        match world.below(7) {
            0 | 1 if trouble.crashes => {
                instance.crash();
                let again = world.clone();
                world.spawn(async move {
                    again.sleep_ms(100, 15_000).await;
                    if instance.shop().is_none() {
                        instance.start_again();
                    }
                });
            }
            2 if trouble.pauses => world.spawn(async move { instance.stand_still().await }),
            3 if trouble.clocks => instance.set_clock(),
            4 if trouble.fail_overs => {
                let set = set.clone();
                world.spawn(async move { set.fail_over().await });
            }
            5 if trouble.nodes => {
                let ring = ring.clone();
                world.spawn(async move { ring.take_node_down().await });
            }
            6 if trouble.fail_overs => set.lag(world.between(500, 15_000)),
            _ => {}
        }
    }
}

async fn lose_data_centres(world: World, ring: Ring) {
    let features = ring.features();
    if !features.loses_data_centres && !features.has_history_apart {
        return;
    }
    loop {
        world.sleep_ms(2_000, 40_000).await;
        let losing = ring.clone();
        // It comes back whatever becomes of this task.
        world.spawn(async move { losing.lose_data_centre().await });
    }
}

fn data_centres(ring: &Ring, instances: &[Arc<Instance>]) -> Option<DataCentres> {
    if !ring.features().loses_data_centres {
        return None;
    }
    let of_instances = instances.iter().map(|instance| ring.dc_of(instance.number)).collect();
    let (losses, absences) = ring.losses();
    Some(DataCentres { of_instances, home: HOME, losses, absences })
}

/// Asks until it is answered: a node may be away for a moment.
async fn patiently<T, F: Future<Output = StoreResult<T>>>(ask: impl Fn() -> F) -> StoreResult<T> {
    let mut answer = ask().await;
    for _ in 0..TRIES_MAX {
        if answer.is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        answer = ask().await;
    }
    answer
}

async fn final_state(
    shop: &Shop,
    market: &Market,
    operations: &[Operation],
    initial: &[u64],
) -> StoreResult<(FinalState, Vec<Violation>)> {
    let (mut end, mut left) = (FinalState::default(), Vec::new());
    let stores = shop.stores();
    for (customer, (user, _)) in market.users.iter().enumerate() {
        let owner = mobimir_core::cart::Owner::User(*user);
        let cart = patiently(|| stores.carts.read(owner, shop.now())).await?;
        let view = cart.map(|cart| mobimir_core::cart::fold(&cart.changes)).unwrap_or_default();
        let number = |product| market.products.iter().position(|id| *id == product).unwrap_or(usize::MAX);
        let lines = view.lines.iter().map(|line| (number(line.product), line.quantity)).collect();
        end.carts.insert(customer, lines);
    }
    for operation in operations {
        let Call::Order { customer, key, .. } = &operation.call else { continue };
        if end.orders.contains_key(&(*customer, key.clone())) {
            continue;
        }
        let (user, _) = &market.users[*customer];
        let id = OrderId::of(*user, key);
        let order = patiently(|| stores.orders.get(id)).await?;
        let checkout = patiently(|| stores.products.get_checkout(id)).await?;
        let is_of_cart = checkout.as_ref().is_some_and(|checkout| checkout.cart.is_some());
        let order = match order {
            Some(order) => Some(final_order(shop, market, order, is_of_cart).await?),
            None => None,
        };
        let is_committed = checkout.as_ref().is_some_and(|checkout| checkout.is_committed());
        if is_committed != order.is_some() {
            let what = format!("key {key}: the checkout is {checkout:?}, the order {order:?}");
            left.push(Violation { invariant: "ORD-1", what });
        }
        if let Some(checkout) = checkout.filter(|checkout| checkout.due_at.is_some() || checkout.is_open()) {
            left.push(Violation { invariant: "settling", what: format!("still due: {checkout:?}") });
        }
        end.orders.insert((*customer, key.clone()), order);
    }
    for (item, id) in market.products.iter().enumerate() {
        let Some(product) = patiently(|| stores.products.get(*id)).await? else { continue };
        if !product.books_balance() || !product.holds.is_empty() {
            left.push(Violation { invariant: "STK-1", what: format!("left behind: {product:?}") });
        }
        let stock = product.stock.get(&zone()).copied().unwrap_or_default();
        let (available, reserved, sold) = (stock.available, stock.reserved, stock.sold);
        end.stock.insert(item, FinalStock { initial: initial[item], available, reserved, sold });
    }
    Ok((end, left))
}

async fn final_order(
    shop: &Shop,
    market: &Market,
    order: Order,
    is_of_cart: bool,
) -> StoreResult<FinalOrder> {
    let stores = shop.stores();
    let (id, user, day): (OrderId, _, Day) = (order.id, order.user_id, order.day());
    let is_in = |page: mobimir_core::page::Page<Order, _>| {
        page.items
            .iter()
            .any(|listed| listed.id == id && listed.lines == order.lines && listed.status == order.status)
    };
    let history = patiently(|| stores.orders.history(id)).await?;
    let by_user = patiently(|| stores.orders.by_user(user, Period::default(), None, 1_000)).await?;
    let by_day = patiently(|| stores.orders.by_day(day, DayFilter::default(), None, 1_000)).await?;
    Ok(FinalOrder {
        id: id.to_string(),
        lines: market.lines_of(&order),
        is_of_cart,
        history: history.into_iter().map(|change| (change.status.to_string(), change.operator)).collect(),
        is_in_history: is_in(by_user),
        is_in_day: is_in(by_day),
    })
}

/// Runs plans on all cores until one fails or all are done. Returns the first that failed, by seed, and how
/// often everything happened.
pub fn run_all(plans: Vec<Plan>) -> (Option<(Plan, Report)>, BTreeMap<&'static str, u64>) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let (next, failed) = (Mutex::new(plans.into_iter()), Mutex::new(None::<(Plan, Report)>));
    let tally = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                loop {
                    if lock(&failed).is_some() {
                        return;
                    }
                    let Some(plan) = lock(&next).next() else { return };
                    let report = run(plan);
                    for (event, times) in &report.tally {
                        *lock(&tally).entry(*event).or_default() += times;
                    }
                    if !report.violations.is_empty() {
                        let mut failed = lock(&failed);
                        if failed.as_ref().is_none_or(|(earlier, _)| plan.seed < earlier.seed) {
                            *failed = Some((plan, report));
                        }
                        return;
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let tally = tally.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    (failed, tally)
}
