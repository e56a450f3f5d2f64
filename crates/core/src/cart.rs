//! A cart is a set of changes, each under its own id, folded when it is read.
//!
//! "Add" just adds. Setting, removing, clearing and ordering name the ids that they cover, and the fold ignores what
//! is covered. So neither clocks nor the order of arrival matter, a change that arrives twice counts once, and an
//! add that runs beside a clear survives it. Changes keep their ids when a guest's cart is merged into a user's,
//! so a merge may be repeated.

use std::collections::BTreeMap;

use crate::{
    id::{ChangeId, IdSet, OrderId, ProductId, SessionId, UserId},
    time::Timestamp,
    zone::Zone,
};

/// Changes that are stored apart before they are packed into one.
pub const UNPACKED_CHANGES_MAX: usize = 32;

/// Live changes of one cart. Every one keeps its own id for ever, so what a cart takes in a store grows with them.
/// Soft: adds that run beside each other, and a merge, which loses nothing, may go beyond it.
pub const CART_CHANGES_MAX: usize = 5_000;

/// Ids that a packed cart remembers as gone. Beyond it the oldest are forgotten before [`KEY_MEMORY_MS`] is over.
pub const REMEMBERED_IDS_MAX: usize = 4 * CART_CHANGES_MAX;

/// How long a change made under an idempotency key is remembered, so that a retry does not count again.
pub const KEY_MEMORY_MS: i64 = 25 * 3_600_000;

/// Whose cart it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    User(UserId),
    Guest(SessionId),
}

impl Owner {
    pub fn uuid(&self) -> uuid::Uuid {
        match self {
            Owner::User(id) => id.0,
            Owner::Guest(id) => id.0,
        }
    }
}

impl std::fmt::Display for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Owner::User(id) => write!(f, "user {id}"),
            Owner::Guest(id) => write!(f, "guest {id}"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CartChange {
    pub id: ChangeId,
    pub at: Timestamp,
    /// The cart it was first made in. Sets of different carts do not replace each other when the carts are merged.
    pub origin: Owner,
    /// Made under an idempotency key: may come again, even after it was packed away.
    pub keyed: bool,
    pub effect: Effect,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    Add {
        product: ProductId,
        quantity: u64,
        zone: Option<Zone>,
    },
    /// The line becomes `quantity`, whatever `covers` said; 0 removes it.
    Set {
        product: ProductId,
        quantity: u64,
        zone: Option<Zone>,
        covers: Vec<ChangeId>,
    },
    /// The covered changes are gone: cleared, or ordered.
    Cover {
        covers: Vec<ChangeId>,
        order: Option<OrderId>,
    },
    Packed(Packed),
}

/// Many changes in one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packed {
    pub parts: Vec<Part>,
    /// Ids that no longer count, should they still or again appear, and since when.
    pub remembered: Vec<(ChangeId, Timestamp)>,
    pub zone: Option<(Zone, Timestamp)>,
}

/// What one change adds to a line, under the id of that change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub id: ChangeId,
    pub at: Timestamp,
    pub origin: Owner,
    pub keyed: bool,
    pub is_set: bool,
    pub product: ProductId,
    pub quantity: u64,
}

/// What a store keeps of a cart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredCart {
    pub changes: Vec<CartChange>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// All of the cart ends here.
    pub expires_at: Timestamp,
}

/// A cart as it is seen: lines in the order in which they were first put in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CartView {
    pub lines: Vec<CartLine>,
    /// Lines of live changes that add up to nothing. Nobody is shown them, but who replaces or clears them covers them,
    /// or they would stay for ever.
    pub empty_lines: Vec<CartLine>,
    pub geo_zone: Option<Zone>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CartLine {
    pub product: ProductId,
    pub quantity: u64,
    /// The live changes that the line is made of, which is what replaces or removes it must cover.
    pub made_of: Vec<ChangeId>,
}

/// Where a page of abandoned carts ends. Longest untouched first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CartPosition {
    pub updated_at: Timestamp,
    pub is_guest: bool,
    pub owner: uuid::Uuid,
}

