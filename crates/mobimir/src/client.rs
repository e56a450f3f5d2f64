//! A small HTTP client for talking to a running shop.

use std::{fmt, time::Duration};

use anyhow::{Context, Result, bail};
use http_body_util::{BodyExt, Full, Limited};
use hyper::{Method, Request, Response, StatusCode, body::Incoming, client::conn::http1, header};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

/// How long somebody who listens is looked for.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);
/// How long an answer may take to begin. What follows, like a backup, takes as long as it takes.
pub(crate) const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);
/// Of an answer that says what is wrong.
const PROBLEM_BYTES_MAX: usize = 64 * 1024;
/// Whoever answers may be no shop at all, and have a page to say.
const PROBLEM_CHARS_SHOWN_MAX: usize = 200;

/// The shop answered, but did not do what it was asked for.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) url: String,
    pub(crate) status: StatusCode,
    pub(crate) detail: String,
}

/// Asks `url` (only `http://host:port`) for `path` as an operator; the body is still to be read.
pub(crate) async fn get(url: &str, path: &str, token: &str) -> Result<Response<Incoming>> {
    ask(Method::GET, url, path, token, None).await
}

/// The same with another method, and a body if there is a `value`.
pub(crate) async fn ask(
    method: Method,
    url: &str,
    path: &str,
    token: &str,
    value: Option<&Value>,
) -> Result<Response<Incoming>> {
    let Some(host) = url.strip_prefix("http://").map(|rest| rest.trim_end_matches('/')) else {
        bail!("expected an address like http://127.0.0.1:8080, got {url:?}");
    };
    let nobody = format!("no shop answers at {url}");
    let stream = within(CONNECT_TIME_MAX, TcpStream::connect(host), &nobody).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, host)
        .header(header::AUTHORIZATION, format!("Bearer {token}"))
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::<bytes::Bytes>::from(value.map(Value::to_string).unwrap_or_default()))?;
    let silent = format!("{url} did not answer");
    let response = within(ANSWER_TIME_MAX, sender.send_request(request), &silent).await?;
    match response.status() {
        StatusCode::OK => Ok(response),
        status => Err(Refused { url: url.to_owned(), status, detail: detail(response).await }.into()),
    }
}

/// `failure` says what it is that fails or takes too long.
pub(crate) async fn within<T, E>(
    limit: Duration,
    work: impl Future<Output = Result<T, E>>,
    failure: &str,
) -> Result<T>
where
    Result<T, E>: Context<T, E>,
{
    match tokio::time::timeout(limit, work).await {
        Ok(done) => done.with_context(|| failure.to_owned()),
        Err(_) => bail!("{failure} within {} s", limit.as_secs()),
    }
}

/// What is wrong, as the answer says it.
async fn detail(response: Response<Incoming>) -> String {
    let body = Limited::new(response.into_body(), PROBLEM_BYTES_MAX).collect();
    let body = match tokio::time::timeout(ANSWER_TIME_MAX, body).await {
        Ok(Ok(body)) => body.to_bytes(),
        _ => bytes::Bytes::new(),
    };
    // A problem says it in words.
    let problem: Option<Value> = serde_json::from_slice(&body).ok();
    match problem.as_ref().and_then(|problem| problem["detail"].as_str()) {
        Some(detail) => detail.to_owned(),
        None => {
            let text = String::from_utf8_lossy(&body);
            text.lines().next().unwrap_or_default().chars().take(PROBLEM_CHARS_SHOWN_MAX).collect()
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { url, status, detail } = self;
        write!(f, "{url} answered {status}")?;
        if detail.is_empty() { Ok(()) } else { write!(f, ": {detail}") }
    }
}

impl std::error::Error for Refused {}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead, BufReader, Write},
        net::TcpListener,
        thread::JoinHandle,
    };

    use super::*;

    /// Answers one request with these bytes.
    fn answers(said: &'static str) -> (String, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let asked = BufReader::new(stream.try_clone().unwrap()).lines();
            asked.map(Result::unwrap).find(|line| line.is_empty());
            stream.write_all(said.as_bytes()).unwrap();
        });
        (url, server)
    }

    async fn failure(url: &str) -> String {
        format!("{:#}", get(url, "/", "token").await.unwrap_err())
    }

    #[tokio::test]
    async fn nobody_is_waited_for_for_ever() {
        let silent = std::future::pending::<std::io::Result<()>>();
        let error = within(Duration::from_millis(1), silent, "the shop did not answer").await.unwrap_err();
        assert_eq!(error.to_string(), "the shop did not answer within 0 s");
    }

    #[tokio::test]
    async fn a_failure_is_one_line() {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let nobody = failure(&format!("http://{free}")).await;
        assert!(nobody.starts_with(&format!("no shop answers at http://{free}: ")), "{nobody}");

        let (url, server) =
            answers("HTTP/1.1 409 Conflict\r\nContent-Length: 24\r\n\r\n{\"detail\":\"not so fast\"}");
        assert_eq!(failure(&url).await, format!("{url} answered 409 Conflict: not so fast"));
        server.join().unwrap();

        let (url, server) =
            answers("HTTP/1.1 404 Not Found\r\nContent-Length: 17\r\n\r\n<html>\n<p>no</p>\n");
        assert_eq!(failure(&url).await, format!("{url} answered 404 Not Found: <html>"));
        server.join().unwrap();
    }
}
