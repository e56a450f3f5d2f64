//! What an entity needs to know when it lives in MongoDB.

use serde::{Serialize, Serializer};
use toml::de::DeValue;

use super::{
    Entity,
    reader::{Section, Value},
    values::{serialize_as_text, words},
};
use crate::id::ProductId;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MongodbSettings {
    pub shard_key: ShardKey,
    /// What it is sharded by once it outgrows one replica set (`alerts.shards.unsharded`).
    pub grown_shard_key: ShardKey,
    pub write: WriteConcern,
    /// Of products, when some are to be split from the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stripes: Option<Stripes>,
}

/// Products whose stock is split, so that more can be sold in a second than one document takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stripes {
    pub count: u16,
    pub products: Vec<ProductId>,
}

/// Fields as MongoDB writes them, `"{category: 1, _id: 1}"` or `"{_id: hashed}"`; none means not sharded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardKey(pub Vec<(String, ShardOrder)>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShardOrder {
    Ascending,
    Hashed,
}

words! {
    /// Who has to have a write before it counts.
    WriteConcern {
        Majority = "majority",
        /// The primary alone: a failover may take the write back.
        Primary = "primary",
    }
}

const SHARD_FIELDS_MAX: usize = 32;
/// Whoever asks for the stock of a split product reads all its stripes.
pub const STRIPES_MAX: u16 = 64;
const STRIPED_PRODUCTS_MAX: usize = 1_000;

impl MongodbSettings {
    pub(super) fn read(section: &Section<'_>, entity: Entity) -> Self {
        let shard_key = section.get("shard_key", default_shard_key(entity));
        let grown = if shard_key.is_none() { ShardKey::hashed("_id") } else { shard_key.clone() };
        let grown = if entity == Entity::Users { ShardKey::none() } else { grown };
        let settings = Self {
            grown_shard_key: section.get("grown_shard_key", grown),
            write: section.get("write", WriteConcern::Majority),
            stripes: (entity == Entity::Products).then(|| Stripes::given(section)).flatten(),
            shard_key,
        };
        if entity == Entity::Users {
            for (key, shard_key) in
                [("shard_key", &settings.shard_key), ("grown_shard_key", &settings.grown_shard_key)]
            {
                settings.check_unique_email(section, key, shard_key);
            }
        }
        settings
    }

    /// MongoDB keeps an index unique across shards only when the shard key is its prefix.
    fn check_unique_email(&self, section: &Section<'_>, key: &str, shard_key: &ShardKey) {
        let by_email = shard_key.0 == [("email".to_owned(), ShardOrder::Ascending)];
        if !shard_key.is_none() && !by_email {
            let message = "expected \"none\" or \"{email: 1}\", because emails are unique";
            section.fail(key, format!("{message}, got \"{shard_key}\""));
        }
    }
}

impl Stripes {
    fn given(section: &Section<'_>) -> Option<Self> {
        let given = section.is_given("stripes");
        let section = section.section("stripes");
        let count = section.number("count", 2..=STRIPES_MAX.into(), 16);
        let ProductIds(products) = section.get("products", ProductIds::default());
        let twice = products.iter().enumerate().find(|(at, id)| products[..*at].contains(id));
        if let Some((_, id)) = twice {
            section.fail("products", format!("expected each product once, got {id} twice"));
        }
        given.then(|| Self { count: u16::try_from(count).unwrap_or(STRIPES_MAX), products })
    }
}

#[derive(Default)]
struct ProductIds(Vec<ProductId>);

impl Value for ProductIds {
    fn expected() -> String {
        format!("at most {STRIPED_PRODUCTS_MAX} product ids like [\"019a8f5e-52c4-7c3e-9d5f-1f6b3c0a7e21\"]")
    }

    fn read(value: &DeValue<'_>) -> Option<Self> {
        let ids = value.as_array()?.iter().map(|id| id.get_ref().as_str()?.parse().ok().map(ProductId));
        let ids: Vec<ProductId> = ids.collect::<Option<_>>()?;
        (ids.len() <= STRIPED_PRODUCTS_MAX).then_some(Self(ids))
    }
}

fn default_shard_key(entity: Entity) -> ShardKey {
    match entity {
        Entity::Products | Entity::Users => ShardKey::none(),
        Entity::Carts => ShardKey::hashed("owner_id"),
        Entity::Orders | Entity::OrderHistory => ShardKey::hashed("user_id"),
        Entity::Sessions => ShardKey::hashed("_id"),
    }
}

impl ShardKey {
    pub fn none() -> Self {
        Self(Vec::new())
    }

