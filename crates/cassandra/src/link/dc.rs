//! When a data centre is lost.
//!
//! A level like EACH_QUORUM then refuses every write, and LOCAL_QUORUM all that is asked by those next to the
//! lost one: local means local, so nobody else may answer in its place. If the policy says `on_dc_loss =
//! "local_quorum"` the entity becomes *degraded*: it goes on at LOCAL_QUORUM in a data centre that is left.
//! That is written down in the cluster (`state`) before anything else, counted and logged, and of everything
//! written so it is noted what the lost one is owed (`owed`).
//!
//! Somebody tries every now and then whether all data centres answer. When they do the entity is
//! *recovering*: writes are in every data centre, reads ask the one that went on, or all where it may not
//! have everything, and what is owed is brought over. When nothing is owed any more, all is as before.
//!
//! Decisions are exclusive at home alone. As long as the entity goes on elsewhere, none is made; and none is
//! made while recovering before what is owed of its partition is there.
//!
//! Which way a statement goes is decided in [`rules`](super::rules), purely.

use std::{
    sync::{
        Arc, Mutex, OnceLock, PoisonError, Weak,
        atomic::{AtomicU8, AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use futures_util::stream::{self, StreamExt};
use mobimir_core::{
    policy::{CassandraSettings, Entity},
    ports::StoreResult,
};
use scylla::{
    response::PagingState,
    statement::{Consistency, prepared::PreparedStatement},
    value::CqlTimestamp,
};

use super::{
    failure::Failure,
    log::StatementKind,
    meter::Meter,
    rules::{DcState, Rules, Span, Standing, Variants},
    statement::attempt_timeout,
};
use crate::{
    cluster::{Cluster, ConnectError, Surviving},
    stamps,
};

/// Somebody who writes. As long as there is one who has begun while the entity was degraded, something may be
/// owed that is not noted yet.
pub(super) struct Writing<'a>(&'a AtomicUsize);

/// What was written: enough to find it again when the lost data centre is to be given it.
#[derive(Clone, Debug)]
pub(crate) struct Owed(pub(crate) Vec<u8>);

/// Who knows how to bring over what is owed.
#[async_trait]
pub(crate) trait Debts: Send + Sync {
    /// Brings everything under the key to all data centres.
    async fn settle(&self, key: &[u8]) -> StoreResult<()>;
}

pub(super) struct Watch {
    shared: Arc<Shared>,
}

struct Shared {
    cluster: Arc<Cluster>,
    entity: Entity,
    rules: Rules,
    surviving: Surviving,
    is_at_home_in: String,
    state: AtomicU8,
    /// Held by who changes the state, from what it is changed for to the change.
    changing: tokio::sync::Mutex<()>,
    writing: AtomicUsize,
    debts: OnceLock<Weak<dyn Debts>>,
    meter: Meter,
    statements: Option<Statements>,
    task: Mutex<Option<tokio::task::JoinHandle<()>>>,
}

struct Statements {
    owe: PreparedStatement,
    /// One for each data centre: what is owed stands where somebody went on.
    owed: Vec<PreparedStatement>,
    pay: PreparedStatement,
    record: PreparedStatement,
    /// One for each data centre: where it was written down nobody else can know.
    recorded: Vec<(String, PreparedStatement)>,
    clear: PreparedStatement,
    /// In every data centre, coordinated in the local one.
    probe: PreparedStatement,
}

/// How often the state of the data centres is looked at.
const WATCH_PERIOD: Duration = Duration::from_secs(2);
const SHARDS: i8 = 16;
const SETTLED_AT_ONCE: usize = 8;
const OWED_PAGE_ROWS: i32 = 500;
/// How often an entity that is whole is looked at before somebody looks whether anything is owed all the
/// same: who owes may have died before anybody learnt of it.
const LOOKS_PER_SWEEP: u32 = 30;
/// Rows of `state`.
const DEGRADED: &str = "degraded";
const PROBE: &str = "probe";

impl Watch {
    pub(super) async fn open(
        cluster: &Arc<Cluster>,
        entity: Entity,
        settings: &CassandraSettings,
        watched: &CassandraSettings,
        keyspace: &str,
    ) -> Result<Self, ConnectError> {
        let rules = Rules::of(settings, watched);
        let surviving = Surviving::new(cluster.local_dc());
        let statements = if rules.go_on() {
            Some(Statements::prepare(cluster, &surviving, settings, keyspace).await?)
        } else {
            None
        };
        let shared = Shared {
            cluster: cluster.clone(),
            entity,
            rules,
            surviving,
            is_at_home_in: settings.home_dc.clone(),
            state: AtomicU8::new(DcState::Whole as u8),
            changing: tokio::sync::Mutex::default(),
            writing: AtomicUsize::new(0),
            debts: OnceLock::new(),
            meter: cluster.meter(entity),
            statements,
            task: Mutex::new(None),
        };
        if let Some(statements) = &shared.statements {
            // What others have written down counts from the first request on, where it can be read.
            if let Err(error) = shared.learn(statements).await {
                tracing::debug!(%entity, %error, "not all data centres say whether they go on without another");
            }
        }
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Looks after the data centres from now on, as long as `debts` lives.
    pub(super) fn start(&self, debts: Weak<dyn Debts>) {
        if self.shared.statements.is_none() {
            return;
        }
        // An entity is watched once.
        let _ = self.shared.debts.set(debts.clone());
        let shared = Arc::downgrade(&self.shared);
        let task = tokio::spawn(async move {
            let mut looks: u32 = 0;
            loop {
                tokio::time::sleep(WATCH_PERIOD).await;
                let (Some(shared), Some(debts)) = (shared.upgrade(), debts.upgrade()) else { return };
                let sweeps = looks.is_multiple_of(LOOKS_PER_SWEEP);
                looks = looks.wrapping_add(1);
                if let Err(error) = shared.look(debts.as_ref(), sweeps).await {
                    tracing::debug!(entity = %shared.entity, %error, "the state of the data centres could not be looked at");
                }
            }
        });
        *self.shared.task.lock().unwrap_or_else(PoisonError::into_inner) = Some(task);
    }

    pub(super) fn state(&self) -> DcState {
        self.shared.state()
    }

    pub(super) fn surviving(&self) -> &Surviving {
        &self.shared.surviving
    }

    /// How to write, and what has to be held until the write is over.
    pub(super) fn for_writes(&self, span: Span) -> Result<(Variants, Option<Writing<'_>>), Box<Failure>> {
        let shared = &*self.shared;
        // Counted before the state is read, which is how whoever changes it knows of all who have seen the
        // one before.
        let writing = Writing::begin(&shared.writing);
        let variant = shared.rules.for_writes(shared.standing(), span);
        let variant = variant.ok_or_else(|| Box::new(shared.refused()))?;
        Ok((variant, Some(writing).filter(|_| variant == Variants::Degraded)))
    }

    pub(super) fn for_reads(&self, span: Span) -> Result<Variants, Box<Failure>> {
        let Shared { rules, .. } = &*self.shared;
        rules.for_reads(self.shared.standing(), span).ok_or_else(|| Box::new(self.shared.refused()))
    }

    /// How to decide about what is known under this key, once what is owed of it is where it is decided.
    pub(super) async fn for_decisions(&self, key: &[u8]) -> StoreResult<(Variants, Option<Writing<'_>>)> {
        let shared = &*self.shared;
        let writing = Writing::begin(&shared.writing);
        let standing = shared.standing();
        let Some(variant) = shared.rules.for_decisions(standing) else {
            return Err(shared.undecidable().of_write("decision"));
        };
        let writing = Some(writing).filter(|_| variant == Variants::Degraded);
        if standing.state == DcState::Recovering && !standing.is_at_home {
            let debts = shared.debts.get().and_then(Weak::upgrade);
            let Some(debts) = debts else { return Err(shared.undecidable().of_write("decision")) };
            debts.settle(key).await?;
        }
        Ok((variant, writing))
    }

    /// Whether a write, read or decision that failed so may go on without a data centre.
    pub(super) fn may_degrade(
        &self,
        failure: &Failure,
        span: Span,
        of: StatementKind,
        sent: Variants,
    ) -> bool {
        self.shared.rules.may_degrade(failure.lack(), span, of, sent)
    }

    /// The entity goes on without a data centre from now on, and that is written down. Fails if it cannot.
    pub(super) async fn degrade(&self, failure: &Failure, span: Span) -> Result<(), Failure> {
        self.shared.degrade(failure, span).await
    }

    /// Notes what is owed. Before it is written, so that nobody relies on what is not noted, and again after
    /// it: somebody may have brought it over in between, and found nothing.
    pub(super) async fn owe(&self, owed: &Owed) -> Result<(), Failure> {
        let Some(statements) = &self.shared.statements else { return Ok(()) };
        let stamp = self.shared.cluster.stamps().next();
        let values = (shard_of(&owed.0), owed.0.as_slice(), stamp);
        self.shared.cluster.session().execute_unpaged(&statements.owe, values).await?;
        Ok(())
    }
}

impl<'a> Writing<'a> {
    fn begin(writing: &'a AtomicUsize) -> Self {
        writing.fetch_add(1, Ordering::SeqCst);
        Self(writing)
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
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
        surviving: &Surviving,
        settings: &CassandraSettings,
        keyspace: &str,
    ) -> Result<Self, ConnectError> {
        let prepare = async |name: &'static str, cql: &str, level, profile| {
            let cql = cql.replace("{}", keyspace);
            let mut prepared = cluster.prepare(name, &cql).await?;
            prepared.set_consistency(level);
            prepared.set_is_idempotent(true);
            prepared.set_execution_profile_handle(Some(profile));
            prepared.set_page_size(OWED_PAGE_ROWS);
            prepared.set_request_timeout(Some(attempt_timeout(settings)));
            Ok::<_, ConnectError>(prepared)
        };
        let at_surviving =
            async |name, cql| prepare(name, cql, Consistency::LocalQuorum, surviving.profile()).await;
        // What is over is over in every data centre, or the next one to ask another would begin anew.
        let everywhere =
            async |name, cql| prepare(name, cql, Consistency::EachQuorum, cluster.anywhere_profile()).await;
        let in_each_dc = |statement: &PreparedStatement| {
            let in_dc = |dc: &String| {
                let mut statement = statement.clone();
                statement.set_execution_profile_handle(Some(cluster.profile_of(dc)));
                (dc.clone(), statement)
            };
            settings.replication.keys().map(in_dc).collect::<Vec<_>>()
        };
        let recorded = at_surviving("recorded", "SELECT value FROM {}.state WHERE name = ?").await?;
        let owed = at_surviving("owed", "SELECT key FROM {}.owed WHERE shard = ?").await?;
        // Who cannot reach the local data centre is not whole, whatever others can.
        let mut probe = prepare(
            "probe",
            "INSERT INTO {}.state (name, value, at) VALUES (?, ?, ?)",
            Consistency::EachQuorum,
            cluster.local_profile(),
        )
        .await?;
        probe.set_is_idempotent(false);
        Ok(Self {
            owe: at_surviving("owe", "INSERT INTO {}.owed (shard, key) VALUES (?, ?) USING TIMESTAMP ?")
                .await?,
            owed: in_each_dc(&owed).into_iter().map(|(_, owed)| owed).collect(),
            pay: everywhere("pay", "DELETE FROM {}.owed USING TIMESTAMP ? WHERE shard = ? AND key = ?")
                .await?,
            record: at_surviving(
                "record",
                "INSERT INTO {}.state (name, value, at) VALUES (?, ?, ?) USING TIMESTAMP ?",
            )
            .await?,
            recorded: in_each_dc(&recorded),
            // What is recorded since then stays.
            clear: everywhere("clear", "DELETE FROM {}.state USING TIMESTAMP ? WHERE name = ?").await?,
            probe,
        })
    }
}

impl Shared {
    fn state(&self) -> DcState {
        self.standing().state
    }

    fn set(&self, state: DcState) {
        self.state.store(state as u8, Ordering::SeqCst);
        self.meter.degraded(state != DcState::Whole);
    }

    fn standing(&self) -> Standing {
        let state = match self.state.load(Ordering::SeqCst) {
            1 => DcState::Degraded,
            2 => DcState::Recovering,
            // The data centre that went on some other time says nothing.
            _ => return Standing { state: DcState::Whole, is_in_local_dc: true, is_at_home: true },
        };
        Standing {
            state,
            is_in_local_dc: self.surviving.is(self.cluster.local_dc()),
            is_at_home: self.surviving.is(&self.is_at_home_in),
        }
    }

    fn refused(&self) -> Failure {
        Failure::refused(format!(
            "the data centre {} is lost, and the policy refuses {} then (on_dc_loss)",
            self.cluster.local_dc(),
            self.entity
        ))
    }

    fn undecidable(&self) -> Failure {
        Failure::refused(format!(
            "{} are decided in the data centre {}, which is lost: nobody else may decide in its place",
            self.entity, self.is_at_home_in
        ))
    }

    async fn degrade(&self, failure: &Failure, span: Span) -> Result<(), Failure> {
        let Some(statements) = &self.statements else { return Ok(()) };
        let _changing = self.changing.lock().await;
        // Where it has gone on before stands what only that one has: then there, or nowhere.
        match self.state() {
            DcState::Degraded => return Ok(()),
            DcState::Recovering => {}
            DcState::Whole => {
                let Some(dc) = self.left(statements, span).await else {
                    return Err(Failure::refused(format!("{failure}; no other data centre answers")));
                };
                self.surviving.set(&dc);
            }
        }
        // Whoever comes after a crash has to know that something is owed.
        self.record(statements).await?;
        self.set(DcState::Degraded);
        tracing::warn!(
            entity = %self.entity,
            surviving = %self.surviving.dc(),
            reason = %failure,
            "a data centre is lost: written at LOCAL_QUORUM until it is back and has what was written meanwhile"
        );
        Ok(())
    }

    /// A data centre that answers, the local one first: unless that is the one which does not.
    async fn left(&self, statements: &Statements, span: Span) -> Option<String> {
        let local = self.cluster.local_dc();
        let others = statements.recorded.iter().filter(|(dc, _)| dc != local);
        let here = statements.recorded.iter().filter(|(dc, _)| dc == local && span == Span::Every);
        for (dc, recorded) in here.chain(others) {
            if self.cluster.session().execute_unpaged(recorded, (DEGRADED,)).await.is_ok() {
                return Some(dc.clone());
            }
        }
        None
    }

    async fn record(&self, statements: &Statements) -> Result<(), Failure> {
        let now = CqlTimestamp(stamps::real_now().as_millis());
        let record = (DEGRADED, self.surviving.dc(), now, self.cluster.stamps().next());
        self.cluster.session().execute_unpaged(&statements.record, record).await?;
        Ok(())
    }

    /// Follows what others have written down.
    async fn learn(&self, statements: &Statements) -> Result<(), Failure> {
        let Some(surviving) = self.recorded(statements).await? else { return Ok(()) };
        let _changing = self.changing.lock().await;
        if self.state() == DcState::Whole {
            self.surviving.set(&surviving);
            self.set(DcState::Recovering);
        }
        Ok(())
    }

    /// One look at how things stand, and the next step.
    async fn look(&self, debts: &dyn Debts, sweeps: bool) -> Result<(), Failure> {
        let Some(statements) = &self.statements else { return Ok(()) };
        let session = self.cluster.session();
        match self.state() {
            DcState::Whole => {
                self.learn(statements).await?;
                if sweeps && self.state() == DcState::Whole {
                    self.settle_all(statements, debts).await?;
                }
            }
            DcState::Degraded => {
                // Nobody is whole again before all know that something is owed: somebody who did not know of
                // it may have cleared it away.
                self.record(statements).await?;
                let now = CqlTimestamp(stamps::real_now().as_millis());
                session.execute_unpaged(&statements.probe, (PROBE, "", now)).await?;
                tracing::info!(entity = %self.entity, "all data centres answer again: bringing over what was written meanwhile");
                self.set(DcState::Recovering);
            }
            DcState::Recovering => {
                let before = self.cluster.stamps().next();
                // Who began to write while the entity was degraded may owe something yet. Whoever begins now
                // does not.
                let nobody_is_late = self.writing.load(Ordering::SeqCst) == 0;
                // Also when somebody else has found nothing owed: that may have been a moment too early.
                let settled = self.settle_all(statements, debts).await?;
                let _changing = self.changing.lock().await;
                // What was written while this went on is found by looking once more.
                if settled > 0 || !nobody_is_late || self.state() != DcState::Recovering {
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
        for (_, statement) in &statements.recorded {
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
        let dcs = statements.owed.len();
        for (shard, dc) in (0..SHARDS).flat_map(|shard| (0..dcs).map(move |dc| (shard, dc))) {
            loop {
                let owed = &statements.owed[dc];
                let result = session.execute_single_page(owed, (shard,), PagingState::start()).await?.0;
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
