//! What a change does to a cart.

use minicbor::{Decode, Encode};
use mobimir_core::{
    cart::{Effect, Packed, Part},
    id::{ChangeId, OrderId, ProductId},
};

use crate::leaves::{At, Id, OwnerCode, ZoneCode};

/// An effect as a field of a record.
#[derive(Encode, Decode)]
#[cbor(transparent)]
pub struct EffectRecord(#[n(0)] EffectForm);

impl From<&Effect> for EffectRecord {
    fn from(effect: &Effect) -> Self {
        Self(EffectForm::from(effect))
    }
}

impl From<EffectRecord> for Effect {
    fn from(record: EffectRecord) -> Self {
        record.0.into()
    }
}

#[derive(Encode, Decode)]
enum EffectForm {
    #[n(0)]
    Add {
        #[n(0)]
        product: Id,
        #[n(1)]
        quantity: u64,
        #[n(2)]
        zone: Option<ZoneCode>,
    },
    #[n(1)]
    Set {
        #[n(0)]
        product: Id,
        #[n(1)]
        quantity: u64,
        #[n(2)]
        zone: Option<ZoneCode>,
        #[n(3)]
        covers: Vec<Id>,
    },
    #[n(2)]
    Cover {
        #[n(0)]
        covers: Vec<Id>,
        #[n(1)]
        order: Option<Id>,
    },
    #[n(3)]
    Packed {
        #[n(0)]
        parts: Vec<PartRecord>,
        #[n(1)]
        remembered: Vec<RememberedRecord>,
        #[n(2)]
        zone: Option<NamedZoneRecord>,
    },
}

#[derive(Encode, Decode)]
struct PartRecord {
    #[n(0)]
    id: Id,
    #[n(1)]
    at: At,
    #[n(2)]
    origin: OwnerCode,
    #[n(3)]
    keyed: bool,
    #[n(4)]
    is_set: bool,
    #[n(5)]
    product: Id,
    #[n(6)]
    quantity: u64,
}

#[derive(Encode, Decode)]
struct RememberedRecord {
    #[n(0)]
    id: Id,
    #[n(1)]
    at: At,
}

#[derive(Encode, Decode)]
struct NamedZoneRecord {
    #[n(0)]
    zone: ZoneCode,
    #[n(1)]
    at: At,
}

impl From<&Effect> for EffectForm {
    fn from(effect: &Effect) -> Self {
        match effect {
            Effect::Add { product, quantity, zone } => {
                Self::Add { product: Id(product.0), quantity: *quantity, zone: zone.map(ZoneCode) }
            }
            Effect::Set { product, quantity, zone, covers } => Self::Set {
                product: Id(product.0),
                quantity: *quantity,
                zone: zone.map(ZoneCode),
                covers: ids(covers),
            },
            Effect::Cover { covers, order } => {
                Self::Cover { covers: ids(covers), order: order.map(|id| Id(id.0)) }
            }
            Effect::Packed(packed) => Self::Packed {
                parts: packed.parts.iter().map(PartRecord::from).collect(),
                remembered: packed
                    .remembered
                    .iter()
                    .map(|(id, at)| RememberedRecord { id: Id(id.0), at: At(*at) })
                    .collect(),
                zone: packed.zone.map(|(zone, at)| NamedZoneRecord { zone: ZoneCode(zone), at: At(at) }),
            },
        }
    }
}

impl From<EffectForm> for Effect {
    fn from(record: EffectForm) -> Self {
        match record {
            EffectForm::Add { product, quantity, zone } => {
                Self::Add { product: ProductId(product.0), quantity, zone: zone.map(|zone| zone.0) }
            }
            EffectForm::Set { product, quantity, zone, covers } => Self::Set {
                product: ProductId(product.0),
                quantity,
                zone: zone.map(|zone| zone.0),
                covers: changes(covers),
            },
            EffectForm::Cover { covers, order } => {
                Self::Cover { covers: changes(covers), order: order.map(|id| OrderId(id.0)) }
            }
            EffectForm::Packed { parts, remembered, zone } => Self::Packed(Packed {
                parts: parts.into_iter().map(Part::from).collect(),
                remembered: remembered.into_iter().map(|r| (ChangeId(r.id.0), r.at.0)).collect(),
                zone: zone.map(|named| (named.zone.0, named.at.0)),
            }),
        }
    }
}

fn ids(changes: &[ChangeId]) -> Vec<Id> {
    changes.iter().map(|id| Id(id.0)).collect()
}

fn changes(ids: Vec<Id>) -> Vec<ChangeId> {
    ids.into_iter().map(|id| ChangeId(id.0)).collect()
}

impl From<&Part> for PartRecord {
    fn from(part: &Part) -> Self {
        Self {
            id: Id(part.id.0),
            at: At(part.at),
            origin: OwnerCode(part.origin),
            keyed: part.keyed,
            is_set: part.is_set,
            product: Id(part.product.0),
            quantity: part.quantity,
        }
    }
}

impl From<PartRecord> for Part {
    fn from(record: PartRecord) -> Self {
        Self {
            id: ChangeId(record.id.0),
            at: record.at.0,
            origin: record.origin.0,
            keyed: record.keyed,
            is_set: record.is_set,
            product: ProductId(record.product.0),
            quantity: record.quantity,
        }
    }
}
