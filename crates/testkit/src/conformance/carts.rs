//! Carts: changes that all count, once, until the cart expires.
//!
//! A store may pack changes and the model does not, so carts are compared by what they fold to, with the ids that lines
//! are made of: packing renames nothing and forgets nothing that is live, so whoever read a cart at any time before can
//! still name what they saw.

mod examples;
mod races;

use std::collections::BTreeMap;

use mobimir_core::{
    cart::{self, CartChange, CartView, Effect, KEY_MEMORY_MS, Owner, StoredCart},
    id::{ChangeId, OrderId, ProductId},
    ports::Stores,
    time::Timestamp,
    zone::Zone,
};
use proptest::{option, prelude::*, sample};

use super::{
    Suite,
    arena::{Bench, CaseClock, Universe, zone},
    check::{Checked, Failure, answered, pages, race, same},
};
use crate::strategies;

const USERS: usize = 2;
const OWNERS: usize = 4;
const PRODUCTS: usize = 3;
const KEYS: usize = 6;

const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 60 * MINUTE_MS;
const DAY_MS: i64 = 24 * HOUR_MS;

#[derive(Clone, Debug)]
enum Step {
    Wait {
        ms: i64,
    },
    Add {
        owner: usize,
        product: usize,
        quantity: u64,
        zone: Option<usize>,
        ttl_ms: i64,
    },
    /// Many small ones in one call, so that stores come to pack.
    AddMany {
        owner: usize,
        count: usize,
    },
    /// Under an idempotency key, so it may be a repetition. What is added follows from the key.
    AddKeyed {
        owner: usize,
        key: usize,
        ttl_ms: i64,
    },
    /// Covers what is added under a key, perhaps before it has arrived.
    CoverKeyed {
        owner: usize,
        key: usize,
    },
    Set {
        owner: usize,
        product: usize,
        quantity: u64,
        knowing: Knowing,
    },
    Clear {
        owner: usize,
        ordered: bool,
        knowing: Knowing,
    },
    /// Remembers the cart as it is now, for somebody who acts on it later.
    Look {
        owner: usize,
    },
    /// Into a user's cart; the guest's is not changed any more.
    Merge {
        guest: usize,
        user: usize,
        again: bool,
    },
    Read {
        owner: usize,
    },
    Untouched {
        for_ms: i64,
        limit: usize,
    },
}

/// Which state of the cart somebody acts upon.
#[derive(Clone, Copy, Debug)]
enum Knowing {
    Nothing,
    LastLook,
    All,
}

pub(super) fn conform(suite: &Suite) {
    suite.compare_with_model("carts", step(), run);
    races::conform(suite);
    examples::conform(suite);
}

fn step() -> impl Strategy<Value = Step> {
    let (owner, product, key) = (|| 0..OWNERS, || 0..PRODUCTS, || 0..KEYS);
    let wait_ms = sample::select(
        &[0, 1, 1, 1_000, MINUTE_MS, 11 * MINUTE_MS, 3 * HOUR_MS, 26 * HOUR_MS, 8 * DAY_MS, 31 * DAY_MS][..],
    );
    let ttl_ms = || sample::select(&[HOUR_MS, 7 * DAY_MS, 30 * DAY_MS][..]);
    let knowing = || sample::select(&[Knowing::Nothing, Knowing::LastLook, Knowing::All, Knowing::All][..]);
    prop_oneof![
        2 => wait_ms.prop_map(|ms| Step::Wait { ms }),
        5 => (owner(), product(), strategies::quantity(), option::of(0..3usize), ttl_ms()).prop_map(
            |(owner, product, quantity, zone, ttl_ms)| Step::Add { owner, product, quantity, zone, ttl_ms }
        ),
        1 => (owner(), 2..60usize).prop_map(|(owner, count)| Step::AddMany { owner, count }),
        4 => (owner(), key(), ttl_ms()).prop_map(|(owner, key, ttl_ms)| Step::AddKeyed { owner, key, ttl_ms }),
        1 => (owner(), key()).prop_map(|(owner, key)| Step::CoverKeyed { owner, key }),
        3 => (owner(), product(), 0..9u64, knowing())
            .prop_map(|(owner, product, quantity, knowing)| Step::Set { owner, product, quantity, knowing }),
        2 => (owner(), any::<bool>(), knowing())
            .prop_map(|(owner, ordered, knowing)| Step::Clear { owner, ordered, knowing }),
        2 => owner().prop_map(|owner| Step::Look { owner }),
        1 => (USERS..OWNERS, 0..USERS, any::<bool>())
            .prop_map(|(guest, user, again)| Step::Merge { guest, user, again }),
        2 => owner().prop_map(|owner| Step::Read { owner }),
        1 => (sample::select(&[0, 1, MINUTE_MS, DAY_MS][..]), 1..3usize)
            .prop_map(|(for_ms, limit)| Step::Untouched { for_ms, limit }),
    ]
}

