//! The model as a migration sees it: one table an entity, marks in a map.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use mobimir_core::{
    cart::Owner,
    id::OrderId,
    moving::{
        Backlog, Found, HistoryEntry, HistoryKey, HistorySide, InTable, Mark, Movable, Movables, Place,
        Range, Row, Rows, Scanned, SessionKey, Side, Whole, WholeCart, WholeOrder, WholeSession,
    },
    ports::StoreResult,
    time::Timestamp,
};

use super::{ModelStore, State};

/// What was written and not copied since.
pub(super) struct Marks<K> {
    marks: BTreeMap<K, Mark<K>>,
    seals: u64,
}

impl<K> Default for Marks<K> {
    fn default() -> Self {
        Self { marks: BTreeMap::new(), seals: 0 }
    }
}

impl<K: Copy + Ord> Marks<K> {
    pub(super) fn leave(&mut self, is_tracked: bool, key: K, since: Timestamp) {
        if is_tracked {
            self.seals += 1;
            let since = self.marks.get(&key).map_or(since, |mark| mark.since);
            self.marks.insert(key, Mark { key, since, seal: self.seals });
        }
    }

    fn remove(&mut self, mark: &Mark<K>, read_at: Timestamp) {
        let Some(stored) = self.marks.get_mut(&mark.key) else { return };
        if stored.seal == mark.seal {
            self.marks.remove(&mark.key);
        } else {
            stored.since = stored.since.max(read_at);
        }
    }
}

impl ModelStore {
    /// A new, empty store, as a migration sees it.
    pub fn movables() -> Movables {
        ModelStore::default().as_movables()
    }

    /// The separate order history of this store, as a migration sees it.
    pub fn movable_history(&self) -> HistorySide {
        let plain = Arc::new(self.clone());
        Side { port: plain.clone(), tracked: Arc::new(self.tracked()), moving: plain }
    }

    /// This store. What is written through it is marked.
    pub fn tracked(&self) -> Self {
        Self { is_tracked: true, ..self.clone() }
    }

    /// This store, as a migration sees it.
    pub fn as_movables(&self) -> Movables {
        let plain = Arc::new(self.clone());
        let tracked = Arc::new(self.tracked());
        Movables {
            orders: Side { port: plain.clone(), tracked: tracked.clone(), moving: plain.clone() },
            carts: Side { port: plain.clone(), tracked: tracked.clone(), moving: plain.clone() },
            sessions: Side { port: plain.clone(), tracked, moving: plain },
        }
    }
}

/// An entity of the model.
trait Modelled: Whole {
    const TABLE: [&'static str; 1];

    fn all(state: &State) -> Vec<Self>;
    fn get(state: &State, key: Self::Key) -> Option<Self>;
    fn keep(self, state: &mut State);
    fn forget(state: &mut State, key: Self::Key);
    fn marks(state: &mut State) -> &mut Marks<Self::Key>;
    /// Its key in bytes, which sort in some order.
    fn place(key: Self::Key) -> Place;
}

#[async_trait]
impl<W: Modelled> Movable<W> for ModelStore {
    fn tables(&self) -> &'static [&'static str] {
        &W::TABLE
    }

    async fn whole(&self, key: W::Key) -> StoreResult<Found<W>> {
        let mut state = self.state();
        let marks = W::marks(&mut state).marks.get(&key).copied().into_iter().collect();
        Ok(Found { whole: W::get(&state, key), marks, is_being_written: false })
    }

    async fn count(&self) -> StoreResult<u64> {
        Ok(W::all(&self.state()).len() as u64)
    }

    async fn ranges(&self, parts: usize) -> StoreResult<Vec<Range>> {
        let parts = parts.clamp(1, 256);
        let border = |part: usize| {
            (0 < part && part < parts)
                .then(|| Place(vec![u8::try_from(part * 256 / parts).unwrap_or(u8::MAX)]))
        };
        Ok((0..parts).map(|part| Range { after: border(part), to: border(part + 1) }).collect())
    }

    async fn scan(&self, range: &Range, limit: usize) -> StoreResult<Scanned<W>> {
        let mut found: Vec<(Place, W)> =
            W::all(&self.state()).into_iter().map(|whole| (W::place(whole.key()), whole)).collect();
        found.retain(|(place, _)| {
            range.after.as_ref().is_none_or(|after| place > after)
                && range.to.as_ref().is_none_or(|to| place <= to)
        });
        found.sort_by(|(one, _), (other, _)| one.cmp(other));
        let has_more = found.len() > limit;
        found.truncate(limit);
        let next = found.last().map(|(place, _)| place.clone()).filter(|_| has_more);
        Ok(Scanned { items: found.into_iter().map(|(_, whole)| Ok(whole)).collect(), next })
    }

    async fn put(&self, wholes: Vec<W>, now: Timestamp) -> StoreResult<()> {
        let mut state = self.state();
        for whole in wholes {
            let is_over = whole.expires_at().is_some_and(|expires_at| expires_at <= now);
            let stored = W::get(&state, whole.key());
            if !is_over && stored.is_none_or(|stored| stored.version() < whole.version()) {
                whole.keep(&mut state);
            }
        }
        Ok(())
    }

    async fn in_tables(&self, whole: &W) -> StoreResult<Vec<InTable>> {
        let facts = W::get(&self.state(), whole.key()).map(|stored| stored.facts());
        Ok(vec![InTable { table: W::TABLE[0], facts }])
    }

