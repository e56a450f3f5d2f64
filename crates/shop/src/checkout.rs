//! Placing an order. One record, in the store that holds the stock, decides; see `mobimir_core::checkout`.
//!
//! 1. The order's id follows from user and key. The checkout record is inserted if absent, before anything is taken.
//! 2. Each line is held in its product, all under this run's attempt id. Beside that, an order of the cart claims the cart
//!    ([`cart_claim`](crate::cart_claim)).
//! 3. With all lines held and the cart claimed the record moves `open -> committed`, naming the run; if a line is short or
//!    another order took the cart, `open -> aborted`.
//! 4. What was decided is carried out: the order is written, holds are settled, the cart is taken.
//!
//! Every step may be repeated and every crash between two steps is finished by the reconciler.

use std::{collections::HashMap, time::Duration};

use futures_util::future::{join, join_all, join3};
use mobimir_core::{
    checkout::{AbortReason, Checkout, CheckoutState, Fate, LINES_MAX, ShortLine, ShownLines},
    id::{AttemptId, OrderId, ProductId, UserId},
    invariant::Invariant,
    order::{Order, OrderLine},
    policy::ReadOperation,
    ports::{Period, StoreError},
    product::{Decision, Hold, HoldKind, HoldOutcome, QUANTITY_MAX, Verdict},
    reading,
    time::{Timestamp, Version},
    zone::Zone,
};
use thiserror::Error;

use crate::{
    Shop,
    cart_claim::{self, CartClaimed, CartToClaim, SeenClaim},
    faults::{Planted, Step, Stopped},
};

/// What a user asks for. Without lines, the cart.
#[derive(Clone, Debug)]
pub struct OrderRequest {
    pub geo_zone: Zone,
    pub items: Option<Vec<(ProductId, u64)>>,
    pub shipping_address: Option<String>,
    pub payment_method: Option<String>,
    /// Of all that was asked for; a second request under the same key must have the same.
    pub hash: [u8; 32],
    /// The lines and prices that the user was shown; nothing else is sold then.
    pub shown: Option<ShownLines>,
}

#[derive(Debug)]
pub struct Placed {
    pub order: Order,
    /// The answer was given before, to the same key.
    pub replayed: bool,
}

