//! A build without the driver of Cassandra: nobody connects, so nothing is ever asked of a connection.

use anyhow::Result;
use mobimir_core::{
    moving::{CartSide, HistorySide, OrderSide, SessionSide},
    policy::Policy,
};
use mobimir_shop::BucketCount;

use crate::{config::CassandraConfig, not_built_in};

/// There is no connection to a cluster.
#[derive(Clone)]
pub(crate) enum Cassandra {}

impl Cassandra {
    pub(crate) async fn connect(_config: &CassandraConfig, policy: &Policy) -> Result<Self> {
        Err(not_built_in::store("Cassandra", policy))
    }

    pub(crate) fn trouble(&self) -> Option<String> {
        match *self {}
    }

    pub(crate) fn metrics(&self) -> String {
        match *self {}
    }

    pub(crate) fn overloads(&self) -> u64 {
        match *self {}
    }

    pub(crate) async fn schema_differences(&self, _policy: &Policy, _prefix: &str) -> Result<usize> {
        match *self {}
    }

    pub(crate) async fn carts(&self, _policy: &Policy) -> Result<CartSide> {
        match *self {}
    }

    pub(crate) async fn orders(&self, _policy: &Policy) -> Result<(OrderSide, BucketCount)> {
        match *self {}
    }

    pub(crate) async fn sessions(&self, _policy: &Policy) -> Result<SessionSide> {
        match *self {}
    }

    pub(crate) async fn order_history(&self, _policy: &Policy) -> Result<HistorySide> {
        match *self {}
    }
}
