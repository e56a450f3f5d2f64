//! Named places where a test may stop the shop, as a crash would.

use std::sync::Arc;

/// The steps of a checkout and of a cancellation, each named by what has just been done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    CheckoutInserted,
    LineHeld,
    AllLinesHeld,
    CheckoutCommitted,
    CheckoutAborted,
    OrderWritten,
    LinesSettled,
    CartTaken,
    CheckoutSettled,
    ReturnHeld,
    CancellationDecided,
    CancellationWritten,
    ReturnsSettled,
    DispatchDecided,
    GuestClosed,
    CartMerged,
}

impl Step {
    pub const CHECKOUT: [Step; 9] = [
        Step::CheckoutInserted,
        Step::LineHeld,
        Step::AllLinesHeld,
        Step::CheckoutCommitted,
        Step::CheckoutAborted,
        Step::OrderWritten,
        Step::LinesSettled,
        Step::CartTaken,
        Step::CheckoutSettled,
    ];
    pub const CANCELLATION: [Step; 4] =
        [Step::ReturnHeld, Step::CancellationDecided, Step::CancellationWritten, Step::ReturnsSettled];
}

type Plan = dyn Fn(Step) -> bool + Send + Sync;

/// Decides at each step whether the shop goes on. In production it always does.
#[derive(Clone, Default)]
pub struct Faults(Option<Arc<Plan>>);

/// The shop "crashed" here: whatever comes after did not happen.
#[derive(Debug, thiserror::Error)]
#[error("stopped after {0:?}")]
pub struct Stopped(pub Step);

impl Faults {
    pub fn none() -> Self {
        Self(None)
    }

    /// Stops wherever `stops_at` says so.
    pub fn stop_when(stops_at: impl Fn(Step) -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(stops_at)))
    }

    pub(crate) fn reached(&self, step: Step) -> Result<(), Stopped> {
        match &self.0 {
            Some(stops_at) if stops_at(step) => Err(Stopped(step)),
            _ => Ok(()),
        }
    }
}
