//! Whether everything that clients were answered can be true together, and agrees with what is stored in the
//! end. Knows nothing of how the history came about.

mod cart_edits;

use std::collections::{BTreeMap, BTreeSet};

use mobimir_core::order::OrderStatus;

use crate::{
    abandoned::{self, FinalLists},
    history::{Answer, Call, Customer, Item, Operation},
    history_only::{self, Owed},
    reach::DataCentres,
};

/// What is stored when everything is settled.
#[derive(Clone, Debug, Default)]
pub struct FinalState {
    pub carts: BTreeMap<Customer, Vec<(Item, u64)>>,
    /// Of every key that was asked for, the order, if there is one.
    pub orders: BTreeMap<(Customer, String), Option<FinalOrder>>,
    pub stock: BTreeMap<Item, FinalStock>,
    /// If instances were in several.
    pub data_centres: Option<DataCentres>,
    /// When copies of orders were owed to a separate history.
    pub owed: Vec<Owed>,
    /// Where carts are left behind.
    pub abandoned: Option<FinalLists>,
}

#[derive(Clone, Debug)]
pub struct FinalOrder {
    pub id: String,
    pub lines: Vec<(Item, u64, i64)>,
    /// Whether its lines were taken out of the cart.
    pub is_of_cart: bool,
    pub history: Vec<(String, Option<String>)>,
    pub is_in_history: bool,
    pub is_in_day: bool,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct FinalStock {
    /// Before anything was sold or put in.
    pub initial: u64,
    pub available: u64,
    pub reserved: u64,
    pub sold: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub invariant: &'static str,
    pub what: String,
}

/// What the judgement depends on beside the history.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub session_cache_ms: i64,
    pub staleness_ms: i64,
    pub checkout_deadline_ms: i64,
}

pub fn check(operations: &[Operation], end: &FinalState, limits: Limits) -> Vec<Violation> {
    let mut checker = Checker {
        operations,
        end,
        limits,
        asked: BTreeMap::new(),
        adds: BTreeMap::new(),
        edits: BTreeMap::new(),
        merges: BTreeMap::new(),
        violations: Vec::new(),
    };
    checker.index();
    checker.keys();
    checker.orders_are_found();
    checker.histories();
    checker.carts_in_the_end();
    checker.carts_as_read();
    checker.tokens();
    checker.stock();
    checker.prices();
    checker.violations.extend(history_only::check(operations, end));
    checker.violations.extend(abandoned::check(operations, end));
    checker.violations
}

struct Checker<'a> {
    operations: &'a [Operation],
    end: &'a FinalState,
    limits: Limits,
    /// Every request of a key.
    asked: BTreeMap<(Customer, &'a str), Vec<&'a Operation>>,
    /// Adds of an item to the cart of a customer, also as a guest, and lines that were set.
    adds: BTreeMap<(Customer, Item), Vec<&'a Operation>>,
    /// What replaced or removed lines of a cart.
    edits: BTreeMap<Customer, Vec<&'a Operation>>,
    /// Logins with the cart of a guest.
    merges: BTreeMap<usize, Vec<&'a Operation>>,
    violations: Vec<Violation>,
}

/// What was put into carts: certainly, and perhaps.
#[derive(Clone, Copy, Debug, Default)]
struct Units {
    certain: u64,
    perhaps: u64,
}

impl Operation {
    fn is_done(&self) -> bool {
        !matches!(self.answer, Answer::Refused(_) | Answer::NotNow | Answer::Open)
    }

    fn may_be_done(&self) -> bool {
        !matches!(self.answer, Answer::Refused(_))
    }

    fn is_before(&self, later: &Operation) -> bool {
        self.answered_ms <= later.asked_ms
    }

    fn has_begun_before_the_end_of(&self, other: &Operation) -> bool {
        self.asked_ms <= other.answered_ms
    }
}

