//! A change of a cart.

use minicbor::{Decode, Encode};
use mobimir_core::{cart::CartChange, id::ChangeId};

use crate::{
    CodecError,
    cart_effect::EffectRecord,
    leaves::{At, Id, OwnerCode},
};

#[derive(Encode, Decode)]
struct ChangeRecord {
    #[n(0)]
    id: Id,
    #[n(1)]
    at: At,
    #[n(2)]
    origin: OwnerCode,
    #[n(3)]
    keyed: bool,
    #[n(4)]
    effect: EffectRecord,
}

pub fn encode(change: &CartChange) -> Vec<u8> {
    crate::encode(&ChangeRecord {
        id: Id(change.id.0),
        at: At(change.at),
        origin: OwnerCode(change.origin),
        keyed: change.keyed,
        effect: EffectRecord::from(&change.effect),
    })
}

pub fn decode(bytes: &[u8]) -> Result<CartChange, CodecError> {
    let record: ChangeRecord = crate::decode("cart change", bytes)?;
    Ok(CartChange {
        id: ChangeId(record.id.0),
        at: record.at.0,
        origin: record.origin.0,
        keyed: record.keyed,
        effect: record.effect.into(),
    })
}

#[cfg(test)]
mod tests {
    use mobimir_core::{
        cart::{Effect, Owner, Packed, Part},
        id::{OrderId, ProductId, SessionId, UserId},
        time::Timestamp,
        zone::Zone,
    };
    use mobimir_testkit::arbitrary;
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    /// What stores hold already: a change of these bytes makes it unreadable.
    #[test]
    fn stored_bytes_stay_as_they_are() {
        let uuid = |n: u8| Uuid::from_bytes([n; 16]);
        let (at, zone, product) =
            (Timestamp::from_millis(1), Zone::parse("MSK").unwrap(), ProductId(uuid(2)));
        let covers = vec![ChangeId(uuid(3))];
        let part = Part {
            id: ChangeId(uuid(4)),
            at,
            origin: Owner::Guest(SessionId(uuid(6))),
            keyed: true,
            is_set: false,
            product,
            quantity: 7,
        };
        let effects = [
            Effect::Add { product, quantity: 1000, zone: Some(zone) },
            Effect::Set { product, quantity: 0, zone: None, covers: covers.clone() },
            Effect::Cover { covers, order: Some(OrderId(uuid(8))) },
            Effect::Packed(Packed {
                parts: vec![part],
                remembered: vec![(ChangeId(uuid(9)), at)],
                zone: Some((zone, at)),
            }),
        ];
        let origin = Owner::User(UserId(uuid(1)));
        for (effect, stored) in effects.into_iter().zip(STORED) {
            let change = CartChange { id: ChangeId(uuid(0)), at, origin, keyed: false, effect };
            assert_eq!(shown(&encode(&change)), stored);
        }
    }

    const STORED: [&str; 4] = [
        "85 50 00*16 01 51 00 01*16 f4 82 00 83 50 02*16 19 03 e8 63 4d 53 4b",
        "85 50 00*16 01 51 00 01*16 f4 82 01 84 50 02*16 00 f6 81 50 03*16",
        "85 50 00*16 01 51 00 01*16 f4 82 02 82 81 50 03*16 50 08*16",
        "85 50 00*16 01 51 00 01*16 f4 82 03 83 81 87 50 04*16 01 51 01 06*16 f5 f4 50 02*16 07 81 82 50 09*16 01 82 63 4d 53 4b 01",
    ];

    /// In hexadecimal, the same byte many times as `02*16`.
    fn shown(bytes: &[u8]) -> String {
        let runs = bytes.chunk_by(|a, b| a == b).map(|run| match run.len() {
            1..=2 => run.iter().map(|byte| format!("{byte:02x}")).collect::<String>(),
            times => format!("{:02x}*{times}", run[0]),
        });
        runs.collect::<Vec<_>>().join(" ")
    }

    proptest! {
        #[test]
        fn a_change_comes_back_whole(change in arbitrary::cart_change()) {
            prop_assert_eq!(decode(&encode(&change)).unwrap(), change);
        }

        #[test]
        fn a_part_of_a_change_is_no_change(change in arbitrary::cart_change(), cut in any::<prop::sample::Index>()) {
            let bytes = encode(&change);
            prop_assert!(decode(&bytes[..cut.index(bytes.len())]).is_err());
        }
    }
}
