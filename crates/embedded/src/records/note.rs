//! A small record under a name.

use fjall::Slice;
use minicbor::{Decode, Encode, bytes::ByteVec};
use mobimir_core::{notes::Note, ports::StoreResult};

use crate::{
    engine::{Key, KeyBuilder, Table},
    error::damaged,
};

pub(crate) fn key(name: &str) -> Key {
    // Nothing follows the name, so it needs no end, and keys with the same beginning lie together.
    KeyBuilder::new(Table::Note).bytes(name.as_bytes()).end()
}

#[derive(Encode, Decode)]
struct NoteRecord {
    #[n(0)]
    revision: u64,
    #[n(1)]
    body: ByteVec,
}

pub(crate) fn encode(revision: u64, body: Vec<u8>) -> Slice {
    super::encode(&NoteRecord { revision, body: body.into() })
}

pub(crate) fn decode(key: &[u8], bytes: &[u8]) -> StoreResult<Note> {
    let name = key.get(1..).and_then(|name| std::str::from_utf8(name).ok());
    let name = name.ok_or_else(|| damaged("expected a name in the key of a note"))?.to_owned();
    let NoteRecord { revision, body } = super::decode("note", bytes)?;
    Ok(Note { name, revision, body: body.into() })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_note_comes_back(name in ".{0,20}", revision in any::<u64>(), body in proptest::collection::vec(any::<u8>(), 0..40)) {
            let note = Note { name: name.clone(), revision, body: body.clone() };
            prop_assert_eq!(decode(&key(&name).bytes, &encode(revision, body)).unwrap(), note);
        }
    }
}
