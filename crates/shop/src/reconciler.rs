//! Finishes what a crash, a lost answer or a slow second run left open. Idempotent, takes no input, works
//! from what is stored, once before the shop opens and then every second.
//!
//! What gives stock back needs the store of products alone, and has a loop of its own: stores of orders and
//! carts that hang, and however many committed orders wait for them, do not hold it up.

use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use mobimir_core::{
    checkout::{Checkout, CheckoutState, Fate, RETRY_AFTER_MS_MAX, SETTLE_GRACE_MS},
    invariant::Invariant,
    ports::StoreError,
    product::{Decision, HoldKind, ProductPosition, ProductQuery, ProductSort, Verdict},
    session::Session,
    time::Timestamp,
};

use crate::{
    MoveOrderError, PlaceOrderError, Shop,
    faults::{Planted, Step},
};

/// So much longer than any request takes a hold may wait before somebody looks whether it was forgotten.
const HOLD_LOOK_BEYOND_REQUESTS_MS: i64 = 10_000;
/// So much later than the longest request no request of a guest's session that was closed can still be
/// running.
const MERGE_LOOK_BEYOND_REQUESTS_MS: i64 = 5_000;
const BATCH_ITEMS_MAX: usize = 256;
/// Checkouts and merges that are worked on at the same time, so that one that hangs does not hold up the
/// others.
const AT_ONCE_MAX: usize = 64;
/// One of them may take as long as a request, and at least this long, before it is left for later. All steps
/// can be repeated, so it may stop anywhere.
const ITEM_TIME_MIN: Duration = Duration::from_secs(5);
const AUDIT_PRODUCTS_PER_PASS: usize = 200;
const PERIOD: Duration = Duration::from_secs(1);

/// What one pass did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reconciled {
    pub checkouts: usize,
    pub holds: usize,
    pub merges: usize,
    pub failures: usize,
}

/// Runs passes until `stopped` resolves.
pub async fn run_reconciler(shop: Shop, stopped: impl Future<Output = ()>) {
    let stock = async {
        loop {
            report(&shop.release_stock(shop.store_now()).await);
            tokio::time::sleep(PERIOD).await;
        }
    };
    let rest = async {
        let mut audited = None;
        loop {
            report(&shop.finish_decided(shop.store_now()).await);
            match shop.audit_products(audited.take()).await {
                Ok(next) => audited = next,
                Err(error) => tracing::warn!(%error, "the audit of the products was not possible"),
            }
            tokio::time::sleep(PERIOD).await;
        }
    };
    // All steps can be repeated, so both may stop anywhere.
    tokio::select! {
        // In this order, and not in one that chance decides: a simulation has to be repeatable.
        biased;
        () = stopped => {}
        () = stock => {}
        () = rest => {}
    }
}

fn report(done: &Reconciled) {
    if *done != Reconciled::default() {
        tracing::info!(
            checkouts = done.checkouts,
            holds = done.holds,
            merges = done.merges,
            failures = done.failures,
            "reconciled"
        );
    }
}

impl std::ops::AddAssign for Reconciled {
    fn add_assign(&mut self, other: Self) {
        self.checkouts += other.checkouts;
        self.holds += other.holds;
        self.merges += other.merges;
        self.failures += other.failures;
    }
}

impl Shop {
    /// The pass of a shop that has just started: whatever was decided and not carried out was left by a
    /// crash, so nobody's grace has to be waited for. Where other instances are running it is at worst done
    /// twice, as it may be.
    pub async fn reconcile_at_start(&self) -> Reconciled {
        self.reconcile_due(self.store_now().plus_ms(SETTLE_GRACE_MS)).await
    }

    /// One pass over all that is due.
    pub async fn reconcile(&self) -> Reconciled {
        self.reconcile_due(self.store_now()).await
    }

    async fn reconcile_due(&self, due: Timestamp) -> Reconciled {
        let mut done = self.release_stock(due).await;
        done += self.finish_decided(due).await;
        done
    }

