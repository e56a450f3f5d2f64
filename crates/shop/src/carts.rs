//! Carts, seen and changed.

use std::time::Duration;

use mobimir_core::{
    cart::{self, CART_CHANGES_MAX, CartChange, CartPosition, CartView, Effect, Owner, StoredCart},
    id::{self, ChangeId, ProductId},
    invariant::Invariant,
    money::Money,
    page::Page,
    policy::ReadOperation,
    ports::StoreError,
    reading,
    time::Timestamp,
    zone::Zone,
};
use thiserror::Error;

use crate::{Caller, Shop, faults::Planted};

/// A cart as its owner sees it, with what the products cost now.
#[derive(Clone, Debug)]
pub struct CartContents {
    pub owner: Owner,
    pub status: CartStatus,
    pub geo_zone: Option<Zone>,
    pub items: Vec<CartItem>,
    pub amount: Money,
    /// Neither is known of a cart that nobody has put anything into.
    pub updated_at: Option<Timestamp>,
    pub expires_at: Option<Timestamp>,
}

#[derive(Clone, Debug)]
pub struct CartItem {
    pub product_id: ProductId,
    pub name: String,
    pub category: String,
    pub price: Money,
    pub quantity: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CartStatus {
    Active,
    Abandoned,
}

pub type AbandonedCart = CartContents;

#[derive(Debug, Error)]
pub enum CartError {
    #[error("no product has the id {0}")]
    UnknownProduct(ProductId),
    #[error("zone {0} is not one of this shop's")]
    UnknownZone(Zone),
    #[error("{requested} were asked for and {available} are available")]
    OutOfStock { product_id: ProductId, requested: u64, available: u64 },
    #[error("this key was used for another change")]
    Mismatch,
    #[error("the cart holds {CART_CHANGES_MAX} changes, as many as it can: order it or take something out")]
    Full,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// When a cart that never expires expires.
const NEVER: Timestamp = Timestamp::from_millis(i64::MAX);

impl Shop {
    pub async fn cart(&self, caller: &Caller) -> Result<CartContents, StoreError> {
        let owner = caller.cart_owner();
        let current = async {
            let now = self.now();
            let stored = self.stores().carts.read(owner, now).await?;
            self.contents(owner, stored, now).await
        };
        reading::of(ReadOperation::Cart, current).await
    }

    /// Puts more of a product into the cart. Under an idempotency key it counts once.
    pub async fn add_to_cart(
        &self,
        caller: &Caller,
        product: ProductId,
        quantity: u64,
        zone: Option<Zone>,
        idempotency_key: Option<&str>,
    ) -> Result<CartContents, CartError> {
        let owner = caller.cart_owner();
        let now = self.now();
        let id = match idempotency_key {
            Some(key) => ChangeId::of(owner.uuid().as_bytes(), key),
            None => ChangeId(self.fresh_id()),
        };
        let mut at = now;
        if idempotency_key.is_some()
            && let Some(stored) = self.stores().carts.read(owner, now).await?
        {
            if cart::is_known(&stored.changes, id) {
                if cart::added_by(&stored.changes, id).is_some_and(|added| added != (product, quantity)) {
                    return Err(CartError::Mismatch);
                }
                if cart::is_known(&stored.changes, refusal_of(id)) {
                    return Err(CartError::Full);
                }
                return Ok(self.contents(owner, Some(stored), now).await?);
            }
            // An id that follows from a key says nothing about what was there before it in the same millisecond.
            at = stored.changes.iter().map(|change| change.at.plus_ms(1)).fold(now, Timestamp::max);
        }
        self.check_stock(product, quantity, zone).await?;
        let effect = Effect::Add { product, quantity, zone };
        self.change_cart(
            caller,
            CartChange { id, at, origin: owner, keyed: idempotency_key.is_some(), effect },
        )
        .await
    }

    pub async fn set_in_cart(
        &self,
        caller: &Caller,
        product: ProductId,
        quantity: u64,
        zone: Option<Zone>,
    ) -> Result<CartContents, CartError> {
        self.check_stock(product, quantity, zone).await?;
        let view = self.cart_view(caller.cart_owner()).await?;
        let leaves_earlier = self.plants(Planted::SetLeavesEarlier);
        let covers = if leaves_earlier { Vec::new() } else { view.made_of_line(product) };
        self.change_cart(caller, self.new_change(caller, Effect::Set { product, quantity, zone, covers }))
            .await
    }

