//! A store may pack carts, and may give out shorter pages than it was asked for. The suite must not mind either.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use mobimir_core::{
    cart::{self, CartChange, CartPosition, Owner, StoredCart, UNPACKED_CHANGES_MAX},
    id::{ChangeId, fresh},
    page::Page,
    ports::{CartStore, StoreResult, Stores},
    time::Timestamp,
};
use mobimir_testkit::{conformance_tests, model::ModelStore};
use tokio::sync::Mutex;

conformance_tests!(|| async { Stores { carts: Arc::new(Packing::default()), ..ModelStore::stores() } }; carts);

#[derive(Default)]
struct Packing {
    carts: Mutex<BTreeMap<Owner, StoredCart>>,
}

#[async_trait]
impl CartStore for Packing {
    async fn append(
        &self,
        owner: Owner,
        changes: Vec<CartChange>,
        expires_at: Timestamp,
        now: Timestamp,
    ) -> StoreResult<()> {
        let mut carts = self.carts.lock().await;
        carts.retain(|_, cart| cart.expires_at > now);
        let new = StoredCart { changes: Vec::new(), created_at: now, updated_at: now, expires_at };
        let cart = carts.entry(owner).or_insert(new);
        for change in changes {
            if !cart::is_known(&cart.changes, change.id) {
                cart.changes.push(change);
            }
        }
        if cart.changes.len() > UNPACKED_CHANGES_MAX {
            cart.changes = vec![cart::pack(ChangeId(fresh(now)), owner, &cart.changes, now)];
        }
        cart.updated_at = now;
        cart.expires_at = cart.expires_at.max(expires_at);
        Ok(())
    }

    async fn read(&self, owner: Owner, now: Timestamp) -> StoreResult<Option<StoredCart>> {
        Ok(self.carts.lock().await.get(&owner).filter(|cart| cart.expires_at > now).cloned())
    }

    /// One at a time, and none for an expired one, as a store does that finds out on the way what does not belong.
    async fn untouched(
        &self,
        untouched_since: Timestamp,
        after: Option<CartPosition>,
        _limit: usize,
        now: Timestamp,
    ) -> StoreResult<Page<(Owner, StoredCart), CartPosition>> {
        let carts = self.carts.lock().await;
        let next = carts
            .iter()
            .map(|(owner, cart)| (CartPosition::of(*owner, cart.updated_at), *owner, cart))
            .filter(|(position, ..)| position.updated_at <= untouched_since)
            .filter(|(position, ..)| after.is_none_or(|after| position.key() > after.key()))
            .min_by_key(|(position, ..)| position.key());
        let Some((position, owner, cart)) = next else { return Ok(Page::empty()) };
        let items = if cart.expires_at > now { vec![(owner, cart.clone())] } else { Vec::new() };
        Ok(Page { items, next: Some(position) })
    }
}
