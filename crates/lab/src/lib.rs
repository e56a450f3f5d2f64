//! Real servers on loopback: rings of Apache Cassandra and replica sets of MongoDB, for people, tests and benchmarks.
//!
//! A test takes a ring of its own, on a subnet of its own, which ends with the test however that ends:
//!
//! ```no_run
//! use mobimir_lab::{Ring, RingSpec};
//!
//! let ring = Ring::ephemeral(&RingSpec::for_tests(3))?;
//! println!("{:?}", ring.contact_points());
//! ring.kill(2)?;
//! ring.start_node(2)?;
//! # Ok::<(), mobimir_lab::LabError>(())
//! ```
//!
//! A replica set is as easy to have and to hurt:
//!
//! ```no_run
//! use mobimir_lab::{Mongo, MongoSpec};
//!
//! let mongo = Mongo::ephemeral(&MongoSpec::for_tests(3))?;
//! println!("{}", mongo.uri());
//! mongo.kill(mongo.primary()?)?;
//! mongo.wait_primary()?;
//! # Ok::<(), mobimir_lab::LabError>(())
//! ```
//!
//! A person has one of each in a directory that outlives the program: [`Lab::open`], then [`Lab::start`] and
//! [`Lab::start_mongo`].

mod error;
mod install;
mod keeper;
mod lab;
mod look;
mod mongo;
mod namespaces;
mod net;
mod node;
mod probe;
mod process;
mod progress;
mod proxy;
mod ring;
mod settings;
mod shared;
mod spec;
mod state;
mod tokens;

pub use error::LabError;
pub use install::{CASSANDRA_VERSION, Install, cache_dir};
pub use lab::{Lab, NodeState, NodeStatus, Outcome, Up};
pub use look::{HintCounters, Seen, Sight};
pub use mongo::{
    MONGODB_VERSION, MemberSight, MemberSpec, MemberStatus, Mongo, MongoCluster, MongoShape, MongoShards,
    MongoSpec, ShardsSpec,
};
pub use namespaces::{Host, Namespaces, Weather, namespaces_are_left};
pub use net::Net;
pub use node::Node;
pub use probe::Reading;
pub use progress::Step;
pub use proxy::{Flow, Path, Proxy, Rewrite, StoreProxies};
pub use ring::Ring;
pub use shared::{MONGO_VARIABLE, RING_VARIABLE, SharedServers};
pub use spec::{DataCentre, Profile, RingSpec};
