//! Who is let in when there is too much to do.
//!
//! A request that will be answered too late had better not be begun. How late everything is, is felt with a message that the
//! shop sends to itself every few milliseconds, through a socket like those of all others: what it waits to be heard, every
//! request waits too. (A timer would not do: the runtime lets it pass everybody who waits.) While that is more than it
//! should be, a growing share of requests is turned away at the door, which costs next to nothing: first those that only
//! look, then changes, and orders last of all, because somebody is waiting with money in hand. Whoever watches is always
//! let in.

use std::{
    io,
    sync::{
        Weak,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use http::Method;
use tokio::{io::AsyncReadExt, net::UnixStream};

use crate::{limits::Limits, state::Inner};

/// How often the pressure is felt.
const FEEL_PERIOD: Duration = Duration::from_millis(10);
/// So often in a row, and for so long, it has to be late.
const LATE_IN_A_ROW: u32 = 3;
const LASTING: Duration = Duration::from_millis(80);
/// Of a share that is turned away.
const WHOLE: u32 = 1_000;
/// Somebody always gets through, or nobody would notice that it is over.
const SHARE_MAX: f64 = 0.98;
/// Of what is not yet turned away, so much more is at every step; and so much less when there is time again.
const STEP_UP: f64 = 0.01;
const STEP_MAX: f64 = 0.2;
const STEP_DOWN: f64 = 0.004;
/// For how many periods at once a late one counts.
const PERIODS_MAX: f64 = 10.0;
/// As long as there are no more connections, no queue is so long that it were worth to turn somebody away: then it is others on
/// the machine who make everything late.
const CONNECTIONS_MIN: i64 = 256;
/// A wait of so many limits goes up as fast as it gets.
const LIMITS_MAX: f64 = 4.0;

/// What a request is about, as far as the door is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Health, metrics, operators.
    Watch,
    Order,
    /// Carts, sessions, users.
    Change,
    Look,
}

/// What operators and machines that watch ask for. Operators are those, too, who change products.
const WATCHED: [&str; 7] =
    ["/healthz", "/readyz", "/metrics", "/v1/ops", "/v1/reports", "/v1/carts", "/console"];
const BOUGHT: [&str; 2] = ["/v1/orders", "/checkout"];
/// To look at these is a step of buying.
const FILLED: [&str; 3] = ["/v1/cart", "/cart", "/checkout"];

impl Class {
    pub(crate) fn of(method: &Method, path: &str) -> Self {
        let is_under = |prefix: &&str| path.starts_with(*prefix);
        let changes = !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
        if WATCHED.iter().any(is_under) || (changes && is_under(&"/v1/products")) {
            Self::Watch
        } else if changes && BOUGHT.iter().any(is_under) {
            Self::Order
        } else if changes || FILLED.iter().any(is_under) {
            Self::Change
        } else {
            Self::Look
        }
    }
}

impl Class {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Watch => "watch",
            Self::Order => "order",
            Self::Change => "change",
            Self::Look => "look",
        }
    }
}

/// How large a share is turned away, from how late everything was.
#[derive(Clone, Debug, Default, PartialEq)]
struct Pressure {
    share: f64,
    late_in_a_row: u32,
    late_for: Duration,
    /// Of those in a row.
    least: Duration,
}

impl Pressure {
    /// Something was `late` by so much, so long after the last time.
    fn feel(&mut self, late: Duration, limit: Duration, passed: Duration) {
        if late <= limit {
            let spare = 1.0 - late.as_secs_f64() / limit.as_secs_f64();
            *self = Self {
                share: (self.share - STEP_DOWN * spare * periods(passed)).max(0.0),
                ..Self::default()
            };
            return;
        }
        self.least = if self.late_in_a_row == 0 { late } else { self.least.min(late) };
        self.late_in_a_row += 1;
        self.late_for += passed;
        // A moment in which nothing ran is not too much to do.
        if self.late_in_a_row >= LATE_IN_A_ROW && self.late_for >= LASTING {
            let limits = (self.least.as_secs_f64() / limit.as_secs_f64()).min(LIMITS_MAX);
            self.share +=
                (SHARE_MAX - self.share) * (STEP_UP * (limits - 1.0) * periods(passed)).min(STEP_MAX);
        }
    }
}

