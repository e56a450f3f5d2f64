//! Consistency levels, and what a pair of them promises.

use super::{cassandra::Replication, values::words};

words! {
    /// How many replicas have to answer.
    Level {
        /// A hint is enough.
        Any = "ANY",
        One = "ONE",
        Two = "TWO",
        Three = "THREE",
        LocalOne = "LOCAL_ONE",
        Quorum = "QUORUM",
        LocalQuorum = "LOCAL_QUORUM",
        EachQuorum = "EACH_QUORUM",
        All = "ALL",
    }
}

words! {
    /// Among whom a conditional statement is exclusive.
    SerialLevel {
        LocalSerial = "LOCAL_SERIAL",
        Serial = "SERIAL",
    }
}

impl Level {
    pub fn can_read(self) -> bool {
        !matches!(self, Self::Any | Self::EachQuorum)
    }

    /// Whether only replicas in the data centre of whoever coordinates count.
    pub fn is_local(self) -> bool {
        matches!(self, Self::LocalOne | Self::LocalQuorum)
    }

    /// The replicas that a level asks for by number, wherever they are.
    pub(super) fn replicas(self) -> u32 {
        match self {
            Self::Two => 2,
            Self::Three => 3,
            _ => 0,
        }
    }

    /// Whether a write at this level fails when a data centre is lost.
    pub fn needs_every_dc(self, replication: &Replication) -> bool {
        let all = total(replication);
        let lost = |replicas: &u8| match self {
            Self::EachQuorum | Self::All => true,
            Self::Quorum => all - u32::from(*replicas) < majority(all),
            level => all - u32::from(*replicas) < level.replicas(),
        };
        replication.len() > 1 && replication.values().any(lost)
    }

    /// The fewest replicas that have answered, coordinated in `by`: in the data centre `at`, and everywhere.
    fn answered(self, replication: &Replication, by: &str, at: &str) -> (u32, u32) {
        let all = total(replication);
        let there = replicas_in(replication, at);
        let anywhere = |count: u32| (count.saturating_sub(all - there), count);
        let local = |count: u32| (if by == at { count } else { 0 }, count);
        match self {
            Self::Any => (0, 0),
            Self::One => anywhere(1),
            Self::Two => anywhere(2),
            Self::Three => anywhere(3),
            Self::LocalOne => local(1),
            Self::Quorum => anywhere(majority(all)),
            Self::LocalQuorum => local(majority(replicas_in(replication, by))),
            Self::EachQuorum => {
                (majority(there), replication.values().map(|replicas| majority(u32::from(*replicas))).sum())
            }
            Self::All => (there, all),
        }
    }
}

/// Whether a read coordinated in `reader` must meet a replica that has what was written through `writer`.
pub fn read_sees_write(
    (write, writer): (Level, &str),
    (read, reader): (Level, &str),
    replication: &Replication,
) -> bool {
    let everywhere = total(replication);
    replication.keys().any(|at| {
        let (written_there, written) = write.answered(replication, writer, at);
        let (read_there, read) = read.answered(replication, reader, at);
        written_there + read_there > replicas_in(replication, at) || written + read > everywhere
    })
}

fn total(replication: &Replication) -> u32 {
    replication.values().map(|replicas| u32::from(*replicas)).sum()
}

fn replicas_in(replication: &Replication, dc: &str) -> u32 {
    replication.get(dc).copied().map_or(0, u32::from)
}

fn majority(replicas: u32) -> u32 {
    replicas / 2 + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_dcs() -> Replication {
        Replication::from([("dc1".to_owned(), 3), ("dc2".to_owned(), 3)])
    }

    fn sees(write: Level, read: Level, reader: &str) -> bool {
        read_sees_write((write, "dc1"), (read, reader), &two_dcs())
    }

    #[test]
    fn quorums_meet_where_they_overlap() {
        assert!(sees(Level::LocalQuorum, Level::LocalQuorum, "dc1"));
        assert!(!sees(Level::LocalQuorum, Level::LocalQuorum, "dc2"));
        assert!(sees(Level::EachQuorum, Level::LocalQuorum, "dc2"));
        assert!(sees(Level::Quorum, Level::Quorum, "dc2"));
        assert!(sees(Level::EachQuorum, Level::Quorum, "dc2"));
        assert!(sees(Level::All, Level::One, "dc2"));
        assert!(!sees(Level::One, Level::LocalQuorum, "dc1"));
        assert!(!sees(Level::LocalOne, Level::LocalQuorum, "dc1"));
        assert!(!sees(Level::LocalQuorum, Level::One, "dc1"));
        assert!(!sees(Level::LocalQuorum, Level::Quorum, "dc1"));
        assert!(!sees(Level::Any, Level::Quorum, "dc1"));
    }

    #[test]
    fn a_lost_data_centre_stops_what_spans_them() {
        assert!(Level::EachQuorum.needs_every_dc(&two_dcs()));
        assert!(Level::Quorum.needs_every_dc(&two_dcs()));
        assert!(!Level::LocalQuorum.needs_every_dc(&two_dcs()));
        assert!(!Level::EachQuorum.needs_every_dc(&Replication::from([("dc1".to_owned(), 3)])));
    }
}
