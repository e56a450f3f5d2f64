//! Limits failed logins, by account and by address. Successful ones do not count.

use std::{collections::HashMap, sync::Mutex};

use mobimir_core::time::Timestamp;

pub(crate) const FAILURES_PER_ACCOUNT_MAX: u32 = 10;
pub(crate) const FAILURES_PER_ADDRESS_MAX: u32 = 300;
const WINDOW_MS: i64 = 60_000;
/// Past it, windows that have ended are thrown out before a new one is opened.
const WINDOWS_MAX: usize = 100_000;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Who {
    Account(String),
    Address(std::net::IpAddr),
}

#[derive(Default)]
pub(crate) struct LoginGuard {
    windows: Mutex<HashMap<Who, Window>>,
}

struct Window {
    started_at: Timestamp,
    failures: u32,
}

/// A login under way. It counts as failed until [`LoginGuard::succeeded`] takes it back, so that many at once do
/// not slip past the limit.
pub(crate) struct Attempt(Vec<Who>);

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooMany {
    pub(crate) retry_after_s: u64,
}

impl LoginGuard {
    pub(crate) fn begin(
        &self,
        account: &str,
        address: Option<std::net::IpAddr>,
        now: Timestamp,
    ) -> Result<Attempt, TooMany> {
        let mut windows = self.windows.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if windows.len() >= WINDOWS_MAX {
            windows.retain(|_, window| now.since(window.started_at) < WINDOW_MS);
        }
        let who: Vec<Who> =
            std::iter::once(Who::Account(account.to_owned())).chain(address.map(Who::Address)).collect();
        for one in &who {
            let limit = if matches!(one, Who::Account(_)) {
                FAILURES_PER_ACCOUNT_MAX
            } else {
                FAILURES_PER_ADDRESS_MAX
            };
            if let Some(window) = windows.get(one)
                && now.since(window.started_at) < WINDOW_MS
                && window.failures >= limit
            {
                let left_ms = WINDOW_MS - now.since(window.started_at);
                return Err(TooMany {
                    retry_after_s: (left_ms.max(0).cast_unsigned()).div_ceil(1000).max(1),
                });
            }
        }
        for one in &who {
            let window = windows.entry(one.clone()).or_insert(Window { started_at: now, failures: 0 });
            if now.since(window.started_at) >= WINDOW_MS {
                *window = Window { started_at: now, failures: 0 };
            }
            window.failures += 1;
        }
        Ok(Attempt(who))
    }

    pub(crate) fn succeeded(&self, attempt: Attempt) {
        let mut windows = self.windows.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        for one in attempt.0 {
            if let Some(window) = windows.get_mut(&one) {
                window.failures = window.failures.saturating_sub(1);
                if window.failures == 0 {
                    windows.remove(&one);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_limited_and_successes_are_not() {
        let guard = LoginGuard::default();
        let now = Timestamp::from_millis(1_000_000);
        for _ in 0..1_000 {
            let attempt =
                guard.begin("anna@example.ru", None, now).unwrap_or_else(|_| panic!("a success was limited"));
            guard.succeeded(attempt);
        }
        for _ in 0..FAILURES_PER_ACCOUNT_MAX {
            assert!(guard.begin("anna@example.ru", None, now).is_ok());
        }
        let refused = guard.begin("anna@example.ru", None, now.plus_ms(500)).err();
        assert_eq!(refused, Some(TooMany { retry_after_s: 60 }));
        assert!(guard.begin("boris@example.ru", None, now).is_ok());
        assert!(guard.begin("anna@example.ru", None, now.plus_ms(WINDOW_MS)).is_ok());
    }
}
