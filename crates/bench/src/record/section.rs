//! The parts of a recorded run, in their order, and how long they take.

use std::{fmt, time::Duration};

use clap::ValueEnum;

/// What one process measures. Groups that share something (a shop, the highest rate) are one section.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Section {
    Pages,
    Durable,
    Start,
    Generator,
    Friday,
    Flash,
    Sizes,
    Mongo,
    Cassandra,
    Cluster,
    Migrate,
    Instructions,
}

/// A quick run, to a full one, as far as anything is known before the first section has ended.
const QUICK_SHARE: f64 = 0.15;

impl Section {
    /// Those that were named, or all, in the order in which they run.
    pub(crate) fn wanted(named: &[Self]) -> Vec<Self> {
        let is_wanted = |section: &Self| named.is_empty() || named.contains(section);
        Self::value_variants().iter().copied().filter(is_wanted).collect()
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Pages => "pages",
            Self::Durable => "durable",
            Self::Start => "start",
            Self::Generator => "generator",
            Self::Friday => "friday",
            Self::Flash => "flash",
            Self::Sizes => "sizes",
            Self::Mongo => "mongo",
            Self::Cassandra => "cassandra",
            Self::Cluster => "cluster",
            Self::Migrate => "migrate",
            Self::Instructions => "instructions",
        }
    }

    /// For this program.
    pub(crate) fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Pages => &["--only", "product", "--only", "category", "--only", "operations"],
            Self::Durable => &["--only", "durable"],
            Self::Start => &["--only", "start"],
            Self::Generator => &["--only", "generator"],
            Self::Friday => &["--only", "friday", "--only", "overload", "--only", "steady"],
            Self::Flash => &["--only", "flash"],
            Self::Sizes => &["--only", "sizes"],
            Self::Mongo => &["--mongo"],
            Self::Cassandra => &["--cassandra"],
            Self::Cluster => &["--cluster"],
            Self::Migrate => &["--migrate"],
            Self::Instructions => &["--instructions"],
        }
    }

    /// Whether the program that is shipped is measured, and not its crates in this one.
    pub(crate) fn starts_mobimir(self) -> bool {
        !matches!(self, Self::Mongo | Self::Cassandra | Self::Migrate)
    }

    /// About, on two cores. What a run tells in between rests on it, and nothing else.
    fn takes(self) -> Duration {
        let minutes = match self {
            Self::Start | Self::Flash => 1,
            Self::Pages | Self::Durable | Self::Generator => 2,
            Self::Instructions => 4,
            Self::Mongo => 5,
            Self::Sizes => 6,
            Self::Cassandra | Self::Cluster => 10,
            Self::Migrate => 15,
            Self::Friday => 18,
        };
        Duration::from_secs(minutes * 60)
    }
}

/// How long it will be until the end.
pub(crate) struct Left {
    ahead: Duration,
    /// Of what has ended: how long it was thought to take, and how long it took.
    thought: Duration,
    took: Duration,
    quick: bool,
}

impl Left {
    pub(crate) fn new(sections: &[Section], quick: bool) -> Self {
        let ahead = sections.iter().map(|section| section.takes()).sum();
        Self { ahead, thought: Duration::ZERO, took: Duration::ZERO, quick }
    }

    pub(crate) fn done(&mut self, section: Section, took: Duration) {
        self.ahead = self.ahead.saturating_sub(section.takes());
        self.thought += section.takes();
        self.took += took;
    }

    /// As slow as it was so far, it will go on.
    fn minutes(&self) -> u64 {
        let pace = match (self.thought.is_zero(), self.quick) {
            (true, true) => QUICK_SHARE,
            (true, false) => 1.0,
            (false, _) => self.took.as_secs_f64() / self.thought.as_secs_f64(),
        };
        (self.ahead.as_secs_f64() * pace / 60.0).ceil() as u64
    }
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.minutes() {
            1 => write!(f, "about a minute left"),
            minutes => write!(f, "about {minutes} minutes left"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Group;

    #[test]
    fn every_group_is_in_one_section() {
        for group in Group::value_variants() {
            let value = group.to_possible_value().unwrap();
            let has = |section: &&Section| section.arguments().contains(&value.get_name());
            assert_eq!(Section::value_variants().iter().filter(has).count(), 1, "{group:?}");
        }
    }

    #[test]
    fn sections_run_in_their_order_whatever_was_named_first() {
        let wanted = Section::wanted(&[Section::Mongo, Section::Pages]);
        assert_eq!(wanted, [Section::Pages, Section::Mongo]);
        assert_eq!(Section::wanted(&[]), Section::value_variants());
        for section in Section::value_variants() {
            let value = section.to_possible_value();
            assert_eq!(value.as_ref().map(|value| value.get_name()), Some(section.name()));
        }
    }

    #[test]
    fn what_is_left_follows_the_pace_so_far() {
        let mut left = Left::new(&[Section::Start, Section::Mongo, Section::Cassandra], false);
        assert_eq!(left.to_string(), "about 16 minutes left");
        left.done(Section::Start, Duration::from_secs(120));
        assert_eq!(left.to_string(), "about 30 minutes left");
        left.done(Section::Mongo, Duration::from_secs(240));
        assert_eq!(left.to_string(), "about 10 minutes left");
        left.done(Section::Cassandra, Duration::from_secs(1));
        assert_eq!(left.to_string(), "about 0 minutes left");
    }
}