    pub fn hashed(field: &str) -> Self {
        Self(vec![(field.to_owned(), ShardOrder::Hashed)])
    }

    pub fn is_none(&self) -> bool {
        self.0.is_empty()
    }

    pub fn parse(text: &str) -> Option<Self> {
        if text == "none" {
            return Some(Self::none());
        }
        let inner = text.strip_prefix('{')?.strip_suffix('}')?;
        let mut fields: Vec<(String, ShardOrder)> = Vec::new();
        for part in inner.split(',') {
            let (name, order) = part.split_once(':')?;
            let order = match order.trim() {
                "1" => ShardOrder::Ascending,
                "hashed" => ShardOrder::Hashed,
                _ => return None,
            };
            let name = name.trim();
            let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
            let taken = fields.iter().any(|(other, _)| other == name);
            if name.is_empty() || taken || !name.chars().all(allowed) {
                return None;
            }
            fields.push((name.to_owned(), order));
        }
        // MongoDB allows one hashed field in a shard key.
        let hashed = fields.iter().filter(|(_, order)| *order == ShardOrder::Hashed).count();
        (hashed <= 1 && fields.len() <= SHARD_FIELDS_MAX).then_some(Self(fields))
    }
}

impl std::fmt::Display for ShardKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.is_none() {
            return f.write_str("none");
        }
        let fields: Vec<String> = self
            .0
            .iter()
            .map(|(name, order)| match order {
                ShardOrder::Ascending => format!("{name}: 1"),
                ShardOrder::Hashed => format!("{name}: hashed"),
            })
            .collect();
        write!(f, "{{{}}}", fields.join(", "))
    }
}

serialize_as_text!(ShardKey);

impl Value for ShardKey {
    fn expected() -> String {
        "a shard key like \"{category: 1, _id: 1}\" or \"{_id: hashed}\", or \"none\"".to_owned()
    }

    fn read(value: &DeValue<'_>) -> Option<Self> {
        Self::parse(value.as_str()?)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Policy, *};

    #[test]
    fn a_shard_key_is_written_as_mongodb_writes_it() {
        for text in ["{category: 1, _id: 1}", "{_id: hashed}", "none"] {
            assert_eq!(ShardKey::parse(text).unwrap().to_string(), text);
        }
        for bad in ["", "{}", "_id", "{_id: -1}", "{a: hashed, b: hashed}", "{a: 1, a: 1}", "{$a: 1}"] {
            assert_eq!(ShardKey::parse(bad), None, "{bad}");
        }
    }

    const STRIPED: &str = "[products]\nhome = \"mongodb\"\n[products.mongodb.stripes]\n";
    const PHONE: &str = "019a8f5e-52c4-7c3e-9d5f-1f6b3c0a7e21";

    #[test]
    fn a_policy_names_products_to_be_split() {
        let text = format!("{STRIPED}count = 4\nproducts = [\"{PHONE}\"]\n");
        let policy = Policy::parse(&text, "x.toml").unwrap();
        assert_eq!(policy.striped_products(), [(ProductId(PHONE.parse().unwrap()), 4)]);
        assert!(policy.tables().contains(&format!("  {PHONE}  4\n")), "{}", policy.tables());
        let written = policy.to_toml().unwrap();
        assert_eq!(Policy::parse(&written, "x.toml").unwrap(), policy, "{written}");
        assert!(Policy::embedded().striped_products().is_empty());
    }

    #[test]
    fn what_cannot_be_split_is_named() {
        let errors = |text: &str| Policy::parse(text, "x.toml").unwrap_err().to_string();
        let text = format!("{STRIPED}count = 1\nproducts = [\"{PHONE}\", \"{PHONE}\"]\n");
        insta::assert_snapshot!(errors(&text), @r"
        x.toml:4: products.mongodb.stripes.count: expected a whole number from 2 to 64, got 1
        x.toml:5: products.mongodb.stripes.products: expected each product once, got 019a8f5e-52c4-7c3e-9d5f-1f6b3c0a7e21 twice
        ");
        let text =
            format!("{STRIPED}products = [7]\n[users]\nhome = \"mongodb\"\nmongodb = {{ stripes = {{}} }}\n");
        insta::assert_snapshot!(errors(&text), @r#"
        x.toml:4: products.mongodb.stripes.products: expected at most 1000 product ids like ["019a8f5e-52c4-7c3e-9d5f-1f6b3c0a7e21"], got an array
        x.toml:7: users.mongodb.stripes: unknown key; expected one of grown_shard_key, shard_key, write
        "#);
    }
}
