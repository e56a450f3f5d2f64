//! Which promises a policy does without, and what else its owner should know.

use serde::{Serialize, Serializer};

use super::{
    CassandraSettings, Entity, Level, MongodbSettings, OnDcLoss, Policy, Repair, Ttl, WriteConcern,
    read_sees_write,
};
use crate::invariant::Invariant;

/// A promise that does not hold under a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GivenUp {
    #[serde(serialize_with = "by_name")]
    pub invariant: Invariant,
    pub why: String,
}

/// Something legal that its owner may not have meant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Warning {
    pub key: String,
    pub message: String,
}

impl std::fmt::Display for GivenUp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({}): {}", self.invariant.name(), self.invariant.promise(), self.why)
    }
}

impl std::fmt::Display for Warning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.key, self.message)
    }
}

impl Policy {
    /// The promises that this policy gives up, in the order of their numbers.
    pub fn given_up(&self) -> Vec<GivenUp> {
        let mut given_up = Vec::new();
        for (entity, _) in self.placements() {
            for why in self.weak_settings(entity) {
                given_up.extend(
                    promises_of(entity)
                        .iter()
                        .map(|invariant| GivenUp { invariant: *invariant, why: why.clone() }),
                );
            }
        }
        if self.order_history.own().is_some() {
            let why = "the order history is filled after the order, which may stand there late";
            given_up.push(GivenUp { invariant: Invariant::Ord1, why: why.to_owned() });
        }
        if self.forgets_order_covers() {
            let why = "what orders take out of carts while a data centre is lost is not brought over to it \
                       when it is back, because carts have no read_repair";
            given_up.push(GivenUp { invariant: Invariant::Crt4, why: why.to_owned() });
        }
        given_up.sort_by_key(|given_up| given_up.invariant);
        given_up
    }

    /// Whether a cart may be read without what an order has taken out of it: orders go on without a lost data centre, and
    /// nothing repairs carts there.
    fn forgets_order_covers(&self) -> bool {
        let settings = |entity| self.placement(entity).and_then(|placement| placement.cassandra.as_ref());
        let (Some(carts), Some(orders)) = (settings(Entity::Carts), settings(Entity::Orders)) else {
            return false;
        };
        let goes_on = orders.on_dc_loss == OnDcLoss::LocalQuorum;
        goes_on && orders.write.needs_every_dc(&orders.replication) && !carts.read_repair
    }

    /// Why an acknowledged write of this entity need not be seen by the next read, or may be lost: empty if
    /// its settings give nothing up.
    pub fn weak_settings(&self, entity: Entity) -> Vec<String> {
        let Some(placement) = self.placement(entity) else { return Vec::new() };
        let in_cassandra = placement.cassandra.as_ref().and_then(|settings| weak_quorum(entity, settings));
        let in_mongodb = placement.mongodb.as_ref().and_then(|settings| weak_concern(entity, settings));
        [in_cassandra, in_mongodb].into_iter().flatten().collect()
    }

    pub fn gives_up(&self, invariant: Invariant) -> bool {
        self.given_up().iter().any(|given_up| given_up.invariant == invariant)
    }

    pub fn warnings(&self) -> Vec<Warning> {
        let mut warnings = Vec::new();
        for (entity, placement) in self.placements() {
            if let Some(settings) = &placement.cassandra {
                self.warn_cassandra(entity, settings, &mut warnings);
            }
            if let Some(settings) = &placement.mongodb {
                warn_mongodb(entity, settings, &mut warnings);
            }
        }
        warnings
    }

    fn placements(&self) -> impl Iterator<Item = (Entity, &super::Placement)> {
        Entity::ALL.iter().filter_map(|entity| Some((*entity, self.placement(*entity)?)))
    }