async fn run(bench: &Bench, steps: &[Step]) -> Checked {
    let mut case = Case {
        bench,
        clock: bench.universe.clock(),
        changes: 0,
        keys: BTreeMap::new(),
        looks: BTreeMap::new(),
        merged: [false; OWNERS],
    };
    for step in steps {
        case.apply(step).await?;
        // Whatever was done can be seen at once.
        if let Step::Add { owner, .. } | Step::Set { owner, .. } | Step::Clear { owner, .. } = step {
            case.read(*owner).await?;
        }
    }
    for owner in 0..OWNERS {
        case.read(owner).await?;
    }
    case.untouched(0, 1).await
}

struct Case<'a> {
    bench: &'a Bench,
    clock: CaseClock,
    changes: usize,
    /// When a key was first named in a cart that still exists.
    keys: BTreeMap<(usize, usize), Timestamp>,
    /// The cart of an owner as somebody saw it, in the store and in the model, and when that cart began.
    looks: BTreeMap<usize, (Option<Timestamp>, [CartView; 2])>,
    merged: [bool; OWNERS],
}

impl Case<'_> {
    async fn apply(&mut self, step: &Step) -> Checked {
        let now = self.clock.now;
        match step {
            Step::Wait { ms } => self.clock.advance_ms(*ms),
            Step::Add { owner, product, quantity, zone: n, ttl_ms } => {
                let (product, quantity) = (self.bench.universe.product(*product), *quantity);
                // A merge forgets when which zone was named, so only users name one.
                let zone = n.filter(|_| *owner < USERS).map(zone);
                let change = self.change(*owner, Effect::Add { product, quantity, zone });
                self.append(*owner, [vec![change.clone()], vec![change]], *ttl_ms).await?;
            }
            Step::AddMany { owner, count } => {
                let mut changes = Vec::new();
                for n in 0..*count {
                    let product = self.bench.universe.product(n % PRODUCTS);
                    changes.push(self.change(*owner, Effect::Add { product, quantity: 1, zone: None }));
                }
                self.append(*owner, [changes.clone(), changes], 7 * DAY_MS).await?;
            }
            Step::AddKeyed { owner, key, ttl_ms } if self.remembers_key(*owner, *key).await? => {
                let effect = Effect::Add {
                    product: self.bench.universe.product(*key),
                    quantity: *key as u64 + 1,
                    zone: None,
                };
                let id = self.keyed_id(*owner, *key);
                let change = CartChange { id, keyed: true, ..self.change(*owner, effect) };
                self.append(*owner, [vec![change.clone()], vec![change]], *ttl_ms).await?;
            }
            Step::CoverKeyed { owner, key } if self.remembers_key(*owner, *key).await? => {
                let covers = vec![self.keyed_id(*owner, *key)];
                let change = self.change(*owner, Effect::Cover { covers, order: None });
                self.append(*owner, [vec![change.clone()], vec![change]], HOUR_MS).await?;
            }
            Step::AddKeyed { .. } | Step::CoverKeyed { .. } => {}
            Step::Set { owner, product, quantity, knowing } => {
                let product = self.bench.universe.product(*product);
                let change = self.change(*owner, Effect::Cover { covers: Vec::new(), order: None });
                let views = self.views(*owner, *knowing).await?;
                let changes = views.map(|view| {
                    let covers = view.made_of_line(product);
                    let effect = Effect::Set { product, quantity: *quantity, zone: None, covers };
                    vec![CartChange { effect, ..change.clone() }]
                });
                self.append(*owner, changes, 7 * DAY_MS).await?;
            }
            Step::Clear { owner, ordered, knowing } => {
                let change = self.change(*owner, Effect::Cover { covers: Vec::new(), order: None });
                let order = ordered.then(|| OrderId(change.id.0));
                let changes = self.views(*owner, *knowing).await?.map(|view| {
                    let effect = Effect::Cover { covers: view.made_of(), order };
                    vec![CartChange { effect, ..change.clone() }]
                });
                self.append(*owner, changes, 7 * DAY_MS).await?;
            }
            Step::Look { owner } => {
                let views = self.views(*owner, Knowing::All).await?;
                let [_, cart] = self.stored(owner_of(&self.bench.universe, *owner)).await?;
                self.looks.insert(*owner, (cart.map(|cart| cart.created_at), views));
            }
            Step::Merge { guest, user, again } => self.merge(*guest, *user, *again).await?,
            Step::Read { owner } => self.read(*owner).await?,
            Step::Untouched { for_ms, limit } => self.untouched(*for_ms, *limit).await?,
        }
        debug_assert!(self.clock.now >= now);
        Ok(())
    }

    /// A new change of a cart; its place in the order of ids tells nothing about when it was made.
    fn change(&mut self, owner: usize, effect: Effect) -> CartChange {
        self.changes += 1;
        CartChange {
            id: self.bench.universe.change(self.changes),
            at: self.clock.now,
            origin: owner_of(&self.bench.universe, owner),
            keyed: false,
            effect,
        }
    }

    fn keyed_id(&self, owner: usize, key: usize) -> ChangeId {
        ChangeId::of(owner_of(&self.bench.universe, owner).uuid().as_bytes(), &format!("key {key}"))
    }

    /// Whether a key may be named: for the first time, or while it is still remembered.
    async fn remembers_key(&mut self, owner: usize, key: usize) -> Result<bool, Failure> {
        let now = self.clock.now;
        let stored = answered(self.bench.model.carts.read(owner_of(&self.bench.universe, owner), now).await)?;
        let first_named = self.keys.entry((owner, key)).or_insert(now);
        if stored.is_none_or(|cart| cart.created_at > *first_named) {
            *first_named = now;
        }
        Ok(now.since(*first_named) < KEY_MEMORY_MS - HOUR_MS)
    }

    /// Appends what somebody who looked at the store sends there, and its counterpart to the model.
    async fn append(&mut self, owner: usize, changes: [Vec<CartChange>; 2], ttl_ms: i64) -> Checked {
        if self.merged[owner] {
            return Ok(());
        }
        let (owner, now) = (owner_of(&self.bench.universe, owner), self.clock.now);
        for (stores, changes) in self.both().into_iter().zip(changes) {
            answered(stores.carts.append(owner, changes, now.plus_ms(ttl_ms), now).await)?;
        }
        Ok(())
    }

    /// The cart as somebody knows it, in the store and in the model.
    async fn views(&self, owner: usize, knowing: Knowing) -> Result<[CartView; 2], Failure> {
        let id = owner_of(&self.bench.universe, owner);
        let carts = self.stored(id).await?;
        let began = carts[1].as_ref().map(|cart| cart.created_at);
        match knowing {
            Knowing::Nothing => Ok(<[CartView; 2]>::default()),
            Knowing::LastLook => match self.looks.get(&owner) {
                Some((looked_at, views)) if *looked_at == began => Ok(views.clone()),
                _ => Ok(<[CartView; 2]>::default()),
            },
            Knowing::All => {
                Ok(carts.map(|cart| cart.map(|cart| cart::fold(&cart.changes)).unwrap_or_default()))
            }
        }
    }

    async fn merge(&mut self, guest: usize, user: usize, again: bool) -> Checked {
        if self.merged[guest] {
            return Ok(());
        }
        let carts = self.stored(owner_of(&self.bench.universe, guest)).await?;
        let now = self.clock.now;
        let changes =
            carts.map(|cart| cart.map(|cart| cart::for_merge(&cart.changes, now)).unwrap_or_default());
        if changes[1].is_empty() {
            return Ok(());
        }
        self.append(user, changes.clone(), 30 * DAY_MS).await?;
        if again {
            self.append(user, changes, 30 * DAY_MS).await?;
        }
        self.merged[guest] = true;
        Ok(())
    }

    async fn read(&self, owner: usize) -> Checked {
        self.stored(owner_of(&self.bench.universe, owner)).await.map(|_| ())
    }

    async fn untouched(&self, for_ms: i64, limit: usize) -> Checked {
        let (now, since) = (self.clock.now, self.clock.now.plus_ms(-for_ms));
        let listed = async |stores: &Stores| -> Result<Vec<(Owner, Seen)>, Failure> {
            let carts =
                pages(limit, None, async |after| stores.carts.untouched(since, after, limit, now).await);
            Ok(carts.await?.into_iter().map(|(owner, cart)| (owner, Seen::of(&cart))).collect())
        };
        let [store, model] = self.both();
        let expected = listed(model).await?;
        self.bench.sees(format!("untouched since {since}"), expected, async || listed(store).await).await
    }

    /// The cart in the store and in the model, which agree on it. Whoever acts on a cart acts on one that they agree
    /// on, or what they do would not be the same.
    async fn stored(&self, owner: Owner) -> Result<[Option<StoredCart>; 2], Failure> {
        let [store, model] = self.both();
        let now = self.clock.now;
        let expected = answered(model.carts.read(owner, now).await)?;
        let actual = self.bench.eventually(async || {
            let actual = answered(store.carts.read(owner, now).await)?;
            let what = format!("read {owner:?} at {now}");
            same(what, actual.as_ref().map(Seen::of), expected.as_ref().map(Seen::of))?;
            Ok(actual)
        });
        Ok([actual.await?, expected])
    }

    fn both(&self) -> [&Stores; 2] {
        [&self.bench.store, &self.bench.model]
    }
}

fn owner_of(universe: &Universe, n: usize) -> Owner {
    if n < USERS { Owner::User(universe.user(n)) } else { Owner::Guest(universe.session(n)) }
}

/// What two stores must agree on about a cart.
#[derive(Debug, PartialEq)]
struct Seen {
    lines: BTreeMap<ProductId, (u64, Vec<ChangeId>)>,
    geo_zone: Option<Zone>,
    created_at: Timestamp,
    updated_at: Timestamp,
    expires_at: Timestamp,
}

impl Seen {
    fn of(cart: &StoredCart) -> Self {
        let view = cart::fold(&cart.changes);
        Self {
            lines: view
                .lines
                .into_iter()
                .chain(view.empty_lines)
                .map(|line| (line.product, (line.quantity, line.made_of)))
                .collect(),
            geo_zone: view.geo_zone,
            created_at: cart.created_at,
            updated_at: cart.updated_at,
            expires_at: cart.expires_at,
        }
    }
}
