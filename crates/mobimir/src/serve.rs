//! `mobimir serve` and `mobimir demo`: the shop, from its configuration to its end.

use std::{
    io::Write,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use clap::{Args, builder::TypedValueParser};
use mobimir_core::{
    invariant::InvariantCounters,
    policy::{Entity, Policy, Store},
    ports::Stores,
    time::{Clock, SystemClock},
};
use mobimir_embedded::{EmbeddedStore, Options};
use mobimir_http::{AppState, Latency, Role};
use mobimir_migrate::service::Migration;
use mobimir_shop::{BucketCount, Shop, ShopSettings, run_reconciler};
use tokio::{net::TcpListener, sync::watch, task::JoinSet};
use tracing_subscriber::{filter::Targets, layer::SubscriberExt, util::SubscriberInitExt};

use crate::{
    backend::ShopBackend,
    cluster::{self, ClusterArgs},
    config::{Config, LogFormat, Secret},
    control::Control,
    demo,
    homes::{Homes, note_elsewhere, noted_elsewhere},
    in_runtime,
    migrations::{self, Places, check_all_at_rest},
    not_built_in,
};

#[derive(Args)]
#[command(after_help = SERVE_EXAMPLES)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    shop: ShopArgs,
    /// What this instance answers, where a shop is several behind a load balancer [default: all]
    #[arg(long, value_name = "ROLE", value_parser = clap::builder::PossibleValuesParser::new(Role::NAMES).try_map(|name| name.parse::<Role>()))]
    role: Option<Role>,
    // What runs by the clock would make two counts of the same requests differ.
    /// Answer requests and do nothing else: no reconciler, nothing is swept up, no session is remembered or
    /// written as active. For counting instructions
    #[arg(long, hide = true)]
    no_background: bool,
}

// What a shop needs, whoever starts it.
#[derive(Args)]
struct ShopArgs {
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
    #[command(flatten)]
    cluster: ClusterArgs,
}

const SERVE_EXAMPLES: &str = "\
Examples:
  mobimir serve --data ./shop
  MOBIMIR_OPERATOR_TOKEN=... mobimir serve --listen 0.0.0.0:8080 --data /var/lib/mobimir
  mobimir serve --listen 127.0.0.1:0 --config shop.toml
  mobimir serve --policy default --data-centres dc1=3 --mongodb mongodb://127.0.0.1:27017/?replicaSet=rs0
  mobimir serve --role orders --policy default --listen 10.0.0.11:8083 --data ./orders-1

Without MOBIMIR_OPERATOR_TOKEN (or operator_token in the configuration) nobody is an operator.";

