//! Carts: a document each, with its changes as a list that only grows at its end and is packed when long.
//!
//! Adding is one update that reads nothing before: it upserts the document, leaves out what is there already by its id,
//! and begins anew if the cart has expired. Updates of one document come one after the other, so all count (CRT-1).
//!
//! Packing ([`pack`](mobimir_core::cart::pack)) replaces the changes that were read by one, if they still stand at the beginning
//! of the list. Adds that come in between do not hinder it. It is done in the background by whoever reads a long cart; a list
//! of [`CHANGES_MAX`](updates::CHANGES_MAX) takes no more before somebody has packed it, so a document stays far below
//! what MongoDB allows even if nobody reads.
//!
//! The `_id` follows from the owner, so it is unique across shards whether these are chosen by `owner_id` or by `_id`,
//! and both ask one shard for a cart.

mod document;
mod moving;
mod updates;

use std::sync::Arc;

use async_trait::async_trait;
use mobimir_core::{
    cart::{self, CartChange, CartPosition, Owner, StoredCart},
    id::{self, ChangeId},
    page::Page,
    policy::Entity,
    ports::{CartStore, StoreError, StoreResult},
    time::Timestamp,
};
use mongodb::{
    Collection,
    bson::{Document, doc},
};
use tokio::sync::Semaphore;

use self::{
    document::CartDoc,
    updates::{CHANGES_MAX, cart_of, cart_that_was_read, cart_with_room},
};
use crate::{
    deployment::Deployment,
    leaves::{date, time, uuid},
    link::Link,
    moving::Tracking,
    paging::page_of,
};

pub struct MongoCarts {
    inner: Arc<Inner>,
    tracking: Tracking,
}

struct Inner {
    link: Link,
    carts: Collection<CartDoc>,
    packers: Semaphore,
}

/// Carts that one instance packs at the same time. Others wait for the next who reads them.
const PACKED_AT_ONCE: usize = 4;

/// How often an append is tried that found the cart neither there nor missing, or full.
const APPENDS_MAX: u32 = 16;

impl MongoCarts {
    pub fn new(deployment: Arc<Deployment>) -> Self {
        let link = Link::new(deployment, Entity::Carts);
        let carts = link.collection("carts");
        let inner = Inner { link, carts, packers: Semaphore::new(PACKED_AT_ONCE) };
        Self { inner: Arc::new(inner), tracking: Tracking::Off }
    }
}

#[async_trait]
impl CartStore for MongoCarts {
    async fn append(
        &self,
        owner: Owner,
        changes: Vec<CartChange>,
        expires_at: Timestamp,
        now: Timestamp,
    ) -> StoreResult<()> {
        self.inner.append(owner, &changes, expires_at, now, self.tracking).await
    }

    async fn read(&self, owner: Owner, now: Timestamp) -> StoreResult<Option<StoredCart>> {
        let stored = self.inner.stored(owner).await?;
        let Some(stored) = stored.filter(|cart| time(cart.expires_at) > now) else { return Ok(None) };
        let cart = stored.cart()?;
        // Not while it moves: a write that nobody waits for could come after another store has begun to decide.
        if self.tracking == Tracking::Off && is_to_be_packed(&stored) {
            self.pack_later(owner, stored, now);
        }
        Ok(Some(cart))
    }

    async fn untouched(
        &self,
        untouched_since: Timestamp,
        after: Option<CartPosition>,
        limit: usize,
        now: Timestamp,
    ) -> StoreResult<Page<(Owner, StoredCart), CartPosition>> {
        self.inner.untouched(untouched_since, after, limit, now).await
    }
}

impl MongoCarts {
    fn pack_later(&self, owner: Owner, stored: CartDoc, now: Timestamp) {
        let inner = self.inner.clone();
        tokio::spawn(async move {
            let Ok(_turn) = inner.packers.try_acquire() else { return };
            if let Err(error) = inner.pack(owner, &stored, now, Tracking::Off).await {
                // The next who reads the cart will try again.
                tracing::debug!(%error, "a cart could not be packed");
            }
        });
    }
}

