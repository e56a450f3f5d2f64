//! The binary form of domain values that more than one store writes: CBOR arrays of records that are apart from the
//! domain's types, so that a change of the domain does not silently change what is stored.
//!
//! Field numbers and tags are only ever added, never used again for something else.

pub mod cart_change;
pub mod cart_effect;
pub mod leaves;
pub mod order_body;
pub mod order_lines;

use minicbor::{Decode, Encode};

/// Why stored bytes are not what they were expected to be.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    #[error("expected a {what} record")]
    Malformed {
        what: &'static str,
        #[source]
        source: minicbor::decode::Error,
    },
}

/// What most records fit into.
const USUAL_RECORD_BYTES: usize = 256;

#[expect(clippy::expect_used, reason = "writing to memory cannot fail, and no record refuses to be encoded")]
pub fn encode<T: Encode<()>>(record: &T) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(USUAL_RECORD_BYTES);
    minicbor::encode(record, &mut bytes).expect("a record is encoded into memory");
    bytes
}

/// Reads a record; `what` it is appears in the error.
pub fn decode<'b, T: Decode<'b, ()>>(what: &'static str, bytes: &'b [u8]) -> Result<T, CodecError> {
    minicbor::decode(bytes).map_err(|source| CodecError::Malformed { what, source })
}
