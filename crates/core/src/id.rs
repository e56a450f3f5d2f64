//! Identifiers. Each kind of thing has its own type, so that a user's id cannot be passed for an order's.

use std::{
    collections::HashSet,
    hash::{BuildHasherDefault, Hasher},
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering},
    },
};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::{
    entropy::{Entropy, SystemEntropy},
    time::Timestamp,
};

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl $name {
            pub fn as_bytes(&self) -> &[u8; 16] {
                self.0.as_bytes()
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }

        impl From<Uuid> for $name {
            fn from(id: Uuid) -> Self {
                Self(id)
            }
        }
    )+};
}

ids! {
    ProductId,
    UserId,
    SessionId,
    /// Follows from the user and the idempotency key ([`OrderId::of`]), so a retry always means the same order.
    OrderId,
    /// One run of a checkout or of a cancellation. Several may race; the checkout record names the one that counts.
    AttemptId,
    /// One change of a cart.
    ChangeId,
}

impl OrderId {
    pub fn of(user: UserId, idempotency_key: &str) -> Self {
        Self(derived("order", &[user.as_bytes(), idempotency_key.as_bytes()]))
    }
}

impl ChangeId {
    /// The change that an idempotency key of this owner stands for.
    pub fn of(owner: &[u8; 16], idempotency_key: &str) -> Self {
        Self(derived("cart-change", &[owner, idempotency_key.as_bytes()]))
    }

    /// The change that takes the ordered lines out of the cart.
    pub fn of_order(order: OrderId) -> Self {
        Self(derived("cart-ordered", &[order.as_bytes()]))
    }
}

/// A source of fresh, time-ordered ids (UUID version 7). Of one source, later calls give greater ids, in the
/// same millisecond and with a clock that steps back by less than a second, too.
pub struct IdSource {
    /// The millisecond of the last id, and its place within that.
    last_place: AtomicU64,
    entropy: Arc<dyn Entropy>,
}

impl IdSource {
    pub fn new(entropy: Arc<dyn Entropy>) -> Self {
        Self { last_place: AtomicU64::new(0), entropy }
    }

    pub fn fresh(&self, now: Timestamp) -> Uuid {
        let ms = now.as_millis().max(0).cast_unsigned();
        let mut random: [u8; 10] = self.entropy.bytes();
        let next = |last| next_place(last, ms);
        let before = self.last_place.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        let Some(place) = before.ok().and_then(next) else {
            return uuid::Builder::from_unix_timestamp_millis(ms, &random).into_uuid();
        };
        // The builder writes the version over the four bits that a place leaves free.
        random[..2].copy_from_slice(&((place & PLACES_MASK) as u16).to_be_bytes());
        uuid::Builder::from_unix_timestamp_millis(place >> PLACE_BITS, &random).into_uuid()
    }
}

/// A fresh id from the source of this process.
pub fn fresh(now: Timestamp) -> Uuid {
    static PROCESS: LazyLock<IdSource> = LazyLock::new(|| IdSource::new(Arc::new(SystemEntropy)));
    PROCESS.fresh(now)
}

/// A version 7 id has as many bits between its millisecond and its random part.
const PLACE_BITS: u32 = 12;
const PLACES_MASK: u64 = (1 << PLACE_BITS) - 1;

/// The place after `last` for an id of `ms`; none when `ms` is of another time altogether, as what is imported or tested is.
fn next_place(last: u64, ms: u64) -> Option<u64> {
    let first = ms << PLACE_BITS;
    if first > last { Some(first) } else { (last - first < 1_000 << PLACE_BITS).then_some(last + 1) }
}

/// A repeatable id (UUID version 8) made of everything in `parts`; `purpose` keeps different uses apart.
pub fn derived(purpose: &str, parts: &[&[u8]]) -> Uuid {
    let mut hash = Sha256::new();
    hash.update(purpose.as_bytes());
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let digest = hash.finalize();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

/// A set of ids.
pub type IdSet<T> = HashSet<T, BuildHasherDefault<IdHasher>>;

/// Hashes ids, which are random already: nobody outside can choose them, so nobody can make them collide.
#[derive(Clone, Copy, Default)]
pub struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.0 = (self.0.rotate_left(5) ^ u64::from_le_bytes(word)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        }
    }

    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_id_follows_from_user_and_key_alone() {
        let (anna, boris) = (UserId(Uuid::from_u128(1)), UserId(Uuid::from_u128(2)));
        assert_eq!(OrderId::of(anna, "k"), OrderId::of(anna, "k"));
        assert_ne!(OrderId::of(anna, "k"), OrderId::of(boris, "k"));
        assert_ne!(OrderId::of(anna, "k"), OrderId::of(anna, "k2"));
    }

    #[test]
    fn fresh_ids_are_ordered_by_time() {
        let earlier = fresh(Timestamp::from_millis(1_000));
        let later = fresh(Timestamp::from_millis(1_001));
        assert!(earlier < later);
        assert_eq!(later.get_version_num(), 7);
    }

    #[test]
    fn ids_of_one_millisecond_are_ordered_as_they_were_made() {
        // Later than other tests of this process have been, and more than fit into one millisecond.
        let now = Timestamp::from_millis(5_000_000_000_000);
        let made: Vec<Uuid> = (0..5_000).map(|_| fresh(now)).collect();
        assert!(made.is_sorted_by(|a, b| a < b));
        assert!(fresh(now.plus_ms(-300)) > made[4_999], "a clock that was set back a little");
        assert!(
            made.iter().all(|id| id.get_version_num() == 7 && id.get_variant() == uuid::Variant::RFC4122)
        );
        let imported = fresh(Timestamp::from_millis(1_000));
        assert!(imported < fresh(Timestamp::from_millis(1_001)), "another time altogether");
    }
}
