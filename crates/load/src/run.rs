//! A run: requests leave when they are due, whatever the shop does.

use std::{
    io,
    iter::Peekable,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use mobimir_core::random::Random;
use rustix::time::{ClockId, clock_gettime};

use crate::{
    alias::Alias,
    crowd::{Asked, Crowd, Wish},
    due::Due,
    operation::Operation,
    profile::Profile,
    record::{Limits, Record, Second},
    schedule::Schedule,
    wire::{News, Wire},
};

/// A wait is at least this long: requests that are due meanwhile leave together.
const WAIT_MIN: Duration = Duration::from_micros(50);
const WAIT_MAX: Duration = Duration::from_millis(100);
/// After the end, what is due is sent for so long.
const GRACE_NS: u64 = 1_000_000_000;
/// So many wait until they can be sent, at most. What becomes due beyond is never sent, and missing in what was: a shop
/// that is so far behind has been asked for too much.
const DUE_MAX: usize = 1_000_000;

/// What is due, by rising time in nanoseconds from the start.
pub(crate) trait Plan: Iterator<Item = (u64, Wish)> {}

impl<T: Iterator<Item = (u64, Wish)>> Plan for T {}

/// What a profile makes due.
pub(crate) fn of_profile(
    profile: &Profile,
    rate: f64,
    lasts: Duration,
    even: bool,
    seed: u64,
) -> Option<impl Plan + use<>> {
    let requests_max = profile.requests_max.unwrap_or(u64::MAX);
    let schedule = Schedule::new(rate, profile.ramp.clone(), nanoseconds(lasts), seed);
    let mix = Alias::new(&Operation::ALL.map(|operation| profile.mix.share(operation)))?;
    // Of another sequence than the gaps between requests.
    let mut random = Random::new(!seed);
    let drawn = move |at_ns| (at_ns, Wish::Any(Operation::ALL[mix.draw(&mut random)]));
    Some(schedule.at_most(requests_max).even(even).map(drawn))
}

/// How a run went.
pub(crate) struct Ran {
    pub(crate) record: Record,
    pub(crate) planned: u64,
    pub(crate) sent: u64,
    pub(crate) took: Duration,
    /// Of the thread that made the load.
    pub(crate) cpu: Duration,
    pub(crate) interrupted: bool,
}

#[derive(Clone, Copy)]
struct Flight {
    asked: Asked,
    due_ns: u64,
}

/// Sends what is due until the time is up or somebody stops it, and waits for the last answers. `each_second` sees every
/// second when it is over.
pub(crate) fn run(
    plan: impl Plan,
    lasts: Duration,
    wire: &mut Wire,
    crowd: &mut Crowd,
    limits: Limits,
    stop: &AtomicBool,
    mut each_second: impl FnMut(&Second, Duration),
) -> io::Result<Ran> {
    let (end_ns, mut plan) = (nanoseconds(lasts), plan.peekable());
    let mut record = Record::new(limits);
    // Numbers of flights are given again when they have landed.
    let (mut flights, mut landed): (Vec<Option<Flight>>, Vec<usize>) = (Vec::new(), Vec::new());
    let mut due = Due::default();
    let (mut planned, mut sent, mut seconds) = (0, 0, 0);
    let mut request = wire.request();
    let mut interrupted = false;
    let cpu_before = cpu_time();
    let started = Instant::now();
    loop {
        let now = Instant::now();
        let now_ns = since(started, now);
        if !interrupted {
            planned += fall_due(&mut plan, now_ns, &mut due, DUE_MAX);
        }
        // What became due in the last moments is still sent.
        let over = now_ns >= end_ns.saturating_add(GRACE_NS) || interrupted;
        if crowd.lacks_guests() && !over && wire.free() > 0 {
            planned += 1;
            due.push_front((now_ns, Wish::Any(Operation::GuestSession)));
        }
        let mut turn = due.turn();
        while !over && wire.free() > 0 {
            // What everybody who could ask for it is too busy for stays due.
            let ask =
                |due_ns: u64, wish: &Wish| crowd.ask(wish, (due_ns / 1_000_000).cast_signed(), &mut request);
            let Some((due_ns, asked)) = turn.next(ask) else { break };
            let ticket = landed.pop().unwrap_or_else(|| {
                flights.push(None);
                flights.len() - 1
            });
            flights[ticket] = Some(Flight { asked, due_ns });
            record.sent(now_ns, now_ns - due_ns);
            wire.send(ticket, &request, now);
            sent += 1;
        }
        let under_way = flights.len() - landed.len();
        let nothing_to_come = due.is_empty() && plan.peek().is_none();
        if under_way == 0 && (over || nothing_to_come) {
            break;
        }
        let next = plan.peek().map(|(at_ns, _)| started + Duration::from_nanos(*at_ns));
        // While all connections are busy nothing can be sent, whatever is due.
        let next = next.filter(|_| wire.free() > 0).unwrap_or(now + WAIT_MAX);
        let until = next.max(now + WAIT_MIN);
        wire.turn(until, &mut |ticket, news| {
            let Some(flight) = flights[ticket] else { return };
            let at_ns = since(started, Instant::now());
            let News::Outcome(outcome) = news else {
                crowd.asked_again(flight.asked);
                record.repeated(at_ns);
                return;
            };
            flights[ticket] = None;
            landed.push(ticket);
            let verdict = crowd.heard(flight.asked, outcome);
            record.answered(flight.asked.operation, verdict, at_ns, at_ns.saturating_sub(flight.due_ns));
        })?;
        interrupted |= stop.load(Ordering::Relaxed);
        if record.seconds().len() > seconds {
            seconds = record.seconds().len();
            record.last_second().into_iter().for_each(|second| each_second(second, started.elapsed()));
        }
    }
    record.end();
    // What was due and not sent was planned all the same.
    let took = started.elapsed();
    Ok(Ran { record, planned, sent, took, cpu: cpu_time().saturating_sub(cpu_before), interrupted })
}

/// Puts what has become due to what is. Says how much that is, with what does not fit.
fn fall_due(plan: &mut Peekable<impl Plan>, now_ns: u64, due: &mut Due, due_max: usize) -> u64 {
    let mut planned = 0;
    while let Some(next) = plan.next_if(|(at_ns, _)| *at_ns <= now_ns) {
        planned += 1;
        if due.len() < due_max {
            due.push_back(next);
        }
    }
    planned
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn since(started: Instant, now: Instant) -> u64 {
    nanoseconds(now.saturating_duration_since(started))
}

/// What this thread has spent on a processor.
fn cpu_time() -> Duration {
    let spent = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(spent.tv_sec.unsigned_abs(), u32::try_from(spent.tv_nsec).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, OnceLock};

    use super::*;
    use crate::{
        crowd::Shopper,
        goods::tests::goods,
        test_server::{Act, TestServer},
    };

    fn ran(server: &TestServer, rate: f64, lasts: Duration, connections: usize) -> Ran {
        let pages = "name = 'pages'\n[mix]\nproduct_page = 1\n[shoppers]\nusers = 1\n";
        ran_of(pages, server, rate, lasts, connections)
    }

    fn ran_of(profile: &str, server: &TestServer, rate: f64, lasts: Duration, connections: usize) -> Ran {
        let profile = Profile::parse(profile, "a profile").expect("a profile");
        let user = |number| Shopper::new(format!("token-{number}"), Some("{}".to_owned()), 0);
        let shoppers = (0..profile.shoppers.users).map(user).collect();
        let mut crowd =
            Crowd::new(profile.clone(), goods(10), vec!["MSK".to_owned()], shoppers, "run".to_owned(), 1);
        let mut wire =
            Wire::connect(server.address, "shop", connections, Duration::from_secs(60)).expect("connections");
        let plan = of_profile(&profile, rate, lasts, true, 1).expect("a plan");
        run(plan, lasts, &mut wire, &mut crowd, Limits::default(), &AtomicBool::new(false), |_, _| {})
            .expect("a run")
    }

    /// A server that stands still for two seconds keeps everybody waiting who came meanwhile, and not only those few whose
    /// requests it had already.
    #[test]
    fn a_stall_shows_in_everyone_who_came_during_it() {
        const RATE: f64 = 200.0;
        const STALL: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3));
        let first = OnceLock::new();
        let server = TestServer::start(Arc::new(move |_, _| {
            let at = first.get_or_init(Instant::now).elapsed();
            if (STALL.0..STALL.1).contains(&at) { Act::AnswerAfter(STALL.1 - at) } else { Act::Answer("{}") }
        }));
        let ran = ran(&server, RATE, Duration::from_secs(5), 2);
        // On a slow machine the last ones may not be sent. Those that came during the stall are.
        let latency = ran.record.over(|_| true);
        assert_eq!(latency.count, ran.sent);
        // Of a thousand, the four hundred that came in these two seconds waited for one second in the middle.
        assert!(latency.max_us >= 1_900_000, "{latency:?}");
        assert!(latency.p90_us >= 1_400_000, "{latency:?}");
    }

    /// What is due when everybody has ordered is not sent.
    #[test]
    fn everybody_orders_once_where_that_is_asked_for() {
        let once = "name = 'sale'\n[mix]\norder = 1\n[shoppers]\nusers = 3\norder_once = true\n";
        let server = TestServer::start(Arc::new(|_, _| Act::Answer("{}")));
        let ran = ran_of(once, &server, 100.0, Duration::from_millis(200), 2);
        assert_eq!(ran.sent, 3);
        assert!(ran.planned > ran.sent);
    }

    /// However far a shop is behind, memory does not grow, and what was left out is not forgotten.
    #[test]
    fn what_does_not_fit_is_planned_and_not_sent() {
        let mut plan = (0..10).map(|at_ns| (at_ns, Wish::Page(0))).peekable();
        let mut due = Due::default();
        assert_eq!(fall_due(&mut plan, 5, &mut due, 4), 6);
        assert_eq!(due.turn().next(|_, _| Some(())), Some((0, ())));
        assert_eq!(fall_due(&mut plan, 20, &mut due, 4), 4);
        let mut turn = due.turn();
        let left: Vec<u64> =
            std::iter::from_fn(|| turn.next(|_, _| Some(()))).map(|(at_ns, ())| at_ns).collect();
        assert_eq!(left, [1, 2, 3, 6]);
    }

    /// What could not be sent is not left out of the plan.
    #[test]
    fn a_server_that_is_too_slow_leaves_a_part_of_the_plan_unsent() {
        let server = TestServer::start(Arc::new(|_, _| Act::AnswerAfter(Duration::from_millis(100))));
        let ran = ran(&server, 500.0, Duration::from_secs(2), 2);
        assert!((990..=1_000).contains(&ran.planned), "{}", ran.planned);
        assert!(ran.sent < ran.planned / 5, "{} of {}", ran.sent, ran.planned);
    }
}
