//! Prepared statements, each in the variants that it may be sent in.

use std::time::Duration;

use mobimir_core::policy::{CassandraSettings, Level, SerialLevel, read_sees_write};
use scylla::statement::{
    Consistency, SerialConsistency,
    batch::{Batch, BatchType},
    prepared::PreparedStatement,
};

use super::log::StatementKind;
use crate::cluster::{Cluster, ConnectError};

/// How a statement is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variants {
    /// As the policy says.
    Usual,
    /// At LOCAL_QUORUM, because a data centre is lost.
    Degraded,
    /// As the policy says, but asking the data centre that went on while another was lost.
    Surviving,
    /// Reads only: finishes what conditional statements have left open.
    Serial,
}

#[derive(Clone)]
pub(crate) struct Statement {
    name: &'static str,
    kind: StatementKind,
    // Stores have dozens of statements, and are made on the stack.
    forms: Box<Forms>,
}

/// A statement in all its variants.
#[derive(Clone)]
struct Forms {
    usual: PreparedStatement,
    degraded: PreparedStatement,
    surviving: PreparedStatement,
    serial: PreparedStatement,
}

/// A batch that is built once and sent with ever new values.
#[derive(Clone)]
pub(crate) struct BatchOf {
    name: &'static str,
    usual: Batch,
    degraded: Batch,
}

impl Statement {
    pub(super) async fn prepare(
        cluster: &Cluster,
        settings: &CassandraSettings,
        name: &'static str,
        kind: StatementKind,
        cql: &str,
    ) -> Result<Self, ConnectError> {
        let mut usual = cluster.prepare(name, cql).await?;
        usual.set_is_idempotent(kind != StatementKind::Decision);
        usual.set_request_timeout(Some(attempt_timeout(settings)));
        usual.set_serial_consistency(Some(serial_consistency(settings.serial)));
        usual.set_tracing(cluster.log().is_some_and(|log| log.traces()));
        if let Some(log) = cluster.log() {
            usual.set_history_listener(log.clone());
        }
        let home = kind == StatementKind::Decision;
        let profile = if home { cluster.home_profile(&settings.home_dc) } else { cluster.local_profile() };
        usual.set_execution_profile_handle(Some(profile));
        usual.set_consistency(consistency(match kind {
            StatementKind::Read | StatementKind::DecidedRead => settings.read,
            StatementKind::Write | StatementKind::Decision => settings.write,
        }));
        let mut degraded = usual.clone();
        degraded.set_consistency(Consistency::LocalQuorum);
        let mut surviving = usual.clone();
        surviving.set_execution_profile_handle(Some(cluster.surviving_profile()));
        let mut serial = usual.clone();
        serial.set_consistency(match settings.serial {
            SerialLevel::Serial => Consistency::Serial,
            SerialLevel::LocalSerial => Consistency::LocalSerial,
        });
        serial.set_execution_profile_handle(Some(cluster.home_profile(&settings.home_dc)));
        if kind == StatementKind::Read {
            degraded.set_execution_profile_handle(Some(cluster.surviving_profile()));
        }
        Ok(Self { name, kind, forms: Box::new(Forms { usual, degraded, surviving, serial }) })
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(super) fn at(&self, variant: Variants) -> &PreparedStatement {
        match variant {
            Variants::Usual => &self.forms.usual,
            Variants::Degraded => &self.forms.degraded,
            Variants::Surviving => &self.forms.surviving,
            Variants::Serial => &self.forms.serial,
        }
    }

    /// The same read, of all replicas everywhere: what differs is repaired before it answers.
    pub(crate) fn of_all_replicas(&self) -> PreparedStatement {
        let mut all = self.forms.usual.clone();
        all.set_consistency(Consistency::All);
        all
    }
}

impl BatchOf {
    pub(super) fn new(
        cluster: &Cluster,
        settings: &CassandraSettings,
        name: &'static str,
        of: &[&Statement],
    ) -> Self {
        let mut usual = Batch::new(BatchType::Unlogged);
        let decides = of.iter().any(|statement| statement.kind == StatementKind::Decision);
        usual.set_is_idempotent(!decides);
        usual.set_request_timeout(Some(attempt_timeout(settings)));
        usual.set_serial_consistency(Some(serial_consistency(settings.serial)));
        usual.set_tracing(cluster.log().is_some_and(|log| log.traces()));
        if let Some(log) = cluster.log() {
            usual.set_history_listener(log.clone());
        }
        let profile = if decides { cluster.home_profile(&settings.home_dc) } else { cluster.local_profile() };
        usual.set_execution_profile_handle(Some(profile));
        usual.set_consistency(consistency(settings.write));
        for statement in of {
            usual.append_statement(statement.forms.usual.clone());
        }
        let mut degraded = usual.clone();
        degraded.set_consistency(Consistency::LocalQuorum);
        Self { name, usual, degraded }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(super) fn at(&self, variant: Variants) -> &Batch {
        match variant {
            Variants::Degraded => &self.degraded,
            _ => &self.usual,
        }
    }
}

/// So that one node that hangs does not use up all the time there is.
fn attempt_timeout(settings: &CassandraSettings) -> Duration {
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
