//! What can move, in the ring. Copies are put by the decisions that change the entity, on the version that was
//! read, as the adapter puts them.

mod carts;
mod orders;
mod sessions;

use std::sync::Arc;

use mobimir_core::{
    moving::{Movable, Side, Whole},
    ports::StoreResult,
};
use mobimir_migrate::phase::Which;
use mobimir_shop::environment::Environment;

use super::{
    HOME, QUORUM, REPLICAS_PER_DC, Ring, Rows,
    outbox::{Outbox, OutboxKey},
    put,
};
use crate::{
    migration::Deciding,
    network::{Kind, Network, unavailable},
    world::lock,
};

/// How often a copy is put to decision while others change the same.
const PUT_DECISIONS_MAX: usize = 8;

/// A store with its outbox.
#[derive(Clone)]
pub struct Moving<S> {
    store: S,
    ring: Ring,
    network: Network,
    outbox: Outbox,
    is_tracked: bool,
    deciding: Deciding,
}

impl<S: Clone> Moving<S> {
    pub fn open(
        store: S,
        ring: Ring,
        network: Network,
        environment: &Environment,
        deciding: Deciding,
    ) -> Self {
        let outbox = Outbox::open(ring.clone(), network.clone(), environment);
        Self { store, ring, network, outbox, is_tracked: false, deciding }
    }

    /// The side of a migration that this store is.
    pub fn side<W: Whole, P: ?Sized>(&self, port: impl Fn(Arc<Self>) -> Arc<P>) -> Side<W, P>
    where
        Self: Movable<W> + 'static,
    {
        let view = |is_tracked| Arc::new(Self { is_tracked, ..self.clone() });
        Side { port: port(view(false)), tracked: port(view(true)), moving: view(false) }
    }

    /// A write of whoever decides.
    async fn write<K: OutboxKey, T>(
        &self,
        keys: &[K],
        write: impl Future<Output = StoreResult<T>> + Send,
    ) -> StoreResult<T> {
        let written = self.outbox.tracked(self.is_tracked, keys, write).await;
        if written.is_ok() {
            self.deciding.wrote(Which::Target);
        }
        written
    }

    async fn table(&self, name: &'static str, table: &'static str) -> StoreResult<Rows> {
        let ring = self.ring.clone();
        self.network.call(Kind::Read, name, async move { ring.read_table(name, table).await }).await
    }
}

impl Ring {
    /// The rows of a whole table that a quorum of the home data centre has.
    async fn read_table(&self, name: &'static str, table: &'static str) -> StoreResult<Rows> {
        let up: Vec<usize> = {
            let state = lock(&self.state);
            let nodes = HOME * REPLICAS_PER_DC..(HOME + 1) * REPLICAS_PER_DC;
            nodes.filter(|node| !state.replicas[*node].is_down).collect()
        };
        if up.len() < QUORUM {
            return Err(unavailable(name));
        }
        let first = self.world.below(up.len() as u64) as usize;
        let mut rows = Rows::new();
        for at in 0..QUORUM {
            // Each replica answers at a moment of its own.
            self.world.travel().await;
            let state = lock(&self.state);
            let of_node = &state.replicas[up[(first + at) % up.len()]].partitions;
            let of_table = of_node.iter().filter(|((of, _), _)| *of == table);
            for (key, cell) in of_table.flat_map(|(_, rows)| rows.iter()) {
                put(&mut rows, key.clone(), cell.clone());
            }
        }
        let mut rows = self.alive(rows);
        rows.retain(|_, cell| cell.value.is_some());
        Ok(rows)
    }
}