impl<'a> Checker<'a> {
    /// A history of real servers is long.
    fn index(&mut self) {
        for operation in self.operations {
            match &operation.call {
                Call::Order { customer, key, .. } => {
                    self.asked.entry((*customer, key)).or_default().push(operation);
                }
                Call::Add { customer, item, .. } => {
                    self.adds.entry((*customer, *item)).or_default().push(operation);
                }
                Call::SetLine { customer, item, .. } => {
                    self.adds.entry((*customer, *item)).or_default().push(operation);
                    self.edits.entry(*customer).or_default().push(operation);
                }
                Call::Clear { customer } => self.edits.entry(*customer).or_default().push(operation),
                Call::Merge { guest, .. } => self.merges.entry(*guest).or_default().push(operation),
                _ => {}
            }
        }
    }

    fn requests_of(&self, customer: Customer, key: &'a str) -> &[&'a Operation] {
        self.asked.get(&(customer, key)).map_or(&[], Vec::as_slice)
    }

    fn fail(&mut self, invariant: &'static str, what: String) {
        self.violations.push(Violation { invariant, what });
    }

    /// Whether a read has to see what was acknowledged before it, by one data centre alone.
    fn sees(&self, acknowledged: &Operation, read: &Operation) -> bool {
        self.end.data_centres.as_ref().is_none_or(|dcs| dcs.sees(acknowledged, read))
    }

    fn sees_decided(&self, decided: &Operation, read: &Operation) -> bool {
        self.end.data_centres.as_ref().is_none_or(|dcs| dcs.sees_decided(decided, read))
    }

    /// The same of what was acknowledged by every data centre.
    fn sees_everywhere(&self, read: &Operation) -> bool {
        self.end.data_centres.as_ref().is_none_or(|dcs| dcs.sees_everywhere(read))
    }

    /// ORD-2: one key, one answer, one order, and what was asked for.
    fn keys(&mut self) {
        for ((customer, key), order) in &self.end.orders {
            let (mut placed, mut refused) = (None, None);
            let mut failures = Vec::new();
            let asked = self.requests_of(*customer, key);
            let first_ms = asked.iter().map(|operation| operation.asked_ms).min().unwrap_or_default();
            for operation in asked {
                let Call::Order { lines: asked, shown, .. } = &operation.call else { continue };
                match &operation.answer {
                    Answer::Placed { order: id, lines, .. } => {
                        let before = placed.get_or_insert_with(|| (id.clone(), lines.clone()));
                        if *before != (id.clone(), lines.clone()) {
                            failures.push(format!("key {key} was answered {before:?} and {lines:?}"));
                        }
                        let units = |lines: &[(Item, u64, i64)]| -> Vec<(Item, u64)> {
                            lines.iter().map(|(item, units, _)| (*item, *units)).collect()
                        };
                        if asked.as_ref().is_some_and(|asked| *asked != units(lines)) {
                            failures.push(format!("key {key} asked for {asked:?} and got {lines:?}"));
                        }
                        if shown.as_ref().is_some_and(|shown| shown != lines) {
                            failures.push(format!("key {key} was shown {shown:?} and sold {lines:?}"));
                        }
                    }
                    Answer::Refused("expired")
                        if operation.answered_ms < first_ms + self.limits.checkout_deadline_ms =>
                    {
                        failures.push(format!("key {key} was given up before its deadline: {operation:?}"));
                    }
                    Answer::Refused(reason @ ("out_of_stock" | "expired" | "cart_ordered")) => {
                        refused = Some(*reason);
                    }
                    _ => {}
                }
            }
            match (&placed, refused, order) {
                (Some(placed), Some(refused), _) => {
                    failures.push(format!("key {key} was answered {placed:?} and {refused}"));
                }
                (_, Some(refused), Some(order)) => {
                    failures.push(format!("key {key} was answered {refused} and is order {}", order.id));
                }
                (Some((id, lines)), None, Some(order)) if order.id != *id || order.lines != *lines => {
                    failures.push(format!("key {key} was answered {lines:?} and is {order:?}"));
                }
                _ => {}
            }
            failures.into_iter().for_each(|what| self.fail("ORD-2", what));
            match (&placed, order) {
                (Some(placed), None) => self.fail("ORD-1", format!("key {key}: {placed:?} is not there")),
                (_, Some(order)) if !order.is_in_history || !order.is_in_day => {
                    self.fail("ORD-1", format!("key {key}: a list lacks {order:?}"));
                }
                _ => {}
            }
        }
    }

