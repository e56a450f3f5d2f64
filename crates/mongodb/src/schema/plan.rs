//! What has to be done so that a deployment has the indexes and shard keys that a policy asks for. Nothing is ever dropped.

use std::{collections::BTreeMap, fmt};

use futures_util::TryStreamExt;
use mobimir_core::policy::{Policy, ShardKey, ShardOrder};
use mongodb::bson::{Bson, Document, doc};
use thiserror::Error;

use super::{CollectionPlan, Index, Stands, of_policy};
use crate::deployment::Deployment;

/// A collection as a policy wants it.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    pub collection: CollectionPlan,
    /// None where it is not to be sharded.
    pub shard_key: ShardKey,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// In the order in which they have to be made.
    pub changes: Vec<Change>,
    /// What cannot be changed in place. As long as there is one, nothing is changed.
    pub conflicts: Vec<Conflict>,
    /// What the deployment has and the policy does not know.
    pub left_alone: Vec<String>,
}

/// One command.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Also makes the collection, if it is not there.
    CreateIndex {
        collection: &'static str,
        index: Index,
    },
    ShardCollection {
        collection: &'static str,
        key: ShardKey,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    pub collection: String,
    pub what: String,
}

#[derive(Debug, Error)]
pub enum SchemaError {
    #[error("cannot read what MongoDB has: {0}")]
    Unreadable(#[source] mongodb::error::Error),
    #[error("nothing was changed, because {} cannot be changed in place", .0.join(", "))]
    Conflicts(Vec<String>),
    #[error("after {done} of {of} changes MongoDB did not take this one: {change}: {source}")]
    Refused {
        done: usize,
        of: usize,
        change: String,
        #[source]
        source: mongodb::error::Error,
    },
}

/// What a deployment has of one collection.
#[derive(Clone, Debug, Default, PartialEq)]
struct Existing {
    /// By name, as `listIndexes` tells them.
    indexes: BTreeMap<String, Document>,
    shard_key: Option<Document>,
}

/// What a policy asks for in MongoDB.
pub fn wanted(policy: &Policy) -> Vec<Wanted> {
    let wanted = |collection: CollectionPlan| {
        let shard_key = shard_key(policy, &collection);
        Wanted { collection, shard_key }
    };
    of_policy(policy).into_iter().map(wanted).collect()
}

/// The policy's key is for the collection that an entity is named after. What stands beside it is found by id alone.
fn shard_key(policy: &Policy, collection: &CollectionPlan) -> ShardKey {
    let settings = policy.placement(collection.entity).and_then(|placement| placement.mongodb.as_ref());
    let key = settings.map_or_else(ShardKey::none, |settings| settings.shard_key.clone());
    match collection.stands {
        Stands::Alone => key,
        Stands::Beside if key.is_none() => key,
        Stands::Beside => ShardKey::hashed("_id"),
    }
}

/// Everything of it as commands of mongosh. Shard keys are for a deployment behind a mongos, and so are comments.
pub fn script(wanted: &[Wanted], database: &str) -> String {
    let mut text = format!("db = db.getSiblingDB(\"{database}\");\n");
    for wanted in wanted {
        for index in &wanted.collection.indexes {
            let change = Change::CreateIndex { collection: wanted.collection.name, index: index.clone() };
            text.push_str(&format!("{}\n", change.script(database)));
        }
        if let Some(change) = wanted.sharding() {
            text.push_str(&format!("// where it is sharded: {}\n", change.script(database)));
        }
    }
    text
}

impl Wanted {
    /// What shards the collection, where that is done at all.
    pub fn sharding(&self) -> Option<Change> {
        let key = self.shard_key.clone();
        (!key.is_none()).then_some(Change::ShardCollection { collection: self.collection.name, key })
    }
}

/// Compares what the policy asks for with what the deployment has.
pub async fn plan(deployment: &Deployment, wanted: &[Wanted]) -> Result<Plan, SchemaError> {
    let mut plan = Plan::default();
    let there = deployment.database().list_collection_names().await.map_err(SchemaError::Unreadable)?;
    for wanted in wanted {
        let name = wanted.collection.name;
        let mut existing = Existing::default();
        if there.iter().any(|there| there == name) {
            existing.read_indexes(deployment, name).await.map_err(SchemaError::Unreadable)?;
        }
        if deployment.is_sharded() {
            existing.read_shard_key(deployment, name).await.map_err(SchemaError::Unreadable)?;
        }
        plan.compare(wanted, &existing, deployment.is_sharded());
    }
    Ok(plan)
}

impl Existing {
    async fn read_indexes(&mut self, deployment: &Deployment, name: &str) -> mongodb::error::Result<()> {
        let collection = deployment.database().collection::<Document>(name);
        let mut cursor = collection.list_indexes().await?;
        while let Some(model) = cursor.try_next().await? {
            let options = model.options.unwrap_or_default();
            let mut index = doc! { "key": model.keys };
            if options.unique == Some(true) {
                index.insert("unique", true);
            }
            if let Some(after) = options.expire_after {
                index.insert("expires_after_s", i64::try_from(after.as_secs()).unwrap_or(i64::MAX));
            }
            if let Some(only) = options.partial_filter_expression {
                index.insert("only", only);
            }
            self.indexes.insert(options.name.unwrap_or_default(), index);
        }
        Ok(())
    }

