//! A checkout record.

use fjall::Slice;
use minicbor::{Decode, Encode};
use mobimir_codec::{
    leaves::{At, Digest, Id, OwnerCode, ZoneCode},
    order_lines::LineRecord,
};
use mobimir_core::{
    checkout::{AbortReason, CartTake, Checkout, CheckoutState, Fate, ShortLine},
    id::{AttemptId, ChangeId, OrderId, ProductId, UserId},
    ports::StoreResult,
    time::{Timestamp, Version},
};

use crate::engine::{Key, KeyBuilder, Table};

pub(crate) fn key(id: OrderId) -> Key {
    KeyBuilder::new(Table::Checkout).uuid(id.0).end()
}

#[derive(Encode, Decode)]
struct CheckoutRecord<'a> {
    #[n(0)]
    user_id: Id,
    #[n(1)]
    request_hash: Digest,
    #[n(2)]
    geo_zone: ZoneCode,
    #[b(3)]
    lines: Vec<LineRecord<'a>>,
    #[b(4)]
    shipping_address: Option<&'a str>,
    #[b(5)]
    payment_method: Option<&'a str>,
    #[n(6)]
    cart: Option<CartTakeRecord>,
    #[n(7)]
    created_at: At,
    #[n(8)]
    deadline: At,
    #[n(9)]
    bucket: u16,
    #[n(10)]
    state: StateRecord,
    #[b(11)]
    fate: FateRecord<'a>,
    #[n(12)]
    due_at: Option<At>,
    #[n(13)]
    version: u64,
}

/// What an update has to know of the record that it replaces.
#[derive(Decode)]
struct ReplacedRecord {
    #[n(12)]
    due_at: Option<At>,
    #[n(13)]
    version: u64,
}

#[derive(Encode, Decode)]
struct CartTakeRecord {
    #[n(0)]
    owner: OwnerCode,
    #[n(1)]
    covers: Vec<Id>,
    #[n(2)]
    after: Option<Id>,
}

