//! What the HTTP side asks of the stores as a whole.

use std::{
    io::Write,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use mobimir_core::reading::{Position, Served};
use mobimir_embedded::EmbeddedStore;
use mobimir_http::Backend;
use mobimir_migrate::service::{Migration, metrics_text};
use rustix::time::{ClockId, clock_gettime};

use crate::servers::Servers;

pub(crate) struct ShopBackend {
    pub(crate) store: EmbeddedStore,
    pub(crate) servers: Servers,
    /// What is not in the embedded store.
    pub(crate) elsewhere: Option<String>,
    /// What can move.
    pub(crate) migrations: Vec<Arc<dyn Migration>>,
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
        process_metrics()
            + &engine_metrics(&self.store)
            + &cassandra
            + &mongodb
            + &metrics_text(&self.migrations)
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

    fn migrations(&self) -> &[Arc<dyn Migration>] {
        &self.migrations
    }

    fn not_dumped(&self) -> Option<String> {
        self.elsewhere.clone()
    }
}

/// What this process uses, under the names that are usual for it.
fn process_metrics() -> String {
    let cpu = clock_gettime(ClockId::ProcessCPUTime);
    let cpu_s = cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9;
    // Pages in memory are the second number.
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or_default();
    let memory_bytes = pages * rustix::param::page_size() as u64;
    format!(
        "# TYPE process_cpu_seconds counter\n# HELP process_cpu_seconds Time on processors, in the program and in the kernel\n\
         process_cpu_seconds_total {cpu_s:.3}\n\
         # TYPE process_resident_memory_bytes gauge\n# HELP process_resident_memory_bytes Memory in use\n\
         process_resident_memory_bytes {memory_bytes}\n"
    )
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
