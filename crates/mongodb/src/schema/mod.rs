//! The collections of a policy, as data: their indexes and, where the deployment is sharded, their shard keys.

mod apply;
mod carts;
mod orders;
mod plan;
mod products;
mod sessions;
mod users;

use mobimir_core::policy::{Entity, Policy, Store};
use mongodb::bson::{Document, doc};

use crate::moving::UNMIRRORED;

pub use self::{
    apply::{apply, carry_out},
    plan::{Change, Conflict, Plan, SchemaError, Wanted, plan, script, wanted},
};

/// One collection of an entity.
#[derive(Clone, Debug, PartialEq)]
pub struct CollectionPlan {
    pub entity: Entity,
    pub name: &'static str,
    pub indexes: Vec<Index>,
    pub stands: Stands,
}

/// How a collection belongs to its entity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stands {
    /// It is the entity.
    Alone,
    /// It holds something of the entity that is found by its own id.
    Beside,
}

/// An index, as `createIndexes` takes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Index {
    pub name: &'static str,
    pub keys: Document,
    pub unique: bool,
    /// Documents go when the date in the (only) field has passed.
    pub expires: bool,
    /// Only documents that meet this are in it.
    pub only: Option<Document>,
}

impl Index {
    pub(crate) fn new(name: &'static str, keys: Document) -> Self {
        Self { name, keys, unique: false, expires: false, only: None }
    }

    pub(crate) fn unique(self) -> Self {
        Self { unique: true, ..self }
    }

    pub(crate) fn expires(self) -> Self {
        Self { expires: true, ..self }
    }

    pub(crate) fn only(self, condition: Document) -> Self {
        Self { only: Some(condition), ..self }
    }
}

/// Documents that were written and are not copied yet, the longest waiting first. Of use while a migration runs; it holds
/// nothing at other times.
fn unmirrored() -> Index {
    Index::new(UNMIRRORED, doc! { UNMIRRORED: 1 }).only(doc! { UNMIRRORED: { "$exists": true } })
}

/// The collections of an entity, whatever the policy.
pub fn collections(entity: Entity) -> Vec<CollectionPlan> {
    match entity {
        Entity::Products => products::collections(),
        Entity::Users => users::collections(),
        Entity::Carts => carts::collections(),
        Entity::Orders => orders::orders(),
        Entity::OrderHistory => orders::history(),
        Entity::Sessions => sessions::collections(),
    }
}

/// The collections of all entities that a policy places in MongoDB, or lets move there.
pub fn of_policy(policy: &Policy) -> Vec<CollectionPlan> {
    let placed = |entity: &&Entity| policy.placement(**entity).is_some_and(|it| it.uses(Store::Mongodb));
    Entity::ALL.iter().filter(placed).flat_map(|entity| collections(*entity)).collect()
}