#[derive(Encode, Decode)]
enum StateRecord {
    #[n(0)]
    Open,
    #[n(1)]
    Committed {
        #[n(0)]
        attempt: Id,
        #[n(1)]
        at: At,
    },
    #[n(2)]
    OutOfStock(#[n(0)] Vec<ShortLineRecord>),
    #[n(3)]
    Expired,
    #[n(4)]
    CartOrdered(#[n(0)] Id),
}

#[derive(Encode, Decode)]
struct ShortLineRecord {
    #[n(0)]
    product_id: Id,
    #[n(1)]
    requested: u64,
    #[n(2)]
    available: u64,
}

#[derive(Encode, Decode)]
enum FateRecord<'a> {
    #[n(0)]
    InStore,
    #[n(1)]
    Dispatched,
    #[n(2)]
    Cancelled {
        #[n(0)]
        attempt: Id,
        #[n(1)]
        at: At,
        #[b(2)]
        operator: Option<&'a str>,
    },
}

pub(crate) fn encode(checkout: &Checkout) -> Slice {
    super::encode(&CheckoutRecord {
        user_id: Id(checkout.user_id.0),
        request_hash: Digest(checkout.request_hash),
        geo_zone: ZoneCode(checkout.geo_zone),
        lines: checkout.lines.iter().map(LineRecord::from).collect(),
        shipping_address: checkout.shipping_address.as_deref(),
        payment_method: checkout.payment_method.as_deref(),
        cart: checkout.cart.as_ref().map(CartTakeRecord::from),
        created_at: At(checkout.created_at),
        deadline: At(checkout.deadline),
        bucket: checkout.bucket,
        state: StateRecord::from(&checkout.state),
        fate: FateRecord::from(&checkout.fate),
        due_at: checkout.due_at.map(At),
        version: checkout.version.0,
    })
}

pub(crate) fn decode(id: OrderId, bytes: &[u8]) -> StoreResult<Checkout> {
    let record: CheckoutRecord<'_> = super::decode("checkout", bytes)?;
    Ok(Checkout {
        order_id: id,
        user_id: UserId(record.user_id.0),
        request_hash: record.request_hash.0,
        geo_zone: record.geo_zone.0,
        lines: record.lines.into_iter().map(Into::into).collect(),
        shipping_address: record.shipping_address.map(Into::into),
        payment_method: record.payment_method.map(Into::into),
        cart: record.cart.map(CartTake::from),
        created_at: record.created_at.0,
        deadline: record.deadline.0,
        bucket: record.bucket,
        state: record.state.into(),
        fate: record.fate.into(),
        due_at: record.due_at.map(|at| at.0),
        version: Version(record.version),
    })
}

/// When the record is due, and its version; without the rest, which costs more than both to read.
pub(crate) fn decode_replaced(bytes: &[u8]) -> StoreResult<(Option<Timestamp>, Version)> {
    let record: ReplacedRecord = super::decode("checkout", bytes)?;
    Ok((record.due_at.map(|at| at.0), Version(record.version)))
}

impl From<&CartTake> for CartTakeRecord {
    fn from(take: &CartTake) -> Self {
        Self {
            owner: OwnerCode(take.owner),
            covers: take.covers.iter().map(|id| Id(id.0)).collect(),
            after: take.after.map(|order| Id(order.0)),
        }
    }
}

impl From<CartTakeRecord> for CartTake {
    fn from(record: CartTakeRecord) -> Self {
        Self {
            owner: record.owner.0,
            covers: record.covers.into_iter().map(|id| ChangeId(id.0)).collect(),
            after: record.after.map(|order| OrderId(order.0)),
        }
    }
}

impl From<&CheckoutState> for StateRecord {
    fn from(state: &CheckoutState) -> Self {
        match state {
            CheckoutState::Open => Self::Open,
            CheckoutState::Committed { attempt, at } => {
                Self::Committed { attempt: Id(attempt.0), at: At(*at) }
            }
            CheckoutState::Aborted { reason: AbortReason::OutOfStock { lines } } => {
                let short = |line: &ShortLine| ShortLineRecord {
                    product_id: Id(line.product_id.0),
                    requested: line.requested,
                    available: line.available,
                };
                Self::OutOfStock(lines.iter().map(short).collect())
            }
            CheckoutState::Aborted { reason: AbortReason::Expired } => Self::Expired,
            CheckoutState::Aborted { reason: AbortReason::CartOrdered { by } } => Self::CartOrdered(Id(by.0)),
        }
    }
}

impl From<StateRecord> for CheckoutState {
    fn from(record: StateRecord) -> Self {
        match record {
            StateRecord::Open => Self::Open,
            StateRecord::Committed { attempt, at } => {
                Self::Committed { attempt: AttemptId(attempt.0), at: at.0 }
            }
            StateRecord::OutOfStock(lines) => {
                let short = |line: ShortLineRecord| ShortLine {
                    product_id: ProductId(line.product_id.0),
                    requested: line.requested,
                    available: line.available,
                };
                let lines = lines.into_iter().map(short).collect();
                Self::Aborted { reason: AbortReason::OutOfStock { lines } }
            }
            StateRecord::Expired => Self::Aborted { reason: AbortReason::Expired },
            StateRecord::CartOrdered(by) => {
                Self::Aborted { reason: AbortReason::CartOrdered { by: OrderId(by.0) } }
            }
        }
    }
}

impl<'a> From<&'a Fate> for FateRecord<'a> {
    fn from(fate: &'a Fate) -> Self {
        match fate {
            Fate::InStore => Self::InStore,
            Fate::Dispatched => Self::Dispatched,
            Fate::Cancelled { attempt, at, operator } => {
                Self::Cancelled { attempt: Id(attempt.0), at: At(*at), operator: operator.as_deref() }
            }
        }
    }
}

impl From<FateRecord<'_>> for Fate {
    fn from(record: FateRecord<'_>) -> Self {
        match record {
            FateRecord::InStore => Self::InStore,
            FateRecord::Dispatched => Self::Dispatched,
            FateRecord::Cancelled { attempt, at, operator } => Self::Cancelled {
                attempt: AttemptId(attempt.0),
                at: at.0,
                operator: operator.map(Into::into),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::arbitrary;

    proptest! {
        #[test]
        fn a_checkout_comes_back_whole(checkout in arbitrary::checkout()) {
            let bytes = super::encode(&checkout);
            prop_assert_eq!(super::decode_replaced(&bytes).unwrap(), (checkout.due_at, checkout.version));
            prop_assert_eq!(super::decode(checkout.order_id, &bytes).unwrap(), checkout);
        }
    }
}
