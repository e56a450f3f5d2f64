//! The configuration: one TOML file, every key also as an environment variable `MOBIMIR_...`, and the flags of the
//! command line before both.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use anyhow::{Context, Result, bail};
use mobimir_core::{secret, zone::Zone};
use mobimir_embedded::Options;
use mobimir_http::{Limits, Role};
use mobimir_shop::ShopSettings;
use serde::Deserialize;

use crate::cluster::DataCentres;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    pub(crate) listen: SocketAddr,
    /// What this instance answers, where a shop is several.
    pub(crate) role: Role,
    /// Proxies whose word is taken for whom they were asked by.
    pub(crate) trusted_proxies: Vec<IpAddr>,
    pub(crate) data: PathBuf,
    /// A policy's file or the name of a built-in one.
    pub(crate) policy: String,
    pub(crate) operator_token: Option<Secret>,
    /// Signs `Read-After`; the same for all instances of a shop.
    pub(crate) read_after_key: Option<Secret>,
    /// Whether data may move to another store while this instance serves.
    pub(crate) migrations: bool,
    pub(crate) migration: MigrationConfig,
    pub(crate) zones: Vec<Zone>,
    /// `text` or `json`.
    pub(crate) log_format: LogFormat,
    /// As in `info` or `mobimir_http=debug,info`.
    pub(crate) log_level: String,
    pub(crate) password_memory_kib: u32,
    pub(crate) limits: LimitsConfig,
    pub(crate) embedded: EmbeddedConfig,
    pub(crate) cassandra: CassandraConfig,
    pub(crate) mongodb: MongodbConfig,
}

/// A secret: never written to logs or errors.
#[derive(Clone, Deserialize)]
#[serde(transparent)]
pub(crate) struct Secret(pub(crate) String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(secret)")
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    Text,
    Json,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LimitsConfig {
    pub(crate) body_bytes_max: usize,
    pub(crate) header_bytes_max: usize,
    pub(crate) headers_max: usize,
    pub(crate) header_read_ms_max: u64,
    pub(crate) request_ms_max: u64,
    pub(crate) connections_max: usize,
    pub(crate) in_flight_max: usize,
    pub(crate) late_ms_max: u64,
    pub(crate) drain_ms: u64,
    pub(crate) shutdown_ms_max: u64,
}

/// What is done beside moving data, to be sure of it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct MigrationConfig {
    /// Of the reads before the switch, how many are asked of both stores.
    pub(crate) shadow_percent: u32,
    /// How often everything is compared again after the switch.
    pub(crate) recheck_minutes: u64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct EmbeddedConfig {
    pub(crate) product_cache_items: u64,
    pub(crate) session_cache_items: u64,
    pub(crate) cart_cache_items: u64,
    pub(crate) block_cache_bytes: u64,
    pub(crate) memtable_bytes: u64,
}

/// How to reach Cassandra, if the policy places something there.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CassandraConfig {
    pub(crate) contact_points: Vec<String>,
    /// The data centre next to this shop.
    pub(crate) local_dc: Option<String>,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<Secret>,
    pub(crate) keyspace_prefix: String,
    pub(crate) connect_timeout_ms: u64,
    /// Instead of those that the policy names.
    pub(crate) data_centres: Option<DataCentres>,
}

/// How to reach MongoDB, if the policy places something there.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct MongodbConfig {
    /// With the password in it, if there is one.
    pub(crate) uri: Secret,
    pub(crate) database: String,
    pub(crate) connect_timeout_ms: u64,
    pub(crate) timeout_ms: u64,
    /// To each member.
    pub(crate) connections_max: u32,
}

/// Keyspaces have at most 48 characters, and `_order_history` has to fit.
pub(crate) const KEYSPACE_PREFIX_CHARS_MAX: usize = 32;

/// MongoDB allows 63 bytes.
const DATABASE_BYTES_MAX: usize = 63;
const READ_AFTER_KEY_CHARS_MIN: usize = 16;

