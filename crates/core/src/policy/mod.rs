//! The policy: one TOML file that says where each kind of data lives, how long, how safely, how fresh it is
//! read and when somebody is woken. Nothing else decides these.
//!
//! Every key may be left out; an empty file is the `embedded` policy. [`Policy::parse`] names the key and the
//! line of every mistake, and [`Policy::given_up`] the promises that a policy does without.

mod alerts;
mod builtin;
mod cassandra;
mod entity;
mod level;
mod mongodb;
mod promises;
mod reader;
mod reads;
mod show;
mod speculation;
mod upkeep;
mod values;

#[cfg(test)]
mod tests;

use serde::Serialize;

pub use self::{
    alerts::{AlertRow, Alerts, CassandraAlerts, LatencyAlerts, MigrationAlerts, PromiseAlerts, ShardAlerts},
    builtin::{BUILT_IN, BuiltIn},
    cassandra::{CassandraSettings, HistoryBucket, OnDcLoss, Replication, StatusLayout},
    entity::{
        CartTtl, Carts, Entity, HistoryHome, OrderBuckets, OrderHistory, Orders, Placement, SessionTtl,
        Sessions, Store,
    },
    level::{Level, SerialLevel, read_sees_write},
    mongodb::{MongodbSettings, STRIPES_MAX, ShardKey, ShardOrder, Stripes, WriteConcern},
    promises::{GivenUp, Warning},
    reader::{PolicyError, PolicyIssue},
    reads::{ReadFrom, ReadOperation, ReadRule, Reads},
    show::text_table,
    speculation::{Percentile, SpeculativeRetry},
    upkeep::{Compaction, Repair, TimeOfDay, Weekday},
    values::{Bytes, Period, Ttl},
};
use self::{
    cassandra::Shared,
    reader::{Section, Source},
};

/// The effective policy: every key has its value, whether it was written or not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Policy {
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    pub times: Times,
    pub products: Placement,
    pub users: Placement,
    pub carts: Carts,
    pub orders: Orders,
    pub order_history: OrderHistory,
    pub sessions: Sessions,
    pub reads: Reads,
    pub alerts: Alerts,
}

/// Times of the shop's own work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Times {
    /// After this the reconciler may abort a checkout that is still open.
    pub checkout_deadline: Period,
    /// The reconciler finishes what a crash left this long after the deadline.
    pub reconcile_within: Period,
    /// How long an idempotency key and its answer are kept.
    pub idempotency_keys: Period,
    /// A session check may be answered from memory for this many seconds.
    pub session_cache_s: u64,
    /// An active cart untouched for this long becomes `abandoned`.
    pub abandoned_after: Period,
}

const SESSION_CACHE_S_MAX: u64 = 60;

impl Policy {
    /// Reads a policy. `file_name` stands before every error, and its stem is the name of a policy without one.
    pub fn parse(text: &str, file_name: &str) -> Result<Policy, PolicyError> {
        let source = Source::new(file_name, text);
        let table = source.parse()?;
        let policy = Self::read(&source.section(&table), file_name);
        source.finish()?;
        Ok(policy)
    }

    /// Everything in the embedded store: what a shop uses when nothing is named.
    pub fn embedded() -> Policy {
        let empty = Source::new("embedded", "");
        let table = toml::de::DeTable::new();
        let policy = Self::read(&empty.section(&table), "embedded");
        Policy { description: "everything in the embedded store, on one machine".to_owned(), ..policy }
    }

    fn read(file: &Section<'_>, file_name: &str) -> Policy {
        let shared = Shared::read(&file.section("cassandra"));
        let sessions_section = file.section("sessions");
        let carts_section = file.section("carts");
        let times_section = file.section("times");
        let orders_section = file.section("orders");
        let sessions = Sessions::read(&sessions_section, &shared);
        let carts = Carts::read(&carts_section, &shared, sessions.ttl.guest);
        let orders = Orders::read(&orders_section, &shared);
        Policy {
            name: file.given("name").unwrap_or_else(|| stem(file_name).to_owned()),
            description: file.get("description", String::new()),
            times: Times::read(&times_section, &carts_section, carts.ttl.user),
            products: Placement::read(&file.section("products"), Entity::Products, &shared),
            users: Placement::read(&file.section("users"), Entity::Users, &shared),
            order_history: OrderHistory::read(&file.section("order_history"), &shared, orders.placement.home),
            carts,
            orders,
            sessions,
            reads: Reads::read(&file.section("reads")),
            alerts: Alerts::read(&file.section("alerts")),
        }
    }

