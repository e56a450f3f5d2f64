//! Orders: by id with their status and history, by user, and by day; and a history of orders on its own.

use mobimir_core::policy::{CassandraSettings, Compaction, StatusLayout};

use super::{Column, Sort, Table, TableOptions, columns, outbox};

pub(super) fn tables(settings: &CassandraSettings) -> Vec<Table> {
    let options = TableOptions::of(settings, 0);
    // Small tables that are changed in place.
    let small = TableOptions { compaction: Compaction::Leveled, ..options.clone() };
    let [outbox, outbox_slots] = outbox(&options);
    vec![
        outbox,
        outbox_slots,
        Table {
            name: "orders",
            comment: "an order by its id: where it stands, and a row a move, newest first",
            columns: order_columns(settings.status.unwrap_or(StatusLayout::Column)),
            partition_key: vec!["order_id"],
            clustering: vec![("seq", Sort::Descending)],
            options: options.clone(),
        },
        by_user(options.clone()),
        Table {
            name: "orders_by_day",
            comment: "whole orders by the day they were made, spread over buckets, newest first",
            columns: columns(&[
                ("day", "int"),
                ("bucket", "int"),
                ("created_at", "timestamp"),
                ("order_id", "uuid"),
                ("user_id", "uuid"),
                ("geo_zone", "text"),
                ("status", "text"),
                ("updated_at", "timestamp"),
                ("version", "bigint"),
                ("body", "blob"),
            ]),
            partition_key: vec!["day", "bucket"],
            clustering: vec![("created_at", Sort::Descending), ("order_id", Sort::Ascending)],
            options,
        },
        Table {
            name: "pending_moves",
            comment: "orders that are being written or moved, until all their rows are",
            columns: columns(&[
                ("slot", "bigint"),
                ("shard", "tinyint"),
                ("noted_us", "bigint"),
                ("order_id", "uuid"),
                ("move_id", "uuid"),
                ("seq", "int"),
                ("user_id", "uuid"),
                ("geo_zone", "text"),
                ("created_at", "timestamp"),
                ("bucket", "int"),
                ("body", "blob"),
                ("status", "text"),
                ("updated_at", "timestamp"),
                ("version", "bigint"),
            ]),
            partition_key: vec!["slot", "shard"],
            clustering: vec![
                ("noted_us", Sort::Ascending),
                ("order_id", Sort::Ascending),
                ("move_id", Sort::Ascending),
            ],
            options: small.clone(),
        },
        Table {
            name: "bucket_plan",
            comment: "over how many buckets a day is spread, and from when on; by decision only",
            columns: columns(&[
                ("plan", "tinyint"),
                ("number", "int"),
                ("count", "int"),
                ("effective_from", "timestamp"),
            ]),
            partition_key: vec!["plan"],
            clustering: vec![("number", Sort::Descending)],
            options: small.clone(),
        },
        Table {
            name: "bucket_rates",
            comment: "orders that each instance wrote in a period, and in its fullest bucket",
            columns: columns(&[
                ("period", "bigint"),
                ("instance", "uuid"),
                ("orders", "bigint"),
                ("fullest", "bigint"),
            ]),
            partition_key: vec!["period"],
            clustering: vec![("instance", Sort::Ascending)],
            options: small,
        },
    ]
}

pub(super) fn history_tables(settings: &CassandraSettings) -> Vec<Table> {
    let options = TableOptions::of(settings, 0);
    let [outbox, outbox_slots] = outbox(&options);
    vec![outbox, outbox_slots, by_user(options)]
}

fn order_columns(layout: StatusLayout) -> Vec<Column> {
    let fixed = |(name, cql_type)| Column { name, cql_type, is_static: true };
    let mut all = columns(&[("order_id", "uuid"), ("seq", "int")]);
    all.extend(
        [
            ("user_id", "uuid"),
            ("geo_zone", "text"),
            ("created_at", "timestamp"),
            ("bucket", "int"),
            ("total", "text"),
            ("body", "blob"),
        ]
        .map(fixed),
    );
    all.extend(columns(&[
        ("status", "text"),
        ("at", "timestamp"),
        ("operator", "text"),
        ("move_id", "uuid"),
    ]));
    match layout {
        StatusLayout::Column => all.extend(
            [("stands_at", "text"), ("updated_at", "timestamp"), ("version", "bigint"), ("moves", "int")]
                .map(fixed),
        ),
        StatusLayout::Log => all.extend(columns(&[("updated_at", "timestamp"), ("version", "bigint")])),
    }
    all
}

fn by_user(options: TableOptions) -> Table {
    Table {
        name: "orders_by_user",
        comment: "whole orders by their owner and month, newest first; month 0 where months are not kept apart",
        columns: columns(&[
            ("user_id", "uuid"),
            ("month", "int"),
            ("created_at", "timestamp"),
            ("order_id", "uuid"),
            ("geo_zone", "text"),
            ("status", "text"),
            ("updated_at", "timestamp"),
            ("version", "bigint"),
            ("bucket", "int"),
            ("body", "blob"),
        ]),
        partition_key: vec!["user_id", "month"],
        clustering: vec![("created_at", Sort::Descending), ("order_id", Sort::Ascending)],
        options,
    }
}
