//! The list of carts by when they were last touched, kept up a little later than the carts.
//!
//! Moving a cart in the list at every change would cost more than the change. So a change only notes here that the
//! cart has to be moved; it is when somebody asks for the list, or when too many wait. A note that is lost, because
//! the process ended, is found again by reading: the list names an earlier time than the cart itself.

use std::{
    collections::{HashSet, VecDeque},
    sync::{Arc, Mutex, PoisonError},
};

use mobimir_core::{cart::Owner, ports::StoreResult};

use super::state::CartState;
use crate::{
    EmbeddedStore,
    engine::Txn,
    records::{self, cart as cart_row, cart_touched},
    store::Shared,
};

/// Carts that may wait to be moved.
const WAITING_CARTS_MAX: usize = 4_096;
/// Carts that are moved in one write when somebody asks for the list.
const MOVED_CARTS_PER_WRITE_MAX: usize = 256;

#[derive(Default)]
pub(crate) struct Waiting(Mutex<Queue>);

#[derive(Default)]
struct Queue {
    order: VecDeque<Owner>,
    members: HashSet<Owner>,
}

impl Waiting {
    /// Notes a cart; returns another that must be moved now to make room.
    fn note(&self, owner: Owner) -> Option<Owner> {
        let mut queue = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.members.insert(owner) {
            queue.order.push_back(owner);
        }
        if queue.order.len() > WAITING_CARTS_MAX { queue.take() } else { None }
    }

    fn take(&self) -> Option<Owner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Queue {
    fn take(&mut self) -> Option<Owner> {
        let owner = self.order.pop_front()?;
        self.members.remove(&owner);
        Some(owner)
    }
}

impl EmbeddedStore {
    /// Moves all carts that wait.
    pub(super) async fn list_waiting_carts(&self) -> StoreResult<()> {
        loop {
            let moved = self.write(|shared, txn| {
                let waiting = std::iter::from_fn(|| shared.carts_to_list.take());
                let mut moved = 0;
                for owner in waiting.take(MOVED_CARTS_PER_WRITE_MAX) {
                    shared.list_cart(txn, owner)?;
                    moved += 1;
                }
                Ok(moved)
            });
            if moved.await? < MOVED_CARTS_PER_WRITE_MAX {
                return Ok(());
            }
        }
    }

    pub(super) async fn list_carts(&self, owners: Vec<Owner>) -> StoreResult<()> {
        self.write(move |shared, txn| owners.into_iter().try_for_each(|owner| shared.list_cart(txn, owner)))
            .await
    }
}

impl Shared {
    /// The cart has been touched and is to be moved in the list some time.
    pub(super) fn list_cart_later(&self, txn: &mut Txn<'_>, owner: Owner) -> StoreResult<()> {
        match self.carts_to_list.note(owner) {
            Some(other) => self.list_cart(txn, other),
            None => Ok(()),
        }
    }

    fn list_cart(&self, txn: &mut Txn<'_>, owner: Owner) -> StoreResult<()> {
        let Some(stored) = self.cart_to_change(txn, owner)? else { return Ok(()) };
        if stored.listed_at != stored.times.updated_at {
            let mut state = CartState::clone(&stored);
            put_listed(txn, owner, &mut state);
            self.carts.stage(txn.job(), owner, Some(Arc::new(state)));
        }
        Ok(())
    }
}

/// Writes the cart's times, and moves it in the list to where they say. They always agree: what the row says is where
/// the cart is listed.
pub(super) fn put_listed(txn: &mut Txn<'_>, owner: Owner, state: &mut CartState) {
    if state.listed_at != state.times.updated_at {
        txn.remove(cart_touched::key(state.listed_at, owner));
        state.listed_at = state.times.updated_at;
    }
    txn.put(cart_touched::key(state.listed_at, owner), records::nothing());
    txn.put(cart_row::key(owner), cart_row::encode(state.times));
}