/// Every key, and how its environment variable is read.
const KEYS: &[(&str, Kind)] = &[
    ("listen", Kind::Text),
    ("role", Kind::Text),
    ("trusted_proxies", Kind::List),
    ("data", Kind::Text),
    ("policy", Kind::Text),
    ("operator_token", Kind::Text),
    ("read_after_key", Kind::Text),
    ("migrations", Kind::Switch),
    ("migration.shadow_percent", Kind::Number),
    ("migration.recheck_minutes", Kind::Number),
    ("zones", Kind::List),
    ("log_format", Kind::Text),
    ("log_level", Kind::Text),
    ("password_memory_kib", Kind::Number),
    ("limits.body_bytes_max", Kind::Number),
    ("limits.header_bytes_max", Kind::Number),
    ("limits.headers_max", Kind::Number),
    ("limits.header_read_ms_max", Kind::Number),
    ("limits.request_ms_max", Kind::Number),
    ("limits.connections_max", Kind::Number),
    ("limits.in_flight_max", Kind::Number),
    ("limits.late_ms_max", Kind::Number),
    ("limits.drain_ms", Kind::Number),
    ("limits.shutdown_ms_max", Kind::Number),
    ("embedded.product_cache_items", Kind::Number),
    ("embedded.session_cache_items", Kind::Number),
    ("embedded.cart_cache_items", Kind::Number),
    ("embedded.block_cache_bytes", Kind::Number),
    ("embedded.memtable_bytes", Kind::Number),
    ("cassandra.contact_points", Kind::List),
    ("cassandra.local_dc", Kind::Text),
    ("cassandra.user", Kind::Text),
    ("cassandra.password", Kind::Text),
    ("cassandra.keyspace_prefix", Kind::Text),
    ("cassandra.connect_timeout_ms", Kind::Number),
    ("cassandra.data_centres", Kind::Text),
    ("mongodb.uri", Kind::Text),
    ("mongodb.database", Kind::Text),
    ("mongodb.connect_timeout_ms", Kind::Number),
    ("mongodb.timeout_ms", Kind::Number),
    ("mongodb.connections_max", Kind::Number),
];

#[derive(Clone, Copy)]
enum Kind {
    Text,
    Number,
    Switch,
    /// Divided by commas.
    List,
}

impl Default for Config {
    fn default() -> Self {
        let shop = ShopSettings::default();
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            role: Role::All,
            trusted_proxies: Vec::new(),
            data: PathBuf::from("data"),
            policy: "embedded".into(),
            operator_token: None,
            read_after_key: None,
            migrations: false,
            migration: MigrationConfig::default(),
            zones: shop.zones,
            log_format: LogFormat::Text,
            log_level: "info".into(),
            password_memory_kib: shop.password_memory_kib,
            limits: LimitsConfig::default(),
            embedded: EmbeddedConfig::default(),
            cassandra: CassandraConfig::default(),
            mongodb: MongodbConfig::default(),
        }
    }
}

impl Default for MigrationConfig {
    fn default() -> Self {
        Self { shadow_percent: 5, recheck_minutes: 60 }
    }
}

impl Default for MongodbConfig {
    fn default() -> Self {
        Self {
            uri: Secret("mongodb://127.0.0.1:27017".to_owned()),
            database: "mobimir".to_owned(),
            connect_timeout_ms: 5_000,
            timeout_ms: 5_000,
            connections_max: 100,
        }
    }
}

impl Default for CassandraConfig {
    fn default() -> Self {
        Self {
            contact_points: vec!["127.0.0.1:9042".to_owned()],
            local_dc: None,
            user: None,
            password: None,
            keyspace_prefix: "mobimir".to_owned(),
            connect_timeout_ms: 5_000,
            data_centres: None,
        }
    }
}

impl Default for LimitsConfig {
    fn default() -> Self {
        let limits = Limits::default();
        Self {
            body_bytes_max: limits.body_bytes_max,
            header_bytes_max: limits.header_bytes_max,
            headers_max: limits.headers_max,
            header_read_ms_max: limits.header_read_ms_max,
            request_ms_max: limits.request_ms_max,
            connections_max: limits.connections_max,
            in_flight_max: limits.in_flight_max,
            late_ms_max: limits.late_ms_max,
            drain_ms: limits.drain_ms,
            shutdown_ms_max: limits.shutdown_ms_max,
        }
    }
}

impl From<&LimitsConfig> for Limits {
    fn from(config: &LimitsConfig) -> Self {
        Self {
            body_bytes_max: config.body_bytes_max,
            header_bytes_max: config.header_bytes_max,
            headers_max: config.headers_max,
            header_read_ms_max: config.header_read_ms_max,
            request_ms_max: config.request_ms_max,
            connections_max: config.connections_max,
            in_flight_max: config.in_flight_max,
            late_ms_max: config.late_ms_max,
            drain_ms: config.drain_ms,
            shutdown_ms_max: config.shutdown_ms_max,
        }
    }
}

impl Default for EmbeddedConfig {
    fn default() -> Self {
        let options = Options::default();
        Self {
            product_cache_items: options.product_cache_items,
            session_cache_items: options.session_cache_items,
            cart_cache_items: options.cart_cache_items,
            block_cache_bytes: options.block_cache_bytes,
            memtable_bytes: options.memtable_bytes,
        }
    }
}

impl From<&EmbeddedConfig> for Options {
    fn from(config: &EmbeddedConfig) -> Self {
        Self {
            product_cache_items: config.product_cache_items,
            session_cache_items: config.session_cache_items,
            cart_cache_items: config.cart_cache_items,
            block_cache_bytes: config.block_cache_bytes,
            memtable_bytes: config.memtable_bytes,
        }
    }
}

