//! Carts, orders and sessions on a ring of Cassandra: what the ports add to the bare driver.
//!
//! - [`values`]: what is written and read, the same on both sides;
//! - [`port`]: one side, the ports of the shop;
//! - [`bare`]: the other, the driver with the same statements prepared by hand;
//! - [`requests`]: how many requests an operation takes.

mod bare;
mod port;
mod requests;
mod ring;
mod values;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use mobimir_core::{
    cart::{CartChange, Owner},
    id::{OrderId, SessionId},
    order::Order,
    session::{RefreshToken, Session},
    time::{Clock, SystemClock, Timestamp},
};
use mobimir_lab::{Profile, Ring, RingSpec};
use rustix::time::{ClockId, clock_gettime};
use tokio::{runtime::Builder, task::JoinSet};

use self::{bare::Bare, port::Port, values::Shop};
use crate::{
    figures::{Figures, median, show_rounds},
    progress,
};

/// Processor time of the client, to that of the bare driver.
const CPU_BAR: f64 = 1.3;
const THROUGHPUT_BAR: f64 = 0.85;
const NODES: u16 = 3;
const WORKERS: usize = 2;
const CLIENTS: usize = 32;
const CARTS_PER_CLIENT: usize = 8;
const CHANGES_PER_CART: usize = 8;

/// One way to do what the shop does.
trait Side: Send + Sync + 'static {
    fn add_to_cart(&self, change: CartChange, now: Timestamp) -> impl Future<Output = Result<()>> + Send;
    /// Says how many changes it has.
    fn read_cart(&self, owner: Owner, now: Timestamp) -> impl Future<Output = Result<usize>> + Send;
    fn insert_order(&self, order: Order) -> impl Future<Output = Result<()>> + Send;
    /// Says whether it is there; so does the next.
    fn get_order(&self, id: OrderId) -> impl Future<Output = Result<bool>> + Send;
    fn get_session(&self, id: SessionId, now: Timestamp) -> impl Future<Output = Result<bool>> + Send;
    fn insert_session(
        &self,
        session: Session,
        refresh: RefreshToken,
    ) -> impl Future<Output = Result<()>> + Send;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum Operation {
    CartAdd,
    CartRead,
    OrderInsert,
    OrderGet,
    SessionGet,
    SessionInsert,
}

/// How long to measure.
#[derive(Clone, Copy)]
struct Pace {
    rounds: usize,
    round: Duration,
    /// Until the servers have compiled what they run.
    warm_up: Duration,
    /// Of the warm-up, before it goes on with the other side.
    turn: Duration,
}

/// What the clients of one side did in one round.
struct Done {
    per_second: f64,
    cpu_us: f64,
}

impl Operation {
    const ALL: [Self; 6] = [
        Self::CartAdd,
        Self::CartRead,
        Self::OrderInsert,
        Self::OrderGet,
        Self::SessionGet,
        Self::SessionInsert,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::CartAdd => "cart_add",
            Self::CartRead => "cart_read",
            Self::OrderInsert => "order_insert",
            Self::OrderGet => "order_get",
            Self::SessionGet => "session_get",
            Self::SessionInsert => "session_insert",
        }
    }

    /// The clients number themselves what they do, one after the other, through the whole shop.
    async fn carry_out(self, side: &impl Side, shop: &Shop, carts: &[Owner], number: usize) -> Result<()> {
        let now = SystemClock.now();
        match self {
            Self::CartAdd => {
                let change = values::change(carts[number % carts.len()], number, now);
                side.add_to_cart(change, now).await
            }
            Self::CartRead => {
                let changes = side.read_cart(shop.carts[number % shop.carts.len()], now).await?;
                ensure!(changes == CHANGES_PER_CART, "a cart of {CHANGES_PER_CART} changes has {changes}");
                Ok(())
            }
            Self::OrderInsert => side.insert_order(shop.order(number, now)).await,
            Self::OrderGet => {
                ensure!(
                    side.get_order(shop.orders[number % shop.orders.len()]).await?,
                    "an order is not there"
                );
                Ok(())
            }
            Self::SessionGet => {
                let id = shop.sessions[number % shop.sessions.len()];
                ensure!(side.get_session(id, now).await?, "a session is not there");
                Ok(())
            }
            Self::SessionInsert => {
                let (session, refresh) = shop.session(number, now);
                side.insert_session(session, refresh).await
            }
        }
    }
}

impl Pace {
    fn of(quick: bool) -> Self {
        let ms = Duration::from_millis;
        match quick {
            false => Self { rounds: 9, round: ms(3_000), warm_up: ms(180_000), turn: ms(3_000) },
            true => Self { rounds: 3, round: ms(500), warm_up: ms(12_000), turn: ms(500) },
        }
    }
}

