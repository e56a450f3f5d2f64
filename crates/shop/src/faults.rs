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

/// Faults of the shop that a test puts back, to see that they are found. In production there are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Planted {
    /// An order of the cart commits without claiming the cart.
    CartOrderedWithoutClaim,
    /// What the order before has taken is not put to the cart before the cart is read.
    EarlierOrderNotTaken,
    /// A claim is taken over from a checkout that is not decided.
    ClaimTakenFromOpenCheckout,
    /// A committed order leaves the cart as it is.
    CartKeptAfterOrder,
    /// A token that does not fit what is remembered is refused without a look-up.
    RememberedSessionRefuses,
    /// What is remembered of a session goes back to an older version.
    RememberedSessionGoesBack,
    /// Sessions are remembered for a minute.
    SessionsRememberedTooLong,
    /// Deadlines are set and judged by the clock of the instance.
    DeadlinesByOwnClock,
    /// An expired checkout is aborted without winning its record.
    AbortWithoutWinning,
    /// The reconciler aborts checkouts that still have time.
    AbortBeforeDeadline,
    /// The order is written before it is decided.
    OrderWrittenUndecided,
    /// A refused order keeps what it holds.
    HoldsKeptAfterAbort,
    /// A key may come again with another request.
    RequestNotCompared,
    /// A guest's cart is copied, and the guest's session stays open.
    GuestKeptOpen,
    /// Nobody checks a merged guest's cart once more.
    NoLastCheckOfMerge,
    /// What an instance that stood still puts into the cart of a guest stays there.
    LateGuestNotFollowed,
    /// A merge gives changes new ids.
    MergeRenamesChanges,
    /// A line that is set leaves what was there.
    SetLeavesEarlier,
    /// A cart is cleared once more a moment later, of what it has then.
    ClearedAgainLater,
    /// A cancelled order gives its stock back without being decided.
    CancelledWithoutDecision,
    /// Prices are read again after they were compared with what was shown.
    PricesReadAfterComparison,
    /// A refresh token that comes again ends nothing.
    ReusedTokenEndsNothing,
    /// Whether a checkout is committed is not asked before its stock is sold.
    SoldBeforeCommit,
    /// A lost answer counts as a success.
    UnknownTakenForDone,
}

/// Decides at each step how the shop goes on. In production it just does.
#[derive(Clone, Default)]
pub struct Faults {
    plan: Option<Arc<Plan>>,
    planted: Option<Planted>,
}

#[derive(Debug, thiserror::Error)]
#[error("stopped after {0:?}")]
pub struct Stopped(pub Step);

impl Faults {
    pub fn none() -> Self {
        Self::default()
    }

    pub fn planned(plan: impl Fn(Step) -> Fault + Send + Sync + 'static) -> Self {
        Self { plan: Some(Arc::new(plan)), planted: None }
    }

    pub fn planted(fault: Planted) -> Self {
        Self { plan: None, planted: Some(fault) }
    }

    pub(crate) fn plants(&self, fault: Planted) -> bool {
        self.planted == Some(fault)
    }

    pub(crate) async fn reached(&self, step: Step) -> Result<(), Stopped> {
        let Some(plan) = &self.plan else { return Ok(()) };
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
