//! One entity's way to the cluster: every statement goes out through here, at the level, within the time and with the
//! retries that the policy gives it.
//!
//! - *Reads* may be asked again as often as there is time for it.
//! - *Writes* are all idempotent: they carry their own stamp and id, so that the same write twice is the same write.
//!   One whose answer was lost is sent again; if it stays lost the caller is told [`StoreError::Unknown`].
//! - *Decisions* (conditional statements) are sent once, to the home data centre. If the answer is lost the caller reads
//!   back what was decided ([`Link::read_decided`]).
//!
//! What happens when a data centre is lost stands in [`dc`].

mod dc;
mod failure;
mod log;
mod meter;
mod retry;
mod rules;
mod statement;

use std::{sync::Arc, time::Duration};

use futures_util::future::{Either, join_all, select};
use mobimir_core::{
    policy::{CassandraSettings, Entity, Level},
    ports::{StoreError, StoreResult},
};
use scylla::{
    client::session::Session,
    errors::ExecutionError,
    response::{
        PagingState, PagingStateResponse,
        query_result::{QueryResult, QueryRowsResult},
    },
    serialize::row::SerializeRow,
};
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use self::{
    log::StatementKind::{DecidedRead, Decision, Read, Write},
    statement::attempt_timeout,
};

use crate::{
    cluster::Cluster,
    partitions::{PartitionMeter, PartitionMeters},
    stamps::Stamps,
};

pub(crate) use self::{
    dc::{Debts, Owed},
    failure::Failure,
    meter::{Meter, Meters},
    retry::NothingDone,
    statement::{BatchOf, Statement},
};
pub use self::{
    log::{RequestLog, RequestSeen, StatementKind},
    rules::{DcState, Lack, Rules, Span, Standing, Variants},
};

/// How often one request is sent in all, if its time allows.
const ATTEMPTS_MAX: usize = 3;
/// How often a request learns that a data centre is lost: it may be the usual way that fails, and then that
/// of recovering.
const DEGRADED_MAX: usize = 2;
/// After this long a request is sent once more, if it may be.
const SPECULATE_AFTER: Duration = Duration::from_secs(1);
/// Before a request is sent again. Grows with every attempt.
const RETRY_PAUSE: Duration = Duration::from_millis(20);
/// After this long nobody waits for what was begun. If requests may take long, as long as so many of them.
const GIVEN_UP_AFTER_US: i64 = 180_000_000;
const GIVEN_UP_AFTER_REQUESTS: i64 = 10;

pub(crate) struct Link {
    cluster: Arc<Cluster>,
    entity: Entity,
    settings: CassandraSettings,
    keyspace: String,
    dc: dc::Watch,
    meter: meter::Meter,
    partitions: PartitionMeter,
}

/// Values of any statement, where statements of several kinds go together.
pub(crate) type Values<'a> = Box<dyn SerializeRow + Send + Sync + 'a>;

/// What became of a conditional statement.
#[derive(Debug)]
pub(crate) enum Decided {
    Applied,
    /// The condition did not hold.
    Refused,
    /// The answer was lost; it may have been applied.
    Lost(Box<Failure>),
}

impl Link {
    pub(crate) async fn open(
        cluster: Arc<Cluster>,
        entity: Entity,
        settings: CassandraSettings,
    ) -> Result<Self, crate::ConnectError> {
        let watched = settings.clone();
        Self::open_watching(cluster, entity, settings, &watched).await
    }

    /// The same, for an entity of which some writes have another level: `watched` says what becomes of them when a data
    /// centre is lost.
    pub(crate) async fn open_watching(
        cluster: Arc<Cluster>,
        entity: Entity,
        settings: CassandraSettings,
        watched: &CassandraSettings,
    ) -> Result<Self, crate::ConnectError> {
        let keyspace = cluster.keyspace(entity);
        let dc = dc::Watch::open(&cluster, entity, &settings, watched, &keyspace).await?;
        let meter = cluster.meter(entity);
        let partitions = PartitionMeters::of(&cluster, entity).await?;
        Ok(Self { cluster, entity, settings, keyspace, dc, meter, partitions })
    }

    pub(crate) fn settings(&self) -> &CassandraSettings {
        &self.settings
    }

    pub(crate) fn stamps(&self) -> &Stamps {
        self.cluster.stamps()
    }

