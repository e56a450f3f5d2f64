//! A small HTTP client for talking to a running shop.

use anyhow::{Context, Result, bail};
use http_body_util::{BodyExt, Empty};
use hyper::{Request, Response, StatusCode, body::Incoming, client::conn::http1, header};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// Asks `url` (only `http://host:port`) for `path` as an operator; the body is still to be read.
pub(crate) async fn get(url: &str, path: &str, token: &str) -> Result<Response<Incoming>> {
    let Some(host) = url.strip_prefix("http://").map(|rest| rest.trim_end_matches('/')) else {
        bail!("expected an address like http://127.0.0.1:8080, got {url:?}");
    };
    let stream = TcpStream::connect(host).await.with_context(|| format!("no shop answers at {url}"))?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let request = Request::get(path)
        .header(header::HOST, host)
        .header(header::AUTHORIZATION, format!("Bearer {token}"))
        .body(Empty::<bytes::Bytes>::new())?;
    let response = sender.send_request(request).await.with_context(|| format!("{url} did not answer"))?;
    if response.status() != StatusCode::OK {
        let status = response.status();
        let body = response.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        bail!("{url} answered {status}: {}", String::from_utf8_lossy(&body));
    }
    Ok(response)
}
