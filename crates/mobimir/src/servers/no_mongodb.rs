//! A build without the driver of MongoDB: nobody connects, so nothing is ever asked of a connection.

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use mobimir_core::{
    id::ProductId,
    invariant::InvariantCounters,
    moving::{CartSide, HistorySide, OrderSide, SessionSide},
    notes::NoteStore,
    policy::Policy,
    ports::{ProductStore, UserStore},
    reading::{Position, Served},
    time::Clock,
};

use crate::{config::MongodbConfig, not_built_in};

/// There is no connection to a deployment.
#[derive(Clone)]
pub(crate) enum Mongodb {}

impl Mongodb {
    pub(crate) async fn connect(
        _config: &MongodbConfig,
        policy: &Policy,
        _invariants: Arc<InvariantCounters>,
    ) -> Result<Self> {
        Err(not_built_in::store("MongoDB", policy))
    }

    pub(crate) fn trouble(&self) -> Option<String> {
        match *self {}
    }

    pub(crate) fn metrics(&self) -> String {
        match *self {}
    }

    pub(crate) fn written(&self) -> Position {
        match *self {}
    }

    pub(crate) fn served(&self) -> Vec<Served> {
        match *self {}
    }

    pub(crate) fn lag(&self) -> Option<Duration> {
        match *self {}
    }

    pub(crate) async fn schema_differences(&self, _policy: &Policy) -> Result<usize> {
        match *self {}
    }

    pub(crate) fn products(&self) -> Arc<dyn ProductStore> {
        match *self {}
    }

    pub(crate) async fn tend_stripes(
        self,
        _wanted: Vec<(ProductId, u16)>,
        _clock: Arc<dyn Clock>,
        _stopped: impl Future<Output = ()>,
    ) {
        match self {}
    }

    pub(crate) fn users(&self) -> Arc<dyn UserStore> {
        match *self {}
    }

    pub(crate) fn carts(&self) -> CartSide {
        match *self {}
    }

    pub(crate) fn orders(&self) -> OrderSide {
        match *self {}
    }

    pub(crate) fn sessions(&self) -> SessionSide {
        match *self {}
    }

    pub(crate) fn order_history(&self) -> HistorySide {
        match *self {}
    }

    pub(crate) fn notes(&self) -> Arc<dyn NoteStore> {
        match *self {}
    }
}