pub(crate) fn measure(quick: bool, wanted: &[Operation], figures: &mut Figures) -> Result<()> {
    let wanted = if wanted.is_empty() { &Operation::ALL } else { wanted };
    let pace = Pace::of(quick);
    progress("starting a ring of three nodes");
    let ring = Ring::ephemeral(&RingSpec::new(&[NODES], Profile::Bench)).context("no ring of Cassandra")?;
    let runtime = Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build()?;
    runtime.block_on(compare(&ring, wanted, pace, figures))
}

async fn compare(ring: &Ring, wanted: &[Operation], pace: Pace, figures: &mut Figures) -> Result<()> {
    progress("making the tables");
    let policy = ring::policy()?;
    ring::create(ring, &policy).await?;
    let port = Arc::new(Port::connect(ring, &policy, None).await?);
    let bare = Arc::new(Bare::connect(ring, &policy).await?);

    progress("making carts, orders and sessions");
    let shop = Arc::new(Shop::fill(port.as_ref()).await?);
    values::check_agreement(port.as_ref(), bare.as_ref(), &shop).await?;

    progress(&format!("warming up, {} s", pace.warm_up.as_secs()));
    let started = Instant::now();
    while started.elapsed() < pace.warm_up {
        for &operation in wanted {
            round(&port, &shop, operation, pace.turn).await?;
            round(&bare, &shop, operation, pace.turn).await?;
        }
    }
    for &operation in wanted {
        progress(operation.name());
        in_turns(&port, &bare, &shop, operation, pace, figures).await?;
    }
    drop((port, bare));
    requests::count(ring, &policy, &shop, wanted, figures).await
}

async fn in_turns(
    port: &Arc<Port>,
    bare: &Arc<Bare>,
    shop: &Arc<Shop>,
    operation: Operation,
    pace: Pace,
    figures: &mut Figures,
) -> Result<()> {
    let (mut ports, mut bares) = (Vec::new(), Vec::new());
    for number in 0..pace.rounds {
        // Whoever comes second finds a ring that has just been busy.
        if number % 2 == 0 {
            ports.push(round(port, shop, operation, pace.round).await?);
            bares.push(round(bare, shop, operation, pace.round).await?);
        } else {
            bares.push(round(bare, shop, operation, pace.round).await?);
            ports.push(round(port, shop, operation, pace.round).await?);
        }
    }
    let name = format!("cassandra_{}", operation.name());
    let (cpu_name, throughput_name) = (format!("{name}_cpu"), format!("{name}_throughput"));
    let ratios = |of: fn(&Done) -> f64| -> Vec<f64> {
        ports.iter().zip(&bares).map(|(port, bare)| of(port) / of(bare)).collect()
    };
    let (cpu, throughput) = (ratios(|done| done.cpu_us), ratios(|done| done.per_second));
    show_rounds(&cpu_name, &cpu);
    show_rounds(&throughput_name, &throughput);
    figures.at_most(&cpu_name, median(&cpu), "x", CPU_BAR);
    figures.at_least(&throughput_name, median(&throughput), "x", THROUGHPUT_BAR);
    for (side, done) in [("port", &ports), ("bare", &bares)] {
        let middle = |of: fn(&Done) -> f64| median(&done.iter().map(of).collect::<Vec<_>>());
        figures.info(&format!("{name}_{side}_rps"), middle(|done| done.per_second), "operations/s");
        figures.info(&format!("{name}_{side}_cpu_us"), middle(|done| done.cpu_us), "us/operation");
    }
    Ok(())
}

/// All clients at once; each does one thing after the other.
async fn round<S: Side>(
    side: &Arc<S>,
    shop: &Arc<Shop>,
    operation: Operation,
    time: Duration,
) -> Result<Done> {
    // New ones each time, so that they have the same length on both sides and were listed a moment ago.
    let carts: Arc<[Owner]> = match operation {
        Operation::CartAdd => values::started_carts(side.as_ref()).await?.into(),
        _ => Arc::default(),
    };
    let (started, cpu_before) = (Instant::now(), cpu_time());
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        let (side, shop, carts) = (side.clone(), shop.clone(), carts.clone());
        clients.spawn(async move {
            let mut count = 0;
            while started.elapsed() < time {
                operation.carry_out(side.as_ref(), &shop, &carts, client + count * CLIENTS).await?;
                count += 1;
            }
            anyhow::Ok(count)
        });
    }
    let mut done = 0;
    while let Some(count) = clients.join_next().await {
        done += count??;
    }
    let (took, cpu) = (started.elapsed(), cpu_time().saturating_sub(cpu_before));
    ensure!(done > 0, "nothing was done in {time:?}");
    Ok(Done { per_second: done as f64 / took.as_secs_f64(), cpu_us: cpu.as_secs_f64() * 1e6 / done as f64 })
}

/// What all threads of this process have spent on a processor, in the program and in the kernel.
fn cpu_time() -> Duration {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(spent.tv_sec.unsigned_abs(), u32::try_from(spent.tv_nsec).unwrap_or_default())
}
