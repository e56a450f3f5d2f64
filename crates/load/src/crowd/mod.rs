//! The shoppers: who asks for what next, and what they know of what the shop has done for them.
//!
//! A shopper makes one change after the other, as people do, so what a cart holds follows from the answers. Many shoppers
//! make changes at the same time. Nobody waits before looking at a page.

mod asked;
mod checking;
mod hearing;
mod ledger;
mod order;
mod shopper;
mod taken;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt::Write,
    sync::Arc,
    time::{Duration, Instant},
};

use mobimir_core::random::Random;

pub(crate) use self::{
    asked::Asked,
    hearing::{Verdict, code, shown},
    ledger::Placed,
    order::{LineAnswer, NEW_ORDER_STATUS, OrderAnswer},
    shopper::{LastOrder, Shopper},
};
use self::{asked::What, shopper::Pending, taken::Taken};
use crate::{
    goods::Goods,
    operation::Operation,
    profile::Profile,
    request::{Parts, Request},
    rules::Checks,
    shop::AllStock,
};

/// How many shoppers are tried before a wish has to wait.
const TRIES_MAX: usize = 8;
const UNITS_MAX: u64 = 3;

pub(crate) struct Crowd {
    pub(crate) goods: Goods,
    numbers: HashMap<String, u32>,
    pub(crate) zones: Vec<String>,
    /// Users first, then guests.
    pub(crate) shoppers: Vec<Shopper>,
    users: usize,
    /// How many of them have come to order, where each does so once.
    buyers: usize,
    profile: Profile,
    random: Random,
    /// The body of the last request, whose place in memory the next one uses again.
    body: String,
    /// What the keys of this run begin with.
    run: String,
    keys: u64,
    /// Users with an order of which they do not know what became.
    unsettled: Vec<u32>,
    /// Guests who have logged in and are guests no more.
    gone: Vec<u32>,
    pub(crate) placed: Vec<Placed>,
    /// The ids of those that were placed.
    order_ids: HashSet<Box<str>>,
    taken: Taken,
    /// One of so many reads is checked; none of 0.
    check_one_in: u64,
    /// Chooses the reads that are checked. Its own, so that checking does not change what is asked for.
    sample: Random,
    pub(crate) checks: Checks,
}

/// Before an order whose answer was lost is asked for again.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// As many as an order may have.
const ORDER_LINES_MAX: usize = 200;

/// What is due.
#[derive(Clone, Debug)]
pub(crate) enum Wish {
    /// Something of this kind; who and what is up to the crowd.
    Any(Operation),
    /// The page of this product.
    Page(u32),
    /// An order of these lines, by whoever is free.
    Order(Arc<BTreeMap<u32, u64>>),
}

impl Crowd {
    /// `shoppers` are users first and then guests.
    pub(crate) fn new(
        profile: Profile,
        goods: Goods,
        zones: Vec<String>,
        shoppers: Vec<Shopper>,
        run: String,
        seed: u64,
    ) -> Self {
        let numbers = (0..).zip(&goods.products).map(|(number, product)| (product.id.clone(), number));
        Self {
            numbers: numbers.collect(),
            goods,
            zones,
            users: shoppers.iter().filter(|shopper| shopper.credentials.is_some()).count(),
            shoppers,
            buyers: 0,
            profile,
            random: Random::new(seed),
            body: String::new(),
            run,
            keys: 0,
            unsettled: Vec::new(),
            gone: Vec::new(),
            placed: Vec::new(),
            order_ids: HashSet::new(),
            taken: Taken::default(),
            check_one_in: 0,
            sample: Random::new(seed.rotate_left(32)),
            checks: Checks::default(),
        }
    }

    /// Says how many of the reads are checked: one of so many, and none of 0. All writes are.
    pub(crate) fn check_one_in(&mut self, reads: u64) {
        self.check_one_in = reads;
    }

    pub(crate) fn checked_one_in(&self) -> u64 {
        self.check_one_in
    }

    /// Says what was in stock, before it was filled up and after.
    pub(crate) fn know_stock(&mut self, earlier: &AllStock, stock: &AllStock) {
        self.taken = Taken::new(&self.zones, earlier, stock);
    }

    /// The next request; `None` when everybody who could ask is busy.
    pub(crate) fn ask(&mut self, wish: &Wish, at_ms: i64, out: &mut Request) -> Option<Asked> {
        match wish {
            Wish::Any(operation) => self.ask_any(*operation, at_ms, out),
            Wish::Page(product) => Some(self.look_at(*product, out)),
            Wish::Order(lines) => self.order_of(lines.as_ref().clone(), out),
        }
    }

