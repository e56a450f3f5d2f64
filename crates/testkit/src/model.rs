//! The oracle: every port over plain maps behind one lock.
//!
//! A list is a filter, a sort and a cut; a change is the rule of the core applied to the value in the map. There is
//! nothing to be fast with and nothing to get wrong.

mod carts;
mod moving;
mod notes;
mod order_history;
mod orders;
mod products;
mod sessions;
mod users;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
};

use mobimir_core::{
    cart::{Owner, StoredCart},
    checkout::Checkout,
    id::{OrderId, ProductId, SessionId, UserId},
    moving::{HistoryKey, SessionKey},
    order::{Order, StatusChange},
    page::Page,
    ports::{OrderHistoryStore, Stores},
    product::Product,
    secret::SecretHash,
    session::{RefreshToken, Session},
    time::{Clock, Version},
    user::User,
};

use self::moving::Marks;

#[derive(Clone, Default)]
pub struct ModelStore {
    state: Arc<Mutex<State>>,
    /// Whether a write leaves a mark on what it changed.
    is_tracked: bool,
    /// Of a store that is not in the process of those who ask it.
    clock: Option<Arc<dyn Clock>>,
}

#[derive(Default)]
struct State {
    products: BTreeMap<ProductId, Product>,
    checkouts: BTreeMap<OrderId, Checkout>,
    cart_claims: BTreeMap<UserId, OrderId>,
    users: BTreeMap<UserId, User>,
    carts: BTreeMap<Owner, (StoredCart, Version)>,
    orders: BTreeMap<OrderId, (Order, Vec<StatusChange>)>,
    /// Of a history that has a home of its own.
    order_history: BTreeMap<OrderId, Order>,
    sessions: BTreeMap<SessionId, Session>,
    /// With whether it has been used.
    refresh_tokens: BTreeMap<SecretHash, (RefreshToken, bool)>,
    order_marks: Marks<OrderId>,
    history_marks: Marks<HistoryKey>,
    cart_marks: Marks<Owner>,
    session_marks: Marks<SessionKey>,
    /// By name, each with its revision.
    notes: BTreeMap<String, (u64, Vec<u8>)>,
    note_revisions: u64,
}

impl ModelStore {
    /// A new, empty shop.
    pub fn stores() -> Stores {
        Self::default().into_stores()
    }

    /// The same, with a clock of its own.
    pub fn stores_with_clock(clock: Arc<dyn Clock>) -> Stores {
        Self { clock: Some(clock), ..Self::default() }.into_stores()
    }

    fn into_stores(self) -> Stores {
        let model = Arc::new(self);
        Stores {
            products: model.clone(),
            users: model.clone(),
            carts: model.clone(),
            orders: model.clone(),
            sessions: model,
        }
    }

    /// A new, empty history of orders.
    pub fn order_history() -> Arc<dyn OrderHistoryStore> {
        Arc::new(ModelStore::default())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no operation of the model panics halfway")
    }
}

/// The page of `items` that starts after the position with the key `after`.
fn page<T, P, K: Ord>(
    mut items: Vec<T>,
    after: Option<P>,
    limit: usize,
    position: impl Fn(&T) -> P,
    key: impl Fn(&P) -> K,
) -> Page<T, P> {
    items.sort_by_key(|item| key(&position(item)));
    if let Some(after) = after {
        let start = key(&after);
        items.retain(|item| key(&position(item)) > start);
    }
    Page::cut(items, limit, position)
}
