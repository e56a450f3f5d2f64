use async_trait::async_trait;
use mobimir_core::{
    notes::{Expected, Note, NoteStore},
    ports::StoreResult,
};

use super::ModelStore;

#[async_trait]
impl NoteStore for ModelStore {
    async fn get(&self, name: &str) -> StoreResult<Option<Note>> {
        let state = self.state();
        let note = state.notes.get(name);
        Ok(note.map(|(revision, body)| Note {
            name: name.to_owned(),
            revision: *revision,
            body: body.clone(),
        }))
    }

    async fn list(&self, prefix: &str, after: Option<&str>, limit: usize) -> StoreResult<Vec<Note>> {
        let state = self.state();
        let notes = state
            .notes
            .iter()
            .filter(|(name, _)| name.starts_with(prefix) && after.is_none_or(|after| name.as_str() > after));
        let note = |(name, (revision, body)): (&String, &(u64, Vec<u8>))| Note {
            name: name.clone(),
            revision: *revision,
            body: body.clone(),
        };
        Ok(notes.take(limit).map(note).collect())
    }

    async fn write(&self, name: &str, expected: Expected, body: Vec<u8>) -> StoreResult<Option<u64>> {
        let mut state = self.state();
        let stored = state.notes.get(name).map(|(revision, _)| *revision);
        if !expected.is_met_by(stored) {
            return Ok(None);
        }
        state.note_revisions += 1;
        let revision = state.note_revisions;
        state.notes.insert(name.to_owned(), (revision, body));
        Ok(Some(revision))
    }

    async fn remove(&self, name: &str, expected: Expected) -> StoreResult<bool> {
        let mut state = self.state();
        let stored = state.notes.get(name).map(|(revision, _)| *revision);
        let is_met = expected.is_met_by(stored);
        if is_met {
            state.notes.remove(name);
        }
        Ok(is_met)
    }
}
