//! A cart is a set of changes, each under its own id, folded when it is read.
//!
//! "Add" just adds. Setting, removing, clearing and ordering name the ids that they cover, and the fold ignores what
//! is covered. So neither clocks nor the order of arrival matter, a change that arrives twice counts once, and an
//! add that runs beside a clear survives it. Changes keep their ids when a guest's cart is merged into a user's,
//! so a merge may be repeated.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    id::{ChangeId, IdSet, OrderId, ProductId, SessionId, UserId},
    time::Timestamp,
    zone::Zone,
};

/// Changes that are stored apart before they are packed into one.
pub const UNPACKED_CHANGES_MAX: usize = 32;

/// How long packed parts keep their own ids after the id of the group they will become has been announced, so that
/// whoever read the cart before (a set, a checkout) can still name them. Far longer than any request takes.
pub const PART_IDENTITY_MS: i64 = 120_000;

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

/// What one change adds to a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub id: ChangeId,
    /// What it will be part of, and since when everybody who reads the cart is told so.
    pub group: Option<(ChangeId, Timestamp)>,
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

    pub fn made_of(&self) -> Vec<ChangeId> {
        self.lines.iter().flat_map(|line| line.made_of.iter().copied()).collect()
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
///
/// A line whose parts will become a group is made of the group, too: who covers the line covers it under either name.
pub fn fold(changes: &[CartChange]) -> CartView {
    let live = live_parts(changes);
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
        line.made_of.extend(part.group.map(|(group, _)| group));
        if !part.is_set || standing.get(&(part.product, part.origin)) == Some(&part.id) {
            line.quantity = line.quantity.saturating_add(part.quantity);
        }
    }
    let mut lines: Vec<_> = lines.into_values().filter(|(_, _, line)| line.quantity > 0).collect();
    lines.sort_by_key(|(at, id, _)| (*at, *id));
    let mut lines: Vec<CartLine> = lines.into_iter().map(|(_, _, line)| line).collect();
    for line in &mut lines {
        line.made_of.sort_unstable();
        line.made_of.dedup();
    }
    CartView { lines, geo_zone: last_zone(changes).map(|(zone, _)| zone) }
}