    /// Counts what is written to which partition.
    pub(crate) fn partitions(&self) -> &PartitionMeter {
        &self.partitions
    }

    pub(crate) fn dc_state(&self) -> DcState {
        self.dc.state()
    }

    /// Looks after lost data centres from now on, as long as `debts` lives.
    pub(crate) fn watch(&self, debts: std::sync::Weak<dyn Debts>) {
        self.dc.start(debts);
    }

    pub(crate) fn session(&self) -> &Session {
        self.cluster.session()
    }

    /// Prepares a statement of this entity. `{}` in `cql` stands for its keyspace.
    pub(crate) async fn prepare(
        &self,
        name: &'static str,
        kind: StatementKind,
        cql: &str,
    ) -> Result<Statement, crate::ConnectError> {
        let cql = cql.replace("{}", &self.keyspace);
        // Dozens are prepared one after the other, and each would have room of its own on the stack of who opens a store.
        Box::pin(self.prepared(&self.settings, name, kind, &cql)).await
    }

    /// A write at another level than the policy gives to the entity.
    pub(crate) async fn prepare_write_at(
        &self,
        name: &'static str,
        level: Level,
        cql: &str,
    ) -> Result<Statement, crate::ConnectError> {
        let settings = CassandraSettings { write: level, ..self.settings.clone() };
        let cql = cql.replace("{}", &self.keyspace);
        Box::pin(self.prepared(&settings, name, Write, &cql)).await
    }

    /// A read that sees every write that was acknowledged, wherever the writer was, also where the policy lets its own
    /// reads do without.
    pub(crate) async fn prepare_seeing(
        &self,
        name: &'static str,
        cql: &str,
    ) -> Result<Statement, crate::ConnectError> {
        let settings = statement::seeing_every_write(&self.settings);
        let cql = cql.replace("{}", &self.keyspace);
        Box::pin(self.prepared(&settings, name, Read, &cql)).await
    }

    /// A read that meets whatever was acknowledged in one data centre alone.
    pub(crate) async fn prepare_everywhere(
        &self,
        name: &'static str,
        cql: &str,
    ) -> Result<Statement, crate::ConnectError> {
        let settings = CassandraSettings { read: Level::EachQuorum, ..self.settings.clone() };
        let cql = cql.replace("{}", &self.keyspace);
        Box::pin(self.prepared(&settings, name, Read, &cql)).await
    }

    async fn prepared(
        &self,
        settings: &CassandraSettings,
        name: &'static str,
        kind: StatementKind,
        cql: &str,
    ) -> Result<Statement, crate::ConnectError> {
        Statement::prepare(&self.cluster, self.dc.surviving(), settings, name, kind, cql).await
    }

    /// When it is certain that nobody works any more at what was begun then, in microseconds.
    pub(crate) fn given_up_after_us(&self) -> i64 {
        GIVEN_UP_AFTER_US.max(self.settings.timeout.as_ms() * 1_000 * GIVEN_UP_AFTER_REQUESTS)
    }

    /// A batch of prepared statements of one partition, built once. Over several partitions see [`Link::write_all`].
    pub(crate) fn batch(&self, name: &'static str, of: &[&Statement]) -> BatchOf {
        BatchOf::new(&self.cluster, self.dc.surviving(), &self.settings, name, of)
    }

    pub(crate) async fn read(
        &self,
        statement: &Statement,
        values: impl SerializeRow + Sync,
    ) -> StoreResult<QueryRowsResult> {
        let (session, values) = (self.session(), &values);
        let send = |variant| session.execute_unpaged(statement.at(variant), values);
        rows(self.read_with(statement, send).await?)
    }

    /// One page of a read that may be long, and where it goes on.
    pub(crate) async fn read_page(
        &self,
        statement: &Statement,
        values: impl SerializeRow + Sync,
        from: PagingState,
    ) -> StoreResult<(QueryRowsResult, Option<PagingState>)> {
        let (session, values, from) = (self.session(), &values, &from);
        let send = |variant| session.execute_single_page(statement.at(variant), values, from.clone());
        page(self.read_with(statement, send).await?)
    }

