//! A port made of two others: whoever uses it does not know that its data is moving.

mod carts;
mod orders;
mod sessions;

use std::sync::Arc;

use mobimir_core::{
    moving::{CartSide, OrderSide, SessionSide, Side, Whole, WholeCart, WholeOrder, WholeSession},
    ports::{CartStore, OrderStore, SessionStore, StoreResult},
    time::Clock,
};

use crate::{mirror::Mirror, phase::Which, standing::Standing};

/// An entity on its way from one store to another.
pub struct Migrating<W: Whole, P: ?Sized> {
    source: Side<W, P>,
    target: Side<W, P>,
    standing: Arc<Standing>,
    to_target: Arc<Mirror<W>>,
    to_source: Arc<Mirror<W>>,
}

pub type MigratingOrders = Migrating<WholeOrder, dyn OrderStore>;
pub type MigratingCarts = Migrating<WholeCart, dyn CartStore>;
pub type MigratingSessions = Migrating<WholeSession, dyn SessionStore>;

impl MigratingOrders {
    pub fn orders(
        source: OrderSide,
        target: OrderSide,
        standing: Arc<Standing>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self::new(source, target, standing, clock)
    }
}

impl MigratingCarts {
    pub fn carts(source: CartSide, target: CartSide, standing: Arc<Standing>, clock: Arc<dyn Clock>) -> Self {
        Self::new(source, target, standing, clock)
    }
}

impl MigratingSessions {
    pub fn sessions(
        source: SessionSide,
        target: SessionSide,
        standing: Arc<Standing>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self::new(source, target, standing, clock)
    }
}

impl<W: Whole, P: ?Sized> Migrating<W, P> {
    fn new(source: Side<W, P>, target: Side<W, P>, standing: Arc<Standing>, clock: Arc<dyn Clock>) -> Self {
        let to_target = Mirror::new(source.moving.clone(), target.moving.clone(), clock.clone());
        let to_source = Mirror::new(target.moving.clone(), source.moving.clone(), clock);
        Self { source, target, standing, to_target, to_source }
    }

    pub fn side(&self, which: Which) -> &Side<W, P> {
        match which {
            Which::Source => &self.source,
            Which::Target => &self.target,
        }
    }

    /// What copies from the store to the other one.
    pub fn mirror_of(&self, from: Which) -> &Arc<Mirror<W>> {
        match from {
            Which::Source => &self.to_target,
            Which::Target => &self.to_source,
        }
    }

    pub fn standing(&self) -> &Arc<Standing> {
        &self.standing
    }

    /// The store that is read from now.
    fn read(&self) -> StoreResult<&P> {
        Ok(&self.side(self.standing.read_from()?).port)
    }

    /// Runs a write of these keys in the store that decides now, and has them copied if that is so.
    async fn write<T, F, Fut>(&self, keys: Vec<W::Key>, work: F) -> StoreResult<T>
    where
        F: FnOnce(Arc<P>) -> Fut + Send,
        Fut: Future<Output = StoreResult<T>> + Send,
        P: Send + Sync,
    {
        let permit = self.standing.begin_write().await?;
        let side = self.side(permit.store);
        if !permit.mirrored {
            return work(side.port.clone()).await;
        }
        let answer = work(side.tracked.clone()).await;
        // Also what failed: it may have happened. What did not has left no mark, and copying it does no harm.
        for key in keys {
            self.mirror_of(permit.store).written(key);
        }
        answer
    }
}
