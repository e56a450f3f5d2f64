//! How long everybody waits for everybody.

use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How often an instance says that it is there.
    pub beat: Duration,
    /// For how long after the beginning of its last successful note an instance serves.
    pub lease: Duration,
    /// By how much a watcher waits longer, for clocks that run at different speeds.
    pub lease_margin: Duration,
    /// From the beginning of a write, in any store, until it is certain that it does not arrive any more.
    pub write_timeout: Duration,
    /// For how long a write waits for a handover to be over. A shopper waits about as long for a page.
    pub handover_wait_max: Duration,
    /// For how long what was written may wait to be copied, if a migration is to go on.
    pub mirror_age_max: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            beat: Duration::from_secs(1),
            lease: Duration::from_secs(10),
            lease_margin: Duration::from_secs(1),
            write_timeout: Duration::from_secs(12),
            handover_wait_max: Duration::from_secs(8),
            mirror_age_max: Duration::from_secs(60),
        }
    }
}