    async fn read_shard_key(&mut self, deployment: &Deployment, name: &str) -> mongodb::error::Result<()> {
        let full = format!("{}.{name}", deployment.database().name());
        let collections = deployment.client().database("config").collection::<Document>("collections");
        let found = collections.find_one(doc! { "_id": full }).await?;
        self.shard_key = found.and_then(|found| found.get_document("key").ok().cloned());
        Ok(())
    }
}

impl Plan {
    /// Whether the deployment has everything as the policy says.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.conflicts.is_empty()
    }

    fn compare(&mut self, wanted: &Wanted, existing: &Existing, is_sharded: bool) {
        let collection = &wanted.collection;
        for index in &collection.indexes {
            match existing.indexes.get(index.name) {
                None => {
                    self.changes
                        .push(Change::CreateIndex { collection: collection.name, index: index.clone() });
                }
                Some(there) if same(there, &index.definition()) => {}
                Some(there) => self.conflict(
                    collection.name,
                    format!(
                        "the index {} is {there} and should be {}; drop it, and apply again",
                        index.name,
                        index.definition()
                    ),
                ),
            }
        }
        let known = |name: &str| name == "_id_" || collection.indexes.iter().any(|index| index.name == name);
        for name in existing.indexes.keys().filter(|name| !known(name)) {
            self.left_alone.push(format!("index {}.{name}", collection.name));
        }
        if is_sharded {
            self.compare_shard_key(wanted, existing.shard_key.as_ref());
        }
    }

    fn compare_shard_key(&mut self, wanted: &Wanted, existing: Option<&Document>) {
        let key = &wanted.shard_key;
        match existing {
            None => self.changes.extend(wanted.sharding()),
            Some(there) if same(there, &key_document(key)) => {}
            Some(there) => self.conflict(
                wanted.collection.name,
                format!("it is sharded by {there} and should be by {key}; reshardCollection changes that"),
            ),
        }
    }

    fn conflict(&mut self, collection: &str, what: String) {
        self.conflicts.push(Conflict { collection: collection.to_owned(), what });
    }
}

impl Index {
    /// As `createIndexes` takes them.
    fn options(&self) -> Document {
        let mut options = doc! { "name": self.name };
        if self.unique {
            options.insert("unique", true);
        }
        if self.expires {
            options.insert("expireAfterSeconds", 0);
        }
        if let Some(only) = &self.only {
            options.insert("partialFilterExpression", only.clone());
        }
        options
    }

    /// As [`Existing`] has it.
    fn definition(&self) -> Document {
        let mut definition = doc! { "key": self.keys.clone() };
        if self.unique {
            definition.insert("unique", true);
        }
        if self.expires {
            definition.insert("expires_after_s", 0_i64);
        }
        if let Some(only) = &self.only {
            definition.insert("only", only.clone());
        }
        definition
    }
}

impl Change {
    /// The command that makes it, and the database that takes it.
    pub fn command(&self, database: &str) -> (String, Document) {
        match self {
            Self::CreateIndex { collection, index } => {
                let mut definition = doc! { "key": index.keys.clone() };
                definition.extend(index.options());
                (database.to_owned(), doc! { "createIndexes": *collection, "indexes": [definition] })
            }
            Self::ShardCollection { collection, key } => {
                let full = format!("{database}.{collection}");
                ("admin".to_owned(), doc! { "shardCollection": full, "key": key_document(key) })
            }
        }
    }

