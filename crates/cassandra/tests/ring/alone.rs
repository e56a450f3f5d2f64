//! What hurts nodes, or needs a ring of its own: nothing else runs beside it.

mod faults;
mod two_dcs;
