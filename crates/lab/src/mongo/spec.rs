//! What a replica set shall be.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use crate::{Host, LabError};

/// More cannot vote.
pub(crate) const MEMBERS_MAX: u16 = 7;

/// Where a person's set begins to listen.
pub(crate) const PORT_DEFAULT: u16 = 27_017;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MongoSpec {
    pub members: Vec<MemberSpec>,
    /// The port of member 1, the others follow; `None` is 27017 for a person's set, and any that are free for a test's.
    pub port: Option<u16>,
    /// Where each member runs, by its number, instead of on this host.
    #[serde(default)]
    pub hosts: Vec<Host>,
    /// How long a primary may be silent before the others elect another one: 10 s is the server's own.
    pub election_timeout_ms: u32,
    /// How often members ask each other: every 2 s is the server's own.
    pub heartbeat_ms: u32,
    /// Parameters of the server (`--setParameter`), over those of the lab.
    pub parameters: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberSpec {
    /// It counts for elections and majorities, and may become primary.
    pub votes: bool,
}

impl MongoSpec {
    /// So many members that all vote, with the server's own timeouts, for a person.
    pub fn new(members: u16) -> Self {
        MongoSpec {
            members: vec![MemberSpec { votes: true }; usize::from(members)],
            port: None,
            hosts: Vec::new(),
            election_timeout_ms: 10_000,
            heartbeat_ms: 2_000,
            parameters: BTreeMap::new(),
        }
    }

    /// So many members that all vote, which notice early that the primary is gone: in 3 s, which a busy machine with two
    /// cores does not take for a failure by mistake.
    ///
    /// Majority writes wait for two of three members. A test that makes two of them lag marks them with
    /// [`MongoSpec::non_voting`], takes five members, or writes with a weaker concern.
    pub fn for_tests(members: u16) -> Self {
        MongoSpec { election_timeout_ms: 3_000, heartbeat_ms: 500, ..Self::new(members) }
    }

    /// Member `id` (from 1) does not vote and is never primary: it may lag, and majority writes go on without it.
    #[must_use]
    pub fn non_voting(mut self, id: u16) -> Self {
        if let Some(member) = usize::from(id).checked_sub(1).and_then(|index| self.members.get_mut(index)) {
            member.votes = false;
        }
        self
    }

    /// With a parameter of the server, as in `.with("ttlMonitorSleepSecs", 60)`.
    #[must_use]
    pub fn with(mut self, parameter: &str, value: impl fmt::Display) -> Self {
        self.parameters.insert(parameter.to_owned(), value.to_string());
        self
    }

    /// Member 1 listens there, and the others at the ports after it.
    #[must_use]
    pub fn on_port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// Each member in a network namespace of its own.
    #[must_use]
    pub fn in_namespaces(mut self, hosts: &[Host]) -> Self {
        self.hosts = hosts.to_vec();
        self
    }

    pub fn size(&self) -> u16 {
        u16::try_from(self.members.len()).unwrap_or(u16::MAX)
    }

    pub(crate) fn check(&self) -> Result<(), LabError> {
        let voters = self.members.iter().filter(|member| member.votes).count();
        if self.size() <= MEMBERS_MAX && voters > 0 {
            Ok(())
        } else {
            Err(LabError::BadSet { got: self.to_string(), max: MEMBERS_MAX })
        }
    }
}

impl fmt::Display for MongoSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let silent = self.members.iter().filter(|member| !member.votes).count();
        write!(f, "{} member{}", self.members.len(), if self.members.len() == 1 { "" } else { "s" })?;
        if silent > 0 {
            write!(f, ", {silent} without a vote")?;
        }
        if let Some(port) = self.port {
            write!(f, ", from port {port}")?;
        }
        for (parameter, value) in &self.parameters {
            write!(f, ", {parameter} {value}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_needs_somebody_who_votes() {
        assert!(MongoSpec::for_tests(3).non_voting(2).non_voting(3).check().is_ok());
        for bad in [MongoSpec::for_tests(0), MongoSpec::for_tests(8), MongoSpec::for_tests(1).non_voting(1)] {
            assert!(bad.check().is_err(), "{bad}");
        }
        let silent = MongoSpec::new(3).non_voting(3).on_port(27_017).with("ttlMonitorSleepSecs", 60);
        assert_eq!(
            silent.to_string(),
            "3 members, 1 without a vote, from port 27017, ttlMonitorSleepSecs 60"
        );
    }
}
