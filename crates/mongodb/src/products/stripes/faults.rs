//! Named places where a test may stop what moves stock between stripes, as a crash would.

use std::sync::Arc;

use mobimir_core::ports::{StoreError, StoreResult};

/// Each named by what has just been done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StripeStep {
    Wanted,
    StripesMade,
    Opened,
    UnitsTaken,
    UnitsPut,
    TransferCleared,
    ClosingBegun,
    StripeClosed,
    StripeSealed,
    PutTogether,
    StripeDropped,
}

impl StripeStep {
    pub const ALL: [StripeStep; 11] = [
        StripeStep::Wanted,
        StripeStep::StripesMade,
        StripeStep::Opened,
        StripeStep::UnitsTaken,
        StripeStep::UnitsPut,
        StripeStep::TransferCleared,
        StripeStep::ClosingBegun,
        StripeStep::StripeClosed,
        StripeStep::StripeSealed,
        StripeStep::PutTogether,
        StripeStep::StripeDropped,
    ];
}

type Plan = dyn Fn(StripeStep) -> bool + Send + Sync;

/// Decides at each step whether it goes on. In production it does.
#[derive(Clone, Default)]
pub struct StripeFaults(Option<Arc<Plan>>);

impl StripeFaults {
    pub fn none() -> Self {
        Self(None)
    }

    /// Stops where `stops` says so: whatever comes after does not happen.
    pub fn planned(stops: impl Fn(StripeStep) -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(stops)))
    }

    pub(super) fn reached(&self, step: StripeStep) -> StoreResult<()> {
        match &self.0 {
            Some(stops) if stops(step) => {
                Err(StoreError::Unknown { what: format!("stopped after {step:?}"), source: None })
            }
            _ => Ok(()),
        }
    }
}
