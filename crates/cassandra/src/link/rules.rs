//! Which way a statement goes while a data centre is lost, and while what was written meanwhile is brought
//! over. Pure: the simulator asks the same rules.

use mobimir_core::policy::{CassandraSettings, Level, OnDcLoss};

use super::log::StatementKind;

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

/// What may go on when a data centre is lost, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Writes that need every data centre go on in one that is left.
    every_writes: bool,
    /// And reads that do.
    every_reads: bool,
    /// What needs the local data centre goes on in another.
    local: bool,
    /// A write is in every data centre once it is acknowledged, unless the entity is degraded.
    is_written_everywhere: bool,
}

/// Where an entity goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    pub state: DcState,
    pub is_in_local_dc: bool,
    pub is_at_home: bool,
}

/// How a statement is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variants {
    /// As the policy says.
    Usual,
    /// At LOCAL_QUORUM in the data centre that goes on, because another is lost.
    Degraded,
    /// As the policy says, but asking the data centre that went on while another was lost.
    Surviving,
    /// At EACH_QUORUM: what is read or written so meets whatever was acknowledged in one data centre alone.
    Everywhere,
    /// Reads only: finishes what conditional statements have left open.
    Serial,
}

/// What the loss of a data centre is to a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// Needs replicas of the local data centre, and of no other.
    Local,
    /// Needs every data centre.
    Every,
    /// Does with those that are left.
    Any,
}

/// What a failure says about the data centres that were asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lack {
    /// Replicas were missing, which is what a lost data centre looks like.
    pub replicas: bool,
    /// The one data centre that was asked is lost.
    pub dc: bool,
}

impl Rules {
    /// `watched` says what becomes of writes that need every data centre.
    pub fn of(settings: &CassandraSettings, watched: &CassandraSettings) -> Self {
        let goes_on = |settings: &CassandraSettings| settings.on_dc_loss == OnDcLoss::LocalQuorum;
        let every = |level: Level| goes_on(watched) && level.needs_every_dc(&watched.replication);
        Self {
            every_writes: every(watched.write),
            every_reads: every(watched.read),
            local: goes_on(settings) && settings.goes_on_elsewhere(),
            is_written_everywhere: settings.write.needs_every_dc(&settings.replication),
        }
    }

    /// Whether anything goes on when a data centre is lost.
    pub fn go_on(self) -> bool {
        self.every_writes || self.every_reads || self.local
    }

    /// None is: refused.
    pub fn for_writes(self, standing: Standing, span: Span) -> Option<Variants> {
        match (standing.state, span) {
            (DcState::Whole, _) => Some(Variants::Usual),
            // Whoever refuses what needs every data centre does so whatever else goes on.
            (_, Span::Every) if !self.every_writes => Some(Variants::Usual),
            (DcState::Degraded, Span::Local) if !self.local && !standing.is_in_local_dc => None,
            (DcState::Degraded, _) => Some(Variants::Degraded),
            (DcState::Recovering, Span::Every) => Some(Variants::Usual),
            (DcState::Recovering, _) => Some(Variants::Everywhere),
        }
    }

    pub fn for_reads(self, standing: Standing, span: Span) -> Option<Variants> {
        match (standing.state, span) {
            (DcState::Whole, _) => Some(Variants::Usual),
            (DcState::Degraded, Span::Local) if !self.local && !standing.is_in_local_dc => None,
            (DcState::Degraded, Span::Every) if self.every_reads => Some(Variants::Degraded),
            // Somebody may have written to the data centre that was thought to be lost until a moment ago.
            (DcState::Recovering, Span::Local) if !self.is_written_everywhere => Some(Variants::Everywhere),
            (DcState::Degraded | DcState::Recovering, _) => Some(Variants::Surviving),
        }
    }

    pub fn for_decisions(self, standing: Standing) -> Option<Variants> {
        match standing.state {
            DcState::Whole => Some(Variants::Usual),
            DcState::Degraded if standing.is_at_home => Some(Variants::Degraded),
            // What is read elsewhere would not see it.
            DcState::Degraded => None,
            DcState::Recovering if self.is_written_everywhere => Some(Variants::Usual),
            DcState::Recovering => Some(Variants::Everywhere),
        }
    }

    /// Whether a write, read or decision that failed so may go on without a data centre.
    pub fn may_degrade(self, lack: Lack, span: Span, of: StatementKind, sent: Variants) -> bool {
        match (sent, span) {
            (Variants::Everywhere, _) => self.go_on() && lack.replicas,
            (Variants::Usual, Span::Every) => {
                let may = if of == StatementKind::Read { self.every_reads } else { self.every_writes };
                may && lack.replicas
            }
            // A decision is made at home, wherever that is.
            (Variants::Usual, Span::Local) if of == StatementKind::Decision => false,
            (Variants::Usual, Span::Local) => self.local && lack.dc,
            _ => false,
        }
    }
}

