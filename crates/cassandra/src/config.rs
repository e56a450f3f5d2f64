//! How to reach a cluster. What is decided about the data stands in the policy, not here.

use std::{sync::Arc, time::Duration};

use crate::link::RequestLog;

#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// `host:port`, of some nodes; the others are found.
    pub contact_points: Vec<String>,
    /// The data centre next to this program. Without it the policy's home data centre.
    pub local_dc: Option<String>,
    pub user: Option<String>,
    pub password: Option<String>,
    /// Keyspaces are called `<prefix>_carts`, `<prefix>_orders` and so on.
    pub keyspace_prefix: String,
    pub connect_timeout: Duration,
    /// Writes down every request. For tests.
    pub log: Option<Arc<RequestLog>>,
}

impl Default for ClusterConfig {
    fn default() -> Self {
        Self {
            contact_points: vec!["127.0.0.1:9042".to_owned()],
            local_dc: None,
            user: None,
            password: None,
            keyspace_prefix: "mobimir".to_owned(),
            connect_timeout: Duration::from_secs(5),
            log: None,
        }
    }
}