    /// The same, with no more than so many rows.
    pub(crate) async fn read_page_of(
        &self,
        statement: &Statement,
        values: impl SerializeRow + Sync,
        from: PagingState,
        rows_max: i32,
    ) -> StoreResult<(QueryRowsResult, Option<PagingState>)> {
        let (session, values) = (self.session(), &values);
        let send = |variant| {
            let mut prepared = statement.at(variant).clone();
            prepared.set_page_size(rows_max);
            let from = from.clone();
            async move { session.execute_single_page(&prepared, values, from).await }
        };
        page(self.read_with(statement, send).await?)
    }

    async fn read_with<T: Answer, F: Sending<T>>(
        &self,
        statement: &Statement,
        send: impl Fn(Variants) -> F + Sync,
    ) -> StoreResult<T> {
        let (name, span) = (statement.name(), statement.span());
        let mut degraded = 0;
        loop {
            let variant = self.dc.for_reads(span).map_err(|failure| failure.of_read(name))?;
            let failure = match self.attempts(name, Read, || send(variant)).await {
                Ok(result) => return Ok(result),
                Err(failure) => failure,
            };
            degraded += 1;
            if degraded > DEGRADED_MAX || !self.dc.may_degrade(&failure, span, Read, variant) {
                return Err(failure.of_read(name));
            }
            self.dc.degrade(&failure, span).await.map_err(|failure| failure.of_read(name))?;
        }
    }

    /// A read that finishes what conditional statements have left open, to learn what was decided.
    pub(crate) async fn read_decided(
        &self,
        statement: &Statement,
        values: impl SerializeRow + Sync,
    ) -> StoreResult<QueryRowsResult> {
        let (prepared, values) = (statement.at(Variants::Serial), &values);
        let send = || self.session().execute_unpaged(prepared, values);
        let sent = self.attempts(statement.name(), DecidedRead, send).await;
        rows(sent.map_err(|failure| failure.of_read(statement.name()))?)
    }

    /// Reads from all replicas everywhere, which repairs those that lack something, and tells nothing.
    pub(crate) async fn read_of_all_replicas(
        &self,
        statement: &Statement,
        values: impl SerializeRow + Sync,
    ) -> StoreResult<()> {
        let (prepared, values) = (statement.of_all_replicas(), &values);
        let send = || self.session().execute_unpaged(prepared, values);
        let sent = self.attempts("of_all_replicas", Read, send).await;
        sent.map(|_| ()).map_err(|failure| failure.of_read(statement.name()))
    }

    /// Writes. `owed` is what a lost data centre will have to be given when it is back.
    pub(crate) async fn write(
        &self,
        statement: &Statement,
        values: impl SerializeRow + Sync,
        owed: Owed,
    ) -> StoreResult<()> {
        let (session, values) = (self.session(), &values);
        self.write_with(statement.name(), statement.span(), owed, |variant| {
            session.execute_unpaged(statement.at(variant), values)
        })
        .await
    }

    /// Writes in every data centre, which is how one that was lost gets what it lacks.
    pub(crate) async fn write_everywhere(
        &self,
        statement: &Statement,
        values: impl SerializeRow + Sync,
    ) -> StoreResult<()> {
        let (prepared, values) = (statement.at(Variants::Everywhere), &values);
        let send = || self.session().execute_unpaged(prepared, values);
        let sent = self.attempts(statement.name(), Write, send).await;
        sent.map(|_| ()).map_err(|failure| failure.of_write(statement.name()))
    }

    /// Writes rows at the same time, in whatever partitions they are. When it fails, some may be there.
    ///
    /// Not a logged batch: its log goes to two nodes that the coordinator believes to be alive and waits for both, so one
    /// node that has just died fails it, whatever the level allows. Who needs all or nothing writes a note first.
    pub(crate) async fn write_all<R: SerializeRow + Sync>(
        &self,
        rows: &[(&Statement, R)],
        owed: Owed,
    ) -> StoreResult<()> {
        let writes = rows.iter().map(|(statement, row)| self.write(statement, row, owed.clone()));
        let mut some_are_there = false;
        let mut failed = None;
        for outcome in join_all(writes).await {
            match outcome {
                Ok(()) => some_are_there = true,
                Err(error) => {
                    some_are_there |= matches!(error, StoreError::Unknown { .. });
                    failed = Some(error);
                }
            }
        }
        match failed {
            None => Ok(()),
            Some(error @ StoreError::Unavailable { .. }) if some_are_there => Err(unknown(error)),
            Some(error) => Err(error),
        }
    }

