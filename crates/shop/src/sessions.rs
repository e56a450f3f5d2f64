//! Who is asking: the session behind a token, answered from memory for a short while.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use mobimir_core::{
    cart::Owner,
    id::{SessionId, UserId},
    invariant::Invariant,
    policy::ReadOperation,
    ports::StoreResult,
    reading,
    secret::AccessToken,
    session::{Holder, Session},
    time::Timestamp,
};

use crate::Shop;

const CACHED_SESSIONS_MAX: usize = 100_000;
const EPOCH_SLOTS: usize = 256;
/// `last_active` is written when it is older than this.
const ACTIVITY_RESOLUTION_MS: i64 = 60_000;

/// The holder of a live session.
#[derive(Clone, Debug)]
pub struct Caller {
    pub session: Arc<Session>,
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
    /// SES-1: the caller, if the token is the current one of a live session.
    pub async fn authenticate(&self, token: &str) -> StoreResult<Option<Caller>> {
        let Some(token) = AccessToken::decode(token) else { return Ok(None) };
        let now = self.now();
        let Some(session) = self.session(token.session, now).await? else { return Ok(None) };
        if !session.is_live(now) || !token.belongs_to(&session.token_hash) {
            return Ok(None);
        }
        self.note_activity(&session, now);
        Ok(Some(Caller { session }))
    }

    async fn session(&self, id: SessionId, now: Timestamp) -> StoreResult<Option<Arc<Session>>> {
        let cache = &self.inner.sessions;
        if let Some(session) = cache.get(id, now) {
            return Ok(Some(session));
        }
        let epoch = cache.epoch(id);
        let stored =
            reading::of(ReadOperation::SessionCheck, self.inner.stores.sessions.get(id, now)).await?;
        let Some(session) = stored else { return Ok(None) };
        // SES-1: a store must not return what has expired.
        self.inner.invariants.check(Invariant::Ses1, now < session.expires_at);
        let session = Arc::new(session);
        cache.put(session.clone(), now, epoch);
        Ok(Some(session))
    }

    /// Forgets what memory says of a session, after it was changed on this instance.
    pub(crate) fn session_changed(&self, id: SessionId) {
        self.inner.sessions.forget(id);
    }

    fn note_activity(&self, session: &Arc<Session>, now: Timestamp) {
        if now.since(session.last_active) < ACTIVITY_RESOLUTION_MS
            || !self.inner.sessions.claim_activity(session.id, now)
        {
            return;
        }
        let (shop, session) = (self.clone(), session.clone());
        tokio::spawn(async move {
            let version = session.version.next(now);
            let active = Session { last_active: now, version, ..(*session).clone() };
            // Lost races and failures do not matter: the next request tries again.
            if let Ok(true) = shop.inner.stores.sessions.update(active, session.version, None).await {
                shop.session_changed(session.id);
            }
        });
    }
}

/// Sessions read a moment ago. A change on this instance is seen at once: whoever changes a session first writes
/// it, then moves the epoch of its slot, then drops the entry; a reader that began before puts its entry in, finds
/// the epoch moved, and takes it out again.
pub(crate) struct SessionCache {
    ttl_ms: i64,
    entries: quick_cache::sync::Cache<SessionId, Entry>,
    activity: quick_cache::sync::Cache<SessionId, Timestamp>,
    epochs: [AtomicU64; EPOCH_SLOTS],
}

#[derive(Clone)]
struct Entry {
    session: Arc<Session>,
    read_at: Timestamp,
}

impl SessionCache {
    pub(crate) fn new(ttl_ms: i64) -> Self {
        Self {
            ttl_ms,
            entries: quick_cache::sync::Cache::new(CACHED_SESSIONS_MAX),
            activity: quick_cache::sync::Cache::new(CACHED_SESSIONS_MAX),
            epochs: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    fn get(&self, id: SessionId, now: Timestamp) -> Option<Arc<Session>> {
        let entry = self.entries.get(&id)?;
        let age_ms = now.since(entry.read_at);
        (0..self.ttl_ms).contains(&age_ms).then_some(entry.session)
    }

    fn epoch(&self, id: SessionId) -> u64 {
        self.slot(id).load(Ordering::SeqCst)
    }

    fn put(&self, session: Arc<Session>, read_at: Timestamp, epoch: u64) {
        let id = session.id;
        self.entries.insert(id, Entry { session, read_at });
        if self.epoch(id) != epoch {
            self.entries.remove(&id);
        }
    }

    fn forget(&self, id: SessionId) {
        self.slot(id).fetch_add(1, Ordering::SeqCst);
        self.entries.remove(&id);
    }

    /// One caller at a time notes a session's activity.
    fn claim_activity(&self, id: SessionId, now: Timestamp) -> bool {
        let claimed = self.activity.get(&id).is_some_and(|at| now.since(at) < ACTIVITY_RESOLUTION_MS);
        if !claimed {
            self.activity.insert(id, now);
        }
        !claimed
    }

    fn slot(&self, id: SessionId) -> &AtomicU64 {
        &self.epochs[usize::from(id.as_bytes()[15]) % EPOCH_SLOTS]
    }
}