    pub async fn remove_from_cart(
        &self,
        caller: &Caller,
        product: ProductId,
    ) -> Result<CartContents, CartError> {
        let view = self.cart_view(caller.cart_owner()).await?;
        match view.line(product) {
            Some(line) => {
                let effect = Effect::Cover { covers: line.made_of.clone(), order: None };
                self.change_cart(caller, self.new_change(caller, effect)).await
            }
            None if self.stores().products.get(product).await?.is_none() => {
                Err(CartError::UnknownProduct(product))
            }
            None => Ok(self.cart(caller).await?),
        }
    }

    pub async fn clear_cart(&self, caller: &Caller) -> Result<CartContents, CartError> {
        let view = self.cart_view(caller.cart_owner()).await?;
        let covers = view.made_of();
        if covers.is_empty() {
            return Ok(self.cart(caller).await?);
        }
        let effect = Effect::Cover { covers, order: None };
        let cleared = self.change_cart(caller, self.new_change(caller, effect)).await;
        if self.plants(Planted::ClearedAgainLater) {
            let (shop, caller) = (self.clone(), caller.clone());
            self.inner.environment.spawn(async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                let Ok(view) = shop.cart_view(caller.cart_owner()).await else { return };
                let effect = Effect::Cover { covers: view.made_of(), order: None };
                let _ = shop.change_cart(&caller, shop.new_change(&caller, effect)).await;
            });
        }
        cleared
    }

    /// Carts with something in them that nobody has touched for the policy's time, longest first.
    pub async fn abandoned_carts(
        &self,
        after: Option<CartPosition>,
        limit: usize,
    ) -> Result<Page<AbandonedCart, CartPosition>, StoreError> {
        reading::of(ReadOperation::AbandonedCarts, self.left_behind(after, limit)).await
    }

    async fn left_behind(
        &self,
        after: Option<CartPosition>,
        limit: usize,
    ) -> Result<Page<AbandonedCart, CartPosition>, StoreError> {
        let now = self.now();
        let untouched_since = now.plus_ms(-self.settings().abandoned_after_ms);
        let page = self.stores().carts.untouched(untouched_since, after, limit, now).await?;
        let mut items = Vec::with_capacity(page.items.len());
        for (owner, stored) in page.items {
            // CRT-3: the cart of a guest whose session has ended, or went into a user's, is nobody's any more.
            if let Owner::Guest(guest) = owner
                && !self.stores().sessions.get(guest, now).await?.is_some_and(|session| session.is_live(now))
            {
                continue;
            }
            let contents = self.contents(owner, Some(stored), now).await?;
            if !contents.items.is_empty() {
                items.push(contents);
            }
        }
        Ok(Page { items, next: page.next })
    }

    pub(crate) async fn cart_view(&self, owner: Owner) -> Result<CartView, StoreError> {
        let stored = self.stores().carts.read(owner, self.now()).await?;
        Ok(stored.map(|stored| cart::fold(&stored.changes)).unwrap_or_default())
    }

    pub(crate) fn user_cart_expiry(&self, now: Timestamp) -> Timestamp {
        self.settings().user_cart_ttl_ms.map_or(NEVER, |ttl| now.plus_ms(ttl))
    }

    /// CRT-3: no guest's cart lives longer than the guest's session.
    fn cart_expiry(&self, caller: &Caller, now: Timestamp) -> Timestamp {
        match caller.cart_owner() {
            Owner::User(_) => self.user_cart_expiry(now),
            Owner::Guest(_) => now.plus_ms(self.settings().guest_cart_ttl_ms).min(caller.session.expires_at),
        }
    }

    fn new_change(&self, caller: &Caller, effect: Effect) -> CartChange {
        let now = self.now();
        CartChange {
            id: ChangeId(self.fresh_id()),
            at: now,
            origin: caller.cart_owner(),
            keyed: false,
            effect,
        }
    }

