use mobimir_core::{
    id::SessionId,
    session::{
        DEVICE_CHARS_MAX, Holder, RefreshToken, RefreshUse, Session, SessionState, USER_AGENT_CHARS_MAX,
    },
    time::Timestamp,
};

use super::{Bench, Checked, DAY_MS, Failure, HOUR_MS, Suite, answered, pages, races::session, same};

const PAGE: usize = 3;

pub(super) fn conform(suite: &Suite) {
    suite.example("SES-1: an expired session is gone from every read", expiry);
    suite.example("an expired token is unknown, whatever its session does", token_expiry);
    suite.example("guests closed before a moment are found, the first closed first", unmerged);
    suite.example("sessions of one moment are ordered by rising id", equal_times);
    suite.example("a session with everything there can be comes back whole", awkward_session);
}

async fn by_user(bench: &Bench, now: Timestamp) -> Result<Vec<SessionId>, Failure> {
    let (sessions, user) = (&bench.store.sessions, bench.universe.user(0));
    let listed = pages(PAGE, None, async |after| sessions.by_user(user, after, PAGE, now).await).await?;
    Ok(listed.into_iter().map(|session| session.id).collect())
}

async fn expiry(bench: &Bench) -> Checked {
    let sessions = &bench.store.sessions;
    let (of_user, token) = session(bench, 0);
    let closed =
        SessionState::Closed { at: bench.universe.start, into: bench.universe.user(0), merged: false };
    let of_guest = Session { holder: Holder::Guest, state: closed, ..session(bench, 1).0 };
    answered(sessions.insert(of_user.clone(), Some(token)).await)?;
    answered(sessions.insert(of_guest.clone(), None).await)?;
    let end = of_user.expires_at;
    for (now, is_there) in [(end.plus_ms(-1), true), (end, false), (end.plus_ms(1), false)] {
        for id in [of_user.id, of_guest.id] {
            let found = async || sessions.get(id, now).await.map(|found| found.is_some());
            bench.sees(format!("get at {now}, expires at {end}"), is_there, found).await?;
        }
        let count = usize::from(is_there);
        let listed = async || by_user(bench, now).await.map(|found| found.len());
        bench.sees(format!("by_user at {now}, expires at {end}"), count, listed).await?;
        let unmerged = async || sessions.unmerged(now, 100, now).await.map(|found| found.len());
        bench.sees(format!("unmerged at {now}, expires at {end}"), count, unmerged).await?;
    }
    same("a token at its end", answered(sessions.use_refresh(token.hash, end).await)?, RefreshUse::Unknown)
}

async fn token_expiry(bench: &Bench) -> Checked {
    let (sessions, start) = (&bench.store.sessions, bench.universe.start);
    let (session, token) = session(bench, 0);
    let short = RefreshToken { expires_at: start.plus_ms(HOUR_MS), ..token };
    answered(sessions.insert(session.clone(), Some(short)).await)?;
    // The session goes on, with a second token that lasts as long as it does.
    let extended = Session {
        expires_at: start.plus_ms(2 * DAY_MS),
        version: session.version.next(start),
        ..session.clone()
    };
    let hash = bench.universe.secret(1);
    let long = RefreshToken { hash, session: session.id, expires_at: extended.expires_at };
    same("extended", answered(sessions.update(extended, session.version, Some(long)).await)?, true)?;
    let later = start.plus_ms(DAY_MS + HOUR_MS);
    let is_there = async || sessions.get(session.id, later).await.map(|found| found.is_some());
    bench.sees("the session", true, is_there).await?;
    let short_used = answered(sessions.use_refresh(short.hash, later).await)?;
    same("the first token", short_used, RefreshUse::Unknown)?;
    let long_used = answered(sessions.use_refresh(long.hash, later).await)?;
    same("the second token", long_used, RefreshUse::First(session.id))
}

async fn unmerged(bench: &Bench) -> Checked {
    let (sessions, start) = (&bench.store.sessions, bench.universe.start);
    const GUESTS: usize = 4;
    let mut closed = Vec::new();
    for n in [2, 0, 3, 1] {
        let (at, into) = (start.plus_ms(n as i64), bench.universe.user(0));
        let state = SessionState::Closed { at, into, merged: false };
        let guest = Session { holder: Holder::Guest, state, ..session(bench, n).0 };
        answered(sessions.insert(guest.clone(), None).await)?;
        closed.push(guest);
    }
    closed.sort_by_key(super::closed_at);
    for n in 0..=GUESTS {
        let before = start.plus_ms(n as i64);
        let found = async || sessions.unmerged(before, 100, before).await;
        bench.sees(format!("closed less than {n} ms after the first"), closed[..n].to_vec(), found).await?;
        let first = async || sessions.unmerged(before, 2, before).await;
        bench.sees(format!("the first of these {n}"), closed[..n.min(2)].to_vec(), first).await?;
    }
    let done = SessionState::Closed { at: start, into: bench.universe.user(0), merged: true };
    let merged = Session { state: done, version: closed[0].version.next(start), ..closed[0].clone() };
    answered(sessions.update(merged, closed[0].version, None).await)?;
    let found = async || sessions.unmerged(start.plus_ms(9), 100, start).await;
    bench.sees("closed, after one was merged", closed[1..].to_vec(), found).await
}

async fn equal_times(bench: &Bench) -> Checked {
    const SESSIONS: usize = 10;
    let mut expected = Vec::new();
    for n in 0..SESSIONS {
        let (session, token) = session(bench, n);
        expected.push(session.id);
        answered(bench.store.sessions.insert(session, Some(token)).await)?;
    }
    expected.sort();
    bench.sees("sessions by user", expected, async || by_user(bench, bench.universe.start).await).await
}

async fn awkward_session(bench: &Bench) -> Checked {
    let (sessions, now) = (&bench.store.sessions, bench.universe.start);
    for (n, address) in
        ["::1", "255.255.255.255", "2001:db8::ffff:1.2.3.4", "::ffff:10.0.0.1"].iter().enumerate()
    {
        let awkward = Session {
            ip_address: Some(address.parse().expect("these are addresses")),
            user_agent: Some("😀".repeat(USER_AGENT_CHARS_MAX)),
            device: Some("\u{1}'\"\\ё".chars().cycle().take(DEVICE_CHARS_MAX).collect()),
            state: SessionState::Revoked { at: now },
            ..session(bench, n).0
        };
        answered(sessions.insert(awkward.clone(), None).await)?;
        let id = awkward.id;
        bench.sees("get", Some(awkward), async || sessions.get(id, now).await).await?;
    }
    Ok(())
}
