//! `mobimir serve` and `mobimir demo`: the shop, from its configuration to its end.

use std::{
    io::Write,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use clap::Args;
use mobimir_core::{
    policy::{Policy, Store},
    ports::Stores,
    time::{Clock, SystemClock},
};
use mobimir_embedded::{EmbeddedStore, Options};
use mobimir_http::{AppState, Backend};
use mobimir_shop::{Shop, ShopSettings, run_reconciler};
use tokio::{net::TcpListener, sync::watch};

use crate::{
    config::{Config, LogFormat, Secret},
    control::Control,
    demo, policy_command,
};

#[derive(Args)]
#[command(after_help = SERVE_EXAMPLES)]
pub(crate) struct ServeArgs {
    /// Address to listen on; port 0 takes a free one [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Data directory; created if it is not there [default: data]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Policy: a file, or the name of a built-in one [default: embedded]
    #[arg(long, value_name = "FILE|NAME")]
    policy: Option<String>,
    /// Configuration file; each key is also a variable MOBIMIR_...
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

const SERVE_EXAMPLES: &str = "\
Examples:
  mobimir serve --data ./shop
  MOBIMIR_OPERATOR_TOKEN=... mobimir serve --listen 0.0.0.0:8080 --data /var/lib/mobimir
  mobimir serve --listen 127.0.0.1:0 --config shop.toml

Without MOBIMIR_OPERATOR_TOKEN (or operator_token in the configuration) nobody is an operator.";

#[derive(Args)]
#[command(after_help = DEMO_EXAMPLES)]
pub(crate) struct DemoArgs {
    #[command(flatten)]
    serve: ServeArgs,
    /// The catalogue follows from this number
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many products to make
    #[arg(long, default_value_t = demo::PRODUCTS_DEFAULT, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(0..=PRODUCTS_MAX))]
    products: usize,
}

const PRODUCTS_MAX: u64 = 1_000_000;

const DEMO_EXAMPLES: &str = "\
Examples:
  mobimir demo
  mobimir demo --seed 7 --products 200000 --data /tmp/shop --listen 127.0.0.1:0

The same seed makes the same catalogue, so a second start on the same data adds nothing. The operator's token is
MOBIMIR_OPERATOR_TOKEN or, without it, a new one that is printed.";

/// How often what has expired is swept up, and how much at once.
const SWEEP_PERIOD: Duration = Duration::from_secs(10);
const SWEEP_ITEMS_MAX: usize = 1_000;
const INSERT_BATCH_ITEMS: usize = 500;
/// How long the ones that work in the background may take to end.
const BACKGROUND_END: Duration = Duration::from_secs(5);

pub(crate) fn serve(args: ServeArgs) -> Result<()> {
    let config = configured(args)?;
    run(config, None)
}

pub(crate) fn demo(args: DemoArgs) -> Result<()> {
    let mut config = configured(args.serve)?;
    if config.operator_token.is_none() {
        config.operator_token = Some(Secret(random_token()));
    }
    run(config, Some((args.seed, args.products)))
}

/// A shop that is not running, for an import.
pub(crate) fn open_for_import(data: &Path) -> Result<Stores> {
    Ok(EmbeddedStore::open(data, &Options::default())?.stores())
}

fn configured(args: ServeArgs) -> Result<Config> {
    let mut config = Config::load(args.config.as_deref())?;
    if let Some(listen) = args.listen {
        config.listen = listen;
    }
    if let Some(data) = args.data {
        config.data = data;
    }
    if let Some(policy) = args.policy {
        config.policy = policy;
    }
    Ok(config)
}

fn run(config: Config, catalogue: Option<(u64, usize)>) -> Result<()> {
    start_log(&config)?;
    let policy = policy_command::load_policy(&config.policy)?;
    for store in [Store::Mongodb, Store::Cassandra] {
        if policy.uses(store) {
            bail!(
                "the policy {} places data in {store}, which this version cannot reach yet; \
                use --policy embedded, or a policy whose homes are all \"embedded\"",
                config.policy
            );
        }
    }
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?
        .block_on(run_shop(config, policy, catalogue))
}

async fn run_shop(config: Config, policy: Policy, catalogue: Option<(u64, usize)>) -> Result<()> {
    let stop = Stop::on_signals()?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let (data, options) = (config.data.clone(), Options::from(&config.embedded));
    let store = tokio::task::spawn_blocking(move || EmbeddedStore::open(&data, &options)).await??;

    if let Some((seed, products)) = catalogue {
        fill(&store, seed, products, &config, clock.as_ref(), &stop).await?;
    }
    let shop = Shop::new(store.stores(), clock.clone(), settings(&config, &policy));
    // What a crash left open is finished before anybody can add to it.
    shop.reconcile_at_start().await;

    let listener = TcpListener::bind(config.listen)
        .await
        .with_context(|| format!("cannot listen on {}", config.listen))?;
    let address = format!("http://{}", listener.local_addr()?);
    let control = Control { address: address.clone(), token: random_token() };
    control.write(&config.data)?;

    let operator = config.operator_token.as_ref().map(|token| token.0.as_str());
    let tokens: Vec<&str> = operator.into_iter().chain([control.token.as_str()]).collect();
    let backend = Box::new(EmbeddedBackend { store: store.clone() });
    let state = AppState::new(
        shop.clone(),
        &tokens,
        (&config.limits).into(),
        backend,
        serde_json::to_value(&policy)?,
    );

    let reconciler = tokio::spawn(run_reconciler(shop, stop.wait()));
    let sweeper = tokio::spawn(sweep(store.clone(), clock, stop.wait()));

    say(&format!("listening on {address}"));
    if catalogue.is_some() {
        say(&format!("operator token: {}", operator.unwrap_or_default()));
    } else if operator.is_none() {
        tracing::warn!("nobody is an operator: set MOBIMIR_OPERATOR_TOKEN to add products and move orders");
    }
    let finished = mobimir_http::serve(mobimir_http::app(state), listener, stop.wait()).await;

    let _ = tokio::time::timeout(BACKGROUND_END, async { tokio::join!(reconciler, sweeper) }).await;
    store.close().await;
    Control::remove(&config.data);
    if !finished {
        tracing::warn!("some requests were still running when the time for ending was up");
    }
    tracing::info!("ended");
    Ok(())
}

fn settings(config: &Config, policy: &Policy) -> ShopSettings {
    ShopSettings {
        zones: config.zones.clone(),
        checkout_deadline_ms: policy.checkout_deadline_ms(),
        session_ttl_ms: policy.session_ttl_ms(),
        guest_session_ttl_ms: policy.guest_session_ttl_ms(),
        session_cache_ms: policy.session_cache_ms(),
        guest_cart_ttl_ms: policy.guest_cart_ttl_ms(),
        user_cart_ttl_ms: policy.user_cart_ttl_ms(),
        abandoned_after_ms: policy.abandoned_after_ms(),
        order_buckets: policy.order_buckets(),
        password_memory_kib: config.password_memory_kib,
        ..ShopSettings::default()
    }
}

async fn fill(
    store: &EmbeddedStore,
    seed: u64,
    count: usize,
    config: &Config,
    clock: &dyn Clock,
    stop: &Stop,
) -> Result<()> {
    let products = demo::catalogue(seed, count, &config.zones, clock.now());
    let stores = store.stores();
    let bar = indicatif::ProgressBar::new(products.len() as u64);
    bar.set_style(indicatif::ProgressStyle::with_template("making products {bar:30} {pos}/{len}")?);
    for batch in products.chunks(INSERT_BATCH_ITEMS) {
        if stop.asked() {
            bail!("interrupted");
        }
        stores.products.insert(batch.to_vec()).await?;
        bar.inc(batch.len() as u64);
    }
    bar.finish_and_clear();
    Ok(())
}

async fn sweep(store: EmbeddedStore, clock: Arc<dyn Clock>, stopped: impl Future<Output = ()>) {
    tokio::pin!(stopped);
    loop {
        match store.sweep(clock.now(), SWEEP_ITEMS_MAX).await {
            // More is waiting: go on at once.
            Ok(swept) if swept >= SWEEP_ITEMS_MAX => continue,
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "what has expired could not be swept up"),
        }
        tokio::select! {
            () = &mut stopped => return,
            () = tokio::time::sleep(SWEEP_PERIOD) => {}
        }
    }
}

/// What the HTTP side asks of the embedded store as a whole.
struct EmbeddedBackend {
    store: EmbeddedStore,
}

impl Backend for EmbeddedBackend {
    fn trouble(&self) -> Option<String> {
        (!self.store.healthy()).then(|| {
            "the disk refused a write, so nothing more is written; see the log, then start again".to_owned()
        })
    }

    fn metrics(&self) -> String {
        engine_metrics(&self.store)
    }

    fn dump(&self, out: &mut dyn Write) -> std::io::Result<()> {
        self.store.dump(out, &mut |_| {}).map(|_| ()).map_err(std::io::Error::other)
    }
}

fn engine_metrics(store: &EmbeddedStore) -> String {
    let stats = store.stats();
    let count = |counter: &std::sync::atomic::AtomicU64| counter.load(std::sync::atomic::Ordering::Relaxed);
    let mut text = String::new();
    for (name, kind, help, value) in [
        ("writes", "counter", "Writes that were asked for", count(&stats.engine.jobs)),
        ("commits", "counter", "Groups of writes that were committed together", count(&stats.engine.commits)),
        ("fsyncs", "counter", "Waits for the disk", count(&stats.engine.fsyncs)),
        ("group_writes_max", "gauge", "The largest group so far", count(&stats.engine.group_jobs_max)),
        ("queue_writes", "gauge", "Writes that wait", stats.queue_depth as u64),
        ("disk_bytes", "gauge", "Bytes on disk", stats.disk_bytes),
        ("block_cache_bytes", "gauge", "Bytes of blocks in memory", stats.block_cache_bytes),
    ] {
        let total = if kind == "counter" { "_total" } else { "" };
        let name = format!("mobimir_embedded_{name}");
        text.push_str(&format!("# TYPE {name} {kind}\n# HELP {name} {help}\n{name}{total} {value}\n"));
    }
    text
}

/// The wish to end, from a signal. A second signal ends at once.
struct Stop(watch::Receiver<bool>);

impl Stop {
    fn on_signals() -> Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let (mut terminate, mut interrupt) =
            (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let (asked, stop) = watch::channel(false);
        tokio::spawn(async move {
            tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
            tracing::info!("ending: what was accepted is finished first");
            let _ = asked.send(true);
            tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
            std::process::exit(1);
        });
        Ok(Self(stop))
    }

    fn asked(&self) -> bool {
        *self.0.borrow()
    }

    fn wait(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut stop = self.0.clone();
        async move {
            let _ = stop.wait_for(|asked| *asked).await;
        }
    }
}

fn start_log(config: &Config) -> Result<()> {
    // The engine tells of every file that it writes; that is for those who ask.
    let levels = format!("fjall=warn,lsm_tree=warn,{}", config.log_level);
    let filter = tracing_subscriber::EnvFilter::try_new(levels)
        .with_context(|| format!("log_level: expected a level like info, got {:?}", config.log_level))?;
    let in_colour = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let log =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(in_colour);
    match config.log_format {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().init(),
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the address is what scripts read from standard output")]
fn say(line: &str) {
    println!("{line}");
    let _ = std::io::stdout().flush();
}

fn random_token() -> String {
    mobimir_core::secret::random_bytes::<16>().iter().map(|byte| format!("{byte:02x}")).collect()
}
