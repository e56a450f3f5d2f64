//! Listening, and ending cleanly.
//!
//! Whoever keeps connections open, as a load balancer does, may send a request on one at the very moment in which it is closed,
//! and cannot know then whether it was heard. So with [`Limits::drain_ms`](crate::Limits) nothing is closed that a request could
//! be on the way to: all who wait to be accepted are, then nobody can connect any more, and whoever is connected goes on being
//! answered, each time with the word that this was the last on this connection.

use std::{io::ErrorKind, net::SocketAddr, sync::Arc, time::Duration};

use axum::body::Body;
use http::{HeaderValue, header};
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

use crate::{admission, edge::App};

/// How long to wait after the system refused a connection (too many open files, say).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves until `stopped` resolves, then finishes what was accepted, within the limit. Says whether all of it was.
pub async fn serve(app: App, listener: TcpListener, stopped: impl Future<Output = ()>) -> bool {
    let limits = app.state.inner.limits;
    tokio::spawn(admission::feel(Arc::downgrade(&app.state.inner)));
    let server = Server::new(app);
    tokio::pin!(stopped);
    loop {
        let accepted = async {
            let place = server.places.clone().acquire_owned().await;
            (listener.accept().await, place)
        };
        tokio::select! {
            () = &mut stopped => break,
            accepted = accepted => match accepted {
                (Ok((stream, peer)), Ok(place)) => server.take(stream, peer, place),
                (Err(error), _) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
                (_, Err(_)) => break,
            },
        };
    }
    server.app.state.inner.end();
    if limits.drain_ms > 0 {
        server.drain(listener, Instant::now() + Duration::from_millis(limits.drain_ms)).await;
    } else {
        drop(listener);
    }
    let Server { app, graceful, .. } = server;
    let finished = async {
        graceful.shutdown().await;
        // Writes whose clients have hung up were accepted, too, and have no connection any more.
        app.state.inner.until_idle().await;
    };
    tokio::time::timeout(Duration::from_millis(limits.shutdown_ms_max), finished).await.is_ok()
}

struct Server {
    app: App,
    http: http1::Builder,
    graceful: GracefulShutdown,
    /// One for each connection that there may be.
    places: Arc<Semaphore>,
}

impl Server {
    fn new(app: App) -> Self {
        let limits = app.state.inner.limits;
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(Duration::from_millis(limits.header_read_ms_max))
            .max_headers(limits.headers_max)
            .max_buf_size(limits.header_bytes_max.max(8 * 1024));
        let places = Arc::new(Semaphore::new(limits.connections_max));
        Self { app, http, graceful: GracefulShutdown::new(), places }
    }

    /// Answers whatever comes on a connection, for as long as it is there.
    fn take(&self, stream: TcpStream, peer: SocketAddr, place: OwnedSemaphorePermit) {
        let _ = stream.set_nodelay(true);
        let app = self.app.clone();
        let connections = app.state.inner.metrics.connections.clone();
        let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
            let app = app.clone();
            async move {
                let mut response = app.answer(request.map(Body::new), Some(peer)).await;
                if app.state.inner.is_ending() {
                    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
                }
                Ok::<_, std::convert::Infallible>(response)
            }
        });
        let connection = self.graceful.watch(self.http.serve_connection(TokioIo::new(stream), service));
        connections.inc();
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, %peer, "a connection ended early");
            }
            connections.dec();
            drop(place);
        });
    }

    /// Closes the door behind all who wait at it, and serves until everybody is gone or it is late.
    async fn drain(&self, listener: TcpListener, until: Instant) {
        for (stream, peer) in last_ones(listener) {
            let place = tokio::time::timeout_at(until, self.places.clone().acquire_owned()).await;
            let Ok(Ok(place)) = place else { return };
            self.take(stream, peer, place);
        }
        let everyone = u32::try_from(self.app.state.inner.limits.connections_max).unwrap_or(u32::MAX);
        let _ = tokio::time::timeout_at(until, self.places.acquire_many(everyone)).await;
    }
}

