//! A port made of two others: whoever uses it does not know that its data is moving.

mod carts;
mod history;
mod orders;
mod sessions;

use std::sync::{Arc, OnceLock};

use mobimir_core::{
    moving::{HistoryEntry, Side, Whole, WholeCart, WholeOrder, WholeSession},
    ports::{CartStore, OrderHistoryStore, OrderStore, SessionStore, StoreError, StoreResult},
    reading,
    time::Clock,
};

use crate::{
    environment::{Environment, Halfway, Planted},
    mirror::Mirror,
    phase::{Phase, Which},
    shadow::{Question, Shadow, Told},
    standing::Standing,
};

/// An entity on its way from one store to another.
pub struct Migrating<W: Whole, P: ?Sized> {
    source: Side<W, P>,
    standing: Arc<Standing>,
    environment: Environment,
    shadow: Arc<Shadow>,
    /// Known when a migration is.
    other: OnceLock<Other<W, P>>,
}

struct Other<W: Whole, P: ?Sized> {
    target: Side<W, P>,
    to_target: Arc<Mirror<W>>,
    to_source: Arc<Mirror<W>>,
}

pub type MigratingOrders = Migrating<WholeOrder, dyn OrderStore>;
pub type MigratingHistory = Migrating<HistoryEntry, dyn OrderHistoryStore>;
pub type MigratingCarts = Migrating<WholeCart, dyn CartStore>;
pub type MigratingSessions = Migrating<WholeSession, dyn SessionStore>;

impl<W: Whole, P: ?Sized> Migrating<W, P> {
    /// An entity that stays where it is until it is known where it goes.
    pub fn new(source: Side<W, P>, standing: Arc<Standing>, clock: Arc<dyn Clock>) -> Self {
        Self::in_environment(source, standing, Environment::system(clock))
    }

    pub fn in_environment(source: Side<W, P>, standing: Arc<Standing>, environment: Environment) -> Self {
        let shadow = Shadow::new(0);
        Self { source, standing, environment, shadow, other: OnceLock::new() }
    }

    /// With a share of reads asked of both stores before the switch.
    #[must_use]
    pub fn with_shadow(self, shadow: Arc<Shadow>) -> Self {
        Self { shadow, ..self }
    }

    /// Where the entity goes. It cannot go anywhere else as long as this process lives.
    pub fn set_target(&self, target: Side<W, P>) {
        self.other.get_or_init(|| {
            let (source, environment) = (self.source.moving.clone(), self.environment.clone());
            Other {
                to_target: Mirror::new(source.clone(), target.moving.clone(), environment.clone()),
                to_source: Mirror::new(target.moving.clone(), source, environment),
                target,
            }
        });
    }

    pub fn side(&self, which: Which) -> StoreResult<&Side<W, P>> {
        match which {
            Which::Source => Ok(&self.source),
            Which::Target => Ok(&self.other()?.target),
        }
    }

    /// What copies from the store to the other one.
    pub fn mirror_of(&self, from: Which) -> StoreResult<&Arc<Mirror<W>>> {
        let other = self.other()?;
        Ok(match from {
            Which::Source => &other.to_target,
            Which::Target => &other.to_source,
        })
    }

    fn other(&self) -> StoreResult<&Other<W, P>> {
        self.other.get().ok_or_else(|| StoreError::Unavailable {
            what: "the store that the data is moving to has not been opened yet".to_owned(),
            source: None,
        })
    }

    pub fn environment(&self) -> &Environment {
        &self.environment
    }

    pub fn standing(&self) -> &Arc<Standing> {
        &self.standing
    }

    /// The store that is read from now. While a migration goes on, through the tracked view: reading through it never
    /// writes anything, not even to tidy up.
    fn read(&self) -> StoreResult<&P> {
        let side = self.side(self.standing.read_from()?)?;
        let (phase, _) = self.standing.phase();
        let is_at_rest = matches!(phase, Phase::Source | Phase::Target);
        Ok(if is_at_rest { &side.port } else { &side.tracked })
    }

