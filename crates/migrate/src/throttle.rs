//! How fast a job may go beside shoppers.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

use crate::job::Progress;

/// What shoppers feel.
pub trait Pressure: Send + Sync {
    fn now(&self) -> Felt;
}

/// How much of what the policy allows is used up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Felt {
    /// 1 is the limit.
    pub level: f64,
    /// What takes most of it.
    pub by: &'static str,
}

/// Nobody is there but the job.
pub struct Nobody;

impl Pressure for Nobody {
    fn now(&self) -> Felt {
        Felt { level: 0.0, by: "nobody" }
    }
}

/// What shoppers feel here and at other instances.
pub struct Everybody {
    here: Arc<dyn Pressure>,
    elsewhere_permille: AtomicU32,
}

impl Everybody {
    pub fn new(here: Arc<dyn Pressure>) -> Arc<Self> {
        Arc::new(Self { here, elsewhere_permille: AtomicU32::new(0) })
    }

    /// What the others have said.
    pub fn hear(&self, level: f64) {
        self.elsewhere_permille.store((level.clamp(0.0, 1_000.0) * 1_000.0) as u32, Ordering::Relaxed);
    }
}

impl Pressure for Everybody {
    fn now(&self) -> Felt {
        let elsewhere = f64::from(self.elsewhere_permille.load(Ordering::Relaxed)) / 1_000.0;
        self.here.now().or(elsewhere)
    }
}

impl Felt {
    /// The greater of this and of what is felt at other instances.
    #[must_use]
    pub fn or(self, elsewhere: f64) -> Self {
        if elsewhere > self.level { Self { level: elsewhere, by: "another instance" } } else { self }
    }
}

/// From here on a job slows down.
const PRESSURE_HIGH: f64 = 0.8;
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// A pause after each step, which grows quickly while shoppers feel the job and shrinks slowly when they do not.
pub struct Throttle {
    pause: Mutex<Duration>,
}

impl Default for Throttle {
    fn default() -> Self {
        Self { pause: Mutex::new(Duration::ZERO) }
    }
}

impl Throttle {
    /// Waits as long as the job should before it goes on, after a step that was such a part of a full one.
    pub async fn wait(&self, pressure: &dyn Pressure, progress: &Progress, part: f64) {
        let Felt { level, by: _ } = pressure.now();
        progress.felt(level);
        let pause = self.adapt(level).mul_f64(part.clamp(0.0, 1.0));
        if !pause.is_zero() {
            tokio::time::sleep_until(Instant::now() + pause).await;
        }
    }

    fn adapt(&self, pressure: f64) -> Duration {
        let mut pause = self.pause.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *pause = if pressure > PRESSURE_HIGH {
            (*pause * 2).clamp(PAUSE_MIN, PAUSE_MAX)
        } else {
            let less = *pause * 7 / 8;
            if less < PAUSE_MIN { Duration::ZERO } else { less }
        };
        *pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_feels_most_is_given_way_to() {
        let everybody = Everybody::new(Arc::new(Nobody));
        assert_eq!(everybody.now(), Nobody.now());
        everybody.hear(1.5);
        assert_eq!(everybody.now(), Felt { level: 1.5, by: "another instance" });
        everybody.hear(0.0);
        assert_eq!(everybody.now().level, 0.0);
    }

    #[test]
    fn it_gives_way_quickly_and_comes_back_slowly() {
        let throttle = Throttle::default();
        assert_eq!(throttle.adapt(0.5), Duration::ZERO);
        let slowed: Vec<Duration> = (0..20).map(|_| throttle.adapt(1.2)).collect();
        assert_eq!((slowed[0], slowed[19]), (PAUSE_MIN, PAUSE_MAX));
        let steps = (0..1_000).position(|_| throttle.adapt(0.1).is_zero()).unwrap();
        assert!((20..200).contains(&steps), "{steps}");
    }
}