    /// ORD-1, from the acknowledgement on.
    fn orders_are_found(&mut self) {
        let mut failures = Vec::new();
        let placed =
            self.operations.iter().filter_map(|operation| match (&operation.call, &operation.answer) {
                (Call::Order { customer, .. }, Answer::Placed { order, lines, .. }) => {
                    Some((operation, *customer, order, lines))
                }
                _ => None,
            });
        let placed: Vec<_> = placed.collect();
        for read in self.operations {
            for (acknowledged, customer, order, lines) in &placed {
                if !acknowledged.is_before(read) || !self.sees_everywhere(read) {
                    continue;
                }
                match (&read.call, &read.answer) {
                    (Call::ReadOrder { order: id }, Answer::Order(found))
                        if id == *order && found.as_ref() != Some(lines) =>
                    {
                        failures.push(format!("order {order} was read as {found:?} by {read:?}"));
                    }
                    (Call::ListOrders { customer: of }, Answer::Orders(listed))
                        if of == customer && !listed.contains(order) && !self.end.was_owed(order, read) =>
                    {
                        failures.push(format!("order {order} is missing in {read:?}"));
                    }
                    _ => {}
                }
            }
        }
        failures.into_iter().for_each(|what| self.fail("ORD-1", what));
    }

    /// ORD-3: along the machine, and every move once.
    fn histories(&mut self) {
        let mut failures = Vec::new();
        let is_legal = |history: &[(String, Option<String>)]| {
            let statuses: Option<Vec<OrderStatus>> =
                history.iter().map(|(status, _)| OrderStatus::parse(status)).collect();
            statuses.is_some_and(|statuses| statuses.windows(2).all(|pair| pair[0].can_become(pair[1])))
        };
        let read =
            self.operations.iter().filter_map(|operation| match (&operation.call, &operation.answer) {
                (Call::ReadHistory { order }, Answer::History(history)) => {
                    Some((order.clone(), history.clone(), Some(operation)))
                }
                _ => None,
            });
        let stored = self.end.orders.values().flatten();
        let stored = stored.map(|order| (order.id.clone(), order.history.clone(), None));
        for (order, history, read) in read.chain(stored) {
            if !is_legal(&history) {
                failures.push(format!("order {order} went through {history:?}"));
            }
            for operation in self.operations {
                let Call::Move { order: moved, to, operator } = &operation.call else { continue };
                if *moved != order {
                    continue;
                }
                let line = (String::from(*to), Some(operator.clone()));
                let times = history.iter().filter(|at| **at == line).count();
                let is_certain = operation.is_done()
                    && read.is_none_or(|read| operation.is_before(read) && self.sees_everywhere(read));
                if times > 1 || is_certain && times == 0 || times > 0 && !operation.may_be_done() {
                    failures.push(format!("{times} times in {history:?}: {operation:?}"));
                }
            }
        }
        failures.into_iter().for_each(|what| self.fail("ORD-3", what));
    }

    /// What went into the cart of a customer, also as a guest: asked for by the end of `until`, acknowledged
    /// before it began.
    fn put_in(&self, customer: Customer, item: Item, until: Option<&Operation>) -> Units {
        let mut units = Units::default();
        for add in self.adds.get(&(customer, item)).map_or(&[][..], Vec::as_slice) {
            let (guest, count) = match &add.call {
                Call::Add { guest, units, .. } => (guest, units),
                Call::SetLine { units, .. } => (&None, units),
                _ => continue,
            };
            if !add.may_be_done() {
                continue;
            }
            if self.is_taken_out(add, item, until) {
                continue;
            }
            if until.is_some_and(|read| !add.has_begun_before_the_end_of(read)) {
                continue;
            }
            let has_arrived = match guest {
                None => add.is_done() && until.is_none_or(|read| add.is_before(read) && self.sees(add, read)),
                Some(guest) => {
                    let of_guest = self.merges.get(guest).map_or(&[][..], Vec::as_slice).iter();
                    let merges: Vec<&&Operation> = of_guest
                        .filter(|merge| until.is_none_or(|read| merge.has_begun_before_the_end_of(read)))
                        .collect();
                    if merges.is_empty() {
                        continue;
                    }
                    // Of several tries it cannot be told which one moved the cart, and what comes beside the
                    // login is moved a little later; in the end all has arrived.
                    let is_merged = |merge: &&&Operation| {
                        let at_once = |read| {
                            merges.len() == 1
                                && merge.is_before(read)
                                && add.is_before(merge)
                                && self.sees(merge, read)
                                && self.sees(add, merge)
                        };
                        merge.is_done() && until.is_none_or(at_once)
                    };
                    add.is_done() && merges.iter().any(is_merged)
                }
            };
            if has_arrived && !self.may_be_taken_out(add, customer, item, until) {
                units.certain += count;
            } else {
                units.perhaps += count;
            }
        }
        units
    }

