//! Who is let in when there is too much to do.
//!
//! A request that will be answered too late had better not be begun. How late everything is, is felt with a message that the
//! shop sends to itself every few milliseconds, through a socket like those of all others: what it waits to be heard, every
//! request waits too. (A timer would not do: the runtime lets it pass everybody who waits.) While that is more than it
//! should be, a growing share of requests is turned away at the door, before anything is done for them: first those that only
//! look, then changes, and orders last of all, because somebody is waiting with money in hand. Whoever watches is always
//! let in.

use std::{
    collections::VecDeque,
    io,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use http::Method;
use tokio::{io::AsyncReadExt, net::UnixStream};

use crate::{limits::Limits, state::Inner};

/// How often the pressure is felt.
const FEEL_PERIOD: Duration = Duration::from_millis(10);
/// What was felt so often lately counts together.
const FELT: usize = 12;
/// Of a share that is turned away.
const WHOLE: u32 = 1_000;
/// Somebody always gets through, or nobody would notice that it is over.
const SHARE_MAX: f64 = 0.98;
/// The first is turned away when everything is late by so much of the limit, and nearly all are at so many limits.
/// In between as many are as it takes for the wait to stay where it is.
const FIRST_AT_LIMITS: f64 = 0.5;
const ALL_AT_LIMITS: f64 = 2.0;
/// As long as there are no more connections, no queue is so long that it were worth to turn somebody away: then it is others on
/// the machine who make everything late.
const CONNECTIONS_MIN: i64 = 256;
/// A wait of more limits counts as this many.
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

/// How late everything was lately.
#[derive(Clone, Debug, Default, PartialEq)]
struct Pressure {
    /// In limits, each no more than counts.
    last: VecDeque<f64>,
}

impl Pressure {
    fn feel(&mut self, late: Duration, limit: Duration) {
        if self.last.len() == FELT {
            self.last.pop_front();
        }
        self.last.push_back((late.as_secs_f64() / limit.as_secs_f64()).min(LIMITS_MAX));
    }

    /// Of those who only look, how many are turned away. It follows the mean, because who waits behind whom is a matter of
    /// luck, and some wait long while others do not wait at all; and each counts for so little in it that a moment in which
    /// nothing ran is not too much to do.
    fn share(&self) -> f64 {
        let limits = self.last.iter().sum::<f64>() / FELT as f64;
        ((limits - FIRST_AT_LIMITS) / (ALL_AT_LIMITS - FIRST_AT_LIMITS)).clamp(0.0, SHARE_MAX)
    }
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
        if let Some(shop) = shop.upgrade() {
            shop.admission.share.store(0, Ordering::Relaxed);
        }
        tracing::warn!(%error, "how late everything is cannot be felt: nobody is turned away for it");
    }
}

async fn feel_within(limit: Duration, shop: &Weak<Inner>) -> io::Result<()> {
    let (ear, mouth) = UnixStream::pair()?;
    let heard = Arc::new(Mutex::new(None));
    let listener = tokio::spawn(listen(ear, heard.clone()));
    let mut pressure = Pressure::default();
    let mut said: Option<Instant> = None;
    loop {
        // This comes in time, whoever waits.
        tokio::time::sleep(FEEL_PERIOD).await;
        let Some(shop) = shop.upgrade() else { break };
        let now = Instant::now();
        if let Some(said_at) = said {
            // What nobody has heard yet is at least as late as it is now.
            let heard_at = heard.lock().unwrap_or_else(PoisonError::into_inner).take();
            pressure.feel(heard_at.unwrap_or(now).saturating_duration_since(said_at), limit);
            said = said.filter(|_| heard_at.is_none());
        }
        if said.is_none() {
            match mouth.try_write(&[0]) {
                Ok(_) => said = Some(now),
                // Then the next time.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        shop.admission.share.store((pressure.share() * f64::from(WHOLE)) as u32, Ordering::Relaxed);
    }
    listener.abort();
    Ok(())
}

/// Waits among all others who wait for a socket.
async fn listen(mut ear: UnixStream, heard: Arc<Mutex<Option<Instant>>>) {
    while let Ok(1) = ear.read(&mut [0]).await {
        *heard.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests {
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
    fn the_later_everything_is_the_more_are_turned_away() {
        let share = |late: Duration| {
            let mut pressure = Pressure::default();
            (0..100).for_each(|_| pressure.feel(late, LIMIT));
            pressure.share()
        };
        assert_eq!(share(LIMIT / 2), 0.0);
        assert!((0.3..0.4).contains(&share(LIMIT)), "{}", share(LIMIT));
        assert!((0.6..0.7).contains(&share(LIMIT * 3 / 2)), "{}", share(LIMIT * 3 / 2));
        assert_eq!(share(LIMIT * 2), SHARE_MAX);
        assert_eq!(share(LIMIT * 1_000), SHARE_MAX);
    }

    #[test]
    fn when_it_is_over_everybody_is_let_in_at_once() {
        let mut pressure = Pressure::default();
        (0..100).for_each(|_| pressure.feel(LIMIT * 3, LIMIT));
        assert_eq!(pressure.share(), SHARE_MAX);
        (0..FELT).for_each(|_| pressure.feel(Duration::from_millis(1), LIMIT));
        assert_eq!(pressure.share(), 0.0);
    }

    #[test]
    fn a_few_are_let_in_however_late_everything_is() {
        assert!((0..1_000).all(|_| door(980).admits(Class::Look, 2, CONNECTIONS_MIN)));
    }

    #[test]
    fn a_moment_in_which_nothing_ran_is_no_pressure() {
        let mut pressure = Pressure::default();
        for _ in 0..100 {
            pressure.feel(Duration::from_secs(2), LIMIT);
            assert_eq!(pressure.share(), 0.0);
            (1..FELT).for_each(|_| pressure.feel(LIMIT / 8, LIMIT));
            assert_eq!(pressure.share(), 0.0);
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
