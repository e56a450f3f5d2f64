//! Sessions on a real ring.

use std::sync::Arc;

use mobimir_cassandra::CassandraSessions;
use mobimir_core::{
    id::{self, SessionId, UserId},
    policy::{Entity, Period, Policy},
    ports::{SessionStore, StoreError, Stores},
    secret::SecretHash,
    session::{Holder, RefreshToken, RefreshUse, Session, SessionState},
    time::{Clock, SystemClock, Timestamp, Version},
};
use mobimir_testkit::{
    conformance::{self, ConformanceOptions},
    model::ModelStore,
};
use uuid::Uuid;

use crate::support::{self, Fresh, until_answered};

pub(crate) async fn open(fresh: &Fresh, policy: &Policy) -> Arc<CassandraSessions> {
    let settings = support::settings(policy, Entity::Sessions);
    Arc::new(CassandraSessions::open(fresh.cluster.clone(), settings).await.expect("sessions can be opened"))
}

pub(crate) fn conform(policy_name: &str, options: ConformanceOptions) {
    let ring = support::shared();
    let policy = support::policy(policy_name);
    let factory = || async {
        let fresh = support::fresh(ring.ring, &policy, &[Entity::Sessions]).await;
        Stores { sessions: open(&fresh, &policy).await, ..ModelStore::stores() }
    };
    conformance::sessions(&factory, options);
}

fn options() -> ConformanceOptions {
    support::options(4)
}

#[test]
fn conformance_with_a_partition_each() {
    assert_eq!(support::settings(&support::policy("default"), Entity::Sessions).buckets, Some(0));
    conform("default", options());
}

pub(crate) fn session(now: Timestamp) -> Session {
    Session {
        id: SessionId(id::fresh(now)),
        holder: Holder::User(UserId(id::fresh(now))),
        token_hash: SecretHash::of(b"access"),
        state: SessionState::Live,
        ip_address: None,
        user_agent: None,
        device: None,
        created_at: now,
        last_active: now,
        expires_at: now.plus_s(3_600),
        version: Version::default().next(now),
    }
}

pub(crate) fn token(session: &Session) -> RefreshToken {
    let hash = SecretHash(mobimir_core::secret::random_bytes());
    RefreshToken { hash, session: session.id, expires_at: session.expires_at }
}

/// What was given a time to live is gone by the server's own clock, all of it, and leaves nothing half.
#[test]
fn what_has_expired_goes_away_by_itself() {
    let ring = support::shared();
    let policy = support::policy("default");
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let fresh = support::fresh(ring.ring, &policy, &[Entity::Sessions]).await;
        let sessions = open(&fresh, &policy).await;
        let keyspace = fresh.cluster.keyspace(Entity::Sessions);
        let rows = async |table: &str, of: SessionId| {
            let all = format!("SELECT session_id FROM {keyspace}.{table}");
            let session = fresh.cluster.session();
            let result = support::answered("all rows", || session.query_unpaged(all.as_str(), ())).await;
            let result = result.into_rows_result().unwrap();
            let ids = result.rows::<(Option<Uuid>,)>().unwrap().map(|row| row.unwrap().0);
            ids.filter(|id| *id == Some(of.0)).count()
        };
        // Whoever is too slow to see it while it is there tries again with a longer life.
        let mut lives_s = [3, 12, 48, 192].into_iter();
        let (now, long, second) = loop {
            let life_s = lives_s.next().expect("what lives for minutes is seen before it ends");
            let now = SystemClock.now();
            // Cut short after a long life was promised, and a token that is used in its last second.
            let long = session(now);
            let expires_at = now.plus_s(life_s);
            let (first, second) = (token(&long), RefreshToken { expires_at, ..token(&long) });
            sessions.insert(long.clone(), Some(first)).await.unwrap();
            let cut = Session { expires_at, version: long.version.next(now), ..long.clone() };
            let was_cut = sessions.update(cut, long.version, Some(second)).await.unwrap();
            let used = sessions.use_refresh(second.hash, now).await.unwrap();
            let there = (rows("sessions", long.id).await, rows("refresh_tokens", long.id).await);
            // The server counts in whole seconds.
            if SystemClock.now().since(now) < (life_s - 1) * 1_000 {
                assert!(was_cut);
                assert_eq!(used, RefreshUse::First(long.id));
                assert_eq!(there, (1, 2));
                break (now, long, second);
            }
        };
        support::until("the session is gone", support::PATIENCE, async || {
            rows("sessions", long.id).await == 0
        })
        .await;
        assert!(sessions.get(long.id, now).await.unwrap().is_none());
        // The token was written at another moment, and goes at its own.
        support::until("the token is gone", support::PATIENCE, async || {
            let used = sessions.use_refresh(second.hash, now).await.unwrap();
            assert_ne!(used, RefreshUse::First(long.id), "SES-2");
            used == RefreshUse::Unknown
        })
        .await;
        let extended = Session { version: long.version.next(now.plus_s(5)), ..long.clone() };
        let expected = long.version.next(now);
        assert!(!sessions.update(extended, expected, None).await.unwrap());
        assert_eq!(rows("sessions", long.id).await, 0);
    });
}

