//! Secrets that callers hold and stores only know the hash of.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::{
    entropy::{Entropy, SystemEntropy},
    id::SessionId,
};

/// The hash of a secret, which is what gets stored.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretHash(pub [u8; 32]);

impl SecretHash {
    pub fn of(secret: &[u8]) -> Self {
        Self(Sha256::digest(secret).into())
    }

    /// Compares without telling by its duration where the difference lies.
    pub fn matches(&self, secret: &[u8]) -> bool {
        bool::from(self.0.ct_eq(&Self::of(secret).0))
    }
}

impl std::fmt::Debug for SecretHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretHash(..)")
    }
}

const SECRET_BYTES: usize = 24;

/// An access token: the session it belongs to and a secret. Opaque to whoever holds it.
pub struct AccessToken {
    pub session: SessionId,
    secret: [u8; SECRET_BYTES],
}

impl AccessToken {
    pub fn generate(session: SessionId, entropy: &dyn Entropy) -> Self {
        Self { session, secret: entropy.bytes() }
    }

    pub fn hash(&self) -> SecretHash {
        SecretHash::of(&self.secret)
    }

    pub fn belongs_to(&self, hash: &SecretHash) -> bool {
        hash.matches(&self.secret)
    }

    pub fn encode(&self) -> String {
        let mut bytes = [0; 16 + SECRET_BYTES];
        bytes[..16].copy_from_slice(self.session.as_bytes());
        bytes[16..].copy_from_slice(&self.secret);
        URL_SAFE_NO_PAD.encode(bytes)
    }

    pub fn decode(text: &str) -> Option<Self> {
        let mut bytes = [0; 16 + SECRET_BYTES];
        let length = URL_SAFE_NO_PAD.decode_slice(text, &mut bytes).ok()?;
        if length != bytes.len() {
            return None;
        }
        let session = SessionId(uuid::Uuid::from_slice(&bytes[..16]).ok()?);
        let mut secret = [0; SECRET_BYTES];
        secret.copy_from_slice(&bytes[16..]);
        Some(Self { session, secret })
    }
}

/// A refresh token: a secret that is known to the store by its hash and works once.
pub struct RefreshSecret([u8; 32]);

impl RefreshSecret {
    pub fn generate(entropy: &dyn Entropy) -> Self {
        Self(entropy.bytes())
    }

    pub fn hash(&self) -> SecretHash {
        SecretHash::of(&self.0)
    }

    pub fn encode(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.0)
    }

    pub fn decode(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        let length = URL_SAFE_NO_PAD.decode_slice(text, &mut bytes).ok()?;
        (length == bytes.len()).then_some(Self(bytes))
    }
}

/// What a parser says of a value that does not fit, without the value: it may have been a password.
pub fn without_value(message: &str) -> String {
    match message.split_once(", expected ") {
        Some((found, expected)) if found.starts_with("invalid ") => {
            let kind = found.split(['`', '"']).next().unwrap_or_default().trim_end();
            format!("{kind}, expected {expected}")
        }
        _ => message.to_owned(),
    }
}

/// Random bytes from the operating system.
pub fn random_bytes<const N: usize>() -> [u8; N] {
    let entropy: &dyn Entropy = &SystemEntropy;
    entropy.bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_does_not_fit_is_not_repeated() {
        let said = "invalid type: integer `12345678`, expected a string at line 1 column 9";
        assert_eq!(without_value(said), "invalid type: integer, expected a string at line 1 column 9");
        assert_eq!(without_value("missing field `email`"), "missing field `email`");
    }

    #[test]
    fn a_token_is_opaque_and_comes_back_whole() {
        let session = SessionId(uuid::Uuid::from_u128(7));
        let token = AccessToken::generate(session, &SystemEntropy);
        let back = AccessToken::decode(&token.encode()).unwrap();
        assert_eq!(back.session, session);
        assert!(token.hash().matches(&back.secret));
        assert!(!token.hash().matches(&random_bytes::<SECRET_BYTES>()));
        for bad in ["", "x", "not base64!", &token.encode()[1..], &format!("{}A", token.encode())] {
            assert!(AccessToken::decode(bad).is_none(), "{bad}");
        }
    }
}
