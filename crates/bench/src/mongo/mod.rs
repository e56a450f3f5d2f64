//! Products, carts, orders and sessions on MongoDB: what the ports add to the bare driver, and what stripes give.
//!
//! - [`catalogue`]: the products that are read and sold;
//! - [`port`]: one side, the ports of the shop;
//! - [`bare`]: the other, the driver with the same requests ([`requests`]) and documents ([`documents`]) by hand;
//! - [`same`]: whether the server sees no difference between them;
//! - [`stripes`]: sales of one hot product.

mod bare;
mod catalogue;
mod documents;
mod port;
mod requests;
mod same;
mod stripes;

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result};
use mobimir_lab::{Mongo, MongoSpec};
use tokio::runtime::Builder;

use self::{bare::Bare, port::Port};
use crate::{
    figures::Figures,
    progress,
    sides::{self, Operation, Pace, Shop, Sides, WORKERS},
};

const DATABASE: &str = "bench";
/// One, so that two cores show what the client costs and not what copies do.
const MEMBERS: u16 = 1;
/// How often the server looks for what has expired: its own setting, not that of the tests.
pub(crate) const EXPIRY_EVERY_S: u32 = 60;

fn pace(quick: bool) -> Pace {
    let ms = Duration::from_millis;
    match quick {
        false => Pace { rounds: 9, round: ms(1_500), warm_up: ms(10_000), turn: ms(300) },
        true => Pace { rounds: 3, round: ms(300), warm_up: ms(1_000), turn: ms(100) },
    }
}

pub(crate) fn measure(quick: bool, wanted: &[Operation], figures: &mut Figures) -> Result<()> {
    progress("starting a replica set of one member");
    let spec = MongoSpec::for_tests(MEMBERS).with("ttlMonitorSleepSecs", EXPIRY_EVERY_S);
    let mongo = Mongo::ephemeral(&spec).context("no replica set of MongoDB")?;
    let runtime = Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build()?;
    runtime.block_on(compare(&mongo, wanted, pace(quick), figures))
}

async fn compare(mongo: &Mongo, wanted: &[Operation], pace: Pace, figures: &mut Figures) -> Result<()> {
    let port = Arc::new(Port::connect(mongo).await?);
    let bare = Arc::new(Bare::connect(mongo).await?);

    progress("making products, carts, orders and sessions");
    let mut shop = Shop::fill(port.as_ref()).await?;
    catalogue::fill(&port.products, &mut shop).await?;
    let Port { carts, orders, sessions, .. } = port.as_ref();
    sides::check_agreement(carts, orders, sessions, bare.as_ref(), &shop).await?;
    catalogue::check_agreement(&port, &bare, &shop).await?;
    same::check(mongo, port.as_ref(), bare.as_ref(), &shop).await?;

    let sides = Sides { store: "mongo", port: port.clone(), bare, shop: Arc::new(shop), pace };
    let all = wanted.is_empty();
    let wanted = if all { &Operation::ALL } else { wanted };
    sides.warm_up(wanted).await?;
    for &operation in wanted {
        sides.compare(operation, figures).await?;
    }
    if all {
        stripes::measure(&port, &sides.shop, pace, figures).await?;
    }
    Ok(())
}
