//! Sessions on several instances that each remember what they have read (SES-3).

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod support;

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use async_trait::async_trait;
use futures_util::future::join_all;
use mobimir_core::{
    entropy::SystemEntropy,
    id::{SessionId, UserId},
    invariant::Invariant,
    page::Page,
    ports::{SessionStore, StoreError, StoreResult},
    secret::{AccessToken, SecretHash},
    session::{RefreshToken, RefreshUse, Session, SessionPosition},
    time::{Timestamp, Version},
};
use mobimir_shop::{LoggedIn, Shop, ShopSettings, faults::Faults};

use self::support::World;

const SESSION_CACHE_MS: i64 = 2_000;

/// Counts reads of single sessions, and answers them as a replica that lags would, or not at all.
struct Reads {
    sessions: Arc<dyn SessionStore>,
    count: AtomicUsize,
    stale: Mutex<Option<Session>>,
    /// Whether also those replicas lag that decide.
    decides_stale: AtomicBool,
    is_away: AtomicBool,
}

impl Reads {
    async fn read(&self, id: SessionId, now: Timestamp, lags: bool) -> StoreResult<Option<Session>> {
        self.count.fetch_add(1, Ordering::SeqCst);
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        if self.is_away.load(Ordering::SeqCst) {
            return Err(StoreError::Unavailable { what: "away".into(), source: None });
        }
        let stale = self.stale.lock().expect("nobody panics").clone();
        match stale.filter(|_| lags) {
            Some(stale) => Ok(Some(stale)),
            None => self.sessions.get(id, now).await,
        }
    }
}

#[async_trait]
impl SessionStore for Reads {
    async fn insert(&self, session: Session, refresh: Option<RefreshToken>) -> StoreResult<()> {
        self.sessions.insert(session, refresh).await
    }

    async fn get(&self, id: SessionId, now: Timestamp) -> StoreResult<Option<Session>> {
        self.read(id, now, true).await
    }

    async fn get_decided(&self, id: SessionId, now: Timestamp) -> StoreResult<Option<Session>> {
        self.read(id, now, self.decides_stale.load(Ordering::SeqCst)).await
    }

    async fn by_user(
        &self,
        user: UserId,
        after: Option<SessionPosition>,
        limit: usize,
        now: Timestamp,
    ) -> StoreResult<Page<Session, SessionPosition>> {
        self.sessions.by_user(user, after, limit, now).await
    }

    async fn use_refresh(&self, hash: SecretHash, now: Timestamp) -> StoreResult<RefreshUse> {
        self.sessions.use_refresh(hash, now).await
    }

    async fn update(
        &self,
        session: Session,
        expected: Version,
        refresh: Option<RefreshToken>,
    ) -> StoreResult<bool> {
        self.sessions.update(session, expected, refresh).await
    }

    async fn unmerged(
        &self,
        closed_before: Timestamp,
        limit: usize,
        now: Timestamp,
    ) -> StoreResult<Vec<Session>> {
        self.sessions.unmerged(closed_before, limit, now).await
    }
}

/// Two instances over one store, and a user who is logged in and known to both.
struct Two {
    world: World,
    reads: Arc<Reads>,
    here: Shop,
    elsewhere: Shop,
    login: LoggedIn,
}

impl Two {
    async fn new() -> Self {
        let mut world = World::new();
        let reads = Arc::new(Reads {
            sessions: world.stores.sessions.clone(),
            count: AtomicUsize::default(),
            stale: Mutex::default(),
            decides_stale: AtomicBool::default(),
            is_away: AtomicBool::default(),
        });
        world.stores.sessions = reads.clone();
        let settings = ShopSettings {
            session_cache_ms: SESSION_CACHE_MS,
            password_memory_kib: 8,
            ..ShopSettings::default()
        };
        let [here, elsewhere] = [0, 1].map(|_| world.shop_with(settings.clone(), Faults::none()));
        here.register("anna@example.ru", "correct horse").await.unwrap();
        let login = here.log_in("anna@example.ru", "correct horse", None, Default::default()).await.unwrap();
        let two = Self { world, reads, here, elsewhere, login };
        for shop in [&two.here, &two.elsewhere] {
            assert!(is_accepted(shop, &two.login.token).await);
        }
        two
    }