    /// Writes all of a batch of one partition: it is there as a whole, or not at all.
    pub(crate) async fn write_batch(
        &self,
        batch: &BatchOf,
        rows: &[impl SerializeRow + Sync],
        owed: Owed,
    ) -> StoreResult<()> {
        let session = self.session();
        self.write_with(batch.name(), batch.span(), owed, |variant| session.batch(batch.at(variant), rows))
            .await
    }

    async fn write_with<F: Sending<QueryResult>>(
        &self,
        name: &'static str,
        span: Span,
        owed: Owed,
        send: impl Fn(Variants) -> F + Sync,
    ) -> StoreResult<()> {
        let mut lost = false;
        let mut degraded = 0;
        loop {
            let of_write = |failure: Failure| failure.lost_before(lost).of_write(name);
            let (variant, writing) = self.dc.for_writes(span).map_err(|failure| of_write(*failure))?;
            if writing.is_some() {
                self.dc.owe(&owed).await.map_err(of_write)?;
            }
            let failure = match self.attempts(name, Write, || send(variant)).await {
                Ok(_) if writing.is_some() => {
                    return self
                        .dc
                        .owe(&owed)
                        .await
                        .map_err(|failure| failure.lost_before(true).of_write(name));
                }
                Ok(_) => return Ok(()),
                Err(failure) => failure,
            };
            degraded += 1;
            if degraded > DEGRADED_MAX || !self.dc.may_degrade(&failure, span, Write, variant) {
                return Err(of_write(failure));
            }
            lost |= failure.may_have_happened();
            let degraded = self.dc.degrade(&failure, span).await;
            degraded.map_err(|failure| failure.lost_before(lost).of_write(name))?;
        }
    }

    /// Runs a conditional statement, once.
    pub(crate) async fn decide(
        &self,
        statement: &Statement,
        values: impl SerializeRow + Sync,
        owed: Owed,
    ) -> StoreResult<Decided> {
        let (name, span, values) = (statement.name(), statement.span(), &values);
        let send = |variant| self.session().execute_unpaged(statement.at(variant), values);
        self.decide_with(name, span, owed, send).await
    }

    /// The same with several statements of one partition.
    pub(crate) async fn decide_batch(
        &self,
        batch: &BatchOf,
        rows: &[impl SerializeRow + Sync],
        owed: Owed,
    ) -> StoreResult<Decided> {
        let send = |variant| self.session().batch(batch.at(variant), rows);
        self.decide_with(batch.name(), batch.span(), owed, send).await
    }

