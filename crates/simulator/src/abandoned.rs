//! Carts that are left behind: visitors who fill a cart and never log in, and operators who list what nobody has
//! touched for a while.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use mobimir_core::{
    cart::Owner,
    id::SessionId,
    ports::{StoreError, StoreResult},
    product::StockChange,
};
use mobimir_shop::{CartError, Shop, ShopSettings};

use crate::{
    checker::{FinalState, Violation},
    history::{Answer, Call, Customer, Operation, Whose},
    instance::Heard,
    shoppers::{Market, PASSWORD, zone},
    world::lock,
};

const ABANDONED_AFTER_MS: i64 = 40_000;
/// Longer than anybody who logs in with a guest's cart takes for it.
pub const GUEST_CART_TTL_MS: i64 = 200_000;
/// How far clocks of instances may differ, and a moment more.
const SLACK_MS: i64 = 2_200;
/// Small, so that lists have several pages.
const PAGE_CARTS: usize = 1;
/// Whoever never logs in.
const NOBODY: Customer = usize::MAX;

pub fn settings(settings: ShopSettings) -> ShopSettings {
    let (abandoned_after_ms, guest_cart_ttl_ms) = (ABANDONED_AFTER_MS, GUEST_CART_TTL_MS);
    ShopSettings { abandoned_after_ms, guest_cart_ttl_ms, ..settings }
}

/// Visitors, by their sessions.
#[derive(Clone, Default)]
pub struct Visitors(Arc<Mutex<BTreeMap<SessionId, usize>>>);

/// Fills a cart as a guest, comes back to it, and never logs in.
pub struct Visitor {
    pub market: Market,
    pub client: usize,
    pub visitors: Visitors,
}

impl Visitor {
    pub async fn browse(self, visits: usize) {
        for _ in 0..visits {
            let instance = self.market.any_instance();
            let started = instance
                .serve(|shop| async move { shop.start_guest_session(Default::default()).await })
                .await;
            let Heard::Answer(Ok(guest)) = started else {
                self.market.world.sleep_ms(500, 2_000).await;
                continue;
            };
            let number = self.market.guest_number();
            lock(&self.visitors.0).insert(guest.session_id, number);
            for _ in 0..self.market.world.between(1, 3) {
                self.add(number, guest.token.clone()).await;
                self.market.world.sleep_ms(100, 5_000).await;
                self.read(number, guest.token.clone()).await;
            }
            match self.market.world.below(3) {
                0 => {}
                1 => {
                    self.market.world.sleep_ms(30_000, 120_000).await;
                    self.read(number, guest.token.clone()).await;
                }
                _ => {
                    self.market.world.sleep_ms(195_000, 215_000).await;
                    self.read(number, guest.token.clone()).await;
                }
            }
        }
    }

    async fn add(&self, guest: usize, token: String) {
        let (market, instance) = (&self.market, self.market.any_instance());
        let (item, units) = (market.item(), market.world.between(1, 3));
        let product = market.products[item];
        let answer = async {
            let add = move |shop: Shop| async move {
                match shop.authenticate(&token).await? {
                    Some(caller) => shop.add_to_cart(&caller, product, units, None, None).await.map(|_| true),
                    None => Ok(false),
                }
            };
            match instance.serve(add).await {
                Heard::Answer(Ok(true)) => Answer::Done,
                Heard::Answer(Ok(false)) | Heard::Refused => Answer::Refused("no"),
                Heard::Answer(Err(CartError::Store(_))) | Heard::Nothing => Answer::Open,
                Heard::Answer(Err(_)) => Answer::Refused("no"),
            }
        };
        let call = Call::Add { customer: NOBODY, guest: Some(guest), item, units };
        market.ask(self.client, &instance, call, answer).await;
    }

    async fn read(&self, guest: usize, token: String) {
        let (market, instance) = (&self.market, self.market.any_instance());
        let answer = async {
            let read = move |shop: Shop| async move {
                match shop.authenticate(&token).await? {
                    Some(caller) => shop.cart(&caller).await.map(Some),
                    None => Ok::<_, StoreError>(None),
                }
            };
            match instance.read(read).await {
                Heard::Answer(Ok(Some(cart))) => {
                    let line =
                        |item: &mobimir_shop::CartItem| (market.number_of(item.product_id), item.quantity);
                    Answer::Cart(cart.items.iter().map(line).collect())
                }
                _ => Answer::NotNow,
            }
        };
        market.ask(self.client, &instance, Call::ReadGuestCart { guest }, answer).await;
    }
}