    /// Everything that gives stock back: checkouts past their deadline are aborted, and what nobody's order
    /// holds is released.
    async fn release_stock(&self, due: Timestamp) -> Reconciled {
        let mut done = Reconciled::default();
        let due = if self.plants(Planted::AbortBeforeDeadline) { due.plus_ms(14_000) } else { due };
        let released = self.release_uncommitted(due, &mut done).await;
        let holds = self.reconcile_holds(&mut done).await;
        self.tell_failed([released, holds], &mut done);
        done
    }

    /// Everything that follows from decisions: orders are written, carts are told, merges are finished.
    async fn finish_decided(&self, due: Timestamp) -> Reconciled {
        let mut done = Reconciled::default();
        let committed = match self.settle_committed(due, &mut done).await {
            Ok(decided) => {
                self.finish_checkouts(decided, &mut done).await;
                Ok(())
            }
            Err(error) => Err(error),
        };
        let merges = self.reconcile_merges(&mut done).await;
        self.tell_failed([committed, merges], &mut done);
        done
    }

    fn tell_failed(&self, passes: [Result<(), StoreError>; 2], done: &mut Reconciled) {
        for error in passes.into_iter().filter_map(Result::err) {
            done.failures += 1;
            tracing::warn!(%error, "the reconciler will try again");
        }
    }

    async fn release_uncommitted(&self, due: Timestamp, done: &mut Reconciled) -> Result<(), StoreError> {
        loop {
            let checkouts = self.stores().products.due_uncommitted(due, BATCH_ITEMS_MAX).await?;
            let is_last = checkouts.len() < BATCH_ITEMS_MAX;
            let release = |checkout: Checkout| async move {
                let released = self.within_time(self.release(checkout.clone())).await;
                // One that was open is where it was if it could not be decided, and moved back by the
                // decision if it could.
                if let Err(error) = &released {
                    tracing::warn!(order = %checkout.order_id, %error, "a checkout could not be released yet");
                    if !checkout.is_open() {
                        self.postpone(&checkout).await;
                    }
                }
                released.is_ok()
            };
            let released: Vec<bool> =
                stream::iter(checkouts).map(release).buffer_unordered(AT_ONCE_MAX).collect().await;
            let count = released.iter().filter(|is_released| **is_released).count();
            done.checkouts += count;
            done.failures += released.len() - count;
            // Those that failed are found again, so a pass in which one does is the last.
            if is_last || count < released.len() {
                return Ok(());
            }
        }
    }

    async fn release(&self, mut checkout: Checkout) -> Result<(), PlaceOrderError> {
        if checkout.is_open() {
            if self.store_now() < checkout.deadline && !self.plants(Planted::AbortBeforeDeadline) {
                return Ok(());
            }
            // Whoever runs it still may win until here; nothing is given back before this is won.
            let Some(aborted) = self.abort_expired(&checkout).await? else { return Ok(()) };
            checkout = aborted;
        }
        self.settle_lines(&checkout, checkout.verdict()).await?;
        self.inner.faults.reached(Step::LinesSettled).await?;
        let settled = checkout.settled(self.store_now());
        self.stores().products.update_checkout(settled, checkout.version).await?;
        Ok(())
    }

    /// Settles the stock of committed orders, and returns those that have more to be written.
    async fn settle_committed(
        &self,
        due: Timestamp,
        done: &mut Reconciled,
    ) -> Result<Vec<Checkout>, StoreError> {
        let mut checkouts = self.stores().products.due_checkouts(due, BATCH_ITEMS_MAX).await?;
        checkouts.retain(Checkout::is_committed);
        let settle = |checkout: Checkout| async move {
            let settled = self.settle_lines(&checkout, checkout.verdict());
            match self.within_time(async { settled.await.map_err(PlaceOrderError::from) }).await {
                Ok(()) => Some(checkout),
                Err(error) => {
                    tracing::warn!(order = %checkout.order_id, %error, "the stock of an order could not be settled yet");
                    self.postpone(&checkout).await;
                    None
                }
            }
        };
        let settled: Vec<Option<Checkout>> =
            stream::iter(checkouts).map(settle).buffer_unordered(AT_ONCE_MAX).collect().await;
        done.failures += settled.iter().filter(|settled| settled.is_none()).count();
        Ok(settled.into_iter().flatten().collect())
    }

