//! Durable cart changes: through the port against the bare engine in this process, and through HTTP.

use std::{
    path::Path,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use mobimir_core::{
    cart::{CartChange, Effect, Owner},
    id::{self, ChangeId, ProductId, UserId},
    ports::CartStore,
    time::{Clock, SystemClock},
};
use mobimir_embedded::{EmbeddedStore, Engine, EngineStats, Options, Space};
use tokio::task::JoinSet;

use crate::{
    Pace, catalogue,
    figures::{Figures, median, show_rounds},
    load::{Load, Request, Until},
    operations, progress,
    scratch::Scratch,
    server::Server,
};

const CART_ADD_BAR: f64 = 0.6;
const CLIENTS: usize = 64;
const CARTS_PER_CLIENT: usize = 16;
/// Products that are put into a cart over and over.
const PRODUCTS_PER_CART: usize = 8;
const CART_TTL_MS: i64 = 30 * 86_400_000;
/// A table's byte that no table has, the owner's byte and id, and the change's id: as long as a change's key.
const RAW_TABLE: u8 = 250;
const CHANGE_KEY_BYTES: usize = 1 + 1 + 16 + 16;
/// What a backup writes besides a row's key and value.
pub(crate) const BACKUP_ROW_BYTES: usize = 1 + 4 + 4;

/// Adds through the port of carts, and puts of the same size through the bare engine, in turns.
pub(crate) fn measure_ports(scratch: &Scratch, pace: Pace, figures: &mut Figures) -> Result<()> {
    progress("durable cart changes, in this process");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let store = EmbeddedStore::open(&scratch.dir("carts")?, &Options::default())?;
        let engine = Arc::new(Engine::open(&scratch.dir("engine")?)?);
        let value_bytes = change_value_bytes(&store).await?;
        figures.info("durable_cart_row_bytes", (CHANGE_KEY_BYTES + value_bytes) as f64, "bytes");

        let carts: Arc<dyn CartStore> = store.stores().carts;
        let add_for = |time| {
            let carts = carts.clone();
            clients(time, move |client, count| add(carts.clone(), client, count))
        };
        let put_for = |time| {
            let engine = engine.clone();
            clients(time, move |client, count| put(engine.clone(), client, count, value_bytes))
        };
        add_for(pace.warm_up).await?;
        put_for(pace.warm_up).await?;

        let before = [Commits::of(store.engine().stats()), Commits::of(engine.stats())];
        let (mut ratios, mut adds, mut puts) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..pace.rounds {
            let (added, raw) = (add_for(pace.round).await?, put_for(pace.round).await?);
            adds.push(added);
            puts.push(raw);
            ratios.push(added / raw);
        }
        let (port, raw) = (
            Commits::of(store.engine().stats()).since(&before[0]),
            Commits::of(engine.stats()).since(&before[1]),
        );
        show_rounds("durable_cart_add_ratio", &ratios);
        figures.at_least("durable_cart_add_ratio", median(&ratios), "ratio", CART_ADD_BAR);
        figures.info("durable_cart_add_rps", median(&adds), "adds/s");
        figures.info("durable_engine_put_rps", median(&puts), "puts/s");
        figures.info("durable_cart_add_fsyncs", port.fsyncs / port.jobs, "fsyncs/add");
        figures.info("durable_cart_add_group", port.jobs / port.commits, "adds/commit");
        figures.info("durable_engine_put_group", raw.jobs / raw.commits, "puts/commit");
        figures.info("durable_cart_add_commits", port.commits / pace.measured().as_secs_f64(), "commits/s");
        figures.info("durable_engine_put_commits", raw.commits / pace.measured().as_secs_f64(), "commits/s");
        store.close().await;
        engine.close().await;
        Ok(())
    })
}

/// What all clients did a second. Each does one thing after the other.
async fn clients<F>(
    time: Duration,
    action: impl Fn(usize, usize) -> F + Clone + Send + 'static,
) -> Result<f64>
where
    F: Future<Output = Result<()>> + Send + 'static,
{
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for client in 0..CLIENTS {
        let action = action.clone();
        tasks.spawn(async move {
            let mut count = 0;
            while started.elapsed() < time {
                action(client, count).await?;
                count += 1;
            }
            anyhow::Ok(count)
        });
    }
    let mut done = 0;
    while let Some(count) = tasks.join_next().await {
        done += count??;
    }
    Ok(done as f64 / started.elapsed().as_secs_f64())
}

async fn add(carts: Arc<dyn CartStore>, client: usize, count: usize) -> Result<()> {
    let now = SystemClock.now();
    let owner = owner(client, count);
    let product = ProductId(uuid::Uuid::from_u128((count % PRODUCTS_PER_CART) as u128));
    let effect = Effect::Add { product, quantity: 1, zone: None };
    let change = CartChange { id: ChangeId(id::fresh(now)), at: now, origin: owner, keyed: false, effect };
    Ok(carts.append(owner, vec![change], now.plus_ms(CART_TTL_MS), now).await?)
}

