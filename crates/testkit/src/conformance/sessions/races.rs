use mobimir_core::{
    session::{Holder, RefreshToken, RefreshUse, Session, SessionState},
    time::Version,
};

use super::{Bench, Checked, DAY_MS, Suite, answered, race, same};
use crate::conformance::check::RACERS;

pub(super) fn conform(suite: &Suite) {
    suite.race("SES-2 (one token, used by many)", one_token_used_by_many);
    suite.race("one update a version", one_update_a_version);
}

/// A user's session, and its first token.
pub(super) fn session(bench: &Bench, n: usize) -> (Session, RefreshToken) {
    let (id, now) = (bench.universe.session(n), bench.universe.start);
    let expires_at = now.plus_ms(DAY_MS);
    let session = Session {
        id,
        holder: Holder::User(bench.universe.user(0)),
        token_hash: bench.universe.secret(usize::MAX - n),
        state: SessionState::Live,
        ip_address: None,
        user_agent: None,
        device: None,
        created_at: now,
        last_active: now,
        expires_at,
        version: Version::default().next(now),
    };
    (session, RefreshToken { hash: bench.universe.secret(n), session: id, expires_at })
}

async fn one_token_used_by_many(bench: &Bench) -> Checked {
    let (sessions, now) = (&bench.store.sessions, bench.universe.start);
    let (session, token) = session(bench, 0);
    answered(sessions.insert(session.clone(), Some(token)).await)?;
    let uses = race(RACERS, |_| {
        let sessions = sessions.clone();
        async move { sessions.use_refresh(token.hash, now).await }
    })
    .await?;
    let count = |kind: RefreshUse| uses.iter().filter(|used| **used == kind).count();
    let counts = (count(RefreshUse::First(session.id)), count(RefreshUse::Again(session.id)));
    same("first and repeated uses", counts, (1, RACERS - 1))
}

/// Whoever loses leaves no token behind either.
async fn one_update_a_version(bench: &Bench) -> Checked {
    let (sessions, now) = (&bench.store.sessions, bench.universe.start);
    let (first, token) = session(bench, 0);
    answered(sessions.insert(first.clone(), Some(token)).await)?;
    let updated = race(RACERS, |caller| {
        let (sessions, expected) = (sessions.clone(), first.version);
        let device = Some(caller.to_string());
        let session = Session { device, version: expected.next(now), ..first.clone() };
        let token = RefreshToken { hash: bench.universe.secret(caller + 1), ..token };
        async move { Ok((caller, sessions.update(session, expected, Some(token)).await?)) }
    })
    .await?;
    let winners: Vec<usize> = updated.into_iter().filter(|(_, won)| *won).map(|(caller, _)| caller).collect();
    same("updates of one version that won", winners.len(), 1)?;
    let device = async || sessions.get(first.id, now).await.map(|found| found.and_then(|s| s.device));
    bench.sees("what the winner wrote", Some(winners[0].to_string()), device).await?;
    for caller in 0..RACERS {
        let used = answered(sessions.use_refresh(bench.universe.secret(caller + 1), now).await)?;
        let expected = if caller == winners[0] { RefreshUse::First(first.id) } else { RefreshUse::Unknown };
        same(format!("the token of caller {caller}"), used, expected)?;
    }
    Ok(())
}
