//! Requests, read back from what `/metrics` tells: the counters cannot be listed otherwise, and those who count should
//! not pay for those who look.

use std::collections::{BTreeMap, VecDeque};

use mobimir_core::time::Timestamp;

use super::wording;
use crate::state::AppState;

const REQUESTS: &str = "mobimir_http_requests_total{";
const SECONDS_BUCKET: &str = "mobimir_http_request_seconds_bucket{";
const SECONDS_SUM: &str = "mobimir_http_request_seconds_sum{";
/// The route of requests that no route answered.
const NO_ROUTE: &str = "none";

pub(super) struct Traffic {
    /// Since the console was last looked at; unknown at the first look.
    pub(super) per_second: Option<String>,
    pub(super) failed_per_second: Option<String>,
    pub(super) p99: Option<String>,
    pub(super) bars: Vec<Bar>,
    pub(super) in_flight: i64,
    pub(super) connections: i64,
    pub(super) connections_max: usize,
    /// Of a hundred.
    pub(super) connections_share: String,
    pub(super) answered: String,
    pub(super) failed: String,
    pub(super) any_failed: bool,
    pub(super) routes: Vec<RouteRow>,
}

pub(super) struct RouteRow {
    pub(super) route: String,
    pub(super) requests: String,
    /// Of a hundred, against the busiest route.
    pub(super) share: String,
    pub(super) refused: String,
    pub(super) failed: String,
    pub(super) any_failed: bool,
    pub(super) mean: String,
    pub(super) p50: String,
    pub(super) p99: String,
    pub(super) bars: Vec<Bar>,
}

/// A bar of a small chart, in the chart's own units: from the top of [`CHART_HEIGHT`].
pub(super) struct Bar {
    pub(super) x: usize,
    pub(super) y: String,
    pub(super) height: String,
    pub(super) title: String,
}

const CHART_HEIGHT: f64 = 20.0;
const BAR_HEIGHT_MIN: f64 = 1.0;

impl Traffic {
    pub(super) fn of(state: &AppState, pulse: &mut Pulse, now: Timestamp) -> Self {
        let inner = &state.inner;
        let mut routes = summaries(&inner.metrics.render(state));
        let total = RouteSummary::sum(&routes);
        pulse.beat(now, &total);
        routes.sort_by(|a, b| b.requests.cmp(&a.requests).then_with(|| a.route.cmp(&b.route)));
        let busiest = routes.first().map_or(1, |route| route.requests.max(1));
        let last = pulse.last();
        let connections = inner.metrics.connections.get();
        let connections_max = inner.limits.connections_max;
        Self {
            per_second: last.map(|lapse| wording::rate(lapse.per_second())),
            failed_per_second: last
                .filter(|lapse| lapse.failed > 0)
                .map(|lapse| wording::rate(lapse.failed_per_second())),
            p99: last.and_then(|lapse| quantile(&lapse.times, 0.99)).map(wording::duration),
            bars: pulse.bars(),
            in_flight: inner.metrics.in_flight.get(),
            connections,
            connections_max,
            connections_share: format!(
                "{:.1}",
                (connections.max(0) as f64 * 100.0 / connections_max.max(1) as f64).min(100.0)
            ),
            answered: wording::count(total.requests),
            failed: wording::count(total.failed),
            any_failed: total.failed > 0,
            routes: routes.iter().map(|route| RouteRow::of(route, busiest)).collect(),
        }
    }
}

impl RouteRow {
    fn of(summary: &RouteSummary, busiest: u64) -> Self {
        let unknown = || "—".to_owned();
        let at = |share: f64| quantile(&summary.times, share).map_or_else(unknown, wording::duration);
        let most = summary.times.iter().map(|time| time.count).max().unwrap_or(0) as f64;
        let bar = |(x, time): (usize, &TimeBucket)| {
            let title = match time.up_to_s {
                Some(seconds) => format!("до {}: {}", wording::duration(seconds), wording::count(time.count)),
                None => format!("дольше: {}", wording::count(time.count)),
            };
            Bar::new(x, time.count as f64, most, title)
        };
        Self {
            route: if summary.route == NO_ROUTE {
                "прочие пути".to_owned()
            } else {
                summary.route.clone()
            },
            requests: wording::count(summary.requests),
            share: format!("{:.1}", summary.requests as f64 * 100.0 / busiest as f64),
            refused: wording::count(summary.refused),
            failed: wording::count(summary.failed),
            any_failed: summary.failed > 0,
            mean: if summary.requests == 0 {
                unknown()
            } else {
                wording::duration(summary.seconds / summary.requests as f64)
            },
            p50: at(0.5),
            p99: at(0.99),
            bars: summary.times.iter().enumerate().filter(|(_, time)| time.count > 0).map(bar).collect(),
        }
    }
}

impl Bar {
    fn new(x: usize, value: f64, most: f64, title: String) -> Self {
        let height =
            if value > 0.0 && most > 0.0 { (value / most * CHART_HEIGHT).max(BAR_HEIGHT_MIN) } else { 0.0 };
        Self { x, y: format!("{:.1}", CHART_HEIGHT - height), height: format!("{height:.1}"), title }
    }
}

