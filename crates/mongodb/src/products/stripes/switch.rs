//! Splitting a product's stock, and putting it together again.
//!
//! What is wanted stands in the product; [`MongoProducts::reconcile_stripes`] brings it about from wherever it stands, and
//! whoever comes across something half done goes on with it.
//!
//! *Splitting:* the stripes are made, empty; then one update of the product names their epoch, and they count. *Putting
//! together:* the product and then every stripe is closed to new holds and to taking units out; transfers are finished;
//! every stripe is sealed and changes no more; one update adds them all to the product and forgets the epoch; then they
//! are dropped.

use futures_util::future::try_join_all;
use mobimir_core::{
    id::{ProductId, fresh},
    policy::STRIPES_MAX,
    ports::StoreResult,
    time::Timestamp,
};
use mongodb::{
    bson::{Uuid, doc},
    options::FindOptions,
};

use super::{
    super::{MongoProducts, REFUSALS_MAX, by_id, document::ProductDoc, restless},
    document::{Split, StripeDoc},
    faults::StripeStep,
    updates,
    whole::Whole,
};
use crate::{
    leaves::{date, id, time, uuid},
    link::damaged,
};

/// Stripes that no product names and that were made this long ago were left by a splitting that came to nothing.
const ABANDONED_MS: i64 = 3_600_000;

/// Products that are looked after in one query.
const TENDED_PRODUCTS_MAX: i64 = 1_000;

impl MongoProducts {
    /// Splits a product's stock into so many stripes; 0 or 1 puts it together again. Says whether there is such a
    /// product. What is wanted is stored first, so that a crash delays it and no more.
    pub async fn stripe(&self, id: ProductId, count: u16, now: Timestamp) -> StoreResult<bool> {
        let wanted = i32::from(count.clamp(1, STRIPES_MAX));
        let update = doc! { "$set": { "stripes.wanted": wanted }, "$unset": { "stripes.by_policy": true } };
        if !self.update_stripe("want_stripes", 0, by_id(id), update).await? {
            return Ok(false);
        }
        self.faults.reached(StripeStep::Wanted)?;
        self.reconcile_stripes(id, now).await?;
        Ok(true)
    }

    /// Stores what the policy wants for products of which nobody has said anything else, and finishes whatever was begun
    /// with any product. To be called when an instance starts, and now and then.
    pub async fn tend_stripes(&self, wanted: &[(ProductId, u16)], now: Timestamp) -> StoreResult<()> {
        for (id, count) in wanted {
            self.want_by_policy(*id, *count).await?;
        }
        let mut failed = None;
        let mut after: Option<Uuid> = None;
        loop {
            let mut filter = doc! { "stripes.wanted": { "$gt": 0 } };
            if let Some(after) = after {
                filter.insert("_id", doc! { "$gt": after });
            }
            let options = FindOptions::builder().sort(doc! { "_id": 1 }).limit(TENDED_PRODUCTS_MAX).build();
            let found = self.link.find("products_with_stripes", &self.products, filter, options).await?;
            let Some(last) = found.last() else { return failed.map_or(Ok(()), Err) };
            after = Some(last.id);
            for product in found {
                let is_named = wanted.iter().any(|(named, _)| *named == id(product.id));
                // One that cannot be tended now does not keep the others from it.
                if let Err(error) = self.tend(&product, is_named, now).await {
                    failed = Some(error);
                }
            }
        }
    }

    async fn tend(&self, product: &ProductDoc, is_named: bool, now: Timestamp) -> StoreResult<()> {
        let id = id(product.id);
        if !is_named && product.stripes.as_ref().is_some_and(|stripes| stripes.by_policy) {
            self.want_by_policy(id, 1).await?;
        }
        self.reconcile_stripes(id, now).await?;
        self.drop_abandoned(id, now).await
    }