impl Span {
    pub fn of(level: Level, settings: &CassandraSettings) -> Self {
        match level {
            level if level.is_local() => Self::Local,
            level if level.needs_every_dc(&settings.replication) => Self::Every,
            _ => Self::Any,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mobimir_core::policy::{BUILT_IN, Entity, Policy};
    use scylla::{
        errors::{DbError, ExecutionError, RequestAttemptError},
        statement::Consistency,
    };

    use super::{super::failure::Failure, *};

    const ORDERS: Rules =
        Rules { every_writes: true, every_reads: false, local: true, is_written_everywhere: true };
    const CARTS: Rules =
        Rules { every_writes: false, every_reads: false, local: true, is_written_everywhere: false };
    /// Carts that refuse, of orders that go on.
    const COVERS: Rules = Rules { every_writes: true, local: false, ..CARTS };
    const REFUSES: Rules = Rules { every_writes: false, ..COVERS };

    const WHOLE: Standing = Standing { state: DcState::Whole, is_in_local_dc: true, is_at_home: true };
    const HERE: Standing = Standing { state: DcState::Degraded, ..WHOLE };
    const ELSEWHERE: Standing =
        Standing { state: DcState::Degraded, is_in_local_dc: false, is_at_home: false };
    const BACK: Standing = Standing { state: DcState::Recovering, ..ELSEWHERE };

    fn unreachable() -> Failure {
        Failure::from(ExecutionError::EmptyPlan)
    }

    fn too_few_alive() -> Failure {
        let (consistency, required, alive) = (Consistency::LocalQuorum, 2, 1);
        let error = DbError::Unavailable { consistency, required, alive };
        Failure::from(ExecutionError::LastAttemptError(RequestAttemptError::DbError(error, String::new())))
    }

    #[test]
    fn the_shipped_policies_say_what_goes_on() {
        let rules = |policy: &str, entity| {
            let text = BUILT_IN.iter().find(|built_in| built_in.name == policy).unwrap().text;
            let policy = Policy::parse(text, policy).unwrap();
            let settings = policy.placement(entity).unwrap().cassandra.clone().unwrap();
            Rules::of(&settings, &settings)
        };
        assert_eq!(rules("default", Entity::Orders), ORDERS);
        assert_eq!(rules("default", Entity::Carts), CARTS);
        assert_eq!(rules("default", Entity::Sessions), CARTS);
        assert_eq!(rules("status-log", Entity::Sessions), CARTS);
        assert!(!rules("quorum", Entity::Carts).go_on(), "there is one data centre only");
    }

    #[test]
    fn nobody_answers_for_the_local_data_centre_before_that_is_declared() {
        for rules in [ORDERS, CARTS, COVERS, REFUSES] {
            for span in [Span::Local, Span::Every, Span::Any] {
                assert_eq!(rules.for_writes(WHOLE, span), Some(Variants::Usual));
                assert_eq!(rules.for_reads(WHOLE, span), Some(Variants::Usual));
            }
            assert_eq!(rules.for_decisions(WHOLE), Some(Variants::Usual));
        }
    }

    #[test]
    fn what_goes_on_is_written_and_read_in_the_same_place() {
        for rules in [ORDERS, CARTS] {
            for standing in [HERE, ELSEWHERE] {
                assert_eq!(rules.for_writes(standing, Span::Local), Some(Variants::Degraded));
                assert_eq!(rules.for_reads(standing, Span::Local), Some(Variants::Surviving));
            }
        }
        assert_eq!(ORDERS.for_writes(ELSEWHERE, Span::Every), Some(Variants::Degraded));
        // Carts that refuse are not read where orders go on, but next to it.
        assert_eq!(COVERS.for_writes(ELSEWHERE, Span::Every), Some(Variants::Degraded));
        assert_eq!(COVERS.for_writes(ELSEWHERE, Span::Local), None);
        assert_eq!(COVERS.for_reads(ELSEWHERE, Span::Local), None);
        assert_eq!(COVERS.for_writes(HERE, Span::Local), Some(Variants::Degraded));
        assert_eq!(COVERS.for_reads(HERE, Span::Local), Some(Variants::Surviving));
    }

    #[test]
    fn while_it_recovers_no_write_and_no_read_misses_another() {
        assert_eq!(CARTS.for_writes(BACK, Span::Local), Some(Variants::Everywhere));
        assert_eq!(CARTS.for_reads(BACK, Span::Local), Some(Variants::Everywhere));
        assert_eq!(ORDERS.for_writes(BACK, Span::Every), Some(Variants::Usual));
        assert_eq!(ORDERS.for_reads(BACK, Span::Local), Some(Variants::Surviving));
        assert_eq!(CARTS.for_decisions(BACK), Some(Variants::Everywhere));
    }

    #[test]
    fn nobody_decides_where_home_is_not() {
        for rules in [ORDERS, CARTS, COVERS] {
            assert_eq!(rules.for_decisions(ELSEWHERE), None);
            assert_eq!(rules.for_decisions(HERE), Some(Variants::Degraded));
        }
    }

    #[test]
    fn what_is_late_is_not_lost() {
        use StatementKind::{Decision, Read, Write};
        let late = || Failure::timed_out(Duration::from_secs(5));
        for failure in [unreachable(), too_few_alive()] {
            assert!(CARTS.may_degrade(failure.lack(), Span::Local, Write, Variants::Usual));
            assert!(CARTS.may_degrade(failure.lack(), Span::Local, Read, Variants::Usual));
            assert!(!CARTS.may_degrade(failure.lack(), Span::Local, Decision, Variants::Usual));
            assert!(!REFUSES.may_degrade(failure.lack(), Span::Local, Write, Variants::Usual));
            assert!(!COVERS.may_degrade(failure.lack(), Span::Local, Write, Variants::Usual));
            // It goes on already, in the only place where it may.
            assert!(!CARTS.may_degrade(failure.lack(), Span::Local, Write, Variants::Degraded));
            assert!(!CARTS.may_degrade(failure.lack(), Span::Local, Read, Variants::Surviving));
        }
        assert!(!CARTS.may_degrade(late().lack(), Span::Local, Write, Variants::Usual));
        assert!(ORDERS.may_degrade(too_few_alive().lack(), Span::Every, Write, Variants::Usual));
        assert!(
            !ORDERS.may_degrade(unreachable().lack(), Span::Every, Write, Variants::Usual),
            "nobody is left"
        );
        assert!(CARTS.may_degrade(too_few_alive().lack(), Span::Local, Read, Variants::Everywhere));
    }
}
