//! What happens to every request before and after its handler: whether it is let in, a request id, a time limit, a caught panic, what its
//! sender has seen and has written, a count and a line in the log.

use std::{any::Any, net::SocketAddr, panic::AssertUnwindSafe, sync::Arc, time::Instant};

use axum::{
    Router,
    body::Body,
    extract::{MatchedPath, Request},
    middleware::Next,
    response::{IntoResponse, Response},
};
use futures_util::FutureExt;
use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use tower::ServiceExt;

use crate::{
    admission::Class,
    extract::Asker,
    problem::Problem,
    read_after,
    state::{AppState, Inner},
    storefront,
};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const REQUEST_ID_CHARS_MAX: usize = 64;

/// The whole of the HTTP side, as one function from request to answer.
#[derive(Clone)]
pub struct App {
    pub(crate) state: AppState,
    router: Router,
}

impl App {
    pub(crate) fn new(state: AppState, router: Router) -> Self {
        Self { state, router }
    }

    /// A request that may write is handled to its end, or to its deadline, also when the caller stops
    /// waiting: a client that hangs up drops this future, and a write that is dropped halfway is one of which
    /// nobody knows whether it still arrives, for which a handover has to wait.
    ///
    /// Reads are handled in place, without the cost of a task. Dropping one leaves nothing in doubt: what a
    /// read has written for later (a packed cart, the time of a session's last activity) is written by a task
    /// of its own.
    pub async fn answer(&self, request: Request<Body>, peer: Option<SocketAddr>) -> Response {
        let started = Instant::now();
        let inner = &self.state.inner;
        let class = Class::of(request.method(), request.uri().path());
        let metrics = &inner.metrics;
        if !inner.admission.admits(class, metrics.in_flight.get(), metrics.connections.get()) {
            metrics.turned_away(class);
            let mut response =
                if is_for_people(&request) { storefront::crowded_page() } else { Problem::overloaded() };
            response.headers_mut().insert(REQUEST_ID, request_id(&request));
            return response;
        }
        // Counted before it is spawned, and until it has ended, whoever still waits for it.
        let in_flight = InFlight::one_more(inner.clone());
        if matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS) {
            return self.handle(request, peer, class, started, in_flight).await;
        }
        let app = self.clone();
        let handled = tokio::spawn(async move { app.handle(request, peer, class, started, in_flight).await });
        handled.await.unwrap_or_else(|error| {
            tracing::error!(%error, "the task of a request failed");
            Problem::internal().into_response()
        })
    }

    async fn handle(
        &self,
        mut request: Request<Body>,
        peer: Option<SocketAddr>,
        class: Class,
        started: Instant,
        _in_flight: InFlight,
    ) -> Response {
        let inner = &self.state.inner;
        let method = request.method().clone();
        let path = tracing::enabled!(tracing::Level::DEBUG).then(|| request.uri().path().to_owned());
        let id = request_id(&request);
        if let Some(peer) = peer {
            let asker = self.state.proxies.asker(peer.ip(), request.headers());
            request.extensions_mut().insert(Asker(asker));
        }
        let seen = self.state.read_after.seen(request.headers());
        let keep = read_after::keeps(&request);
        let handled = read_after::serve(seen, self.router.clone().oneshot(request));
        let handled = AssertUnwindSafe(handled).catch_unwind();
        let mut response = match tokio::time::timeout(inner.limits.request_time(), handled).await {
            Ok(Ok(Ok(response))) => response,
            Ok(Ok(Err(never))) => match never {},
            Ok(Err(panic)) => {
                tracing::error!(
                    request = id.to_str().unwrap_or_default(),
                    panic = words(panic.as_ref()),
                    "a handler panicked"
                );
                Problem::internal().into_response()
            }
            Err(_) => Problem::new(StatusCode::SERVICE_UNAVAILABLE, "timeout", "it took too long".to_owned())
                .retry_after(1)
                .into_response(),
        };
        let route = response.extensions_mut().remove::<MatchedPath>();
        let route = route.as_ref().map_or("none", MatchedPath::as_str);
        let took = started.elapsed();
        inner.metrics.answered(&method, route, response.status(), took);
        if class != Class::Watch {
            self.state.latency.answered(read_after::is_write(&method), took);
        }
        if let Some(path) = path {
            let status = response.status().as_u16();
            tracing::debug!(request = id.to_str().unwrap_or_default(), %method, path, status, took_us = took.as_micros() as u64, "answered");
        }
        if read_after::is_write(&method) {
            self.state.read_after.tell(inner.backend.written(), keep, &mut response);
        }
        let headers = response.headers_mut();
        headers.insert(REQUEST_ID, id);
        headers.entry(header::X_CONTENT_TYPE_OPTIONS).or_insert(HeaderValue::from_static("nosniff"));
        response
    }
}