    async fn rows(
        &self,
        _table: &'static str,
        after: Option<&Place>,
        limit: usize,
    ) -> StoreResult<Rows<W::Key>> {
        let scanned: Scanned<W> = self.scan(&Range { after: after.cloned(), to: None }, limit).await?;
        let items = scanned.items.into_iter().flatten();
        let row = |whole: W| Row { key: whole.key(), facts: whole.facts(), place: W::place(whole.key()) };
        Ok(Rows { items: items.map(row).collect(), nameless: Vec::new(), next: scanned.next })
    }

    async fn remove(&self, _table: &'static str, row: &Row<W::Key>) -> StoreResult<()> {
        W::forget(&mut self.state(), row.key);
        Ok(())
    }

    async fn unmirrored(&self, limit: usize) -> StoreResult<Vec<Mark<W::Key>>> {
        let mut marks: Vec<Mark<W::Key>> = W::marks(&mut self.state()).marks.values().copied().collect();
        marks.sort_by_key(|mark| mark.since);
        marks.truncate(limit);
        Ok(marks)
    }

    async fn backlog(&self) -> StoreResult<Backlog> {
        let mut state = self.state();
        let marks = &W::marks(&mut state).marks;
        Ok(Backlog { entities: marks.len() as u64, oldest: marks.values().map(|mark| mark.since).min() })
    }

    async fn mirrored(&self, marks: &[Mark<W::Key>], read_at: Timestamp) -> StoreResult<()> {
        let mut state = self.state();
        marks.iter().for_each(|mark| W::marks(&mut state).remove(mark, read_at));
        Ok(())
    }
}

impl Modelled for WholeOrder {
    const TABLE: [&'static str; 1] = ["orders"];

    fn all(state: &State) -> Vec<Self> {
        state.orders.keys().filter_map(|id| Self::get(state, *id)).collect()
    }

    fn get(state: &State, id: OrderId) -> Option<Self> {
        let (order, history) = state.orders.get(&id)?;
        Some(Self { order: order.clone(), history: history.clone() })
    }

    fn keep(self, state: &mut State) {
        state.orders.insert(self.order.id, (self.order, self.history));
    }

    fn forget(state: &mut State, id: OrderId) {
        state.orders.remove(&id);
    }

    fn marks(state: &mut State) -> &mut Marks<OrderId> {
        &mut state.order_marks
    }

    fn place(id: OrderId) -> Place {
        Place(id.as_bytes().to_vec())
    }
}

impl Modelled for HistoryEntry {
    const TABLE: [&'static str; 1] = ["order_history"];

    fn all(state: &State) -> Vec<Self> {
        state.order_history.values().cloned().map(Self).collect()
    }

    fn get(state: &State, key: HistoryKey) -> Option<Self> {
        let order = state.order_history.get(&key.order).filter(|order| HistoryKey::of(order) == key)?;
        Some(Self(order.clone()))
    }

    fn keep(self, state: &mut State) {
        state.order_history.insert(self.0.id, self.0);
    }

    fn forget(state: &mut State, key: HistoryKey) {
        state.order_history.remove(&key.order);
    }

    fn marks(state: &mut State) -> &mut Marks<HistoryKey> {
        &mut state.history_marks
    }

    fn place(key: HistoryKey) -> Place {
        Place(key.order.as_bytes().to_vec())
    }
}

impl Modelled for WholeCart {
    const TABLE: [&'static str; 1] = ["carts"];

    fn all(state: &State) -> Vec<Self> {
        state.carts.keys().filter_map(|owner| Self::get(state, *owner)).collect()
    }

    fn get(state: &State, owner: Owner) -> Option<Self> {
        let (cart, version) = state.carts.get(&owner)?;
        Some(Self { owner, cart: cart.clone(), version: *version })
    }

    fn keep(self, state: &mut State) {
        state.carts.insert(self.owner, (self.cart, self.version));
    }

    fn forget(state: &mut State, owner: Owner) {
        state.carts.remove(&owner);
    }

    fn marks(state: &mut State) -> &mut Marks<Owner> {
        &mut state.cart_marks
    }

    fn place(owner: Owner) -> Place {
        let kind = u8::from(matches!(owner, Owner::Guest(_)));
        Place(owner.uuid().as_bytes().iter().copied().chain([kind]).collect())
    }
}

impl Modelled for WholeSession {
    const TABLE: [&'static str; 1] = ["sessions"];

    fn all(state: &State) -> Vec<Self> {
        let sessions = state.sessions.keys().map(|id| SessionKey::Session(*id));
        let tokens = state.refresh_tokens.keys().map(|hash| SessionKey::Token(*hash));
        sessions.chain(tokens).filter_map(|key| Self::get(state, key)).collect()
    }

    fn get(state: &State, key: SessionKey) -> Option<Self> {
        match key {
            SessionKey::Session(id) => state.sessions.get(&id).cloned().map(Self::Session),
            SessionKey::Token(hash) => state
                .refresh_tokens
                .get(&hash)
                .map(|(token, used)| Self::Token { token: *token, used: *used }),
        }
    }

    fn keep(self, state: &mut State) {
        match self {
            Self::Session(session) => {
                state.sessions.insert(session.id, session);
            }
            Self::Token { token, used } => {
                state.refresh_tokens.insert(token.hash, (token, used));
            }
        }
    }

    fn forget(state: &mut State, key: SessionKey) {
        match key {
            SessionKey::Session(id) => {
                state.sessions.remove(&id);
            }
            SessionKey::Token(hash) => {
                state.refresh_tokens.remove(&hash);
            }
        }
    }

    fn marks(state: &mut State) -> &mut Marks<SessionKey> {
        &mut state.session_marks
    }

    fn place(key: SessionKey) -> Place {
        Place(match key {
            SessionKey::Session(id) => id.as_bytes().to_vec(),
            SessionKey::Token(hash) => hash.0.to_vec(),
        })
    }
}
