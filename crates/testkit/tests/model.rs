//! The model passes the suite that it is the oracle of.

use std::sync::Arc;

use mobimir_core::notes::NoteStore;
use mobimir_testkit::{conformance_tests, model::ModelStore};

conformance_tests!(|| async { ModelStore::stores() });
conformance_tests!(|| async { ModelStore::order_history() }; order_history);
conformance_tests!(|| async { ModelStore::movables() }; moving_orders, moving_carts, moving_sessions);
conformance_tests!(|| async { ModelStore::default().movable_history() }; moving_order_history);
conformance_tests!(|| async { Arc::new(ModelStore::default()) as Arc<dyn NoteStore> }; notes);
