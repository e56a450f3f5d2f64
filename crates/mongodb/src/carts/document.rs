//! A cart as it is stored.

use mobimir_core::{
    cart::{CartChange, Effect, Owner, Packed, Part, StoredCart},
    id::{ChangeId, SessionId, UserId},
    moving::WholeCart,
    ports::StoreResult,
    time::Timestamp,
};
use mongodb::bson::{DateTime, Uuid};
use serde::{Deserialize, Serialize};

use crate::{
    expiry::gone_at,
    leaves::{counted, date, id, number, time, units, uuid, zone},
};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct CartDoc {
    #[serde(rename = "_id")]
    pub(super) id: OwnerDoc,
    /// The owner's id once more, because shards are chosen by one field.
    pub(super) owner_id: Uuid,
    /// In the order in which they came; a packed one stands first.
    pub(super) changes: Vec<ChangeDoc>,
    pub(super) created_at: DateTime,
    pub(super) updated_at: DateTime,
    pub(super) expires_at: DateTime,
    pub(super) gone_at: DateTime,
    pub(super) version: i64,
    /// Since when it is written and not copied, while a migration runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    unmirrored: Option<DateTime>,
}

/// Sorted as [`CartPosition`](mobimir_core::cart::CartPosition) sorts: users before guests, each by id.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct OwnerDoc {
    pub(super) is_guest: bool,
    pub(super) id: Uuid,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ChangeDoc {
    pub(super) id: Uuid,
    at: DateTime,
    origin: OwnerDoc,
    keyed: bool,
    effect: EffectDoc,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum EffectDoc {
    Add {
        product: Uuid,
        quantity: i64,
        #[serde(skip_serializing_if = "Option::is_none")]
        zone: Option<String>,
    },
    Set {
        product: Uuid,
        quantity: i64,
        #[serde(skip_serializing_if = "Option::is_none")]
        zone: Option<String>,
        covers: Vec<Uuid>,
    },
    Cover {
        covers: Vec<Uuid>,
        #[serde(skip_serializing_if = "Option::is_none")]
        order: Option<Uuid>,
    },
    Packed {
        parts: Vec<PartDoc>,
        remembered: Vec<SinceDoc>,
        #[serde(skip_serializing_if = "Option::is_none")]
        zone: Option<ZoneDoc>,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct PartDoc {
    id: Uuid,
    at: DateTime,
    origin: OwnerDoc,
    keyed: bool,
    is_set: bool,
    product: Uuid,
    quantity: i64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct SinceDoc {
    id: Uuid,
    since: DateTime,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct ZoneDoc {
    code: String,
    at: DateTime,
}

impl CartDoc {
    /// A cart that came as a whole, to be kept as long as it lasts from `now` on.
    pub(super) fn whole(WholeCart { owner, cart, version }: &WholeCart, now: Timestamp) -> Self {
        let (packed, others): (Vec<_>, Vec<_>) =
            cart.changes.iter().map(ChangeDoc::of).partition(ChangeDoc::is_packed);
        Self {
            id: OwnerDoc::of(*owner),
            owner_id: uuid(owner.uuid()),
            changes: [packed, others].concat(),
            created_at: date(cart.created_at),
            updated_at: date(cart.updated_at),
            expires_at: date(cart.expires_at),
            gone_at: gone_at(cart.expires_at, now),
            version: number(*version),
            unmirrored: None,
        }
    }

    pub(super) fn changes(&self) -> StoreResult<Vec<CartChange>> {
        self.changes.iter().map(ChangeDoc::change).collect()
    }

    pub(super) fn cart(&self) -> StoreResult<StoredCart> {
        Ok(StoredCart {
            changes: self.changes()?,
            created_at: time(self.created_at),
            updated_at: time(self.updated_at),
            expires_at: time(self.expires_at),
        })
    }

    /// Ids in the packed change that stands first, if one does.
    pub(super) fn packed_ids(&self) -> Option<usize> {
        match &self.changes.first()?.effect {
            EffectDoc::Packed { parts, remembered, .. } => Some(1 + parts.len() + remembered.len()),
            _ => None,
        }
    }
}

impl OwnerDoc {
    pub(super) fn of(owner: Owner) -> Self {
        Self { is_guest: matches!(owner, Owner::Guest(_)), id: uuid(owner.uuid()) }
    }

    pub(super) fn owner(self) -> Owner {
        if self.is_guest {
            Owner::Guest(id::<SessionId>(self.id))
        } else {
            Owner::User(id::<UserId>(self.id))
        }
    }
}

impl ChangeDoc {
    pub(super) fn of(change: &CartChange) -> Self {
        let zoned = |zone: &Option<mobimir_core::zone::Zone>| zone.map(|zone| zone.to_string());
        let covered = |covers: &[ChangeId]| covers.iter().map(|id| uuid(id.0)).collect();
        let effect = match &change.effect {
            Effect::Add { product, quantity, zone } => {
                EffectDoc::Add { product: uuid(product.0), quantity: counted(*quantity), zone: zoned(zone) }
            }
            Effect::Set { product, quantity, zone, covers } => EffectDoc::Set {
                product: uuid(product.0),
                quantity: counted(*quantity),
                zone: zoned(zone),
                covers: covered(covers),
            },
            Effect::Cover { covers, order } => {
                EffectDoc::Cover { covers: covered(covers), order: order.map(|order| uuid(order.0)) }
            }
            Effect::Packed(Packed { parts, remembered, zone }) => EffectDoc::Packed {
                parts: parts.iter().map(PartDoc::of).collect(),
                remembered: remembered.iter().map(SinceDoc::of).collect(),
                zone: zone.map(|(zone, at)| ZoneDoc { code: zone.to_string(), at: date(at) }),
            },
        };
        Self {
            id: uuid(change.id.0),
            at: date(change.at),
            origin: OwnerDoc::of(change.origin),
            keyed: change.keyed,
            effect,
        }
    }

    fn is_packed(&self) -> bool {
        matches!(self.effect, EffectDoc::Packed { .. })
    }

    fn change(&self) -> StoreResult<CartChange> {
        let zoned = |code: &Option<String>| code.as_deref().map(zone).transpose();
        let covered = |covers: &[Uuid]| covers.iter().map(|stored| id(*stored)).collect();
        let effect = match &self.effect {
            EffectDoc::Add { product, quantity, zone } => {
                Effect::Add { product: id(*product), quantity: units(*quantity)?, zone: zoned(zone)? }
            }
            EffectDoc::Set { product, quantity, zone, covers } => Effect::Set {
                product: id(*product),
                quantity: units(*quantity)?,
                zone: zoned(zone)?,
                covers: covered(covers),
            },
            EffectDoc::Cover { covers, order } => {
                Effect::Cover { covers: covered(covers), order: order.map(id) }
            }
            EffectDoc::Packed { parts, remembered, zone: named } => Effect::Packed(Packed {
                parts: parts.iter().map(PartDoc::part).collect::<StoreResult<_>>()?,
                remembered: remembered.iter().map(SinceDoc::since).collect(),
                zone: named
                    .as_ref()
                    .map(|named| {
                        Ok::<_, mobimir_core::ports::StoreError>((zone(&named.code)?, time(named.at)))
                    })
                    .transpose()?,
            }),
        };
        Ok(CartChange {
            id: id(self.id),
            at: time(self.at),
            origin: self.origin.owner(),
            keyed: self.keyed,
            effect,
        })
    }
}

impl PartDoc {
    fn of(part: &Part) -> Self {
        Self {
            id: uuid(part.id.0),
            at: date(part.at),
            origin: OwnerDoc::of(part.origin),
            keyed: part.keyed,
            is_set: part.is_set,
            product: uuid(part.product.0),
            quantity: counted(part.quantity),
        }
    }

    fn part(&self) -> StoreResult<Part> {
        Ok(Part {
            id: id(self.id),
            at: time(self.at),
            origin: self.origin.owner(),
            keyed: self.keyed,
            is_set: self.is_set,
            product: id(self.product),
            quantity: units(self.quantity)?,
        })
    }
}

impl SinceDoc {
    fn of((id, since): &(ChangeId, Timestamp)) -> Self {
        Self { id: uuid(id.0), since: date(*since) }
    }

    fn since(&self) -> (ChangeId, Timestamp) {
        (id(self.id), time(self.since))
    }
}

#[cfg(test)]
mod tests {
    use mobimir_testkit::arbitrary;
    use mongodb::bson::{deserialize_from_slice, serialize_to_vec};
    use proptest::prelude::*;

    use super::*;

    /// Quantities that somebody may have.
    fn possible(mut change: CartChange) -> CartChange {
        const QUANTITY_MAX: u64 = i64::MAX as u64;
        match &mut change.effect {
            Effect::Add { quantity, .. } | Effect::Set { quantity, .. } => *quantity &= QUANTITY_MAX,
            Effect::Packed(packed) => packed.parts.iter_mut().for_each(|part| part.quantity &= QUANTITY_MAX),
            Effect::Cover { .. } => {}
        }
        change
    }

    proptest! {
        #[test]
        fn a_change_comes_back_as_it_was(change in arbitrary::cart_change().prop_map(possible)) {
            let bytes = serialize_to_vec(&ChangeDoc::of(&change)).unwrap();
            let stored: ChangeDoc = deserialize_from_slice(&bytes).unwrap();
            prop_assert_eq!(stored.change().unwrap(), change);
        }
    }
}