    async fn refresh(&self) -> LoggedIn {
        self.here.refresh(self.login.refresh_token.as_deref().unwrap()).await.unwrap()
    }

    async fn log_out(&self) {
        let caller = self.here.authenticate(&self.login.token).await.unwrap().unwrap();
        self.here.log_out(&caller).await.unwrap();
    }

    fn wrong_token(&self) -> String {
        AccessToken::generate(self.login.session_id, &SystemEntropy).encode()
    }

    fn reads_since(&self, before: usize) -> usize {
        self.reads.count.load(Ordering::SeqCst) - before
    }

    fn reads(&self) -> usize {
        self.reads_since(0)
    }
}

async fn is_accepted(shop: &Shop, token: &str) -> bool {
    shop.authenticate(token).await.unwrap().is_some()
}

#[tokio::test]
async fn a_refreshed_token_works_on_the_other_instance_at_once() {
    let two = Two::new().await;
    let mut refresh_token = two.login.refresh_token.clone().unwrap();
    for round in 0..40 {
        let refreshed = two.here.refresh(&refresh_token).await.unwrap();
        assert!(is_accepted(&two.elsewhere, &refreshed.token).await, "elsewhere, round {round}");
        assert!(is_accepted(&two.here, &refreshed.token).await, "here, round {round}");
        refresh_token = refreshed.refresh_token.unwrap();
        two.world.clock.advance_ms(round);
    }
    for shop in [&two.here, &two.elsewhere] {
        assert_eq!(shop.invariants().violations(Invariant::Ses3), 0);
    }
}

#[tokio::test]
async fn a_new_token_works_at_once_where_the_old_one_was_just_refused() {
    let two = Two::new().await;
    let refreshed = two.refresh().await;
    assert!(!is_accepted(&two.here, &two.login.token).await);
    assert!(is_accepted(&two.here, &refreshed.token).await);
    assert!(is_accepted(&two.elsewhere, &refreshed.token).await);
    assert!(!is_accepted(&two.elsewhere, &two.login.token).await, "the new version is known there by now");
}

#[tokio::test]
async fn an_ended_token_is_refused_here_at_once_and_elsewhere_within_the_cache_time() {
    for is_refresh in [false, true] {
        let two = Two::new().await;
        if is_refresh {
            two.refresh().await;
        } else {
            two.log_out().await;
        }
        assert!(!is_accepted(&two.here, &two.login.token).await, "here, after a refresh: {is_refresh}");
        // Being used does not make what is remembered younger.
        for _ in 0..10 {
            two.world.clock.advance_ms(SESSION_CACHE_MS / 10);
            is_accepted(&two.elsewhere, &two.login.token).await;
        }
        assert!(!is_accepted(&two.elsewhere, &two.login.token).await, "after a refresh: {is_refresh}");
    }
}

#[tokio::test]
async fn no_clock_that_stands_still_or_is_set_back_keeps_an_ended_token_alive() {
    let two = Two::new().await;
    two.log_out().await;
    two.world.clock.advance_ms(SESSION_CACHE_MS);
    two.world.clock.shift_wall_ms(-SESSION_CACHE_MS);
    assert!(!is_accepted(&two.elsewhere, &two.login.token).await, "the wall clock was set back");

    let two = Two::new().await;
    two.log_out().await;
    two.world.clock.shift_wall_ms(SESSION_CACHE_MS);
    assert!(!is_accepted(&two.elsewhere, &two.login.token).await, "the boot clock stood still");
}

#[tokio::test]
async fn an_older_version_never_replaces_a_newer_one() {
    let two = Two::new().await;
    let old = two.world.stores.sessions.get(two.login.session_id, two.here.now()).await.unwrap().unwrap();
    let refreshed = two.refresh().await;
    assert!(is_accepted(&two.elsewhere, &refreshed.token).await);

    *two.reads.stale.lock().unwrap() = Some(old);
    for shop in [&two.here, &two.elsewhere] {
        assert!(!is_accepted(shop, &two.login.token).await, "a read that lags revived an ended token");
        assert!(is_accepted(shop, &refreshed.token).await, "a read that lags ended a new token");
    }
    two.world.clock.advance_ms(SESSION_CACHE_MS);
    for shop in [&two.here, &two.elsewhere, &two.world.shop(Faults::none())] {
        assert!(is_accepted(shop, &refreshed.token).await, "it is looked up where sessions are decided");
        assert!(!is_accepted(shop, &two.login.token).await, "what is too old to accept still refuses");
        assert_eq!(shop.invariants().violations(Invariant::Ses3), 0, "a replica may lag");
    }
}

