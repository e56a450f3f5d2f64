//! One cart, one order (CRT-4). What one cart change put in is ordered at most once, over any number of
//! instances, keys, crashes and lost answers.
//!
//! The store that decides checkouts has a *claim* for every user: the checkout that claimed the user's cart
//! last. A checkout of the cart is committed only while it holds the claim, and it takes the claim by
//! compare-and-set only from a checkout that is decided. So of all checkouts that read the same changes, one
//! can commit:
//!
//! 1. Before the cart is read, the claim is, and its checkout must be decided. If it committed, what it
//!    covers is out of the cart: it is appended there once more, because the run that committed may have died
//!    before it did, and folded in.
//! 2. The record says `after`: the last order that took anything from the cart, as the cart was read.
//! 3. The claim moves to this checkout, from `after` or from an aborted checkout with the same `after`. If
//!    another order has committed since `after`, the changes that were read may be its own, and this checkout
//!    is aborted.
//!
//! Claims do not expire: the checkout that holds one decides, at its deadline at the latest.

use std::{collections::BTreeSet, time::Duration};

use mobimir_core::{
    cart::{self, CartChange, Effect, Owner},
    checkout::{AbortReason, CartTake, Checkout},
    id::{ChangeId, OrderId, ProductId, UserId},
    invariant::Invariant,
    ports::StoreError,
    time::Timestamp,
};

use crate::{
    PlaceOrderError, Shop,
    faults::{Planted, Step},
};

/// How often a checkout that others wait for is looked up.
const DECISION_POLL_MS: u64 = 20;
/// How often a claim that moved is tried again before the caller is asked to come back.
const CLAIM_RACES_MAX: usize = 16;
/// Of so many orders, one is compared with those before it.
const ORDERS_PER_SAMPLE: u8 = 32;
/// So many earlier orders of the same cart it is compared with.
const SAMPLED_ORDERS_MAX: usize = 8;

/// The claim as it was before the cart was read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SeenClaim(Option<OrderId>);

/// A cart that can be ordered.
pub(crate) struct CartToClaim {
    pub(crate) lines: Vec<(ProductId, u64)>,
    pub(crate) take: CartTake,
    pub(crate) claim: SeenClaim,
}

/// Who may order what was read of the cart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CartClaimed {
    ByThis,
    /// This order has taken it.
    By(OrderId),
}

impl Shop {
    /// Reads the cart of a user who orders it, without what any order has taken.
    pub(crate) async fn cart_to_claim(
        &self,
        user: UserId,
        give_up_at: Timestamp,
    ) -> Result<CartToClaim, PlaceOrderError> {
        let mut claim = self.stores().products.cart_claim(user).await?;
        for _ in 0..CLAIM_RACES_MAX {
            let (last_order, cart) = self.cart_after(user, claim, give_up_at).await?;
            if !cart.lines.is_empty() {
                return Ok(cart);
            }
            // Whoever has taken it since the claim was read is the one to name.
            let seen = std::mem::replace(&mut claim, self.stores().products.cart_claim(user).await?);
            if claim == seen {
                return Err(PlaceOrderError::EmptyCart { ordered_by: last_order });
            }
        }
        Err(PlaceOrderError::InProgress)
    }

    /// The cart without what the checkout that holds the claim has taken, and that order if it has taken
    /// anything.
    async fn cart_after(
        &self,
        user: UserId,
        claim: Option<OrderId>,
        give_up_at: Timestamp,
    ) -> Result<(Option<OrderId>, CartToClaim), PlaceOrderError> {
        let owner = Owner::User(user);
        let last = match claim {
            Some(_) if self.plants(Planted::EarlierOrderNotTaken) => None,
            Some(order) => self.decided(order, give_up_at).await?,
            None => None,
        };
        let after = match &last {
            Some(checkout) if checkout.is_committed() => Some(checkout.order_id),
            Some(checkout) => checkout.cart.as_ref().and_then(|take| take.after),
            // Its record is gone, and was settled long before.
            None => claim,
        };
        let committed = match (last, after) {
            (Some(checkout), _) if checkout.is_committed() => Some(checkout),
            // The claim went to one that was aborted. The order before it may still not be out of the cart.
            (Some(_), Some(order)) => self.stores().products.get_checkout(order).await?,
            _ => None,
        };
        if let Some(committed) = &committed
            && committed.due_at.is_some()
        {
            self.take_cart(committed).await?;
        }
        let stored = self.stores().carts.read(owner, self.now()).await?;
        // The cart may be kept where a read need not see the write before it.
        let taken = committed.as_ref().and_then(|committed| committed.cart.as_ref());
        let taken = taken.map_or(&[][..], |take| &take.covers);
        let view = stored.map(|stored| cart::fold_without(&stored.changes, taken)).unwrap_or_default();
        let cart = CartToClaim {
            lines: view.lines.iter().map(|line| (line.product, line.quantity)).collect(),
            take: CartTake { owner, covers: view.made_of(), after },
            claim: SeenClaim(claim),
        };
        Ok((committed.map(|committed| committed.order_id), cart))
    }

