//! Listening, and ending cleanly.

use std::{sync::Arc, time::Duration};

use axum::body::Body;
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
};
use tokio::{net::TcpListener, sync::Semaphore};

use crate::{admission, edge::App};

/// How long to wait after the system refused a connection (too many open files, say).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves until `stopped` resolves, then finishes what was accepted, within the limit. Says whether all of it was.
pub async fn serve(app: App, listener: TcpListener, stopped: impl Future<Output = ()>) -> bool {
    let limits = app.state.inner.limits;
    tokio::spawn(admission::feel(Arc::downgrade(&app.state.inner)));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(Duration::from_millis(limits.header_read_ms_max))
        .max_headers(limits.headers_max)
        .max_buf_size(limits.header_bytes_max.max(8 * 1024));
    let graceful = GracefulShutdown::new();
    let places = Arc::new(Semaphore::new(limits.connections_max));
    tokio::pin!(stopped);
    loop {
        let accepted = async {
            let place = places.clone().acquire_owned().await;
            (listener.accept().await, place)
        };
        let (stream, peer, place) = tokio::select! {
            () = &mut stopped => break,
            accepted = accepted => match accepted {
                (Ok((stream, peer)), Ok(place)) => (stream, peer, place),
                (Err(error), _) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
                (_, Err(_)) => break,
            },
        };
        let _ = stream.set_nodelay(true);
        let app = app.clone();
        let connections = app.state.inner.metrics.connections.clone();
        let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
            let app = app.clone();
            async move { Ok::<_, std::convert::Infallible>(app.answer(request.map(Body::new), Some(peer)).await) }
        });
        let connection = graceful.watch(http.serve_connection(TokioIo::new(stream), service));
        connections.inc();
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, %peer, "a connection ended early");
            }
            connections.dec();
            drop(place);
        });
    }
    drop(listener);
    tokio::time::timeout(Duration::from_millis(limits.shutdown_ms_max), graceful.shutdown()).await.is_ok()
}