impl CartView {
    pub fn line(&self, product: ProductId) -> Option<&CartLine> {
        self.lines.iter().find(|line| line.product == product)
    }

    pub fn quantity(&self, product: ProductId) -> u64 {
        self.line(product).map_or(0, |line| line.quantity)
    }

    /// The live changes of a line, whether it adds up to something or not.
    pub fn made_of_line(&self, product: ProductId) -> Vec<ChangeId> {
        let line = self.lines.iter().chain(&self.empty_lines).find(|line| line.product == product);
        line.map(|line| line.made_of.clone()).unwrap_or_default()
    }

    /// All live changes of the cart.
    pub fn made_of(&self) -> Vec<ChangeId> {
        let lines = self.lines.iter().chain(&self.empty_lines);
        lines.flat_map(|line| line.made_of.iter().copied()).collect()
    }

    pub fn live_changes(&self) -> usize {
        self.lines.iter().chain(&self.empty_lines).map(|line| line.made_of.len()).sum()
    }
}

impl CartPosition {
    pub fn of(owner: Owner, updated_at: Timestamp) -> Self {
        Self { updated_at, is_guest: matches!(owner, Owner::Guest(_)), owner: owner.uuid() }
    }

    pub fn key(&self) -> (Timestamp, bool, uuid::Uuid) {
        (self.updated_at, self.is_guest, self.owner)
    }
}

/// Folds changes, in whatever order they come, to the cart they make.
pub fn fold(changes: &[CartChange]) -> CartView {
    fold_without(changes, &[])
}

/// Folds them to the cart that they make once everything in `taken` is covered.
pub fn fold_without(changes: &[CartChange], taken: &[ChangeId]) -> CartView {
    let mut live = live_parts(changes);
    if !taken.is_empty() {
        let taken: IdSet<ChangeId> = taken.iter().copied().collect();
        live.retain(|part| !taken.contains(&part.id));
    }
    let standing = standing_sets(&live);
    let mut lines = BTreeMap::<ProductId, (Timestamp, ChangeId, CartLine)>::new();
    for part in &live {
        let (first_at, first_id, line) = lines.entry(part.product).or_insert_with(|| {
            (part.at, part.id, CartLine { product: part.product, quantity: 0, made_of: Vec::new() })
        });
        if (part.at, part.id) < (*first_at, *first_id) {
            (*first_at, *first_id) = (part.at, part.id);
        }
        line.made_of.push(part.id);
        if !part.is_set || standing.get(&(part.product, part.origin)) == Some(&part.id) {
            line.quantity = line.quantity.saturating_add(part.quantity);
        }
    }
    let mut lines: Vec<_> = lines.into_values().collect();
    lines.sort_by_key(|(at, id, _)| (*at, *id));
    let lines = lines.into_iter().map(|(_, _, mut line)| {
        line.made_of.sort_unstable();
        line
    });
    let (lines, empty_lines) = lines.partition(|line| line.quantity > 0);
    CartView { lines, empty_lines, geo_zone: last_zone(changes).map(|(zone, _)| zone) }
}