/// All who have connected and were not accepted yet. Whoever comes later is refused by the system, and knows that nothing was begun.
fn last_ones(listener: TcpListener) -> Vec<(TcpStream, SocketAddr)> {
    // The runtime's own view of who waits may be older than the system's.
    let Ok(listener) = listener.into_std() else { return Vec::new() };
    let mut waiting = Vec::new();
    loop {
        match listener.accept() {
            Ok(accepted) => waiting.push(accepted),
            Err(error) if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {}
            Err(_) => break,
        }
    }
    drop(listener);
    let ready = |(stream, peer): (std::net::TcpStream, SocketAddr)| {
        stream.set_nonblocking(true).ok()?;
        Some((TcpStream::from_std(stream).ok()?, peer))
    };
    waiting.into_iter().filter_map(ready).collect()
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, time::Instant};

    use async_trait::async_trait;
    use futures_util::FutureExt;
    use mobimir_core::{
        cart::{CartChange, CartPosition, Owner, StoredCart},
        money::Money,
        page::Page,
        ports::{CartStore, StoreResult},
        time::{SystemClock, Timestamp},
    };
    use mobimir_migrate::{
        migrating::MigratingCarts,
        phase::{Control, Phase},
        standing::Standing,
        timing::Timing,
    };
    use mobimir_shop::{ClientInfo, NewProduct};
    use mobimir_testkit::model::ModelStore;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        sync::{Notify, oneshot},
        task::JoinHandle,
    };

    use super::*;
    use crate::{
        limits::Limits,
        test_app::{app, state_over},
    };

    /// Longer than any test takes.
    const LONG_MS: u64 = 120_000;

    struct Served {
        address: SocketAddr,
        stop: oneshot::Sender<()>,
        ended: JoinHandle<bool>,
    }

    async fn served(limits: Limits) -> Served {
        served_by(app(limits)).await
    }

    async fn served_by(app: App) -> Served {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let stopped = async { stopped.await.unwrap_or_default() };
        Served { address, stop, ended: tokio::spawn(serve(app, listener, stopped)) }
    }

    async fn ask(stream: &mut TcpStream, path: &str) -> String {
        let request = format!("GET {path} HTTP/1.1\r\nhost: shop\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = vec![0; 64 * 1024];
        // The answers of these tests come in one piece.
        let read = stream.read(&mut answer).await.unwrap();
        String::from_utf8_lossy(&answer[..read]).into_owned()
    }

    async fn refused(address: SocketAddr) {
        while TcpStream::connect(address).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    #[tokio::test]
    async fn whoever_is_connected_is_answered_once_more_and_told_that_it_was_the_last() {
        let served = served(Limits { drain_ms: LONG_MS, ..Limits::default() }).await;
        let mut idle = TcpStream::connect(served.address).await.unwrap();
        let mut fresh = TcpStream::connect(served.address).await.unwrap();
        let answer = ask(&mut idle, "/readyz").await;
        assert!(answer.starts_with("HTTP/1.1 200") && !answer.contains("connection: close"), "{answer}");
        served.stop.send(()).unwrap();
        refused(served.address).await;
        let answer = ask(&mut idle, "/v1/categories").await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("connection: close"), "{answer}");
        assert_eq!(idle.read(&mut [0]).await.unwrap(), 0, "it said that it would close it");
        assert!(!served.ended.is_finished());
        let answer = ask(&mut fresh, "/readyz").await;
        assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("connection: close"), "{answer}");
        // Nobody is left, so there is nothing to wait for.
        assert!(served.ended.await.unwrap());
    }

    #[tokio::test]
    async fn whoever_waits_at_the_door_is_let_in_before_it_closes() {
        // More than there are places at a time.
        let served = served(Limits { drain_ms: LONG_MS, connections_max: 8, ..Limits::default() }).await;
        let mut waiting = Vec::new();
        for _ in 0..32 {
            waiting.push(TcpStream::connect(served.address).await.unwrap());
        }
        served.stop.send(()).unwrap();
        for stream in &mut waiting {
            let answer = ask(stream, "/healthz").await;
            assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("connection: close"), "{answer}");
        }
        assert!(served.ended.await.unwrap());
        refused(served.address).await;
    }

    #[tokio::test]
    async fn whoever_keeps_a_connection_for_nothing_is_not_waited_for_longer() {
        let served = served(Limits { drain_ms: 200, ..Limits::default() }).await;
        let mut idle = TcpStream::connect(served.address).await.unwrap();
        ask(&mut idle, "/healthz").await;
        let asked = Instant::now();
        served.stop.send(()).unwrap();
        assert!(served.ended.await.unwrap());
        assert!(asked.elapsed() >= Duration::from_millis(200), "{:?}", asked.elapsed());
        assert_eq!(idle.read(&mut [0]).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn without_it_idle_connections_are_closed_at_once() {
        let served = served(Limits::default()).await;
        let mut idle = TcpStream::connect(served.address).await.unwrap();
        ask(&mut idle, "/healthz").await;
        served.stop.send(()).unwrap();
        assert!(served.ended.await.unwrap());
        assert_eq!(idle.read(&mut [0]).await.unwrap(), 0);
    }

    /// Carts that are written to when the test says so.
    struct SlowCarts {
        carts: MigratingCarts,
        asked: Notify,
        may_write: Notify,
    }

    #[async_trait]
    impl CartStore for SlowCarts {
        async fn append(
            &self,
            owner: Owner,
            changes: Vec<CartChange>,
            expires_at: Timestamp,
            now: Timestamp,
        ) -> StoreResult<()> {
            self.asked.notify_one();
            self.may_write.notified().await;
            self.carts.append(owner, changes, expires_at, now).await
        }

        async fn read(&self, owner: Owner, now: Timestamp) -> StoreResult<Option<StoredCart>> {
            CartStore::read(&self.carts, owner, now).await
        }

        async fn untouched(
            &self,
            untouched_since: Timestamp,
            after: Option<CartPosition>,
            limit: usize,
            now: Timestamp,
        ) -> StoreResult<Page<(Owner, StoredCart), CartPosition>> {
            self.carts.untouched(untouched_since, after, limit, now).await
        }
    }

    /// A client that hangs up drops the waiting and not the work: the write is done, its permit is answered
    /// so that a handover does not have to wait for it, and a shutdown waits for it as for any request that
    /// was accepted.
    #[tokio::test]
    async fn a_write_whose_client_hangs_up_is_finished() {
        let standing = Standing::new(&Timing::default());
        let until = Instant::now() + Duration::from_millis(LONG_MS);
        let dual_write = Control { phase: Phase::DualWrite, epoch: 3, ..Control::default() };
        standing.follow(&dual_write, tokio::time::Instant::from_std(until));
        let movables = ModelStore::movables();
        let carts = Arc::new(SlowCarts {
            carts: MigratingCarts::new(movables.carts, standing.clone(), Arc::new(SystemClock)),
            asked: Notify::new(),
            may_write: Notify::new(),
        });
        let mut stores = ModelStore::stores();
        stores.carts = carts.clone();
        let state = state_over(stores, Limits::default());
        let shop = state.shop.clone();
        let zone = *shop.settings().zones.first().unwrap();
        let product = NewProduct {
            name: "Чайник".to_owned(),
            category: "Кухня".to_owned(),
            price: Money::from_kopecks(100),
            attributes: BTreeMap::new(),
            stock: BTreeMap::from([(zone, 5)]),
        };
        let product = shop.add_product(product).await.unwrap();
        let guest = shop.start_guest_session(ClientInfo::default()).await.unwrap();

        let inner = state.inner.clone();
        let served = served_by(crate::app(state)).await;
        let mut client = TcpStream::connect(served.address).await.unwrap();
        let body = format!(r#"{{"product_id":"{}","quantity":2}}"#, product.id);
        let request = format!(
            "POST /v1/cart/items HTTP/1.1\r\nhost: shop\r\nauthorization: Bearer {}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            guest.token,
            body.len()
        );
        client.write_all(request.as_bytes()).await.unwrap();
        carts.asked.notified().await;
        drop(client);
        while inner.metrics.connections.get() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(inner.metrics.in_flight.get(), 1, "it is counted until its work ends");
        served.stop.send(()).unwrap();
        refused(served.address).await;
        assert!(!served.ended.is_finished(), "a shutdown waits for it");

        carts.may_write.notify_one();
        assert!(served.ended.await.unwrap());
        assert_eq!(inner.metrics.in_flight.get(), 0);
        let caller = shop.authenticate(&guest.token).await.unwrap().unwrap();
        let cart = shop.cart(&caller).await.unwrap();
        assert_eq!(cart.items.iter().map(|item| item.quantity).collect::<Vec<_>>(), [2]);
        let handover = Control { phase: Phase::Handover, epoch: 4, ..Control::default() };
        standing.follow(&handover, tokio::time::Instant::from_std(until));
        assert!(standing.drained(4).now_or_never().is_some(), "no write is in doubt");
    }
}
