//! Which checkout claimed a user's cart last.

use fjall::Slice;
use mobimir_core::{
    id::{OrderId, UserId},
    ports::StoreResult,
};
use uuid::Uuid;

use crate::{
    engine::{Key, KeyBuilder, Table},
    error::damaged,
};

pub(crate) fn key(user: UserId) -> Key {
    KeyBuilder::new(Table::CartClaim).uuid(user.0).end()
}

pub(crate) fn encode(order: OrderId) -> Slice {
    Slice::from(order.as_bytes().as_slice())
}

pub(crate) fn decode(user: UserId, bytes: &[u8]) -> StoreResult<OrderId> {
    let order = Uuid::from_slice(bytes);
    order.map(OrderId).map_err(|_| {
        damaged(format!("expected 16 bytes in the claim of the cart of user {user}, got {}", bytes.len()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_comes_back() {
        let (user, order) = (UserId(Uuid::from_u128(1)), OrderId(Uuid::from_u128(2)));
        assert_eq!(decode(user, &encode(order)).unwrap(), order);
        assert!(decode(user, &encode(order)[1..]).is_err());
    }
}
