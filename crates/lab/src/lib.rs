//! Real servers on loopback: rings of Apache Cassandra for people, tests and benchmarks.
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
//! A person has one in a directory that outlives the program: [`Lab::open`], then [`Lab::start`].

mod error;
mod install;
mod keeper;
mod lab;
mod look;
mod mongo;
mod net;
mod node;
mod probe;
mod process;
mod progress;
mod ring;
mod settings;
mod spec;
mod state;
mod tokens;

pub use error::LabError;
pub use install::{CASSANDRA_VERSION, Install, cache_dir};
pub use lab::{Lab, NodeState, NodeStatus, Outcome};
pub use look::{HintCounters, Seen, Sight};
pub use mongo::{MONGODB_VERSION, MemberSpec, Mongo, MongoSpec};
pub use net::Net;
pub use node::Node;
pub use probe::Reading;
pub use progress::Step;
pub use ring::Ring;
pub use spec::{DataCentre, Profile, RingSpec};
