//! A client that keeps a connection open to every instance, and asks them in turn.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{HeaderMap, Method, Request, StatusCode, client::conn::http1, header};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

use super::instances;

/// How long the same request is repeated before the test fails. It only ends a test that hangs.
const UNSETTLED_MAX: Duration = Duration::from_secs(600);

const READ_AFTER: &str = "read-after";
/// Of the writes to one shop that were answered last: answers may overtake each other.
const SEEN_MAX: usize = 16;

/// What the people of a test have seen they tell each other: on real servers a page may be some seconds old
/// for who has not seen anything, and tests are about what was just done. By shop.
static SEEN: Mutex<BTreeMap<String, VecDeque<String>>> = Mutex::new(BTreeMap::new());

/// Not every client begins with the same instance.
static NEXT: AtomicUsize = AtomicUsize::new(0);

fn seen(shop: &str) -> Vec<String> {
    let seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    seen.get(shop).into_iter().flatten().cloned().collect()
}

fn saw(shop: &str, token: String) {
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    let tokens = seen.entry(shop.to_owned()).or_default();
    tokens.push_back(token);
    if tokens.len() > SEEN_MAX {
        tokens.pop_front();
    }
}

/// A 503 fails the test, with the problem's text: nothing is wrong with the embedded store or with healthy
/// servers. A test that kills or pauses servers says so by [`Client::tolerating_503`]; one about 503 itself
/// uses [`Client::send`]. Where timeouts are those of production, a slow machine may exceed them: idempotent
/// requests are repeated, and a test that fails after another 503 [begins again](super::with_shop).
pub(crate) struct Client {
    /// Of all instances that it asks.
    connections: Vec<Connection>,
    next: usize,
    shop: String,
    token: Option<String>,
    /// Why the shop may answer 503.
    may_be_unavailable: Option<&'static str>,
    has_production_timeouts: bool,
    carries_read_after: bool,
}

