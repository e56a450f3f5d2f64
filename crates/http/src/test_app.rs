//! A shop without servers or a disk, for the tests of this crate.

use std::sync::Arc;

use mobimir_core::{ports::Stores, time::SystemClock};
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
    state_over(ModelStore::stores(), limits)
}

pub(crate) fn state_over(stores: Stores, limits: Limits) -> AppState {
    let shop = Shop::new(stores, Arc::new(SystemClock), ShopSettings::default());
    AppState::new(shop, &[], limits, Box::new(Silent), serde_json::Value::Null)
}

pub(crate) fn app(limits: Limits) -> App {
    crate::app(state(limits))
}
