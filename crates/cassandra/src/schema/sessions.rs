//! Sessions: by id, by user, by refresh token, and those whose guest's cart may still have to be merged.

use mobimir_core::policy::{CassandraSettings, Policy};

use super::{Sort, Table, TableOptions, columns, outbox};

pub(super) fn tables(settings: &CassandraSettings, policy: &Policy) -> Vec<Table> {
    let ttl_ms = policy.session_ttl_ms().max(policy.guest_session_ttl_ms());
    let options = TableOptions::of(settings, ttl_ms);
    // With buckets some partitions share all sessions; without, each session has its own and the bucket says nothing.
    let shared = settings.buckets.is_some_and(|buckets| buckets > 0);
    let [outbox, outbox_slots] = outbox(&options);
    vec![
        outbox,
        outbox_slots,
        Table {
            name: "sessions",
            comment: "a session by its id; after its insert changed by decision only",
            columns: columns(&[
                ("bucket", "int"),
                ("session_id", "uuid"),
                ("user_id", "uuid"),
                ("token_hash", "blob"),
                ("state", "text"),
                ("state_at", "timestamp"),
                ("closed_into", "uuid"),
                ("merged", "boolean"),
                ("ip_address", "inet"),
                ("user_agent", "text"),
                ("device", "text"),
                ("created_at", "timestamp"),
                ("last_active", "timestamp"),
                ("expires_at", "timestamp"),
                ("version", "bigint"),
                ("changed_by", "uuid"),
            ]),
            partition_key: if shared { vec!["bucket"] } else { vec!["bucket", "session_id"] },
            clustering: if shared { vec![("session_id", Sort::Ascending)] } else { Vec::new() },
            options: options.clone(),
        },
        Table {
            name: "sessions_by_user",
            comment: "the sessions of a user, newest first: their ids only, so that no state can be stale",
            columns: columns(&[("user_id", "uuid"), ("created_at", "timestamp"), ("session_id", "uuid")]),
            partition_key: vec!["user_id"],
            clustering: vec![("created_at", Sort::Descending), ("session_id", Sort::Ascending)],
            options: options.clone(),
        },
        Table {
            name: "refresh_tokens",
            comment: "a refresh token by its hash; used up by decision",
            columns: columns(&[
                ("hash", "blob"),
                ("session_id", "uuid"),
                ("expires_at", "timestamp"),
                ("used_by", "uuid"),
            ]),
            partition_key: vec!["hash"],
            clustering: Vec::new(),
            options: options.clone(),
        },
        Table {
            name: "sessions_unmerged",
            comment: "guests who logged in and whose cart may still have to be merged, by ten minutes; a superset",
            columns: columns(&[
                ("slot", "bigint"),
                ("closed_at", "timestamp"),
                ("session_id", "uuid"),
                ("version", "bigint"),
            ]),
            partition_key: vec!["slot"],
            clustering: vec![
                ("closed_at", Sort::Ascending),
                ("session_id", Sort::Ascending),
                ("version", Sort::Ascending),
            ],
            options,
        },
    ]
}