    /// The number of a product of the catalogue.
    pub(crate) fn number(&self, id: &str) -> Option<u32> {
        self.numbers.get(id).copied()
    }

    fn look_at(&mut self, product: u32, out: &mut Request) -> Asked {
        out.put("GET", &["/v1/products/", &self.goods.product(product).id], Parts::default());
        self.sampled(Operation::ProductPage, What::Product { product })
    }

    /// A read, which is checked if it is in the sample.
    fn sampled(&mut self, operation: Operation, what: What) -> Asked {
        let checked = self.check_one_in > 0 && self.sample.below(self.check_one_in) == 0;
        Asked { operation, what: if checked { what } else { What::Unchecked } }
    }

    fn ask_any(&mut self, operation: Operation, at_ms: i64, out: &mut Request) -> Option<Asked> {
        match operation {
            Operation::ProductPage => {
                let product = self.choose(at_ms);
                Some(self.look_at(product, out))
            }
            Operation::CategoryPage => {
                let (path, range) = self.goods.category_page(&mut self.random);
                out.put("GET", &path, Parts::default());
                Some(self.sampled(operation, What::Listing { range }))
            }
            Operation::CartAdd => self.add(at_ms, out),
            // Whoever has nothing in the cart puts something in.
            Operation::CartChange => self.change(out).or_else(|| self.add(at_ms, out)),
            Operation::CartRead => {
                let shopper = self.anybody(|_| true)?;
                let Shopper { changes, .. } = self.shoppers[shopper as usize];
                out.put("GET", &["/v1/cart"], self.shoppers[shopper as usize].reads());
                Some(self.sampled(operation, What::Cart { shopper, changes }))
            }
            Operation::Order => self.order(at_ms, out),
            // Whoever has not ordered yet looks at an empty history.
            Operation::OrderStatus => self.status(out).or_else(|| self.history(out)),
            Operation::OrderHistory => self.history(out),
            Operation::Login => self.login(out),
            Operation::GuestSession => self.new_guest(out),
        }
    }

