//! When a data centre is lost.
//!
//! A level like EACH_QUORUM then refuses every write. If the policy says `on_dc_loss = "local_quorum"` the entity becomes
//! *degraded*: it goes on at LOCAL_QUORUM in a data centre that is left. That is written down in the cluster
//! (`state`), counted and logged, and of everything written so it is noted what the lost one is owed (`owed`).
//!
//! Somebody tries the policy's level every now and then. When it works again the entity is *recovering*: writes are as the
//! policy says, reads still ask the data centre that went on, and what is owed is brought over, by reading it
//! from all replicas, which repairs those that lack it. When nothing is owed any more, all is as before.

use std::{
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use futures_util::stream::{self, StreamExt};
use mobimir_core::{
    policy::{CassandraSettings, Entity, OnDcLoss},
    ports::StoreResult,
};
use scylla::{
    statement::{Consistency, prepared::PreparedStatement},
    value::CqlTimestamp,
};

use super::{Variants, failure::Failure, meter::Meter, statement::consistency};
use crate::{
    cluster::{Cluster, ConnectError},
    stamps,
};

/// Whether an entity is where the policy wants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum DcState {
    Whole = 0,
    /// Written at LOCAL_QUORUM, because a data centre is lost.
    Degraded = 1,
    /// All data centres are back; what was written meanwhile is being brought over.
    Recovering = 2,
}

/// What was written: enough to find it again when the lost data centre is to be given it.
#[derive(Clone, Debug)]
pub(crate) struct Owed(pub(crate) Vec<u8>);

/// Who knows how to bring over what is owed.
#[async_trait]
pub(crate) trait Debts: Send + Sync {
    /// Reads everything under the key from all replicas.
    async fn settle(&self, key: &[u8]) -> StoreResult<()>;
}

pub(super) struct Watch {
    shared: Arc<Shared>,
}

struct Shared {
    cluster: Arc<Cluster>,
    entity: Entity,
    can_degrade_writes: bool,
    can_degrade_reads: bool,
    state: AtomicU8,
    meter: Meter,
    statements: Option<Statements>,
    task: Mutex<Option<tokio::task::JoinHandle<()>>>,
}

struct Statements {
    owe: PreparedStatement,
    owed: PreparedStatement,
    pay: PreparedStatement,
    record: PreparedStatement,
    /// One for each data centre: where it was written down nobody else can know.
    recorded: Vec<PreparedStatement>,
    clear: PreparedStatement,
    /// At the policy's own level.
    probe: PreparedStatement,
}

/// How often the state of the data centres is looked at.
const WATCH_PERIOD: Duration = Duration::from_secs(2);
const SHARDS: i8 = 16;
const SETTLED_AT_ONCE: usize = 8;
const OWED_PAGE_ROWS: i32 = 500;
/// Rows of `state`.
const DEGRADED: &str = "degraded";
const PROBE: &str = "probe";