#[derive(Debug, Error)]
pub enum PlaceOrderError {
    /// With the order that took the last of it, if one did.
    #[error("there is nothing in the cart")]
    EmptyCart { ordered_by: Option<OrderId> },
    #[error("order {by} has taken the cart")]
    CartOrdered { by: OrderId, replayed: bool },
    #[error("the cart or the prices have changed since they were shown")]
    Changed,
    #[error("no product has the id {0}")]
    UnknownProduct(ProductId),
    #[error("zone {0} is not one of this shop's")]
    UnknownZone(Zone),
    #[error("expected 1 to {LINES_MAX} lines, got {0}")]
    TooManyLines(usize),
    #[error("expected at most {QUANTITY_MAX} of one product, got {quantity} of {product_id}")]
    TooMany { product_id: ProductId, quantity: u64 },
    #[error("some lines are short of stock")]
    OutOfStock { lines: Vec<ShortLine>, replayed: bool },
    #[error("this order was not finished in time and nothing was taken; order again under a new key")]
    Expired,
    #[error("this key was used for another request")]
    Mismatch,
    #[error("the order is being placed")]
    InProgress,
    #[error("too many orders for one product are being placed")]
    Busy,
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// How long to wait before asking again for a product whose hold list is full.
const FULL_WAIT_MS: u64 = 5;
/// Of so many orders, one is looked for before it is acknowledged.
const ORDERS_PER_SAMPLE: u8 = 32;
/// How often a lost race for the record is tried again before the caller is asked to come back.
const RACES_MAX: usize = 16;

impl Shop {
    pub async fn place_order(
        &self,
        user: UserId,
        key: &str,
        request: OrderRequest,
    ) -> Result<Placed, PlaceOrderError> {
        let order_id = OrderId::of(user, key);
        let give_up_at = self.now().plus_ms(self.settings().checkout_request_ms_max);
        // Entered before the record is read: no run of this instance inserts it after that. One at another instance is
        // found by the insert.
        let running = self.inner.running_checkouts.enter(order_id);
        let begun = self.stores().products.get_checkout(order_id).await?;
        // What is over needs nobody's leave to be told again.
        if let Some(begun) = &begun
            && let Some(answer) = self.replay(begun, &request).await?
        {
            return answer;
        }
        let _running = running.ok_or(PlaceOrderError::InProgress)?;
        // On one instance, orders of one cart come one after the other, so that the second finds the cart empty instead of
        // holding stock in vain. The claim decides, over all instances. Nobody waits for a turn to go on with a record that
        // others may be waiting for.
        let cart_turn = (request.items.is_none() && begun.is_none()).then(|| self.inner.cart_orders.of(user));
        let _cart_turn = match &cart_turn {
            Some(turn) => Some(turn.lock().await),
            None => None,
        };

        // The claim as it was before the cart was read; known only to the run that drafted the record.
        let mut seen_claim = None;
        let (mut checkout, mut replayed) = match begun {
            Some(checkout) => (checkout, true),
            None => match self.draft(order_id, user, &request, give_up_at).await {
                Ok((checkout, claim)) => {
                    match self.stores().products.insert_checkout(checkout.clone()).await? {
                        Some(earlier) => (earlier, true),
                        None => {
                            seen_claim = claim;
                            (checkout, false)
                        }
                    }
                }
                // The same request may run at another instance: then its own order has emptied the cart.
                Err(refused) => match self.stores().products.get_checkout(order_id).await? {
                    Some(earlier) => (earlier, true),
                    None => return Err(refused),
                },
            },
        };
        if checkout.request_hash != request.hash && !self.plants(Planted::RequestNotCompared) {
            return Err(PlaceOrderError::Mismatch);
        }
        self.inner.faults.reached(Step::CheckoutInserted).await?;

        for _ in 0..RACES_MAX {
            match &checkout.state {
                CheckoutState::Open => {
                    if let Some(decided) = self.run_attempt(&checkout, seen_claim.take(), give_up_at).await? {
                        checkout = decided;
                        // Whoever took the decision gives the first answer, also on a record found open.
                        replayed = false;
                    } else {
                        checkout = self.reload(order_id).await?;
                        replayed = true;
                    }
                }
                CheckoutState::Committed { .. } => {
                    self.carry_out(&checkout, give_up_at).await?;
                    // What another instance has carried out it may still owe to a separate history.
                    if checkout.due_at.is_some() {
                        self.sample_order(&checkout).await;
                    }
                    self.sample_cart_orders(&checkout).await;
                    return Ok(Placed { order: checkout.order(), replayed });
                }
                CheckoutState::Aborted { reason } => {
                    self.carry_out(&checkout, give_up_at).await?;
                    return Err(refusal(reason, replayed));
                }
            }
        }
        Err(PlaceOrderError::InProgress)
    }

    /// The answer to a request whose order was decided and carried out before; `None` while there is still work to do.
    async fn replay(
        &self,
        checkout: &Checkout,
        request: &OrderRequest,
    ) -> Result<Option<Result<Placed, PlaceOrderError>>, PlaceOrderError> {
        if checkout.request_hash != request.hash && !self.plants(Planted::RequestNotCompared) {
            return Err(PlaceOrderError::Mismatch);
        }
        if checkout.due_at.is_some() {
            return Ok(None);
        }
        Ok(match &checkout.state {
            CheckoutState::Open => None,
            CheckoutState::Committed { .. } => {
                // ORD-1, ORD-2: the one order of this key is there, with what was ordered. The answer does not wait for
                // an order store that is away: the record has all of it.
                if let Ok(stored) = self.stores().orders.get(checkout.order_id).await {
                    self.inner.invariants.check(Invariant::Ord1, stored.is_some());
                    let same = stored.is_none_or(|order| {
                        order.lines == checkout.lines && order.created_at == checkout.created_at
                    });
                    self.inner.invariants.check(Invariant::Ord2, same);
                }
                Some(Ok(Placed { order: checkout.order(), replayed: true }))
            }
            CheckoutState::Aborted { reason } => Some(Err(refusal(reason, true))),
        })
    }

