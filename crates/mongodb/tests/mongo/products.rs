//! Products, their stock and the catalogue.

mod alone;
mod plans;
mod sale;

use std::sync::Arc;

use mobimir_core::{
    id::{AttemptId, OrderId, ProductId, fresh as fresh_id},
    money::Money,
    policy::Entity,
    ports::Stores,
    product::{Hold, HoldKind, Product},
    time::Timestamp,
    zone::Zone,
};
use mobimir_mongodb::MongoProducts;
use mobimir_testkit::{conformance, model::ModelStore};

use crate::support::{Kept, fresh, options, shared};

#[test]
fn products_are_what_the_suite_says() {
    let shared = shared();
    let kept = Kept::default();
    let factory = || async {
        let deployment = kept.keep(fresh(shared.mongo, &[Entity::Products]).await);
        Stores { products: Arc::new(MongoProducts::new(deployment)), ..ModelStore::stores() }
    };
    conformance::products(&factory, options(16));
}

pub(crate) fn now() -> Timestamp {
    Timestamp::from_millis(1_800_000_000_000)
}

pub(crate) fn msk() -> Zone {
    Zone::parse("MSK").unwrap()
}

pub(crate) fn phone(units: u64) -> Product {
    named("Телефон", "Телефоны", 10_000, units)
}

pub(crate) fn named(name: &str, category: &str, kopecks: i128, units: u64) -> Product {
    let id = ProductId(fresh_id(now()));
    let stock = [(msk(), units)].into();
    let price = Money::from_kopecks(kopecks);
    Product::new(id, name.into(), category.into(), price, [].into(), stock, now()).unwrap()
}

/// Of an order and a run that nobody else has.
pub(crate) fn sale(quantity: u64) -> Hold {
    Hold {
        order: OrderId(fresh_id(now())),
        attempt: AttemptId(fresh_id(now())),
        kind: HoldKind::Sale,
        zone: msk(),
        quantity,
        placed_at: now(),
    }
}

/// On a runtime with room for tests that wait for servers.
pub(crate) fn block_on<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()
        .expect("a runtime can be started");
    runtime.block_on(test)
}
