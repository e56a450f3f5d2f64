//! Which products are split, as far as this instance knows. To know it is faster; not to know it, or to know what is no
//! longer so, is found out by the first guard that refuses.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
};

use mobimir_core::id::ProductId;

use super::document::Split;

#[derive(Default)]
pub(in super::super) struct Known(RwLock<HashMap<ProductId, Arc<Split>>>);

/// Products that are remembered; with more, all are learnt anew.
const KNOWN_MAX: usize = 10_000;

impl Known {
    pub(in super::super) fn get(&self, id: ProductId) -> Option<Arc<Split>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }

    /// How it is split, or that it is not.
    pub(in super::super) fn note(&self, id: ProductId, split: Option<Split>) -> Option<Arc<Split>> {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let Some(split) = split else {
            known.remove(&id);
            return None;
        };
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        let split = Arc::new(split);
        known.insert(id, Arc::clone(&split));
        Some(split)
    }
}
