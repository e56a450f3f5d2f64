//! Sessions and refresh tokens: each change once, each token once, and nothing after it has expired.

mod examples;
mod races;

use std::collections::BTreeSet;

use mobimir_core::{
    id::SessionId,
    session::{Holder, RefreshToken, Session, SessionPosition, SessionState},
    time::{Timestamp, Version},
};
use proptest::{option, prelude::*, sample};

use super::{
    Suite,
    arena::{Bench, CaseClock},
    check::{Checked, Failure, answered, pages, race, same, same_beginning},
};
use crate::strategies;

const SESSIONS: usize = 8;
const USERS: usize = 2;

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;

#[derive(Clone, Debug)]
enum Step {
    Wait {
        ms: i64,
    },
    Insert {
        session: usize,
        user: Option<usize>,
        made_up: Box<Session>,
        ttl_ms: i64,
        token_ttl_ms: Option<i64>,
    },
    Get {
        session: usize,
    },
    ByUser {
        user: usize,
        after: Option<usize>,
        limit: usize,
    },
    /// Any token that has been made up, or one that never was.
    UseRefresh {
        token: usize,
    },
    Update {
        session: usize,
        change: Change,
        right_version: bool,
        token_ttl_ms: Option<i64>,
    },
    Unmerged {
        for_ms: i64,
        limit: usize,
    },
}

#[derive(Clone, Debug)]
enum Change {
    Extend {
        ttl_ms: i64,
    },
    Revoke,
    Close {
        into: usize,
    },
    Merged,
    /// Claims another holder and another beginning, which must not be believed.
    Forge {
        user: usize,
    },
}

pub(super) fn conform(suite: &Suite) {
    suite.compare_with_model("sessions", step(), run);
    races::conform(suite);
    examples::conform(suite);
}

fn step() -> impl Strategy<Value = Step> {
    let session = || 0..SESSIONS;
    let ttl_ms = || sample::select(&[HOUR_MS, DAY_MS, 30 * DAY_MS][..]);
    let change = prop_oneof![
        2 => ttl_ms().prop_map(|ttl_ms| Change::Extend { ttl_ms }),
        1 => Just(Change::Revoke),
        3 => (0..USERS).prop_map(|into| Change::Close { into }),
        1 => Just(Change::Merged),
        1 => (0..USERS).prop_map(|user| Change::Forge { user }),
    ];
    prop_oneof![
        3 => sample::select(&[0, 0, 1, 1_000, HOUR_MS - 1, HOUR_MS, DAY_MS][..]).prop_map(|ms| Step::Wait { ms }),
        6 => (session(), option::of(0..USERS), strategies::session().prop_map(Box::new), ttl_ms(), option::of(ttl_ms())).prop_map(
            |(session, user, made_up, ttl_ms, token_ttl_ms)| Step::Insert { session, user, made_up, ttl_ms, token_ttl_ms }
        ),
        2 => session().prop_map(|session| Step::Get { session }),
        2 => (0..USERS, option::weighted(0.3, session()), 1..4usize)
            .prop_map(|(user, after, limit)| Step::ByUser { user, after, limit }),
        4 => (0..12usize).prop_map(|token| Step::UseRefresh { token }),
        6 => (session(), change, prop::bool::weighted(0.8), option::weighted(0.4, ttl_ms())).prop_map(
            |(session, change, right_version, token_ttl_ms)| Step::Update { session, change, right_version, token_ttl_ms }
        ),
        2 => (sample::select(&[-1, 0, 1, 1_000, HOUR_MS][..]), 1..4usize)
            .prop_map(|(for_ms, limit)| Step::Unmerged { for_ms, limit }),
    ]
}

async fn run(bench: &Bench, steps: &[Step]) -> Checked {
    let mut case = Case { bench, clock: bench.universe.clock(), inserted: BTreeSet::new(), tokens: 0 };
    for step in steps {
        case.apply(step).await?;
    }
    case.compare_all().await?;
    // Once more when the most has expired.
    case.clock.advance_ms(2 * DAY_MS);
    case.compare_all().await
}

struct Case<'a> {
    bench: &'a Bench,
    clock: CaseClock,
    /// A session is inserted once; its id is never used again.
    inserted: BTreeSet<usize>,
    tokens: usize,
}