    async fn change_cart(&self, caller: &Caller, change: CartChange) -> Result<CartContents, CartError> {
        let (owner, now) = (caller.cart_owner(), self.now());
        let (id, at, keyed) = (change.id, change.at, change.keyed);
        // What covers nothing makes the cart longer. A set that replaces something must not be taken back: what it has
        // replaced would be gone, too.
        let lengthens = match &change.effect {
            Effect::Add { .. } => true,
            Effect::Set { covers, .. } => covers.is_empty(),
            Effect::Cover { .. } | Effect::Packed(_) => false,
        };
        let expires_at = self.cart_expiry(caller, now);
        self.stores().carts.append(owner, vec![change], expires_at, now).await?;
        self.follow_merge(caller).await?;
        let read_at = self.now();
        let stored = self.stores().carts.read(owner, read_at).await?;
        let changes = stored.as_ref().map_or(&[][..], |stored| &stored.changes);
        // Packed away or expired since then it may be gone for a good reason, and there is nothing to say.
        let packed = |change: &CartChange| change.at >= at && matches!(change.effect, Effect::Packed(_));
        if read_at < expires_at && !changes.iter().any(packed) {
            self.inner.invariants.check(Invariant::Crt1, cart::is_known(changes, id));
        }
        let view = cart::fold(changes);
        if lengthens && view.live_changes() > CART_CHANGES_MAX {
            let effect = Effect::Cover { covers: vec![id], order: None };
            let refusal = CartChange { id: refusal_of(id), at: read_at, origin: owner, keyed, effect };
            self.stores().carts.append(owner, vec![refusal], expires_at, read_at).await?;
            return Err(CartError::Full);
        }
        Ok(self.contents_of(owner, stored, view, read_at).await?)
    }

    async fn check_stock(
        &self,
        product: ProductId,
        requested: u64,
        zone: Option<Zone>,
    ) -> Result<(), CartError> {
        if let Some(zone) = zone.filter(|zone| !self.settings().knows_zone(*zone)) {
            return Err(CartError::UnknownZone(zone));
        }
        let found = reading::of(ReadOperation::StockBeforeCart, self.stores().products.get(product)).await?;
        let Some(found) = found else { return Err(CartError::UnknownProduct(product)) };
        let available = found.best_available(zone);
        if available < requested {
            return Err(CartError::OutOfStock { product_id: product, requested, available });
        }
        Ok(())
    }

    /// `now` is when the cart was asked for.
    async fn contents(
        &self,
        owner: Owner,
        stored: Option<StoredCart>,
        now: Timestamp,
    ) -> Result<CartContents, StoreError> {
        let view = stored.as_ref().map(|stored| cart::fold(&stored.changes)).unwrap_or_default();
        self.contents_of(owner, stored, view, now).await
    }

    /// `view` is what the stored changes fold to.
    async fn contents_of(
        &self,
        owner: Owner,
        stored: Option<StoredCart>,
        view: CartView,
        now: Timestamp,
    ) -> Result<CartContents, StoreError> {
        if let Some(stored) = &stored {
            self.inner.invariants.check(Invariant::Crt3, now.since(stored.expires_at) < 1_000);
        }
        let ids: Vec<ProductId> = view.lines.iter().map(|line| line.product).collect();
        let products =
            if ids.is_empty() { Default::default() } else { self.stores().products.get_many(&ids).await? };
        let items: Vec<CartItem> = view
            .lines
            .iter()
            .filter_map(|line| {
                let product = products.get(&line.product)?;
                Some(CartItem {
                    product_id: line.product,
                    name: product.name.clone(),
                    category: product.category.clone(),
                    price: product.price,
                    quantity: line.quantity,
                })
            })
            .collect();
        let untouched_ms = stored.as_ref().map_or(0, |stored| now.since(stored.updated_at));
        let abandoned = !items.is_empty() && untouched_ms >= self.settings().abandoned_after_ms;
        Ok(CartContents {
            owner,
            status: if abandoned { CartStatus::Abandoned } else { CartStatus::Active },
            geo_zone: view.geo_zone,
            amount: items.iter().map(|item| item.price.times(item.quantity)).sum(),
            items,
            updated_at: stored.as_ref().map(|stored| stored.updated_at),
            expires_at: stored.as_ref().map(|stored| stored.expires_at).filter(|at| *at < NEVER),
        })
    }
}

/// The id of what takes a change back that did not fit into the cart. It follows from the change, so that a retry under
/// the same key learns of it.
fn refusal_of(change: ChangeId) -> ChangeId {
    ChangeId(id::derived("cart-full", &[change.as_bytes()]))
}