    /// Writes all other consequences. What cannot be finished now is moved back, so that others get their
    /// turn.
    async fn finish_checkouts(&self, decided: Vec<Checkout>, done: &mut Reconciled) {
        let finish = |checkout: Checkout| async move {
            let finished = self.within_time(self.finish_checkout(&checkout)).await;
            if let Err(error) = &finished {
                tracing::warn!(order = %checkout.order_id, %error, "a checkout could not be finished yet");
                // A process that has ended moves nothing.
                if !matches!(error, PlaceOrderError::Stopped(_)) {
                    self.postpone(&checkout).await;
                }
            }
            finished
        };
        let finished: Vec<_> =
            stream::iter(decided).map(finish).buffer_unordered(AT_ONCE_MAX).collect().await;
        let failures = finished.iter().filter(|finished| finished.is_err()).count();
        done.failures += failures;
        done.checkouts += finished.len() - failures;
    }

    async fn finish_checkout(&self, checkout: &Checkout) -> Result<(), PlaceOrderError> {
        if matches!(checkout.state, CheckoutState::Committed { .. }) {
            self.stores().orders.insert(vec![checkout.order()]).await?;
            let there = self.stores().orders.get(checkout.order_id).await?.is_some();
            self.inner.invariants.check(Invariant::Ord1, there);
        }
        if matches!(checkout.fate, Fate::Cancelled { .. }) {
            return match self.carry_out_cancellation(checkout).await {
                Ok(_) => Ok(()),
                Err(MoveOrderError::Store(error)) => Err(error.into()),
                Err(MoveOrderError::Stopped(stopped)) => Err(stopped.into()),
                Err(error) => {
                    let what = format!("order {} cannot be cancelled as decided: {error}", checkout.order_id);
                    Err(StoreError::Corrupt { what, source: None }.into())
                }
            };
        }
        self.carry_out_once(checkout).await
    }

    /// In vain when the record has changed meanwhile or cannot be written: then it stays where it is.
    pub(crate) async fn postpone(&self, checkout: &Checkout) {
        let postponed = checkout.postponed(self.store_now());
        let moved = self.stores().products.update_checkout(postponed, checkout.version);
        if let Err(error) = self.within_time(async { moved.await.map_err(PlaceOrderError::from) }).await {
            tracing::debug!(order = %checkout.order_id, %error, "a checkout stays where it is in the queue");
        }
    }

    /// Holds that outlived their run: of a run that lost, of one that placed them after everything was
    /// settled, of a cancellation that was never decided.
    async fn reconcile_holds(&self, done: &mut Reconciled) -> Result<(), StoreError> {
        let looked_at_after_ms = self.settings().request_ms_max + HOLD_LOOK_BEYOND_REQUESTS_MS;
        let placed_before = self.store_now().plus_ms(-looked_at_after_ms);
        let mut after = None;
        loop {
            let products = self.stores().products.with_holds(placed_before, after, BATCH_ITEMS_MAX).await?;
            let Some(last) = products.last() else { return Ok(()) };
            after = Some(last.id);
            for product in &products {
                for hold in product.holds.iter().filter(|hold| hold.placed_at < placed_before) {
                    let verdict = match self.stores().products.get_checkout(hold.order).await? {
                        // The record is written before anything is held, so this hold belongs to nothing.
                        None => Verdict {
                            sale: Decision::Failed(hold.attempt),
                            cancellation: Decision::Failed(hold.attempt),
                        },
                        Some(checkout)
                            if matches!(checkout.state, CheckoutState::Aborted { .. })
                                && self.plants(Planted::HoldsKeptAfterAbort) =>
                        {
                            continue;
                        }
                        Some(checkout) => {
                            match self.verdict_on_forgotten(checkout, hold.kind, hold.attempt).await? {
                                Some(verdict) => verdict,
                                None => continue,
                            }
                        }
                    };
                    if self.stores().products.settle(product.id, hold.order, verdict, self.now()).await? {
                        done.holds += 1;
                    }
                }
            }
        }
    }