/// They hurt the servers, so nothing else may run beside them.
mod alone {
    use super::*;

    /// Nodes stop answering in the middle of decisions. Whoever gets an answer can rely on it.
    #[test]
    fn a_lost_answer_is_never_a_wrong_one() {
        const SESSIONS: usize = 120;
        const CALLERS: usize = 4;
        let alone = support::alone();
        let ring = alone.ring;
        let policy = support::policy("default");
        let mut settings = support::settings(&policy, Entity::Sessions);
        settings.timeout = Period::millis(1_000);
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let fresh = runtime.block_on(support::common(ring, &policy, &[Entity::Sessions]));
        let lost = support::while_nodes_hang(ring, || {
            runtime.block_on(async {
                let opened = support::answered("sessions can be opened", || {
                    CassandraSessions::open(fresh.cluster.clone(), settings.clone())
                });
                let sessions: Arc<dyn SessionStore> = Arc::new(opened.await);
                let mut lost = 0;
                for round in 0..SESSIONS / 10 {
                    let tasks: Vec<_> =
                        (0..10).map(|_| tokio::spawn(contend(sessions.clone(), CALLERS))).collect();
                    for task in tasks {
                        lost += task.await.unwrap_or_else(|error| panic!("round {round}: {error}"));
                    }
                }
                lost
            })
        });
        ring.wait_formed().unwrap();
        drop(fresh);
        assert!(lost > 0, "no answer was lost, so nothing was tried");
    }
}

/// Several change one session and use one token. Says how many did not learn what became of it.
async fn contend(sessions: Arc<dyn SessionStore>, callers: usize) -> usize {
    let now = SystemClock.now();
    let first = session(now);
    let first_token = token(&first);
    if until_answered(|| sessions.insert(first.clone(), Some(first_token))).await.is_none() {
        return 1;
    }
    let tasks: Vec<_> = (0..callers)
        .map(|caller| {
            let (sessions, first) = (sessions.clone(), first.clone());
            tokio::spawn(async move {
                let changed = Session {
                    device: Some(caller.to_string()),
                    version: first.version.next(now),
                    ..first.clone()
                };
                let given = token(&first);
                let used = sessions.use_refresh(first_token.hash, now).await;
                let updated = sessions.update(changed, first.version, Some(given)).await;
                (caller, given, used, updated)
            })
        })
        .collect();
    let mut lost = 0;
    let (mut firsts, mut winners, mut losers, mut doubtful) = (0, Vec::new(), Vec::new(), Vec::new());
    for task in tasks {
        let (caller, given, used, updated) = task.await.unwrap();
        match used {
            Ok(RefreshUse::First(_)) => firsts += 1,
            Ok(RefreshUse::Again(_)) => {}
            Ok(RefreshUse::Unknown) => panic!("a token that was given is unknown"),
            Err(_) => lost += 1,
        }
        match updated {
            Ok(true) => winners.push((caller, given)),
            Ok(false) => losers.push(given),
            Err(StoreError::Corrupt { what, .. }) => panic!("{what}"),
            Err(_) => {
                lost += 1;
                doubtful.push(caller);
            }
        }
    }
    assert!(firsts <= 1, "SES-2: {firsts} used one token for the first time");
    assert!(winners.len() <= 1, "{} changed one version", winners.len());
    let stored =
        until_answered(|| sessions.get(first.id, now)).await.flatten().expect("the session is there");
    let device = stored.device.as_deref().and_then(|device| device.parse::<usize>().ok());
    match (winners.first(), device) {
        (Some((winner, given)), device) => {
            assert_eq!(device, Some(*winner));
            let used = until_answered(|| sessions.use_refresh(given.hash, now)).await;
            assert!(!matches!(used, Some(RefreshUse::Unknown)), "the winner's token does not work");
        }
        (None, Some(device)) => assert!(doubtful.contains(&device), "{device} was told that it lost"),
        (None, None) => {}
    }
    for given in losers {
        let used = until_answered(|| sessions.use_refresh(given.hash, now)).await;
        assert!(
            matches!(used, Some(RefreshUse::Unknown) | None),
            "a loser has left a token behind: {used:?}"
        );
    }
    lost
}