/// Packs changes into one that folds to the same cart, now and together with any change to come.
///
/// What is live keeps its own id, however often and however long ago it was packed: whoever read the cart days before
/// can still cover what they saw, and a merge that meets a change packed and unpacked counts it once. That holds
/// for sets that add nothing, too: one that another outranks comes back when that one is covered, and one that removes
/// a line outranks those that are still to arrive. Whoever changes the line covers them all.
///
/// What is covered is forgotten, unless its id can come again: under its key, or because it has not arrived yet. In a
/// guest's cart every covered id is remembered, because a merge may have copied the change before it was covered.
pub fn pack(id: ChangeId, owner: Owner, changes: &[CartChange], now: Timestamp) -> CartChange {
    let parts = live_parts(changes);
    let live: IdSet<ChangeId> = parts.iter().map(|part| part.id).collect();
    let is_guest = matches!(owner, Owner::Guest(_));

    let mut known = IdSet::default();
    let mut remembered = BTreeMap::<ChangeId, Timestamp>::new();
    let mut remember = |id: ChangeId, at: Timestamp| {
        let since = remembered.entry(id).or_insert(at);
        *since = (*since).max(at);
    };
    let mut remember_dead = |id: ChangeId, at: Timestamp, keyed: bool, is_part: bool| {
        known.insert(id);
        if live.contains(&id) {
            return;
        }
        if keyed {
            remember(id, at);
        }
        if is_guest && is_part {
            remember(id, now);
        }
    };
    for change in changes {
        let is_part = matches!(change.effect, Effect::Add { .. } | Effect::Set { .. });
        remember_dead(change.id, change.at, change.keyed, is_part);
        if let Effect::Packed(packed) = &change.effect {
            packed.parts.iter().for_each(|part| remember_dead(part.id, part.at, part.keyed, true));
        }
    }
    for change in changes {
        match &change.effect {
            // What is covered but has not arrived may still arrive.
            Effect::Set { covers, .. } | Effect::Cover { covers, .. } => {
                covers.iter().filter(|id| !known.contains(id)).for_each(|id| remember(*id, now));
            }
            Effect::Packed(packed) => packed.remembered.iter().for_each(|(id, at)| remember(*id, *at)),
            Effect::Add { .. } => {}
        }
    }
    remembered.retain(|_, at| now.since(*at) < KEY_MEMORY_MS);
    let mut remembered: Vec<(ChangeId, Timestamp)> = remembered.into_iter().collect();
    if remembered.len() > REMEMBERED_IDS_MAX {
        remembered.sort_unstable_by_key(|(id, at)| (std::cmp::Reverse(*at), *id));
        remembered.truncate(REMEMBERED_IDS_MAX);
    }
    let packed = Packed { parts, remembered, zone: last_zone(changes) };
    CartChange { id, at: now, origin: owner, keyed: false, effect: Effect::Packed(packed) }
}

/// Whether a change has had its effect already, by itself or as part of a packed one.
pub fn is_known(changes: &[CartChange], id: ChangeId) -> bool {
    changes.iter().any(|change| {
        change.id == id
            || match &change.effect {
                Effect::Packed(packed) => {
                    packed.parts.iter().any(|part| part.id == id)
                        || packed.remembered.iter().any(|(gone, _)| *gone == id)
                }
                _ => false,
            }
    })
}

/// What the change with this id added to which line, while it is live or unpacked.
pub fn added_by(changes: &[CartChange], id: ChangeId) -> Option<(ProductId, u64)> {
    changes.iter().find_map(|change| match &change.effect {
        Effect::Add { product, quantity, .. } if change.id == id => Some((*product, *quantity)),
        Effect::Packed(packed) => {
            packed.parts.iter().find(|part| part.id == id).map(|part| (part.product, part.quantity))
        }
        _ => None,
    })
}

/// Whether all that changes of another cart bring is known here, and nothing that they cover is live.
pub fn has_arrived(changes: &[CartChange], brought: &[CartChange]) -> bool {
    let live: IdSet<ChangeId> = live_parts(changes).iter().map(|part| part.id).collect();
    let mut known = live.clone();
    for change in changes {
        known.insert(change.id);
        if let Effect::Packed(packed) = &change.effect {
            known.extend(packed.parts.iter().map(|part| part.id));
            known.extend(packed.remembered.iter().map(|(id, _)| *id));
        }
    }
    brought.iter().all(|change| match &change.effect {
        Effect::Packed(packed) => {
            packed.parts.iter().all(|part| known.contains(&part.id))
                && !packed.remembered.iter().any(|(id, _)| live.contains(id))
        }
        Effect::Set { covers, .. } | Effect::Cover { covers, .. } => {
            known.contains(&change.id) && !covers.iter().any(|id| live.contains(id))
        }
        Effect::Add { .. } => known.contains(&change.id),
    })
}

