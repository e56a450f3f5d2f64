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
}

impl Step {
    /// The step ends something, and its line may stay.
    pub fn is_done(&self) -> bool {
        matches!(self, Step::Fetched { .. } | Step::Archived | Step::Accepts { .. } | Step::Formed { .. })
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
        }
    }
}