    fn items(&self) -> BTreeSet<Item> {
        self.end.stock.keys().copied().collect()
    }

    /// What orders of the cart have taken, of those that `counts` accepts.
    fn taken(&self, customer: Customer, item: Item, counts: impl Fn(&[&Operation]) -> bool) -> u64 {
        let mut taken = 0;
        for ((of, key), order) in &self.end.orders {
            let of_cart = |order: &&FinalOrder| *of == customer && order.is_of_cart;
            let Some(order) = order.as_ref().filter(of_cart) else { continue };
            let of_cart = |operation: &&&Operation| matches!(operation.call, Call::Order { lines: None, .. });
            let asked: Vec<&Operation> = self.requests_of(*of, key).iter().filter(of_cart).copied().collect();
            if !asked.is_empty() && counts(&asked) {
                taken += order.lines.iter().filter(|line| line.0 == item).map(|line| line.1).sum::<u64>();
            }
        }
        taken
    }

    /// CRT-1, CRT-2, CRT-4: what was put in is in the cart or in one order.
    fn carts_in_the_end(&mut self) {
        let mut failures = Vec::new();
        for (customer, cart) in &self.end.carts {
            for item in self.items() {
                let put_in = self.put_in(*customer, item, None);
                let ordered = self.taken(*customer, item, |_| true);
                let in_cart: u64 = cart.iter().filter(|line| line.0 == item).map(|line| line.1).sum();
                let (found, most) = (in_cart + ordered, put_in.certain + put_in.perhaps);
                let what = format!(
                    "customer {customer}, item {item}: {in_cart} in the cart and {ordered} ordered, put in {put_in:?}"
                );
                if found > most {
                    failures.push(("CRT-4", what));
                } else if found < put_in.certain {
                    failures.push(("CRT-1", what));
                }
            }
        }
        failures.into_iter().for_each(|(invariant, what)| self.fail(invariant, what));
    }

    /// The same for every read: own adds are there, and what was ordered is not.
    fn carts_as_read(&mut self) {
        let mut failures = Vec::new();
        for read in self.operations {
            let (Call::ReadCart { customer }, Answer::Cart(cart)) = (&read.call, &read.answer) else {
                continue;
            };
            for item in self.items() {
                let in_cart: u64 = cart.iter().filter(|line| line.0 == item).map(|line| line.1).sum();
                let put_in = self.put_in(*customer, item, Some(read));
                let placed_before = |asked: &[&Operation]| {
                    asked.iter().any(|o| matches!(o.answer, Answer::Placed { .. }) && o.is_before(read))
                        && self.sees_everywhere(read)
                };
                let begun = |asked: &[&Operation]| asked.iter().any(|o| o.has_begun_before_the_end_of(read));
                let most = (put_in.certain + put_in.perhaps).saturating_sub(self.taken(
                    *customer,
                    item,
                    placed_before,
                ));
                let least = put_in.certain.saturating_sub(self.taken(*customer, item, begun));
                if in_cart > most || in_cart < least {
                    let invariant = if in_cart > most { "CRT-4" } else { "CRT-1" };
                    failures
                        .push((invariant, format!("item {item}: expected {least} to {most} in {read:?}")));
                }
            }
        }
        failures.into_iter().for_each(|(invariant, what)| self.fail(invariant, what));
    }

