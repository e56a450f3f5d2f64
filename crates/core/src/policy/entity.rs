//! Where each kind of data lives, and for how long.

use serde::{Serialize, Serializer};

use super::{
    cassandra::{CassandraSettings, Shared},
    mongodb::MongodbSettings,
    reader::Section,
    values::{Period, Ttl, words},
};

words! {
    Entity {
        Products = "products",
        Users = "users",
        Carts = "carts",
        Orders = "orders",
        OrderHistory = "order_history",
        Sessions = "sessions",
    }
}

words! {
    Store {
        Embedded = "embedded",
        Mongodb = "mongodb",
        Cassandra = "cassandra",
    }
}

words! {
    /// Where the order history is written to be read by its customer.
    HistoryHome {
        /// Served from the orders' own tables.
        Orders = "orders",
        Embedded = "embedded",
        Mongodb = "mongodb",
        Cassandra = "cassandra",
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Placement {
    pub home: Store,
    /// The other store of its live migration, in whichever direction that goes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration_store: Option<Store>,
    /// Present when MongoDB is its home or its migration store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mongodb: Option<MongodbSettings>,
    /// Present when Cassandra is its home or its migration store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cassandra: Option<CassandraSettings>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Carts {
    #[serde(flatten)]
    pub placement: Placement,
    pub ttl: CartTtl,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CartTtl {
    /// Never beyond its session.
    pub guest: Period,
    pub user: Ttl,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Orders {
    #[serde(flatten)]
    pub placement: Placement,
    pub buckets: OrderBuckets,
}

/// How a day's orders are spread, so that no partition carries a whole peak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct OrderBuckets {
    pub count: u16,
    /// Whether a peak may raise the count.
    pub adaptive: bool,
    /// The most that it may be raised to.
    pub max: u16,
    /// Orders a second in one bucket at which the count is doubled.
    pub orders_per_s_max: u64,
    /// How often an instance looks for a new count.
    pub refresh: Period,
    /// How far ahead a new count is published.
    pub ahead: Period,
}

/// A home of its own, or the orders' own tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderHistory(Option<Placement>);

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Sessions {
    #[serde(flatten)]
    pub placement: Placement,
    pub ttl: SessionTtl,
}

/// A session's refresh tokens live as long as the session, and each use begins its time anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SessionTtl {
    pub user: Period,
    pub guest: Period,
}

/// A page of a day asks every bucket, so more would cost readers more than it gives writers.
const ORDER_BUCKETS_MAX: u64 = 256;
const TTL_MIN: Period = Period::seconds(1);
const TTL_DEFAULT: Period = Period::days(30);
const GUEST_CART_DEFAULT: Period = Period::days(7);

impl Placement {
    pub(super) fn read(section: &Section<'_>, entity: Entity, shared: &Shared) -> Self {
        let home = section.get("home", Store::Embedded);
        Self::read_at(section, entity, shared, home)
    }

    fn read_at(section: &Section<'_>, entity: Entity, shared: &Shared, home: Store) -> Self {
        let migration_store = section.given::<Store>("migration_store");
        if migration_store == Some(home) {
            section.fail("migration_store", format!("expected a store other than the home, got \"{home}\""));
        }
        for (key, store) in [("home", Some(home)), ("migration_store", migration_store)] {
            if store == Some(Store::Cassandra) && matches!(entity, Entity::Products | Entity::Users) {
                section.fail(key, "expected \"embedded\" or \"mongodb\", got \"cassandra\"".to_owned());
            }
        }
        let placement = Self { home, migration_store, mongodb: None, cassandra: None };
        Self {
            mongodb: placement
                .settings(section, Store::Mongodb)
                .map(|settings| MongodbSettings::read(&settings, entity)),
            cassandra: placement
                .settings(section, Store::Cassandra)
                .map(|settings| CassandraSettings::read(&settings, entity, shared)),
            ..placement
        }
    }

    pub fn uses(&self, store: Store) -> bool {
        self.home == store || self.migration_store == Some(store)
    }

    /// The section of a store that is used. One of a store that is not would mislead whoever reads it.
    fn settings<'a>(&self, section: &Section<'a>, store: Store) -> Option<Section<'a>> {
        let used = self.uses(store);
        if section.is_given(store.as_str()) && !used {
            let home = self.home;
            let message =
                format!("expected home or migration_store to be \"{store}\", but home is \"{home}\"");
            section.fail(store.as_str(), message);
        }
        used.then(|| section.section(store.as_str()))
    }
}

