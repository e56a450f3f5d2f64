//! Checkout records: a document each, replaced as a whole under its version.

use mobimir_core::{
    cart::Owner,
    checkout::{AbortReason, CartTake, Checkout, CheckoutState, Fate, ShortLine},
    id::OrderId,
    order::OrderLine,
    ports::StoreResult,
    time::{Timestamp, Version},
};
use mongodb::{
    Collection,
    bson::{Binary, DateTime, Document, Uuid, doc, spec::BinarySubtype},
    options::FindOptions,
};
use serde::{Deserialize, Serialize};

use crate::{
    leaves::{date, id, kopecks, number, price, time, units, uuid, version, zone},
    link::{Link, damaged},
};

pub(super) struct Checkouts {
    checkouts: Collection<CheckoutDoc>,
}

impl Checkouts {
    pub(super) fn new(link: &Link) -> Self {
        Self { checkouts: link.collection("checkouts") }
    }

    /// Inserts the record, or returns the one that is there.
    pub(super) async fn insert(&self, link: &Link, checkout: Checkout) -> StoreResult<Option<Checkout>> {
        let stored = CheckoutDoc::of(checkout);
        if link.insert_one("insert_checkout", &self.checkouts, &stored).await? {
            return Ok(None);
        }
        let there = self.get(link, id(stored.id)).await?;
        there.map(Some).ok_or_else(|| damaged(format!("checkout {} is there and not there", stored.id)))
    }

    pub(super) async fn get(&self, link: &Link, id: OrderId) -> StoreResult<Option<Checkout>> {
        let found = link.find_one("checkout", &self.checkouts, doc! { "_id": uuid(id.0) }).await?;
        found.map(CheckoutDoc::checkout).transpose()
    }

    pub(super) async fn update(
        &self,
        link: &Link,
        checkout: Checkout,
        expected: Version,
    ) -> StoreResult<bool> {
        let as_expected = doc! { "_id": uuid(checkout.order_id.0), "version": number(expected) };
        link.replace_one("update_checkout", &self.checkouts, as_expected, &CheckoutDoc::of(checkout)).await
    }

    pub(super) async fn due(&self, link: &Link, now: Timestamp, limit: usize) -> StoreResult<Vec<Checkout>> {
        let due = doc! { "due_at": { "$lt": date(now) } };
        self.longest_due_first(link, "due_checkouts", due, limit).await
    }

    pub(super) async fn due_uncommitted(
        &self,
        link: &Link,
        now: Timestamp,
        limit: usize,
    ) -> StoreResult<Vec<Checkout>> {
        let due = doc! { "due_at": { "$lt": date(now) }, "state.is": { "$ne": "committed" } };
        self.longest_due_first(link, "due_uncommitted", due, limit).await
    }

