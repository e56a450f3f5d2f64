//! Carts by when they were last touched, with the steps of the adapter's `carts/listing.rs`: a cart stands in the
//! list under the time of a touch, and anew when that was long enough ago; who lists reads the carts themselves.

use std::collections::{BTreeMap, BTreeSet};

use mobimir_cassandra::Gathered;
use mobimir_core::{
    cart::{CartPosition, Owner, StoredCart},
    page::Page,
    ports::StoreResult,
    time::{Day, Timestamp},
};

use super::{Carts, Cell, Key, Value};
use crate::{planted::PlantedFault, world::lock};

const TABLE: &str = "carts_by_touch";
/// A cart is listed anew when this has passed. In the adapter a minute.
const LISTED_FOR_MS: i64 = 10_000;

impl Carts {
    /// Whether this instance has listed the cart so short a time before that it need not be listed again.
    fn is_listed(&self, owner: Owner, touched_at: Timestamp) -> bool {
        let once = self.planted(PlantedFault::CartListedOnceOnly);
        let listed_at = lock(&self.listed).get(&owner).copied();
        listed_at.is_some_and(|at| once || at <= touched_at && touched_at.since(at) < LISTED_FOR_MS)
    }

    /// What lists the cart as touched, unless it is listed.
    pub(super) fn touch(&self, owner: Owner, now: Timestamp, stamp: i64) -> Option<(Key, Cell)> {
        let features = self.ring.features();
        if !features.lists_abandoned
            || self.is_listed(owner, now)
            || self.planted(PlantedFault::TouchNotListed)
        {
            return None;
        }
        let row = [now.as_millis().to_be_bytes().as_slice(), &super::carts::partition(owner)].concat();
        let key = Key::new(TABLE, &now.day().number().to_be_bytes(), &row);
        Some((key, Cell::new(stamp, Value::Touched(owner, now))))
    }

    pub(super) fn touched(&self, owner: Owner, now: Timestamp) {
        lock(&self.listed).insert(owner, now);
    }

    pub(super) fn live(&self, owner: Owner, gathered: Gathered, now: Timestamp) -> Option<StoredCart> {
        if self.planted(PlantedFault::CartOutlivesItsTtl) {
            return gathered.whole(owner).map(|whole| whole.cart);
        }
        gathered.live(now)
    }

    pub(super) async fn untouched_since(
        &self,
        untouched_since: Timestamp,
        after: Option<CartPosition>,
        limit: usize,
        now: Timestamp,
    ) -> StoreResult<Page<(Owner, StoredCart), CartPosition>> {
        let from = after.map_or(Timestamp::from_millis(0), |after| after.updated_at.plus_ms(-LISTED_FOR_MS));
        let mut found = BTreeMap::new();
        let mut met = BTreeSet::new();
        let last = untouched_since.day();
        // No run is longer than a day.
        for day in [Day::from_number(last.number() - 1), last] {
            let rows = self.link.read("carts_touched", TABLE, &day.number().to_be_bytes()).await?;
            for cell in rows.into_values() {
                let Some(Value::Touched(owner, at)) = cell.value else { continue };
                if at < from || at > untouched_since || !met.insert(owner) {
                    continue;
                }
                let gathered = Gathered::of(self.rows(owner).await?);
                let Some(mut cart) = self.live(owner, gathered, now) else { continue };
                if self.planted(PlantedFault::TouchedCartListed) {
                    cart.updated_at = at;
                }
                let position = CartPosition::of(owner, cart.updated_at);
                let is_next = after.is_none_or(|after| position.key() > after.key());
                if is_next && cart.updated_at <= untouched_since {
                    found.insert(position.key(), (owner, cart));
                }
            }
        }
        let carts = found.into_values().collect();
        Ok(Page::cut(carts, limit, |(owner, cart): &(Owner, StoredCart)| {
            CartPosition::of(*owner, cart.updated_at)
        }))
    }
}