/// What one route has answered since the process started.
#[derive(Clone, Debug, Default, PartialEq)]
struct RouteSummary {
    route: String,
    requests: u64,
    /// With a 4xx.
    refused: u64,
    /// With a 5xx.
    failed: u64,
    seconds: f64,
    times: Vec<TimeBucket>,
}

/// How many requests took longer than the bucket before and at most this.
#[derive(Clone, Copy, Debug, PartialEq)]
struct TimeBucket {
    /// `None` in the last one.
    up_to_s: Option<f64>,
    count: u64,
}

impl RouteSummary {
    fn sum(routes: &[RouteSummary]) -> RouteSummary {
        let mut total = RouteSummary::default();
        for route in routes {
            total.requests += route.requests;
            total.refused += route.refused;
            total.failed += route.failed;
            total.seconds += route.seconds;
            if total.times.is_empty() {
                total.times = route.times.clone();
            } else {
                total.times.iter_mut().zip(&route.times).for_each(|(sum, time)| sum.count += time.count);
            }
        }
        total
    }
}

/// The routes in a text of metrics.
fn summaries(metrics: &str) -> Vec<RouteSummary> {
    let mut routes = BTreeMap::<&str, RouteSummary>::new();
    for line in metrics.lines() {
        let Some((series, value)) = line.rsplit_once(' ') else { continue };
        let Some(route) = label(series, "route") else { continue };
        if ![REQUESTS, SECONDS_BUCKET, SECONDS_SUM].iter().any(|name| series.starts_with(name)) {
            continue;
        }
        let summary = routes.entry(route).or_default();
        if series.starts_with(REQUESTS) {
            let (count, status) = (value.parse().unwrap_or(0), label(series, "status").unwrap_or_default());
            summary.requests += count;
            match status.as_bytes().first() {
                Some(b'4') => summary.refused += count,
                Some(b'5') => summary.failed += count,
                _ => {}
            }
        } else if series.starts_with(SECONDS_BUCKET) {
            let up_to_s = label(series, "le")
                .and_then(|bound| bound.parse::<f64>().ok())
                .filter(|bound| bound.is_finite());
            let times = &mut summary.times;
            // Each bucket counts those before it too.
            let before: u64 = times.iter().map(|time| time.count).sum();
            times.push(TimeBucket { up_to_s, count: value.parse().unwrap_or(before).saturating_sub(before) });
        } else {
            summary.seconds += value.parse().unwrap_or(0.0);
        }
    }
    let named = |(route, summary): (&str, RouteSummary)| RouteSummary { route: route.to_owned(), ..summary };
    routes.into_iter().map(named).collect()
}

/// The value of a label. Routes are ours, so nothing in them is escaped.
fn label<'a>(series: &'a str, name: &str) -> Option<&'a str> {
    let labels = series.split_once('{')?.1;
    let found = labels.match_indices(name).find(|(at, _)| {
        let starts = *at == 0 || labels.as_bytes()[at - 1] == b',';
        starts && labels[at + name.len()..].starts_with("=\"")
    });
    let (at, _) = found?;
    labels[at + name.len() + 2..].split_once('"').map(|(value, _)| value)
}

/// The time within which a share of the requests was answered, evenly within its bucket.
fn quantile(times: &[TimeBucket], share: f64) -> Option<f64> {
    let total: u64 = times.iter().map(|time| time.count).sum();
    if total == 0 {
        return None;
    }
    let wanted = share * total as f64;
    let (mut before, mut from_s) = (0.0, 0.0);
    for time in times {
        let count = time.count as f64;
        if before + count >= wanted && count > 0.0 {
            return Some(
                time.up_to_s.map_or(from_s, |to_s| from_s + (to_s - from_s) * ((wanted - before) / count)),
            );
        }
        before += count;
        from_s = time.up_to_s.unwrap_or(from_s);
    }
    Some(from_s)
}

/// What went on between the looks at the console, newest last.
#[derive(Default)]
pub(super) struct Pulse {
    seen: Option<(Timestamp, RouteSummary)>,
    lapses: VecDeque<Lapse>,
}

struct Lapse {
    ended_at: Timestamp,
    ms: i64,
    requests: u64,
    failed: u64,
    times: Vec<TimeBucket>,
}

const LAPSES_MAX: usize = 60;
/// Two people may look at the same time.
const LAPSE_MS_MIN: i64 = 2_000;
/// After a longer time unseen the chart starts anew: an average over the night says nothing.
const LAPSE_MS_MAX: i64 = 60_000;

