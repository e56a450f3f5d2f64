//! What a migration asks of MongoDB, on a real replica set.

mod marks;
mod puts;
mod scans;

use std::sync::Arc;

use mobimir_core::{moving::Movables, notes::NoteStore, policy::Entity};
use mobimir_mongodb::{Deployment, MongoCarts, MongoNotes, MongoOrderHistory, MongoOrders, MongoSessions};
use mobimir_testkit::{conformance, model::ModelStore};

use crate::support::{self, Kept};

/// All that moves, of a new database with the collections of one entity; the others are the model's.
fn movables(entity: Entity, deployment: Arc<Deployment>) -> Movables {
    let others = ModelStore::movables();
    match entity {
        Entity::Orders => Movables { orders: MongoOrders::side(deployment), ..others },
        Entity::Carts => Movables { carts: MongoCarts::side(deployment), ..others },
        Entity::Sessions => Movables { sessions: MongoSessions::side(deployment), ..others },
        other => panic!("{other:?} does not move"),
    }
}

#[test]
fn conformance_of_orders() {
    let (shared, kept) = (support::shared(), Kept::default());
    let factory = || async {
        let deployment = kept.keep(support::fresh(shared.mongo, &[Entity::Orders]).await);
        movables(Entity::Orders, deployment)
    };
    conformance::moving_orders(&factory, support::options(12));
}

#[test]
fn conformance_of_the_order_history() {
    let (shared, kept) = (support::shared(), Kept::default());
    let factory = || async {
        MongoOrderHistory::side(kept.keep(support::fresh(shared.mongo, &[Entity::OrderHistory]).await))
    };
    conformance::moving_order_history(&factory, support::options(12));
}

#[test]
fn conformance_of_carts() {
    let (shared, kept) = (support::shared(), Kept::default());
    let factory = || async {
        let deployment = kept.keep(support::fresh(shared.mongo, &[Entity::Carts]).await);
        movables(Entity::Carts, deployment)
    };
    conformance::moving_carts(&factory, support::options(12));
}

#[test]
fn conformance_of_sessions() {
    let (shared, kept) = (support::shared(), Kept::default());
    let factory = || async {
        let deployment = kept.keep(support::fresh(shared.mongo, &[Entity::Sessions]).await);
        movables(Entity::Sessions, deployment)
    };
    conformance::moving_sessions(&factory, support::options(12));
}

#[test]
fn conformance_of_notes() {
    let (shared, kept) = (support::shared(), Kept::default());
    let factory = || async {
        let deployment = kept.keep(support::fresh(shared.mongo, &[Entity::Products]).await);
        Arc::new(MongoNotes::new(deployment)) as Arc<dyn NoteStore>
    };
    conformance::notes(&factory, support::options(12));
}
