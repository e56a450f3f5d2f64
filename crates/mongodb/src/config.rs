//! How to reach a deployment. What is decided about the data stands in the policy, not here.

use std::time::Duration;

#[derive(Clone, Debug)]
pub struct MongoConfig {
    /// `mongodb://host:port,host:port/?replicaSet=name`, with user and password if it needs them.
    pub uri: String,
    pub database: String,
    /// How long to look for a server that can take a request.
    pub connect_timeout: Duration,
    /// How long one request may take in all.
    pub timeout: Duration,
}

impl Default for MongoConfig {
    fn default() -> Self {
        Self {
            uri: "mongodb://127.0.0.1:27017".to_owned(),
            database: "mobimir".to_owned(),
            connect_timeout: Duration::from_secs(5),
            timeout: Duration::from_secs(5),
        }
    }
}
