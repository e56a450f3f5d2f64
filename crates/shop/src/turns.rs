//! Who is at work on what, on this instance.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
};

use mobimir_core::id::{OrderId, UserId};

/// The checkouts that this instance is running, so that a retry beside the first request is told to wait.
#[derive(Default)]
pub(crate) struct RunningCheckouts(Mutex<HashSet<OrderId>>);

pub(crate) struct Running<'a> {
    running: &'a RunningCheckouts,
    order: OrderId,
}

impl RunningCheckouts {
    pub(crate) fn enter(&self, order: OrderId) -> Option<Running<'_>> {
        let entered = self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(order);
        entered.then_some(Running { running: self, order })
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.running.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.order);
    }
}

/// Turns of those who order one user's cart.
#[derive(Default)]
pub(crate) struct CartOrders(Mutex<HashMap<UserId, Arc<tokio::sync::Mutex<()>>>>);

impl CartOrders {
    pub(crate) fn of(&self, user: UserId) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Those that nobody holds any more are of no use.
        if turns.len() >= TURNS_KEPT_MAX {
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        }
        turns.entry(user).or_default().clone()
    }
}

const TURNS_KEPT_MAX: usize = 1_024;