/// Packs changes into one that folds to the same cart, now and together with any change to come.
pub fn pack(id: ChangeId, owner: Owner, changes: &[CartChange], now: Timestamp) -> CartChange {
    let live = live_parts(changes);
    let mut known = IdSet::default();
    for change in changes {
        known.insert(change.id);
        if let Effect::Packed(packed) = &change.effect {
            known.extend(packed.parts.iter().map(|part| part.id));
        }
    }
    let live_ids: IdSet<ChangeId> = live.iter().map(|part| part.id).collect();

    let mut remembered = BTreeMap::<ChangeId, Timestamp>::new();
    let mut remember = |id: ChangeId, at: Timestamp| {
        let since = remembered.entry(id).or_insert(at);
        *since = (*since).max(at);
    };
    for change in changes {
        match &change.effect {
            // What is covered but has not arrived may still arrive.
            Effect::Set { covers, .. } | Effect::Cover { covers, .. } => {
                covers.iter().filter(|id| !known.contains(id)).for_each(|id| remember(*id, change.at));
            }
            Effect::Packed(packed) => {
                packed.remembered.iter().for_each(|(id, at)| remember(*id, *at));
                let dead_keyed =
                    packed.parts.iter().filter(|part| part.keyed && !live_ids.contains(&part.id));
                dead_keyed.for_each(|part| remember(part.id, part.at));
            }
            Effect::Add { .. } => {}
        }
        if change.keyed && !live_ids.contains(&change.id) {
            remember(change.id, change.at);
        }
    }
    remembered.retain(|_, at| now.since(*at) < KEY_MEMORY_MS);

    // In two steps, so that nobody is left with a name that means nothing: first a part is told which group it will
    // become, and keeps its own id beside it; when all who read the cart before must be done, the group is one part.
    // What was made under a key keeps its own id as long as the key is remembered: whoever has the key can name the change
    // without having read the cart. Its group waits for it, and so does a line with such a set: which of several sets stands
    // must follow from all of them.
    let standing = standing_sets(&live);
    let keeps_id = |part: &Part| part.keyed && now.since(part.at) < KEY_MEMORY_MS;
    let mut waiting_groups = IdSet::<ChangeId>::default();
    let mut waiting_lines = BTreeSet::<ProductId>::new();
    for part in live.iter().filter(|part| keeps_id(part)) {
        waiting_groups.extend(part.group.map(|(group, _)| group));
        waiting_lines.extend(part.is_set.then_some(part.product));
    }
    let is_waiting = |part: &Part, group: ChangeId| {
        waiting_groups.contains(&group) || waiting_lines.contains(&part.product)
    };
    let mut parts = Vec::new();
    let mut grown_together = BTreeMap::<ChangeId, Part>::new();
    for part in &live {
        match part.group {
            Some((group, announced_at))
                if now.since(announced_at) >= PART_IDENTITY_MS && !is_waiting(part, group) =>
            {
                let counts = !part.is_set || standing.get(&(part.product, part.origin)) == Some(&part.id);
                let quantity = if counts { part.quantity } else { 0 };
                let whole = grown_together.entry(group).or_insert(Part {
                    id: group,
                    group: None,
                    at: part.at,
                    origin: owner,
                    keyed: false,
                    is_set: false,
                    product: part.product,
                    quantity: 0,
                });
                whole.at = whole.at.min(part.at);
                whole.quantity = whole.quantity.saturating_add(quantity);
            }
            Some(_) => parts.push(*part),
            None if keeps_id(part) => parts.push(*part),
            None => {
                let group =
                    ChangeId(crate::id::derived("cart-packed", &[id.as_bytes(), part.product.as_bytes()]));
                parts.push(Part { group: Some((group, now)), ..*part });
            }
        }
    }
    parts.extend(grown_together.into_values().filter(|part| part.quantity > 0));
    let packed = Packed { parts, remembered: remembered.into_iter().collect(), zone: last_zone(changes) };
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

/// What the change with this id added to which line, as far as that is still told apart.
pub fn added_by(changes: &[CartChange], id: ChangeId) -> Option<(ProductId, u64)> {
    changes.iter().find_map(|change| match &change.effect {
        Effect::Add { product, quantity, .. } if change.id == id => Some((*product, *quantity)),
        Effect::Packed(packed) => {
            packed.parts.iter().find(|part| part.id == id).map(|part| (part.product, part.quantity))
        }
        _ => None,
    })
}

/// Whether all that a change of another cart brings is known here.
pub fn has_arrived(changes: &[CartChange], brought: &CartChange) -> bool {
    match &brought.effect {
        Effect::Packed(packed) => packed.parts.iter().all(|part| is_known(changes, part.id)),
        _ => is_known(changes, brought.id),
    }
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
/// What the guest has replaced or taken out stays behind, and only that it is covered goes along. Where the cart was packed
/// it is forgotten, so whoever looks there first and then where it was not would take it for something new, and leave
/// out what covers it as known.
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
    let mut covered = IdSet::default();
    for change in changes {
        match &change.effect {
            Effect::Set { covers, .. } | Effect::Cover { covers, .. } => {
                covered.extend(covers.iter().copied())
            }
            Effect::Packed(packed) => covered.extend(packed.remembered.iter().map(|(id, _)| *id)),
            Effect::Add { .. } => {}
        }
    }
    let mut live = Vec::with_capacity(changes.len());
    let grouped_away = |part: &Part, covered: &IdSet<ChangeId>| {
        part.group.is_some_and(|(group, _)| covered.contains(&group))
    };
    // An id that has been seen, too, is covered: a change counts once, however often it is there.
    let mut take = |part: Part| {
        if !grouped_away(&part, &covered) && covered.insert(part.id) {
            live.push(part);
        }
    };
    for change in changes {
        let part = |product, quantity, is_set| Part {
            id: change.id,
            group: None,
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
    live
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
