//! The leaves of records: how ids, times, amounts and the like are written.

use minicbor::{
    Decode, Decoder, Encode, Encoder,
    data::Type,
    decode,
    encode::{self, Write},
};
use mobimir_core::{
    cart::Owner,
    id::{SessionId, UserId},
    money::Money,
    order::OrderStatus,
    time::Timestamp,
    zone::Zone,
};
use uuid::Uuid;

#[derive(Clone, Copy)]
pub struct Id(pub Uuid);

#[derive(Clone, Copy)]
pub struct At(pub Timestamp);

#[derive(Clone, Copy)]
pub struct ZoneCode(pub Zone);

#[derive(Clone, Copy)]
pub struct Amount(pub Money);

#[derive(Clone, Copy)]
pub struct Digest(pub [u8; 32]);

#[derive(Clone, Copy)]
pub struct OwnerCode(pub Owner);

#[derive(Clone, Copy)]
pub struct StatusCode(pub OrderStatus);

/// The status's number, in records and wherever one stands alone.
pub fn status_number(status: OrderStatus) -> u8 {
    match status {
        OrderStatus::Pending => 0,
        OrderStatus::Confirmed => 1,
        OrderStatus::Paid => 2,
        OrderStatus::Shipped => 3,
        OrderStatus::Delivered => 4,
        OrderStatus::Cancelled => 5,
    }
}

pub fn status_of(number: u8) -> Option<OrderStatus> {
    OrderStatus::ALL.into_iter().find(|status| status_number(*status) == number)
}

fn fixed<const N: usize>(decoder: &mut Decoder<'_>) -> Result<[u8; N], decode::Error> {
    let at = decoder.position();
    let bytes = decoder.bytes()?;
    bytes.try_into().map_err(|_| decode::Error::message("expected bytes of another length").at(at))
}

macro_rules! leaf {
    ($name:ident, |$value:ident, $encoder:ident| $encode:expr, |$decoder:ident| $decode:expr) => {
        impl<C> Encode<C> for $name {
            fn encode<W: Write>(
                &self,
                $encoder: &mut Encoder<W>,
                _: &mut C,
            ) -> Result<(), encode::Error<W::Error>> {
                let $value = &self.0;
                $encode?;
                Ok(())
            }
        }

        impl<'b, C> Decode<'b, C> for $name {
            fn decode($decoder: &mut Decoder<'b>, _: &mut C) -> Result<Self, decode::Error> {
                $decode.map(Self)
            }
        }
    };
}

leaf!(Id, |id, e| e.bytes(id.as_bytes()), |d| fixed(d).map(Uuid::from_bytes));
leaf!(At, |time, e| e.i64(time.as_millis()), |d| d.i64().map(Timestamp::from_millis));
leaf!(ZoneCode, |zone, e| e.str(zone.as_str()), |d| Zone::parse(d.str()?).map_err(decode::Error::custom));
leaf!(Digest, |hash, e| e.bytes(hash), |d| fixed(d));
leaf!(StatusCode, |status, e| e.u8(status_number(*status)), |d| status_of(d.u8()?)
    .ok_or_else(|| decode::Error::message("expected the number of an order's status")));
leaf!(OwnerCode, |owner, e| e.bytes(&owner_bytes(*owner)), |d| owner_of(fixed(d)?));
// A price fits into a CBOR integer; what does not is kept as the bytes of all 128 bits.
leaf!(
    Amount,
    |money, e| match i64::try_from(money.kopecks()) {
        Ok(kopecks) => e.i64(kopecks),
        Err(_) => e.bytes(&money.kopecks().to_be_bytes()),
    },
    |d| match d.datatype()? {
        Type::Bytes => fixed(d).map(i128::from_be_bytes),
        _ => d.i64().map(i128::from),
    }
    .map(Money::from_kopecks)
);

fn owner_bytes(owner: Owner) -> [u8; 17] {
    let mut bytes = [0; 17];
    bytes[0] = u8::from(matches!(owner, Owner::Guest(_)));
    bytes[1..].copy_from_slice(owner.uuid().as_bytes());
    bytes
}

fn owner_of([kind, id @ ..]: [u8; 17]) -> Result<Owner, decode::Error> {
    let id = Uuid::from_bytes(id);
    match kind {
        0 => Ok(Owner::User(UserId(id))),
        1 => Ok(Owner::Guest(SessionId(id))),
        _ => Err(decode::Error::message("expected an owner of kind 0 or 1")),
    }
}
