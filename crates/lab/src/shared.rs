//! Servers that all tests of a run share: started once, attached to by every test binary.
//!
//! Whoever runs several test binaries holds a [`SharedServers`] and sets its [variables](SharedServers::variables) for
//! them. A test asks for [`Ring::shared`] or [`Mongo::shared`]: where the variables are set it attaches to what runs,
//! elsewhere it gets servers of its own, which end with it.

use std::{path::Path, thread};

use crate::{LabError, Mongo, MongoSpec, Ring, RingSpec, Step};

/// The directory of the ring that is shared.
pub const RING_VARIABLE: &str = "MOBIMIR_TEST_RING";
/// The directory of the replica set that is shared.
pub const MONGO_VARIABLE: &str = "MOBIMIR_TEST_MONGO";

/// A ring of three nodes and a replica set of three members. They end with this value, or with its process.
#[derive(Debug)]
pub struct SharedServers {
    ring: Ring,
    mongo: Mongo,
}

impl SharedServers {
    /// Starts both at the same time.
    pub fn start(progress: &(dyn Fn(Step) + Sync)) -> Result<Self, LabError> {
        thread::scope(|scope| {
            let ring = scope.spawn(|| Ring::ephemeral_with(&ring_spec(), &mut |step| progress(step)));
            let mongo = Mongo::ephemeral_with(&mongo_spec(), &mut |step| progress(step));
            let ring = ring.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            Ok(Self { ring: ring?, mongo: mongo? })
        })
    }

    /// What tells test binaries to attach.
    pub fn variables(&self) -> [(&'static str, &Path); 2] {
        [(RING_VARIABLE, self.ring.dir()), (MONGO_VARIABLE, self.mongo.dir())]
    }
}

impl Ring {
    /// The ring that all tests of this run share, or one like it that ends with this value. A process has one such
    /// value: another would not know of nodes that this one has started again.
    pub fn shared() -> Result<Self, LabError> {
        let Some(dir) = std::env::var_os(RING_VARIABLE) else { return Self::ephemeral(&ring_spec()) };
        let dir = Path::new(&dir);
        Self::load(dir)?.ok_or_else(|| LabError::NotShared { variable: RING_VARIABLE, dir: dir.to_owned() })
    }
}

impl Mongo {
    /// The replica set that all tests of this run share, or one like it that ends with this value. A process has one such
    /// value: another would not know of members that this one has started again.
    pub fn shared() -> Result<Self, LabError> {
        let Some(dir) = std::env::var_os(MONGO_VARIABLE) else {
            return Self::ephemeral(&mongo_spec());
        };
        let dir = Path::new(&dir);
        Self::load(dir)?.ok_or_else(|| LabError::NotShared { variable: MONGO_VARIABLE, dir: dir.to_owned() })
    }
}

fn ring_spec() -> RingSpec {
    RingSpec::for_tests(3).patient().with_quick_tables()
}

fn mongo_spec() -> MongoSpec {
    MongoSpec::for_tests(3)
}
