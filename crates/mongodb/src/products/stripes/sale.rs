//! Holding and settling in the stripe that an order is at home in.

use mobimir_core::{
    id::OrderId,
    ports::StoreResult,
    product::{HOLDS_PER_PRODUCT_MAX, Hold, HoldKind, HoldOutcome, Product, Verdict},
    time::Timestamp,
};

use super::{
    super::{MongoProducts, updates as stock},
    HOLDS_PER_STRIPE, HOLDS_UNASKED,
    borrow::{Carried, Waiting},
    document::Split,
    updates,
    whole::Whole,
};

impl MongoProducts {
    /// [`Product::hold`] on a product that is split; `None` if that has to be tried again.
    pub(in super::super) async fn hold_in_stripe(
        &self,
        split: &Split,
        hold: &Hold,
        now: Timestamp,
    ) -> StoreResult<Option<HoldOutcome>> {
        let home = split.home(hold.order);
        let place = async |holds_max: usize| {
            let change = stock::hold(hold, holds_max, 0, now).of(updates::open(split, home));
            self.change_stripe("hold_in_stripe", home, change).await
        };
        if place(HOLDS_UNASKED).await? {
            return Ok(Some(HoldOutcome::Held));
        }
        let Some(whole) = self.look(split.product).await? else {
            return Ok(Some(HoldOutcome::NoSuchProduct));
        };
        if !self.is_still(split, &whole).await? {
            return Ok(None);
        }
        let together = whole.clone().together()?;
        let holds_max = holds_max(split);
        if let Some(refused) = refusal(&together, hold, holds_max) {
            return Ok(Some(refused));
        }
        // There is enough and there is room, if not where one looked first.
        let quantity = i64::try_from(hold.quantity).unwrap_or(i64::MAX);
        let mut here = whole.available_in(home, hold.zone.as_str());
        if hold.kind == HoldKind::Return || here >= quantity {
            return Ok(place(holds_max).await?.then_some(HoldOutcome::Held));
        }
        if self.finish_transfers(split, &whole).await? {
            return Ok(None);
        }
        for (donor, available) in donors(&whole, split, home, hold.zone.as_str()) {
            let needed = quantity - here;
            // More than is needed, so that the next buyer here finds some.
            let units = needed.max(available / 2).min(available);
            let transfer = whole.next_transfer(donor, home, hold.zone.as_str(), units);
            let Some(transfer) = transfer else { return Ok(None) };
            let suffices = here + units >= quantity;
            let waiting = suffices.then_some(Waiting { hold, holds_max, now });
            match self.carry(split, &transfer, waiting).await? {
                Carried::Held => return Ok(Some(HoldOutcome::Held)),
                Carried::Put => here += units,
                Carried::Nothing => return Ok(None),
            }
            if suffices {
                break;
            }
        }
        Ok(None)
    }

    /// [`Product::settle`] on a product that is split; `None` if that has to be tried again.
    pub(in super::super) async fn settle_in_stripe(
        &self,
        split: &Split,
        order: OrderId,
        verdict: Verdict,
        now: Timestamp,
    ) -> StoreResult<Option<bool>> {
        let Some(change) = stock::settle(order, verdict, now) else { return Ok(Some(false)) };
        let home = split.home(order);
        if self.change_stripe("settle_in_stripe", home, change.of(updates::there(split, home))).await? {
            return Ok(Some(true));
        }
        let Some(whole) = self.look(split.product).await? else { return Ok(Some(false)) };
        if !self.is_still(split, &whole).await? {
            return Ok(None);
        }
        let changes = whole.together()?.settle(order, verdict, now);
        Ok((!changes).then_some(false))
    }

    /// Whether the product is split as was believed. If it is being put together, that is finished first.
    async fn is_still(&self, believed: &Split, whole: &Whole) -> StoreResult<bool> {
        let closing = whole.product.split().is_some_and(|split| split.closing);
        if closing {
            self.put_together(whole.id()).await?;
            return Ok(false);
        }
        let current = self.known.note(whole.id(), whole.split());
        Ok(current.is_some_and(|current| current.epoch == believed.epoch))
    }
}

/// Why the hold cannot be, all stripes taken together.
fn refusal(product: &Product, hold: &Hold, holds_max: usize) -> Option<HoldOutcome> {
    let same = |it: &Hold| it.order == hold.order && it.attempt == hold.attempt && it.kind == hold.kind;
    if product.holds.iter().any(same) {
        return Some(HoldOutcome::AlreadyHeld);
    }
    let available = product.available_in(hold.zone);
    if hold.kind == HoldKind::Sale && available < hold.quantity {
        return Some(HoldOutcome::Short { available });
    }
    (product.holds.len() >= holds_max).then_some(HoldOutcome::Full)
}

fn holds_max(split: &Split) -> usize {
    HOLDS_PER_PRODUCT_MAX.max(HOLDS_PER_STRIPE * usize::from(split.count))
}

/// The other stripes that have something, the richest first.
fn donors(whole: &Whole, split: &Split, home: u16, zone: &str) -> Vec<(u16, i64)> {
    let others = (0..split.count).filter(|n| *n != home);
    let mut donors: Vec<(u16, i64)> = others.map(|n| (n, whole.available_in(n, zone))).collect();
    donors.retain(|(_, available)| *available > 0);
    donors.sort_by_key(|(_, available)| std::cmp::Reverse(*available));
    donors
}