    /// The record as it is first written: lines and prices as they are now, whatever becomes of the cart.
    async fn draft(
        &self,
        order_id: OrderId,
        user_id: UserId,
        request: &OrderRequest,
        give_up_at: Timestamp,
    ) -> Result<(Checkout, Option<SeenClaim>), PlaceOrderError> {
        if !self.settings().knows_zone(request.geo_zone) {
            return Err(PlaceOrderError::UnknownZone(request.geo_zone));
        }
        let (wanted, cart, seen_claim) = match &request.items {
            Some(items) => (items.clone(), None, None),
            None => {
                let CartToClaim { lines, take, claim } = self.cart_to_claim(user_id, give_up_at).await?;
                (lines, Some(take), Some(claim))
            }
        };
        let wanted = counted_together(&wanted)?;
        let ids: Vec<ProductId> = wanted.iter().map(|(product, _)| *product).collect();
        let current = self.stores().products.get_many(&ids);
        let products = reading::of(ReadOperation::PriceAtCheckout, current).await?;
        let lines = wanted
            .into_iter()
            .map(|(product_id, quantity)| {
                let product = products.get(&product_id).ok_or(PlaceOrderError::UnknownProduct(product_id))?;
                Ok(OrderLine {
                    product_id,
                    name: product.name.clone(),
                    category: product.category.clone(),
                    price: product.price,
                    quantity,
                })
            })
            .collect::<Result<Vec<_>, PlaceOrderError>>()?;
        let sold = || ShownLines::of(lines.iter().map(|line| (line.product_id, line.quantity, line.price)));
        if request.shown.is_some_and(|shown| shown != sold()) {
            return Err(PlaceOrderError::Changed);
        }
        let lines = if self.plants(Planted::PricesReadAfterComparison) {
            let products = self.stores().products.get_many(&ids).await?;
            let price =
                |line: &OrderLine| products.get(&line.product_id).map_or(line.price, |product| product.price);
            lines.iter().map(|line| OrderLine { price: price(line), ..line.clone() }).collect()
        } else {
            lines
        };
        let now = self.now();
        let deadline = self.store_now().plus_ms(self.settings().checkout_deadline_ms);
        let bucket = self.settings().order_buckets.bucket_of(order_id, now);
        let checkout = Checkout {
            order_id,
            user_id,
            request_hash: request.hash,
            geo_zone: request.geo_zone,
            lines,
            shipping_address: request.shipping_address.clone(),
            payment_method: request.payment_method.clone(),
            cart,
            created_at: now,
            deadline,
            bucket,
            state: CheckoutState::Open,
            fate: Fate::InStore,
            due_at: Some(deadline),
            version: Version::default().next(now),
        };
        Ok((checkout, seen_claim))
    }

    /// Holds every line and decides. `None` when somebody else decided meanwhile; this run's holds are back then.
    async fn run_attempt(
        &self,
        checkout: &Checkout,
        seen_claim: Option<SeenClaim>,
        give_up_at: Timestamp,
    ) -> Result<Option<Checkout>, PlaceOrderError> {
        let attempt = AttemptId(self.fresh_id());
        if self.plants(Planted::OrderWrittenUndecided) {
            self.stores().orders.insert(vec![checkout.order()]).await?;
        }
        let hold =
            join_all(checkout.lines.iter().map(|line| self.hold_line(checkout, line, attempt, give_up_at)));
        let (held, claimed) = join(hold, self.claim_cart(checkout, seen_claim, give_up_at)).await;
        let mut short = Vec::new();
        let mut busy = false;
        for outcome in held {
            match outcome? {
                LineHeld::Held => {}
                LineHeld::Short(line) => short.push(line),
                LineHeld::Busy => busy = true,
            }
        }
        self.inner.faults.reached(Step::AllLinesHeld).await?;
        let claimed = match claimed {
            Ok(claimed) => claimed,
            Err(error) => {
                self.give_back(checkout, attempt).await?;
                return Err(error);
            }
        };
        let is_lost = matches!(claimed, CartClaimed::By(_));
        if !is_lost
            && (busy || !short.is_empty() && self.another_run_holds(checkout, attempt, &short).await?)
        {
            self.give_back(checkout, attempt).await?;
            return Err(if busy { PlaceOrderError::Busy } else { PlaceOrderError::InProgress });
        }

        let now = self.store_now();
        let decided = match claimed {
            CartClaimed::By(by) => checkout.abort(AbortReason::CartOrdered { by }, now),
            CartClaimed::ByThis if short.is_empty() => checkout.commit(attempt, now),
            CartClaimed::ByThis => checkout.abort(AbortReason::OutOfStock { lines: short }, now),
        };
        if self.plants(Planted::SoldBeforeCommit)
            && let Ok(decided) = &decided
        {
            self.settle_lines(decided, decided.verdict()).await?;
        }
        let won = match decided {
            Ok(decided) => {
                let updated = self.stores().products.update_checkout(decided.clone(), checkout.version).await;
                match updated {
                    Err(StoreError::Unknown { .. }) if self.plants(Planted::UnknownTakenForDone) => {
                        Some(decided)
                    }
                    updated => updated?.then_some(decided),
                }
            }
            Err(_) => None,
        };
        match &won {
            Some(decided) if decided.is_committed() => {
                self.inner.faults.reached(Step::CheckoutCommitted).await?
            }
            Some(_) => self.inner.faults.reached(Step::CheckoutAborted).await?,
            None => self.give_back(checkout, attempt).await?,
        }
        Ok(won)
    }

