//! What is stored of a split stock.
//!
//! The product's own document is the first stripe, number 0; the others are documents of their own, with stock and holds
//! of the same form. `epoch` names one splitting: it is never used again, so whoever still believes in an earlier one finds
//! nothing to change.

use std::collections::{BTreeMap, HashSet};

use mobimir_core::id::{OrderId, ProductId, derived};
use mongodb::bson::{DateTime, Uuid};
use serde::{Deserialize, Serialize};

use super::super::document::{HoldDoc, ZoneDoc};
use crate::leaves::{id, uuid};

/// In the product: how many stripes it should have, and which it has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in super::super) struct StripesDoc {
    pub(in super::super) wanted: i32,
    /// That was the policy, which may think otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(in super::super) by_policy: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in super::super) split: Option<SplitDoc>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in super::super) struct SplitDoc {
    pub(in super::super) epoch: Uuid,
    pub(in super::super) count: i32,
    /// Orders that had holds when the stock was split. They stay in the first stripe.
    pub(in super::super) settled_here: Vec<Uuid>,
    /// Is being put together again: nothing new is held, and no units move but to where they were sent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(in super::super) closing: bool,
}

/// One of the other stripes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in super::super) struct StripeDoc {
    #[serde(rename = "_id")]
    pub(in super::super) id: Uuid,
    pub(in super::super) product: Uuid,
    pub(in super::super) epoch: Uuid,
    pub(in super::super) n: i32,
    pub(in super::super) stock: BTreeMap<String, ZoneDoc>,
    pub(in super::super) holds: Vec<HoldDoc>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in super::super) oldest_hold: Option<DateTime>,
    pub(in super::super) version: i64,
    #[serde(default, skip_serializing_if = "Transfers::is_empty")]
    pub(in super::super) transfers: Transfers,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(in super::super) closing: bool,
    /// Never changes again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(in super::super) sealed: bool,
    pub(in super::super) created_at: DateTime,
}

/// Units on their way between stripes. Each pair counts its transfers, so one that is delivered twice is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in super::super) struct Transfers {
    /// Taken out here and perhaps not yet put in there; at most one to each stripe.
    #[serde(default)]
    pub(in super::super) out: BTreeMap<String, TransferDoc>,
    /// How many were ever sent to each.
    #[serde(default)]
    pub(in super::super) sent: BTreeMap<String, i64>,
    /// The last one that came from each.
    #[serde(default)]
    pub(in super::super) got: BTreeMap<String, i64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in super::super) struct TransferDoc {
    pub(in super::super) seq: i64,
    pub(in super::super) zone: String,
    pub(in super::super) units: i64,
}

/// A splitting, as an instance knows it. What is in here never changes for one epoch.
#[derive(Debug)]
pub(in super::super) struct Split {
    pub(in super::super) product: ProductId,
    pub(in super::super) epoch: Uuid,
    pub(in super::super) count: u16,
    settled_here: HashSet<OrderId>,
}

impl Split {
    pub(in super::super) fn of(product: Uuid, stored: &SplitDoc) -> Self {
        Self {
            product: id(product),
            epoch: stored.epoch,
            count: u16::try_from(stored.count).unwrap_or(1).max(1),
            settled_here: stored.settled_here.iter().map(|order| id(*order)).collect(),
        }
    }

    /// The stripe in which everything about an order happens.
    pub(in super::super) fn home(&self, order: OrderId) -> u16 {
        if self.settled_here.contains(&order) {
            return 0;
        }
        // The end of an id is random, whichever kind of id it is.
        let end = order.as_bytes().last_chunk::<8>().map_or(0, |bytes| u64::from_be_bytes(*bytes));
        u16::try_from(end % u64::from(self.count)).unwrap_or_default()
    }

    pub(in super::super) fn stripe_id(&self, n: u16) -> Uuid {
        stripe_id(self.epoch, n)
    }
}

impl StripeDoc {
    /// With nothing in it yet.
    pub(super) fn empty(product: ProductId, epoch: Uuid, n: u16, created_at: DateTime) -> Self {
        Self {
            id: stripe_id(epoch, n),
            product: uuid(product.0),
            epoch,
            n: n.into(),
            stock: BTreeMap::new(),
            holds: Vec::new(),
            oldest_hold: None,
            version: 0,
            transfers: Transfers::default(),
            closing: false,
            sealed: false,
            created_at,
        }
    }
}

impl Transfers {
    pub(in super::super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

fn stripe_id(epoch: Uuid, n: u16) -> Uuid {
    uuid(derived("stripe", &[&epoch.bytes(), &n.to_be_bytes()]))
}

/// The name under which a stripe's transfers with another are kept.
pub(super) fn key(n: u16) -> String {
    format!("s{n}")
}

pub(super) fn read_key(key: &str) -> Option<u16> {
    key.strip_prefix('s')?.parse().ok()
}