    /// What the policy wants, unless somebody has said what is wanted of this product.
    async fn want_by_policy(&self, id: ProductId, count: u16) -> StoreResult<()> {
        let count = i32::from(count.clamp(1, STRIPES_MAX));
        let unsaid = [
            doc! { "stripes.wanted": { "$exists": false } },
            doc! { "stripes.by_policy": true, "stripes.wanted": { "$ne": count } },
        ];
        let filter = doc! { "_id": uuid(id.0), "$or": unsaid.to_vec() };
        let update = doc! { "$set": { "stripes.wanted": count, "stripes.by_policy": true } };
        self.update_stripe("want_stripes", 0, filter, update).await?;
        Ok(())
    }

    /// Puts a product together that was just seen to be split.
    pub(in super::super) async fn close(&self, id: ProductId) -> StoreResult<()> {
        if let Some(split) = self.known.get(id) {
            self.begin_closing(&split).await?;
        }
        self.put_together(id).await
    }

    /// Takes note of how a product is split; says whether it is.
    pub(in super::super) fn notes_split(&self, product: &ProductDoc) -> bool {
        let split = product.split().map(|split| Split::of(product.id, split));
        self.known.note(id(product.id), split).is_some()
    }

    /// Brings the product from wherever it stands to as many stripes as are wanted.
    pub(in super::super) async fn reconcile_stripes(&self, id: ProductId, now: Timestamp) -> StoreResult<()> {
        for _ in 0..REFUSALS_MAX {
            let Some(whole) = self.look(id).await? else { return Ok(()) };
            let wanted = whole.product.stripes.as_ref().map_or(1, |stripes| stripes.wanted);
            let wanted = u16::try_from(wanted).unwrap_or(1).max(1);
            match self.known.note(id, whole.split()) {
                None if wanted == 1 => return Ok(()),
                None => self.split(&whole, wanted, now).await?,
                Some(_) if whole.product.split().is_some_and(|split| split.closing) => {
                    self.put_together(id).await?;
                }
                Some(split) if split.count != wanted => self.begin_closing(&split).await?,
                Some(split) => {
                    self.finish_transfers(&split, &whole).await?;
                    return Ok(());
                }
            }
        }
        Err(restless(id))
    }

    async fn split(&self, whole: &Whole, count: u16, now: Timestamp) -> StoreResult<()> {
        let product = whole.id();
        let epoch = uuid(fresh(now));
        let empty = |n| StripeDoc::empty(product, epoch, n, date(now));
        let stripes: Vec<StripeDoc> = (1..count).map(empty).collect();
        self.link.insert_many("make_stripes", &self.stripes, &stripes).await?;
        self.faults.reached(StripeStep::StripesMade)?;
        let begun = updates::begin(product, epoch, count);
        if !self.change_stripe("split_product", 0, begun).await? {
            // Somebody else was faster.
            for stripe in &stripes {
                self.link.delete_one("drop_stripe", &self.stripes, doc! { "_id": stripe.id }).await?;
            }
            return Ok(());
        }
        self.faults.reached(StripeStep::Opened)?;
        self.spread(product).await
    }

    /// Gives every stripe its share. Without it each would have to borrow first.
    async fn spread(&self, id: ProductId) -> StoreResult<()> {
        let Some(whole) = self.look(id).await? else { return Ok(()) };
        let Some(split) = self.known.note(id, whole.split()) else { return Ok(()) };
        let zones = whole.product.stock.iter().map(|(zone, stock)| (zone, stock.available));
        for (zone, share) in zones.map(|(zone, available)| (zone, available / i64::from(split.count))) {
            if share == 0 {
                continue;
            }
            // Numbers go on from one zone to the next.
            let Some(whole) = self.look(id).await? else { return Ok(()) };
            for n in 1..split.count {
                let Some(transfer) = whole.next_transfer(0, n, zone, share) else { continue };
                self.carry(&split, &transfer, None).await?;
            }
        }
        Ok(())
    }

