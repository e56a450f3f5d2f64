//! Which entities can move to another store while the shop sells. `places` moves them or, in a build without the feature
//! `migrate`, is absent.

#[cfg_attr(not(feature = "migrate"), path = "no_places.rs")]
mod places;

use std::sync::Arc;

use anyhow::{Result, bail};
use mobimir_core::{
    notes::NoteStore,
    policy::{Entity, Policy, Store},
};
use mobimir_embedded::EmbeddedStore;
use mobimir_migrate::{
    phase::Phase,
    record::{Notes, Record},
};

pub(crate) use self::places::Places;
use crate::servers::Servers;

/// What can move.
const MOVABLE: [Entity; 4] = [Entity::Orders, Entity::OrderHistory, Entity::Carts, Entity::Sessions];

/// Where migrations are noted: beside the products, because whoever serves the shop reaches them.
pub(crate) fn notes(policy: &Policy, embedded: &EmbeddedStore, servers: &Servers) -> Arc<dyn NoteStore> {
    match &servers.mongodb {
        Some(mongodb) if policy.products.home == Store::Mongodb => mongodb.notes(),
        _ => Arc::new(embedded.clone()),
    }
}

/// Refuses to serve what is on its way elsewhere, when this process would not know of it.
pub(crate) async fn check_all_at_rest(policy: &Policy, notes: &Arc<dyn NoteStore>) -> Result<()> {
    for entity in MOVABLE {
        let Some(placement) = policy.placement(entity) else { continue };
        let notes = Notes::new(notes.clone(), name(entity));
        check_at_rest(&notes, placement.home, "run this instance with migrations = true").await?;
    }
    Ok(())
}

/// As operators call them.
fn name(entity: Entity) -> &'static str {
    match entity {
        Entity::Orders => "orders",
        Entity::OrderHistory => "order_history",
        Entity::Carts => "carts",
        _ => "sessions",
    }
}

/// Where an instance would not know of a migration, there must be none, and the entity where the instance has it.
async fn check_at_rest(notes: &Notes, home: Store, instead: &str) -> Result<()> {
    let Some(read) = notes.record().await? else { return Ok(()) };
    let (record, home) = (read.value, home.to_string());
    let is_back = record.control.phase == Phase::Source && record.source == home;
    if !is_back && !record.is_over(&home) {
        let Record { source, target, control, .. } = record;
        let entity = notes.entity();
        if control.phase == Phase::Target {
            bail!(
                "the {entity} have moved from {source} to {target}, and by the policy their home is {home}: change it to {target}"
            );
        }
        bail!(
            "the {entity} are on their way from {source} to {target} (phase {}), and by the policy their home is {home}: {instead}, \
             and serve them like the other instances do",
            control.phase
        );
    }
    Ok(())
}
