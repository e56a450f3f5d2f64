//! The bare driver on the ring, and values as the tables have them.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail};
use mobimir_core::{cart::Owner, policy::Level, time::Timestamp};
use mobimir_lab::Ring;
use scylla::{
    client::{
        execution_profile::ExecutionProfile, session::Session as Driver, session_builder::SessionBuilder,
    },
    policies::load_balancing::DefaultPolicy,
    statement::Consistency,
    value::CqlTimestamp,
};
use uuid::Uuid;

use super::ring;

pub(crate) async fn connect(ring: &Ring) -> Result<Driver> {
    let balancing = DefaultPolicy::builder()
        .prefer_datacenter(ring::DC.to_owned())
        .token_aware(true)
        .permit_dc_failover(true)
        .build();
    let profile = ExecutionProfile::builder().load_balancing_policy(balancing).build();
    let driver = SessionBuilder::new()
        .known_nodes(ring.contact_points())
        .default_execution_profile_handle(profile.into_handle())
        .tcp_nodelay(true)
        .build()
        .await?;
    Ok(driver)
}

/// The texts of all statements that were prepared on a node so far.
pub(crate) async fn prepared_statements(driver: &Driver) -> Result<BTreeSet<String>> {
    let rows = driver.query_unpaged("SELECT query_string FROM system.prepared_statements", ()).await?;
    let rows = rows.into_rows_result()?;
    let texts = rows.rows::<(String,)>()?.map(|row| Ok(row?.0));
    texts.collect()
}

pub(crate) fn consistency(level: Level) -> Result<Consistency> {
    Ok(match level {
        Level::LocalQuorum => Consistency::LocalQuorum,
        Level::EachQuorum => Consistency::EachQuorum,
        other => bail!("expected LOCAL_QUORUM or EACH_QUORUM, got {other:?}"),
    })
}

pub(crate) fn key(owner: Owner) -> (i8, Uuid) {
    match owner {
        Owner::User(id) => (0, id.0),
        Owner::Guest(id) => (1, id.0),
    }
}

pub(crate) fn at(time: Timestamp) -> CqlTimestamp {
    CqlTimestamp(time.as_millis())
}

pub(crate) fn now_us(now: Timestamp) -> i64 {
    now.as_millis() * 1_000
}

/// Months since the year 0.
pub(crate) fn month_of(time: Timestamp) -> Result<i32> {
    let text = time.to_string();
    let mut parts = text.split('-').map(str::parse::<i32>);
    let mut next = || parts.next().context("a time has a year and a month");
    Ok(next()?? * 12 + next()?? - 1)
}
