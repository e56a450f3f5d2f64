//! Load as a crowd of shoppers makes it, and whether the shop kept its promises under it.
//!
//! - [`profile`]: what the crowd does, as a file;
//! - `schedule`: when requests are due, which follows from the rate and not from the answers;
//! - `crowd`: who asks for what, and what they know of what the shop has done for them;
//! - [`wire`]: many connections on one thread;
//! - `due`: what is to be sent next; `run`: all of that at once, and `record`: what came of it;
//! - `rules`: what every answer is checked against, by name;
//! - `oracle`: everything that was acknowledged is looked for;
//! - [`report`]: the same for people and for programs, and two of them compared.

mod alias;
mod asking;
mod crowd;
mod due;
pub mod findmax;
mod goods;
pub mod machine;
mod operation;
mod oracle;
pub mod profile;
mod record;
mod replay;
pub mod report;
mod request;
mod rules;
mod run;
mod schedule;
mod shop;
#[cfg(test)]
mod test_server;
mod visit;
pub mod wire;

pub use self::{
    operation::Operation,
    oracle::{Check, Findings},
    record::{Latency, Limits, OperationResult, Second},
    replay::Trade,
    request::Request,
    rules::{AnswerCheck, Example},
    shop::{Progress, ShopError, Target},
    visit::{Stretch, Visit, VisitSpec},
};
