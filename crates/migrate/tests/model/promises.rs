//! What is promised of every world (MIG-1, MIG-2, MIG-3), and examples without which a proof would be one of nothing.

use mobimir_migrate::phase::{Phase, Which};
use stateright::Property;

use crate::{
    Migration,
    world::{Copied, Instance, World, other},
};

pub(crate) const MIG_1: &str = "MIG-1 no read misses a write, and nothing deleted is back";
pub(crate) const MIG_2: &str =
    "MIG-2 reads move only to where everything is, and to the target only when that is verified";
pub(crate) const MIG_3: &str = "MIG-3 at no moment do two stores decide";

pub(crate) fn list(migration: &Migration) -> Vec<Property<Migration>> {
    let mut list = vec![
        Property::always(MIG_1, keeps_writes),
        Property::always(MIG_2, moves_reads_safely),
        Property::always(MIG_3, lets_one_store_decide),
        Property::sometimes("everybody serves from the target for good", |_, world: &World| {
            world.target_was_written && world.serving().filter(|phase| *phase == Phase::Target).count() == 2
        }),
        Property::sometimes(
            "everybody is back at the source with what the target was given",
            |_, world: &World| {
                world.target_was_written
                    && world.serving().filter(|phase| *phase == Phase::Source).count() == 2
            },
        ),
        Property::sometimes("a handover is given up half-way", |_, world: &World| {
            world.control.phase == Phase::Verify
                && world.instances.iter().any(|instance| {
                    matches!(instance, Instance::Serving { phase: Phase::Handover, behind: 1, .. })
                })
        }),
        Property::sometimes("the way back has to wait for the mirror", |_, world: &World| {
            world.control.phase == Phase::Switch && world.glance().target_backlog > 0
        }),
        Property::sometimes("a copy is overtaken", |_, world: &World| has_overtaken_copy(world)),
    ];
    if migration.bounds.faults > 0 {
        list.push(Property::sometimes("a handover has to wait for a late write", |_, world: &World| {
            world.control.phase == Phase::Handover
                && world.glance().unconfirmed == 0
                && world.glance().is_late
        }));
        list.push(Property::sometimes("an instance starts while the target decides", |_, world: &World| {
            world.control.phase == Phase::ReadTarget && world.instances.contains(&Instance::Starting)
        }));
    }
    list
}

/// MIG-1. Any instance may be asked at any moment. It answers from the store that the phase it follows names, and there must
/// stand exactly what has been written: all that landed since the last delete, and nothing from before it.
fn keeps_writes(migration: &Migration, world: &World) -> bool {
    world.serving().all(|phase| world.tells_the_truth((migration.rules.rights)(phase).reads))
}

/// MIG-2. When the phase says that reads are from a store, that store has everything, whether an instance reads there already
/// or not. All that is written later is written there, too, so this holds for as long as the phase says so.
fn moves_reads_safely(migration: &Migration, world: &World) -> bool {
    let reads = (migration.rules.rights)(world.control.phase).reads;
    let is_proven = world.control.backfilled && world.control.verified;
    world.tells_the_truth(reads) && (reads == Which::Source || is_proven)
}

/// MIG-3. Whoever serves may decide on the store that the phase it follows lets it write to; and a write that is under way
/// decides where it lands, also when nobody will hear of it.
fn lets_one_store_decide(migration: &Migration, world: &World) -> bool {
    world.deciding(migration.rules.rights) != [true, true]
}

/// Something newer stands where this copy is about to arrive.
fn has_overtaken_copy(world: &World) -> bool {
    world.copies.iter().flatten().any(|copied| match copied {
        Copied::Read { from, key, entity, .. } => {
            entity.version < world.row(other(*from), *key).entity.version
        }
        Copied::Put { .. } => false,
    })
}
