use async_trait::async_trait;
use mobimir_core::{
    cart::{self, CartChange, CartPosition, Owner, StoredCart},
    page::Page,
    ports::{CartStore, StoreResult},
    time::{Timestamp, Version},
};

use super::{ModelStore, page};

/// The model never packs, so what it keeps of a cart differs from what a store keeps; what it folds to does not.
#[async_trait]
impl CartStore for ModelStore {
    async fn append(
        &self,
        owner: Owner,
        changes: Vec<CartChange>,
        expires_at: Timestamp,
        now: Timestamp,
    ) -> StoreResult<()> {
        let mut state = self.state();
        state.carts.retain(|_, (cart, _)| cart.expires_at > now);
        let empty = StoredCart { changes: Vec::new(), created_at: now, updated_at: now, expires_at };
        let (cart, version) = state.carts.entry(owner).or_insert((empty, Version::default()));
        for change in changes {
            if !cart::is_known(&cart.changes, change.id) {
                cart.changes.push(change);
            }
        }
        cart.updated_at = cart.updated_at.max(now);
        cart.expires_at = cart.expires_at.max(expires_at);
        *version = version.next(now);
        state.cart_marks.leave(self.is_tracked, owner, now);
        Ok(())
    }

    async fn read(&self, owner: Owner, now: Timestamp) -> StoreResult<Option<StoredCart>> {
        let state = self.state();
        let cart = state.carts.get(&owner).map(|(cart, _)| cart);
        Ok(cart.filter(|cart| cart.expires_at > now).cloned())
    }

    async fn untouched(
        &self,
        untouched_since: Timestamp,
        after: Option<CartPosition>,
        limit: usize,
        now: Timestamp,
    ) -> StoreResult<Page<(Owner, StoredCart), CartPosition>> {
        let state = self.state();
        let untouched = state
            .carts
            .iter()
            .map(|(owner, (cart, _))| (owner, cart))
            .filter(|(_, cart)| cart.expires_at > now && cart.updated_at <= untouched_since)
            .map(|(owner, cart)| (*owner, cart.clone()))
            .collect();
        let position = |(owner, cart): &(Owner, StoredCart)| CartPosition::of(*owner, cart.updated_at);
        Ok(page(untouched, after, limit, position, CartPosition::key))
    }
}
