//! The rest of an order: what is neither looked for nor ever changes once the order is written.

use minicbor::{Decode, Encode};
use mobimir_core::order::{Order, OrderLine};

use crate::{CodecError, order_lines::LineRecord};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderBody {
    pub lines: Vec<OrderLine>,
    pub shipping_address: Option<String>,
    pub payment_method: Option<String>,
}

#[derive(Encode, Decode)]
struct BodyRecord<'a> {
    #[b(0)]
    lines: Vec<LineRecord<'a>>,
    #[b(1)]
    shipping_address: Option<&'a str>,
    #[b(2)]
    payment_method: Option<&'a str>,
}

pub fn encode(order: &Order) -> Vec<u8> {
    crate::encode(&BodyRecord {
        lines: order.lines.iter().map(LineRecord::from).collect(),
        shipping_address: order.shipping_address.as_deref(),
        payment_method: order.payment_method.as_deref(),
    })
}

pub fn decode(bytes: &[u8]) -> Result<OrderBody, CodecError> {
    let record: BodyRecord<'_> = crate::decode("order body", bytes)?;
    Ok(OrderBody {
        lines: record.lines.into_iter().map(Into::into).collect(),
        shipping_address: record.shipping_address.map(Into::into),
        payment_method: record.payment_method.map(Into::into),
    })
}

#[cfg(test)]
mod tests {
    use mobimir_testkit::arbitrary;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_later_field_does_not_disturb_an_earlier_reader() {
        let empty = OrderBody { lines: Vec::new(), shipping_address: None, payment_method: None };
        assert_eq!(decode(&[0x83, 0x80, 0xf6, 0xf6]).unwrap(), empty);
        assert_eq!(decode(&[0x84, 0x80, 0xf6, 0xf6, 0x01]).unwrap(), empty);
        assert!(decode(&[]).is_err());
    }

    proptest! {
        #[test]
        fn a_body_comes_back_whole(order in arbitrary::order()) {
            let body = decode(&encode(&order)).unwrap();
            let back = Order {
                lines: body.lines,
                shipping_address: body.shipping_address,
                payment_method: body.payment_method,
                ..order.clone()
            };
            prop_assert_eq!(back, order);
        }

        #[test]
        fn a_part_of_a_body_is_no_body(order in arbitrary::order(), cut in any::<prop::sample::Index>()) {
            let bytes = encode(&order);
            prop_assert!(decode(&bytes[..cut.index(bytes.len())]).is_err());
        }
    }
}
