//! What a cart is, from its rows. Pure.

use std::collections::BTreeMap;

use mobimir_core::{
    cart::{self, CartChange, Owner, StoredCart},
    id::ChangeId,
    moving::WholeCart,
    time::{Timestamp, Version},
};
use uuid::Uuid;

use super::{kept_until, rows::StoredRow};

/// The rows of one cart, and those left of carts of the same owner that have ended.
#[derive(Clone, Debug)]
pub struct Gathered {
    /// In the order in which the cart was touched.
    current: Vec<StoredRow>,
    ended: Vec<StoredRow>,
    packed_id: Option<ChangeId>,
}

/// How new a cart is. It grows with every row that arrives, whatever the stamps of the writers say: an earlier stamp than
/// one that is there still is one row more. Packing takes both along, so it changes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Age {
    latest: i64,
    rows: i64,
}

/// How to pack a cart.
#[derive(Debug, PartialEq, Eq)]
pub struct Plan {
    /// The packed row that was there.
    pub expected: Option<ChangeId>,
    pub packed: CartChange,
    pub touched_at: Timestamp,
    pub expires_at: Timestamp,
    pub created_at: Timestamp,
    pub version: i64,
    pub rows: i64,
    pub removed: Vec<(Uuid, i64)>,
}

impl StoredRow {
    /// When its cart was there at the latest.
    fn began_at(&self) -> Timestamp {
        self.created_at.unwrap_or(self.touched_at)
    }
}

impl Age {
    /// With what these rows add, each of which is there once.
    fn with<'a>(self, rows: impl Iterator<Item = &'a (Uuid, i64)>) -> Self {
        rows.fold(self, |age, (_, written_us)| Self {
            latest: age.latest.max(*written_us),
            rows: age.rows + 1,
        })
    }
}

impl Gathered {
    pub fn of(mut rows: Vec<StoredRow>) -> Self {
        let packed_id =
            rows.iter().find(|row| row.is_packed()).and_then(|row| row.change.as_ref()).map(|c| c.id);
        rows.sort_by_key(|row| (row.began_at(), !row.is_packed(), row.written_us));
        // A cart that had ended when it was touched began anew then.
        let mut began = 0;
        let mut ends_at: Option<Timestamp> = None;
        for (at, row) in rows.iter().enumerate() {
            match ends_at {
                Some(end) if row.began_at() < end => ends_at = Some(end.max(row.expires_at)),
                _ => (began, ends_at) = (at, Some(row.expires_at)),
            }
        }
        let current = rows.split_off(began);
        Self { current, ended: rows, packed_id }
    }

    fn times(&self) -> Option<(Timestamp, Timestamp, Timestamp)> {
        let created_at = self.current.iter().map(StoredRow::began_at).min()?;
        let updated_at = self.current.iter().map(|row| row.touched_at).max()?;
        let expires_at = self.current.iter().map(|row| row.expires_at).max()?;
        Some((created_at, updated_at, expires_at))
    }

    pub fn live(self, now: Timestamp) -> Option<StoredCart> {
        self.cart().filter(|cart| cart.expires_at > now)
    }

    fn cart(self) -> Option<StoredCart> {
        let (created_at, updated_at, expires_at) = self.times()?;
        Some(StoredCart { changes: changes(self.current), created_at, updated_at, expires_at })
    }

    /// The cart with its version, whether it has ended or not.
    pub fn whole(self, owner: Owner) -> Option<WholeCart> {
        let version = self.version();
        Some(WholeCart { owner, cart: self.cart()?, version })
    }

    pub fn version(&self) -> Version {
        let Age { latest, rows } = self.packed_age().with(self.unpacked().iter());
        Version(latest.saturating_add(rows).cast_unsigned())
    }

    fn packed_age(&self) -> Age {
        let packed = self.rows().find(|row| row.is_packed());
        packed.map_or(Age::default(), |row| Age { latest: row.version, rows: row.rows })
    }

    fn rows(&self) -> impl Iterator<Item = &StoredRow> {
        self.current.iter().chain(&self.ended)
    }

    /// The keys of all rows that hold one change each.
    pub fn unpacked(&self) -> Vec<(Uuid, i64)> {
        let single = self.rows().filter(|row| !row.is_packed());
        single.map(|row| (row.id, row.written_us)).collect()
    }

    pub fn packed_id(&self) -> Option<ChangeId> {
        self.packed_id
    }

