//! Who is asking: the session behind a token, answered from memory for a short while.
//!
//! SES-3: memory may accept a token, for `session_cache_s` at most, but it refuses only what the store has
//! just refused. Another instance may have refreshed the session a moment ago, so a token that does not fit
//! what is remembered is looked up in the store.

use std::{
    collections::{HashMap, hash_map},
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use mobimir_core::{
    cart::Owner,
    id::{SessionId, UserId},
    invariant::Invariant,
    policy::ReadOperation,
    ports::{StoreError, StoreResult},
    reading,
    secret::{AccessToken, SecretHash},
    session::{Holder, RefreshToken, Session},
    time::{Moment, Timestamp, Version},
};

use crate::{Shop, faults::Planted};

const CACHED_SESSIONS_MAX: usize = 100_000;
const REFUSALS_MAX: usize = 10_000;
/// A token that the store has refused is refused again without a look-up for this long. Short, because a
/// replica that lags may not know a new token yet.
const REFUSAL_MS_MAX: i64 = 250;
const EPOCH_SLOTS: usize = 256;

/// The holder of a live session.
#[derive(Clone, Debug)]
pub struct Caller {
    pub session: Arc<Session>,
    /// When the store had the session so, at the latest.
    pub known_at: Moment,
}

/// What a client tells about itself.
#[derive(Clone, Debug, Default)]
pub struct ClientInfo {
    pub ip_address: Option<IpAddr>,
    pub user_agent: Option<String>,
    pub device: Option<String>,
}

impl Caller {
    pub fn user(&self) -> Option<UserId> {
        self.session.user()
    }

    /// Whose cart the caller fills.
    pub fn cart_owner(&self) -> Owner {
        match self.session.holder {
            Holder::User(user) => Owner::User(user),
            Holder::Guest => Owner::Guest(self.session.id),
        }
    }
}

impl Shop {
    /// SES-1, SES-3: the caller, if the token is the current one of a live session.
    pub async fn authenticate(&self, token: &str) -> StoreResult<Option<Caller>> {
        let Some(token) = AccessToken::decode(token) else { return Ok(None) };
        let now = self.moment();
        let remembered = self.inner.sessions.accepted(&token, now);
        let session = match remembered {
            Some(session) => Some(session),
            None if self.inner.sessions.was_refused(&token, now) => None,
            None if self.plants(Planted::RememberedSessionRefuses)
                && self.inner.sessions.is_remembered(token.session, now) =>
            {
                None
            }
            None => self.look_up(&token).await?,
        };
        let Some((session, known_at)) = session else { return Ok(None) };
        self.note_activity(&session, now.wall);
        Ok(Some(Caller { session, known_at }))
    }

    /// Judges a token by a read of the store that began after the token arrived. A token that does not fit
    /// what was read is looked up where sessions are decided before it is refused. Requests for one session
    /// share reads, so that no number of wrong guesses makes more than one read at a time.
    async fn look_up(&self, token: &AccessToken) -> StoreResult<Option<(Arc<Session>, Moment)>> {
        let cache = &self.inner.sessions;
        let visit = cache.lookups.visit(token.session);
        let mut latest = visit.lookup.latest.lock().await;
        if let Some(session) = cache.accepted(token, self.moment()) {
            return Ok(Some(session));
        }
        let judges = |found: &StoreResult<Option<Arc<Session>>>, from: ReadFrom| match found {
            Ok(Some(session)) => from == ReadFrom::Decided || fits(session, token, self.moment()),
            Ok(None) => from == ReadFrom::Decided,
            Err(_) => true,
        };
        let shared = latest.as_ref().filter(|latest| latest.number > visit.arrived);
        let (found, began) = match shared.filter(|shared| judges(&shared.found, shared.from)) {
            Some(shared) => (shared.found.as_ref().map(Option::clone).map_err(same_error)?, shared.began),
            None => {
                let number = visit.lookup.begun.fetch_add(1, Ordering::SeqCst) + 1;
                let began = self.moment();
                let mut from = ReadFrom::Anywhere;
                let mut read = self.read_session(token.session, from).await;
                if !judges(&read, from) {
                    from = ReadFrom::Decided;
                    read = self.read_session(token.session, from).await;
                }
                // Only now: a request that is dropped while it reads leaves nothing behind.
                let found = read.as_ref().map(Option::clone).map_err(same_error);
                *latest = Some(Latest { number, began, from, found });
                (read?, began)
            }
        };
        drop(latest);

        let now = self.moment();
        let found = found.filter(|session| fits(session, token, now)).map(|session| (session, began));
        let session = found.or_else(|| cache.accepted(token, now));
        if session.is_none() {
            cache.refuse(token, began);
        }
        Ok(session)
    }

    /// The session as the store has it; `None` if memory knows a newer version.
    async fn read_session(&self, id: SessionId, from: ReadFrom) -> StoreResult<Option<Arc<Session>>> {
        let (cache, sessions) = (&self.inner.sessions, &self.inner.stores.sessions);
        let (known, epoch, began) = (cache.version(id), cache.epoch(id), self.moment());
        let read = match from {
            ReadFrom::Anywhere => sessions.get(id, began.wall),
            ReadFrom::Decided => sessions.get_decided(id, began.wall),
        };
        let Some(session) = reading::of(ReadOperation::SessionCheck, read).await? else { return Ok(None) };
        // SES-1: a store must not return what has expired.
        self.inner.invariants.check(Invariant::Ses1, began.wall < session.expires_at);
        let is_current = known.is_none_or(|known| known <= session.version);
        if from == ReadFrom::Decided && !self.inner.invariants.check(Invariant::Ses3, is_current) {
            // What is older than what the store has confirmed before would refuse a new token.
            let what = format!("session {id} was read in an older version than before");
            return Err(StoreError::Unavailable { what, source: None });
        }
        let session = Arc::new(session);
        Ok(cache.put(session.clone(), began, epoch).then_some(session))
    }

    /// Replaces a session if the stored one still has version `expected`. From then on this instance goes by
    /// it.
    pub(crate) async fn update_session(
        &self,
        session: Session,
        expected: Version,
        refresh: Option<RefreshToken>,
    ) -> StoreResult<bool> {
        let (id, began) = (session.id, self.moment());
        let updated = self.inner.stores.sessions.update(session.clone(), expected, refresh).await;
        match &updated {
            Ok(true) => self.inner.sessions.changed(Arc::new(session), began),
            Ok(false) => {}
            // It may have been written.
            Err(_) => self.inner.sessions.forget(id),
        }
        updated
    }

    fn note_activity(&self, session: &Arc<Session>, now: Timestamp) {
        let resolution_ms = self.settings().session_activity_ms;
        if now.since(session.last_active) < resolution_ms
            || !self.inner.sessions.claim_activity(session.id, now, resolution_ms)
        {
            return;
        }
        let (shop, session) = (self.clone(), session.clone());
        self.inner.environment.spawn(async move {
            let version = session.version.next(now);
            let active = Session { last_active: now, version, ..(*session).clone() };
            // Lost races and failures do not matter: the next request tries again.
            let _ = shop.update_session(active, session.version, None).await;
        });
    }

    pub(crate) fn moment(&self) -> Moment {
        self.inner.environment.clock.moment()
    }
}

fn fits(session: &Session, token: &AccessToken, now: Moment) -> bool {
    session.is_live(now.wall) && token.belongs_to(&session.token_hash)
}

/// A failed read as everybody else who waited for it gets it.
fn same_error(error: &StoreError) -> StoreError {
    match error {
        StoreError::Unavailable { what, .. } => StoreError::Unavailable { what: what.clone(), source: None },
        StoreError::Unknown { what, .. } => StoreError::Unknown { what: what.clone(), source: None },
        StoreError::Corrupt { what, .. } => StoreError::Corrupt { what: what.clone(), source: None },
    }
}

/// Sessions read or written a moment ago. A change on this instance is seen at once: whoever changes a
/// session first writes it, then moves the epoch of its slot and puts in what was written; a read that began
/// before finds the epoch moved. What is remembered never goes back to an older version.
pub(crate) struct SessionCache {
    ttl_ms: i64,
    /// A planted fault: older versions replace newer ones.
    goes_back: bool,
    entries: quick_cache::sync::Cache<SessionId, Entry>,
    activity: quick_cache::sync::Cache<SessionId, Timestamp>,
    refusals: quick_cache::sync::Cache<(SessionId, SecretHash), Moment>,
    lookups: Lookups,
    /// An entry is replaced under the lock of its slot.
    epochs: [Mutex<u64>; EPOCH_SLOTS],
}

#[derive(Clone)]
struct Entry {
    session: Arc<Session>,
    /// Not later than the store had it so.
    read_at: Moment,
}

impl SessionCache {
    pub(crate) fn new(ttl_ms: i64, goes_back: bool) -> Self {
        Self {
            ttl_ms,
            goes_back,
            entries: quick_cache::sync::Cache::new(CACHED_SESSIONS_MAX),
            activity: quick_cache::sync::Cache::new(CACHED_SESSIONS_MAX),
            refusals: quick_cache::sync::Cache::new(REFUSALS_MAX),
            lookups: Lookups::default(),
            epochs: std::array::from_fn(|_| Mutex::default()),
        }
    }

    /// The session of a token and when it was read, if memory may still vouch for it.
    fn accepted(&self, token: &AccessToken, now: Moment) -> Option<(Arc<Session>, Moment)> {
        let entry = self.entries.get(&token.session)?;
        let is_young = (0..self.ttl_ms).contains(&now.since(entry.read_at));
        (is_young && fits(&entry.session, token, now)).then_some((entry.session, entry.read_at))
    }

    fn is_remembered(&self, id: SessionId, now: Moment) -> bool {
        let is_young = |entry: &Entry| (0..self.ttl_ms).contains(&now.since(entry.read_at));
        self.entries.get(&id).as_ref().is_some_and(is_young)
    }

    fn was_refused(&self, token: &AccessToken, now: Moment) -> bool {
        let refused_at = self.refusals.get(&(token.session, token.hash()));
        let window_ms = REFUSAL_MS_MAX.min(self.ttl_ms);
        refused_at.is_some_and(|at| (0..window_ms).contains(&now.since(at)))
    }

    fn refuse(&self, token: &AccessToken, at: Moment) {
        self.refusals.insert((token.session, token.hash()), at);
    }

    fn version(&self, id: SessionId) -> Option<Version> {
        self.entries.get(&id).map(|entry| entry.session.version)
    }

    fn epoch(&self, id: SessionId) -> u64 {
        *self.slot(id)
    }

    /// Puts in what was read, unless it was changed here meanwhile. Says whether nothing newer is remembered.
    fn put(&self, session: Arc<Session>, read_at: Moment, epoch: u64) -> bool {
        let slot = self.slot(session.id);
        let is_newest =
            self.goes_back || self.version(session.id).is_none_or(|known| known <= session.version);
        if is_newest && (*slot == epoch || self.goes_back) {
            self.entries.insert(session.id, Entry { session, read_at });
        }
        is_newest
    }

    fn changed(&self, session: Arc<Session>, began: Moment) {
        let mut slot = self.slot(session.id);
        *slot += 1;
        if self.version(session.id).is_none_or(|known| known <= session.version) {
            self.entries.insert(session.id, Entry { session, read_at: began });
        }
    }

    fn forget(&self, id: SessionId) {
        let mut slot = self.slot(id);
        *slot += 1;
        self.entries.remove(&id);
    }

    /// One caller at a time notes a session's activity.
    fn claim_activity(&self, id: SessionId, now: Timestamp, resolution_ms: i64) -> bool {
        let claimed = self.activity.get(&id).is_some_and(|at| now.since(at) < resolution_ms);
        if !claimed {
            self.activity.insert(id, now);
        }
        !claimed
    }

    fn slot(&self, id: SessionId) -> MutexGuard<'_, u64> {
        let slot = &self.epochs[usize::from(id.as_bytes()[15]) % EPOCH_SLOTS];
        slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Look-ups under way, one at a time per session. A request takes the result of a look-up that began after
/// the request arrived; a look-up whose request was dropped is begun again by the next in line.
#[derive(Default)]
struct Lookups(Mutex<HashMap<SessionId, Visited>>);

/// A look-up, and how many requests wait for it.
#[derive(Default)]
struct Visited {
    visits: usize,
    lookup: Arc<Lookup>,
}

/// Which replicas a look-up asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadFrom {
    /// Those that the policy names for the check of a session. What they have may be older than what was
    /// decided, so it can accept a token and not refuse one.
    Anywhere,
    /// Those that decide over sessions.
    Decided,
}

#[derive(Default)]
struct Lookup {
    begun: AtomicU64,
    latest: tokio::sync::Mutex<Option<Latest>>,
}

/// The look-up that ended last.
struct Latest {
    number: u64,
    began: Moment,
    from: ReadFrom,
    found: StoreResult<Option<Arc<Session>>>,
}

struct Visit<'a> {
    lookups: &'a Lookups,
    id: SessionId,
    lookup: Arc<Lookup>,
    /// How many look-ups had begun when the request arrived.
    arrived: u64,
}

impl Lookups {
    fn visit(&self, id: SessionId) -> Visit<'_> {
        let mut all = self.all();
        let visited = all.entry(id).or_default();
        visited.visits += 1;
        let lookup = visited.lookup.clone();
        drop(all);
        let arrived = lookup.begun.load(Ordering::SeqCst);
        Visit { lookups: self, id, lookup, arrived }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<SessionId, Visited>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        let mut all = self.lookups.all();
        if let hash_map::Entry::Occupied(mut visited) = all.entry(self.id) {
            visited.get_mut().visits -= 1;
            if visited.get().visits == 0 {
                visited.remove();
            }
        }
    }
}
