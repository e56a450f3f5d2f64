//! What a shop does, in terms of the ports: accounts and sessions, the catalogue, carts, checkout, orders, and the
//! reconciler that finishes what a crash left open. Knows no store and no web server.

mod accounts;
mod cart_claim;
mod carts;
mod catalogue;
mod checkout;
pub mod environment;
pub mod faults;
mod login_guard;
mod orders;
mod passwords;
mod reconciler;
mod separate_history;
mod sessions;
mod settings;
mod turns;

use std::sync::Arc;

pub use accounts::{LoggedIn, LoginError, ProfileEdit, RefreshError, RegisterError};
pub use carts::{AbandonedCart, CartContents, CartError, CartItem, CartStatus};
pub use catalogue::{CatalogueError, NewProduct};
pub use checkout::{OrderRequest, PlaceOrderError, Placed};
pub use orders::MoveOrderError;
pub use reconciler::{Reconciled, run_reconciler};
pub use separate_history::SeparateHistory;
pub use sessions::{Caller, ClientInfo};
pub use settings::{BucketCount, ShopSettings};

use mobimir_core::{
    invariant::InvariantCounters,
    ports::Stores,
    time::{Clock, Timestamp},
};
use uuid::Uuid;

use environment::Environment;

/// A running shop. Cheap to clone; clones are the same shop.
#[derive(Clone)]
pub struct Shop {
    inner: Arc<Inner>,
}

struct Inner {
    stores: Stores,
    environment: Environment,
    settings: ShopSettings,
    invariants: Arc<InvariantCounters>,
    faults: faults::Faults,
    sessions: sessions::SessionCache,
    passwords: passwords::Passwords,
    logins: login_guard::LoginGuard,
    running_checkouts: turns::RunningCheckouts,
    cart_orders: turns::CartOrders,
}

impl Shop {
    pub fn new(stores: Stores, clock: Arc<dyn Clock>, settings: ShopSettings) -> Self {
        Self::with_faults(stores, clock, settings, faults::Faults::none())
    }

    /// A shop that takes nothing from the machine but what it is given.
    pub fn in_environment(
        environment: Environment,
        stores: Stores,
        settings: ShopSettings,
        faults: faults::Faults,
    ) -> Self {
        Self::build(environment, stores, settings, faults, Arc::default())
    }

    /// A shop that counts its promises together with others who look at them: a store looks at RD-1.
    pub fn counting_in(
        invariants: Arc<InvariantCounters>,
        stores: Stores,
        clock: Arc<dyn Clock>,
        settings: ShopSettings,
    ) -> Self {
        Self::build(Environment::system(clock), stores, settings, faults::Faults::none(), invariants)
    }

    /// A shop that meets the given faults on its way, for tests.
    pub fn with_faults(
        stores: Stores,
        clock: Arc<dyn Clock>,
        settings: ShopSettings,
        faults: faults::Faults,
    ) -> Self {
        Self::build(Environment::system(clock), stores, settings, faults, Arc::default())
    }

    fn build(
        environment: Environment,
        stores: Stores,
        settings: ShopSettings,
        faults: faults::Faults,
        invariants: Arc<InvariantCounters>,
    ) -> Self {
        let inner = Inner {
            sessions: sessions::SessionCache::new(
                if faults.plants(faults::Planted::SessionsRememberedTooLong) {
                    60_000
                } else {
                    settings.session_cache_ms
                },
                faults.plants(faults::Planted::RememberedSessionGoesBack),
            ),
            passwords: passwords::Passwords::new(settings.password_memory_kib, environment.clone()),
            logins: login_guard::LoginGuard::default(),
            running_checkouts: turns::RunningCheckouts::default(),
            cart_orders: turns::CartOrders::default(),
            invariants,
            stores,
            environment,
            settings,
            faults,
        };
        Self { inner: Arc::new(inner) }
    }

    /// Whether a test has put this fault back.
    pub(crate) fn plants(&self, fault: faults::Planted) -> bool {
        self.inner.faults.plants(fault)
    }

    pub fn now(&self) -> Timestamp {
        self.inner.environment.clock.now()
    }

    /// The time by the clock of the store that decides, on which all instances agree. Whatever one instance sets and another
    /// judges is measured by it: deadlines of checkouts, the age of holds, when a guest's session was closed.
    pub(crate) fn store_now(&self) -> Timestamp {
        if self.plants(faults::Planted::DeadlinesByOwnClock) {
            return self.now();
        }
        self.inner.stores.products.clock(self.now())
    }

    pub(crate) fn fresh_id(&self) -> Uuid {
        self.inner.environment.ids.fresh(self.now())
    }

    pub fn settings(&self) -> &ShopSettings {
        &self.inner.settings
    }

    pub fn stores(&self) -> &Stores {
        &self.inner.stores
    }

    pub fn invariants(&self) -> &InvariantCounters {
        &self.inner.invariants
    }
}