impl Watch {
    pub(super) async fn open(
        cluster: &Arc<Cluster>,
        entity: Entity,
        settings: &CassandraSettings,
        keyspace: &str,
    ) -> Result<Self, ConnectError> {
        let goes_on = settings.on_dc_loss == OnDcLoss::LocalQuorum;
        let can_degrade_writes = goes_on && settings.write.needs_every_dc(&settings.replication);
        let can_degrade_reads = goes_on && settings.read.needs_every_dc(&settings.replication);
        let statements = if can_degrade_writes || can_degrade_reads {
            Some(Statements::prepare(cluster, settings, keyspace).await?)
        } else {
            None
        };
        let shared = Shared {
            cluster: cluster.clone(),
            entity,
            can_degrade_writes,
            can_degrade_reads,
            state: AtomicU8::new(DcState::Whole as u8),
            meter: cluster.meter(entity),
            statements,
            task: Mutex::new(None),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Looks after the data centres from now on, as long as `debts` lives.
    pub(super) fn start(&self, debts: Weak<dyn Debts>) {
        if self.shared.statements.is_none() {
            return;
        }
        let shared = Arc::downgrade(&self.shared);
        let task = tokio::spawn(async move {
            loop {
                tokio::time::sleep(WATCH_PERIOD).await;
                let (Some(shared), Some(debts)) = (shared.upgrade(), debts.upgrade()) else { return };
                if let Err(error) = shared.look(debts.as_ref()).await {
                    tracing::debug!(entity = %shared.entity, %error, "the state of the data centres could not be looked at");
                }
            }
        });
        *self.shared.task.lock().unwrap_or_else(PoisonError::into_inner) = Some(task);
    }

    pub(super) fn state(&self) -> DcState {
        self.shared.state()
    }

    pub(super) fn for_writes(&self) -> Variants {
        match self.state() {
            DcState::Degraded if self.shared.can_degrade_writes => Variants::Degraded,
            _ => Variants::Usual,
        }
    }

    pub(super) fn for_reads(&self) -> Variants {
        match self.state() {
            DcState::Whole => Variants::Usual,
            DcState::Degraded if self.shared.can_degrade_reads => Variants::Degraded,
            DcState::Degraded | DcState::Recovering => Variants::Surviving,
        }
    }

    pub(super) fn degrades_writes(&self, failure: &Failure) -> bool {
        self.shared.can_degrade_writes && failure.lacks_replicas()
    }

    pub(super) fn degrades_reads(&self, failure: &Failure) -> bool {
        self.shared.can_degrade_reads && failure.lacks_replicas()
    }

    pub(super) async fn degrade(&self, failure: &Failure) {
        self.shared.degrade(failure).await;
    }

    pub(super) async fn owe(&self, owed: Owed) -> Result<(), Failure> {
        let Some(statements) = &self.shared.statements else { return Ok(()) };
        let stamp = self.shared.cluster.stamps().next();
        let values = (shard_of(&owed.0), owed.0, stamp);
        self.shared.cluster.session().execute_unpaged(&statements.owe, values).await?;
        Ok(())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(task) = self.shared.task.lock().unwrap_or_else(PoisonError::into_inner).take() {
            task.abort();
        }
    }
}

impl Statements {
    async fn prepare(
        cluster: &Cluster,
        settings: &CassandraSettings,
        keyspace: &str,
    ) -> Result<Self, ConnectError> {
        let prepare = async |name: &'static str, cql: &str| {
            let cql = cql.replace("{}", keyspace);
            let mut prepared = cluster.prepare(name, &cql).await?;
            prepared.set_consistency(Consistency::LocalQuorum);
            prepared.set_is_idempotent(true);
            prepared.set_execution_profile_handle(Some(cluster.local_profile()));
            prepared.set_page_size(OWED_PAGE_ROWS);
            Ok::<_, ConnectError>(prepared)
        };
        // What went on in the surviving data centre stands there, and only there for certain.
        let prepare_surviving = async |name, cql: &str| {
            let mut prepared = prepare(name, cql).await?;
            prepared.set_execution_profile_handle(Some(cluster.surviving_profile()));
            Ok::<_, ConnectError>(prepared)
        };
        let recorded = prepare("recorded", "SELECT value FROM {}.state WHERE name = ?").await?;
        let recorded_in = |dc: &String| {
            let mut recorded = recorded.clone();
            recorded.set_execution_profile_handle(Some(cluster.home_profile(dc)));
            recorded
        };
        let mut probe = prepare("probe", "INSERT INTO {}.state (name, value, at) VALUES (?, ?, ?)").await?;
        let probed =
            if settings.write.needs_every_dc(&settings.replication) { settings.write } else { settings.read };
        probe.set_consistency(consistency(probed));
        probe.set_is_idempotent(false);
        Ok(Self {
            owe: prepare("owe", "INSERT INTO {}.owed (shard, key) VALUES (?, ?) USING TIMESTAMP ?").await?,
            owed: prepare_surviving("owed", "SELECT key FROM {}.owed WHERE shard = ?").await?,
            pay: prepare_surviving(
                "pay",
                "DELETE FROM {}.owed USING TIMESTAMP ? WHERE shard = ? AND key = ?",
            )
            .await?,
            record: prepare(
                "record",
                "INSERT INTO {}.state (name, value, at) VALUES (?, ?, ?) USING TIMESTAMP ?",
            )
            .await?,
            recorded: settings.replication.keys().map(recorded_in).collect(),
            // What is recorded since then stays.
            clear: prepare_surviving("clear", "DELETE FROM {}.state USING TIMESTAMP ? WHERE name = ?")
                .await?,
            probe,
        })
    }
}

impl Shared {
    fn state(&self) -> DcState {
        match self.state.load(Ordering::Acquire) {
            1 => DcState::Degraded,
            2 => DcState::Recovering,
            _ => DcState::Whole,
        }
    }

    fn set(&self, state: DcState) -> DcState {
        let before = self.state();
        self.state.store(state as u8, Ordering::Release);
        self.meter.degraded(state != DcState::Whole);
        before
    }

    async fn degrade(&self, failure: &Failure) {
        let Some(statements) = &self.statements else { return };
        self.cluster.ask_surviving(None);
        if self.set(DcState::Degraded) == DcState::Degraded {
            return;
        }
        tracing::warn!(
            entity = %self.entity,
            reason = %failure,
            "a data centre is lost: written at LOCAL_QUORUM until it is back and has what was written meanwhile"
        );
        if let Err(error) = self.record(statements).await {
            tracing::warn!(entity = %self.entity, %error, "that could not be written down for the other instances yet");
        }
    }

