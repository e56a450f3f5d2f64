//! A cart is a set of changes, each under its own id, folded when it is read.
//!
//! "Add" just adds. Setting, removing, clearing and ordering name the ids that they cover, and the fold ignores what
//! is covered. So neither clocks nor the order of arrival matter, a change that arrives twice counts once, and an
//! add that runs beside a clear survives it. Changes keep their ids when a guest's cart is merged into a user's,
//! so a merge may be repeated.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use crate::{
    id::{ChangeId, OrderId, ProductId, SessionId, UserId},
    time::Timestamp,
    zone::Zone,
};

/// Changes that are stored apart before they are packed into one.
pub const UNPACKED_CHANGES_MAX: usize = 32;

/// How long a packed change keeps the ids of its parts, so that whoever read the cart before it was packed (a set, a
/// checkout) can still name them. Far longer than any request takes.
pub const PART_IDENTITY_MS: i64 = 600_000;

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
pub fn fold(changes: &[CartChange]) -> CartView {
    let live = live_parts(changes);
    // Per line and origin: of several sets that did not know each other one stands, and adds come on top.
    let mut standing_sets = BTreeMap::<(ProductId, Owner), ChangeId>::new();
    for part in live.iter().filter(|part| part.is_set) {
        let standing = standing_sets.entry((part.product, part.origin)).or_insert(part.id);
        *standing = (*standing).max(part.id);
    }
    let mut lines = BTreeMap::<ProductId, (Timestamp, ChangeId, CartLine)>::new();
    for part in &live {
        let (first_at, first_id, line) = lines.entry(part.product).or_insert_with(|| {
            (part.at, part.id, CartLine { product: part.product, quantity: 0, made_of: Vec::new() })
        });
        if (part.at, part.id) < (*first_at, *first_id) {
            (*first_at, *first_id) = (part.at, part.id);
        }
        line.made_of.push(part.id);
        if !part.is_set || standing_sets.get(&(part.product, part.origin)) == Some(&part.id) {
            line.quantity = line.quantity.saturating_add(part.quantity);
        }
    }
    let mut lines: Vec<_> = lines.into_values().filter(|(_, _, line)| line.quantity > 0).collect();
    lines.sort_by_key(|(at, id, _)| (*at, *id));
    let mut lines: Vec<CartLine> = lines.into_iter().map(|(_, _, line)| line).collect();
    for line in &mut lines {
        line.made_of.sort_unstable();
    }
    CartView { lines, geo_zone: last_zone(changes).map(|(zone, _)| zone) }
}