    /// How to make the cart what a copy says, whatever it was.
    pub fn replacement(&self, copy: &WholeCart, now: Timestamp, packed_id: ChangeId) -> Plan {
        let WholeCart { owner, cart, version } = copy;
        let packed = cart::pack(packed_id, *owner, &cart.changes, now);
        Plan {
            expected: self.packed_id,
            packed,
            touched_at: cart.updated_at,
            expires_at: cart.expires_at,
            created_at: cart.created_at,
            version: version.0.cast_signed(),
            rows: 0,
            removed: self.unpacked(),
        }
    }

    /// Whether there are too many rows, or one would be gone before the cart is.
    pub fn is_to_be_packed(&self, rows_max: usize, settled_us: i64, now: Timestamp) -> bool {
        let Some((_, _, expires_at)) = self.times().filter(|(_, _, expires_at)| *expires_at > now) else {
            return false;
        };
        let settled = |row: &&StoredRow| !row.is_packed() && row.written_us <= settled_us;
        let many = self.rows().filter(settled).count() > rows_max;
        let short_lived = |row: &StoredRow| {
            (row.is_packed() || settled(&row)) && kept_until(row.touched_at, row.expires_at) < expires_at
        };
        many || self.current.iter().any(short_lived)
    }

    /// Packs what was written before `settled_us`, the oldest first.
    pub fn plan(
        &self,
        owner: Owner,
        settled_us: i64,
        rows_max: usize,
        now: Timestamp,
        packed_id: ChangeId,
    ) -> Option<Plan> {
        let (created_at, _, expires_at) = self.times()?;
        let settled = |row: &&StoredRow| row.is_packed() || row.written_us <= settled_us;
        let mut taken: Vec<StoredRow> = self.current.iter().filter(settled).take(rows_max).cloned().collect();
        // All rows of a change go together, or the one that is left would count as another.
        let left = |row: &&StoredRow| {
            !taken.iter().any(|taken| taken.id == row.id && taken.written_us == row.written_us)
        };
        let torn: Vec<Uuid> = self.current.iter().filter(left).map(|row| row.id).collect();
        taken.retain(|row| row.is_packed() || !torn.contains(&row.id));
        let touched_at = taken.iter().map(|row| row.touched_at).max()?;
        let removed: Vec<(Uuid, i64)> = taken
            .iter()
            .chain(self.ended.iter().filter(|row| settled(row)).take(rows_max))
            .filter(|row| !row.is_packed())
            .map(|row| (row.id, row.written_us))
            .collect();
        let packed = cart::pack(packed_id, owner, &changes(taken), now);
        let Age { latest, rows } = self.packed_age().with(removed.iter());
        Some(Plan {
            expected: self.packed_id,
            packed,
            touched_at,
            expires_at,
            created_at,
            version: latest,
            rows,
            removed,
        })
    }
}

/// Each change once: of several rows with the same id the one that was written first.
fn changes(rows: Vec<StoredRow>) -> Vec<CartChange> {
    let mut first = BTreeMap::<Uuid, usize>::new();
    for (at, row) in rows.iter().enumerate() {
        let earliest = first.entry(row.id).or_insert(at);
        if row.written_us < rows[*earliest].written_us {
            *earliest = at;
        }
    }
    let is_first = |at: usize, row: &StoredRow| first.get(&row.id) == Some(&at);
    rows.into_iter()
        .enumerate()
        .filter(|(at, row)| is_first(*at, row))
        .filter_map(|(_, row)| row.change)
        .collect()
}

#[cfg(test)]
mod tests {
    use mobimir_core::{
        cart::{Effect, fold},
        id::{ProductId, UserId},
    };
    use proptest::prelude::*;

    use super::*;

