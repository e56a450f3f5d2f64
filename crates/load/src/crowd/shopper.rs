//! A shopper: who it is, and what it knows of its cart and its orders.

use std::{collections::BTreeMap, time::Instant};

use super::ledger::KnownCart;
use crate::request::Parts;

pub(crate) struct Shopper {
    pub(crate) token: String,
    /// What a user logs in with.
    pub(crate) credentials: Option<String>,
    /// Whose orders the user's are; empty when that is not known.
    pub(crate) user_id: Box<str>,
    pub(crate) zone: u16,
    pub(crate) cart: KnownCart,
    /// A change is under way.
    pub(super) busy: bool,
    /// The cart holds something that there is not enough of.
    pub(super) stuck: bool,
    pub(crate) pending: Option<Box<Pending>>,
    pub(crate) last_order: Option<Box<LastOrder>>,
    /// Counts the changes that were sent, so that a read knows whether one came in between.
    pub(super) changes: u32,
    pub(super) orders_begun: u32,
    /// What the shop gave with the last change, for reads that must not be older; empty when it gave nothing.
    pub(super) read_after: String,
}

/// An order under way, or one whose answer was lost. It is asked for again under the same key until there is one.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    pub(crate) key: String,
    pub(crate) body: String,
    pub(super) zone: u16,
    /// `None` for what is in the cart.
    pub(super) lines: Option<BTreeMap<u32, u64>>,
    /// What it takes at most.
    pub(super) units: Vec<(u32, u64)>,
    /// For each of them what refused orders had released when this one was sent first.
    pub(super) released: Vec<u64>,
    pub(super) sends: u32,
    pub(super) asked_at: Instant,
}

/// The last order of a user that was acknowledged, and how it was asked for.
pub(crate) struct LastOrder {
    /// Its place among all that were placed.
    pub(crate) placed: u32,
    pub(crate) key: String,
    pub(crate) body: String,
}

impl Shopper {
    pub(crate) fn new(token: String, credentials: Option<String>, zone: u16) -> Self {
        Self {
            token,
            credentials,
            user_id: Box::default(),
            zone,
            cart: KnownCart::default(),
            busy: false,
            stuck: false,
            pending: None,
            last_order: None,
            changes: 0,
            orders_begun: 0,
            read_after: String::new(),
        }
    }

    /// What a request of this shopper that reads is made of.
    pub(crate) fn reads(&self) -> Parts<'_> {
        let read_after = Some(self.read_after.as_str()).filter(|position| !position.is_empty());
        Parts { read_after, ..Parts::of(&self.token) }
    }

    /// Has nothing under way that the next change would have to wait for.
    pub(super) fn is_free(&self) -> bool {
        !self.busy && self.pending.is_none()
    }

    /// A change is sent now.
    pub(super) fn begin_change(&mut self) {
        self.busy = true;
        self.changes = self.changes.wrapping_add(1);
    }
}