    pub fn shadow(&self) -> &Arc<Shadow> {
        &self.shadow
    }

    /// Has the target asked what the source has just answered, now and then, and never so that anybody waits for it.
    fn compare<T, F, Fut>(&self, what: &'static str, answer: &T, read: F)
    where
        T: Told,
        F: Fn(Arc<P>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = StoreResult<T>> + Send + 'static,
        P: Send + Sync + 'static,
    {
        let Some(turn) = self.shadow.turn() else { return };
        let Ok(target) = self.side(Which::Target) else { return };
        let sides = [self.source.clone(), target.clone()];
        let question = Question { what, read, sides, clock: self.environment.clock.clone() };
        self.environment.spawn(self.shadow.clone().ask(turn, answer.told(), question));
    }

    /// Runs a write of these keys in the store that decides now, and has them copied if that is so.
    ///
    /// The write runs in a task of its own from the moment it has its permit. Whoever stops waiting for it (a
    /// client that hangs up, a request past its deadline) does not leave it in doubt: it ends with what the
    /// store says, so a handover does not have to wait until it cannot arrive any more, and its mark is
    /// closed.
    async fn write<T, F, Fut>(&self, keys: Vec<W::Key>, work: F) -> StoreResult<T>
    where
        T: Send + 'static,
        F: FnOnce(Arc<P>) -> Fut + Send,
        Fut: Future<Output = StoreResult<T>> + Send + 'static,
        P: Send + Sync,
    {
        let permit = self.standing.begin_write().await?;
        let side = match self.side(permit.store) {
            Ok(side) => side,
            Err(error) => {
                // Nothing was begun.
                permit.answered();
                return Err(error);
            }
        };
        let plants = |fault| self.environment.plants(fault);
        let is_marked = permit.mirrored
            && !plants(Planted::WritesNotMarked)
            && !(plants(Planted::TargetNotMirrored) && permit.store == Which::Target);
        let port = if is_marked { &side.tracked } else { &side.port };
        // Also what failed is copied: it may have happened. What did not has left no mark, and copying it
        // does no harm. While the other store is not open here, its mark is what others find it by. It is
        // done all the same.
        let is_mirrored = permit.mirrored && (is_marked || plants(Planted::WritesNotMarked));
        let mirror = if is_mirrored { self.mirror_of(permit.store).ok().cloned() } else { None };
        // Nobody waits in a handover for longer than this, so no write may take longer.
        let work = tokio::time::timeout(self.standing.write_timeout(), work(port.clone()));
        let keeps_unknown = plants(Planted::UnknownKeepsPermit);
        let mut written = self.environment.run(reading::under(reading::current(), async move {
            let answer =
                work.await.unwrap_or_else(|_| Err(given_up("a write took too long and was given up")));
            if let Some(mirror) = mirror {
                keys.into_iter().for_each(|key| mirror.written(key));
            }
            match answer {
                Err(StoreError::Unknown { .. }) if keeps_unknown => std::mem::forget(permit),
                Err(StoreError::Unknown { .. }) => permit.unanswered(),
                _ => permit.answered(),
            }
            answer
        }));
        match written.outcome().await {
            Ok(answer) => answer,
            Err(Halfway::Panicked(panic)) => std::panic::resume_unwind(panic),
            Err(Halfway::Dropped) => Err(given_up("a write was given up because the process ends")),
        }
    }
}

fn given_up(what: &str) -> StoreError {
    StoreError::Unknown { what: what.to_owned(), source: None }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a unit test has a runtime of its own")]
mod tests {
    use std::time::Duration;

    use async_trait::async_trait;
    use mobimir_core::{
        cart::{CartChange, CartPosition, Effect, Owner, StoredCart},
        id::{self, ChangeId, ProductId, UserId},
        page::Page,
        time::{SystemClock, Timestamp},
    };
    use mobimir_testkit::model::ModelStore;
    use tokio::time::Instant;

    use super::*;
    use crate::{phase::Control, standing::InDoubt, timing::Timing};

    #[tokio::test]
    async fn a_write_is_done_and_marked_also_while_the_target_is_away() {
        let store = ModelStore::movables();
        let moving = store.carts.moving.clone();
        let standing = Standing::new(&Timing::default());
        let control = Control { phase: Phase::DualWrite, ..Control::default() };
        standing.follow(&control, Instant::now() + Duration::from_secs(60));
        let carts = MigratingCarts::new(store.carts, standing, Arc::new(SystemClock));
        let now = SystemClock.now();
        let owner = Owner::User(UserId(id::fresh(now)));
        let effect = Effect::Add { product: ProductId(id::fresh(now)), quantity: 1, zone: None };
        let id = ChangeId(id::fresh(now));
        let change = CartChange { id, at: now, origin: owner, keyed: false, effect };
        carts.append(owner, vec![change], now.plus_s(3_600), now).await.unwrap();
        assert_eq!(moving.backlog().await.unwrap().entities, 1);
        assert_eq!(CartStore::read(&carts, owner, now).await.unwrap().unwrap().changes.len(), 1);
    }

    /// Answers after a while.
    struct SlowCarts(Arc<dyn CartStore>);

    const ANSWERS_AFTER: Duration = Duration::from_millis(20);

    #[async_trait]
    impl CartStore for SlowCarts {
        async fn append(
            &self,
            owner: Owner,
            changes: Vec<CartChange>,
            expires_at: Timestamp,
            now: Timestamp,
        ) -> StoreResult<()> {
            tokio::time::sleep(ANSWERS_AFTER).await;
            self.0.append(owner, changes, expires_at, now).await
        }

        async fn read(&self, owner: Owner, now: Timestamp) -> StoreResult<Option<StoredCart>> {
            self.0.read(owner, now).await
        }

        async fn untouched(
            &self,
            untouched_since: Timestamp,
            after: Option<CartPosition>,
            limit: usize,
            now: Timestamp,
        ) -> StoreResult<Page<(Owner, StoredCart), CartPosition>> {
            self.0.untouched(untouched_since, after, limit, now).await
        }
    }

    /// Callers that stop waiting at any moment of a write: the handover waits for the store's answers and for
    /// nothing else.
    #[tokio::test(start_paused = true)]
    async fn writes_that_nobody_waits_for_do_not_delay_a_handover() {
        let mut store = ModelStore::movables().carts;
        store.tracked = Arc::new(SlowCarts(store.tracked));
        let standing = Standing::new(&Timing::default());
        let until = Instant::now() + Duration::from_secs(60);
        let dual_write = Control { phase: Phase::DualWrite, epoch: 3, ..Control::default() };
        standing.follow(&dual_write, until);
        let carts = MigratingCarts::new(store, standing.clone(), Arc::new(SystemClock));
        let now = SystemClock.now();
        let mut owners = Vec::new();
        for waits_ms in 0..2 * ANSWERS_AFTER.as_millis() as u64 {
            let owner = Owner::User(UserId(id::fresh(now)));
            let effect = Effect::Add { product: ProductId(id::fresh(now)), quantity: 1, zone: None };
            let id = ChangeId(id::fresh(now));
            let change = CartChange { id, at: now, origin: owner, keyed: false, effect };
            let written = carts.append(owner, vec![change], now.plus_s(3_600), now);
            let _ = tokio::time::timeout(Duration::from_millis(waits_ms), written).await;
            owners.push(owner);
        }
        let handover = Control { phase: Phase::Handover, epoch: 4, ..Control::default() };
        standing.follow(&handover, until);
        let began = Instant::now();
        standing.drained(4).await;
        assert!(
            began.elapsed() <= ANSWERS_AFTER,
            "the clock is virtual, so this is exact: {:?}",
            began.elapsed()
        );
        assert_eq!(standing.in_doubt(), InDoubt::default());
        for owner in owners {
            assert!(CartStore::read(&carts, owner, now).await.unwrap().is_some(), "what began was done");
        }
    }
}
