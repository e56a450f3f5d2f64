//! What a write sees and does: committed data below, the group's pending writes on top.

use std::collections::BTreeMap;

use fjall::{OwnedWriteBatch, PersistMode, Slice};
use mobimir_core::ports::StoreResult;

use super::{Key, Space, Tables};
use crate::error::read_failed;

/// `None` stands for a removed key.
type Pending = BTreeMap<Slice, Option<Slice>>;

pub struct Txn<'a> {
    tables: &'a Tables,
    pending: [Pending; Space::ALL.len()],
    /// What the pending writes of the running job replaced, in order.
    undo: Vec<(Space, Slice, Option<Option<Slice>>)>,
    job: u64,
}

impl<'a> Txn<'a> {
    pub(super) fn new(tables: &'a Tables) -> Self {
        Self { tables, pending: Default::default(), undo: Vec::new(), job: 0 }
    }

    /// The running job's number within its group.
    pub(crate) fn job(&self) -> u64 {
        self.job
    }

    pub(crate) fn get(&self, key: &Key) -> StoreResult<Option<Slice>> {
        match self.pending[key.space as usize].get(&key.bytes) {
            Some(pending) => Ok(pending.clone()),
            None => self.tables.get(key),
        }
    }

    pub(crate) fn contains(&self, key: &Key) -> StoreResult<bool> {
        match self.pending[key.space as usize].get(&key.bytes) {
            Some(pending) => Ok(pending.is_some()),
            None => self.tables.keyspace(key.space).contains_key(&key.bytes).map_err(read_failed),
        }
    }

    /// All that is stored under keys that start with `prefix`, in order. Only for prefixes with few keys.
    pub(crate) fn under(&self, prefix: &Key) -> StoreResult<Vec<(Slice, Slice)>> {
        let mut found = BTreeMap::new();
        for row in self.tables.keyspace(prefix.space).prefix(&prefix.bytes) {
            let (key, value) = row.into_inner().map_err(read_failed)?;
            found.insert(key, value);
        }
        let pending = self.pending[prefix.space as usize].range(prefix.bytes.clone()..);
        for (key, value) in pending.take_while(|(key, _)| key.starts_with(&prefix.bytes)) {
            match value {
                Some(value) => found.insert(key.clone(), value.clone()),
                None => found.remove(key),
            };
        }
        Ok(found.into_iter().collect())
    }

    pub(crate) fn put(&mut self, key: Key, value: Slice) {
        self.change(key, Some(value));
    }

    pub(crate) fn remove(&mut self, key: Key) {
        self.change(key, None);
    }

    fn change(&mut self, key: Key, value: Option<Slice>) {
        let replaced = self.pending[key.space as usize].insert(key.bytes.clone(), value);
        self.undo.push((key.space, key.bytes, replaced));
    }

    /// The job has ended, and what it wrote stays.
    pub(super) fn next_job(&mut self) {
        self.undo.clear();
        self.job += 1;
    }

    pub(super) fn undo_job(&mut self) {
        while let Some((space, key, replaced)) = self.undo.pop() {
            match replaced {
                Some(replaced) => self.pending[space as usize].insert(key, replaced),
                None => self.pending[space as usize].remove(&key),
            };
        }
    }

    /// The group's writes as one atomic, durable batch; `None` when there are none.
    pub(super) fn into_batch(self) -> Option<OwnedWriteBatch> {
        let writes: usize = self.pending.iter().map(BTreeMap::len).sum();
        if writes == 0 {
            return None;
        }
        let mut batch = OwnedWriteBatch::with_capacity(self.tables.database().clone(), writes)
            .durability(Some(PersistMode::SyncData));
        for (space, pending) in Space::ALL.into_iter().zip(self.pending) {
            let keyspace = self.tables.keyspace(space);
            for (key, value) in pending {
                match value {
                    Some(value) => batch.insert(keyspace, key, value),
                    None => batch.remove(keyspace, key),
                }
            }
        }
        Some(batch)
    }
}