    /// For mongosh, on the shop's database.
    pub fn script(&self, database: &str) -> String {
        match self {
            Self::CreateIndex { collection, index } => {
                let options = index.options();
                format!("db.{collection}.createIndex({}, {options});", index.keys)
            }
            Self::ShardCollection { collection, key } => {
                format!("sh.shardCollection(\"{database}.{collection}\", {});", key_document(key))
            }
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CreateIndex { collection, index } => {
                write!(f, "index {collection}.{} on {}", index.name, index.keys)
            }
            Self::ShardCollection { collection, key } => write!(f, "shard {collection} by {key}"),
        }
    }
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.collection, self.what)
    }
}

/// As MongoDB takes it.
fn key_document(key: &ShardKey) -> Document {
    let field = |(name, order): &(String, ShardOrder)| {
        let order = match order {
            ShardOrder::Ascending => Bson::Int32(1),
            ShardOrder::Hashed => Bson::String("hashed".to_owned()),
        };
        (name.clone(), order)
    };
    key.0.iter().map(field).collect()
}

/// Servers give numbers back in another type than they were given.
fn same(one: &Document, other: &Document) -> bool {
    fn alike(one: &Bson, other: &Bson) -> bool {
        match (one, other) {
            (Bson::Document(one), Bson::Document(other)) => same(one, other),
            (Bson::Array(one), Bson::Array(other)) => {
                one.len() == other.len() && one.iter().zip(other).all(|(one, other)| alike(one, other))
            }
            _ => match (number(one), number(other)) {
                (Some(one), Some(other)) => one == other,
                _ => one == other,
            },
        }
    }
    fn number(value: &Bson) -> Option<f64> {
        match value {
            Bson::Int32(number) => Some(f64::from(*number)),
            // Keys and times are small.
            Bson::Int64(number) => i32::try_from(*number).ok().map(f64::from),
            Bson::Double(number) => Some(*number),
            _ => None,
        }
    }
    one.len() == other.len()
        && one
            .iter()
            .zip(other)
            .all(|((name, one), (other_name, other))| name == other_name && alike(one, other))
}

#[cfg(test)]
mod tests {
    use mobimir_core::policy::Entity;

    use super::*;

    fn wanted(index: Index, key: &str) -> Wanted {
        let collection = CollectionPlan {
            entity: Entity::Orders,
            name: "orders",
            indexes: vec![index],
            stands: Stands::Alone,
        };
        Wanted { collection, shard_key: ShardKey::parse(key).expect("a shard key") }
    }

    #[test]
    fn what_is_missing_is_made_and_what_is_otherwise_is_named() {
        let index = Index::new("gone", doc! { "gone_at": 1 }).expires();
        let wanted = wanted(index.clone(), "{user_id: hashed}");
        let mut plan = Plan::default();
        plan.compare(&wanted, &Existing::default(), true);
        assert_eq!(plan.changes.len(), 2, "{plan:?}");
        assert_eq!(
            plan.changes[0].script("shop"),
            "db.orders.createIndex({ \"gone_at\": 1 }, { \"name\": \"gone\", \"expireAfterSeconds\": 0 });"
        );
        assert_eq!(
            plan.changes[1].script("shop"),
            "sh.shardCollection(\"shop.orders\", { \"user_id\": \"hashed\" });"
        );

        let mut existing = Existing { shard_key: Some(doc! { "user_id": "hashed" }), ..Existing::default() };
        existing.indexes.insert("_id_".into(), doc! { "key": { "_id": 1 } });
        // With the number as another type.
        existing.indexes.insert("gone".into(), doc! { "key": { "gone_at": 1.0 }, "expires_after_s": 0 });
        existing.indexes.insert("by_hand".into(), doc! { "key": { "a": 1 } });
        let mut plan = Plan::default();
        plan.compare(&wanted, &existing, true);
        assert!(plan.is_empty(), "{plan:?}");
        assert_eq!(plan.left_alone, ["index orders.by_hand"]);

        existing.indexes.insert("gone".into(), doc! { "key": { "gone_at": 1 } });
        existing.shard_key = Some(doc! { "_id": 1 });
        let mut plan = Plan::default();
        plan.compare(&wanted, &existing, true);
        assert_eq!((plan.changes.len(), plan.conflicts.len()), (0, 2), "{plan:?}");
        assert!(plan.conflicts[0].to_string().starts_with("orders: the index gone is"), "{plan:?}");
    }
}
