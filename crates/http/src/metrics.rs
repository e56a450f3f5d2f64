//! What `/metrics` tells.

use std::{fmt::Write, time::Duration};

use http::{Method, StatusCode};
use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};

use crate::{admission::Class, api::ops::invariant_views, state::AppState};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    method: &'static str,
    route: String,
    status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    route: String,
}

pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    seconds: Family<RouteLabels, Histogram, fn() -> Histogram>,
    pub(crate) in_flight: Gauge,
    pub(crate) connections: Gauge,
    turned_away: Family<ClassLabels, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClassLabels {
    class: &'static str,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::with_prefix("mobimir_http");
        let requests = Family::default();
        registry.register("requests", "Requests answered", requests.clone());
        let seconds = Family::<RouteLabels, Histogram, fn() -> Histogram>::new_with_constructor(|| {
            Histogram::new(exponential_buckets(0.000_1, 2.0, 17))
        });
        registry.register("request_seconds", "Time from the request's head to the answer", seconds.clone());
        let in_flight = Gauge::default();
        registry.register("requests_in_flight", "Requests being answered", in_flight.clone());
        let connections = Gauge::default();
        registry.register("connections", "Open connections", connections.clone());
        let turned_away = Family::default();
        registry.register(
            "requests_turned_away",
            "Requests that were not begun because there was too much to do",
            turned_away.clone(),
        );
        Self { registry, requests, seconds, in_flight, connections, turned_away }
    }

    pub(crate) fn turned_away(&self, class: Class) {
        self.turned_away.get_or_create(&ClassLabels { class: class.name() }).inc();
    }

    pub(crate) fn answered(&self, method: &Method, route: &str, status: StatusCode, took: Duration) {
        let method = match *method {
            Method::GET => "GET",
            Method::POST => "POST",
            Method::PUT => "PUT",
            Method::PATCH => "PATCH",
            Method::DELETE => "DELETE",
            _ => "other",
        };
        let labels = RequestLabels { method, route: route.to_owned(), status: status.as_u16() };
        self.requests.get_or_create(&labels).inc();
        self.seconds.get_or_create(&RouteLabels { route: labels.route }).observe(took.as_secs_f64());
    }

    pub(crate) fn render(&self, state: &AppState) -> String {
        let mut text = String::new();
        if encode(&mut text, &self.registry).is_err() {
            tracing::error!("metrics could not be written");
        }
        let mut rest = String::new();
        rest.push_str("# TYPE mobimir_invariant_violations counter\n");
        rest.push_str("# HELP mobimir_invariant_violations Promises seen broken. Stays at zero\n");
        for invariant in invariant_views(state) {
            let (name, violations) = (invariant.name, invariant.violations);
            let _ = writeln!(rest, "mobimir_invariant_violations_total{{invariant=\"{name}\"}} {violations}");
        }
        rest.push_str("# TYPE mobimir_http_turned_away_ratio gauge\n");
        rest.push_str("# HELP mobimir_http_turned_away_ratio Of requests that only look, how many are turned away now\n");
        let _ = writeln!(rest, "mobimir_http_turned_away_ratio {:.3}", state.inner.admission.share());
        rest.push_str(&state.inner.backend.metrics());
        rest.push_str("# EOF\n");
        text.replace("# EOF\n", &rest)
    }
}
