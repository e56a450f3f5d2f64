//! Carts, orders and sessions on a ring of Cassandra: what the ports add to the bare driver.
//!
//! - [`port`]: one side, the ports of the shop;
//! - [`bare`]: the other, the driver with the same statements prepared by hand;
//! - [`driver`]: that driver on the ring, and values as the tables have them;
//! - [`requests`]: how many requests an operation takes.

mod bare;
pub(crate) mod driver;
mod port;
mod requests;
pub(crate) mod ring;

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use mobimir_core::policy::Policy;
use mobimir_lab::{Profile, Ring, RingSpec};
use tokio::runtime::Builder;

use self::bare::Bare;
pub(crate) use self::port::Port;
use crate::{
    figures::Figures,
    progress,
    sides::{self, Operation, Pace, Shop, Sides, WORKERS},
};

const NODES: u16 = 3;
/// Of the ring, as the program takes them.
pub(crate) const DATA_CENTRES: &str = "dc1=3";

fn pace(quick: bool) -> Pace {
    let ms = Duration::from_millis;
    match quick {
        // Until the servers have compiled what they run.
        false => Pace { rounds: 9, round: ms(3_000), warm_up: ms(180_000), turn: ms(3_000) },
        true => Pace { rounds: 3, round: ms(500), warm_up: ms(12_000), turn: ms(500) },
    }
}

pub(crate) fn measure(quick: bool, wanted: &[Operation], figures: &mut Figures) -> Result<()> {
    let mut wanted = wanted.to_vec();
    if wanted.is_empty() {
        wanted.extend(Operation::ALL.iter().filter(|operation| !operation.is_of_products()));
    }
    ensure!(!wanted.iter().any(|operation| operation.is_of_products()), "there are no products in Cassandra");
    let ring = start_ring()?;
    let policy = ring::policy()?;
    let runtime = Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build()?;
    let shop = runtime.block_on(compare(&ring, &policy, &wanted, pace(quick), figures))?;
    drop(runtime);
    requests::count(&ring, &policy, &shop, &wanted, figures)
}

pub(crate) fn start_ring() -> Result<Ring> {
    progress("starting a ring of three nodes");
    Ring::ephemeral(&RingSpec::new(&[NODES], Profile::Bench)).context("no ring of Cassandra")
}

/// Says what there is in the end.
async fn compare(
    ring: &Ring,
    policy: &Policy,
    wanted: &[Operation],
    pace: Pace,
    figures: &mut Figures,
) -> Result<Arc<Shop>> {
    progress("making the tables");
    ring::create(ring, policy).await?;
    let port = Arc::new(Port::connect(ring, policy, None).await?);
    let bare = Arc::new(Bare::connect(ring, policy).await?);

    progress("making carts, orders and sessions");
    let shop = Arc::new(Shop::fill(port.as_ref()).await?);
    let Port { carts, orders, sessions } = port.as_ref();
    sides::check_agreement(carts, orders, sessions, bare.as_ref(), &shop).await?;

    let sides = Sides { store: "cassandra", port, bare, shop: shop.clone(), pace };
    sides.warm_up(wanted).await?;
    for &operation in wanted {
        sides.compare(operation, figures).await?;
    }
    Ok(shop)
}
