//! The products that have holds waiting to be settled, with the time of the oldest.

use fjall::Slice;
use mobimir_core::{id::ProductId, ports::StoreResult, product::Product, time::Timestamp};

use crate::{
    engine::{Key, KeyBuilder, KeyReader, Table},
    error::damaged,
};

pub(crate) fn key(id: ProductId) -> Key {
    KeyBuilder::new(Table::ProductHolds).uuid(id.0).end()
}

pub(crate) fn all() -> Key {
    KeyBuilder::new(Table::ProductHolds).end()
}

pub(crate) fn read_key(key: &[u8]) -> StoreResult<ProductId> {
    KeyReader::new(Table::ProductHolds, key)?.uuid().map(ProductId)
}

pub(crate) fn oldest(product: &Product) -> Option<Timestamp> {
    product.holds.iter().map(|hold| hold.placed_at).min()
}

pub(crate) fn encode(oldest: Timestamp) -> Slice {
    Slice::from(oldest.as_millis().to_be_bytes())
}

pub(crate) fn decode(bytes: &[u8]) -> StoreResult<Timestamp> {
    let bytes = bytes.try_into().map_err(|_| damaged("expected the time of a hold"))?;
    Ok(Timestamp::from_millis(i64::from_be_bytes(bytes)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    proptest! {
        #[test]
        fn keys_and_values_come_back(a in any::<u128>(), b in any::<u128>(), ms in -1_000_000_000_000..9_000_000_000_000i64) {
            let [a, b] = [a, b].map(|id| ProductId(Uuid::from_u128(id)));
            prop_assert_eq!(key(a).cmp(&key(b)), a.cmp(&b));
            prop_assert_eq!(read_key(&key(a).bytes).unwrap(), a);
            prop_assert_eq!(decode(&encode(Timestamp::from_millis(ms))).unwrap(), Timestamp::from_millis(ms));
        }
    }
}
