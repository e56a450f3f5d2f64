//! A migration as machines look at it.

use std::{fmt::Write, sync::PoisonError};

use mobimir_core::moving::Whole;

use super::{Entity, Migration, Status};
use crate::{phase::Which, shadow::Counted, standing::InDoubt};

/// One figure of one entity.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    pub metric: &'static Metric,
    /// Like `entity="orders"`.
    pub labels: String,
    pub value: f64,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Metric {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
}

const PHASE: &Metric = &Metric {
    name: "mobimir_migration_phase",
    kind: "gauge",
    help: "The phase a migration is in, from 0 (source) to 7 (target)",
};
const PENDING: &Metric = &Metric {
    name: "mobimir_migration_pending_entities",
    kind: "gauge",
    help: "Entities of a store that were written and are not copied to the other one yet",
};
const PENDING_AGE: &Metric = &Metric {
    name: "mobimir_migration_pending_seconds",
    kind: "gauge",
    help: "Since when the oldest of them waits",
};
const COPIED: &Metric = &Metric {
    name: "mobimir_migration_copied_entities",
    kind: "counter",
    help: "Entities that were copied after a write",
};
const NOT_COPIED: &Metric = &Metric {
    name: "mobimir_migration_copy_failures",
    kind: "counter",
    help: "Copies that failed and are tried again",
};
const IN_DOUBT: &Metric = &Metric {
    name: "mobimir_migration_writes_in_doubt",
    kind: "counter",
    help: "Writes that ended while nobody knew whether they will still happen, for which a handover waits",
};
const BACKFILLED: &Metric = &Metric {
    name: "mobimir_migration_backfilled_entities",
    kind: "gauge",
    help: "Entities of the past that were copied",
};
const DIFFERENCES: &Metric = &Metric {
    name: "mobimir_migration_differences",
    kind: "gauge",
    help: "Differences that the last comparison has found",
};
const DEAD_LETTERS: &Metric = &Metric {
    name: "mobimir_migration_dead_letters",
    kind: "gauge",
    help: "Entities that could not be copied and wait for somebody to look",
};
const SHADOW_READS: &Metric = &Metric {
    name: "mobimir_migration_shadow_reads",
    kind: "gauge",
    help: "Reads that were asked of both stores since the comparison began",
};
const FELT: &Metric = &Metric {
    name: "mobimir_migration_felt_ratio",
    kind: "gauge",
    help: "How much of what shoppers may feel is used up; copying gives way from 0.8 on",
};

/// The lines of several migrations, each metric told once.
pub fn text(migrations: &[std::sync::Arc<dyn Migration>]) -> String {
    let lines: Vec<Line> = migrations.iter().flat_map(|migration| migration.metrics()).collect();
    written(&lines)
}

fn written(lines: &[Line]) -> String {
    let mut text = String::new();
    for metric in [
        PHASE,
        PENDING,
        PENDING_AGE,
        COPIED,
        NOT_COPIED,
        IN_DOUBT,
        BACKFILLED,
        DIFFERENCES,
        DEAD_LETTERS,
        SHADOW_READS,
        FELT,
    ] {
        let of_metric: Vec<&Line> = lines.iter().filter(|line| line.metric == metric).collect();
        if of_metric.is_empty() {
            continue;
        }
        let Metric { name, kind, help } = metric;
        let total = if *kind == "counter" { "_total" } else { "" };
        let _ = write!(text, "# TYPE {name} {kind}\n# HELP {name} {help}\n");
        for line in of_metric {
            let _ = writeln!(text, "{name}{total}{{{}}} {}", line.labels, line.value);
        }
    }
    text
}

impl<W: Whole, P: ?Sized + Send + Sync + 'static> Entity<W, P> {
    pub(super) fn lines(&self) -> Vec<Line> {
        let observed = self.observed.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(status) = observed else { return Vec::new() };
        let mut lines = self.of_status(&status);
        for which in [Which::Source, Which::Target] {
            if let Ok(mirror) = self.migrating.mirror_of(which) {
                let labels = format!("entity=\"{}\",from=\"{which}\"", status.entity);
                let (copied, failed) = mirror.counts();
                lines.push(Line { metric: COPIED, labels: labels.clone(), value: copied as f64 });
                lines.push(Line { metric: NOT_COPIED, labels, value: failed as f64 });
            }
        }
        let InDoubt { unanswered, abandoned } = self.migrating.standing().in_doubt();
        for (why, writes) in [("unanswered", unanswered), ("abandoned", abandoned)] {
            let labels = format!("entity=\"{}\",why=\"{why}\"", status.entity);
            lines.push(Line { metric: IN_DOUBT, labels, value: writes as f64 });
        }
        lines
    }

    fn of_status(&self, status: &Status) -> Vec<Line> {
        let entity = format!("entity=\"{}\"", status.entity);
        let line = |metric, value| Line { metric, labels: entity.clone(), value };
        let mut lines = vec![
            line(PHASE, f64::from(status.phase as u8)),
            line(DEAD_LETTERS, status.dead_letters_total as f64),
            line(FELT, status.felt),
        ];
        lines.extend(status.backfill.as_ref().map(|job| line(BACKFILLED, job.reached.entities as f64)));
        let last = status.outcomes.last();
        lines.extend(last.map(|last| line(DIFFERENCES, last.differences.values().sum::<u64>() as f64)));
        for (which, backlog) in &status.backlog {
            let Some(backlog) = backlog else { continue };
            let labels = format!("{entity},from=\"{which}\"");
            let age_ms = backlog.oldest.map_or(0, |oldest| self.clock.now().since(oldest).max(0));
            let (pending, age_s) = (backlog.entities as f64, age_ms as f64 / 1_000.0);
            lines.push(Line { metric: PENDING, labels: labels.clone(), value: pending });
            lines.push(Line { metric: PENDING_AGE, labels, value: age_s });
        }
        if let Some(Counted { alike, different, untold, skipped, .. }) = &status.shadow {
            for (outcome, reads) in
                [("alike", alike), ("different", different), ("untold", untold), ("skipped", skipped)]
            {
                let labels = format!("{entity},outcome=\"{outcome}\"");
                lines.push(Line { metric: SHADOW_READS, labels, value: *reads as f64 });
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_told_once_with_all_its_entities() {
        let line = |labels: &str, metric, value| Line { metric, labels: labels.to_owned(), value };
        let text = written(&[
            line("entity=\"carts\"", PHASE, 2.0),
            line("entity=\"carts\",from=\"source\"", COPIED, 7.0),
            line("entity=\"orders\"", PHASE, 3.0),
        ]);
        assert_eq!(text.matches("# TYPE mobimir_migration_phase gauge").count(), 1, "{text}");
        assert!(text.contains("mobimir_migration_phase{entity=\"orders\"} 3\n"), "{text}");
        assert!(
            text.contains("mobimir_migration_copied_entities_total{entity=\"carts\",from=\"source\"} 7\n"),
            "{text}"
        );
    }
}