    /// Claims the cart for a checkout. `seen` is the claim before the cart was read, where this run read it.
    pub(crate) async fn claim_cart(
        &self,
        checkout: &Checkout,
        seen: Option<SeenClaim>,
        give_up_at: Timestamp,
    ) -> Result<CartClaimed, PlaceOrderError> {
        let Some(take) = &checkout.cart else { return Ok(CartClaimed::ByThis) };
        if self.plants(Planted::CartOrderedWithoutClaim) {
            return Ok(CartClaimed::ByThis);
        }
        let (products, user) = (&self.stores().products, checkout.user_id);
        let mut from = match seen {
            Some(SeenClaim(claim)) => claim,
            None => products.cart_claim(user).await?,
        };
        let mut is_seen = seen.is_some();
        for _ in 0..CLAIM_RACES_MAX {
            if from == Some(checkout.order_id) {
                return Ok(CartClaimed::ByThis);
            }
            // A claim that was there before the cart was read was judged then.
            if !is_seen
                && !self.plants(Planted::ClaimTakenFromOpenCheckout)
                && from != take.after
                && let Some(holder) = from
                && let Some(by) = self.taken_by(holder, take, give_up_at).await?
            {
                return Ok(CartClaimed::By(by));
            }
            if products.claim_cart(user, from, checkout.order_id).await? {
                self.inner.faults.reached(Step::CartClaimed).await?;
                return Ok(CartClaimed::ByThis);
            }
            is_seen = false;
            from = products.cart_claim(user).await?;
        }
        Err(PlaceOrderError::InProgress)
    }

    /// The order that has taken from the cart since `take.after`, if the checkout that holds the claim is or
    /// knows one.
    async fn taken_by(
        &self,
        holder: OrderId,
        take: &CartTake,
        give_up_at: Timestamp,
    ) -> Result<Option<OrderId>, PlaceOrderError> {
        let Some(holder) = self.decided(holder, give_up_at).await? else { return Ok(Some(holder)) };
        if holder.is_committed() {
            return Ok(Some(holder.order_id));
        }
        let after = holder.cart.as_ref().and_then(|take| take.after);
        Ok(after.filter(|_| after != take.after))
    }

    /// The checkout once it is decided: waits for whoever runs it, and aborts it past its deadline. `None`
    /// when its record is not kept any more.
    async fn decided(
        &self,
        order: OrderId,
        give_up_at: Timestamp,
    ) -> Result<Option<Checkout>, PlaceOrderError> {
        let polls_max = self.settings().checkout_request_ms_max.unsigned_abs() / DECISION_POLL_MS;
        for _ in 0..=polls_max {
            let Some(checkout) = self.stores().products.get_checkout(order).await? else { return Ok(None) };
            if !checkout.is_open() {
                return Ok(Some(checkout));
            }
            if self.store_now() >= checkout.deadline {
                if let Some(aborted) = self.abort_expired(&checkout).await? {
                    return Ok(Some(aborted));
                }
            } else if self.now() >= give_up_at {
                break;
            } else {
                tokio::time::sleep(Duration::from_millis(DECISION_POLL_MS)).await;
            }
        }
        Err(PlaceOrderError::InProgress)
    }

    /// Aborts an open checkout that is past its deadline; `None` when somebody else decided it first.
    pub(crate) async fn abort_expired(&self, checkout: &Checkout) -> Result<Option<Checkout>, StoreError> {
        let Ok(aborted) = checkout.abort(AbortReason::Expired, self.store_now()) else { return Ok(None) };
        let won = self.stores().products.update_checkout(aborted.clone(), checkout.version).await?;
        let won = won || self.plants(Planted::AbortWithoutWinning);
        Ok(won.then_some(aborted))
    }

    /// CRT-4, checked for some orders: none of the changes it took was taken by one of the orders before it.
    pub(crate) async fn sample_cart_orders(&self, checkout: &Checkout) {
        if !checkout.order_id.as_bytes()[0].is_multiple_of(ORDERS_PER_SAMPLE) {
            return;
        }
        let Some(take) = &checkout.cart else { return };
        let taken: BTreeSet<ChangeId> = take.covers.iter().copied().collect();
        let mut after = take.after;
        for _ in 0..SAMPLED_ORDERS_MAX {
            let Some(order) = after else { return };
            // What cannot be read now says nothing.
            let Ok(Some(earlier)) = self.stores().products.get_checkout(order).await else { return };
            let Some(earlier_take) = &earlier.cart else { return };
            let is_disjoint = earlier_take.covers.iter().all(|change| !taken.contains(change));
            if !self.inner.invariants.check(Invariant::Crt4, is_disjoint) {
                tracing::error!(
                    order = %checkout.order_id, earlier = %order,
                    "CRT-4 is broken: two orders have taken the same change of a cart"
                );
            }
            after = earlier_take.after;
        }
    }
}

/// What a committed order has taken out of its cart, as the cart is told.
pub(crate) fn cover_of(checkout: &Checkout, now: Timestamp) -> Option<CartChange> {
    let take = checkout.cart.as_ref()?;
    let effect = Effect::Cover { covers: take.covers.clone(), order: Some(checkout.order_id) };
    // The id follows from the order, so that repeating it changes nothing.
    let id = ChangeId::of_order(checkout.order_id);
    Some(CartChange { id, at: now, origin: take.owner, keyed: true, effect })
}