    /// The same with statements that are put together for this once.
    pub(crate) async fn decide_all(
        &self,
        name: &'static str,
        rows: Vec<(&Statement, Values<'_>)>,
        owed: Owed,
    ) -> StoreResult<Decided> {
        let (statements, rows): (Vec<&Statement>, Vec<Values<'_>>) = rows.into_iter().unzip();
        self.decide_batch(&self.batch(name, &statements), &rows, owed).await
    }

    async fn decide_with<F: Sending<QueryResult>>(
        &self,
        name: &'static str,
        span: Span,
        owed: Owed,
        send: impl Fn(Variants) -> F + Sync,
    ) -> StoreResult<Decided> {
        let (variant, writing) = self.dc.for_decisions(&owed.0).await?;
        if writing.is_some() {
            self.dc.owe(&owed).await.map_err(|failure| failure.of_write("owe"))?;
        }
        let failure = match self.attempts(name, Decision, || send(variant)).await {
            Ok(result) => {
                if !is_applied(result)? {
                    return Ok(Decided::Refused);
                }
                return Ok(match writing {
                    Some(_) => match self.dc.owe(&owed).await {
                        Ok(()) => Decided::Applied,
                        Err(failure) => Decided::Lost(Box::new(failure)),
                    },
                    None => Decided::Applied,
                });
            }
            Err(failure) => failure,
        };
        // Commit is the last step of a decision: a lack of replicas there leaves it decided.
        if self.dc.may_degrade(&failure, span, Decision, variant)
            && let Err(error) = self.dc.degrade(&failure, span).await
        {
            tracing::debug!(entity = %self.entity, %error, "no other data centre goes on");
        }
        if failure.was_never_sent() {
            Err(failure.of_write(name))
        } else {
            Ok(Decided::Lost(Box::new(failure)))
        }
    }

    /// Sends a request until it is answered, or may not or need not be sent again.
    async fn attempts<T: Answer, F: Sending<T>>(
        &self,
        name: &'static str,
        kind: StatementKind,
        send: impl Fn() -> F + Sync,
    ) -> Result<T, Failure> {
        let may_repeat = kind != Decision;
        let started = Instant::now();
        let give_up_at = started + Duration::from_millis(self.settings.timeout.as_ms().unsigned_abs());
        let patience = attempt_timeout(&self.settings);
        let mut lost = false;
        let mut attempt = 1;
        let mut sent_at = started;
        let outcome = loop {
            let answer = if may_repeat {
                asked_twice_if_slow(&send, sent_at, patience, give_up_at).await
            } else {
                timeout_at(give_up_at.min(sent_at + patience), Box::pin(send())).await.ok()
            };
            let failure = match answer {
                Some(Ok(result)) => break Ok(result),
                Some(Err(error)) => Failure::from(error),
                None => break Err(Failure::timed_out(started.elapsed()).lost_before(lost)),
            };
            // Once a second node was asked as well, its answer says nothing about the first.
            lost |= failure.may_have_happened() || sent_at.elapsed() >= SPECULATE_AFTER;
            let pause = RETRY_PAUSE * u32::try_from(attempt).unwrap_or(1);
            let goes_on = may_repeat && failure.is_worth_repeating() && attempt < ATTEMPTS_MAX;
            if !goes_on || Instant::now() + pause >= give_up_at {
                break Err(failure.lost_before(lost));
            }
            self.meter.repeated(name);
            tokio::time::sleep(pause).await;
            sent_at = Instant::now();
            attempt += 1;
        };
        self.meter.ended(name, started.elapsed(), outcome.as_ref().err());
        if let (Ok(result), Some(log)) = (&outcome, self.cluster.log()) {
            log.saw(RequestSeen { entity: self.entity, statement: name, kind, trace: result.trace() });
        }
        outcome
    }
}

/// Sends a request, and once more when the answer takes long: the node may hang. The first good answer counts; `None` is none
/// before all is given up. Nobody waits for longer than `patience` after it was sent last.
///
/// The driver could do this, but it holds an error back until it has asked a second node, and a refusal should be fast.
async fn asked_twice_if_slow<T: Answer, F: Sending<T>>(
    send: &impl Fn() -> F,
    sent_at: Instant,
    patience: Duration,
    give_up_at: Instant,
) -> Option<Result<T, ExecutionError>> {
    let late = |until: Instant| (until < give_up_at).then_some(Err(ExecutionError::RequestTimeout(patience)));
    // The driver's requests are large, and everybody up to the shop would carry them on the stack.
    let mut first = Box::pin(send());
    let (ask_again_at, until) = (sent_at + SPECULATE_AFTER, sent_at + patience);
    // One timer as long as all goes well: they cost as much as the rest of this file.
    if let Ok(answer) = timeout_at(ask_again_at.min(until).min(give_up_at), &mut first).await {
        return Some(answer);
    }
    if ask_again_at >= until.min(give_up_at) {
        return late(until);
    }
    let second = Box::pin(send());
    let either = async {
        match select(first, second).await {
            Either::Left((Err(_), second)) => second.await,
            Either::Right((Err(_), first)) => first.await,
            Either::Left((answer, _)) | Either::Right((answer, _)) => answer,
        }
    };
    let until = ask_again_at + patience;
    match timeout_at(until.min(give_up_at), either).await {
        Ok(answer) => Some(answer),
        Err(_) => late(until),
    }
}

/// A request on its way.
trait Sending<T>: Future<Output = Result<T, ExecutionError>> + Send {}

impl<T, F: Future<Output = Result<T, ExecutionError>> + Send> Sending<T> for F {}

trait Answer: Send {
    /// Under which the cluster keeps what it did.
    fn trace(&self) -> Option<Uuid>;
}

impl Answer for QueryResult {
    fn trace(&self) -> Option<Uuid> {
        self.tracing_id()
    }
}

impl Answer for (QueryResult, PagingStateResponse) {
    fn trace(&self) -> Option<Uuid> {
        self.0.tracing_id()
    }
}

fn page(
    (result, state): (QueryResult, PagingStateResponse),
) -> StoreResult<(QueryRowsResult, Option<PagingState>)> {
    let next = match state {
        PagingStateResponse::HasMorePages { state } => Some(state),
        PagingStateResponse::NoMorePages => None,
    };
    Ok((rows(result)?, next))
}

fn rows(result: QueryResult) -> StoreResult<QueryRowsResult> {
    result.into_rows_result().map_err(|error| damaged("an answer without rows", error))
}

/// The first column of a conditional statement's answer.
fn is_applied(result: QueryResult) -> StoreResult<bool> {
    use scylla::value::Row;
    let rows = rows(result)?;
    let first = rows.first_row::<Row>().map_err(|error| damaged("a decision without an answer", error))?;
    first.columns.first().and_then(Option::as_ref).and_then(scylla::value::CqlValue::as_boolean).ok_or_else(
        || StoreError::Corrupt { what: "expected [applied] in a decision's answer".into(), source: None },
    )
}

/// What failed may be done, or be done later, all the same.
pub(crate) fn unknown(error: StoreError) -> StoreError {
    match error {
        StoreError::Unavailable { what, source } => StoreError::Unknown { what, source },
        error => error,
    }
}

pub(crate) fn damaged(
    what: impl Into<String>,
    error: impl std::error::Error + Send + Sync + 'static,
) -> StoreError {
    StoreError::Corrupt { what: what.into(), source: Some(Box::new(error)) }
}

#[cfg(test)]
mod tests {
    use std::{
        future::pending,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use tokio::time::sleep;

    use super::*;

    /// Who answered.
    impl Answer for usize {
        fn trace(&self) -> Option<Uuid> {
            None
        }
    }

    /// When the first and the second answer come, and whether they are good; `None` never comes.
    type Answers = [Option<(u64, bool)>; 2];

    /// The answer, after how many milliseconds, and how often the request was sent.
    async fn asked(
        answers: Answers,
        patience_ms: u64,
        give_up_ms: u64,
    ) -> (Option<Result<usize, String>>, u128, usize) {
        let (sent, started) = (AtomicUsize::new(0), Instant::now());
        let send = || {
            let number = sent.fetch_add(1, Ordering::Relaxed);
            async move {
                let Some((after_ms, is_good)) = answers[number] else { return pending().await };
                sleep(Duration::from_millis(after_ms)).await;
                if is_good { Ok(number) } else { Err(ExecutionError::EmptyPlan) }
            }
        };
        let [patience, give_up] = [patience_ms, give_up_ms].map(Duration::from_millis);
        let answer = asked_twice_if_slow(&send, started, patience, started + give_up).await;
        let answer = answer.map(|answer| answer.map_err(|error| error.to_string()));
        (answer, started.elapsed().as_millis(), sent.load(Ordering::Relaxed))
    }

    fn late(patience_ms: u64) -> Option<Result<usize, String>> {
        Some(Err(ExecutionError::RequestTimeout(Duration::from_millis(patience_ms)).to_string()))
    }

    /// The driver has no time limit of its own for what goes over a link.
    #[tokio::test(start_paused = true)]
    async fn nobody_waits_longer_than_the_patience_or_until_all_is_given_up() {
        assert_eq!(asked([None, None], 300, 500).await, (late(300), 300, 1));
        assert_eq!(asked([None, None], 3_000, 5_000).await, (late(3_000), 4_000, 2));
        assert_eq!(asked([None, None], 3_000, 3_500).await, (None, 3_500, 2));
        assert_eq!(asked([None, None], 3_000, 700).await, (None, 700, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_good_answer_counts_and_a_refusal_is_fast() {
        let (soon, later) = (Some((100, true)), Some((1_900, true)));
        let refused = || Some(Err(ExecutionError::EmptyPlan.to_string()));
        assert_eq!(asked([soon, None], 3_000, 5_000).await, (Some(Ok(0)), 100, 1));
        assert_eq!(asked([Some((100, false)), None], 3_000, 5_000).await, (refused(), 100, 1));
        assert_eq!(asked([None, soon], 3_000, 5_000).await, (Some(Ok(1)), 1_100, 2));
        assert_eq!(asked([later, None], 3_000, 5_000).await, (Some(Ok(0)), 1_900, 2));
        assert_eq!(asked([later, Some((100, false))], 3_000, 5_000).await, (Some(Ok(0)), 1_900, 2));
    }
}