    pub fn checkout_deadline_ms(&self) -> i64 {
        self.times.checkout_deadline.as_ms()
    }

    pub fn session_cache_ms(&self) -> i64 {
        self.times.session_cache_s.cast_signed() * 1000
    }

    pub fn session_ttl_ms(&self) -> i64 {
        self.sessions.ttl.user.as_ms()
    }

    pub fn guest_session_ttl_ms(&self) -> i64 {
        self.sessions.ttl.guest.as_ms()
    }

    pub fn guest_cart_ttl_ms(&self) -> i64 {
        self.carts.ttl.guest.as_ms()
    }

    /// `None` when a user's cart never expires.
    pub fn user_cart_ttl_ms(&self) -> Option<i64> {
        self.carts.ttl.user.as_ms()
    }

    pub fn abandoned_after_ms(&self) -> i64 {
        self.times.abandoned_after.as_ms()
    }

    /// How many buckets a day of orders starts with.
    pub fn order_buckets(&self) -> u16 {
        self.orders.buckets.count
    }

    /// Products whose stock is to be split, and into how many stripes each.
    pub fn striped_products(&self) -> Vec<(crate::id::ProductId, u16)> {
        let stripes = self.products.mongodb.as_ref().and_then(|settings| settings.stripes.as_ref());
        let each = |stripes: &Stripes| stripes.products.iter().map(|id| (*id, stripes.count)).collect();
        stripes.map(each).unwrap_or_default()
    }

    /// Where an entity lives; `None` for an order history that is served from the orders' own tables.
    pub fn placement(&self, entity: Entity) -> Option<&Placement> {
        match entity {
            Entity::Products => Some(&self.products),
            Entity::Users => Some(&self.users),
            Entity::Carts => Some(&self.carts.placement),
            Entity::Orders => Some(&self.orders.placement),
            Entity::OrderHistory => self.order_history.own(),
            Entity::Sessions => Some(&self.sessions.placement),
        }
    }

    /// Whether some entity lives in a store or migrates with it.
    pub fn uses(&self, store: Store) -> bool {
        let placements = Entity::ALL.iter().filter_map(|entity| self.placement(*entity));
        placements.into_iter().any(|placement| placement.uses(store))
    }

    /// The same policy for other data centres: a laboratory of one node, or a cluster with other names.
    #[must_use]
    pub fn in_data_centres(mut self, replication: &Replication) -> Policy {
        let own_history = self.order_history.own_mut();
        let placements =
            [&mut self.carts.placement, &mut self.orders.placement, &mut self.sessions.placement];
        for settings in
            placements.into_iter().chain(own_history).filter_map(|placement| placement.cassandra.as_mut())
        {
            if !replication.contains_key(&settings.home_dc) {
                settings.home_dc = replication.keys().next().cloned().unwrap_or_default();
            }
            settings.replication.clone_from(replication);
        }
        self
    }

    /// The policy as a file that says everything. Parsing it gives the same policy.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        toml::to_string_pretty(self)
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self::embedded()
    }
}

impl Times {
    fn read(section: &Section<'_>, carts: &Section<'_>, user_cart: Ttl) -> Self {
        let times = Self {
            checkout_deadline: section.period(
                "checkout_deadline",
                Period::seconds(1)..=Period::minutes(10),
                Period::seconds(15),
            ),
            reconcile_within: section.period(
                "reconcile_within",
                Period::seconds(1)..=Period::hours(1),
                Period::seconds(30),
            ),
            idempotency_keys: section.period(
                "idempotency_keys",
                Period::hours(24)..=Period::days(365),
                Period::hours(24),
            ),
            session_cache_s: section.number("session_cache_s", 0..=SESSION_CACHE_S_MAX, 2),
            abandoned_after: section.period(
                "abandoned_after",
                Period::seconds(1)..=Period::days(365),
                Period::hours(24),
            ),
        };
        if let Ttl::After(user_cart) = user_cart
            && times.abandoned_after >= user_cart
        {
            let after = times.abandoned_after;
            // Named is the one that somebody wrote.
            if section.is_given("abandoned_after") {
                section.fail(
                    "abandoned_after",
                    format!("expected less than carts.ttl.user of {user_cart}, got {after}"),
                );
            } else {
                let message = format!("expected more than times.abandoned_after of {after}, got {user_cart}");
                carts.section("ttl").fail("user", message);
            }
        }
        times
    }
}

/// `policies/default.toml` into `default`.
fn stem(file_name: &str) -> &str {
    let name = file_name.rsplit(['/', '\\']).next().unwrap_or(file_name);
    name.strip_suffix(".toml").unwrap_or(name)
}