#[derive(Args)]
#[command(after_help = DEMO_EXAMPLES)]
pub(crate) struct DemoArgs {
    #[command(flatten)]
    shop: ShopArgs,
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
  mobimir demo --policy default --data-centres dc1=3

The same seed makes the same catalogue, so a second start on the same data adds nothing. The operator's token is
MOBIMIR_OPERATOR_TOKEN or, without it, a new one that is printed.";

/// How often what has expired is swept up, and how much at once.
const SWEEP_PERIOD: Duration = Duration::from_secs(10);
const SWEEP_ITEMS_MAX: usize = 1_000;
const INSERT_BATCH_ITEMS: usize = 500;
/// Before a migration's work that ended halfway begins anew.
const MOVING_PAUSE: Duration = Duration::from_secs(1);
/// How long the ones that work in the background may take to end.
const BACKGROUND_END: Duration = Duration::from_secs(5);

/// What to run.
struct Plan {
    config: Config,
    /// Seed and number of products to make.
    catalogue: Option<(u64, usize)>,
    background: bool,
}

pub(crate) fn serve(args: ServeArgs) -> Result<()> {
    let mut config = configured(args.shop)?;
    if let Some(role) = args.role {
        config.role = role;
    }
    run(Plan { config, catalogue: None, background: !args.no_background })
}

pub(crate) fn demo(args: DemoArgs) -> Result<()> {
    let mut config = configured(args.shop)?;
    if config.role != Role::All {
        bail!("role {}: a demo is a whole shop; start `mobimir serve` for a part of one", config.role.name());
    }
    if config.operator_token.is_none() {
        config.operator_token = Some(Secret(random_token()));
    }
    run(Plan { config, catalogue: Some((args.seed, args.products)), background: true })
}

/// A shop that is not running, for an import.
pub(crate) fn open_for_import(data: &Path) -> Result<Stores> {
    if let Some(elsewhere) = noted_elsewhere(data) {
        bail!(
            "an import writes to the data directory only, and of this shop there is elsewhere: {elsewhere}"
        );
    }
    Ok(EmbeddedStore::open(data, &Options::default())?.stores())
}

fn configured(args: ShopArgs) -> Result<Config> {
    let mut config = cluster::configured(args.config.as_deref(), args.policy, None, args.cluster)?;
    if let Some(listen) = args.listen {
        config.listen = listen;
    }
    if let Some(data) = args.data {
        config.data = data;
    }
    Ok(config)
}

fn run(plan: Plan) -> Result<()> {
    start_log(&plan.config)?;
    let policy = cluster::placed_policy(&plan.config)?;
    not_built_in::check_stores(&policy, plan.config.migrations)?;
    check_role(plan.config.role, &Homes::new(&policy))?;
    in_runtime(run_shop(plan, policy))
}

/// Nobody else can answer for what is in this process.
fn check_role(role: Role, homes: &Homes<'_>) -> Result<()> {
    match homes.embedded() {
        Some(embedded) if role != Role::All => bail!(
            "role {}: by the policy {} the embedded store has {embedded}, and that lives in one process: serve all of the shop \
             there, or take a policy that places everything in MongoDB and Cassandra, like --policy default",
            role.name(),
            homes.policy().name
        ),
        _ => Ok(()),
    }
}

async fn run_shop(plan: Plan, policy: Policy) -> Result<()> {
    let Plan { config, catalogue, background: has_background } = plan;
    let homes = Homes::new(&policy);
    let stop = Stop::on_signals()?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let invariants: Arc<InvariantCounters> = Arc::default();
    let servers = homes.connect(&config, invariants.clone()).await?;
    let (data, options) = (config.data.clone(), Options::from(&config.embedded));
    let store = tokio::task::spawn_blocking(move || EmbeddedStore::open(&data, &options)).await??;
    let (mut stores, mut order_buckets) = homes.open(&store, &servers).await?;
    let latency = Arc::<Latency>::default();
    let notes = migrations::notes(&policy, &store, &servers);
    let mut history = None;
    let migrations = if config.migrations {
        let (policy, config, invariants) = (policy.clone(), config.clone(), invariants.clone());
        let (clock, latency) = (clock.clone(), latency.clone());
        let places = Places::new(policy, config, store.clone(), &servers, invariants, clock, latency)?;
        places.let_move(notes.clone(), &mut stores, &mut history, &mut order_buckets).await?
    } else {
        check_all_at_rest(&policy, &notes).await?;
        Vec::new()
    };
    // From here on they follow what is noted; whatever is served asks them first.
    let mut moving = JoinSet::new();
    for migration in &migrations {
        moving.spawn(keep_moving(migration.clone()));
        migration.ready().await;
    }
    homes.open_history(&mut stores, history, &store, &servers, notes, clock.clone()).await?;
    let elsewhere = homes.elsewhere();
    note_elsewhere(&config.data, elsewhere.as_deref())?;

    if let Some((seed, products)) = catalogue {
        fill(&stores, seed, products, &config, clock.as_ref(), &stop).await?;
    }
    let mut settings = settings(&config, &homes, order_buckets);
    if !has_background {
        tracing::warn!("nothing is done in the background: this shop is for measurements only");
        without_clock(&mut settings);
    }
    let shop = Shop::counting_in(invariants, stores, clock.clone(), settings);
    if config.role.does(Role::Orders) {
        // What a crash left open is finished before anybody can add to it.
        shop.reconcile_at_start().await;
    }

    let listener = TcpListener::bind(config.listen)
        .await
        .with_context(|| format!("cannot listen on {}", config.listen))?;
    let address = format!("http://{}", listener.local_addr()?);
    let control = Control { address: address.clone(), token: random_token() };
    control.write(&config.data)?;

    let operator = config.operator_token.as_ref().map(|token| token.0.as_str());
    let tokens: Vec<&str> = operator.into_iter().chain([control.token.as_str()]).collect();
    let backend = Box::new(ShopBackend {
        store: store.clone(),
        servers: servers.clone(),
        elsewhere,
        migrations: migrations.clone(),
    });
    let state = AppState::new(
        shop.clone(),
        &tokens,
        (&config.limits).into(),
        backend,
        serde_json::to_value(&policy)?,
    );
    let state = match &config.read_after_key {
        Some(key) => state.with_read_after_key(&key.0),
        None => state,
    };
    let state =
        state.with_role(config.role).with_trusted_proxies(&config.trusted_proxies).with_latency(latency);

    // Each by those who answer for what it is about; all of it may be done by several at the same time.
    let mut background = JoinSet::new();
    if config.role.does(Role::Orders) && has_background {
        background.spawn(run_reconciler(shop, stop.wait()));
    }
    if homes.embedded().is_some() && has_background {
        background.spawn(sweep(store.clone(), clock.clone(), stop.wait()));
    }
    if let Some(striped) = homes.split_products(&servers).filter(|_| config.role.does(Role::Products)) {
        background.spawn(striped.tend_stripes(policy.striped_products(), clock, stop.wait()));
    }

    say(&format!("listening on {address}"));
    if catalogue.is_some() {
        say(&format!("operator token: {}", operator.unwrap_or_default()));
    } else if operator.is_none() {
        tracing::warn!("nobody is an operator: set MOBIMIR_OPERATOR_TOKEN to add products and move orders");
    }
    if config.role != Role::All && config.read_after_key.is_none() {
        tracing::warn!(
            "what was written through other instances is read from the primary: set MOBIMIR_READ_AFTER_KEY, the same for all"
        );
    }
    let finished = mobimir_http::serve(mobimir_http::app(state), listener, stop.wait()).await;

    let ended = async { while background.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(BACKGROUND_END, ended).await;
    moving.shutdown().await;
    for migration in &migrations {
        migration.end().await;
    }
    store.close().await;
    Control::remove(&config.data);
    if !finished {
        tracing::warn!("some requests were still running when the time for ending was up");
    }
    tracing::info!("ended");
    Ok(())
}

fn settings(config: &Config, homes: &Homes<'_>, order_buckets: BucketCount) -> ShopSettings {
    let policy = homes.policy();
    let orders = policy.placement(Entity::Orders);
    ShopSettings {
        request_ms_max: i64::try_from(config.limits.request_ms_max).unwrap_or(i64::MAX / 2),
        zones: config.zones.clone(),
        checkout_deadline_ms: policy.checkout_deadline_ms(),
        session_ttl_ms: policy.session_ttl_ms(),
        guest_session_ttl_ms: policy.guest_session_ttl_ms(),
        session_cache_ms: policy.session_cache_ms(),
        guest_cart_ttl_ms: policy.guest_cart_ttl_ms(),
        user_cart_ttl_ms: policy.user_cart_ttl_ms(),
        abandoned_after_ms: policy.abandoned_after_ms(),
        order_buckets,
        password_memory_kib: config.password_memory_kib,
        orders_from_copies: orders.is_some_and(|orders| {
            // Those that can move there may do so at any time.
            orders.home == Store::Mongodb || (config.migrations && orders.uses(Store::Mongodb))
        }),
        ..ShopSettings::default()
    }
}

/// The same request does the same, however long ago the one before it was.
fn without_clock(settings: &mut ShopSettings) {
    settings.session_cache_ms = 0;
    settings.session_activity_ms = i64::MAX;
}

/// Without it this instance would stop serving what can move.
async fn keep_moving(migration: Arc<dyn Migration>) {
    let mut running = JoinSet::new();
    loop {
        running.spawn(migration.clone().run());
        if let Some(Err(error)) = running.join_next().await {
            tracing::error!(%error, entity = migration.entity(), "a migration's work ended halfway and begins anew");
        }
        tokio::time::sleep(MOVING_PAUSE).await;
    }
}

async fn fill(
    stores: &Stores,
    seed: u64,
    count: usize,
    config: &Config,
    clock: &dyn Clock,
    stop: &Stop,
) -> Result<()> {
    let products = demo::catalogue(seed, count, &config.zones, clock.now());
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
    // The engine tells of every file that it writes, the driver of every connection; that is for those who ask.
    let levels = format!("fjall=warn,lsm_tree=warn,scylla=warn,{}", config.log_level);
    let levels: Targets = levels
        .parse()
        .with_context(|| format!("log_level: expected a level like info, got {:?}", config.log_level))?;
    let in_colour = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(in_colour);
    let log = tracing_subscriber::registry().with(levels);
    match config.log_format {
        LogFormat::Text => log.with(lines).init(),
        LogFormat::Json => log.with(lines.json()).init(),
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