/// Lists, again and again.
pub struct Lister {
    pub market: Market,
    pub client: usize,
    pub visitors: Visitors,
}

impl Lister {
    pub async fn list(self, times: usize) {
        for _ in 0..times {
            self.market.world.sleep_ms(2_000, 25_000).await;
            let (market, instance) = (self.market.clone(), self.market.any_instance());
            let answer = async {
                let list = |shop: Shop| async move { all(&shop).await };
                match instance.read(list).await {
                    Heard::Answer(Ok(owners)) => {
                        let whose = |owner| whose(&market, &self.visitors, owner);
                        Answer::Abandoned(owners.into_iter().map(whose).collect())
                    }
                    _ => Answer::NotNow,
                }
            };
            self.market.ask(self.client, &instance, Call::ListAbandoned, answer).await;
        }
    }
}

async fn all(shop: &Shop) -> StoreResult<Vec<Owner>> {
    let (mut owners, mut after) = (Vec::new(), None);
    loop {
        let page = shop.abandoned_carts(after, PAGE_CARTS).await?;
        owners.extend(page.items.iter().map(|cart| cart.owner));
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(owners),
        }
    }
}

fn whose(market: &Market, visitors: &Visitors, owner: Owner) -> Whose {
    let customer = |user| market.users.iter().position(|(of, _)| *of == user);
    match owner {
        Owner::User(user) => customer(user).map_or(Whose::Other(owner.to_string()), Whose::Customer),
        Owner::Guest(guest) => lock(&visitors.0)
            .get(&guest)
            .map_or(Whose::Other(owner.to_string()), |number| Whose::Visitor(*number)),
    }
}

/// What is listed when all is quiet, and when one customer has come back.
#[derive(Clone, Debug)]
pub struct FinalLists {
    pub quiet: Vec<Whose>,
    pub came_back: Customer,
    pub then: Vec<Whose>,
}

pub async fn in_the_end(shop: &Shop, market: &Market, visitors: &Visitors) -> StoreResult<FinalLists> {
    let listed = async || -> StoreResult<Vec<Whose>> {
        let owners = all(shop).await?;
        Ok(owners.into_iter().map(|owner| whose(market, visitors, owner)).collect())
    };
    let quiet = listed().await?;
    let came_back = 0;
    let failed = |what: String| StoreError::Unavailable { what, source: None };
    let logged_in = shop.log_in(&market.users[came_back].1, PASSWORD, None, Default::default()).await;
    let token = logged_in.map_err(|error| failed(error.to_string()))?.token;
    let caller = shop.authenticate(&token).await?.ok_or_else(|| failed("not logged in".to_owned()))?;
    let product = market.products[0];
    // It may be sold out.
    shop.change_stock(product, zone(), StockChange::Delta(1))
        .await
        .map_err(|error| failed(error.to_string()))?;
    shop.add_to_cart(&caller, product, 1, Some(zone()), None)
        .await
        .map_err(|error| failed(error.to_string()))?;
    Ok(FinalLists { quiet, came_back, then: listed().await? })
}

/// CRT-1, CRT-3 of what is left behind.
pub fn check(operations: &[Operation], end: &FinalState) -> Vec<Violation> {
    let mut failures = Vec::new();
    for read in operations {
        match (&read.call, &read.answer) {
            (Call::ListAbandoned, Answer::Abandoned(listed)) => {
                failures.extend(listed_in_vain(operations, read, listed));
            }
            (Call::ReadGuestCart { guest }, Answer::Cart(lines)) => {
                failures.extend(cart_of_visitor(operations, read, *guest, lines));
            }
            _ => {}
        }
    }
    if let Some(lists) = &end.abandoned {
        failures.extend(lists_in_the_end(end, lists));
    }
    failures
}

/// What each adds to.
fn adds_to<'a>(operations: &'a [Operation], whose: &'a Whose) -> impl Iterator<Item = &'a Operation> {
    operations.iter().filter(move |operation| match (&operation.call, whose) {
        (Call::Add { customer, guest: None, .. }, Whose::Customer(of)) => customer == of,
        (Call::Add { guest: Some(guest), .. }, Whose::Visitor(of)) => guest == of,
        _ => false,
    })
}

