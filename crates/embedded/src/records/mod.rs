//! What is stored: one module a table, with its key and its value.
//!
//! Values are CBOR arrays of records that are apart from the domain's types, so that a change of the domain does not
//! silently change what is on disk. Field numbers and tags are only ever added, never used again for something else.

mod parts;

pub(crate) mod cart;
pub(crate) mod cart_change;
pub(crate) mod cart_touched;
pub(crate) mod checkout;
pub(crate) mod checkout_due;
pub(crate) mod expiry;
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
pub(crate) mod user;
pub(crate) mod user_by_email;

#[cfg(test)]
mod arbitrary;

use fjall::Slice;
use mobimir_core::ports::{StoreError, StoreResult};

#[expect(clippy::expect_used, reason = "writing to memory cannot fail, and no record refuses to be encoded")]
fn encode<T: minicbor::Encode<()>>(record: &T) -> Slice {
    let mut bytes = Vec::with_capacity(USUAL_RECORD_BYTES);
    minicbor::encode(record, &mut bytes).expect("a record is encoded into memory");
    bytes.into()
}

/// What most records fit into.
const USUAL_RECORD_BYTES: usize = 256;

fn decode<'b, T: minicbor::Decode<'b, ()>>(what: &str, bytes: &'b [u8]) -> StoreResult<T> {
    minicbor::decode(bytes).map_err(|error| StoreError::Corrupt {
        what: format!("expected a {what} record"),
        source: Some(error.into()),
    })
}

/// The value of a key that says everything itself.
pub(crate) fn nothing() -> Slice {
    Slice::from(&[] as &[u8])
}
