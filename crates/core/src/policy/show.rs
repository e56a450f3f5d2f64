//! The effective policy as tables for people.

use std::time::Duration;

use super::{Entity, Placement, Policy, ReadFrom};
use crate::reading::Served;

impl Policy {
    pub fn tables(&self) -> String {
        self.tables_with(None)
    }

    /// With what was measured beside the budgets.
    pub fn tables_with(&self, served: Option<&[Served]>) -> String {
        let title = match self.description.as_str() {
            "" => format!("policy {}", self.name),
            description => format!("policy {}: {description}", self.name),
        };
        let mut parts = vec![format!("{title}\n"), titled("entities", &self.entity_table())];
        let stores = [
            ("in mongodb", self.mongodb_table()),
            ("split in mongodb", self.stripe_table()),
            ("in cassandra", self.cassandra_table()),
        ];
        parts.extend(stores.iter().filter_map(|(name, table)| Some(titled(name, table.as_ref()?))));
        parts.push(titled("reads (when the entity is in mongodb)", &self.read_table(served)));
        parts.push(titled("times", &self.time_table()));
        parts.push(titled("alerts", &self.alert_table()));
        parts.join("\n")
    }

    fn entity_table(&self) -> String {
        let row = |entity: Entity| {
            let placement = self.placement(entity);
            let home = placement.map_or("with orders", |placement| placement.home.as_str());
            let other = placement.and_then(|placement| placement.migration_store);
            vec![
                entity.to_string(),
                home.to_owned(),
                other.map_or_else(dash, |store| store.to_string()),
                self.ttl_of(entity),
                self.buckets_of(entity),
            ]
        };
        let rows: Vec<Vec<String>> = Entity::ALL.iter().map(|entity| row(*entity)).collect();
        text_table(&["entity", "home", "migration", "ttl", "buckets"], &rows)
    }

    fn ttl_of(&self, entity: Entity) -> String {
        match entity {
            Entity::Carts => format!("guest {}, user {}", self.carts.ttl.guest, self.carts.ttl.user),
            Entity::Sessions => {
                let ttl = self.sessions.ttl;
                format!("user {}, guest {}", ttl.user, ttl.guest)
            }
            Entity::Products | Entity::Users | Entity::Orders | Entity::OrderHistory => dash(),
        }
    }

    fn buckets_of(&self, entity: Entity) -> String {
        match entity {
            Entity::Orders if self.orders.buckets.adaptive => {
                let buckets = self.orders.buckets;
                format!(
                    "{} a day, up to {} past {} orders/s each, published {} ahead",
                    buckets.count, buckets.max, buckets.orders_per_s_max, buckets.ahead
                )
            }
            Entity::Orders => format!("{} a day", self.orders.buckets.count),
            _ => dash(),
        }
    }

    fn mongodb_table(&self) -> Option<String> {
        let rows = self.rows(|entity, placement| {
            let settings = placement.mongodb.as_ref()?;
            Some(vec![
                entity.to_string(),
                settings.shard_key.to_string(),
                settings.grown_shard_key.to_string(),
                settings.write.to_string(),
            ])
        });
        (!rows.is_empty()).then(|| text_table(&["entity", "shard key", "when grown", "write"], &rows))
    }

    fn stripe_table(&self) -> Option<String> {
        let row = |(id, count): (crate::id::ProductId, u16)| vec![id.to_string(), count.to_string()];
        let rows: Vec<Vec<String>> = self.striped_products().into_iter().map(row).collect();
        (!rows.is_empty()).then(|| text_table(&["product", "stripes"], &rows))
    }

    fn cassandra_table(&self) -> Option<String> {
        let rows = self.rows(|entity, placement| {
            let settings = placement.cassandra.as_ref()?;
            let replication: Vec<String> =
                settings.replication.iter().map(|(dc, replicas)| format!("{dc} {replicas}")).collect();
            Some(vec![
                entity.to_string(),
                settings.write.to_string(),
                settings.read.to_string(),
                settings.timeout.to_string(),
                settings.speculative_retry.to_string(),
                if settings.read_repair { "on" } else { "off" }.to_owned(),
                settings.hint_window.to_string(),
                settings.repair.to_string(),
                settings.gc_grace.to_string(),
                settings.compaction.to_string(),
                if settings.is_stopped_by_dc_loss() { settings.on_dc_loss.to_string() } else { dash() },
                format!("{} in {}", settings.serial, settings.home_dc),
                replication.join(", "),
                layout(placement),
            ])
        });
        let header = [
            "entity",
            "write",
            "read",
            "timeout",
            "speculative",
            "read repair",
            "hints",
            "repair",
            "gc grace",
            "compaction",
            "dc loss",
            "conditional",
            "replicas",
            "layout",
        ];
        (!rows.is_empty()).then(|| text_table(&header, &rows))
    }