/// A request that is being handled. It ends with the handling, or for a read when nobody waits for it any
/// more.
struct InFlight(Arc<Inner>);

impl InFlight {
    fn one_more(inner: Arc<Inner>) -> Self {
        inner.metrics.in_flight.inc();
        Self(inner)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if self.0.metrics.in_flight.dec() == 1 {
            self.0.idle.notify_waiters();
        }
    }
}

/// Whether a browser asks for a page.
fn is_for_people(request: &Request) -> bool {
    let wants_page = |accept: &HeaderValue| accept.as_bytes().starts_with(b"text/html");
    !request.uri().path().starts_with("/v1/") && request.headers().get(header::ACCEPT).is_some_and(wants_page)
}

/// Tells the edge which route answered.
pub(crate) async fn name_route(route: Option<MatchedPath>, request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    if let Some(route) = route {
        response.extensions_mut().insert(route);
    }
    response
}

/// The client's id for the request, if it is a sane one, or a new one.
fn request_id(request: &Request<Body>) -> HeaderValue {
    let sane = |id: &&HeaderValue| {
        let bytes = id.as_bytes();
        !bytes.is_empty()
            && bytes.len() <= REQUEST_ID_CHARS_MAX
            && bytes.iter().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b))
    };
    if let Some(id) = request.headers().get(&REQUEST_ID).filter(sane) {
        return id.clone();
    }
    let mut text = uuid::Uuid::encode_buffer();
    let id = uuid::Uuid::from_u64_pair(fresh(), fresh());
    HeaderValue::from_str(id.simple().encode_lower(&mut text)).unwrap_or(HeaderValue::from_static("none"))
}

/// Unlike any other, but no secret: every hasher state of the standard library is seeded at random.
fn fresh() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::hash::RandomState::new().build_hasher().finish()
}

fn words(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&'static str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without words")
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;
    use crate::{limits::Limits, test_app::app};

    /// A request whose body does not come. As on a connection, it fails when the client is gone.
    fn endless() -> (Request, oneshot::Sender<()>) {
        let (client, gone) = oneshot::channel();
        let broken = async {
            let _ = gone.await;
            Err::<bytes::Bytes, _>(std::io::Error::from(std::io::ErrorKind::ConnectionReset))
        };
        let request = Request::post("/v1/users").header(header::CONTENT_TYPE, "application/json");
        let body = Body::from_stream(futures_util::stream::once(broken));
        (request.body(body).expect("a request"), client)
    }

    #[tokio::test]
    async fn who_is_turned_away_is_told_when_to_come_again() {
        let app = app(Limits { in_flight_max: 0, ..Limits::default() });
        let ask = |path: &str| {
            let request = Request::get(path).header(REQUEST_ID, "mine").body(Body::empty());
            app.answer(request.expect("a request"), None)
        };
        assert_eq!(ask("/v1/categories").await.status(), StatusCode::OK);
        let (request, client) = endless();
        let mut under_way = Box::pin(app.answer(request, None));
        assert!(futures_util::poll!(&mut under_way).is_pending());
        let refused = ask("/v1/categories").await;
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        let header = |name: HeaderName| refused.headers().get(name).and_then(|value| value.to_str().ok());
        assert_eq!(header(header::RETRY_AFTER), Some("1"));
        assert_eq!(header(header::CONTENT_TYPE), Some("application/problem+json"));
        assert_eq!(header(REQUEST_ID), Some("mine"));
        let request = Request::get("/catalog").header(header::ACCEPT, "text/html,application/xhtml+xml");
        let page = app.answer(request.body(Body::empty()).expect("a request"), None).await;
        assert_eq!(page.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert!(page.headers().contains_key(header::RETRY_AFTER));
        let page = axum::body::to_bytes(page.into_body(), usize::MAX).await.expect("a body");
        assert!(String::from_utf8_lossy(&page).contains("очень много покупателей"));
        // Whoever watches is always let in.
        assert_eq!(ask("/healthz").await.status(), StatusCode::OK);
        drop((under_way, client));
        app.state.inner.until_idle().await;
        assert_eq!(ask("/v1/categories").await.status(), StatusCode::OK);
        let body = axum::body::to_bytes(refused.into_body(), usize::MAX).await.expect("a body");
        let problem: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
        assert_eq!((&problem["code"], &problem["status"]), (&"overloaded".into(), &503.into()));
    }

    /// Whoever hangs up in the middle leaves nothing behind that others would have to wait for.
    #[tokio::test]
    async fn a_request_that_nobody_waits_for_is_not_counted_any_more() {
        let app = app(Limits::default());
        for _ in 0..10 {
            let (request, client) = endless();
            let mut answer = Box::pin(app.answer(request, None));
            assert!(futures_util::poll!(&mut answer).is_pending());
            assert_eq!(app.state.inner.metrics.in_flight.get(), 1);
            drop((answer, client));
            app.state.inner.until_idle().await;
        }
    }
}
