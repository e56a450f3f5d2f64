//! What hurts members of the replica set, or holds them back: nothing else runs beside it.

mod failover;
mod reads;