    async fn hold_line(
        &self,
        checkout: &Checkout,
        line: &OrderLine,
        attempt: AttemptId,
        give_up_at: Timestamp,
    ) -> Result<LineHeld, PlaceOrderError> {
        loop {
            let now = self.now();
            let hold = Hold {
                order: checkout.order_id,
                attempt,
                kind: HoldKind::Sale,
                zone: checkout.geo_zone,
                quantity: line.quantity,
                placed_at: self.store_now(),
            };
            match self.stores().products.hold(line.product_id, hold, now).await? {
                HoldOutcome::Held | HoldOutcome::AlreadyHeld => {
                    self.inner.faults.reached(Step::LineHeld).await?;
                    return Ok(LineHeld::Held);
                }
                HoldOutcome::Short { available } => {
                    return Ok(LineHeld::Short(ShortLine {
                        product_id: line.product_id,
                        requested: line.quantity,
                        available,
                    }));
                }
                HoldOutcome::NoSuchProduct => {
                    return Ok(LineHeld::Short(ShortLine {
                        product_id: line.product_id,
                        requested: line.quantity,
                        available: 0,
                    }));
                }
                HoldOutcome::Full if self.now() < give_up_at => {
                    tokio::time::sleep(Duration::from_millis(FULL_WAIT_MS)).await
                }
                HoldOutcome::Full => return Ok(LineHeld::Busy),
            }
        }
    }

    /// Whether what is short is short because another run of this very order holds it: no reason to abort the order.
    async fn another_run_holds(
        &self,
        checkout: &Checkout,
        attempt: AttemptId,
        short: &[ShortLine],
    ) -> Result<bool, StoreError> {
        let ids: Vec<ProductId> = short.iter().map(|line| line.product_id).collect();
        let current = self.stores().products.get_many(&ids);
        let products = reading::of(ReadOperation::StockAtCheckout, current).await?;
        Ok(products.values().any(|product| {
            product.holds.iter().any(|hold| {
                hold.order == checkout.order_id && hold.attempt != attempt && hold.kind == HoldKind::Sale
            })
        }))
    }

    /// Takes back what one run holds, whatever the record says or will say of other runs.
    async fn give_back(&self, checkout: &Checkout, attempt: AttemptId) -> Result<(), StoreError> {
        let verdict = Verdict { sale: Decision::Failed(attempt), cancellation: Decision::Undecided };
        self.settle_lines(checkout, verdict).await
    }

    pub(crate) async fn settle_lines(&self, checkout: &Checkout, verdict: Verdict) -> Result<(), StoreError> {
        let is_aborted = matches!(checkout.state, CheckoutState::Aborted { .. });
        if is_aborted && self.plants(Planted::HoldsKeptAfterAbort) {
            return Ok(());
        }
        let now = self.now();
        let settled = join_all(
            checkout
                .lines
                .iter()
                .map(|line| self.stores().products.settle(line.product_id, checkout.order_id, verdict, now)),
        );
        settled.await.into_iter().try_for_each(|settled| settled.map(|_| ()))
    }

    /// Writes the consequences of what the record says. Safe to repeat, by anyone, at any time.
    async fn carry_out(&self, checkout: &Checkout, give_up_at: Timestamp) -> Result<(), PlaceOrderError> {
        if checkout.due_at.is_none() {
            return Ok(());
        }
        loop {
            match self.carry_out_once(checkout).await {
                // The decision stands, so a lost answer is asked for again until the request's time is up. A store that
                // says it cannot is believed at once: the shopper comes again, and the reconciler goes on.
                Err(PlaceOrderError::Store(StoreError::Unknown { .. })) if self.now() < give_up_at => {
                    tokio::time::sleep(Duration::from_millis(FULL_WAIT_MS * 10)).await;
                }
                other => return other,
            }
        }
    }

