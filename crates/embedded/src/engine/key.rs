//! Keys: a table's byte, then parts whose bytes sort as the values do.

use fjall::Slice;
use mobimir_core::{
    cart::Owner,
    id::{SessionId, UserId},
    ports::{StoreError, StoreResult},
    time::Timestamp,
};
use uuid::Uuid;

use super::Space;
use crate::error::damaged;

/// fjall's limit.
pub(crate) const KEY_BYTES_MAX: usize = 65_535;

/// The first byte of every key. Numbers are never used for something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Table {
    Product = 1,
    ProductIndex = 2,
    ProductHolds = 3,
    Checkout = 4,
    CheckoutDue = 5,
    User = 6,
    UserByEmail = 7,
    Cart = 8,
    CartChange = 9,
    CartTouched = 10,
    Order = 11,
    OrderByUser = 12,
    OrderByDay = 13,
    OrderHistory = 14,
    Session = 15,
    SessionByUser = 16,
    SessionUnmerged = 17,
    RefreshToken = 18,
    Expiry = 19,
    UnmirroredOrder = 20,
    UnmirroredCart = 21,
    UnmirroredSession = 22,
    Note = 23,
    CartClaim = 24,
}

impl Table {
    fn space(self) -> Space {
        match self {
            Self::Product | Self::ProductIndex | Self::ProductHolds => Space::Catalogue,
            Self::Checkout | Self::CheckoutDue | Self::CartClaim | Self::Note => Space::Checkouts,
            Self::User | Self::UserByEmail => Space::Users,
            Self::Cart | Self::CartChange | Self::CartTouched | Self::UnmirroredCart => Space::Carts,
            Self::Order
            | Self::OrderByUser
            | Self::OrderByDay
            | Self::OrderHistory
            | Self::UnmirroredOrder => Space::Orders,
            Self::Session
            | Self::SessionByUser
            | Self::SessionUnmerged
            | Self::RefreshToken
            | Self::UnmirroredSession
            | Self::Expiry => Space::Sessions,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) space: Space,
    pub(crate) bytes: Slice,
}

pub(crate) struct KeyBuilder {
    table: Table,
    bytes: Vec<u8>,
}

const USUAL_KEY_BYTES: usize = 48;
const ESCAPED: u8 = 0xFF;
const TEXT_END: u8 = 0x01;

impl KeyBuilder {
    pub(crate) fn new(table: Table) -> Self {
        let mut bytes = Vec::with_capacity(USUAL_KEY_BYTES);
        bytes.push(table as u8);
        Self { table, bytes }
    }

    pub(crate) fn byte(mut self, byte: u8) -> Self {
        self.bytes.push(byte);
        self
    }

    pub(crate) fn bytes(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    pub(crate) fn uuid(self, id: Uuid) -> Self {
        self.bytes(id.as_bytes())
    }

    pub(crate) fn owner(self, owner: Owner) -> Self {
        self.byte(u8::from(matches!(owner, Owner::Guest(_)))).uuid(owner.uuid())
    }

    pub(crate) fn number(self, number: i64) -> Self {
        self.bytes(&ordered(number).to_be_bytes())
    }

    pub(crate) fn time(self, time: Timestamp) -> Self {
        self.number(time.as_millis())
    }

    /// So that later times come first.
    pub(crate) fn time_descending(self, time: Timestamp) -> Self {
        self.bytes(&(!ordered(time.as_millis())).to_be_bytes())
    }

    /// A text that other parts may follow: a zero byte is escaped, and an end that sorts before every continuation
    /// closes it.
    pub(crate) fn text(mut self, text: &str) -> Self {
        push_text(&mut self.bytes, text);
        self
    }

    pub(crate) fn end(self) -> Key {
        Key { space: self.table.space(), bytes: self.bytes.into() }
    }
}

pub(crate) fn push_text(bytes: &mut Vec<u8>, text: &str) {
    for byte in text.bytes() {
        bytes.push(byte);
        if byte == 0 {
            bytes.push(ESCAPED);
        }
    }
    bytes.extend_from_slice(&[0, TEXT_END]);
}

/// Flips the sign, so that negative numbers sort before the others.
pub(crate) fn ordered(number: i64) -> u64 {
    number.cast_unsigned() ^ (1 << 63)
}

/// Reads a key's parts in the order they were built in.
pub(crate) struct KeyReader<'a> {
    rest: &'a [u8],
}

impl<'a> KeyReader<'a> {
    pub(crate) fn new(table: Table, key: &'a [u8]) -> StoreResult<Self> {
        match key.split_first() {
            Some((first, rest)) if *first == table as u8 => Ok(Self { rest }),
            _ => Err(damaged(format!("expected a key of {table:?}, got {} other bytes", key.len()))),
        }
    }

    /// Parts that stand without a table's byte.
    pub(crate) fn of_parts(parts: &'a [u8]) -> Self {
        Self { rest: parts }
    }