    async fn record(&self, statements: &Statements) -> Result<(), Failure> {
        let now = CqlTimestamp(stamps::real_now().as_millis());
        let record = (DEGRADED, self.cluster.surviving_dc(), now, self.cluster.stamps().next());
        self.cluster.session().execute_unpaged(&statements.record, record).await?;
        Ok(())
    }

    /// One look at how things stand, and the next step.
    async fn look(&self, debts: &dyn Debts) -> Result<(), Failure> {
        let Some(statements) = &self.statements else { return Ok(()) };
        let session = self.cluster.session();
        match self.state() {
            DcState::Whole => {
                if let Some(surviving) = self.recorded(statements).await? {
                    self.cluster.ask_surviving(Some(surviving));
                    self.set(DcState::Recovering);
                }
            }
            DcState::Degraded => {
                // Nobody is whole again before all know that something is owed: it may have failed before, or somebody who did not
                // know of it has cleared it away.
                self.record(statements).await?;
                let now = CqlTimestamp(stamps::real_now().as_millis());
                session.execute_unpaged(&statements.probe, (PROBE, "", now)).await?;
                tracing::info!(entity = %self.entity, "all data centres answer again: bringing over what was written meanwhile");
                self.set(DcState::Recovering);
            }
            DcState::Recovering => {
                let before = self.cluster.stamps().next();
                if let Some(surviving) = self.recorded(statements).await? {
                    self.cluster.ask_surviving(Some(surviving));
                }
                // Also when somebody else has found nothing owed: that may have been a moment too early.
                let settled = self.settle_all(statements, debts).await?;
                // What was written while this went on is found by looking once more.
                if settled > 0 || self.state() != DcState::Recovering {
                    return Ok(());
                }
                session.execute_unpaged(&statements.clear, (before, DEGRADED)).await?;
                self.set(DcState::Whole);
                tracing::info!(entity = %self.entity, "all data centres have everything again");
            }
        }
        Ok(())
    }

    /// The data centre that went on without another, if one did. Asks each for itself: that nothing is recorded is known when
    /// all have said so.
    async fn recorded(&self, statements: &Statements) -> Result<Option<String>, Failure> {
        let mut failed = None;
        for statement in &statements.recorded {
            let answer = self.cluster.session().execute_unpaged(statement, (DEGRADED,)).await;
            let rows = match answer {
                Ok(answer) => answer.into_rows_result().ok(),
                Err(error) => {
                    failed = Some(Failure::from(error));
                    continue;
                }
            };
            let row = rows.as_ref().and_then(|rows| rows.maybe_first_row::<(String,)>().ok().flatten());
            if let Some((surviving,)) = row {
                return Ok(Some(surviving));
            }
        }
        failed.map_or(Ok(None), Err)
    }

    /// Brings over what is owed now; says how much that was.
    async fn settle_all(&self, statements: &Statements, debts: &dyn Debts) -> Result<usize, Failure> {
        let session = self.cluster.session();
        let mut settled = 0;
        for shard in 0..SHARDS {
            loop {
                let result = session
                    .execute_single_page(&statements.owed, (shard,), scylla::response::PagingState::start())
                    .await?
                    .0;
                let Ok(rows) = result.into_rows_result() else { break };
                let keys: Vec<Vec<u8>> =
                    rows.rows::<(Vec<u8>,)>().into_iter().flatten().flatten().map(|(key,)| key).collect();
                if keys.is_empty() {
                    break;
                }
                let before = self.cluster.stamps().next();
                let outcomes: Vec<Result<(), Failure>> = stream::iter(keys)
                    .map(|key| async move {
                        if let Err(error) = debts.settle(&key).await {
                            tracing::debug!(entity = %self.entity, %error, "not all replicas answer yet");
                            return Err(Failure::timed_out(Duration::ZERO));
                        }
                        // What is owed again since then stays owed.
                        session.execute_unpaged(&statements.pay, (before, shard, key)).await?;
                        Ok(())
                    })
                    .buffer_unordered(SETTLED_AT_ONCE)
                    .collect()
                    .await;
                for outcome in outcomes {
                    outcome?;
                    settled += 1;
                }
            }
        }
        Ok(settled)
    }
}

fn shard_of(key: &[u8]) -> i8 {
    let sum = key.iter().fold(0u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(*byte));
    (sum % SHARDS.unsigned_abs()).cast_signed()
}
