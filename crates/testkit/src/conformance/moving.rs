//! What a migration asks of a store: entities whole, one after the other, put without ever going back, and marks that no
//! write escapes.
//!
//! Each kind of data is a [`Subject`]; what must be true of all of them stands in [`every`].

mod carts;
mod every;
mod history;
mod orders;
mod sessions;

use std::sync::Arc;

use mobimir_core::{
    moving::{HistorySide, Movables, Side, Whole},
    ports::StoreResult,
    time::Timestamp,
};

use super::{
    arena::{self, Modelled, Universe},
    check::{Checked, Failure, RACERS, answered, holds, race, same},
};

type Suite = super::Suite<Movables>;
type Bench = arena::Bench<Movables>;

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;

pub(super) fn conform_orders(suite: &Suite) {
    every::conform::<orders::Orders>(suite);
    orders::conform(suite);
}

pub(super) fn conform_order_history(suite: &super::Suite<HistorySide>) {
    every::conform::<history::History>(suite);
}

pub(super) fn conform_carts(suite: &Suite) {
    every::conform::<carts::Carts>(suite);
    carts::conform(suite);
}

pub(super) fn conform_sessions(suite: &Suite) {
    every::conform::<sessions::Sessions>(suite);
    sessions::conform(suite);
}

/// A kind of data, and how it is written through its port.
trait Subject: 'static {
    type W: Whole;
    type Port: ?Sized + Send + Sync;
    /// What it is one of.
    type Stores: Modelled;

    const NAME: &'static str;
    /// How often one that was made can be changed.
    const CHANGES_MAX: usize;
    /// How long one lasts that was just made, if it ends by itself.
    const LASTS_MS: Option<i64>;

    fn side(stores: &Self::Stores) -> &Side<Self::W, Self::Port>;

    /// What is written when the `n`th is made.
    fn keys(universe: &Universe, n: usize) -> Vec<<Self::W as Whole>::Key>;

    fn make(
        universe: &Universe,
        port: &Arc<Self::Port>,
        n: usize,
    ) -> impl Future<Output = StoreResult<()>> + Send;

    /// The `change`th change of the `n`th; changes are made in their order.
    fn change(
        universe: &Universe,
        port: &Arc<Self::Port>,
        n: usize,
        change: usize,
    ) -> impl Future<Output = StoreResult<()>> + Send;
}

/// The moment of a change.
fn at(universe: &Universe, change: usize) -> Timestamp {
    universe.start.plus_ms(1 + change as i64)
}