    fn take<const N: usize>(&mut self) -> StoreResult<[u8; N]> {
        let (part, rest) = self.rest.split_first_chunk().ok_or_else(too_short)?;
        self.rest = rest;
        Ok(*part)
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn byte(&mut self) -> StoreResult<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    pub(crate) fn bytes<const N: usize>(&mut self) -> StoreResult<[u8; N]> {
        self.take()
    }

    pub(crate) fn uuid(&mut self) -> StoreResult<Uuid> {
        self.take().map(Uuid::from_bytes)
    }

    pub(crate) fn owner(&mut self) -> StoreResult<Owner> {
        match self.byte()? {
            0 => Ok(Owner::User(UserId(self.uuid()?))),
            1 => Ok(Owner::Guest(SessionId(self.uuid()?))),
            other => Err(damaged(format!("expected an owner's kind 0 or 1 in a key, got {other}"))),
        }
    }

    pub(crate) fn number(&mut self) -> StoreResult<i64> {
        self.take().map(|bytes| ordered(u64::from_be_bytes(bytes).cast_signed()).cast_signed())
    }

    pub(crate) fn time(&mut self) -> StoreResult<Timestamp> {
        self.number().map(Timestamp::from_millis)
    }

    pub(crate) fn time_descending(&mut self) -> StoreResult<Timestamp> {
        let flipped = !u64::from_be_bytes(self.take()?);
        Ok(Timestamp::from_millis(ordered(flipped.cast_signed()).cast_signed()))
    }

    pub(crate) fn text(&mut self) -> StoreResult<String> {
        let mut text = Vec::new();
        loop {
            match self.byte()? {
                0 if self.byte()? == TEXT_END => break,
                byte => text.push(byte),
            }
        }
        String::from_utf8(text).map_err(|_| damaged("expected UTF-8 text in a key"))
    }
}

fn too_short() -> StoreError {
    damaged("a key ends before its last part")
}

/// The first key past all that start with `prefix`. No table has the number 255, so there always is one.
pub(crate) fn after_prefix(prefix: &Key) -> Key {
    let mut end = prefix.bytes.to_vec();
    while end.pop_if(|last| *last == u8::MAX).is_some() {}
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    Key { space: prefix.space, bytes: end.into() }
}

/// The first key past this one.
pub(crate) fn after_key(key: &Key) -> Key {
    let mut bytes = key.bytes.to_vec();
    bytes.push(0);
    Key { space: key.space, bytes: bytes.into() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn time_key(ms: i64) -> Key {
        KeyBuilder::new(Table::Expiry).time(Timestamp::from_millis(ms)).end()
    }

    fn descending_key(ms: i64) -> Key {
        KeyBuilder::new(Table::Expiry).time_descending(Timestamp::from_millis(ms)).end()
    }

    fn text_key(text: &str, id: u128) -> Key {
        KeyBuilder::new(Table::ProductIndex).text(text).uuid(Uuid::from_u128(id)).end()
    }

    proptest! {
        #[test]
        fn times_sort_in_keys_and_come_back(a in -4_000_000_000_000..4_000_000_000_000i64, b in -4_000_000_000_000..4_000_000_000_000i64) {
            prop_assert_eq!(time_key(a).cmp(&time_key(b)), a.cmp(&b));
            prop_assert_eq!(descending_key(a).cmp(&descending_key(b)), b.cmp(&a));
            let read = |key: Key| KeyReader::new(Table::Expiry, &key.bytes).map(|mut key| (key.time(), key.rest.len()));
            prop_assert_eq!(read(time_key(a)).unwrap().0.unwrap(), Timestamp::from_millis(a));
            let key = descending_key(a);
            prop_assert_eq!(KeyReader::new(Table::Expiry, &key.bytes).unwrap().time_descending().unwrap(), Timestamp::from_millis(a));
        }

        #[test]
        fn texts_sort_in_keys_and_come_back(a in "[ab\0я]{0,4}", b in "[ab\0я]{0,4}", x in 0..2u128, y in 0..2u128) {
            prop_assert_eq!(text_key(&a, x).cmp(&text_key(&b, y)), (a.as_str(), x).cmp(&(b.as_str(), y)));
            let key = text_key(&a, x);
            let mut reader = KeyReader::new(Table::ProductIndex, &key.bytes).unwrap();
            prop_assert_eq!(reader.text().unwrap(), a);
            prop_assert_eq!(reader.uuid().unwrap(), Uuid::from_u128(x));
        }

        #[test]
        fn all_keys_under_a_prefix_lie_before_its_end(parts in proptest::collection::vec(250..=255u8, 0..4), rest in proptest::collection::vec(any::<u8>(), 0..4)) {
            let prefix = KeyBuilder::new(Table::Cart).bytes(&parts);
            let key = KeyBuilder::new(Table::Cart).bytes(&parts).bytes(&rest).end();
            let prefix = prefix.end();
            let end = after_prefix(&prefix);
            prop_assert!(key >= prefix && key < end && !end.bytes.starts_with(&prefix.bytes));
            prop_assert!(after_key(&prefix) > prefix && (key == prefix || after_key(&prefix) <= key));
        }

        #[test]
        fn owners_come_back(id in any::<u128>(), guest in any::<bool>()) {
            let id = Uuid::from_u128(id);
            let owner = if guest { Owner::Guest(SessionId(id)) } else { Owner::User(UserId(id)) };
            let key = KeyBuilder::new(Table::Cart).owner(owner).end();
            prop_assert_eq!(KeyReader::new(Table::Cart, &key.bytes).unwrap().owner().unwrap(), owner);
        }
    }
}
