//! What is stored: one module a table, with its key and its value.
//!
//! Values are CBOR arrays of records that are apart from the domain's types, so that a change of the domain does not
//! silently change what is on disk. Field numbers and tags are only ever added, never used again for something else.

pub(crate) mod cart;
pub(crate) mod cart_change;
pub(crate) mod cart_claim;
pub(crate) mod cart_touched;
pub(crate) mod checkout;
pub(crate) mod checkout_due;
pub(crate) mod expiry;
pub(crate) mod note;
pub(crate) mod order;
pub(crate) mod order_by_day;
pub(crate) mod order_by_user;
pub(crate) mod order_history;
pub(crate) mod product;
pub(crate) mod product_holds;
pub(crate) mod product_index;
pub(crate) mod refresh_token;
pub(crate) mod session;
pub(crate) mod session_by_user;
pub(crate) mod session_unmerged;
pub(crate) mod unmirrored;
pub(crate) mod user;
pub(crate) mod user_by_email;

use fjall::Slice;
use mobimir_codec::CodecError;
use mobimir_core::ports::{StoreError, StoreResult};
#[cfg(test)]
use mobimir_testkit::arbitrary;

fn encode<T: minicbor::Encode<()>>(record: &T) -> Slice {
    mobimir_codec::encode(record).into()
}

fn decode<'b, T: minicbor::Decode<'b, ()>>(what: &'static str, bytes: &'b [u8]) -> StoreResult<T> {
    mobimir_codec::decode(what, bytes).map_err(corrupt)
}

fn corrupt(error: CodecError) -> StoreError {
    let what = error.to_string();
    let CodecError::Malformed { source, .. } = error;
    StoreError::Corrupt { what, source: Some(source.into()) }
}

/// The value of a key that says everything itself.
pub(crate) fn nothing() -> Slice {
    Slice::from(&[] as &[u8])
}
