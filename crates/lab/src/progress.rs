use std::fmt;

/// What a start is about to do or has done; its text is for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Another process is fetching the server, or making the archive.
    WaitingForOther,
    Fetching {
        files: usize,
    },
    Fetched {
        jars: usize,
    },
    Archiving,
    Archived,
    Starting {
        nodes: usize,
    },
    Accepts {
        node: u16,
        ready: usize,
        nodes: usize,
    },
    Forming {
        nodes: usize,
    },
    Formed {
        nodes: usize,
    },
    /// What has come of MongoDB so far.
    Downloading {
        megabytes: u64,
    },
    Downloaded,
    StartingMongo {
        servers: usize,
    },
    MongoAccepts {
        who: String,
        ready: usize,
        servers: usize,
    },
    Electing,
    Elected {
        who: String,
    },
    AddingShards,
    ShardsAdded {
        shards: usize,
    },
}

impl Step {
    /// The step ends something, and its line may stay.
    pub fn is_done(&self) -> bool {
        use Step::*;
        match self {
            Fetched { .. } | Archived | Accepts { .. } | Formed { .. } => true,
            Downloaded | MongoAccepts { .. } | Elected { .. } | ShardsAdded { .. } => true,
            WaitingForOther | Fetching { .. } | Archiving | Starting { .. } | Forming { .. } => false,
            Downloading { .. } | StartingMongo { .. } | Electing | AddingShards => false,
        }
    }

    /// The step says how far the one before it is, which is too much for a log.
    pub fn is_detail(&self) -> bool {
        match self {
            Step::Fetching { files } => *files > 0,
            Step::Downloading { megabytes } => *megabytes > 0,
            _ => false,
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::WaitingForOther => write!(f, "waiting for another process that prepares the server"),
            Step::Fetching { files: 0 } => write!(f, "fetching Apache Cassandra, once (67 MB)"),
            Step::Fetching { files } => write!(f, "fetching Apache Cassandra, once (67 MB): {files} files"),
            Step::Fetched { jars } => write!(f, "fetched Apache Cassandra: {jars} jars"),
            Step::Archiving => write!(f, "making an archive of its classes, once (about 20 s)"),
            Step::Archived => write!(f, "made the archive of its classes"),
            Step::Starting { nodes: 1 } => write!(f, "starting 1 node"),
            Step::Starting { nodes } => write!(f, "starting {nodes} nodes"),
            Step::Accepts { node, ready, nodes } => {
                write!(f, "node {node} accepts connections ({ready} of {nodes})")
            }
            Step::Forming { nodes: 1 } => write!(f, "waiting until the node sees itself up"),
            Step::Forming { nodes } => write!(f, "waiting until each of {nodes} nodes sees all of them up"),
            Step::Formed { nodes: 1 } => write!(f, "the node is up"),
            Step::Formed { nodes } => write!(f, "all {nodes} nodes see each other up, with one schema"),
            Step::Downloading { megabytes: 0 } => write!(f, "fetching MongoDB, once (42 MB)"),
            Step::Downloading { megabytes } => write!(f, "fetching MongoDB, once (42 MB): {megabytes} MB"),
            Step::Downloaded => write!(f, "fetched MongoDB"),
            Step::StartingMongo { servers: 1 } => write!(f, "starting 1 mongod"),
            Step::StartingMongo { servers } => write!(f, "starting {servers} mongods"),
            Step::MongoAccepts { who, ready, servers } => {
                write!(f, "{who} accepts connections ({ready} of {servers})")
            }
            Step::Electing => write!(f, "waiting until a primary is elected and the others have its data"),
            Step::AddingShards => write!(f, "making a cluster of them"),
            Step::ShardsAdded { shards: 1 } => write!(f, "the cluster has 1 shard"),
            Step::ShardsAdded { shards } => write!(f, "the cluster has {shards} shards"),
            Step::Elected { who } => write!(f, "{who} is primary"),
        }
    }
}
