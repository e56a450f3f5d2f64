//! Units that move from one stripe to another.
//!
//! 1. They are taken out of one, which notes in the same update where they go and under which number.
//! 2. They are put into the other, unless it has had that number.
//! 3. The note is removed.
//!
//! Whoever finds a note finishes its transfer. Numbers of a pair only rise, so one who is late delivers nothing twice,
//! however late that is. Until it has arrived a unit is counted by its note.

use mobimir_core::{ports::StoreResult, product::Hold, time::Timestamp};

use super::{
    super::{MongoProducts, updates::Change},
    document::{Split, key},
    faults::StripeStep,
    updates,
    whole::{Transfer, Whole},
};

/// A hold to be placed with the units that come.
pub(super) struct Waiting<'a> {
    pub(super) hold: &'a Hold,
    pub(super) holds_max: usize,
    pub(super) now: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Carried {
    /// They were not there any more.
    Nothing,
    Put,
    /// And held.
    Held,
}

impl MongoProducts {
    /// Brings units from one stripe to another.
    pub(super) async fn carry(
        &self,
        split: &Split,
        transfer: &Transfer,
        waiting: Option<Waiting<'_>>,
    ) -> StoreResult<Carried> {
        if !self.change_stripe("take_units", transfer.from, updates::take(split, transfer)).await? {
            return Ok(Carried::Nothing);
        }
        self.faults.reached(StripeStep::UnitsTaken)?;
        let mut carried = Carried::Put;
        if let Some(Waiting { hold, holds_max, now }) = waiting {
            let change = updates::put_and_hold(split, transfer, hold, holds_max, now);
            if self.change_stripe("put_units_and_hold", transfer.to, change).await? {
                carried = Carried::Held;
            }
        }
        if carried == Carried::Put {
            self.change_stripe("put_units", transfer.to, updates::put(split, transfer)).await?;
        }
        // A hold that stands is acknowledged, whatever becomes of the note.
        let cleared = self.clear(split, transfer).await;
        if carried == Carried::Put {
            cleared?;
        }
        Ok(carried)
    }

    /// Finishes what somebody else has begun; says whether there was anything.
    pub(super) async fn finish_transfers(&self, split: &Split, whole: &Whole) -> StoreResult<bool> {
        let open = whole.transfers();
        for transfer in &open {
            if !transfer.arrived && whole.stripe(transfer.to).is_some_and(|stripe| stripe.sealed) {
                // It can no longer come there, and never did.
                self.change_stripe("take_back", transfer.from, updates::take_back(split, transfer)).await?;
                continue;
            }
            if !transfer.arrived {
                self.change_stripe("put_units", transfer.to, updates::put(split, transfer)).await?;
            }
            self.clear(split, transfer).await?;
        }
        Ok(!open.is_empty())
    }

    async fn clear(&self, split: &Split, transfer: &Transfer) -> StoreResult<()> {
        self.faults.reached(StripeStep::UnitsPut)?;
        let (guard, update) = updates::clear(split, transfer);
        self.update_stripe("clear_transfer", transfer.from, guard, update).await?;
        self.faults.reached(StripeStep::TransferCleared)
    }

    /// One change of one stripe; says whether it was made.
    pub(super) async fn change_stripe(
        &self,
        name: &'static str,
        n: u16,
        Change { guard, pipeline }: Change,
    ) -> StoreResult<bool> {
        self.update_stripe(name, n, guard, pipeline).await
    }

    pub(super) async fn update_stripe(
        &self,
        name: &'static str,
        n: u16,
        guard: mongodb::bson::Document,
        update: impl Into<mongodb::options::UpdateModifications>,
    ) -> StoreResult<bool> {
        let updated = if n == 0 {
            self.link.update_one(name, &self.products, guard, update, false).await?
        } else {
            self.link.update_one(name, &self.stripes, guard, update, false).await?
        };
        Ok(updated.matched)
    }
}

impl Whole {
    /// A transfer that could begin now; none while another of the same pair is under way.
    pub(super) fn next_transfer(&self, from: u16, to: u16, zone: &str, units: i64) -> Option<Transfer> {
        let transfers = self.transfers_of(from)?;
        if transfers.out.contains_key(&key(to)) {
            return None;
        }
        let seq = transfers.sent.get(&key(to)).copied().unwrap_or_default() + 1;
        Some(Transfer { from, to, seq, zone: zone.to_owned(), units, arrived: false })
    }
}