struct Connection {
    host: String,
    sender: Option<http1::SendRequest<Full<Bytes>>>,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Client {
    /// For an instance, or for several of one shop, with commas between them.
    pub(crate) fn new(host: &str) -> Self {
        let connection = |host: &str| Connection { host: host.to_owned(), sender: None };
        let connections: Vec<Connection> = hosts(host).map(connection).collect();
        let production = instances::shop_of(host);
        Self {
            next: NEXT.fetch_add(1, Ordering::Relaxed) % connections.len(),
            connections,
            token: None,
            may_be_unavailable: None,
            has_production_timeouts: production.is_some(),
            carries_read_after: true,
            shop: production.unwrap_or_else(|| host.to_owned()),
        }
    }

    pub(crate) fn has_production_timeouts(&self) -> bool {
        self.has_production_timeouts
    }

    /// How many instances it asks in turn.
    pub(crate) fn instances(&self) -> usize {
        self.connections.len()
    }

    pub(crate) fn with_token(host: &str, token: &str) -> Self {
        Self { token: Some(token.to_owned()), ..Self::new(host) }
    }

    /// Says nothing of what it or anybody else has seen: an answer may be as old as the policy allows.
    pub(crate) fn without_read_after(self) -> Self {
        Self { carries_read_after: false, ..self }
    }

    /// Repeats idempotent requests that are answered 503, and returns the 503 of others. `why` says who
    /// hurts the servers.
    pub(crate) fn tolerating_503(self, why: &'static str) -> Self {
        Self { may_be_unavailable: Some(why), ..self }
    }

    pub(crate) async fn get(&mut self, path: &str) -> Answer {
        self.certain(Method::GET, path, &[], None).await
    }

    pub(crate) async fn post(&mut self, path: &str, body: Value) -> Answer {
        self.once(Method::POST, path, Some(body)).await
    }

    pub(crate) async fn put(&mut self, path: &str, body: Value) -> Answer {
        self.once(Method::PUT, path, Some(body)).await
    }

    pub(crate) async fn patch(&mut self, path: &str, body: Value) -> Answer {
        self.once(Method::PATCH, path, Some(body)).await
    }

    pub(crate) async fn delete(&mut self, path: &str) -> Answer {
        self.once(Method::DELETE, path, None).await
    }

    pub(crate) async fn order(&mut self, key: &str, body: Value) -> Answer {
        self.certain(Method::POST, "/v1/orders", &[("idempotency-key", key)], Some(body)).await
    }

    async fn once(&mut self, method: Method, path: &str, body: Option<Value>) -> Answer {
        let answer = self.send(method, path, &[], body).await.unwrap();
        self.assert_available(path, &answer);
        answer
    }

    fn assert_available(&self, path: &str, answer: &Answer) {
        if self.may_be_unavailable.is_none() {
            self.note(answer);
            assert_ne!(answer.status, 503, "{path}: {}", String::from_utf8_lossy(&answer.body));
        }
    }

    /// Repeats the request while the shop answers 409 `in_progress`, or 503 where that is tolerated. For
    /// idempotent requests.
    pub(crate) async fn certain(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<Value>,
    ) -> Answer {
        let started = Instant::now();
        loop {
            let answer = self.ask(method.clone(), path, headers, body.clone()).await.unwrap();
            if !self.has_production_timeouts {
                self.assert_available(path, &answer);
            }
            if !answer.is_unsettled() {
                return answer;
            }
            let why = self.may_be_unavailable.unwrap_or("the servers are healthy");
            assert!(started.elapsed() < UNSETTLED_MAX, "{path} is never answered ({why}): {answer:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// An error means that no answer came: the server may be gone, and may or may not have done what was
    /// asked.
    pub(crate) async fn send(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<Value>,
    ) -> io::Result<Answer> {
        let answer = self.ask(method, path, headers, body).await?;
        self.note(&answer);
        Ok(answer)
    }

    async fn ask(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<Value>,
    ) -> io::Result<Answer> {
        let host = &self.connections[self.next].host;
        let bytes = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        let mut request = Request::builder().method(method).uri(path).header(header::HOST, host);
        if !bytes.is_empty() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if self.carries_read_after {
            for token in seen(&self.shop) {
                request = request.header(READ_AFTER, token);
            }
        }
        let answer = self.exchange_unnoted(request.body(Full::new(bytes)).unwrap()).await?;
        if let Some(token) = answer.header(READ_AFTER).filter(|_| self.carries_read_after) {
            saw(&self.shop, token.to_owned());
        }
        Ok(answer)
    }

    /// Whatever a test makes of a 503, a slow machine may be the reason.
    fn note(&self, answer: &Answer) {
        if self.has_production_timeouts && answer.status == 503 {
            instances::timed_out(&self.shop);
        }
    }

    pub(crate) async fn exchange(&mut self, request: Request<Full<Bytes>>) -> io::Result<Answer> {
        let answer = self.exchange_unnoted(request).await?;
        self.note(&answer);
        Ok(answer)
    }

    async fn exchange_unnoted(&mut self, request: Request<Full<Bytes>>) -> io::Result<Answer> {
        let instances = self.connections.len();
        let Connection { host, sender: kept } = &mut self.connections[self.next];
        self.next = (self.next + 1) % instances;
        let usable = match kept {
            Some(sender) => sender.ready().await.is_ok(),
            None => false,
        };
        if !usable {
            let stream = TcpStream::connect(&*host).await?;
            stream.set_nodelay(true)?;
            let (sender, connection) =
                http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
            tokio::spawn(connection);
            *kept = Some(sender);
        }
        let Some(sender) = kept else { return Err(io::Error::other("no connection")) };
        let answered = async {
            let response = sender.send_request(request).await.map_err(io::Error::other)?;
            let (parts, body) = response.into_parts();
            let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
            Ok(Answer { status: parts.status, headers: parts.headers, body })
        }
        .await;
        if answered.is_err() {
            *kept = None;
        }
        answered
    }
}

/// The instances that a host names.
pub(crate) fn hosts(host: &str) -> impl Iterator<Item = &str> {
    host.split(',')
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    /// Whether the same request may be answered otherwise soon.
    pub(crate) fn is_unsettled(&self) -> bool {
        match self.status.as_u16() {
            503 => true,
            409 => self.json()["code"] == "in_progress",
            _ => false,
        }
    }

    /// The body, if the status is the expected one.
    #[track_caller]
    pub(crate) fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status.as_u16(), status, "{}", String::from_utf8_lossy(&self.body));
        if self.body.is_empty() { Value::Null } else { self.json() }
    }

    /// A problem with this status and code.
    #[track_caller]
    pub(crate) fn problem(&self, status: u16, code: &str) -> Value {
        let body = self.expect(status);
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{body}");
        assert_eq!(body["code"], code, "{body}");
        assert_eq!(body["status"], status, "{body}");
        body
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}
