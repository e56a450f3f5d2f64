//! Prepared statements, each in the variants that it may be sent in.

use std::time::Duration;

use mobimir_core::policy::{CassandraSettings, Level, OnDcLoss, SerialLevel, read_sees_write};
use scylla::statement::{
    Consistency, SerialConsistency,
    batch::{Batch, BatchType},
    prepared::PreparedStatement,
};

use super::{
    log::StatementKind,
    rules::{Span, Variants},
};
use crate::cluster::{Cluster, ConnectError, Surviving};

#[derive(Clone)]
pub(crate) struct Statement {
    name: &'static str,
    kind: StatementKind,
    level: Level,
    span: Span,
    // Stores have dozens of statements, and are made on the stack.
    forms: Box<Forms>,
}

/// A statement in all its variants.
#[derive(Clone)]
struct Forms {
    usual: PreparedStatement,
    degraded: PreparedStatement,
    surviving: PreparedStatement,
    everywhere: PreparedStatement,
    serial: PreparedStatement,
    all: PreparedStatement,
}

/// A batch that is built once and sent with ever new values.
#[derive(Clone)]
pub(crate) struct BatchOf {
    name: &'static str,
    span: Span,
    usual: Batch,
    degraded: Batch,
    everywhere: Batch,
}

impl Statement {
    pub(super) async fn prepare(
        cluster: &Cluster,
        surviving: &Surviving,
        settings: &CassandraSettings,
        name: &'static str,
        kind: StatementKind,
        cql: &str,
    ) -> Result<Self, ConnectError> {
        let mut usual = cluster.prepare(name, cql).await?;
        usual.set_is_idempotent(kind != StatementKind::Decision);
        usual.set_serial_consistency(Some(serial_consistency(settings.serial)));
        usual.set_tracing(cluster.log().is_some_and(|log| log.traces()));
        if let Some(log) = cluster.log() {
            usual.set_history_listener(log.clone());
        }
        let decides = kind == StatementKind::Decision;
        let reads = matches!(kind, StatementKind::Read | StatementKind::DecidedRead);
        let level = if reads { settings.read } else { settings.write };
        // Where nothing goes on without a data centre, what was written everywhere may be read anywhere.
        let is_read_anywhere =
            reads && settings.on_dc_loss == OnDcLoss::Refuse && *settings == seeing_every_write(settings);
        let home = || cluster.profile_of(&settings.home_dc);
        let profile = match Span::of(level, settings) {
            _ if decides => home(),
            Span::Local if !is_read_anywhere => cluster.local_profile(),
            _ => cluster.anywhere_profile(),
        };
        usual.set_execution_profile_handle(Some(profile));
        usual.set_consistency(consistency(level));
        let form = |level, profile| {
            let mut form = usual.clone();
            form.set_consistency(level);
            form.set_execution_profile_handle(Some(profile));
            form
        };
        // Decisions stay at home, whatever is lost.
        let at_home_or = |other| if decides { home() } else { other };
        let forms = Forms {
            degraded: form(Consistency::LocalQuorum, at_home_or(surviving.profile())),
            surviving: form(consistency(level), surviving.profile()),
            everywhere: form(Consistency::EachQuorum, at_home_or(cluster.anywhere_profile())),
            serial: form(
                match settings.serial {
                    SerialLevel::Serial => Consistency::Serial,
                    SerialLevel::LocalSerial => Consistency::LocalSerial,
                },
                home(),
            ),
            all: form(Consistency::All, cluster.anywhere_profile()),
            usual,
        };
        Ok(Self { name, kind, level, span: Span::of(level, settings), forms: Box::new(forms) })
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(super) fn span(&self) -> Span {
        self.span
    }

    pub(super) fn at(&self, variant: Variants) -> &PreparedStatement {
        match variant {
            Variants::Usual => &self.forms.usual,
            Variants::Degraded => &self.forms.degraded,
            Variants::Surviving => &self.forms.surviving,
            Variants::Everywhere => &self.forms.everywhere,
            Variants::Serial => &self.forms.serial,
        }
    }

    /// The same read, of all replicas everywhere: what differs is repaired before it answers.
    pub(super) fn of_all_replicas(&self) -> &PreparedStatement {
        &self.forms.all
    }
}

impl BatchOf {
    pub(super) fn new(
        cluster: &Cluster,
        surviving: &Surviving,
        settings: &CassandraSettings,
        name: &'static str,
        of: &[&Statement],
    ) -> Self {
        let mut usual = Batch::new(BatchType::Unlogged);
        let decides = of.iter().any(|statement| statement.kind == StatementKind::Decision);
        usual.set_is_idempotent(!decides);
        usual.set_serial_consistency(Some(serial_consistency(settings.serial)));
        usual.set_tracing(cluster.log().is_some_and(|log| log.traces()));
        if let Some(log) = cluster.log() {
            usual.set_history_listener(log.clone());
        }
        // What an order takes out of a cart has another level than the rest, and all of it the same.
        let level = of.first().map_or(settings.write, |statement| statement.level);
        let span = Span::of(level, settings);
        let home = || cluster.profile_of(&settings.home_dc);
        let [at_usual, at_degraded, at_everywhere] = match span {
            _ if decides => [home(), home(), home()],
            Span::Local => [cluster.local_profile(), surviving.profile(), cluster.anywhere_profile()],
            _ => [cluster.anywhere_profile(), surviving.profile(), cluster.anywhere_profile()],
        };
        usual.set_execution_profile_handle(Some(at_usual));
        usual.set_consistency(consistency(level));
        for statement in of {
            usual.append_statement(statement.forms.usual.clone());
        }
        let form = |level, profile| {
            let mut form = usual.clone();
            form.set_consistency(level);
            form.set_execution_profile_handle(Some(profile));
            form
        };
        Self {
            name,
            span,
            degraded: form(Consistency::LocalQuorum, at_degraded),
            everywhere: form(Consistency::EachQuorum, at_everywhere),
            usual,
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(super) fn span(&self) -> Span {
        self.span
    }

    pub(super) fn at(&self, variant: Variants) -> &Batch {
        match variant {
            Variants::Degraded => &self.degraded,
            Variants::Everywhere => &self.everywhere,
            Variants::Usual | Variants::Surviving | Variants::Serial => &self.usual,
        }
    }
}

/// So that one node that hangs does not use up all the time there is. Whoever sends looks at the time: the driver would need
/// a timer of its own.
pub(super) fn attempt_timeout(settings: &CassandraSettings) -> Duration {
    Duration::from_millis(settings.timeout.as_ms().unsigned_abs() * 3 / 5)
}

/// The same with a level for reads that meets every acknowledged write, from whichever data centre to whichever.
pub(super) fn seeing_every_write(settings: &CassandraSettings) -> CassandraSettings {
    let CassandraSettings { read, write, replication, .. } = settings;
    let sees = |level: &Level| {
        let of_all = |writer: &String| {
            replication.keys().all(|reader| read_sees_write((*write, writer), (*level, reader), replication))
        };
        replication.keys().all(of_all)
    };
    // No policy reads at EACH_QUORUM, because a lost data centre would stop it. What moves can wait.
    let read = [*read, Level::Quorum, Level::EachQuorum].into_iter().find(sees).unwrap_or(Level::All);
    CassandraSettings { read, ..settings.clone() }
}

pub(crate) fn consistency(level: Level) -> Consistency {
    match level {
        Level::Any => Consistency::Any,
        Level::One => Consistency::One,
        Level::Two => Consistency::Two,
        Level::Three => Consistency::Three,
        Level::LocalOne => Consistency::LocalOne,
        Level::Quorum => Consistency::Quorum,
        Level::LocalQuorum => Consistency::LocalQuorum,
        Level::EachQuorum => Consistency::EachQuorum,
        Level::All => Consistency::All,
    }
}

fn serial_consistency(level: SerialLevel) -> SerialConsistency {
    match level {
        SerialLevel::LocalSerial => SerialConsistency::LocalSerial,
        SerialLevel::Serial => SerialConsistency::Serial,
    }
}

#[cfg(test)]
mod tests {
    use mobimir_core::policy::{BUILT_IN, Entity, Policy};

    use super::*;

    #[test]
    fn what_moves_is_read_where_it_was_written() {
        let level = |policy: &str, entity, write, read| {
            let text = BUILT_IN.iter().find(|built_in| built_in.name == policy).unwrap().text;
            let policy = Policy::parse(text, policy).unwrap();
            let settings = policy.placement(entity).unwrap().cassandra.clone().unwrap();
            assert!(settings.replication.len() > 1);
            seeing_every_write(&CassandraSettings { write, read, ..settings }).read
        };
        let orders = |write, read| level("default", Entity::Orders, write, read);
        assert_eq!(orders(Level::EachQuorum, Level::LocalQuorum), Level::LocalQuorum);
        assert_eq!(orders(Level::Quorum, Level::One), Level::Quorum);
        assert_eq!(orders(Level::LocalQuorum, Level::LocalQuorum), Level::EachQuorum);
        assert_eq!(orders(Level::One, Level::Quorum), Level::All);
    }
}
