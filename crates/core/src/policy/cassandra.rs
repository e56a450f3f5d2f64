//! What an entity needs to know when it lives in Cassandra.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{
    Entity,
    level::{Level, SerialLevel},
    reader::{Section, integer, shown},
    speculation::{Percentile, SpeculativeRetry},
    upkeep::{Compaction, Repair},
    values::{Period, words},
};

/// Data centre and the number of replicas it keeps.
pub type Replication = BTreeMap<String, u8>;

const REPLICAS_MAX: u64 = 9;
const SESSION_BUCKETS_MAX: u64 = 10_000;
const TIMEOUT_MIN: Period = Period::millis(100);
const TIMEOUT_MAX: Period = Period::seconds(60);
const TIMEOUT_DEFAULT: Period = Period::seconds(5);
const HINT_WINDOW_MAX: Period = Period::days(7);
const GC_GRACE_DEFAULT: Period = Period::days(10);
/// A repair that starts on time still needs time to end.
const GC_GRACE_SPARE: Period = Period::days(3);

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CassandraSettings {
    pub write: Level,
    pub read: Level,
    pub serial: SerialLevel,
    /// Where conditional statements run: LOCAL_SERIAL is exclusive only within one data centre.
    pub home_dc: String,
    pub on_dc_loss: OnDcLoss,
    /// The longest that an answer of the cluster is waited for, retries included.
    pub timeout: Period,
    pub speculative_retry: SpeculativeRetry,
    /// `read_repair = 'BLOCKING'` when on, `'NONE'` when off.
    pub read_repair: bool,
    pub hint_window: Period,
    pub repair: Repair,
    pub gc_grace: Period,
    pub compaction: Compaction,
    /// Orders and their history: how a customer's history is cut into partitions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub history_bucket: Option<HistoryBucket>,
    /// Orders: where the current status stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<StatusLayout>,
    /// Sessions: how many partitions share them by hash; 0 gives every session its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buckets: Option<u16>,
    pub replication: Replication,
}

words! {
    /// What becomes of writes that need a data centre which is lost.
    OnDcLoss {
        /// They go on at LOCAL_QUORUM in the surviving one, recorded and alerted.
        LocalQuorum = "local_quorum",
        Refuse = "refuse",
    }
}

words! {
    HistoryBucket {
        Month = "month",
        /// One partition a customer, however long the history grows.
        None = "none",
    }
}

words! {
    StatusLayout {
        /// With the order, and every move in its history.
        Column = "column",
        /// The newest row of the history is the status.
        Log = "log",
    }
}

/// What `[cassandra]` says for all entities.
pub(super) struct Shared {
    replication: Replication,
    home_dc: Option<String>,
}

struct Defaults {
    write: Level,
    read: Level,
    read_repair: bool,
    hint_window: Period,
    repair: Repair,
    compaction: Compaction,
}

impl Shared {
    pub(super) fn read(section: &Section<'_>) -> Self {
        let replication = read_replication(section)
            .unwrap_or_else(|| Replication::from([("dc1".to_owned(), 3), ("dc2".to_owned(), 3)]));
        let home_dc = section.given::<String>("home_dc");
        if let Some(home_dc) = &home_dc {
            check_home_dc(section, home_dc, &replication);
        }
        Self { replication, home_dc }
    }
}

impl CassandraSettings {
    pub(super) fn read(section: &Section<'_>, entity: Entity, shared: &Shared) -> Self {
        let defaults = Defaults::of(entity);
        let replication = read_replication(section).unwrap_or_else(|| shared.replication.clone());
        let repair = section.get("repair", defaults.repair);
        let has_history = matches!(entity, Entity::Orders | Entity::OrderHistory);
        let settings = Self {
            write: section.get("write", defaults.write),
            read: section.get("read", defaults.read),
            serial: section.get("serial", SerialLevel::LocalSerial),
            home_dc: section
                .given("home_dc")
                .unwrap_or_else(|| default_home_dc(shared.home_dc.as_deref(), &replication)),
            on_dc_loss: section.get("on_dc_loss", OnDcLoss::LocalQuorum),
            timeout: section.period("timeout", TIMEOUT_MIN..=TIMEOUT_MAX, TIMEOUT_DEFAULT),
            speculative_retry: section
                .get("speculative_retry", SpeculativeRetry::Percentile(Percentile::P99)),
            read_repair: section.get("read_repair", defaults.read_repair),
            hint_window: section.period(
                "hint_window",
                Period::seconds(0)..=HINT_WINDOW_MAX,
                defaults.hint_window,
            ),
            gc_grace: section.period("gc_grace", Period::hours(1)..=Period::days(365), default_grace(repair)),
            repair,
            compaction: section.get("compaction", defaults.compaction),
            history_bucket: has_history.then(|| section.get("history_bucket", HistoryBucket::Month)),
            status: (entity == Entity::Orders).then(|| section.get("status", StatusLayout::Column)),
            buckets: (entity == Entity::Sessions).then(|| {
                u16::try_from(section.number("buckets", 0..=SESSION_BUCKETS_MAX, 0)).unwrap_or_default()
            }),
            replication,
        };
        settings.check(section, entity);
        settings
    }

