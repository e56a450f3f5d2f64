//! The checkout record: the one place where it is decided whether an order exists and whether it was cancelled.
//!
//! It lives beside the stock. Every move is a conditional update on the record's version, so of all runs that race
//! (a retry, a second instance, the reconciler) exactly one wins each decision, and everybody else reads it here.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use crate::{
    cart::Owner,
    id::{AttemptId, ChangeId, OrderId, ProductId, UserId},
    money::Money,
    order::{Order, OrderLine, OrderStatus},
    product::{Decision, Verdict},
    time::{Timestamp, Version},
    zone::Zone,
};

pub const LINES_MAX: usize = 200;
pub const IDEMPOTENCY_KEY_CHARS_MAX: usize = 255;
pub const ADDRESS_CHARS_MAX: usize = 1_000;
pub const PAYMENT_METHOD_CHARS_MAX: usize = 64;

/// How long whoever took a decision has to act on it before the reconciler does.
pub const SETTLE_GRACE_MS: i64 = 5_000;

/// How long a checkout that could not be finished waits for the reconciler's next try: as long as it has
/// waited so far, so that each wait is about twice the one before, within these.
pub const RETRY_AFTER_MS_MIN: i64 = 1_000;
pub const RETRY_AFTER_MS_MAX: i64 = 10_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkout {
    pub order_id: OrderId,
    pub user_id: UserId,
    /// Of the request that came with the idempotency key; another request under the same key is refused.
    pub request_hash: [u8; 32],
    pub geo_zone: Zone,
    pub lines: Vec<OrderLine>,
    pub shipping_address: Option<String>,
    pub payment_method: Option<String>,
    /// What the order takes out of the cart, when it was a cart that was ordered.
    pub cart: Option<CartTake>,
    pub created_at: Timestamp,
    /// Past it, an open checkout may be aborted by the reconciler.
    pub deadline: Timestamp,
    /// The bucket of the order's day, fixed here once.
    pub bucket: u16,
    pub state: CheckoutState,
    pub fate: Fate,
    /// When the reconciler should look: at the deadline while open, shortly after a decision, never once all of the
    /// decision's consequences are written.
    pub due_at: Option<Timestamp>,
    pub version: Version,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CartTake {
    pub owner: Owner,
    /// The cart's changes that are ordered, which no other order may take (CRT-4).
    pub covers: Vec<ChangeId>,
    /// The last order that took anything from this cart when it was read. The cart's claim must still stand on it, or on an
    /// aborted checkout that has the same `after`, when this order claims the cart.
    pub after: Option<OrderId>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckoutState {
    Open,
    /// The order exists, and this run's holds are the ones that count.
    Committed {
        attempt: AttemptId,
        at: Timestamp,
    },
    Aborted {
        reason: AbortReason,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AbortReason {
    OutOfStock {
        lines: Vec<ShortLine>,
    },
    /// Nobody finished it before the deadline.
    Expired,
    /// Another order took the cart first.
    CartOrdered {
        by: OrderId,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortLine {
    pub product_id: crate::id::ProductId,
    pub requested: u64,
    pub available: u64,
}

/// What became of a committed order's goods. Shipping and cancelling exclude each other, so both are decided here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    InStore,
    /// On its way, or about to be: it can no longer be cancelled.
    Dispatched,
    Cancelled {
        attempt: AttemptId,
        at: Timestamp,
        operator: Option<String>,
    },
}

/// The move is not possible from where the record stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the checkout has been decided otherwise")]
pub struct Decided;

/// What an order asks for. Its hash tells a retry from another request under the same idempotency key.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    pub geo_zone: Zone,
    /// Without lines, the cart.
    pub items: Option<&'a [(ProductId, u64)]>,
    pub shipping_address: Option<&'a str>,
    pub payment_method: Option<&'a str>,
}

/// The first byte that is hashed. Another one makes every retry across a deploy a mismatch.
const REQUEST_HASH_VERSION: u8 = 1;

impl Asked<'_> {
    /// Of a tag, a length and the bytes of every field that is there. A field that is added later gets a new
    /// tag, and changes nothing for requests without it. Lines of one product count together, in any order.
    pub fn hash(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        hash.update([REQUEST_HASH_VERSION]);
        let mut field = |tag: u8, bytes: &[u8]| {
            hash.update([tag]);
            hash.update((bytes.len() as u64).to_be_bytes());
            hash.update(bytes);
        };
        field(1, self.geo_zone.as_str().as_bytes());
        if let Some(items) = self.items {
            let mut lines: BTreeMap<ProductId, u64> = BTreeMap::new();
            for (product, quantity) in items {
                let sum = lines.entry(*product).or_default();
                *sum = sum.saturating_add(*quantity);
            }
            let mut bytes = Vec::with_capacity(lines.len() * 24);
            for (product, quantity) in lines {
                bytes.extend_from_slice(product.as_bytes());
                bytes.extend_from_slice(&quantity.to_be_bytes());
            }
            field(2, &bytes);
        }
        if let Some(address) = self.shipping_address {
            field(3, address.as_bytes());
        }
        if let Some(method) = self.payment_method {
            field(4, method.as_bytes());
        }
        hash.finalize().into()
    }
}

/// A digest of the lines and prices that a shopper was shown, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShownLines([u8; SHOWN_BYTES]);

const SHOWN_BYTES: usize = 12;

impl ShownLines {
    pub fn of(lines: impl IntoIterator<Item = (ProductId, u64, Money)>) -> Self {
        let mut hash = Sha256::new();
        for (product, quantity, price) in lines {
            hash.update(product.as_bytes());
            hash.update(quantity.to_be_bytes());
            hash.update(price.kopecks().to_be_bytes());
        }
        let mut digest = [0; SHOWN_BYTES];
        digest.copy_from_slice(&hash.finalize()[..SHOWN_BYTES]);
        Self(digest)
    }

    pub fn parse(text: &str) -> Option<Self> {
        let mut digest = [0; SHOWN_BYTES];
        if text.len() != 2 * SHOWN_BYTES || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        for (at, byte) in digest.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
        }
        Some(Self(digest))
    }
}

impl std::fmt::Display for ShownLines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Checkout {
    /// `open -> committed`, naming the run whose holds count.
    pub fn commit(&self, attempt: AttemptId, now: Timestamp) -> Result<Checkout, Decided> {
        self.require(self.state == CheckoutState::Open)?;
        Ok(self.moved(now, |c| {
            c.state = CheckoutState::Committed { attempt, at: now };
            c.due_at = Some(now.plus_ms(SETTLE_GRACE_MS));
        }))
    }

    /// `open -> aborted`.
    pub fn abort(&self, reason: AbortReason, now: Timestamp) -> Result<Checkout, Decided> {
        self.require(self.state == CheckoutState::Open)?;
        Ok(self.moved(now, |c| {
            c.state = CheckoutState::Aborted { reason };
            c.due_at = Some(now.plus_ms(SETTLE_GRACE_MS));
        }))
    }

    /// Decides that a committed order is cancelled, naming the run whose returns count.
    pub fn cancel(
        &self,
        attempt: AttemptId,
        operator: Option<String>,
        now: Timestamp,
    ) -> Result<Checkout, Decided> {
        self.require(matches!(self.state, CheckoutState::Committed { .. }) && self.fate == Fate::InStore)?;
        Ok(self.moved(now, |c| {
            c.fate = Fate::Cancelled { attempt, at: now, operator };
            c.due_at = Some(now.plus_ms(SETTLE_GRACE_MS));
        }))
    }

    /// Decides that a committed order goes out, after which it cannot be cancelled.
    pub fn dispatch(&self, now: Timestamp) -> Result<Checkout, Decided> {
        self.require(matches!(self.state, CheckoutState::Committed { .. }) && self.fate == Fate::InStore)?;
        Ok(self.moved(now, |c| c.fate = Fate::Dispatched))
    }

    /// All consequences of what has been decided so far are written.
    pub fn settled(&self, now: Timestamp) -> Checkout {
        self.moved(now, |c| c.due_at = None)
    }

    /// The same decision, for the reconciler to come back to later, after others that are due.
    pub fn postponed(&self, now: Timestamp) -> Checkout {
        let waited_ms = now.since(self.decided_by());
        let retry_after_ms = waited_ms.clamp(RETRY_AFTER_MS_MIN, RETRY_AFTER_MS_MAX);
        self.moved(now, |c| c.due_at = Some(now.plus_ms(retry_after_ms)))
    }

    /// Since when there is something to finish, however often that was tried in vain and postponed.
    pub fn unfinished_since(&self) -> Option<Timestamp> {
        self.due_at.map(|due_at| due_at.min(self.decided_by().plus_ms(SETTLE_GRACE_MS)))
    }

    /// When the last decision fell; of one whose time is not kept, the latest time at which it should have.
    fn decided_by(&self) -> Timestamp {
        match (&self.state, &self.fate) {
            (CheckoutState::Committed { .. }, Fate::Cancelled { at, .. }) => *at,
            (CheckoutState::Committed { at, .. }, _) => *at,
            (CheckoutState::Open | CheckoutState::Aborted { .. }, _) => self.deadline,
        }
    }

    /// The same record under a new version: whoever read the old one can no longer decide by it.
    pub fn fenced(&self, now: Timestamp) -> Checkout {
        self.moved(now, |_| {})
    }

    pub fn is_open(&self) -> bool {
        self.state == CheckoutState::Open
    }

    pub fn is_committed(&self) -> bool {
        matches!(self.state, CheckoutState::Committed { .. })
    }

    pub fn verdict(&self) -> Verdict {
        let sale = match &self.state {
            CheckoutState::Open => Decision::Undecided,
            CheckoutState::Committed { attempt, .. } => Decision::Won(*attempt),
            CheckoutState::Aborted { .. } => Decision::Lost,
        };
        let cancellation = match (&self.state, &self.fate) {
            (CheckoutState::Aborted { .. }, _) | (_, Fate::Dispatched) => Decision::Lost,
            (_, Fate::Cancelled { attempt, .. }) => Decision::Won(*attempt),
            (_, Fate::InStore) => Decision::Undecided,
        };
        Verdict { sale, cancellation }
    }

    /// The order as it is written first, by whoever writes it: always the same, whatever has happened since.
    pub fn order(&self) -> Order {
        Order {
            id: self.order_id,
            user_id: self.user_id,
            status: OrderStatus::Confirmed,
            geo_zone: self.geo_zone,
            lines: self.lines.clone(),
            shipping_address: self.shipping_address.clone(),
            payment_method: self.payment_method.clone(),
            created_at: self.created_at,
            updated_at: self.created_at,
            bucket: self.bucket,
            version: Version::default().next(self.created_at),
        }
    }

    fn require(&self, possible: bool) -> Result<(), Decided> {
        if possible { Ok(()) } else { Err(Decided) }
    }

    fn moved(&self, now: Timestamp, change: impl FnOnce(&mut Checkout)) -> Checkout {
        let mut next = self.clone();
        next.version = self.version.next(now);
        change(&mut next);
        next
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug, PartialEq)]
    struct Request {
        zone: &'static str,
        items: Option<BTreeMap<u128, u64>>,
        address: Option<String>,
        method: Option<String>,
    }

    impl Request {
        fn lines(&self) -> Option<Vec<(ProductId, u64)>> {
            let line = |(id, quantity): (&u128, &u64)| (ProductId(uuid::Uuid::from_u128(*id)), *quantity);
            self.items.as_ref().map(|items| items.iter().map(line).collect())
        }

        fn hash_with(&self, lines: Option<&[(ProductId, u64)]>) -> [u8; 32] {
            Asked {
                geo_zone: Zone::parse(self.zone).unwrap(),
                items: lines,
                shipping_address: self.address.as_deref(),
                payment_method: self.method.as_deref(),
            }
            .hash()
        }

        fn hash(&self) -> [u8; 32] {
            self.hash_with(self.lines().as_deref())
        }
    }

    prop_compose! {
        // Few values each, so that two requests are often the same, or differ in one field.
        fn any_request()(
            zone in prop::sample::select(vec!["MSK", "SPB"]),
            items in prop::option::of(prop::collection::btree_map(0..3u128, 1..3u64, 0..3)),
            address in prop::option::of(prop::sample::select(vec!["", "a", "ab"])),
            method in prop::option::of(prop::sample::select(vec!["", "a", "b"])),
        ) -> Request {
            Request { zone, items, address: address.map(str::to_owned), method: method.map(str::to_owned) }
        }
    }

    proptest! {
        #[test]
        fn requests_have_one_hash_if_they_ask_for_the_same(one in any_request(), other in any_request()) {
            prop_assert_eq!(one == other, one.hash() == other.hash());
            prop_assert_eq!(one.hash(), one.clone().hash());
        }

        #[test]
        fn lines_of_one_product_count_together_in_any_order(request in any_request(), turn in 0..6usize) {
            let mut single: Vec<(ProductId, u64)> = Vec::new();
            for (product, quantity) in request.lines().unwrap_or_default() {
                single.extend((0..quantity).map(|_| (product, 1)));
            }
            let turn = turn % single.len().max(1);
            single.rotate_left(turn);
            let lines = request.items.is_some().then_some(single.as_slice());
            prop_assert_eq!(request.hash_with(lines), request.hash());
        }

        #[test]
        fn what_was_shown_survives_a_form(
            lines in prop::collection::vec((any::<u128>(), any::<u64>()), 0..4),
        ) {
            let price = Money::from_kopecks(100);
            let line = |(id, quantity)| (ProductId(uuid::Uuid::from_u128(id)), quantity, price);
            let shown = ShownLines::of(lines.into_iter().map(line));
            prop_assert_eq!(ShownLines::parse(&shown.to_string()), Some(shown));
        }
    }

    /// A retry may reach a later release than the first request did.
    #[test]
    fn the_hash_of_a_request_stays_the_same_in_every_release() {
        let hex = |hash: [u8; 32]| hash.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let cart = Request { zone: "MSK", items: None, address: None, method: None };
        insta::assert_snapshot!(hex(cart.hash()), @"15c55f088fabe38feb2dc7c65e88cb3ed296d6f38f9880988fe1da6c3f580e68");
        let lines = Request {
            zone: "SPB",
            items: Some(BTreeMap::from([(1, 2), (7, 1)])),
            address: Some("Невский пр., 1".to_owned()),
            method: Some("card".to_owned()),
        };
        insta::assert_snapshot!(hex(lines.hash()), @"6272a3ea62ef7925ed50f6c33e69a85036cf02b61e7b407fa1f8a345847e8616");
    }

    #[test]
    fn only_a_digest_is_one() {
        for bad in
            ["", "00", "zz0000000000000000000000", "+10000000000000000000000", "ё00000000000000000000000"]
        {
            assert_eq!(ShownLines::parse(bad), None, "{bad}");
        }
    }
}