    /// SES-1 to SES-3.
    fn tokens(&mut self) {
        let mut failures = Vec::new();
        let cache_ms = self.limits.session_cache_ms;
        for operation in self.operations {
            match (&operation.call, &operation.answer) {
                (Call::Present { session, token }, Answer::Refused(_))
                    if !self.may_be_ended(*session, *token, operation)
                        && self.was_issued_to(*session, *token, operation) =>
                {
                    failures.push((
                        "SES-3",
                        format!("refused, and it is the token of its session: {operation:?}"),
                    ));
                }
                (Call::Present { session, token }, Answer::Done) => {
                    // On the instance that ended it at once, on the others when they look it up again.
                    let ended = self.ended_ms(*session, *token, None, operation);
                    let ended_here = self.ended_ms(*session, *token, Some(operation.instance), operation);
                    if ended.is_some_and(|ended| ended + cache_ms < operation.asked_ms)
                        || ended_here.is_some_and(|ended| ended < operation.asked_ms)
                    {
                        failures.push(("SES-3", format!("it was ended at {ended:?}: {operation:?}")));
                    }
                }
                (Call::Refresh { session, token }, answer) => {
                    let same = |other: &&Operation| other.call == operation.call && *other != operation;
                    let others: Vec<&Operation> = self.operations.iter().filter(same).collect();
                    let has_worked = |other: &&Operation| matches!(other.answer, Answer::Tokens(_));
                    if matches!(answer, Answer::Tokens(_)) && others.iter().any(has_worked) {
                        failures
                            .push(("SES-2", format!("session {session}: token {token} has worked twice")));
                    }
                    let was_tried = others.iter().any(|other| other.has_begun_before_the_end_of(operation));
                    if *answer == Answer::Refused("refresh_token_used") && !was_tried {
                        failures.push(("SES-2", format!("it was never used before: {operation:?}")));
                    }
                    if *answer == Answer::Refused("bad_refresh_token")
                        && !self.may_be_ended(*session, *token, operation)
                        && self.was_issued_to(*session, *token, operation)
                    {
                        let what = format!("unknown, and it is the newest of its session: {operation:?}");
                        failures.push(("SES-3", what));
                    }
                }
                _ => {}
            }
        }
        failures.into_iter().for_each(|(invariant, what)| self.fail(invariant, what));
    }

    /// Whether anything that had begun by the end of `presented` may have ended the token.
    fn may_be_ended(&self, session: usize, token: usize, presented: &Operation) -> bool {
        let begun = |operation: &&Operation| {
            *operation != presented && operation.has_begun_before_the_end_of(presented)
        };
        self.operations.iter().filter(begun).any(|operation| match &operation.call {
            Call::LogOut { session: of } => *of == session && operation.may_be_done(),
            // The refreshes that gave out this token and those before it have ended only what was before them.
            Call::Refresh { session: of, .. } => {
                *of == session && !matches!(operation.answer, Answer::Tokens(next) if next <= token)
            }
            _ => false,
        })
    }

    /// Whether the session or token that was given out has to be known where it is presented.
    fn was_issued_to(&self, session: usize, token: usize, presented: &Operation) -> bool {
        let issued = self.operations.iter().find(|operation| match &operation.call {
            Call::LogIn { session: of } => *of == session && token == 0,
            Call::Refresh { session: of, .. } => *of == session && operation.answer == Answer::Tokens(token),
            _ => false,
        });
        issued.is_none_or(|issued| match issued.call {
            Call::LogIn { .. } => self.sees(issued, presented),
            _ => self.sees_decided(issued, presented),
        })
    }

