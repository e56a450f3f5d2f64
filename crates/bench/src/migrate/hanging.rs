//! What shoppers feel when the store that their data is moving to hangs: every node of it stops and keeps its connections.
//!
//! They write and read through the port that the shop has, so whatever it asks the target for is in the figure.

use std::{sync::Arc, time::Duration};

use anyhow::{Result, ensure};
use mobimir_core::{
    id::OrderId,
    ports::{CartStore, OrderStore},
    time::{Clock, SystemClock},
};
use mobimir_lab::Ring;
use mobimir_migrate::phase::Phase;
use tokio::time::{Instant, sleep};

use super::{
    Pace,
    dual_write::{Writes, capacity},
    moved::Moved,
    shoppers::{Buying, Filling, Shopping, at_rate, ms},
    stores::Stores,
};
use crate::{
    figures::{Figures, quantile},
    progress,
};

const P99_BAR: f64 = 1.3;
/// Of it, writes are as many as reads.
const SHARE_OF_CAPACITY: f64 = 1.0 / 3.0;
/// In which everything written is copied to the target, and everything read is asked of it, too.
const HANGS_IN: Phase = Phase::Verify;
const HANG: Duration = Duration::from_secs(30);
const HANG_QUICK: Duration = Duration::from_secs(3);
const CAPACITY_LASTS: Duration = Duration::from_secs(5);
const ORDERS_READ: usize = 200;
const REST: Duration = Duration::from_secs(2);

/// The whole ring, stopped. Goes on when this is dropped, however that comes; a process that is ended takes its ring along.
struct Stopped<'a>(&'a Ring);

impl<'a> Stopped<'a> {
    fn all(ring: &'a Ring) -> Result<Self> {
        let stopped = Self(ring);
        ring.nodes().iter().try_for_each(|node| ring.pause(node.id))?;
        Ok(stopped)
    }
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        for node in self.0.nodes() {
            if let Err(error) = self.0.resume(node.id) {
                progress(&format!("node {} does not go on: {error}", node.id));
            }
        }
    }
}

/// Who writes and reads, and what there is to be read.
struct Shoppers {
    orders: Arc<dyn OrderStore>,
    carts: Arc<dyn CartStore>,
    buying: Buying,
    filling: Filling,
    placed: Vec<OrderId>,
}

/// Times in milliseconds.
#[derive(Default)]
struct Felt {
    writes: Vec<f64>,
    reads: Vec<f64>,
}

impl Shoppers {
    async fn new(orders: Arc<dyn OrderStore>, carts: Arc<dyn CartStore>) -> Result<Self> {
        let (buying, filling) = (Buying::begin(&orders).await?, Filling::begin(&carts).await?);
        let mut placed = Vec::new();
        for number in 0..ORDERS_READ {
            placed.push(buying.place(orders.clone(), number).await?);
        }
        Ok(Self { orders, carts, buying, filling, placed })
    }

    async fn shop(&self, rate: f64, lasts: Duration) -> Result<Felt> {
        let mut felt = Felt::default();
        for (is_write, ms) in at_rate(rate, lasts, |number, due| self.request(number, due)).await? {
            if is_write { felt.writes.push(ms) } else { felt.reads.push(ms) }
        }
        Ok(felt)
    }

    /// Places an order, reads one, adds to a cart, reads one, and so on. Returns whether it was a write, and
    /// how long it took from when it was due.
    fn request(
        &self,
        number: usize,
        due: Instant,
    ) -> impl Future<Output = Result<(bool, f64)>> + Send + use<> {
        let (orders, carts, owner) = (self.orders.clone(), self.carts.clone(), self.filling.cart(number));
        let (id, place) =
            (self.placed[number % self.placed.len()], self.buying.place(orders.clone(), number));
        let append = self.filling.go_on(carts.clone(), number, due);
        async move {
            match number % 4 {
                0 => _ = place.await?,
                1 => ensure!(orders.get(id).await?.is_some(), "an order is not there"),
                2 => _ = append.await?,
                _ => ensure!(carts.read(owner, SystemClock.now()).await?.is_some(), "a cart is not there"),
            }
            Ok((number.is_multiple_of(2), ms(due.elapsed())))
        }
    }
}

pub(super) async fn measure(stores: &Stores<'_>, pace: Pace, figures: &mut Figures) -> Result<()> {
    let lasts = if pace.quick { HANG_QUICK } else { HANG };
    let Stores { source, target, .. } = stores;
    let moved_orders = Moved::in_phase(HANGS_IN, source.orders.clone(), target.orders.clone())?;
    let moved_carts = Moved::in_phase(HANGS_IN, source.carts.clone(), target.carts.clone())?;
    let orders: Arc<dyn OrderStore> = moved_orders.port.clone();
    let writes = capacity::<_, _, Buying>(&moved_orders, &orders, CAPACITY_LASTS, Writes::Apart).await?
        * SHARE_OF_CAPACITY;
    let shoppers = Shoppers::new(orders, moved_carts.port.clone()).await?;
    let drained = async || tokio::try_join!(moved_orders.drained(), moved_carts.drained());
    drained().await?;

    let rate = 2.0 * writes;
    progress(&format!("shoppers, {rate:.0} requests/s, while nothing moves"));
    moved_orders.follow(Phase::Source);
    moved_carts.follow(Phase::Source);
    let alone = shoppers.shop(rate, lasts).await?;
    progress("and while what they write is mirrored, and what they read is asked of both");
    moved_orders.follow(HANGS_IN);
    moved_carts.follow(HANGS_IN);
    let before = shoppers.shop(rate, lasts).await?;
    progress(&format!("and while Cassandra hangs, {} s", lasts.as_secs()));
    let stopped = Stopped::all(&stores.servers.ring)?;
    let during = shoppers.shop(rate, lasts).await?;
    drop(stopped);
    sleep(REST).await;
    let (caught_up, _) = drained().await?;
    let shadow = moved_orders.port.shadow().current().map(|(_, counted)| counted).unwrap_or_default();
    ensure!(shadow.different == 0, "the stores answer differently: {:?}", shadow.samples);
    ensure!(shadow.alike > 0 && shadow.untold > 0, "the target was not asked: {shadow:?}");

    for (name, of) in
        [("write", (|felt| &felt.writes) as fn(&Felt) -> &Vec<f64>), ("read", |felt| &felt.reads)]
    {
        let p99 = |felt| quantile(of(felt), 0.99);
        let (alone, before, during) = (p99(&alone), p99(&before), p99(&during));
        figures.at_most(&format!("migrate_hanging_target_p99_{name}"), during / before, "x", P99_BAR);
        figures.info(&format!("migrate_hanging_target_p99_{name}_to_alone"), during / alone, "x");
        for (when, ms) in [("alone", alone), ("before", before), ("during", during)] {
            figures.info(&format!("migrate_hanging_target_{name}_p99_{when}"), ms, "ms");
        }
    }
    figures.info("migrate_hanging_target_rate", rate, "requests/s");
    figures.info("migrate_hanging_target_caught_up", (caught_up + REST).as_secs_f64(), "s");
    Ok(())
}