fn periods(passed: Duration) -> f64 {
    (passed.as_secs_f64() / FEEL_PERIOD.as_secs_f64()).min(PERIODS_MAX)
}

pub(crate) struct Admission {
    /// Of a thousand that only look.
    share: AtomicU32,
    dice: AtomicU32,
    in_flight_max: i64,
}

impl Admission {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            share: AtomicU32::new(0),
            dice: AtomicU32::new(0),
            in_flight_max: i64::try_from(limits.in_flight_max).unwrap_or(i64::MAX),
        }
    }

    /// Whether a request is let in, beside those that are being answered and those who may ask, too.
    pub(crate) fn admits(&self, class: Class, in_flight: i64, connections: i64) -> bool {
        let share = if connections > CONNECTIONS_MIN { self.share.load(Ordering::Relaxed) } else { 0 };
        if share == 0 && in_flight <= self.in_flight_max {
            return true;
        }
        let (away, in_flight_max) = match class {
            Class::Watch => return true,
            Class::Look => (share, self.in_flight_max),
            // Half of those who look are gone before the first change is.
            Class::Change => (share.saturating_sub(WHOLE / 2) * 2, self.in_flight_max),
            Class::Order => (share.saturating_sub(WHOLE * 9 / 10) * 5, self.in_flight_max.saturating_mul(2)),
        };
        in_flight <= in_flight_max && self.roll() >= away
    }

    /// How large a share of those that only look is turned away now.
    pub(crate) fn share(&self) -> f64 {
        f64::from(self.share.load(Ordering::Relaxed)) / f64::from(WHOLE)
    }

    /// Below a thousand, each as often as any other, neighbours far apart.
    fn roll(&self) -> u32 {
        let number = self.dice.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9E37_79B9);
        ((u64::from(number) * u64::from(WHOLE)) >> 32) as u32
    }
}

/// Feels the pressure for as long as the shop is there.
pub(crate) async fn feel(shop: Weak<Inner>) {
    let limit = Duration::from_millis(shop.upgrade().map_or(0, |shop| shop.limits.late_ms_max));
    if limit.is_zero() {
        return;
    }
    if let Err(error) = feel_within(limit, &shop).await {
        tracing::warn!(%error, "how late everything is cannot be felt: nobody is turned away for it");
    }
}