/// The same work for the client as [`add`], and as many bytes under a key like a change's.
async fn put(engine: Arc<Engine>, client: usize, count: usize, value_bytes: usize) -> Result<()> {
    let now = SystemClock.now();
    let mut key = Vec::with_capacity(CHANGE_KEY_BYTES);
    key.extend([RAW_TABLE, 0]);
    key.extend(owner(client, count).uuid().as_bytes());
    key.extend(id::fresh(now).as_bytes());
    Ok(engine.put(Space::Carts, key, vec![7; value_bytes]).await?)
}

/// A client fills its carts in turns.
fn owner(client: usize, count: usize) -> Owner {
    let number = client * CARTS_PER_CLIENT + count % CARTS_PER_CLIENT;
    Owner::User(UserId(id::derived("bench-cart", &[&number.to_be_bytes()])))
}

/// The length of the value that one more change of a cart is stored as: by how much a backup grows.
async fn change_value_bytes(store: &EmbeddedStore) -> Result<usize> {
    let carts = store.stores().carts;
    let backup_bytes = || -> Result<usize> {
        let mut backup = Vec::new();
        store.dump(&mut backup, &mut |_| {})?;
        Ok(backup.len())
    };
    add(carts.clone(), 0, 0).await?;
    let before = backup_bytes()?;
    add(carts, 0, 0).await?;
    let row_bytes = backup_bytes()?.saturating_sub(before + BACKUP_ROW_BYTES);
    ensure!(row_bytes > CHANGE_KEY_BYTES, "expected a row more, got {row_bytes} bytes");
    Ok(row_bytes - CHANGE_KEY_BYTES)
}

/// What an engine has done so far, or since.
struct Commits {
    jobs: f64,
    commits: f64,
    fsyncs: f64,
}

impl Commits {
    fn of(stats: &EngineStats) -> Self {
        let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed) as f64;
        Self {
            jobs: count(&stats.committed_jobs),
            commits: count(&stats.commits),
            fsyncs: count(&stats.fsyncs),
        }
    }

    fn of_server(server: &Server) -> Result<Self> {
        let count = |name: &str| server.metric(&format!("mobimir_embedded_{name}_total"));
        Ok(Self { jobs: count("writes")?, commits: count("commits")?, fsyncs: count("fsyncs")? })
    }

    fn since(&self, earlier: &Commits) -> Self {
        Self {
            jobs: self.jobs - earlier.jobs,
            commits: self.commits - earlier.commits,
            fsyncs: self.fsyncs - earlier.fsyncs,
        }
    }
}

/// `POST /v1/cart/items` by clients that each fill several guests' carts.
pub(crate) fn measure_http(
    binary: &Path,
    scratch: &Scratch,
    pace: Pace,
    figures: &mut Figures,
) -> Result<()> {
    progress("durable cart changes, through HTTP");
    let server = Server::demo(binary, &scratch.dir("http-carts")?).context("the shop did not start")?;
    let products = catalogue::walk(&server)?;
    let mut load = Load::connect(server.address, CLIENTS)?;
    let guests = operations::guests(&mut load, CLIENTS * CARTS_PER_CLIENT)?;
    let in_stock: Vec<_> = products.iter().filter(|product| product.available > 0).collect();
    let requests: Vec<Request> = (0..guests.len() * PRODUCTS_PER_CART)
        .map(|number| {
            let product = &in_stock[number * 31 % in_stock.len()].id;
            let body = format!("{{\"product_id\":\"{product}\",\"quantity\":1}}");
            Request::of(&guests[number % guests.len()], "POST", "/v1/cart/items", Some(&body))
        })
        .collect();
    load.run(&requests, Until::Over(pace.warm_up))?;
    let (before, cpu_before) = (Commits::of_server(&server)?, server.cpu()?);
    let (mut rates, mut adds) = (Vec::new(), 0);
    for _ in 0..pace.rounds {
        let done = load.run(&requests, Until::Over(pace.round))?;
        rates.push(done.per_second());
        adds += done.requests;
    }
    let spent = server.cpu()?.since(&cpu_before);
    let commits = Commits::of_server(&server)?.since(&before);
    figures.info("durable_cart_add_http_rps", median(&rates), "requests/s");
    figures.info("durable_cart_add_http_cpu_us", spent.as_secs_f64() * 1e6 / adds as f64, "us/request");
    figures.info("durable_cart_add_http_fsyncs", commits.fsyncs / adds as f64, "fsyncs/add");
    figures.info("durable_cart_add_http_group", commits.jobs / commits.commits, "writes/commit");
    server.stop()
}