impl Pulse {
    fn beat(&mut self, now: Timestamp, total: &RouteSummary) {
        let Some((seen_at, seen)) = &self.seen else {
            self.seen = Some((now, total.clone()));
            return;
        };
        let ms = now.since(*seen_at);
        if (0..LAPSE_MS_MIN).contains(&ms) {
            return;
        }
        if (LAPSE_MS_MIN..=LAPSE_MS_MAX).contains(&ms) {
            let times = total.times.iter().enumerate().map(|(at, time)| {
                let before = seen.times.get(at).map_or(0, |time| time.count);
                TimeBucket { count: time.count.saturating_sub(before), ..*time }
            });
            self.lapses.push_back(Lapse {
                ended_at: now,
                ms,
                requests: total.requests.saturating_sub(seen.requests),
                failed: total.failed.saturating_sub(seen.failed),
                times: times.collect(),
            });
            if self.lapses.len() > LAPSES_MAX {
                self.lapses.pop_front();
            }
        } else {
            self.lapses.clear();
        }
        self.seen = Some((now, total.clone()));
    }

    fn last(&self) -> Option<&Lapse> {
        self.lapses.back()
    }

    fn bars(&self) -> Vec<Bar> {
        let most = self.lapses.iter().map(Lapse::per_second).fold(0.0, f64::max);
        let first_x = LAPSES_MAX - self.lapses.len();
        let bar = |(at, lapse): (usize, &Lapse)| {
            let title =
                format!("{}: {} в секунду", wording::time(lapse.ended_at), wording::rate(lapse.per_second()));
            Bar::new(first_x + at, lapse.per_second(), most, title)
        };
        self.lapses.iter().enumerate().map(bar).collect()
    }
}

impl Lapse {
    fn per_second(&self) -> f64 {
        self.requests as f64 * 1000.0 / self.ms as f64
    }

    fn failed_per_second(&self) -> f64 {
        self.failed as f64 * 1000.0 / self.ms as f64
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use http::{Method, StatusCode};
    use mobimir_core::time::ManualClock;
    use mobimir_shop::{Shop, ShopSettings};

    use super::*;
    use crate::{Backend, Limits};

    struct Well;

    impl Backend for Well {
        fn trouble(&self) -> Option<String> {
            None
        }

        fn dump(&self, _: &mut dyn std::io::Write) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn state() -> AppState {
        let clock = Arc::new(ManualClock::at(Timestamp::from_millis(0)));
        let shop = Shop::new(mobimir_testkit::model::ModelStore::stores(), clock, ShopSettings::default());
        AppState::new(shop, &[], Limits::default(), Box::new(Well), serde_json::Value::Null)
    }

    fn answer(state: &AppState, method: &Method, route: &str, status: u16, ms: u64) {
        let status = StatusCode::from_u16(status).unwrap();
        state.inner.metrics.answered(method, route, status, Duration::from_millis(ms));
    }

    #[test]
    fn what_was_counted_is_read_back() {
        let state = state();
        let route = "/v1/products/{product_id}";
        answer(&state, &Method::GET, route, 200, 3);
        answer(&state, &Method::GET, route, 200, 3);
        answer(&state, &Method::PATCH, route, 404, 1);
        answer(&state, &Method::GET, "/v1/cart", 503, 9_999);
        let routes = summaries(&state.inner.metrics.render(&state));
        let told: Vec<_> =
            routes.iter().map(|r| (r.route.as_str(), r.requests, r.refused, r.failed)).collect();
        assert_eq!(told, [("/v1/cart", 1, 0, 1), (route, 3, 1, 0)]);
        assert!((routes[1].seconds - 0.007).abs() < 1e-9);
        for route in &routes {
            assert_eq!(route.times.iter().map(|time| time.count).sum::<u64>(), route.requests);
            assert_eq!(route.times.last().unwrap().up_to_s, None);
        }
        assert_eq!(routes[0].times.last().unwrap().count, 1);
    }

    #[test]
    fn a_quantile_lies_in_its_bucket() {
        let bucket = |up_to_s, count| TimeBucket { up_to_s, count };
        let times =
            [bucket(Some(0.001), 90), bucket(Some(0.002), 0), bucket(Some(0.004), 10), bucket(None, 0)];
        assert_eq!(quantile(&times, 0.9), Some(0.001));
        let p99 = quantile(&times, 0.99).unwrap();
        assert!(p99 > 0.002 && p99 < 0.004, "{p99}");
        assert_eq!(quantile(&[bucket(Some(0.001), 0), bucket(None, 2)], 0.5), Some(0.001));
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn the_pulse_is_the_difference_between_two_looks() {
        let total = |requests| RouteSummary { requests, ..RouteSummary::default() };
        let at = Timestamp::from_millis;
        let mut pulse = Pulse::default();
        pulse.beat(at(0), &total(100));
        assert!(pulse.last().is_none());
        pulse.beat(at(500), &total(150));
        assert!(pulse.last().is_none(), "too soon to tell");
        pulse.beat(at(5_000), &total(600));
        assert_eq!(pulse.last().map(Lapse::per_second), Some(100.0));
        pulse.beat(at(500_000), &total(700));
        assert!(pulse.last().is_none(), "too long unseen");
        for look in 0..200 {
            pulse.beat(at(505_000 + look * 5_000), &total(700));
        }
        assert_eq!(pulse.bars().len(), LAPSES_MAX);
    }
}