    /// Whether what is asked next to a lost data centre needs that one alone, and another could answer in its
    /// place.
    pub fn goes_on_elsewhere(&self) -> bool {
        self.replication.len() > 1 && (self.write.is_local() || self.read.is_local())
    }

    /// Whether the loss of a data centre stops something, so that `on_dc_loss` decides about it.
    pub fn is_stopped_by_dc_loss(&self) -> bool {
        self.goes_on_elsewhere() || self.write.needs_every_dc(&self.replication)
    }

    fn check(&self, section: &Section<'_>, entity: Entity) {
        check_home_dc(section, &self.home_dc, &self.replication);
        if !self.read.can_read() {
            section.fail("read", format!("expected a level that Cassandra reads at, got {}", self.read));
        }
        for (key, level) in [("write", self.write), ("read", self.read)] {
            let have: u32 = self.replication.values().map(|replicas| u32::from(*replicas)).sum();
            if level.replicas() > have {
                section.fail(key, format!("expected at most {have} replicas, got {level}"));
            }
        }
        let goes_on = self.on_dc_loss == OnDcLoss::LocalQuorum && self.is_stopped_by_dc_loss();
        // Of sessions every row can be written once more as it was.
        if goes_on && !self.read_repair && entity != Entity::Sessions {
            let message = "expected true, because a lost data centre gets what it has missed by read repair \
                           (or on_dc_loss = \"refuse\"), got false";
            section.fail("read_repair", message.to_owned());
        }
        if let Some(time) = self.speculative_retry.not_before()
            && time >= self.timeout
        {
            let Self { speculative_retry, timeout, .. } = self;
            let message =
                format!("expected a time within the timeout of {timeout}, got \"{speculative_retry}\"");
            section.fail("speculative_retry", message);
        }
        // A deleted row comes back when its tombstone is gone before every replica has seen it.
        if let Some(interval) = self.repair.interval()
            && self.gc_grace < interval
        {
            let message =
                format!("expected at least the repair interval of {interval}, got {}", self.gc_grace);
            section.fail("gc_grace", message);
        }
        if self.gc_grace < self.hint_window {
            let message =
                format!("expected at least the hint window of {}, got {}", self.hint_window, self.gc_grace);
            section.fail("gc_grace", message);
        }
    }
}

impl Defaults {
    fn of(entity: Entity) -> Self {
        let quorum = Self {
            write: Level::LocalQuorum,
            read: Level::LocalQuorum,
            read_repair: true,
            hint_window: Period::hours(1),
            repair: Repair::Every(Period::days(7)),
            compaction: Compaction::Leveled,
        };
        match entity {
            Entity::Orders => Self {
                write: Level::EachQuorum,
                hint_window: Period::hours(3),
                repair: Repair::Every(Period::hours(24)),
                compaction: Compaction::SizeTiered,
                ..quorum
            },
            Entity::OrderHistory => {
                Self { hint_window: Period::hours(3), compaction: Compaction::SizeTiered, ..quorum }
            }
            Entity::Sessions => Self { read_repair: false, repair: Repair::None, ..quorum },
            Entity::Products | Entity::Users | Entity::Carts => quorum,
        }
    }
}

fn default_grace(repair: Repair) -> Period {
    let needed = repair.interval().map_or(GC_GRACE_DEFAULT, |interval| interval.plus(GC_GRACE_SPARE));
    needed.max(GC_GRACE_DEFAULT)
}

fn default_home_dc(shared: Option<&str>, replication: &Replication) -> String {
    let shared = shared.filter(|name| replication.contains_key(*name));
    shared.or_else(|| replication.keys().next().map(String::as_str)).unwrap_or_default().to_owned()
}

fn check_home_dc(section: &Section<'_>, home_dc: &str, replication: &Replication) {
    if !replication.contains_key(home_dc) {
        let known: Vec<&str> = replication.keys().map(String::as_str).collect();
        let message =
            format!("expected a data centre of the replication ({}), got {home_dc:?}", known.join(", "));
        section.fail("home_dc", message);
    }
}

fn read_replication(section: &Section<'_>) -> Option<Replication> {
    if !section.is_given("replication") {
        return None;
    }
    let table = section.section("replication");
    let mut replication = Replication::new();
    for (name, value) in table.names() {
        let good_name = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
        if name.is_empty() || !good_name {
            table.fail(&name, "expected a data centre named with letters, digits, '_' and '-'".to_owned());
            continue;
        }
        let replicas = integer(value).filter(|replicas| (1..=REPLICAS_MAX).contains(replicas));
        if replicas.is_none() {
            let got = shown(value);
            table.fail(
                &name,
                format!("expected a whole number of replicas from 1 to {REPLICAS_MAX}, got {got}"),
            );
        }
        // A bad number still names a data centre, so that `home_dc` is not blamed for it.
        replication.insert(name, replicas.and_then(|replicas| u8::try_from(replicas).ok()).unwrap_or(3));
    }
    if replication.is_empty() && table.names().is_empty() {
        section.fail("replication", "expected at least one data centre, like { dc1 = 3 }".to_owned());
    }
    (!replication.is_empty()).then_some(replication)
}
