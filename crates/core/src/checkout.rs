//! The checkout record: the one place where it is decided whether an order exists and whether it was cancelled.
//!
//! It lives beside the stock. Every move is a conditional update on the record's version, so of all runs that race
//! (a retry, a second instance, the reconciler) exactly one wins each decision, and everybody else reads it here.

use crate::{
    cart::Owner,
    id::{AttemptId, ChangeId, OrderId, UserId},
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
    pub covers: Vec<ChangeId>,
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