    async fn verdict_on_forgotten(
        &self,
        checkout: Checkout,
        kind: HoldKind,
        attempt: mobimir_core::id::AttemptId,
    ) -> Result<Option<Verdict>, StoreError> {
        let verdict = checkout.verdict();
        match (kind, verdict.sale, verdict.cancellation) {
            // Still open: its deadline decides.
            (HoldKind::Sale, Decision::Undecided, _) => Ok(None),
            (HoldKind::Return, _, Decision::Undecided) => {
                // A cancellation that crashed before it was decided. Under a new version of the record it
                // cannot be decided any more by whoever placed this hold, so it may go.
                let fenced = checkout.fenced(self.now());
                let won = self.stores().products.update_checkout(fenced, checkout.version).await?;
                Ok(won.then_some(Verdict { sale: verdict.sale, cancellation: Decision::Failed(attempt) }))
            }
            _ => Ok(Some(verdict)),
        }
    }

    async fn reconcile_merges(&self, done: &mut Reconciled) -> Result<(), StoreError> {
        let now = self.now();
        let settings = self.settings();
        let looked_at_after_ms =
            settings.request_ms_max + MERGE_LOOK_BEYOND_REQUESTS_MS + settings.session_cache_ms;
        let closed_before = self.store_now().plus_ms(-looked_at_after_ms);
        if self.plants(Planted::NoLastCheckOfMerge) {
            return Ok(());
        }
        let guests = self.stores().sessions.unmerged(closed_before, BATCH_ITEMS_MAX, now).await?;
        let finish = |guest: Session| async move {
            let finished =
                self.within_time(async { self.finish_merge(&guest).await.map_err(PlaceOrderError::from) });
            let finished = finished.await;
            if let Err(error) = &finished {
                tracing::warn!(%error, guest = %guest.id, "a merge could not be finished yet");
            }
            finished.is_ok()
        };
        let finished: Vec<bool> =
            stream::iter(guests).map(finish).buffer_unordered(AT_ONCE_MAX).collect().await;
        let merges = finished.iter().filter(|is_finished| **is_finished).count();
        done.merges += merges;
        done.failures += finished.len() - merges;
        Ok(())
    }

    /// Looks at the books of some products, and says where to go on.
    async fn audit_products(
        &self,
        after: Option<ProductPosition>,
    ) -> Result<Option<ProductPosition>, StoreError> {
        let mut query = ProductQuery::all(ProductSort::PriceAscending, AUDIT_PRODUCTS_PER_PASS);
        query.after = after;
        let page = self.list_products(query).await?;
        for product in &page.items {
            self.check_books(product);
        }
        Ok(page.next)
    }

    /// Since when the oldest thing waits for the reconciler, however often it was postponed.
    pub async fn oldest_due(&self) -> Result<Option<Timestamp>, StoreError> {
        let now = self.store_now();
        // What was postponed just now is among them.
        let postponed_to = now.plus_ms(RETRY_AFTER_MS_MAX + 1);
        let waiting = self.stores().products.due_checkouts(postponed_to, BATCH_ITEMS_MAX).await?;
        let since = waiting.iter().filter_map(Checkout::unfinished_since).min();
        Ok(since.filter(|since| *since < now))
    }

    /// A store that is slow finishes its work all the same; one that hangs does not hold up the others for
    /// long.
    async fn within_time<T>(
        &self,
        work: impl Future<Output = Result<T, PlaceOrderError>>,
    ) -> Result<T, PlaceOrderError> {
        let request = Duration::from_millis(self.settings().request_ms_max.unsigned_abs());
        let time_max = request.max(ITEM_TIME_MIN);
        tokio::time::timeout(time_max, work).await.unwrap_or_else(|_| {
            let what = format!("it took longer than {} ms", time_max.as_millis());
            Err(StoreError::Unknown { what, source: None }.into())
        })
    }
}