    fn warn_cassandra(&self, entity: Entity, settings: &CassandraSettings, warnings: &mut Vec<Warning>) {
        let mut warn = |key: &str, message: String| {
            warnings.push(Warning { key: format!("{entity}.cassandra.{key}"), message });
        };
        let CassandraSettings { write, read, hint_window, .. } = settings;
        if meet_within_each_dc(settings) && !meet_across_dcs(settings) {
            let advice = "keep each customer's requests in one";
            let loss = if settings.on_dc_loss == OnDcLoss::LocalQuorum {
                "; while it is lost, what only it has is missing in the other"
            } else {
                ""
            };
            warn("read", format!("{write} and {read} meet only within one data centre; {advice}{loss}"));
        }
        if settings.repair == Repair::None && self.keeps_for_ever(entity) {
            let missed = format!("what a replica misses when it is down longer than {hint_window}");
            warn("repair", format!("{missed} is never repaired, and does not expire"));
        }
        if settings.on_dc_loss == OnDcLoss::Refuse && write.needs_every_dc(&settings.replication) {
            warn(
                "on_dc_loss",
                format!("{write} refuses every write of {entity} while a data centre is lost"),
            );
        } else if settings.on_dc_loss == OnDcLoss::Refuse && settings.goes_on_elsewhere() {
            let levels = format!("{write} and {read} refuse {entity}");
            warn("on_dc_loss", format!("{levels} next to a data centre that is lost"));
        }
    }

    fn keeps_for_ever(&self, entity: Entity) -> bool {
        match entity {
            Entity::Carts => self.carts.ttl.user == Ttl::Never,
            Entity::Sessions => false,
            Entity::Products | Entity::Users | Entity::Orders | Entity::OrderHistory => true,
        }
    }
}

fn warn_mongodb(entity: Entity, settings: &MongodbSettings, warnings: &mut Vec<Warning>) {
    let mut warn = |message: &str| {
        let key = format!("{entity}.mongodb.shard_key");
        warnings.push(Warning { key, message: format!("\"{}\": {message}", settings.shard_key) });
    };
    let fields: Vec<&str> = settings.shard_key.0.iter().map(|(name, _)| name.as_str()).collect();
    if let (Entity::Products, ["category", ..]) = (entity, fields.as_slice()) {
        warn("one popular category can make one shard hot");
    }
}

fn by_name<S: Serializer>(invariant: &Invariant, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(invariant.name())
}

fn meet_within_each_dc(settings: &CassandraSettings) -> bool {
    let CassandraSettings { write, read, replication, .. } = settings;
    replication.keys().all(|dc| read_sees_write((*write, dc), (*read, dc), replication))
}

fn meet_across_dcs(settings: &CassandraSettings) -> bool {
    let CassandraSettings { write, read, replication, .. } = settings;
    replication.keys().all(|writer| {
        replication.keys().all(|reader| read_sees_write((*write, writer), (*read, reader), replication))
    })
}

fn weak_quorum(entity: Entity, settings: &CassandraSettings) -> Option<String> {
    let CassandraSettings { write, read, .. } = settings;
    if meet_within_each_dc(settings) {
        return None;
    }
    let lost = matches!(write, Level::Any | Level::One | Level::LocalOne);
    let consequence = if lost { "may be read late, or lost with one node" } else { "may be read late" };
    Some(format!(
        "{entity} written at {write} and read at {read} need not meet: what was acknowledged {consequence}"
    ))
}

fn weak_concern(entity: Entity, settings: &MongodbSettings) -> Option<String> {
    (settings.write == WriteConcern::Primary).then(|| {
        format!("{entity} written to the primary alone: a failover may take back what was acknowledged")
    })
}

/// What depends on the next read finding an entity's acknowledged writes. ORD-2 and CRT-4 are decided with
/// the stock.
fn promises_of(entity: Entity) -> &'static [Invariant] {
    match entity {
        Entity::Products => &[Invariant::Stk1, Invariant::Ord2, Invariant::Crt4, Invariant::Rd1],
        Entity::Users => &[Invariant::Rd1],
        Entity::Carts => &[Invariant::Crt1, Invariant::Crt2, Invariant::Rd1],
        Entity::Orders => &[Invariant::Ord1, Invariant::Ord3, Invariant::Rd1],
        Entity::OrderHistory => &[Invariant::Ord1, Invariant::Rd1],
        Entity::Sessions => &[Invariant::Ses1, Invariant::Ses2, Invariant::Ses3, Invariant::Rd1],
    }
}