    pub(crate) async fn carry_out_once(&self, checkout: &Checkout) -> Result<(), PlaceOrderError> {
        let faults = &self.inner.faults;
        let write_order = async {
            if checkout.is_committed() {
                self.stores().orders.insert(vec![checkout.order()]).await?;
                faults.reached(Step::OrderWritten).await?;
            }
            Ok::<_, PlaceOrderError>(())
        };
        let settle = async {
            self.settle_lines(checkout, checkout.verdict()).await?;
            faults.reached(Step::LinesSettled).await?;
            Ok::<_, PlaceOrderError>(())
        };
        let take_cart = async {
            if checkout.is_committed() && checkout.cart.is_some() {
                self.take_cart(checkout).await?;
                faults.reached(Step::CartTaken).await?;
            }
            Ok::<_, PlaceOrderError>(())
        };
        // Each to its end: a write that is dropped because another failed is one of which nobody knows
        // whether it arrives.
        let (written, settled, taken) = join3(write_order, settle, take_cart).await;
        written.and(settled).and(taken)?;
        // A cancellation has more to write, and settles the record itself.
        if !matches!(checkout.fate, Fate::Cancelled { .. }) {
            self.mark_settled(checkout);
        }
        Ok(())
    }

    /// Appends the cover of a committed order to its cart.
    pub(crate) async fn take_cart(&self, checkout: &Checkout) -> Result<(), StoreError> {
        let now = self.now();
        let Some(cover) = cart_claim::cover_of(checkout, now) else { return Ok(()) };
        if self.plants(Planted::CartKeptAfterOrder) {
            return Ok(());
        }
        let owner = cover.origin;
        self.stores().carts.append(owner, vec![cover], self.user_cart_expiry(now), now).await
    }

    /// ORD-1, looked at for some orders just before they are acknowledged: found by id and in the owner's history. To
    /// look must not fail the shopper: what cannot be read now says nothing.
    async fn sample_order(&self, checkout: &Checkout) {
        if !checkout.order_id.as_bytes()[0].is_multiple_of(ORDERS_PER_SAMPLE) {
            return;
        }
        let orders = &self.stores().orders;
        let at = checkout.created_at;
        let moment = Period { from: Some(at), to: Some(at.plus_ms(1)) };
        let listed = orders.by_user(checkout.user_id, moment, None, mobimir_core::page::PAGE_ITEMS_MAX).await;
        let (Ok(listed), Ok(stored)) = (listed, orders.get(checkout.order_id).await) else { return };
        let in_history =
            listed.next.is_some() || listed.items.iter().any(|order| order.id == checkout.order_id);
        if !self.inner.invariants.check(Invariant::Ord1, stored.is_some() && in_history) {
            tracing::error!(order = %checkout.order_id, "ORD-1 is broken: a written order is not found");
        }
    }

    /// Nobody waits for this: a record that stays due is looked at once more, in vain.
    fn mark_settled(&self, checkout: &Checkout) {
        let (shop, checkout) = (self.clone(), checkout.clone());
        self.inner.environment.spawn(async move {
            let settled = checkout.settled(shop.now());
            if let Err(error) = shop.stores().products.update_checkout(settled, checkout.version).await {
                tracing::debug!(order = %checkout.order_id, %error, "a checkout stays due");
            }
        });
    }

    pub(crate) async fn reload(&self, order: OrderId) -> Result<Checkout, StoreError> {
        self.stores().products.get_checkout(order).await?.ok_or_else(|| StoreError::Corrupt {
            what: format!("the checkout of order {order} has vanished"),
            source: None,
        })
    }
}

fn refusal(reason: &AbortReason, replayed: bool) -> PlaceOrderError {
    match reason {
        AbortReason::OutOfStock { lines } => PlaceOrderError::OutOfStock { lines: lines.clone(), replayed },
        AbortReason::Expired => PlaceOrderError::Expired,
        AbortReason::CartOrdered { by } => PlaceOrderError::CartOrdered { by: *by, replayed },
    }
}

enum LineHeld {
    Held,
    Short(ShortLine),
    Busy,
}

/// Lines of the same product count together, in the order in which they first appear.
fn counted_together(items: &[(ProductId, u64)]) -> Result<Vec<(ProductId, u64)>, PlaceOrderError> {
    let mut position = HashMap::new();
    let mut lines: Vec<(ProductId, u64)> = Vec::new();
    for (product, quantity) in items {
        let at = *position.entry(*product).or_insert_with(|| {
            lines.push((*product, 0));
            lines.len() - 1
        });
        lines[at].1 = lines[at].1.saturating_add(*quantity);
    }
    if lines.is_empty() || lines.len() > LINES_MAX {
        return Err(PlaceOrderError::TooManyLines(lines.len()));
    }
    match lines.iter().find(|(_, quantity)| *quantity > QUANTITY_MAX) {
        Some((product_id, quantity)) => {
            Err(PlaceOrderError::TooMany { product_id: *product_id, quantity: *quantity })
        }
        None => Ok(lines),
    }
}
