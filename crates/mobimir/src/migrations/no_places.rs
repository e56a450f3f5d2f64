//! A build without the feature `migrate`: nothing moves.

use std::sync::Arc;

use anyhow::Result;
use mobimir_core::{
    invariant::InvariantCounters,
    notes::NoteStore,
    policy::Policy,
    ports::{OrderHistoryStore, Stores},
    time::Clock,
};
use mobimir_embedded::EmbeddedStore;
use mobimir_http::Latency;
use mobimir_migrate::service::Migration;
use mobimir_shop::BucketCount;

use crate::{config::Config, not_built_in, servers::Servers};

/// There is nowhere to move to.
pub(crate) enum Places {}

impl Places {
    pub(crate) fn new(
        _policy: Policy,
        _config: Config,
        _embedded: EmbeddedStore,
        _servers: &Servers,
        _invariants: Arc<InvariantCounters>,
        _clock: Arc<dyn Clock>,
        _latency: Arc<Latency>,
    ) -> Result<Arc<Self>> {
        Err(not_built_in::migrations())
    }

    pub(crate) async fn let_move(
        self: &Arc<Self>,
        _notes: Arc<dyn NoteStore>,
        _stores: &mut Stores,
        _history: &mut Option<Arc<dyn OrderHistoryStore>>,
        _order_buckets: &mut BucketCount,
    ) -> Result<Vec<Arc<dyn Migration>>> {
        match **self {}
    }
}