    /// The lines of an order or a cart by the numbers of their products; `None` when one is of no product.
    pub(crate) fn numbered(&self, items: &[LineAnswer<'_>]) -> Option<BTreeMap<u32, u64>> {
        let mut lines = BTreeMap::new();
        for item in items {
            *lines.entry(*self.numbers.get(item.product_id)?).or_default() += item.quantity;
        }
        Some(lines)
    }

    /// Whether a guest has logged in and left a place for another.
    pub(crate) fn lacks_guests(&self) -> bool {
        !self.gone.is_empty()
    }

    /// Whether there is a product that for a while many want.
    pub(crate) fn has_flash_sale(&self) -> bool {
        !self.profile.flash.is_empty() || self.profile.goods.flash_stock.is_some()
    }

    /// Users whose last order may or may not be placed.
    pub(crate) fn unsettled(&self) -> &[u32] {
        &self.unsettled
    }

    /// The request for an order of which it is not known what became.
    pub(crate) fn ask_again(&mut self, user: u32, out: &mut Request) -> Option<Asked> {
        let shopper = &mut self.shoppers[user as usize];
        shopper.begin_change();
        let pending = shopper.pending.as_mut()?;
        pending.asked_at = Instant::now();
        pending.sends += 1;
        self.taken.send(&pending.units, pending.zone);
        let parts = Parts {
            token: Some(&shopper.token),
            idempotency_key: Some(&pending.key),
            body: Some(&pending.body),
            ..Parts::default()
        };
        out.put("POST", &["/v1/orders"], parts);
        Some(Asked { operation: Operation::Order, what: What::Order { shopper: user } })
    }

    fn released(&mut self, shopper: u32) -> &mut Shopper {
        let shopper = &mut self.shoppers[shopper as usize];
        shopper.busy = false;
        shopper
    }

    /// A product that somebody wants; in a flash sale mostly the one that all want.
    fn choose(&mut self, at_ms: i64) -> u32 {
        let flash = self.profile.flash.iter().find(|flash| {
            (flash.at.as_ms()..flash.at.as_ms().saturating_add(flash.lasts.as_ms())).contains(&at_ms)
        });
        match flash {
            Some(flash) if self.random.percent(flash.percent) => self.goods.most_wanted(),
            _ => self.goods.wanted(&mut self.random),
        }
    }

    /// Somebody of these who is free.
    fn somebody(&mut self, from: usize, to: usize, wanted: impl Fn(&Shopper) -> bool) -> Option<u32> {
        let count = (to - from) as u64;
        (0..TRIES_MAX).find_map(|_| {
            let at = from + self.random.below(count) as usize;
            let shopper = &self.shoppers[at];
            (shopper.is_free() && wanted(shopper)).then_some(at as u32)
        })
    }

    fn anybody(&mut self, wanted: impl Fn(&Shopper) -> bool) -> Option<u32> {
        // A guest who is gone has no token.
        self.somebody(0, self.shoppers.len(), |shopper| !shopper.token.is_empty() && wanted(shopper))
    }

    fn add(&mut self, at_ms: i64, out: &mut Request) -> Option<Asked> {
        let shopper = self.anybody(|_| true)?;
        let mut product = self.choose(at_ms);
        let units = 1 + self.random.below(UNITS_MAX);
        let lines = &self.shoppers[shopper as usize].cart.lines;
        if lines.len() >= self.profile.shoppers.cart_lines_max {
            let nth = self.random.below(lines.len() as u64) as usize;
            product = *self.shoppers[shopper as usize].cart.lines.keys().nth(nth)?;
        }
        let released = self.taken.released(product);
        self.shoppers[shopper as usize].begin_change();
        let Shopper { token, zone, .. } = &self.shoppers[shopper as usize];
        let (id, zone) = (&self.goods.product(product).id, &self.zones[usize::from(*zone)]);
        self.body.clear();
        // Writing to memory cannot fail.
        let _ = write!(self.body, r#"{{"product_id":"{id}","quantity":{units},"geo_zone":"{zone}"}}"#);
        out.put("POST", &["/v1/cart/items"], Parts { body: Some(&self.body), ..Parts::of(token) });
        Some(Asked { operation: Operation::CartAdd, what: What::Add { shopper, product, units, released } })
    }

    fn change(&mut self, out: &mut Request) -> Option<Asked> {
        let shopper = self.anybody(|shopper| !shopper.cart.lines.is_empty())?;
        let (chance, units) = (self.random.below(100), 1 + self.random.below(UNITS_MAX));
        let lines = &self.shoppers[shopper as usize].cart.lines;
        let nth = self.random.below(lines.len() as u64) as usize;
        let product = *lines.keys().nth(nth)?;
        let released = self.taken.released(product);
        self.shoppers[shopper as usize].begin_change();
        let Shopper { token, stuck, .. } = &self.shoppers[shopper as usize];
        let what = if *stuck || chance < 5 {
            out.put("DELETE", &["/v1/cart"], Parts::of(token));
            What::Clear { shopper }
        } else {
            let path = ["/v1/cart/items/", &*self.goods.product(product).id];
            if chance < 30 {
                out.put("DELETE", &path, Parts::of(token));
                What::Set { shopper, product, units: 0, released }
            } else {
                self.body.clear();
                let _ = write!(self.body, r#"{{"quantity":{units}}}"#);
                out.put("PUT", &path, Parts { body: Some(&self.body), ..Parts::of(token) });
                What::Set { shopper, product, units, released }
            }
        };
        Some(Asked { operation: Operation::CartChange, what })
    }

    fn order(&mut self, at_ms: i64, out: &mut Request) -> Option<Asked> {
        let is_due = |user: &&u32| {
            let shopper = &self.shoppers[**user as usize];
            let waited = |pending: &Pending| pending.asked_at.elapsed() >= ASK_AGAIN_AFTER;
            !shopper.busy && shopper.pending.as_deref().is_some_and(waited)
        };
        if let Some(user) = self.unsettled.iter().find(is_due).copied() {
            return self.ask_again(user, out);
        }
        let wholesale =
            self.profile.wholesale.filter(|wholesale| self.random.percent(wholesale.orders_percent));
        let user = match wholesale {
            Some(_) => self.shoppers[0].is_free().then_some(0)?,
            None if self.profile.shoppers.order_once => self.next_buyer()?,
            None => self.somebody(0, self.users, |_| true)?,
        };
        let of_cart = wholesale.is_none() && self.random.percent(self.profile.shoppers.cart_orders_percent);
        let shopper = &self.shoppers[user as usize];
        let fits = shopper.cart.lines.len() <= ORDER_LINES_MAX;
        let of_cart = of_cart && !shopper.stuck && fits && shopper.cart.holds_something();
        let mut zone = shopper.zone;
        let lines = (!of_cart).then(|| {
            let wanted = wholesale.map_or(1, |wholesale| wholesale.lines);
            let mut lines = BTreeMap::new();
            // Of what there is too little for all, everybody wants one.
            let units_max = if self.profile.goods.flash_stock.is_some() { 1 } else { UNITS_MAX };
            for _ in 0..wanted {
                let units = 1 + self.random.below(units_max);
                lines.insert(self.choose(at_ms), units);
            }
            lines
        });
        if self.profile.goods.flash_stock.is_some() {
            zone = 0;
        }
        self.begin_order(user, zone, lines, out)
    }

    /// The next user, where each orders once. `None` when all have.
    fn next_buyer(&mut self) -> Option<u32> {
        let buyer = (self.buyers < self.users).then_some(self.buyers as u32)?;
        self.buyers += 1;
        Some(buyer)
    }

    fn order_of(&mut self, lines: BTreeMap<u32, u64>, out: &mut Request) -> Option<Asked> {
        let user = self.somebody(0, self.users, |_| true)?;
        let zone = self.shoppers[user as usize].zone;
        self.begin_order(user, zone, Some(lines), out)
    }

    /// Under a key of its own, which stays with it until it is known what became of it.
    fn begin_order(
        &mut self,
        user: u32,
        zone: u16,
        lines: Option<BTreeMap<u32, u64>>,
        out: &mut Request,
    ) -> Option<Asked> {
        let body = self.order_body(zone, lines.as_ref());
        self.keys += 1;
        let key = format!("{}-{}", self.run, self.keys);
        let shopper = &mut self.shoppers[user as usize];
        let units = match &lines {
            Some(lines) => lines.iter().map(|(product, units)| (*product, *units)).collect(),
            None => shopper.cart.at_most(),
        };
        let released = units.iter().map(|(product, _)| self.taken.released(*product)).collect();
        shopper.orders_begun = shopper.orders_begun.wrapping_add(1);
        let pending = Pending { key, body, zone, lines, units, released, sends: 0, asked_at: Instant::now() };
        shopper.pending = Some(Box::new(pending));
        self.ask_again(user, out)
    }

    fn order_body(&self, zone: u16, lines: Option<&BTreeMap<u32, u64>>) -> String {
        let mut body = format!(r#"{{"geo_zone":"{}""#, self.zones[usize::from(zone)]);
        for (at, (product, units)) in lines.into_iter().flatten().enumerate() {
            let before = if at == 0 { r#","items":["# } else { "," };
            let id = &self.goods.product(*product).id;
            // Writing to memory cannot fail.
            let _ = write!(body, r#"{before}{{"product_id":"{id}","quantity":{units}}}"#);
        }
        body.push_str(if lines.is_some() { "]}" } else { "}" });
        body
    }

    fn history(&mut self, out: &mut Request) -> Option<Asked> {
        let user = self.random.below(self.users as u64) as u32;
        let shopper = &self.shoppers[user as usize];
        out.put("GET", &["/v1/orders?limit=20"], shopper.reads());
        let last = shopper.last_order.as_ref().map(|last| last.placed);
        let what = What::History { user, last, orders_begun: shopper.orders_begun };
        Some(self.sampled(Operation::OrderHistory, what))
    }

    fn status(&mut self, out: &mut Request) -> Option<Asked> {
        let user = self.somebody(0, self.users, |shopper| shopper.last_order.is_some())?;
        let shopper = &self.shoppers[user as usize];
        let placed = shopper.last_order.as_ref()?.placed;
        out.put("GET", &["/v1/orders/", &self.placed[placed as usize].id], shopper.reads());
        Some(self.sampled(Operation::OrderStatus, What::PlacedOrder { placed }))
    }

    fn login(&mut self, out: &mut Request) -> Option<Asked> {
        let all = self.shoppers.len();
        let guest = self.somebody(self.users, all, |guest| !guest.token.is_empty())?;
        let user = self.somebody(0, self.users, |_| true)?;
        self.shoppers[guest as usize].begin_change();
        self.shoppers[user as usize].begin_change();
        let credentials = self.shoppers[user as usize].credentials.as_deref();
        let parts = Parts { body: credentials, ..Parts::of(&self.shoppers[guest as usize].token) };
        out.put("POST", &["/v1/sessions/login"], parts);
        Some(Asked { operation: Operation::Login, what: What::Login { guest, user } })
    }

    fn new_guest(&mut self, out: &mut Request) -> Option<Asked> {
        let guest = self.gone.pop()?;
        out.put("POST", &["/v1/sessions"], Parts { body: Some("{}"), ..Parts::default() });
        Some(Asked { operation: Operation::GuestSession, what: What::Guest { guest } })
    }
}