impl Carts {
    pub(super) fn read(section: &Section<'_>, shared: &Shared, guest_session: Period) -> Self {
        let ttl = section.section("ttl");
        let guest_default = GUEST_CART_DEFAULT.min(guest_session);
        let guest = ttl.period("guest", TTL_MIN..=Period::MAX, guest_default);
        if guest > guest_session {
            ttl.fail("guest", format!("expected at most sessions.ttl.guest of {guest_session}, got {guest}"));
        }
        let mut user = ttl.get("user", Ttl::After(TTL_DEFAULT));
        if let Ttl::After(period) = user
            && period < TTL_MIN
        {
            ttl.fail("user", format!("expected at least {TTL_MIN}, or \"never\", got {period}"));
            user = Ttl::After(TTL_DEFAULT);
        }
        Self { placement: Placement::read(section, Entity::Carts, shared), ttl: CartTtl { guest, user } }
    }
}

impl Orders {
    pub(super) fn read(section: &Section<'_>, shared: &Shared) -> Self {
        Self {
            placement: Placement::read(section, Entity::Orders, shared),
            buckets: OrderBuckets::read(&section.section("buckets")),
        }
    }
}

impl OrderBuckets {
    fn read(section: &Section<'_>) -> Self {
        let small = |number: u64| u16::try_from(number).unwrap_or(u16::MAX);
        let count = section.number("count", 1..=ORDER_BUCKETS_MAX, 8);
        let max = section.number("max", 1..=ORDER_BUCKETS_MAX, count.max(256));
        let refresh = section.period("refresh", Period::seconds(1)..=Period::hours(1), Period::seconds(30));
        let ahead = section.period("ahead", Period::seconds(1)..=Period::hours(24), refresh.times(2));
        if max < count {
            section.fail("max", format!("expected at least orders.buckets.count of {count}, got {max}"));
        }
        // Whoever has just missed a publication must see it before it holds.
        if ahead < refresh.times(2) {
            let message = format!("expected at least two refresh periods, {}, got {ahead}", refresh.times(2));
            section.fail("ahead", message);
        }
        Self {
            count: small(count),
            adaptive: section.get("adaptive", false),
            max: small(max),
            orders_per_s_max: section.number("orders_per_s_max", 1..=1_000_000, 500),
            refresh,
            ahead,
        }
    }
}

impl OrderHistory {
    /// Where it lives, when it is not served from the orders' own tables.
    pub fn own(&self) -> Option<&Placement> {
        self.0.as_ref()
    }

    pub(super) fn own_mut(&mut self) -> Option<&mut Placement> {
        self.0.as_mut()
    }

    pub(super) fn read(section: &Section<'_>, shared: &Shared, orders: Store) -> Self {
        let home = match section.get("home", HistoryHome::Orders) {
            HistoryHome::Orders => {
                for key in ["migration_store", "mongodb", "cassandra"] {
                    if section.is_given(key) {
                        section.fail(key, "expected a home of its own, but home is \"orders\"".to_owned());
                    }
                }
                return Self(None);
            }
            HistoryHome::Embedded => Store::Embedded,
            HistoryHome::Mongodb => Store::Mongodb,
            HistoryHome::Cassandra => Store::Cassandra,
        };
        let placement = Placement::read_at(section, Entity::OrderHistory, shared, home);
        // Two copies of everything in one store, unless one of them is on its way.
        if home == orders && placement.migration_store.is_none() {
            section.fail(
                "home",
                format!(
                    "expected \"orders\" or a migration_store, because orders live there too, got \"{home}\""
                ),
            );
        }
        if home == Store::Embedded || placement.migration_store == Some(Store::Embedded) {
            let key = if home == Store::Embedded { "home" } else { "migration_store" };
            section.fail(key, "expected \"mongodb\" or \"cassandra\", got \"embedded\"".to_owned());
        }
        Self(Some(placement))
    }
}

impl Serialize for OrderHistory {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct WithOrders {
            home: HistoryHome,
        }
        match &self.0 {
            Some(placement) => placement.serialize(serializer),
            None => WithOrders { home: HistoryHome::Orders }.serialize(serializer),
        }
    }
}

impl Sessions {
    pub(super) fn read(section: &Section<'_>, shared: &Shared) -> Self {
        let ttl = section.section("ttl");
        let user = ttl.period("user", TTL_MIN..=Period::MAX, TTL_DEFAULT);
        let guest = ttl.period("guest", TTL_MIN..=Period::MAX, user);
        let placement = Placement::read(section, Entity::Sessions, shared);
        Self { placement, ttl: SessionTtl { user, guest } }
    }
}
