//! Small records that are replaced by comparison.

use std::sync::atomic::Ordering;

use async_trait::async_trait;
use mobimir_core::{
    notes::{Expected, Note, NoteStore},
    ports::StoreResult,
};

use crate::{
    EmbeddedStore,
    engine::{Space, Txn, after_key, after_prefix},
    error::read_failed,
    records::note,
};

#[async_trait]
impl NoteStore for EmbeddedStore {
    async fn get(&self, name: &str) -> StoreResult<Option<Note>> {
        let key = note::key(name);
        self.read_in_place(move |shared| {
            shared.tables.get(&key)?.map(|bytes| note::decode(&key.bytes, &bytes)).transpose()
        })
        .await
    }

    async fn list(&self, prefix: &str, after: Option<&str>, limit: usize) -> StoreResult<Vec<Note>> {
        let all = note::key(prefix);
        let start = after.map_or(all.clone(), |after| after_key(&note::key(after)).max(all.clone()));
        self.read(move |shared| {
            let end = after_prefix(&all);
            if start >= end {
                return Ok(Vec::new());
            }
            let rows = shared.tables.keyspace(Space::Checkouts).range(start.bytes..end.bytes);
            rows.take(limit)
                .map(|row| {
                    let (key, value) = row.into_inner().map_err(read_failed)?;
                    note::decode(&key, &value)
                })
                .collect()
        })
        .await
    }

    async fn write(&self, name: &str, expected: Expected, body: Vec<u8>) -> StoreResult<Option<u64>> {
        let key = note::key(name);
        self.write(move |shared, txn| {
            if !is_met(txn, &key, expected)? {
                return Ok(None);
            }
            let revision = shared.seals.fetch_add(1, Ordering::Relaxed);
            txn.put(key, note::encode(revision, body));
            Ok(Some(revision))
        })
        .await
    }

    async fn remove(&self, name: &str, expected: Expected) -> StoreResult<bool> {
        let key = note::key(name);
        self.write(move |_, txn| {
            let is_met = is_met(txn, &key, expected)?;
            if is_met {
                txn.remove(key);
            }
            Ok(is_met)
        })
        .await
    }
}

fn is_met(txn: &Txn<'_>, key: &crate::engine::Key, expected: Expected) -> StoreResult<bool> {
    let stored = txn.get(key)?.map(|bytes| note::decode(&key.bytes, &bytes)).transpose()?;
    Ok(expected.is_met_by(stored.map(|note| note.revision)))
}