async fn feel_within(limit: Duration, shop: &Weak<Inner>) -> io::Result<()> {
    let (mut ear, mouth) = UnixStream::pair()?;
    let began = Instant::now();
    let speaker = tokio::spawn(async move {
        loop {
            tokio::time::sleep(FEEL_PERIOD).await;
            let now_us = began.elapsed().as_micros() as u64;
            match mouth.try_write(&now_us.to_be_bytes()) {
                // What nobody has heard yet says enough.
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return,
                _ => {}
            }
        }
    });
    let mut pressure = Pressure::default();
    let mut last = began.elapsed();
    let mut said = [0; 1024];
    loop {
        // All that was said meanwhile; the first of it waited longest.
        let length = ear.read(&mut said).await?;
        let Some(shop) = shop.upgrade() else { break };
        let Some(first) = said[..length].first_chunk() else { break };
        let now = began.elapsed();
        let late = now.saturating_sub(Duration::from_micros(u64::from_be_bytes(*first)));
        pressure.feel(late, limit, now - last);
        last = now;
        shop.admission.share.store((pressure.share * f64::from(WHOLE)) as u32, Ordering::Relaxed);
    }
    speaker.abort();
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const LIMIT: Duration = Duration::from_millis(20);

    fn door(share: u32) -> Admission {
        let door = Admission::new(&Limits { in_flight_max: 100, ..Limits::default() });
        door.share.store(share, Ordering::Relaxed);
        door
    }

    fn let_in(door: &Admission, class: Class) -> usize {
        (0..10_000).filter(|_| door.admits(class, 10, 1_000)).count()
    }

    #[test]
    fn pressure_rises_within_a_second_and_is_gone_seconds_after() {
        let mut pressure = Pressure::default();
        (0..16).for_each(|_| pressure.feel(LIMIT * 3, LIMIT, LIMIT * 3));
        assert!(pressure.share > 0.8, "{pressure:?}");
        (0..1_000).for_each(|_| pressure.feel(LIMIT * 100, LIMIT, LIMIT * 100));
        assert!(pressure.share <= SHARE_MAX, "{pressure:?}");
        (0..300).for_each(|_| pressure.feel(Duration::from_millis(1), LIMIT, FEEL_PERIOD));
        assert_eq!(pressure.share, 0.0);
    }

    #[test]
    fn a_few_are_let_in_however_late_everything_is() {
        assert!((0..1_000).all(|_| door(980).admits(Class::Look, 2, CONNECTIONS_MIN)));
    }

    #[test]
    fn a_moment_in_which_nothing_ran_is_no_pressure() {
        let mut pressure = Pressure::default();
        for _ in 0..100 {
            pressure.feel(Duration::from_secs(2), LIMIT, Duration::from_secs(2));
            pressure.feel(LIMIT * 2, LIMIT, FEEL_PERIOD);
            pressure.feel(Duration::from_millis(1), LIMIT, FEEL_PERIOD);
            assert_eq!(pressure.share, 0.0);
        }
    }

    /// Many who are all ready to run at once make a message wait as they wait themselves.
    #[test]
    fn what_waits_behind_others_is_felt() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let shop = crate::test_app::state(Limits { late_ms_max: 5, ..Limits::default() }).inner;
            let feeling = tokio::spawn(feel(Arc::downgrade(&shop)));
            let crowd: Vec<_> = (0..64).map(|_| tokio::spawn(busy_reader())).collect();
            while shop.admission.share() < 0.2 {
                tokio::time::sleep(FEEL_PERIOD).await;
            }
            crowd.iter().for_each(|reader| reader.abort());
            while shop.admission.share() > 0.0 {
                tokio::time::sleep(FEEL_PERIOD).await;
            }
            drop(shop);
            feeling.await.expect("it ends with the shop");
        });
    }

    /// Works for a millisecond for every byte that it hears, and says one to itself.
    async fn busy_reader() {
        let (mut ear, mouth) = UnixStream::pair().expect("sockets");
        loop {
            mouth.try_write(&[0]).expect("room");
            let _ = ear.read(&mut [0; 16]).await;
            let began = Instant::now();
            while began.elapsed() < Duration::from_millis(1) {}
            tokio::task::yield_now().await;
        }
    }

    #[test]
    fn who_looks_goes_first_and_who_orders_last() {
        let calm = door(0);
        assert_eq!(let_in(&calm, Class::Look), 10_000);
        let busy = door(400);
        assert!((5_900..=6_100).contains(&let_in(&busy, Class::Look)));
        assert_eq!(let_in(&busy, Class::Change), 10_000);
        let full = door(800);
        assert!((1_900..=2_100).contains(&let_in(&full, Class::Look)));
        assert!((3_900..=4_100).contains(&let_in(&full, Class::Change)));
        assert_eq!(let_in(&full, Class::Order), 10_000);
        let bursting = door(980);
        assert!(let_in(&bursting, Class::Order) > 5_000);
        assert_eq!(let_in(&bursting, Class::Watch), 10_000);
    }

    #[test]
    fn so_many_at_once_and_no_more() {
        let door = door(0);
        for (class, most) in [(Class::Look, 100), (Class::Change, 100), (Class::Order, 200)] {
            assert!(door.admits(class, most, 1) && !door.admits(class, most + 1, 1), "{class:?}");
        }
        assert!(door.admits(Class::Watch, 1_000_000, 1));
    }

    #[test]
    fn what_a_request_is_about() {
        for (method, path, class) in [
            (Method::GET, "/v1/products", Class::Look),
            (Method::GET, "/", Class::Look),
            (Method::GET, "/v1/orders/1", Class::Look),
            (Method::POST, "/v1/orders", Class::Order),
            (Method::POST, "/checkout", Class::Order),
            (Method::POST, "/v1/cart/items", Class::Change),
            (Method::GET, "/v1/cart", Class::Change),
            (Method::GET, "/checkout", Class::Change),
            (Method::OPTIONS, "/v1/products", Class::Look),
            (Method::PUT, "/v1/products/1/stock/MSK", Class::Watch),
            (Method::GET, "/v1/carts", Class::Watch),
            (Method::GET, "/v1/reports/orders", Class::Watch),
            (Method::GET, "/metrics", Class::Watch),
            (Method::POST, "/v1/ops/migrations/carts/advance", Class::Watch),
        ] {
            assert_eq!(Class::of(&method, path), class, "{method} {path}");
        }
    }
}
