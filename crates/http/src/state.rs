//! What every handler can reach.

use std::{
    io::Write,
    net::IpAddr,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use mobimir_core::{
    reading::{Position, Served},
    secret::SecretHash,
};
use mobimir_migrate::service::Migration;
use mobimir_shop::Shop;
use tokio::sync::Notify;

use crate::{
    admission::Admission, latency::Latency, limits::Limits, metrics::Metrics, product_json::ProductJson,
    proxies::TrustedProxies, read_after::Signer, role::Role,
};

#[derive(Clone)]
pub struct AppState {
    pub shop: Shop,
    pub(crate) inner: Arc<Inner>,
    pub(crate) read_after: Arc<Signer>,
    pub(crate) proxies: Arc<TrustedProxies>,
    pub(crate) role: Role,
    pub(crate) latency: Arc<Latency>,
}

pub(crate) struct Inner {
    pub(crate) operators: Vec<SecretHash>,
    pub(crate) limits: Limits,
    pub(crate) admission: Admission,
    pub(crate) metrics: Metrics,
    pub(crate) products: ProductJson,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) policy: serde_json::Value,
    /// Notified whenever no request is in flight.
    pub(crate) idle: Notify,
    /// The end was asked for.
    ending: AtomicBool,
}

impl Inner {
    pub(crate) fn end(&self) {
        self.ending.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Relaxed)
    }

    /// Waits until no request is in flight, those included whose clients have hung up.
    pub(crate) async fn until_idle(&self) {
        loop {
            let mut idle = pin!(self.idle.notified());
            // Before the count is read, so that no end after that is missed.
            idle.as_mut().enable();
            if self.metrics.in_flight.get() == 0 {
                return;
            }
            idle.await;
        }
    }
}

/// The header of a backup that names what it lacks.
pub const NOT_INCLUDED: &str = "mobimir-not-included";

/// What the process knows about its stores.
pub trait Backend: Send + Sync {
    /// Why the shop cannot serve now, if it cannot.
    fn trouble(&self) -> Option<String>;

    /// Lines for `/metrics`, in the OpenMetrics text format.
    fn metrics(&self) -> String {
        String::new()
    }

    /// How far the stores are: whoever reads after this finds everything that this process has written so far. Stays at
    /// its beginning where every read finds that anyway.
    fn written(&self) -> Position {
        Position::default()
    }

    /// How operations were read that copies may answer, those that were.
    fn served(&self) -> Vec<Served> {
        Vec::new()
    }

    /// Writes a consistent copy of all data to `out`, except [`Backend::not_dumped`]. Blocks.
    fn dump(&self, out: &mut dyn Write) -> std::io::Result<()>;

    /// The entities that can move to another store while the shop sells.
    fn migrations(&self) -> &[Arc<dyn Migration>] {
        &[]
    }

    /// What of the shop's data lives where a dump does not reach.
    fn not_dumped(&self) -> Option<String> {
        None
    }
}

impl AppState {
    /// Each of `operator_tokens` opens the operator's calls; without one nobody is an operator. `policy` is what
    /// `/v1/ops/policy` shows.
    pub fn new(
        shop: Shop,
        operator_tokens: &[&str],
        limits: Limits,
        backend: Box<dyn Backend>,
        policy: serde_json::Value,
    ) -> Self {
        let operators = operator_tokens.iter().map(|token| SecretHash::of(token.as_bytes())).collect();
        let inner = Inner {
            operators,
            limits,
            admission: Admission::new(&limits),
            metrics: Metrics::new(),
            products: ProductJson::new(),
            backend: backend.into(),
            policy,
            idle: Notify::new(),
            ending: AtomicBool::new(false),
        };
        Self {
            shop,
            inner: Arc::new(inner),
            read_after: Arc::new(Signer::random()),
            proxies: Arc::default(),
            role: Role::All,
            latency: Arc::default(),
        }
    }

    /// Measures where somebody else looks, too.
    pub fn with_latency(self, latency: Arc<Latency>) -> Self {
        Self { latency, ..self }
    }

    /// Signs `Read-After` with a key that all instances share. Without one, each serves what is current to whoever has
    /// written through another.
    pub fn with_read_after_key(self, key: &str) -> Self {
        Self { read_after: Arc::new(Signer::of(key.as_bytes())), ..self }
    }

    /// Answers for one part of the shop only.
    pub fn with_role(self, role: Role) -> Self {
        Self { role, ..self }
    }

    /// Believes proxies at these addresses whom they were asked by.
    pub fn with_trusted_proxies(self, addresses: &[IpAddr]) -> Self {
        Self { proxies: Arc::new(TrustedProxies::new(addresses)), ..self }
    }

    pub(crate) fn is_operator(&self, token: &str) -> bool {
        self.inner.operators.iter().any(|hash| hash.matches(token.as_bytes()))
    }
}
