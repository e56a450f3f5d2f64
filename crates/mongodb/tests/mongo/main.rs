//! The stores on real replica sets of MongoDB, which this binary starts and ends.

mod reads;
