//! What the HTTP side asks of the stores as a whole.

use std::{
    io::Write,
    sync::atomic::{AtomicU64, Ordering},
};

use mobimir_core::reading::{Position, Served};
use mobimir_embedded::EmbeddedStore;
use mobimir_http::Backend;

use crate::homes::Servers;

pub(crate) struct ShopBackend {
    pub(crate) store: EmbeddedStore,
    pub(crate) servers: Servers,
    /// What is not in the embedded store.
    pub(crate) elsewhere: Option<String>,
}

impl Backend for ShopBackend {
    fn trouble(&self) -> Option<String> {
        let disk = (!self.store.healthy()).then(|| {
            "the disk refused a write, so nothing more is written; see the log, then start again".to_owned()
        });
        disk.or_else(|| self.servers.cassandra.as_ref()?.trouble())
            .or_else(|| self.servers.mongodb.as_ref()?.trouble())
    }

    fn metrics(&self) -> String {
        let Servers { cassandra, mongodb } = &self.servers;
        let cassandra = cassandra.as_ref().map(|cluster| cluster.metrics()).unwrap_or_default();
        let mongodb = mongodb.as_ref().map(|deployment| deployment.metrics()).unwrap_or_default();
        engine_metrics(&self.store) + &cassandra + &mongodb
    }

    fn written(&self) -> Position {
        self.servers.mongodb.as_ref().map(|deployment| deployment.written()).unwrap_or_default()
    }

    fn served(&self) -> Vec<Served> {
        self.servers.mongodb.as_ref().map(|deployment| deployment.served()).unwrap_or_default()
    }

    fn dump(&self, out: &mut dyn Write) -> std::io::Result<()> {
        self.store.dump(out, &mut |_| {}).map(|_| ()).map_err(std::io::Error::other)
    }

    fn not_dumped(&self) -> Option<String> {
        self.elsewhere.clone()
    }
}

fn engine_metrics(store: &EmbeddedStore) -> String {
    let stats = store.stats();
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let mut text = String::new();
    for (name, kind, help, value) in [
        ("writes", "counter", "Writes that were asked for", count(&stats.engine.jobs)),
        ("commits", "counter", "Groups of writes that were committed together", count(&stats.engine.commits)),
        ("fsyncs", "counter", "Waits for the disk", count(&stats.engine.fsyncs)),
        ("group_writes_max", "gauge", "The largest group so far", count(&stats.engine.group_jobs_max)),
        ("queue_writes", "gauge", "Writes that wait", stats.queue_depth as u64),
        ("disk_bytes", "gauge", "Bytes on disk", stats.disk_bytes),
        ("block_cache_bytes", "gauge", "Bytes of blocks in memory", stats.block_cache_bytes),
    ] {
        let total = if kind == "counter" { "_total" } else { "" };
        let name = format!("mobimir_embedded_{name}");
        text.push_str(&format!("# TYPE {name} {kind}\n# HELP {name} {help}\n{name}{total} {value}\n"));
    }
    text
}