impl Config {
    /// From a file, if one is given, and the environment.
    pub(crate) fn load(file: Option<&std::path::Path>) -> Result<Self> {
        let text = match file {
            Some(path) => std::fs::read_to_string(path)
                .with_context(|| format!("cannot read the configuration {}", path.display()))?,
            None => String::new(),
        };
        let name = file.map_or_else(|| "configuration".to_owned(), |path| path.display().to_string());
        Self::parse(&text, &name, |variable| std::env::var(variable).ok())
    }

    fn parse(text: &str, name: &str, environment: impl Fn(&str) -> Option<String>) -> Result<Self> {
        // First by itself, so that what is wrong is named with its line.
        if let Err(error) = toml::from_str::<Config>(text) {
            let line =
                error.span().map_or(1, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
            // A secret must not be quoted.
            bail!("{name}:{line}: {}", secret::without_value(error.message()));
        }
        let mut table: toml::Table = toml::from_str(text)?;
        for (key, kind) in KEYS {
            let variable = format!("MOBIMIR_{}", key.to_uppercase().replace('.', "_"));
            let Some(text) = environment(&variable).filter(|text| !text.is_empty()) else { continue };
            let value = match kind {
                Kind::Text => toml::Value::String(text),
                Kind::Number => toml::Value::Integer(
                    text.parse().with_context(|| format!("{variable}: expected a number, got {text:?}"))?,
                ),
                Kind::Switch => toml::Value::Boolean(
                    text.parse()
                        .with_context(|| format!("{variable}: expected true or false, got {text:?}"))?,
                ),
                Kind::List => toml::Value::Array(
                    text.split(',').map(|item| toml::Value::String(item.trim().to_owned())).collect(),
                ),
            };
            let mut place = &mut table;
            let (groups, leaf) =
                key.rsplit_once('.').map_or((None, *key), |(group, leaf)| (Some(group), leaf));
            if let Some(group) = groups {
                let inner = place.entry(group).or_insert_with(|| toml::Value::Table(toml::Table::new()));
                place = inner.as_table_mut().with_context(|| format!("{name}: {group}: expected a table"))?;
            }
            place.insert(leaf.to_owned(), value);
        }
        let config: Config = table.try_into().map_err(|error: toml::de::Error| {
            anyhow::anyhow!("environment: {}", secret::without_value(error.message()))
        })?;
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<()> {
        if self.zones.is_empty() {
            bail!("zones: expected at least one, like [\"MSK\", \"SPB\"]");
        }
        if self.operator_token.as_ref().is_some_and(|token| token.0.len() < 8) {
            bail!("operator_token: expected at least 8 characters");
        }
        if self.read_after_key.as_ref().is_some_and(|key| key.0.len() < READ_AFTER_KEY_CHARS_MIN) {
            bail!("read_after_key: expected at least {READ_AFTER_KEY_CHARS_MIN} characters");
        }
        if self.migration.shadow_percent > 100 || self.migration.recheck_minutes == 0 {
            bail!("migration: expected a shadow_percent of 0 to 100 and recheck_minutes above zero");
        }
        let LimitsConfig { request_ms_max, connections_max, headers_max, in_flight_max, .. } = self.limits;
        if request_ms_max == 0 || connections_max == 0 || headers_max == 0 || in_flight_max == 0 {
            bail!("limits: expected numbers above zero");
        }
        self.cassandra.check()?;
        self.mongodb.check()
    }
}

impl MongodbConfig {
    pub(crate) fn check(&self) -> Result<()> {
        if !self.uri.0.starts_with("mongodb://") {
            bail!("mongodb.uri: expected an address like mongodb://127.0.0.1:27017/?replicaSet=rs0");
        }
        let is_name = (1..=DATABASE_BYTES_MAX).contains(&self.database.len())
            && self.database.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
        if !is_name {
            bail!("mongodb.database: expected a name of a-z, 0-9, '_' and '-', got {:?}", self.database);
        }
        if self.connect_timeout_ms == 0 || self.timeout_ms == 0 || self.connections_max == 0 {
            bail!("mongodb: expected numbers above zero");
        }
        Ok(())
    }
}

impl CassandraConfig {
    pub(crate) fn check(&self) -> Result<()> {
        if self.contact_points.iter().all(|point| point.trim().is_empty()) {
            bail!("cassandra.contact_points: expected at least one, like [\"127.0.0.1:9042\"]");
        }
        if self.user.is_some() != self.password.is_some() {
            bail!("cassandra: expected both user and password, or neither");
        }
        if self.connect_timeout_ms == 0 {
            bail!("cassandra.connect_timeout_ms: expected a number above zero");
        }
        let prefix = &self.keyspace_prefix;
        let is_name = prefix.starts_with(|c: char| c.is_ascii_lowercase())
            && prefix.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
            && prefix.len() <= KEYSPACE_PREFIX_CHARS_MAX;
        if !is_name {
            bail!(
                "cassandra.keyspace_prefix: expected at most {KEYSPACE_PREFIX_CHARS_MAX} of a-z, 0-9 and '_' that \
                 begin with a letter, got {prefix:?}"
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none(_: &str) -> Option<String> {
        None
    }

    #[test]
    fn every_key_has_its_variable() {
        let text = |key: &str| match key {
            "listen" => "127.0.0.1:1".to_owned(),
            "role" => "carts".to_owned(),
            "trusted_proxies" => "10.0.0.1, ::1".to_owned(),
            "zones" => "MSK, A1".to_owned(),
            "log_format" => "json".to_owned(),
            "cassandra.keyspace_prefix" => "other".to_owned(),
            "migrations" => "true".to_owned(),
            "migration.shadow_percent" => "100".to_owned(),
            "read_after_key" => "sixteen letters!".to_owned(),
            "cassandra.data_centres" => "dc1=3, east-1=1".to_owned(),
            "mongodb.uri" => "mongodb://10.0.0.1:27017".to_owned(),
            _ => "12345678".to_owned(),
        };
        for (key, _) in KEYS {
            let variable = format!("MOBIMIR_{}", key.to_uppercase().replace('.', "_"));
            // A user and a password come together.
            let (file, before) = match *key {
                "cassandra.user" | "cassandra.password" => {
                    let file = "cassandra = { user = \"a\", password = \"b\" }";
                    (file, Config::parse(file, "c", none).unwrap())
                }
                _ => ("", Config::parse("", "c", none).unwrap()),
            };
            let changed = Config::parse(file, "c", |asked| (asked == variable).then(|| text(key))).unwrap();
            let secret = match *key {
                "cassandra.password" => changed.cassandra.password.as_ref(),
                "mongodb.uri" => Some(&changed.mongodb.uri),
                _ => None,
            };
            if let Some(secret) = secret {
                assert_eq!(secret.0, text(key));
                continue;
            }
            let before = format!("{before:?}");
            assert_ne!(format!("{changed:?}"), before, "{variable} changes nothing");
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let wrong = |text: &str| Config::parse(text, "shop.toml", none).unwrap_err().to_string();
        assert!(
            wrong("\nlimits = { bodies = 1 }").starts_with("shop.toml:2: unknown field `bodies`"),
            "{}",
            wrong("\nlimits = { bodies = 1 }")
        );
        assert!(wrong("listen = \"nowhere\"").starts_with("shop.toml:1: "));
        assert!(wrong("read_after_key = \"short\"").contains("expected at least 16 characters"));
        assert!(wrong("role = \"shop\"").ends_with("expected one of `products`, `carts`, `orders`, `all`"));
        assert!(wrong("trusted_proxies = [\"balancer\"]").starts_with("shop.toml:1: "));
        assert!(wrong("[migration]\nshadow_percent = 101").contains("0 to 100"));
        assert!(wrong("zones = []").contains("expected at least one"));
        assert!(wrong("zones = [\"msk\"]").contains("expected a zone"));
        for (text, expected) in [
            ("contact_points = []", "expected at least one"),
            ("user = \"a\"", "expected both user and password"),
            ("keyspace_prefix = \"Shop\"", "expected at most 32 of a-z"),
            ("data_centres = \"dc1\"", "expected data centres like dc1=3,dc2=3"),
            ("data_centres = \"dc1=0\"", "expected 1 to 9 replicas"),
            ("connect_timeout_ms = 0", "above zero"),
        ] {
            let message = wrong(&format!("[cassandra]\n{text}"));
            assert!(message.contains(expected), "{text}: {message}");
        }
        for (text, expected) in [
            ("uri = \"127.0.0.1\"", "expected an address like mongodb://"),
            ("database = \"a.b\"", "expected a name"),
            ("timeout_ms = 0", "above zero"),
        ] {
            let message = wrong(&format!("[mongodb]\n{text}"));
            assert!(message.contains(expected), "{text}: {message}");
        }
    }

    #[test]
    fn a_secret_is_not_shown() {
        let config = Config::parse("operator_token = \"a-very-long-secret\"", "c", none).unwrap();
        assert!(!format!("{config:?}").contains("very-long"));
        let config = Config::parse("read_after_key = \"a-very-long-secret\"", "c", none).unwrap();
        assert!(!format!("{config:?}").contains("very-long"));
        let wrong = Config::parse("operator_token = 1234567890123", "c", none).unwrap_err().to_string();
        assert!(!wrong.contains("12345"), "{wrong}");
        let file = "cassandra = { user = \"shop\", password = \"a-very-long-secret\" }";
        assert!(!format!("{:?}", Config::parse(file, "c", none).unwrap()).contains("very-long"));
    }
}
