//! The promises, by number. Tests try to break them, and in production each has a counter that stays at zero.

use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Invariant {
    Stk1,
    Stk2,
    Ord1,
    Ord2,
    Ord3,
    Crt1,
    Crt2,
    Crt3,
    Crt4,
    Ses1,
    Ses2,
    Ses3,
    Mig1,
    Mig2,
    Mig3,
    Rd1,
}

impl Invariant {
    pub const ALL: [Invariant; 16] = [
        Self::Stk1,
        Self::Stk2,
        Self::Ord1,
        Self::Ord2,
        Self::Ord3,
        Self::Crt1,
        Self::Crt2,
        Self::Crt3,
        Self::Crt4,
        Self::Ses1,
        Self::Ses2,
        Self::Ses3,
        Self::Mig1,
        Self::Mig2,
        Self::Mig3,
        Self::Rd1,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Stk1 => "STK-1",
            Self::Stk2 => "STK-2",
            Self::Ord1 => "ORD-1",
            Self::Ord2 => "ORD-2",
            Self::Ord3 => "ORD-3",
            Self::Crt1 => "CRT-1",
            Self::Crt2 => "CRT-2",
            Self::Crt3 => "CRT-3",
            Self::Crt4 => "CRT-4",
            Self::Ses1 => "SES-1",
            Self::Ses2 => "SES-2",
            Self::Ses3 => "SES-3",
            Self::Mig1 => "MIG-1",
            Self::Mig2 => "MIG-2",
            Self::Mig3 => "MIG-3",
            Self::Rd1 => "RD-1",
        }
    }

    pub fn promise(self) -> &'static str {
        match self {
            Self::Stk1 => "for every product and zone, initial + restocked = available + reserved + sold",
            Self::Stk2 => "available is never negative",
            Self::Ord1 => {
                "an acknowledged order is found by id, in its owner's history and in its day's table"
            }
            Self::Ord2 => "one idempotency key makes at most one order",
            Self::Ord3 => {
                "status moves only along the machine, and every move stands in the history exactly once"
            }
            Self::Crt1 => "concurrent changes of a cart all count",
            Self::Crt2 => "a merge at login loses nothing and applies once",
            Self::Crt3 => "no cart outlives its TTL, no guest cart its session",
            Self::Crt4 => {
                "what one cart change put in is ordered at most once, over any number of instances, keys, \
                 crashes and lost answers"
            }
            Self::Ses1 => "an expired or revoked session is refused",
            Self::Ses2 => "a refresh token works once; using it again ends its whole family",
            Self::Ses3 => {
                "a token just issued works on every instance at once; one that was ended is refused \
                 everywhere within session_cache_s"
            }
            Self::Mig1 => {
                "no acknowledged write is lost in any phase, through any crash, advance or rollback"
            }
            Self::Mig2 => {
                "reads move to the target only when everything written before the gate is verified there"
            }
            Self::Mig3 => "at no moment do two stores decide",
            Self::Rd1 => "no read is older than its budget, and everyone reads their own writes",
        }
    }
}

/// How often each promise was looked at, and found broken, since the process started.
#[derive(Debug, Default)]
pub struct InvariantCounters {
    checks: [AtomicU64; Invariant::ALL.len()],
    violations: [AtomicU64; Invariant::ALL.len()],
}

impl InvariantCounters {
    /// Counts one look at a promise; returns `holds`, so that the caller can act on it.
    pub fn check(&self, invariant: Invariant, holds: bool) -> bool {
        self.checks[invariant as usize].fetch_add(1, Ordering::Relaxed);
        if !holds {
            self.violations[invariant as usize].fetch_add(1, Ordering::Relaxed);
        }
        holds
    }

    pub fn checks(&self, invariant: Invariant) -> u64 {
        self.checks[invariant as usize].load(Ordering::Relaxed)
    }

    pub fn violations(&self, invariant: Invariant) -> u64 {
        self.violations[invariant as usize].load(Ordering::Relaxed)
    }
}