    const PACKED: ChangeId = ChangeId(Uuid::from_u128(99));
    const OWNER: Owner = Owner::User(UserId(Uuid::from_u128(1)));

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(1_000_000_000 + ms)
    }

    fn row(id: u128, touched_ms: i64, lasts_ms: i64, quantity: u64) -> StoredRow {
        let effect = Effect::Add { product: ProductId(Uuid::from_u128(7)), quantity, zone: None };
        let change = CartChange {
            id: ChangeId(Uuid::from_u128(id)),
            at: at(touched_ms),
            origin: OWNER,
            keyed: true,
            effect,
        };
        StoredRow {
            id: Uuid::from_u128(id),
            written_us: touched_ms,
            touched_at: at(touched_ms),
            expires_at: at(touched_ms + lasts_ms),
            change: Some(change),
            created_at: None,
            version: 0,
            rows: 0,
        }
    }

    fn packed_row(plan: Plan) -> StoredRow {
        StoredRow {
            id: Uuid::nil(),
            written_us: 0,
            touched_at: plan.touched_at,
            expires_at: plan.expires_at,
            created_at: Some(plan.created_at),
            change: Some(plan.packed),
            version: plan.version,
            rows: plan.rows,
        }
    }

    fn quantity(rows: Vec<StoredRow>, now_ms: i64) -> Option<u64> {
        let cart = Gathered::of(rows).live(at(now_ms))?;
        Some(fold(&cart.changes).quantity(ProductId(Uuid::from_u128(7))))
    }

    #[test]
    fn a_cart_that_ended_begins_anew() {
        let rows = vec![row(1, 0, 100, 1), row(2, 99, 100, 2), row(3, 199, 50, 4), row(1, 200, 50, 8)];
        // The second came just in time, the third when the cart had ended.
        assert_eq!(quantity(rows.clone(), 201), Some(12));
        assert_eq!(quantity(rows[..2].to_vec(), 198), Some(3));
        assert_eq!(quantity(rows, 250), None);
    }

    #[test]
    fn of_two_rows_of_one_change_the_first_counts() {
        assert_eq!(quantity(vec![row(1, 5, 100, 8), row(1, 3, 100, 1)], 50), Some(1));
    }

    proptest! {
        /// Whatever was settled when somebody packed, and whatever arrives later, the cart is the same.
        #[test]
        fn packing_changes_nothing(
            rows in proptest::collection::vec((1..30u128, 0..1_000i64, 1..9u64), 1..60),
            settled_us in 0..1_000i64,
            rows_max in 1..40usize,
        ) {
            let mut stored: Vec<StoredRow> = Vec::new();
            for (id, touched_ms, quantity) in rows {
                if !stored.iter().any(|row| row.id == Uuid::from_u128(id) && row.written_us == touched_ms) {
                    stored.push(row(id, touched_ms, 10_000, quantity));
                }
            }
            let expected = quantity(stored.clone(), 1_000);
            let gathered = Gathered::of(stored.clone());
            if let Some(plan) = gathered.plan(OWNER, settled_us, rows_max, at(1_000), PACKED) {
                stored.retain(|row| !plan.removed.contains(&(row.id, row.written_us)));
                // Somebody adds meanwhile, and with a late clock.
                let others = [row(1_000, 1_500, 10_000, 0), row(1_001, 1, 10_000, 0)];
                let mut unpacked = stored.clone();
                unpacked.extend(gathered.rows().filter(|row| plan.removed.contains(&(row.id, row.written_us))).cloned());
                let versions = |rows: &[StoredRow]| {
                    let with = |others: &[StoredRow]| Gathered::of([rows, others].concat()).version();
                    [with(&[]), with(&others[..1]), with(&others[1..]), with(&others)]
                };
                let before = versions(&unpacked);
                prop_assert!(before[0] < before[1] && before[0] < before[2] && before[1] < before[3]);
                stored.push(packed_row(plan));
                prop_assert_eq!(versions(&stored), before);
                prop_assert_eq!(quantity(stored, 1_000), expected);
            }
        }
    }

    #[test]
    fn a_copy_replaces_whatever_was_there() {
        let rows = vec![row(1, 0, 100, 1), row(2, 50, 100, 2), row(3, 900, 100, 4)];
        let copied = Gathered::of(vec![row(8, 800, 500, 5), row(9, 910, 700, 6)]).cart().unwrap();
        let copy = WholeCart { owner: OWNER, cart: copied.clone(), version: Version(77_777) };
        let plan = Gathered::of(rows).replacement(&copy, at(1_000), PACKED);
        assert_eq!(plan.removed.len(), 3);
        let whole = Gathered::of(vec![packed_row(plan)]).whole(OWNER).unwrap();
        assert_eq!((whole.version, whole.cart.created_at), (copy.version, copied.created_at));
        assert_eq!((whole.cart.updated_at, whole.cart.expires_at), (copied.updated_at, copied.expires_at));
        assert_eq!(fold(&whole.cart.changes), fold(&copied.changes));
    }
}
