//! A shop without servers or a disk, for the tests of this crate.

use std::sync::Arc;

use mobimir_core::time::SystemClock;
use mobimir_shop::{Shop, ShopSettings};
use mobimir_testkit::model::ModelStore;

use crate::{
    App,
    limits::Limits,
    state::{AppState, Backend},
};

struct Silent;

impl Backend for Silent {
    fn trouble(&self) -> Option<String> {
        None
    }

    fn dump(&self, _: &mut dyn std::io::Write) -> std::io::Result<()> {
        Ok(())
    }
}

pub(crate) fn state(limits: Limits) -> AppState {
    let shop = Shop::new(ModelStore::stores(), Arc::new(SystemClock), ShopSettings::default());
    AppState::new(shop, &[], limits, Box::new(Silent), serde_json::Value::Null)
}

pub(crate) fn app(limits: Limits) -> App {
    crate::app(state(limits))
}
