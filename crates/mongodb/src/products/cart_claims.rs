//! Which checkout claimed a user's cart last: a document a user, changed by compare-and-set.

use mobimir_core::{
    id::{OrderId, UserId},
    ports::StoreResult,
};
use mongodb::{
    Collection,
    bson::{Uuid, doc},
};
use serde::{Deserialize, Serialize};

use crate::{
    leaves::{id, uuid},
    link::Link,
};

pub(super) struct CartClaims {
    claims: Collection<ClaimDoc>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct ClaimDoc {
    /// The user.
    #[serde(rename = "_id")]
    id: Uuid,
    order_id: Uuid,
}

impl CartClaims {
    pub(super) fn new(link: &Link) -> Self {
        Self { claims: link.collection("cart_claims") }
    }

    pub(super) async fn get(&self, link: &Link, user: UserId) -> StoreResult<Option<OrderId>> {
        let found = link.find_one("cart_claim", &self.claims, doc! { "_id": uuid(user.0) }).await?;
        Ok(found.map(|claim| id(claim.order_id)))
    }

    pub(super) async fn set(
        &self,
        link: &Link,
        user: UserId,
        expected: Option<OrderId>,
        order: OrderId,
    ) -> StoreResult<bool> {
        let claim = ClaimDoc { id: uuid(user.0), order_id: uuid(order.0) };
        let is_set = match expected {
            None => link.insert_one("claim_cart", &self.claims, &claim).await?,
            Some(expected) => {
                let as_expected = doc! { "_id": claim.id, "order_id": uuid(expected.0) };
                link.replace_one("claim_cart", &self.claims, as_expected, &claim).await?
            }
        };
        Ok(is_set || self.get(link, user).await? == Some(order))
    }
}
