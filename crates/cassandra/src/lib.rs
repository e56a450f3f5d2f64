//! Carts, orders with their history, and sessions on Apache Cassandra: every query has its own table.
//!
//! Read [`link`] first: it is the one way to the cluster, and where consistency, retries and a lost data centre are
//! dealt with. The tables stand in [`schema`], as data; what a policy says about them is there, too. Each entity is a
//! module with its port.

mod carts;
mod cluster;
mod config;
pub mod cql;
mod link;
mod orders;
mod outbox;
mod partitions;
mod registers;
mod scans;
pub mod schema;
mod sessions;
mod stamps;
mod turns;

pub use self::{
    carts::{CartOptions, CassandraCarts, Gathered, OrderCovers, PackPlan, StoredRow, settled_us},
    cluster::{Cluster, ConnectError},
    config::ClusterConfig,
    link::{
        DcState, Lack, RequestLog, RequestSeen, Rules as DcLossRules, Span, Standing as DcStanding,
        StatementKind, Variants,
    },
    orders::{BucketPlan, CassandraOrderHistory, CassandraOrders, OrderOptions},
    partitions::{MeasureError, NodeStat, PartitionReport, PartitionStat, measure},
    sessions::CassandraSessions,
};
