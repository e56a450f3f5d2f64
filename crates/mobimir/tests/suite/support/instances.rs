//! A shop of this run: two instances on the same real servers with the timeouts of production, or one process
//! on the embedded store.

use std::{
    collections::BTreeMap,
    panic::AssertUnwindSafe,
    path::Path,
    sync::{Mutex, PoisonError},
};

use futures_util::FutureExt;
use tempfile::TempDir;

use super::{
    Process,
    client::hosts,
    servers::{self, Tables},
    shop::assert_no_violation,
};

/// Of a test that fails after a 503. A machine so slow that all of them are met by one is not used for tests.
const ATTEMPTS_MAX: usize = 10;
/// Read-After tokens of one instance mean something to the other.
pub(crate) const READ_AFTER_KEY: (&str, &str) = ("MOBIMIR_READ_AFTER_KEY", "the same for all instances");

/// Every host of a shop with production timeouts, with its shop, and whether it answered 503.
static PRODUCTION: Mutex<BTreeMap<String, (String, bool)>> = Mutex::new(BTreeMap::new());

/// The shop of an instance, or of several, that has production timeouts.
pub(crate) fn shop_of(host: &str) -> Option<String> {
    let production = PRODUCTION.lock().unwrap_or_else(PoisonError::into_inner);
    hosts(host).next().and_then(|host| production.get(host)).map(|(shop, _)| shop.clone())
}

/// The shop has answered 503, and what its client makes of that is its own business.
pub(crate) fn timed_out(shop: &str) {
    let mut production = PRODUCTION.lock().unwrap_or_else(PoisonError::into_inner);
    production.values_mut().filter(|(of, _)| of == shop).for_each(|(_, timed_out)| *timed_out = true);
}

fn has_timed_out(shop: &str) -> bool {
    let production = PRODUCTION.lock().unwrap_or_else(PoisonError::into_inner);
    production.values().any(|(of, timed_out)| of == shop && *timed_out)
}

pub(crate) struct Instances {
    all: Vec<Process>,
    /// For clients: all instances, which they ask in turn.
    pub(crate) host: String,
    _dir: TempDir,
}

/// How a shop is started.
#[derive(Clone, Copy)]
pub(crate) struct Setting {
    pub(crate) tables: Tables,
    /// For a shop that is one process.
    pub(crate) embedded: &'static [(&'static str, &'static str)],
}

impl Setting {
    pub(crate) const SHARED: Self = Self { tables: Tables::Shared, embedded: &[] };
}

impl Instances {
    pub(crate) fn start(setting: Setting) -> Self {
        let dir = TempDir::new().unwrap();
        let data = dir.path().join("data");
        if !servers::are_real() {
            let process = Process::start(&["serve"], &data, setting.embedded);
            return Self { host: process.host.clone(), all: vec![process], _dir: dir };
        }
        let environment = servers::production_environment(&data, setting.tables);
        Self::on_servers(dir, &["serve"], [&environment, &environment])
    }

    /// Two on real servers, each with its own way to them. The first is started with these arguments.
    pub(crate) fn on_servers(
        dir: TempDir,
        first: &[&str],
        environments: [&[(&'static str, String)]; 2],
    ) -> Self {
        let arguments: [&[&str]; 2] = [first, &["serve"]];
        let places = ["first", "second"].map(|name| dir.path().join(name));
        let start = |number: usize| start(arguments[number], &places[number], environments[number]);
        let all: Vec<Process> = if first == ["serve"] {
            std::thread::scope(|scope| {
                let second = scope.spawn(|| start(1));
                vec![start(0), second.join().unwrap()]
            })
        } else {
            // What it makes is there when the second begins.
            vec![start(0), start(1)]
        };
        let host = all.iter().map(|process| process.host.as_str()).collect::<Vec<_>>().join(",");
        let instances = Self { all, host, _dir: dir };
        instances.register();
        instances
    }

    fn register(&self) {
        register(&self.all);
    }

    /// Where one of them is asked alone.
    pub(crate) fn host_of(&self, number: usize) -> &str {
        &self.all[number].host
    }

    pub(crate) fn hosts(&self) -> [&str; 2] {
        [self.host_of(0), self.host_of(1)]
    }

    pub(crate) fn log(&self) -> String {
        self.all.iter().map(Process::log).collect()
    }

    /// `kill -9` of the first, which is then started again with this environment.
    pub(crate) fn kill_first(&mut self) {
        self.all.remove(0).kill();
    }

    pub(crate) fn start_first_again(&mut self, environment: &[(&'static str, String)]) {
        let process = start(&["serve"], &self._dir.path().join("first"), environment);
        self.all.insert(0, process);
        self.host = self.all.iter().map(|process| process.host.as_str()).collect::<Vec<_>>().join(",");
        self.register();
    }

    pub(crate) async fn assert_no_violation(&self) {
        assert_no_violation(&self.host).await;
    }
}

/// These are instances of one shop, with production timeouts.
pub(crate) fn register(instances: &[Process]) {
    let shop = instances.iter().map(|process| process.host.as_str()).collect::<Vec<_>>().join(",");
    let mut production = PRODUCTION.lock().unwrap_or_else(PoisonError::into_inner);
    for process in instances {
        production.insert(process.host.clone(), (shop.clone(), false));
    }
}

fn start(arguments: &[&str], data: &Path, environment: &[(&'static str, String)]) -> Process {
    let environment: Vec<(&str, &str)> =
        environment.iter().map(|(name, value)| (*name, value.as_str())).chain([READ_AFTER_KEY]).collect();
    Process::start_in_production(arguments, data, &environment)
}

/// Runs a test against a shop of its own. On servers its timeouts are those of production, which a slow
/// machine may exceed, and then nobody knows what became of a request: a test that fails after that is run
/// once more.
pub(crate) async fn with_shop(test: impl AsyncFn(&Instances)) {
    with_shop_of(Setting::SHARED, test).await;
}

pub(crate) async fn with_shop_of(setting: Setting, test: impl AsyncFn(&Instances)) {
    for attempt in 1.. {
        let shop = Instances::start(setting);
        let Err(panic) = AssertUnwindSafe(test(&shop)).catch_unwind().await else { return };
        if attempt == ATTEMPTS_MAX || !has_timed_out(&shop.host) {
            std::panic::resume_unwind(panic);
        }
        eprintln!("a request was answered 503, so this says nothing: attempt {}", attempt + 1);
    }
}