impl Inner {
    async fn append(
        &self,
        owner: Owner,
        changes: &[CartChange],
        expires_at: Timestamp,
        now: Timestamp,
        tracking: Tracking,
    ) -> StoreResult<()> {
        let update = updates::append(changes, expires_at, now, tracking)?;
        let filter = cart_with_room(owner);
        for _ in 0..APPENDS_MAX {
            let append =
                self.link.update_one("append_to_cart", &self.carts, filter.clone(), update.clone(), true);
            let appended = append.await?;
            if appended.matched || appended.inserted {
                return Ok(());
            }
            // Somebody made the cart at the same moment, or it takes no more.
            let stored = self.stored(owner).await?;
            if let Some(full) = stored.filter(|cart| cart.changes.len() >= CHANGES_MAX) {
                self.pack(owner, &full, now, tracking).await?;
            }
        }
        let what = format!("MongoDB, append_to_cart: the cart was changed by others {APPENDS_MAX} times");
        Err(StoreError::Unavailable { what, source: None })
    }

    /// Whether it has expired or not.
    async fn stored(&self, owner: Owner) -> StoreResult<Option<CartDoc>> {
        self.link.find_one("cart", &self.carts, cart_of(owner)).await
    }

    /// Packs what was read, unless somebody else did.
    async fn pack(
        &self,
        owner: Owner,
        read: &CartDoc,
        now: Timestamp,
        tracking: Tracking,
    ) -> StoreResult<()> {
        let packed = cart::pack(ChangeId(id::fresh(now)), owner, &read.changes()?, now);
        let update = updates::pack(&packed, read, now, tracking)?;
        let filter = cart_that_was_read(owner, read);
        self.link.update_one("pack_cart", &self.carts, filter, update, false).await?;
        Ok(())
    }

    async fn untouched(
        &self,
        untouched_since: Timestamp,
        after: Option<CartPosition>,
        limit: usize,
        now: Timestamp,
    ) -> StoreResult<Page<(Owner, StoredCart), CartPosition>> {
        let sort = doc! { "updated_at": 1, "_id": 1 };
        let filter = untouched(untouched_since, after, now);
        let found = self.link.find("untouched_carts", &self.carts, filter, page_of(limit, sort)).await?;
        let carts: StoreResult<Vec<(Owner, StoredCart)>> =
            found.into_iter().map(|stored| Ok((stored.id.owner(), stored.cart()?))).collect();
        Ok(Page::cut(carts?, limit, |(owner, cart)| CartPosition::of(*owner, cart.updated_at)))
    }
}

/// Packing writes all of the packed change again, so a cart with very many waits until that is worth it.
fn is_to_be_packed(stored: &CartDoc) -> bool {
    let packed_ids = stored.packed_ids();
    let unpacked = stored.changes.len() - usize::from(packed_ids.is_some());
    unpacked > cart::UNPACKED_CHANGES_MAX.max(packed_ids.unwrap_or_default() / 2)
}

/// Carts that have not expired and were last touched by some moment, from a position in their list on.
fn untouched(untouched_since: Timestamp, after: Option<CartPosition>, now: Timestamp) -> Document {
    let is_there = doc! { "$gt": date(now) };
    match after {
        None => doc! { "updated_at": { "$lte": date(untouched_since) }, "expires_at": is_there },
        Some(CartPosition { updated_at, is_guest, owner }) => {
            let later = doc! { "$gt": date(updated_at), "$lte": date(untouched_since) };
            let mut ranges = vec![doc! { "updated_at": later }];
            if updated_at <= untouched_since {
                let last = doc! { "is_guest": is_guest, "id": uuid(owner) };
                ranges.push(doc! { "updated_at": date(updated_at), "_id": { "$gt": last } });
            }
            doc! { "$or": ranges, "expires_at": is_there }
        }
    }
}