/// Packs changes into one that folds to the same cart, now and together with any change to come.
pub fn pack(id: ChangeId, owner: Owner, changes: &[CartChange], now: Timestamp) -> CartChange {
    let live = live_parts(changes);
    let mut known = HashSet::new();
    for change in changes {
        known.insert(change.id);
        if let Effect::Packed(packed) = &change.effect {
            known.extend(packed.parts.iter().map(|part| part.id));
        }
    }
    let live_ids: HashSet<ChangeId> = live.iter().map(|part| part.id).collect();

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

    // Parts that nobody can name any more become one part a line.
    let mut parts = Vec::new();
    let mut nameless = BTreeMap::<ProductId, (Timestamp, u64)>::new();
    let standing = fold(changes);
    let standing_sets: BTreeSet<ChangeId> = {
        let mut sets = BTreeMap::<(ProductId, Owner), ChangeId>::new();
        for part in live.iter().filter(|part| part.is_set) {
            let set = sets.entry((part.product, part.origin)).or_insert(part.id);
            *set = (*set).max(part.id);
        }
        sets.into_values().collect()
    };
    for part in &live {
        if part.is_set && !standing_sets.contains(&part.id) {
            continue;
        }
        let memory_ms = if part.keyed { KEY_MEMORY_MS } else { PART_IDENTITY_MS };
        // A guest's cart may be merged into a user's any time, twice if need be, so its parts stay who they are.
        if matches!(owner, Owner::Guest(_)) || now.since(part.at) < memory_ms {
            parts.push(*part);
        } else if standing.quantity(part.product) > 0 {
            let (at, quantity) = nameless.entry(part.product).or_insert((part.at, 0));
            *at = (*at).min(part.at);
            *quantity = quantity.saturating_add(part.quantity);
        }
    }
    for (product, (at, quantity)) in nameless.into_iter().filter(|(_, (_, quantity))| *quantity > 0) {
        let id = ChangeId(crate::id::derived("cart-packed", &[id.as_bytes(), product.as_bytes()]));
        parts.push(Part { id, at, origin: owner, keyed: false, is_set: false, product, quantity });
    }
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

/// A guest's changes as they go into the user's cart: under their own ids, and remembered from the time of the merge
/// on, so that looking at the guest's cart once more adds nothing twice.
pub fn for_merge(changes: &[CartChange], merged_at: Timestamp) -> Vec<CartChange> {
    let mut changes = changes.to_vec();
    for change in &mut changes {
        change.keyed = true;
        change.at = merged_at;
        if let Effect::Packed(packed) = &mut change.effect {
            for part in &mut packed.parts {
                part.keyed = true;
                part.at = merged_at;
            }
        }
    }
    changes
}

fn live_parts(changes: &[CartChange]) -> Vec<Part> {
    let mut covered = HashSet::new();
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
    // An id that has been seen, too, is covered: a change counts once, however often it is there.
    let mut take = |part: Part| {
        if covered.insert(part.id) {
            live.push(part);
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
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    fn owner() -> Owner {
        Owner::User(UserId(Uuid::from_u128(1)))
    }

    fn change(id: u128, effect: Effect) -> CartChange {
        CartChange {
            id: ChangeId(Uuid::from_u128(id)),
            at: Timestamp::from_millis(id as i64),
            origin: owner(),
            keyed: false,
            effect,
        }
    }

    fn add(id: u128, product: u128, quantity: u64) -> CartChange {
        change(id, Effect::Add { product: ProductId(Uuid::from_u128(product)), quantity, zone: None })
    }

    fn quantities(changes: &[CartChange]) -> Vec<(u128, u64)> {
        let mut lines: Vec<_> =
            fold(changes).lines.iter().map(|line| (line.product.0.as_u128(), line.quantity)).collect();
        lines.sort_unstable();
        lines
    }

    #[test]
    fn an_add_beside_a_clear_survives_it() {
        let seen = [add(1, 7, 2), add(2, 8, 1)];
        let clear = change(4, Effect::Cover { covers: fold(&seen).made_of(), order: None });
        let beside = add(3, 7, 5);
        assert_eq!(quantities(&[clear, seen[0].clone(), beside, seen[1].clone()]), [(7, 5)]);
    }

    #[test]
    fn sets_of_one_cart_replace_each_other_and_of_two_carts_add_up() {
        let product = ProductId(Uuid::from_u128(7));
        let set = |id, quantity| change(id, Effect::Set { product, quantity, zone: None, covers: vec![] });
        assert_eq!(quantities(&[set(1, 5), set(2, 3)]), [(7, 3)]);
        let mut guests = set(3, 4);
        guests.origin = Owner::Guest(SessionId(Uuid::from_u128(2)));
        assert_eq!(quantities(&[set(1, 5), set(2, 3), guests]), [(7, 7)]);
    }

    #[test]
    fn a_retry_of_a_packed_and_cleared_add_does_not_count_again() {
        let mut keyed = add(1, 7, 2);
        keyed.keyed = true;
        let clear = change(2, Effect::Cover { covers: vec![keyed.id], order: None });
        let packed =
            pack(ChangeId(Uuid::from_u128(9)), owner(), &[keyed.clone(), clear], Timestamp::from_millis(10));
        assert!(is_known(std::slice::from_ref(&packed), keyed.id));
        assert_eq!(quantities(&[packed, keyed]), []);
    }

    /// What people do to a cart, each knowing some of what was done before.
    fn history() -> impl Strategy<Value = Vec<CartChange>> {
        let step = (0..4u8, 1..4u128, 1..5u64, any::<u64>(), any::<bool>(), any::<bool>());
        proptest::collection::vec(step, 1..24).prop_map(|steps| {
            let mut changes: Vec<CartChange> = Vec::new();
            for (index, (step, product, quantity, seen, keyed, guest)) in steps.into_iter().enumerate() {
                let id = index as u128 + 1;
                let seen: Vec<CartChange> = changes
                    .iter()
                    .enumerate()
                    .filter(|(at, _)| seen >> (at % 64) & 1 == 1)
                    .map(|(_, c)| c.clone())
                    .collect();
                let view = fold(&seen);
                let product_id = ProductId(Uuid::from_u128(product));
                let covers = view.line(product_id).map(|line| line.made_of.clone()).unwrap_or_default();
                let mut next = match step {
                    0 | 1 => add(id, product, quantity),
                    2 => change(
                        id,
                        Effect::Set { product: product_id, quantity: quantity - 1, zone: None, covers },
                    ),
                    _ => change(id, Effect::Cover { covers: view.made_of(), order: None }),
                };
                next.keyed = keyed;
                if guest {
                    next.origin = Owner::Guest(SessionId(Uuid::from_u128(5)));
                }
                changes.push(next);
            }
            changes
        })
    }

    proptest! {
        /// CRT-1: neither the order of arrival nor a repeated arrival matters.
        #[test]
        fn the_fold_knows_no_order(changes in history(), shuffled in any::<u64>()) {
            let mut again = changes.clone();
            let length = again.len();
            for at in 0..length {
                again.swap(at, (shuffled.rotate_left(at as u32) as usize) % length);
            }
            again.extend(changes.iter().take(length / 2).cloned());
            prop_assert_eq!(quantities(&changes), quantities(&again));
        }

        /// Packing any part of a history, at any time, changes nothing: not now, and not with all that follows,
        /// including changes that were made in view of the unpacked cart.
        #[test]
        fn packing_changes_nothing(changes in history(), at in 0..24usize, old in any::<bool>()) {
            let at = at.min(changes.len());
            let now = Timestamp::from_millis(if old { PART_IDENTITY_MS + KEY_MEMORY_MS } else { 100 });
            let packed = pack(ChangeId(Uuid::from_u128(999)), owner(), &changes[..at], now);
            prop_assert_eq!(quantities(&changes[..at]), quantities(std::slice::from_ref(&packed)));
            if !old {
                let mut mixed = vec![packed];
                mixed.extend(changes[at..].iter().cloned());
                prop_assert_eq!(quantities(&changes), quantities(&mixed));
                // Retries of keyed changes arrive once more.
                mixed.extend(changes.iter().filter(|c| c.keyed).cloned());
                prop_assert_eq!(quantities(&changes), quantities(&mixed));
            }
        }
    }
}
