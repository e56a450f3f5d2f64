//! What the tests share: the program as a process, clients for it, a load balancer, and a browser.

pub(crate) mod browser;
pub(crate) mod client;
pub(crate) mod instances;
pub(crate) mod liar;
pub(crate) mod nginx;
pub(crate) mod process;
pub(crate) mod servers;
pub(crate) mod shop;

pub(crate) use client::{Answer, Client};
pub(crate) use instances::{Instances, with_shop};
pub(crate) use process::Process;
pub(crate) use shop::Customer;