    async fn longest_due_first(
        &self,
        link: &Link,
        name: &'static str,
        due: Document,
        limit: usize,
    ) -> StoreResult<Vec<Checkout>> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let options = FindOptions::builder().sort(doc! { "due_at": 1 }).limit(limit).build();
        let found = link.find(name, &self.checkouts, due, options).await?;
        found.into_iter().map(CheckoutDoc::checkout).collect()
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct CheckoutDoc {
    #[serde(rename = "_id")]
    id: Uuid,
    user_id: Uuid,
    request_hash: Binary,
    geo_zone: String,
    lines: Vec<LineDoc>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shipping_address: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    payment_method: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cart: Option<CartDoc>,
    created_at: DateTime,
    deadline: DateTime,
    bucket: i32,
    state: StateDoc,
    fate: FateDoc,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    due_at: Option<DateTime>,
    version: i64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct LineDoc {
    product_id: Uuid,
    name: String,
    category: String,
    price: i64,
    quantity: i64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct CartDoc {
    owner: OwnerDoc,
    covers: Vec<Uuid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    after: Option<Uuid>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum OwnerDoc {
    User(Uuid),
    Guest(Uuid),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "lowercase")]
enum StateDoc {
    Open,
    Committed {
        attempt: Uuid,
        at: DateTime,
    },
    Short {
        lines: Vec<ShortDoc>,
    },
    Expired,
    #[serde(rename = "cart_ordered")]
    CartOrdered {
        by: Uuid,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct ShortDoc {
    product_id: Uuid,
    requested: i64,
    available: i64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
enum FateDoc {
    InStore,
    Dispatched,
    Cancelled {
        attempt: Uuid,
        at: DateTime,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        operator: Option<String>,
    },
}

impl CheckoutDoc {
    fn of(checkout: Checkout) -> Self {
        Self {
            id: uuid(checkout.order_id.0),
            user_id: uuid(checkout.user_id.0),
            request_hash: Binary { subtype: BinarySubtype::Generic, bytes: checkout.request_hash.to_vec() },
            geo_zone: checkout.geo_zone.to_string(),
            lines: checkout.lines.into_iter().map(LineDoc::of).collect(),
            shipping_address: checkout.shipping_address,
            payment_method: checkout.payment_method,
            cart: checkout.cart.map(CartDoc::of),
            created_at: date(checkout.created_at),
            deadline: date(checkout.deadline),
            bucket: checkout.bucket.into(),
            state: StateDoc::of(checkout.state),
            fate: FateDoc::of(checkout.fate),
            due_at: checkout.due_at.map(date),
            version: number(checkout.version),
        }
    }

    fn checkout(self) -> StoreResult<Checkout> {
        let request_hash = self.request_hash.bytes.try_into();
        Ok(Checkout {
            order_id: id(self.id),
            user_id: id(self.user_id),
            request_hash: request_hash.map_err(|_| damaged("expected a request hash of 32 bytes"))?,
            geo_zone: zone(&self.geo_zone)?,
            lines: self.lines.into_iter().map(LineDoc::line).collect::<StoreResult<_>>()?,
            shipping_address: self.shipping_address,
            payment_method: self.payment_method,
            cart: self.cart.map(CartDoc::cart),
            created_at: time(self.created_at),
            deadline: time(self.deadline),
            bucket: u16::try_from(self.bucket)
                .map_err(|_| damaged(format!("expected a bucket, got {}", self.bucket)))?,
            state: self.state.state()?,
            fate: self.fate.fate(),
            due_at: self.due_at.map(time),
            version: version(self.version),
        })
    }
}

impl LineDoc {
    fn of(line: OrderLine) -> Self {
        Self {
            product_id: uuid(line.product_id.0),
            name: line.name,
            category: line.category,
            price: kopecks(line.price),
            quantity: stored(line.quantity),
        }
    }

    fn line(self) -> StoreResult<OrderLine> {
        Ok(OrderLine {
            product_id: id(self.product_id),
            name: self.name,
            category: self.category,
            price: price(self.price),
            quantity: units(self.quantity)?,
        })
    }
}

impl CartDoc {
    fn of(cart: CartTake) -> Self {
        let owner = match cart.owner {
            Owner::User(user) => OwnerDoc::User(uuid(user.0)),
            Owner::Guest(session) => OwnerDoc::Guest(uuid(session.0)),
        };
        Self {
            owner,
            covers: cart.covers.into_iter().map(|change| uuid(change.0)).collect(),
            after: cart.after.map(|order| uuid(order.0)),
        }
    }

    fn cart(self) -> CartTake {
        let owner = match self.owner {
            OwnerDoc::User(user) => Owner::User(id(user)),
            OwnerDoc::Guest(session) => Owner::Guest(id(session)),
        };
        CartTake { owner, covers: self.covers.into_iter().map(id).collect(), after: self.after.map(id) }
    }
}

impl StateDoc {
    fn of(state: CheckoutState) -> Self {
        match state {
            CheckoutState::Open => Self::Open,
            CheckoutState::Committed { attempt, at } => {
                Self::Committed { attempt: uuid(attempt.0), at: date(at) }
            }
            CheckoutState::Aborted { reason: AbortReason::OutOfStock { lines } } => {
                Self::Short { lines: lines.into_iter().map(ShortDoc::of).collect() }
            }
            CheckoutState::Aborted { reason: AbortReason::Expired } => Self::Expired,
            CheckoutState::Aborted { reason: AbortReason::CartOrdered { by } } => {
                Self::CartOrdered { by: uuid(by.0) }
            }
        }
    }

    fn state(self) -> StoreResult<CheckoutState> {
        Ok(match self {
            Self::Open => CheckoutState::Open,
            Self::Committed { attempt, at } => {
                CheckoutState::Committed { attempt: id(attempt), at: time(at) }
            }
            Self::Short { lines } => {
                let lines = lines.into_iter().map(ShortDoc::short).collect::<StoreResult<_>>()?;
                CheckoutState::Aborted { reason: AbortReason::OutOfStock { lines } }
            }
            Self::Expired => CheckoutState::Aborted { reason: AbortReason::Expired },
            Self::CartOrdered { by } => {
                CheckoutState::Aborted { reason: AbortReason::CartOrdered { by: id(by) } }
            }
        })
    }
}

impl ShortDoc {
    fn of(line: ShortLine) -> Self {
        Self {
            product_id: uuid(line.product_id.0),
            requested: stored(line.requested),
            available: stored(line.available),
        }
    }

    fn short(self) -> StoreResult<ShortLine> {
        Ok(ShortLine {
            product_id: id(self.product_id),
            requested: units(self.requested)?,
            available: units(self.available)?,
        })
    }
}

impl FateDoc {
    fn of(fate: Fate) -> Self {
        match fate {
            Fate::InStore => Self::InStore,
            Fate::Dispatched => Self::Dispatched,
            Fate::Cancelled { attempt, at, operator } => {
                Self::Cancelled { attempt: uuid(attempt.0), at: date(at), operator }
            }
        }
    }

    fn fate(self) -> Fate {
        match self {
            Self::InStore => Fate::InStore,
            Self::Dispatched => Fate::Dispatched,
            Self::Cancelled { attempt, at, operator } => {
                Fate::Cancelled { attempt: id(attempt), at: time(at), operator }
            }
        }
    }
}

fn stored(units: u64) -> i64 {
    i64::try_from(units).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use mobimir_testkit::strategies;
    use mongodb::bson::{deserialize_from_slice, serialize_to_vec};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_checkout_comes_back_as_it_was(checkout in strategies::checkout()) {
            let bytes = serialize_to_vec(&CheckoutDoc::of(checkout.clone())).unwrap();
            let read: CheckoutDoc = deserialize_from_slice(&bytes).unwrap();
            prop_assert_eq!(read.checkout().unwrap(), checkout);
        }
    }
}