fn listed_in_vain(operations: &[Operation], read: &Operation, listed: &[Whose]) -> Vec<Violation> {
    let mut failures = Vec::new();
    for (at, whose) in listed.iter().enumerate() {
        if listed[..at].contains(whose) {
            let what = format!("{whose:?} is listed twice in {read:?}");
            failures.push(Violation { invariant: "CRT-1", what });
        }
        let untouched_ms = read.answered_ms - ABANDONED_AFTER_MS + SLACK_MS;
        let touched = adds_to(operations, whose).find(|add| {
            add.answer == Answer::Done && add.answered_ms <= read.asked_ms && add.asked_ms > untouched_ms
        });
        if let Some(touched) = touched {
            let what = format!("{whose:?} is listed in {read:?}, and had just been there: {touched:?}");
            failures.push(Violation { invariant: "CRT-1", what });
        }
        // CRT-3
        let mut adds = adds_to(operations, whose).peekable();
        let has_ended =
            |add: &Operation| add.answered_or_never_ms() + GUEST_CART_TTL_MS + SLACK_MS < read.asked_ms;
        if matches!(whose, Whose::Visitor(_)) && adds.peek().is_some() && adds.all(has_ended) {
            let what = format!("{whose:?} has outlived its time in {read:?}");
            failures.push(Violation { invariant: "CRT-3", what });
        }
    }
    failures
}

fn cart_of_visitor(
    operations: &[Operation],
    read: &Operation,
    guest: usize,
    lines: &[(usize, u64)],
) -> Vec<Violation> {
    let visitor = Whose::Visitor(guest);
    let units: u64 = lines.iter().map(|(_, units)| units).sum();
    let put_in = |counts: &dyn Fn(&Operation) -> bool| -> u64 {
        adds_to(operations, &visitor)
            .filter(|add| counts(add))
            .map(|add| match add.call {
                Call::Add { units, .. } => units,
                _ => 0,
            })
            .sum()
    };
    let last_ms = adds_to(operations, &visitor).filter(|add| add.answer == Answer::Done);
    let last_ms = last_ms.map(|add| add.asked_ms).max().unwrap_or(i64::MIN / 2);
    let mut ends_ms = adds_to(operations, &visitor).map(Operation::answered_or_never_ms).peekable();
    let has_any = ends_ms.peek().is_some();
    let ended = ends_ms.all(|ms| ms + GUEST_CART_TTL_MS + SLACK_MS < read.asked_ms);
    let mut failures = Vec::new();
    if has_any && ended && units > 0 {
        failures.push(Violation { invariant: "CRT-3", what: format!("a cart outlives its time: {read:?}") });
    }
    let lives = read.answered_ms < last_ms + GUEST_CART_TTL_MS - SLACK_MS;
    let certain = put_in(&|add: &Operation| add.answer == Answer::Done && add.answered_ms <= read.asked_ms);
    let most = put_in(&|add: &Operation| {
        !matches!(add.answer, Answer::Refused(_)) && add.asked_ms <= read.answered_ms
    });
    if units > most || lives && units < certain {
        let invariant = if units > most { "CRT-4" } else { "CRT-1" };
        failures.push(Violation { invariant, what: format!("expected {certain} to {most} in {read:?}") });
    }
    failures
}

impl Operation {
    /// When it was done at the latest: what nobody answered may have arrived much later.
    fn answered_or_never_ms(&self) -> i64 {
        if self.answer == Answer::Open { self.answered_ms + 20_000 } else { self.answered_ms }
    }
}

fn lists_in_the_end(end: &FinalState, lists: &FinalLists) -> Vec<Violation> {
    let mut failures = Vec::new();
    let mut fail =
        |what: String| failures.push(Violation { invariant: "CRT-1", what: format!("{what}: {lists:?}") });
    let times = |listed: &[Whose], whose: &Whose| listed.iter().filter(|of| *of == whose).count();
    for (customer, lines) in &end.carts {
        let (expected, whose) = (usize::from(!lines.is_empty()), Whose::Customer(*customer));
        if times(&lists.quiet, &whose) != expected {
            fail(format!("expected {whose:?} {expected} times among the abandoned"));
        }
        let expected = if *customer == lists.came_back { 0 } else { expected };
        if times(&lists.then, &whose) != expected {
            fail(format!("expected {whose:?} {expected} times when one had come back"));
        }
    }
    if let Some(guest) = lists.quiet.iter().find(|whose| !matches!(whose, Whose::Customer(_))) {
        let what = format!("the cart of {guest:?} has outlived its time: {lists:?}");
        failures.push(Violation { invariant: "CRT-3", what });
    }
    failures
}