#[tokio::test]
async fn an_older_version_where_sessions_are_decided_is_counted_and_refuses_nobody() {
    let two = Two::new().await;
    let old = two.world.stores.sessions.get(two.login.session_id, two.here.now()).await.unwrap().unwrap();
    let refreshed = two.refresh().await;
    *two.reads.stale.lock().unwrap() = Some(old);
    two.reads.decides_stale.store(true, Ordering::SeqCst);
    two.world.clock.advance_ms(SESSION_CACHE_MS);
    let answer = two.here.authenticate(&refreshed.token).await;
    assert!(matches!(answer, Err(StoreError::Unavailable { .. })), "{answer:?}");
    assert!(two.here.invariants().violations(Invariant::Ses3) > 0);
    *two.reads.stale.lock().unwrap() = None;
    assert!(is_accepted(&two.here, &refreshed.token).await);
}

#[tokio::test]
async fn a_thousand_wrong_secrets_share_a_few_reads() {
    let two = Two::new().await;
    let refreshed = two.refresh().await;
    let before = two.reads();
    let mut tokens: Vec<String> = (0..1_000).map(|_| two.wrong_token()).collect();
    tokens.push(refreshed.token);
    let accepted = join_all(tokens.iter().map(|token| is_accepted(&two.elsewhere, token))).await;
    assert_eq!(accepted.iter().filter(|accepted| **accepted).count(), 1);
    assert!(accepted[1_000], "the right one among them");
    // One of replicas that may lag and one of those that decide, at most twice.
    assert!(two.reads_since(before) <= 4, "{} reads", two.reads_since(before));
}

#[tokio::test]
async fn one_wrong_token_again_and_again_is_read_once_in_a_while() {
    let two = Two::new().await;
    for token in [
        two.wrong_token(),
        AccessToken::generate(SessionId(mobimir_core::id::derived("x", &[])), &SystemEntropy).encode(),
    ] {
        let before = two.reads();
        for _ in 0..1_000 {
            assert!(!is_accepted(&two.elsewhere, &token).await);
        }
        assert_eq!(two.reads_since(before), 2, "of a replica, and where sessions are decided");
        two.world.clock.advance_ms(SESSION_CACHE_MS);
        assert!(!is_accepted(&two.elsewhere, &token).await);
        assert_eq!(two.reads_since(before), 4);
    }
}

#[tokio::test]
async fn a_request_that_is_dropped_while_it_reads_refuses_nobody() {
    let two = Two::new().await;
    let refreshed = two.refresh().await;
    for polls in 1..9 {
        let other = two.world.shop(Faults::none());
        let wrong = two.wrong_token();
        let mut dropped = Box::pin(other.authenticate(&wrong));
        let mut waiting = Box::pin(other.authenticate(&refreshed.token));
        for _ in 0..polls {
            let _ = futures_util::poll!(dropped.as_mut());
            let _ = futures_util::poll!(waiting.as_mut());
        }
        drop(dropped);
        assert!(waiting.await.unwrap().is_some(), "dropped after {polls} polls");
    }
}

#[tokio::test]
async fn a_store_that_is_away_is_no_refusal() {
    let two = Two::new().await;
    let refreshed = two.refresh().await;
    two.reads.is_away.store(true, Ordering::SeqCst);
    let before = two.reads();
    let answers =
        join_all((0..100).map(|_| async { two.elsewhere.authenticate(&refreshed.token).await })).await;
    assert!(answers.iter().all(|answer| matches!(answer, Err(StoreError::Unavailable { .. }))));
    assert!(two.reads_since(before) <= 2, "failures are shared too");
    two.reads.is_away.store(false, Ordering::SeqCst);
    assert!(is_accepted(&two.elsewhere, &refreshed.token).await);
}