    async fn begin_closing(&self, split: &Split) -> StoreResult<()> {
        let (guard, update) = updates::begin_closing(split);
        self.update_stripe("begin_closing", 0, guard, update).await?;
        self.faults.reached(StripeStep::ClosingBegun)
    }

    /// Finishes the closing of a product, if it is being closed.
    pub(in super::super) async fn put_together(&self, id: ProductId) -> StoreResult<()> {
        let Some((whole, split)) = self.closing(id).await? else { return Ok(()) };
        let open = whole.stripes.iter().filter(|stripe| !stripe.closing).map(number);
        try_join_all(open.map(|n| {
            self.one_by_one("close_stripe", n, updates::close(&split, n), StripeStep::StripeClosed)
        }))
        .await?;
        // From here on nothing is taken out any more: what is seen to be on its way is all there is.
        let Some((whole, split)) = self.closing(id).await? else { return Ok(()) };
        self.finish_transfers(&split, &whole).await?;
        let unsealed = whole.stripes.iter().filter(|stripe| !stripe.sealed).map(number);
        try_join_all(
            unsealed.map(|n| {
                self.one_by_one("seal_stripe", n, updates::seal(&split, n), StripeStep::StripeSealed)
            }),
        )
        .await?;
        let Some((whole, split)) = self.closing(id).await? else { return Ok(()) };
        let complete = whole.stripes.len() + 1 == usize::from(split.count);
        if !complete || whole.stripes.iter().any(|stripe| !stripe.sealed) {
            return Ok(());
        }
        let change =
            updates::put_together(&split, &whole.stripes).map_err(|error| damaged(error.to_string()))?;
        if !self.change_stripe("put_together", 0, change).await? {
            return Ok(());
        }
        self.known.note(id, None);
        self.faults.reached(StripeStep::PutTogether)?;
        for stripe in &whole.stripes {
            self.link.delete_one("drop_stripe", &self.stripes, doc! { "_id": stripe.id }).await?;
            self.faults.reached(StripeStep::StripeDropped)?;
        }
        Ok(())
    }

    async fn one_by_one(
        &self,
        name: &'static str,
        n: u16,
        (guard, update): (mongodb::bson::Document, mongodb::bson::Document),
        step: StripeStep,
    ) -> StoreResult<()> {
        self.update_stripe(name, n, guard, update).await?;
        self.faults.reached(step)
    }

    /// The product, if it is being closed.
    async fn closing(&self, id: ProductId) -> StoreResult<Option<(Whole, Split)>> {
        let Some(whole) = self.look(id).await? else { return Ok(None) };
        if !whole.product.split().is_some_and(|split| split.closing) {
            self.known.note(id, whole.split());
            return Ok(None);
        }
        let split = whole.split();
        Ok(split.map(|split| (whole, split)))
    }

    /// Drops stripes that count for nothing: sealed ones of an epoch that is over, and those of a splitting that never was.
    async fn drop_abandoned(&self, id: ProductId, now: Timestamp) -> StoreResult<()> {
        let of_product = doc! { "product": uuid(id.0) };
        let options = FindOptions::default();
        let found = self.link.find("stripes_of_product", &self.stripes, of_product, options).await?;
        for stripe in found {
            let is_old = now.since(time(stripe.created_at)) > ABANDONED_MS;
            if !stripe.sealed && !is_old {
                continue;
            }
            // An update that changes nothing is answered by what is current, and by a majority.
            let named = doc! { "_id": uuid(id.0), "stripes.split.epoch": stripe.epoch };
            let same = doc! { "$set": { "stripes.split.epoch": stripe.epoch } };
            if !self.update_stripe("is_epoch_named", 0, named, same).await? {
                self.link.delete_one("drop_stripe", &self.stripes, doc! { "_id": stripe.id }).await?;
            }
        }
        Ok(())
    }
}

fn number(stripe: &StripeDoc) -> u16 {
    u16::try_from(stripe.n).unwrap_or_default()
}
