use std::sync::Arc;

use mobimir_core::{
    moving::{Movables, SessionKey, SessionSide, WholeSession},
    ports::{SessionStore, StoreResult},
    session::{Holder, RefreshToken, RefreshUse, Session, SessionState},
    time::Version,
};

use super::{super::arena::Universe, Bench, Checked, DAY_MS, Failure, Subject, Suite, answered, at, same};

pub(super) struct Sessions;

impl Subject for Sessions {
    type W = WholeSession;
    type Port = dyn SessionStore;
    type Stores = Movables;

    const NAME: &'static str = "sessions";
    const CHANGES_MAX: usize = 3;
    const LASTS_MS: Option<i64> = Some(DAY_MS);

    fn side(movables: &Movables) -> &SessionSide {
        &movables.sessions
    }

    fn keys(universe: &Universe, n: usize) -> Vec<SessionKey> {
        vec![SessionKey::Session(universe.session(n)), SessionKey::Token(universe.secret(n))]
    }

    async fn make(universe: &Universe, port: &Arc<dyn SessionStore>, n: usize) -> StoreResult<()> {
        let (session, token) = session(universe, n);
        port.insert(session, Some(token)).await
    }

    /// Seen again, refreshed, and logged out.
    async fn change(
        universe: &Universe,
        port: &Arc<dyn SessionStore>,
        n: usize,
        change: usize,
    ) -> StoreResult<()> {
        let now = at(universe, change);
        let Some(stored) = port.get(universe.session(n), now).await? else { return Ok(()) };
        let version = stored.version;
        let next = Session { last_active: now, version: version.next(now), ..stored };
        let changed = match change {
            0 => next,
            1 => {
                port.use_refresh(universe.secret(n), now).await?;
                Session { token_hash: universe.secret(1_000 + n), ..next }
            }
            _ if n % 3 == 2 => Session {
                state: SessionState::Closed { at: now, into: universe.user(0), merged: false },
                ..next
            },
            _ => Session { state: SessionState::Revoked { at: now }, ..next },
        };
        port.update(changed, version, None).await.map(|_| ())
    }
}

fn session(universe: &Universe, n: usize) -> (Session, RefreshToken) {
    let (id, now) = (universe.session(n), universe.start);
    let expires_at = now.plus_ms(DAY_MS);
    let session = Session {
        id,
        holder: if n % 3 == 2 { Holder::Guest } else { Holder::User(universe.user(n % 2)) },
        token_hash: universe.secret(usize::MAX - n),
        state: SessionState::Live,
        ip_address: Some(std::net::Ipv4Addr::new(10, 0, 0, n as u8).into()),
        user_agent: Some("браузер".to_owned()),
        device: None,
        created_at: now,
        last_active: now,
        expires_at,
        version: Version::default().next(now),
    };
    (session, RefreshToken { hash: universe.secret(n), session: id, expires_at })
}

pub(super) fn conform(suite: &Suite) {
    suite.example("sessions: one that was put goes on, and a token that was used stays used", goes_on);
    suite.example("sessions: a guest that was closed elsewhere is still to be merged", closed_guest);
}

/// Copies the `n`th from the model.
async fn put(bench: &Bench, n: usize) -> Checked {
    for key in Sessions::keys(&bench.universe, n) {
        let whole = answered(bench.model.sessions.moving.whole(key).await)?.whole;
        answered(bench.store.sessions.moving.put(whole.into_iter().collect(), bench.universe.start).await)?;
    }
    Ok(())
}

async fn listed(bench: &Bench, n: usize) -> Result<bool, Failure> {
    let (session, _) = session(&bench.universe, n);
    let Holder::User(user) = session.holder else { return Ok(false) };
    let now = at(&bench.universe, 10);
    let page = answered(bench.store.sessions.port.by_user(user, None, 100, now).await)?;
    Ok(page.items.iter().any(|listed| listed.id == session.id))
}

async fn goes_on(bench: &Bench) -> Checked {
    let (universe, store, model) = (&bench.universe, &bench.store.sessions, &bench.model.sessions);
    let now = at(universe, 5);
    for n in [0, 1] {
        answered(Sessions::make(universe, &model.port, n).await)?;
    }
    answered(Sessions::change(universe, &model.port, 1, 0).await)?;
    answered(Sessions::change(universe, &model.port, 1, 1).await)?;
    put(bench, 0).await?;
    put(bench, 1).await?;
    for n in [0, 1] {
        let expected = answered(model.port.get(universe.session(n), now).await)?;
        bench.sees("the session", expected, async || store.port.get(universe.session(n), now).await).await?;
        bench.sees("whether it is listed", true, async || listed(bench, n).await).await?;
    }
    let uses = [(0, RefreshUse::First(universe.session(0))), (1, RefreshUse::Again(universe.session(1)))];
    for (n, expected) in uses {
        same("a token", answered(store.port.use_refresh(universe.secret(n), now).await)?, expected)?;
    }
    // It was used here, and a copy from before does not make it new.
    put(bench, 0).await?;
    let again = answered(store.port.use_refresh(universe.secret(0), now).await)?;
    same("the first token once more", again, RefreshUse::Again(universe.session(0)))?;
    answered(Sessions::change(universe, &store.port, 0, 2).await)?;
    bench.sees("whether it is listed when it has ended", false, async || listed(bench, 0).await).await
}

async fn closed_guest(bench: &Bench) -> Checked {
    let (universe, store, model) = (&bench.universe, &bench.store.sessions, &bench.model.sessions);
    answered(Sessions::make(universe, &model.port, 2).await)?;
    for change in 0..Sessions::CHANGES_MAX {
        answered(Sessions::change(universe, &model.port, 2, change).await)?;
    }
    put(bench, 2).await?;
    let later = at(universe, 100);
    let unmerged = async || {
        let found = store.port.unmerged(later, 100, later).await?;
        Ok::<_, mobimir_core::ports::StoreError>(found.iter().any(|guest| guest.id == universe.session(2)))
    };
    bench.sees("whether it is to be merged", true, unmerged).await
}
