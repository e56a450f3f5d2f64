//! Carts: by owner as rows of changes, and by when they were last touched.

use mobimir_core::policy::{CassandraSettings, Policy};

use super::{Sort, Table, TableOptions, columns, outbox};
use crate::carts::kept_beyond_ms;

pub(super) fn tables(settings: &CassandraSettings, policy: &Policy) -> Vec<Table> {
    // A user's cart lasts longer than a guest's.
    let ttl_ms = policy.user_cart_ttl_ms().map_or(0, |ttl_ms| ttl_ms + kept_beyond_ms(ttl_ms));
    let options = TableOptions::of(settings, ttl_ms);
    let [outbox, outbox_slots] = outbox(&options);
    vec![
        outbox,
        outbox_slots,
        Table {
            name: "cart_changes",
            comment: "a cart by its owner: a row a change, and under the nil id the packed ones, by decision only",
            columns: columns(&[
                ("owner_kind", "tinyint"),
                ("owner", "uuid"),
                ("change_id", "uuid"),
                ("written_us", "bigint"),
                ("touched_at", "timestamp"),
                ("expires_at", "timestamp"),
                ("body", "blob"),
                ("created_at", "timestamp"),
                ("pack_id", "uuid"),
                ("version", "bigint"),
                ("rows", "bigint"),
            ]),
            partition_key: vec!["owner_kind", "owner"],
            clustering: vec![("change_id", Sort::Ascending), ("written_us", Sort::Ascending)],
            options: options.clone(),
        },
        Table {
            name: "carts_by_touch",
            comment: "carts by the day and time at which they were touched, for those that were abandoned",
            columns: columns(&[
                ("day", "int"),
                ("shard", "tinyint"),
                ("touched_at", "timestamp"),
                ("owner_kind", "tinyint"),
                ("owner", "uuid"),
            ]),
            partition_key: vec!["day", "shard"],
            clustering: vec![
                ("touched_at", Sort::Ascending),
                ("owner_kind", Sort::Ascending),
                ("owner", Sort::Ascending),
            ],
            options,
        },
    ]
}