    /// Since when the token is certainly ended, by this instance or any, for whoever presents it.
    fn ended_ms(
        &self,
        session: usize,
        token: usize,
        by: Option<usize>,
        presented: &Operation,
    ) -> Option<i64> {
        let by_it = |operation: &&Operation| {
            by.is_none_or(|instance| operation.instance == instance)
                && self.sees_decided(operation, presented)
        };
        let ends = self.operations.iter().filter(by_it).filter_map(|operation| {
            match (&operation.call, &operation.answer) {
                (Call::LogOut { session: of }, Answer::Done) if *of == session => Some(operation.answered_ms),
                (Call::Refresh { session: of, .. }, Answer::Tokens(next))
                    if *of == session && *next > token =>
                {
                    Some(operation.answered_ms)
                }
                (Call::Refresh { session: of, .. }, Answer::Refused("refresh_token_used"))
                    if *of == session =>
                {
                    Some(operation.answered_ms)
                }
                _ => None,
            }
        });
        ends.min()
    }

    /// STK-1, STK-2, in every answer and in the end.
    fn stock(&mut self) {
        let mut failures = Vec::new();
        let put_in = |item: Item, counts: &dyn Fn(&Operation) -> bool| -> u64 {
            let restocked = self.operations.iter().filter(|operation| counts(operation));
            restocked
                .filter_map(|operation| match operation.call {
                    Call::Restock { item: of, delta } if of == item => Some(delta.unsigned_abs()),
                    _ => None,
                })
                .sum()
        };
        for (item, stock) in &self.end.stock {
            let received = stock.available + stock.reserved + stock.sold;
            let least = stock.initial + put_in(*item, &Operation::is_done);
            let most = stock.initial + put_in(*item, &Operation::may_be_done);
            if received < least || received > most {
                failures.push(format!("item {item}: expected {least} to {most} in all, got {stock:?}"));
            }
            if stock.reserved > 0 {
                failures.push(format!("item {item}: something is still reserved: {stock:?}"));
            }
            let ordered: u64 = self
                .end
                .orders
                .values()
                .flatten()
                .filter(|order| order.history.last().is_none_or(|(status, _)| status != "cancelled"))
                .flat_map(|order| order.lines.iter())
                .filter(|line| line.0 == *item)
                .map(|line| line.1)
                .sum();
            if ordered != stock.sold {
                failures.push(format!("item {item}: {ordered} ordered, {} sold", stock.sold));
            }
            for operation in self.operations {
                let Call::Restock { item: of, .. } = &operation.call else { continue };
                let Answer::Stock { available, reserved, sold } = &operation.answer else { continue };
                let before =
                    |other: &Operation| other == operation || other.is_done() && other.is_before(operation);
                let begun =
                    |other: &Operation| other.may_be_done() && other.has_begun_before_the_end_of(operation);
                let (least, most) =
                    (stock.initial + put_in(*item, &before), stock.initial + put_in(*item, &begun));
                let received = available + reserved + sold;
                if of == item && (received < least || received > most) {
                    failures.push(format!("expected {least} to {most} in all in {operation:?}"));
                }
            }
        }
        failures.into_iter().for_each(|what| self.fail("STK-1", what));
    }

    /// RD-1: prices only rise, so a price says how old it is.
    fn prices(&mut self) {
        let mut failures = Vec::new();
        for view in self.operations {
            let (Call::ViewProduct { item }, Answer::Price(seen)) = (&view.call, &view.answer) else {
                continue;
            };
            // Of two who change a price at the same moment it cannot be told who was last.
            let by = self.operations.iter().filter_map(|operation| {
                matches!(operation.call, Call::Reprice { item: of, .. } if of == *item)
                    .then_some(operation.client)
            });
            if by.collect::<BTreeSet<usize>>().len() > 1 {
                continue;
            }
            let settled = self.operations.iter().filter_map(|operation| match operation.call {
                Call::Reprice { item: of, price }
                    if of == *item
                        && operation.is_done()
                        && operation.answered_ms + self.limits.staleness_ms <= view.asked_ms =>
                {
                    Some(price)
                }
                _ => None,
            });
            // One whose outcome is open may have arrived late.
            let may_have_come_late = self.operations.iter().any(|operation| {
                operation.call == Call::Reprice { item: *item, price: *seen }
                    && operation.answer == Answer::Open
            });
            if !may_have_come_late && settled.max().is_some_and(|settled| *seen < settled) {
                failures.push(format!("a price from before the budget: {view:?}"));
            }
        }
        failures.into_iter().for_each(|what| self.fail("RD-1", what));
    }
}
