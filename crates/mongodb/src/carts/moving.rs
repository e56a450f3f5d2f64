//! Carts as a migration sees them.

use std::sync::Arc;

use mobimir_core::{
    cart::Owner,
    moving::{CartSide, Side, WholeCart},
    policy::Entity,
    ports::StoreResult,
    time::Timestamp,
};
use mongodb::bson::{Bson, Document, RawDocument, doc};

use super::{
    MongoCarts,
    document::{CartDoc, OwnerDoc},
    updates::cart_of,
};
use crate::{
    deployment::Deployment,
    leaves::{literal, uuid_of, version},
    moving::{InDocuments, Moving, Put, Tracking, document},
};

impl MongoCarts {
    /// The carts of a deployment, as a migration sees them.
    pub fn side(deployment: Arc<Deployment>) -> CartSide {
        let port = Self::new(deployment.clone());
        // They also share whose turn it is to pack.
        let tracked = Self { inner: port.inner.clone(), tracking: Tracking::On };
        Side {
            port: Arc::new(port),
            tracked: Arc::new(tracked),
            moving: Arc::new(Moving::<WholeCart>::new(deployment)),
        }
    }
}

impl InDocuments for WholeCart {
    const ENTITY: Entity = Entity::Carts;
    const COLLECTIONS: &'static [&'static str] = &["carts"];

    fn spot(key: Owner) -> (usize, Bson) {
        let OwnerDoc { is_guest, id } = OwnerDoc::of(key);
        (0, doc! { "is_guest": is_guest, "id": id }.into())
    }

    fn key_at(_collection: usize, stored: Bson, _document: &RawDocument) -> Option<Owner> {
        let Bson::Document(fields) = &stored else { return None };
        let (is_guest, id) = (fields.get_bool("is_guest").ok()?, uuid_of(fields.get("id")?)?);
        let owner = OwnerDoc { is_guest, id }.owner();
        // Other fields, or in another order, make it another.
        (Self::spot(owner).1 == stored).then_some(owner)
    }

    fn of_document(_collection: usize, stored: &RawDocument) -> StoreResult<Self> {
        let stored: CartDoc = document("carts", stored)?;
        Ok(Self { owner: stored.id.owner(), cart: stored.cart()?, version: version(stored.version) })
    }

    fn document(&self) -> Document {
        cart_of(self.owner)
    }

    fn put(self, now: Timestamp) -> StoreResult<Put> {
        let cart = CartDoc::whole(&self, now);
        let mut older = cart_of(self.owner);
        older.insert("version", doc! { "$lt": cart.version });
        Ok(Put { older, update: vec![doc! { "$replaceWith": literal(&cart)? }].into() })
    }
}
