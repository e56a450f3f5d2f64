//! A refresh token, by its hash. A used one stays until it expires, so that its second use is noticed.

use fjall::Slice;
use minicbor::{Decode, Encode};
use mobimir_codec::leaves::{At, Id};
use mobimir_core::{id::SessionId, ports::StoreResult, secret::SecretHash, session::RefreshToken};

use crate::engine::{Key, KeyBuilder, Table};

pub(crate) fn key(hash: SecretHash) -> Key {
    KeyBuilder::new(Table::RefreshToken).bytes(&hash.0).end()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoredToken {
    pub(crate) token: RefreshToken,
    pub(crate) used: bool,
}

#[derive(Encode, Decode)]
struct RefreshTokenRecord {
    #[n(0)]
    session: Id,
    #[n(1)]
    expires_at: At,
    #[n(2)]
    used: bool,
}

pub(crate) fn encode(stored: &StoredToken) -> Slice {
    super::encode(&RefreshTokenRecord {
        session: Id(stored.token.session.0),
        expires_at: At(stored.token.expires_at),
        used: stored.used,
    })
}

pub(crate) fn decode(hash: SecretHash, bytes: &[u8]) -> StoreResult<StoredToken> {
    let record: RefreshTokenRecord = super::decode("refresh token", bytes)?;
    let token = RefreshToken { hash, session: SessionId(record.session.0), expires_at: record.expires_at.0 };
    Ok(StoredToken { token, used: record.used })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::arbitrary, *};

    proptest! {
        #[test]
        fn a_token_comes_back(hash in any::<[u8; 32]>(), other in any::<[u8; 32]>(), session in arbitrary::id(), expires_at in arbitrary::time(), used in any::<bool>()) {
            let hash = SecretHash(hash);
            let stored = StoredToken { token: RefreshToken { hash, session: SessionId(session), expires_at }, used };
            prop_assert_eq!(decode(hash, &encode(&stored)).unwrap(), stored);
            prop_assert_eq!(key(hash).cmp(&key(SecretHash(other))), hash.cmp(&SecretHash(other)));
        }
    }
}
