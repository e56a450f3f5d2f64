//! Named places where a test may stop the shop, as a crash would.

use std::sync::Arc;

/// The steps of a checkout and of a cancellation, each named by what has just been done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    CheckoutInserted,
    LineHeld,
    CartClaimed,
    AllLinesHeld,
    CheckoutCommitted,
    CheckoutAborted,
    OrderWritten,
    LinesSettled,
    CartTaken,
    ReturnHeld,
    CancellationDecided,
    CancellationWritten,
    ReturnsSettled,
    DispatchDecided,
    GuestClosed,
    CartMerged,
}

impl Step {
    pub const ALL: [Step; 16] = [
        Step::CheckoutInserted,
        Step::LineHeld,
        Step::CartClaimed,
        Step::AllLinesHeld,
        Step::CheckoutCommitted,
        Step::CheckoutAborted,
        Step::OrderWritten,
        Step::LinesSettled,
        Step::CartTaken,
        Step::ReturnHeld,
        Step::CancellationDecided,
        Step::CancellationWritten,
        Step::ReturnsSettled,
        Step::DispatchDecided,
        Step::GuestClosed,
        Step::CartMerged,
    ];
    pub const CHECKOUT: [Step; 9] = [
        Step::CheckoutInserted,
        Step::LineHeld,
        Step::CartClaimed,
        Step::AllLinesHeld,
        Step::CheckoutCommitted,
        Step::CheckoutAborted,
        Step::OrderWritten,
        Step::LinesSettled,
        Step::CartTaken,
    ];
    pub const CANCELLATION: [Step; 4] =
        [Step::ReturnHeld, Step::CancellationDecided, Step::CancellationWritten, Step::ReturnsSettled];
}

/// What becomes of the shop at a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    /// It "crashes" here: whatever comes after does not happen.
    Stop,
    /// It is slow: everybody else gets so many turns first.
    Pause {
        turns: u32,
    },
}

type Plan = dyn Fn(Step) -> Fault + Send + Sync;

/// Decides at each step how the shop goes on. In production it just does.
#[derive(Clone, Default)]
pub struct Faults(Option<Arc<Plan>>);

#[derive(Debug, thiserror::Error)]
#[error("stopped after {0:?}")]
pub struct Stopped(pub Step);

impl Faults {
    pub fn none() -> Self {
        Self(None)
    }

    pub fn planned(plan: impl Fn(Step) -> Fault + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(plan)))
    }

    pub(crate) async fn reached(&self, step: Step) -> Result<(), Stopped> {
        let Some(plan) = &self.0 else { return Ok(()) };
        match plan(step) {
            Fault::None => Ok(()),
            Fault::Stop => Err(Stopped(step)),
            Fault::Pause { turns } => {
                for _ in 0..turns {
                    tokio::task::yield_now().await;
                }
                Ok(())
            }
        }
    }
}