/// Per line and origin: of several sets that did not know each other one stands, and adds come on top.
fn standing_sets(live: &[Part]) -> BTreeMap<(ProductId, Owner), ChangeId> {
    let mut standing = BTreeMap::new();
    for part in live.iter().filter(|part| part.is_set) {
        let greatest = standing.entry((part.product, part.origin)).or_insert(part.id);
        *greatest = (*greatest).max(part.id);
    }
    standing
}

/// A guest's changes as they go into the user's cart: under their own ids, and remembered from the time of the merge
/// on, so that looking at the guest's cart once more adds nothing twice.
///
/// What the guest has replaced or taken out stays behind, and only that it is covered goes along: as the change that
/// covers it, or, where the cart was packed, as an id that it remembers. So it does not matter in which looks the cart was
/// packed, nor whether a look copied what was covered later.
pub fn for_merge(changes: &[CartChange], merged_at: Timestamp) -> Vec<CartChange> {
    let zone_named_last = last_zone(changes);
    let live: IdSet<ChangeId> = live_parts(changes).iter().map(|part| part.id).collect();
    let is_left = |change: &&CartChange| match &change.effect {
        Effect::Add { .. } => live.contains(&change.id),
        _ => true,
    };
    let mut changes: Vec<CartChange> = changes.iter().filter(is_left).cloned().collect();
    for change in &mut changes {
        if let Effect::Set { covers, .. } = &mut change.effect
            && !live.contains(&change.id)
        {
            change.effect = Effect::Cover { covers: std::mem::take(covers), order: None };
        }
        if let Effect::Add { zone, .. } | Effect::Set { zone, .. } = &mut change.effect
            && zone.map(|zone| (zone, change.at)) != zone_named_last
        {
            *zone = None;
        }
        change.keyed = true;
        change.at = merged_at;
        if let Effect::Packed(packed) = &mut change.effect {
            packed.parts.retain(|part| live.contains(&part.id));
            for part in &mut packed.parts {
                part.keyed = true;
                part.at = merged_at;
            }
        }
    }
    changes
}

fn live_parts(changes: &[CartChange]) -> Vec<Part> {
    // A change counts once, however often it is there.
    let mut seen = IdSet::default();
    let mut parts = Vec::with_capacity(changes.len());
    let mut take = |part: Part| {
        if seen.insert(part.id) {
            parts.push(part);
        }
    };
    for change in changes {
        let part = |product, quantity, is_set| Part {
            id: change.id,
            at: change.at,
            origin: change.origin,
            keyed: change.keyed,
            is_set,
            product,
            quantity,
        };
        match &change.effect {
            Effect::Add { product, quantity, .. } => take(part(*product, *quantity, false)),
            Effect::Set { product, quantity, .. } => take(part(*product, *quantity, true)),
            Effect::Packed(packed) => packed.parts.iter().for_each(|part| take(*part)),
            Effect::Cover { .. } => {}
        }
    }
    // A cart remembers far more ids than it has parts, so what is covered is looked up among the parts, not collected.
    let mut live = seen;
    for change in changes {
        match &change.effect {
            Effect::Set { covers, .. } | Effect::Cover { covers, .. } => {
                for id in covers {
                    live.remove(id);
                }
            }
            Effect::Packed(packed) => {
                for (id, _) in &packed.remembered {
                    live.remove(id);
                }
            }
            Effect::Add { .. } => {}
        }
    }
    parts.retain(|part| live.contains(&part.id));
    parts
}

/// The zone that was named last.
fn last_zone(changes: &[CartChange]) -> Option<(Zone, Timestamp)> {
    changes
        .iter()
        .filter_map(|change| match &change.effect {
            Effect::Add { zone, .. } | Effect::Set { zone, .. } => zone.map(|zone| (zone, change.at)),
            Effect::Packed(packed) => packed.zone,
            Effect::Cover { .. } => None,
        })
        .max_by_key(|(zone, at)| (*at, *zone))
}

#[cfg(test)]
mod tests;