    fn rows(&self, row: impl Fn(Entity, &Placement) -> Option<Vec<String>>) -> Vec<Vec<String>> {
        Entity::ALL.iter().filter_map(|entity| row(*entity, self.placement(*entity)?)).collect()
    }

    fn read_table(&self, served: Option<&[Served]>) -> String {
        let row = |(operation, rule): (super::ReadOperation, super::ReadRule)| {
            let from = match rule.from {
                ReadFrom::Primary => "primary",
                ReadFrom::Secondary => "secondary",
            };
            let budget = rule.budget.map_or_else(|| "current".to_owned(), |budget| budget.to_string());
            let decided = [operation.to_string(), operation.entity().to_string(), from.to_owned(), budget];
            let measured =
                served.map(|served| measured(served.iter().find(|served| served.operation == operation)));
            decided.into_iter().chain(measured.into_iter().flatten()).collect()
        };
        let rows: Vec<Vec<String>> = self.reads.iter().map(row).collect();
        let columns = ["operation", "entity", "from", "budget", "reads", "by secondaries", "p50", "p99"];
        let shown = if served.is_some() { &columns[..] } else { &columns[..4] };
        text_table(shown, &rows)
    }

    fn time_table(&self) -> String {
        let times = &self.times;
        let rows = [
            (
                "checkout_deadline",
                times.checkout_deadline.to_string(),
                "then an open checkout may be aborted",
            ),
            (
                "reconcile_within",
                times.reconcile_within.to_string(),
                "of the deadline, whatever a crash left",
            ),
            ("idempotency_keys", times.idempotency_keys.to_string(), "keys and their answers are kept"),
            ("session_cache_s", times.session_cache_s.to_string(), "a session check may come from memory"),
            ("abandoned_after", times.abandoned_after.to_string(), "an untouched cart becomes abandoned"),
        ];
        let rows: Vec<Vec<String>> = rows
            .into_iter()
            .map(|(key, value, meaning)| vec![key.to_owned(), value, meaning.to_owned()])
            .collect();
        text_table(&["time", "value", "meaning"], &rows)
    }

    fn alert_table(&self) -> String {
        let rows: Vec<Vec<String>> = self
            .alerts
            .rows()
            .into_iter()
            .map(|alert| vec![alert.key, alert.threshold, alert.meaning.to_owned()])
            .collect();
        text_table(&["alert", "threshold", "when"], &rows)
    }
}

fn layout(placement: &Placement) -> String {
    let Some(settings) = &placement.cassandra else { return dash() };
    let parts: Vec<String> = [
        settings.history_bucket.map(|bucket| format!("history by {bucket}").replace("by none", "by user")),
        settings.status.map(|status| format!("status {status}")),
        settings.buckets.filter(|count| *count > 0).map(|count| format!("{count} buckets")),
    ]
    .into_iter()
    .flatten()
    .collect();
    if parts.is_empty() { dash() } else { parts.join(", ") }
}

fn dash() -> String {
    "-".to_owned()
}

fn titled(title: &str, table: &str) -> String {
    format!("{title}\n{table}")
}

/// Columns as wide as their widest cell, two spaces apart, indented by two.
pub fn text_table(header: &[&str], rows: &[Vec<String>]) -> String {
    let width_of = |at: usize| {
        let cells = rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count());
        cells.chain([header[at].chars().count()]).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..header.len()).map(width_of).collect();
    let line = |cells: Vec<&str>| {
        let padded: Vec<String> =
            cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        format!("  {}\n", padded.join("  ").trim_end())
    };
    let body = rows.iter().map(|row| line(row.iter().map(String::as_str).collect()));
    std::iter::once(line(header.to_vec())).chain(body).collect()
}

/// How often an operation was read, by whom, and how old the answers were.
fn measured(served: Option<&Served>) -> [String; 4] {
    let Some(served) = served else { return std::array::from_fn(|_| dash()) };
    let share = format!("{:.1} %", served.secondary_share() * 100.0);
    [served.reads.to_string(), share, age(served.p50), age(served.p99)]
}

fn age(age: Duration) -> String {
    match age {
        Duration::ZERO => "current".to_owned(),
        age if age < Duration::from_secs(1) => format!("{}ms", age.as_millis().max(1)),
        age => format!("{:.1}s", age.as_secs_f64()),
    }
}
