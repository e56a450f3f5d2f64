//! Sessions on a real replica set.

use std::sync::Arc;

use mobimir_core::{
    id::{self, SessionId, UserId},
    policy::Entity,
    ports::{SessionStore, Stores},
    secret::SecretHash,
    session::{Holder, RefreshToken, RefreshUse, Session, SessionState},
    time::{Clock, SystemClock, Timestamp, Version},
};
use mobimir_mongodb::MongoSessions;
use mobimir_testkit::{conformance, model::ModelStore};

use crate::support::{self, Kept};

#[test]
fn conformance() {
    let (shared, kept) = (support::shared(), Kept::default());
    let factory = || async {
        let deployment = kept.keep(support::fresh(shared.mongo, &[Entity::Sessions]).await);
        Stores { sessions: Arc::new(MongoSessions::new(deployment)), ..ModelStore::stores() }
    };
    conformance::sessions(&factory, support::options(12));
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

/// SES-2, from two instances.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_many_use_works_once() {
    const CALLERS: usize = 64;
    let shared = support::shared();
    let fresh = support::fresh(shared.mongo, &[Entity::Sessions]).await;
    let other = fresh.another().await;
    let instances =
        [Arc::new(MongoSessions::new(fresh.deployment.clone())), Arc::new(MongoSessions::new(other))];
    let now = SystemClock.now();
    for _ in 0..4 {
        let session = session(now);
        let token = token(&session);
        instances[0].insert(session.clone(), Some(token)).await.unwrap();
        let tasks: Vec<_> = (0..CALLERS)
            .map(|n| {
                let sessions = instances[n % 2].clone();
                tokio::spawn(async move { sessions.use_refresh(token.hash, now).await })
            })
            .collect();
        let mut firsts = 0;
        for task in tasks {
            match task.await.unwrap().unwrap() {
                RefreshUse::First(id) if id == session.id => firsts += 1,
                RefreshUse::Again(id) if id == session.id => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(firsts, 1, "SES-2");
    }
}

/// By the server's clock, all that belongs to a session; and nothing early, whatever time its user has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_has_expired_goes_away_by_itself() {
    let shared = support::shared();
    let fresh = support::fresh(shared.mongo, &[Entity::Sessions]).await;
    let sessions = MongoSessions::new(fresh.deployment.clone());
    let now = SystemClock.now();
    // Cut short after a long life was promised, long enough ago for every clock.
    let long = session(now);
    let (first, second) = (token(&long), RefreshToken { expires_at: now.plus_s(-61), ..token(&long) });
    sessions.insert(long.clone(), Some(first)).await.unwrap();
    let of_old = session(Timestamp::parse("2001-09-09T01:46:40Z").unwrap());
    let old_token = token(&of_old);
    sessions.insert(of_old.clone(), Some(old_token)).await.unwrap();
    let cut = Session { expires_at: now.plus_s(-61), version: long.version.next(now), ..long.clone() };
    assert!(sessions.update(cut, long.version, Some(second)).await.unwrap());
    support::until("the session and its last token are gone", async || {
        (fresh.count("sessions").await, fresh.count("refresh_tokens").await) == (1, 2)
    })
    .await;
    let extended = Session { version: long.version.next(now.plus_s(5)), ..long.clone() };
    assert!(!sessions.update(extended, long.version.next(now), None).await.unwrap());
    assert!(sessions.get(long.id, now).await.unwrap().is_none());
    support::removal_rounds(shared.mongo, 3).await;
    assert_eq!((fresh.count("sessions").await, fresh.count("refresh_tokens").await), (1, 2));
    let last = of_old.expires_at.plus_ms(-1);
    assert_eq!(sessions.get(of_old.id, last).await.unwrap(), Some(of_old.clone()));
    assert_eq!(sessions.use_refresh(old_token.hash, last).await.unwrap(), RefreshUse::First(of_old.id));
}