impl Case<'_> {
    async fn apply(&mut self, step: &Step) -> Checked {
        let universe = &self.bench.universe;
        let (store, model) = (&self.bench.store.sessions, &self.bench.model.sessions);
        let now = self.clock.now;
        match step {
            Step::Wait { ms } => self.clock.advance_ms(*ms),
            Step::Insert { session, user, made_up, ttl_ms, token_ttl_ms } => {
                if !self.inserted.insert(*session) {
                    return Ok(());
                }
                let id = universe.session(*session);
                let inserted = Session {
                    id,
                    holder: user.map_or(Holder::Guest, |user| Holder::User(universe.user(user))),
                    created_at: now,
                    last_active: now,
                    expires_at: now.plus_ms(*ttl_ms),
                    version: Version::default().next(now),
                    ..Session::clone(made_up)
                };
                let refresh = user.and(*token_ttl_ms).map(|ttl_ms| self.token(id, ttl_ms));
                answered(store.insert(inserted.clone(), refresh).await)?;
                answered(model.insert(inserted, refresh).await)?;
            }
            Step::Get { session } => self.get(*session).await?,
            Step::ByUser { user, after, limit } => self.by_user(*user, *after, *limit).await?,
            Step::UseRefresh { token } => {
                let hash = universe.secret(*token);
                let used = answered(store.use_refresh(hash, now).await)?;
                same(step, used, answered(model.use_refresh(hash, now).await)?)?;
            }
            Step::Update { session, change, right_version, token_ttl_ms } => {
                // What has expired nobody can have read, so nobody updates it.
                let id = universe.session(*session);
                let Some(stored) = answered(model.get(id, now).await)? else { return Ok(()) };
                let expected = if *right_version { stored.version } else { Version(stored.version.0 - 1) };
                let Some(changed) = self.changed(&stored, change) else { return Ok(()) };
                let refresh = stored.user().and(*token_ttl_ms).map(|ttl_ms| self.token(id, ttl_ms));
                let updated = answered(store.update(changed.clone(), expected, refresh).await)?;
                same(step, updated, answered(model.update(changed, expected, refresh).await)?)?;
                self.get(*session).await?;
            }
            Step::Unmerged { for_ms, limit } => self.unmerged(now.plus_ms(-for_ms), *limit).await?,
        }
        Ok(())
    }

    fn token(&mut self, session: SessionId, ttl_ms: i64) -> RefreshToken {
        let hash = self.bench.universe.secret(self.tokens);
        self.tokens += 1;
        RefreshToken { hash, session, expires_at: self.clock.now.plus_ms(ttl_ms) }
    }

    /// The session after a change, if it makes sense for it.
    fn changed(&self, stored: &Session, change: &Change) -> Option<Session> {
        let now = self.clock.now;
        let mut changed = stored.clone();
        changed.version = stored.version.next(now);
        changed.last_active = now;
        match (change, stored.state) {
            (Change::Extend { ttl_ms }, _) => changed.expires_at = now.plus_ms(*ttl_ms),
            (Change::Revoke, _) => changed.state = SessionState::Revoked { at: now },
            (Change::Close { into }, SessionState::Live) if stored.holder == Holder::Guest => {
                changed.state =
                    SessionState::Closed { at: now, into: self.bench.universe.user(*into), merged: false };
            }
            (Change::Merged, SessionState::Closed { at, into, .. }) => {
                changed.state = SessionState::Closed { at, into, merged: true };
            }
            (Change::Forge { user }, _) => {
                changed.holder = Holder::User(self.bench.universe.user(*user));
                changed.created_at = now.plus_ms(-DAY_MS);
            }
            (Change::Close { .. } | Change::Merged, _) => return None,
        }
        Some(changed)
    }

    async fn get(&self, session: usize) -> Checked {
        let (id, now) = (self.bench.universe.session(session), self.clock.now);
        let expected = answered(self.bench.model.sessions.get(id, now).await)?;
        let read = async || self.bench.store.sessions.get(id, now).await;
        self.bench.sees(format!("get session {session} at {now}"), expected, read).await
    }

    async fn by_user(&self, user: usize, after: Option<usize>, limit: usize) -> Checked {
        let (id, now) = (self.bench.universe.user(user), self.clock.now);
        let [store, model] = [&self.bench.store.sessions, &self.bench.model.sessions];
        let start = match after {
            Some(slot) => answered(model.get(self.bench.universe.session(slot), now).await)?
                .map(|session: Session| session.position()),
            None => None,
        };
        let expected = answered(model.by_user(id, start, usize::MAX, now).await)?.items;
        let read = async || {
            let page = async |after: Option<SessionPosition>| store.by_user(id, after, limit, now).await;
            pages(limit, start, page).await
        };
        self.bench.sees(format!("sessions of user {user} at {now}"), expected, read).await
    }

    async fn unmerged(&self, closed_before: Timestamp, limit: usize) -> Checked {
        let now = self.clock.now;
        let whole = answered(self.bench.model.sessions.unmerged(closed_before, usize::MAX, now).await)?;
        let observe = async || {
            let actual = answered(self.bench.store.sessions.unmerged(closed_before, limit, now).await)?;
            let what = format!("unmerged before {closed_before}");
            same_beginning(what, &actual, &whole, limit, closed_at)
        };
        self.bench.eventually(observe).await
    }

    async fn compare_all(&self) -> Checked {
        for session in 0..SESSIONS {
            self.get(session).await?;
        }
        for user in 0..USERS {
            self.by_user(user, None, 2).await?;
        }
        self.unmerged(self.clock.now.plus_ms(1), 100).await
    }
}

fn closed_at(session: &Session) -> Option<Timestamp> {
    match session.state {
        SessionState::Closed { at, .. } => Some(at),
        SessionState::Live | SessionState::Revoked { .. } => None,
    }
}
