//! Finishes what a crash, a lost answer or a slow second run left open. Idempotent, takes no input, works from what
//! is stored, once before the shop opens and then every second.

use std::time::Duration;

use mobimir_core::{
    checkout::{AbortReason, Checkout, CheckoutState, Fate, SETTLE_GRACE_MS},
    invariant::Invariant,
    ports::StoreError,
    product::{Decision, HoldKind, ProductPosition, ProductQuery, ProductSort, Verdict},
    time::Timestamp,
};

use crate::{MoveOrderError, PlaceOrderError, Shop};

/// So much longer than any request takes a hold may wait before somebody looks whether it was forgotten.
const HOLD_LOOK_BEYOND_REQUESTS_MS: i64 = 10_000;
/// So much later than the longest request no request of a guest's session that was closed can still be running.
const MERGE_LOOK_BEYOND_REQUESTS_MS: i64 = 5_000;
const BATCH_ITEMS_MAX: usize = 256;
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
    tokio::pin!(stopped);
    let mut audited = None;
    loop {
        let done = shop.reconcile().await;
        if done != Reconciled::default() {
            tracing::info!(
                checkouts = done.checkouts,
                holds = done.holds,
                merges = done.merges,
                failures = done.failures,
                "reconciled"
            );
        }
        match shop.audit_products(audited.take()).await {
            Ok(next) => audited = next,
            Err(error) => tracing::warn!(%error, "the audit of the products was not possible"),
        }
        tokio::select! {
            () = &mut stopped => return,
            () = tokio::time::sleep(PERIOD) => {}
        }
    }
}

impl Shop {
    /// The pass of a shop that has just started: whatever was decided and not carried out was left by a crash, so nobody's
    /// grace has to be waited for. Where other instances are running it is at worst done twice, as it may be.
    pub async fn reconcile_at_start(&self) -> Reconciled {
        let mut done = Reconciled::default();
        let all_decided = self.now().plus_ms(SETTLE_GRACE_MS);
        if let Err(error) = self.reconcile_checkouts(all_decided, &mut done).await {
            done.failures += 1;
            tracing::warn!(%error, "the reconciler will try again");
        }
        let rest = self.reconcile().await;
        Reconciled {
            checkouts: done.checkouts + rest.checkouts,
            holds: rest.holds,
            merges: rest.merges,
            failures: done.failures + rest.failures,
        }
    }

    /// One pass over all that is due.
    pub async fn reconcile(&self) -> Reconciled {
        let mut done = Reconciled::default();
        let passes = [
            self.reconcile_checkouts(self.now(), &mut done).await,
            self.reconcile_holds(&mut done).await,
            self.reconcile_merges(&mut done).await,
        ];
        for error in passes.into_iter().filter_map(Result::err) {
            done.failures += 1;
            tracing::warn!(%error, "the reconciler will try again");
        }
        done
    }

    async fn reconcile_checkouts(&self, due: Timestamp, done: &mut Reconciled) -> Result<(), StoreError> {
        for checkout in self.stores().products.due_checkouts(due, BATCH_ITEMS_MAX).await? {
            match self.reconcile_checkout(checkout).await {
                Ok(()) => done.checkouts += 1,
                Err(error) => {
                    done.failures += 1;
                    tracing::warn!(%error, "a checkout could not be finished yet");
                }
            }
        }
        Ok(())
    }

    async fn reconcile_checkout(&self, mut checkout: Checkout) -> Result<(), PlaceOrderError> {
        let now = self.now();
        if checkout.is_open() {
            if now < checkout.deadline {
                return Ok(());
            }
            // Whoever runs it still may win until here; nothing is given back before this is won.
            let Ok(aborted) = checkout.abort(AbortReason::Expired, now) else { return Ok(()) };
            if !self.stores().products.update_checkout(aborted.clone(), checkout.version).await? {
                return Ok(());
            }
            checkout = aborted;
        }
        if matches!(checkout.state, CheckoutState::Committed { .. }) {
            self.stores().orders.insert(vec![checkout.order()]).await?;
            let there = self.stores().orders.get(checkout.order_id).await?.is_some();
            self.inner.invariants.check(Invariant::Ord1, there);
        }
        if matches!(checkout.fate, Fate::Cancelled { .. }) {
            return match self.carry_out_cancellation(&checkout).await {
                Ok(_) => Ok(()),
                Err(MoveOrderError::Store(error)) => Err(error.into()),
                Err(MoveOrderError::Stopped(stopped)) => Err(stopped.into()),
                Err(error) => {
                    let what = format!("order {} cannot be cancelled as decided: {error}", checkout.order_id);
                    Err(StoreError::Corrupt { what, source: None }.into())
                }
            };
        }
        self.carry_out_once(&checkout).await
    }

    /// Holds that outlived their run: of a run that lost, of one that placed them after everything was settled, of a
    /// cancellation that was never decided.
    async fn reconcile_holds(&self, done: &mut Reconciled) -> Result<(), StoreError> {
        let looked_at_after_ms = self.settings().request_ms_max + HOLD_LOOK_BEYOND_REQUESTS_MS;
        let placed_before = self.now().plus_ms(-looked_at_after_ms);
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
                // A cancellation that crashed before it was decided. Under a new version of the record it cannot be
                // decided any more by whoever placed this hold, so it may go.
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
        let closed_before = now.plus_ms(-looked_at_after_ms);
        for guest in self.stores().sessions.unmerged(closed_before, BATCH_ITEMS_MAX, now).await? {
            match self.finish_merge(&guest).await {
                Ok(()) => done.merges += 1,
                Err(error) => {
                    done.failures += 1;
                    tracing::warn!(%error, guest = %guest.id, "a merge could not be finished yet");
                }
            }
        }
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

    /// When the oldest thing that waits for the reconciler was due.
    pub async fn oldest_due(&self) -> Result<Option<Timestamp>, StoreError> {
        Ok(self
            .stores()
            .products
            .due_checkouts(self.now(), 1)
            .await?
            .first()
            .and_then(|checkout| checkout.due_at))
    }
}
