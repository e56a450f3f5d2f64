//! A small HTTP client for talking to a running shop.

use anyhow::{Context, Result, bail};
use http_body_util::{BodyExt, Full};
use hyper::{Method, Request, Response, StatusCode, body::Incoming, client::conn::http1, header};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

/// Asks `url` (only `http://host:port`) for `path` as an operator; the body is still to be read.
pub(crate) async fn get(url: &str, path: &str, token: &str) -> Result<Response<Incoming>> {
    ask(Method::GET, url, path, token, None).await
}

/// The same, to have something done.
pub(crate) async fn post(url: &str, path: &str, token: &str) -> Result<Response<Incoming>> {
    ask(Method::POST, url, path, token, None).await
}

/// Sets what is there to `value`.
pub(crate) async fn put(url: &str, path: &str, token: &str, value: &Value) -> Result<Response<Incoming>> {
    ask(Method::PUT, url, path, token, Some(value)).await
}

async fn ask(
    method: Method,
    url: &str,
    path: &str,
    token: &str,
    value: Option<&Value>,
) -> Result<Response<Incoming>> {
    let Some(host) = url.strip_prefix("http://").map(|rest| rest.trim_end_matches('/')) else {
        bail!("expected an address like http://127.0.0.1:8080, got {url:?}");
    };
    let stream = TcpStream::connect(host).await.with_context(|| format!("no shop answers at {url}"))?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, host)
        .header(header::AUTHORIZATION, format!("Bearer {token}"))
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::<bytes::Bytes>::from(value.map(Value::to_string).unwrap_or_default()))?;
    let response = sender.send_request(request).await.with_context(|| format!("{url} did not answer"))?;
    if response.status() != StatusCode::OK {
        let status = response.status();
        let body = response.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        // A problem says in words what is wrong.
        let problem: Option<serde_json::Value> = serde_json::from_slice(&body).ok();
        let detail = problem.as_ref().and_then(|problem| problem["detail"].as_str());
        bail!("{url} answered {status}: {}", detail.unwrap_or(&String::from_utf8_lossy(&body)));
    }
    Ok(response)
}
