//! Limits failed logins, by account and by address. Successful ones do not count.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Mutex, MutexGuard, PoisonError},
};

use mobimir_core::time::Timestamp;
use tokio::sync::Notify;

pub(crate) const FAILURES_PER_ACCOUNT_MAX: u32 = 10;
pub(crate) const FAILURES_PER_ADDRESS_MAX: u32 = 300;
const WINDOW_MS: i64 = 60_000;
/// Past it, windows that have ended are thrown out before a new one is opened.
const WINDOWS_MAX: usize = 100_000;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Who {
    Account(String),
    Address(IpAddr),
}

#[derive(Default)]
pub(crate) struct LoginGuard {
    windows: Mutex<HashMap<Who, Window>>,
    settled: Notify,
}

struct Window {
    started_at: Timestamp,
    failures: u32,
    /// Logins whose outcome is not known yet.
    running: u32,
}

/// A login under way. Unless it is told to have failed, it counts as none.
pub(crate) struct Attempt<'a> {
    guard: &'a LoginGuard,
    who: Vec<Who>,
    failed: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooMany {
    pub(crate) retry_after_s: u64,
}

impl LoginGuard {
    /// Lets a login begin. Where those that are running could use up the limit, it waits for their outcome, so that many at
    /// once neither slip past the limit nor are refused for nothing.
    pub(crate) async fn begin(
        &self,
        account: &str,
        address: Option<IpAddr>,
        now: Timestamp,
    ) -> Result<Attempt<'_>, TooMany> {
        let account = Who::Account(account.to_owned());
        let who: Vec<Who> = std::iter::once(account).chain(address.map(Who::Address)).collect();
        loop {
            let settled = self.settled.notified();
            tokio::pin!(settled);
            settled.as_mut().enable();
            if self.try_begin(&who, now)? {
                return Ok(Attempt { guard: self, who, failed: false });
            }
            settled.await;
        }
    }

    fn try_begin(&self, who: &[Who], now: Timestamp) -> Result<bool, TooMany> {
        let mut windows = self.windows();
        if windows.len() >= WINDOWS_MAX {
            windows.retain(|_, window| window.running > 0 || now.since(window.started_at) < WINDOW_MS);
        }
        let mut room = true;
        for one in who {
            let window =
                windows.entry(one.clone()).or_insert(Window { started_at: now, failures: 0, running: 0 });
            if now.since(window.started_at) >= WINDOW_MS {
                (window.started_at, window.failures) = (now, 0);
            }
            if window.failures >= one.limit() {
                let left_ms = (WINDOW_MS - now.since(window.started_at)).max(0);
                return Err(TooMany { retry_after_s: left_ms.cast_unsigned().div_ceil(1000).max(1) });
            }
            room &= window.failures + window.running < one.limit();
        }
        if room {
            for one in who {
                if let Some(window) = windows.get_mut(one) {
                    window.running += 1;
                }
            }
        }
        Ok(room)
    }

    fn windows(&self) -> MutexGuard<'_, HashMap<Who, Window>> {
        self.windows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Attempt<'_> {
    pub(crate) fn failed(mut self) {
        self.failed = true;
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        let mut windows = self.guard.windows();
        for one in &self.who {
            if let Some(window) = windows.get_mut(one) {
                window.running = window.running.saturating_sub(1);
                window.failures += u32::from(self.failed);
                if window.running == 0 && window.failures == 0 {
                    windows.remove(one);
                }
            }
        }
        drop(windows);
        self.guard.settled.notify_waiters();
    }
}

impl Who {
    fn limit(&self) -> u32 {
        match self {
            Who::Account(_) => FAILURES_PER_ACCOUNT_MAX,
            Who::Address(_) => FAILURES_PER_ADDRESS_MAX,
        }
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a unit test has a runtime of its own")]
mod tests {
    use std::sync::Arc;

    use super::*;

    const ANNA: &str = "anna@example.ru";

    #[tokio::test]
    async fn failures_are_limited_and_successes_are_not() {
        let guard = LoginGuard::default();
        let now = Timestamp::from_millis(1_000_000);
        for _ in 0..1_000 {
            drop(guard.begin(ANNA, None, now).await.unwrap_or_else(|_| panic!("a success was limited")));
        }
        for _ in 0..FAILURES_PER_ACCOUNT_MAX {
            guard.begin(ANNA, None, now).await.unwrap_or_else(|_| panic!("limited too early")).failed();
        }
        let refused = guard.begin(ANNA, None, now.plus_ms(500)).await.err();
        assert_eq!(refused, Some(TooMany { retry_after_s: 60 }));
        assert!(guard.begin("boris@example.ru", None, now).await.is_ok());
        assert!(guard.begin(ANNA, None, now.plus_ms(WINDOW_MS)).await.is_ok());
    }

    #[tokio::test]
    async fn many_at_once_wait_for_each_other_instead_of_being_refused() {
        let guard = Arc::new(LoginGuard::default());
        let now = Timestamp::from_millis(1_000_000);
        let log_in = |fails: bool| {
            let guard = guard.clone();
            tokio::spawn(async move {
                let Ok(attempt) = guard.begin(ANNA, None, now).await else { return false };
                tokio::task::yield_now().await;
                if fails {
                    attempt.failed();
                }
                true
            })
        };
        let good: Vec<_> = (0..100).map(|_| log_in(false)).collect();
        for attempt in good {
            assert!(attempt.await.unwrap(), "a success was limited");
        }
        let bad: Vec<_> = (0..100).map(|_| log_in(true)).collect();
        let mut checked = 0;
        for attempt in bad {
            checked += u32::from(attempt.await.unwrap());
        }
        assert_eq!(checked, FAILURES_PER_ACCOUNT_MAX, "so many guesses were allowed");
    }
}
