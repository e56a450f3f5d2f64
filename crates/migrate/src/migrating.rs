//! A port made of two others: whoever uses it does not know that its data is moving.

mod carts;
mod orders;
mod sessions;

use std::sync::{Arc, OnceLock};

use mobimir_core::{
    moving::{Side, Whole, WholeCart, WholeOrder, WholeSession},
    ports::{CartStore, OrderStore, SessionStore, StoreError, StoreResult},
    time::Clock,
};

use crate::{
    mirror::Mirror,
    phase::{Phase, Which},
    standing::Standing,
};

/// An entity on its way from one store to another.
pub struct Migrating<W: Whole, P: ?Sized> {
    source: Side<W, P>,
    standing: Arc<Standing>,
    clock: Arc<dyn Clock>,
    /// Known when a migration is.
    other: OnceLock<Other<W, P>>,
}

struct Other<W: Whole, P: ?Sized> {
    target: Side<W, P>,
    to_target: Arc<Mirror<W>>,
    to_source: Arc<Mirror<W>>,
}

pub type MigratingOrders = Migrating<WholeOrder, dyn OrderStore>;
pub type MigratingCarts = Migrating<WholeCart, dyn CartStore>;
pub type MigratingSessions = Migrating<WholeSession, dyn SessionStore>;

impl<W: Whole, P: ?Sized> Migrating<W, P> {
    /// An entity that stays where it is until it is known where it goes.
    pub fn new(source: Side<W, P>, standing: Arc<Standing>, clock: Arc<dyn Clock>) -> Self {
        Self { source, standing, clock, other: OnceLock::new() }
    }

    /// Where the entity goes. It cannot go anywhere else as long as this process lives.
    pub fn set_target(&self, target: Side<W, P>) {
        self.other.get_or_init(|| {
            let (source, clock) = (self.source.moving.clone(), self.clock.clone());
            Other {
                to_target: Mirror::new(source.clone(), target.moving.clone(), clock.clone()),
                to_source: Mirror::new(target.moving.clone(), source, clock),
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

    /// Runs a write of these keys in the store that decides now, and has them copied if that is so.
    async fn write<T, F, Fut>(&self, keys: Vec<W::Key>, work: F) -> StoreResult<T>
    where
        F: FnOnce(Arc<P>) -> Fut + Send,
        Fut: Future<Output = StoreResult<T>> + Send,
        P: Send + Sync,
    {
        let permit = self.standing.begin_write().await?;
        let side = self.side(permit.store)?;
        let port = if permit.mirrored { &side.tracked } else { &side.port };
        let answer = work(port.clone()).await;
        if permit.mirrored {
            // Also what failed: it may have happened. What did not has left no mark, and copying it does no harm.
            let mirror = self.mirror_of(permit.store)?;
            keys.into_iter().for_each(|key| mirror.written(key));
        }
        if !matches!(answer, Err(StoreError::Unknown { .. })) {
            permit.answered();
        }
        answer
    }
}
