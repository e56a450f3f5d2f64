//! Shard keys, on real shards and a real config server. There is no router to be had for tests, so the lab stands in for one
//! and says the router's commands in the words of the servers behind it.

use mobimir_core::policy::{BUILT_IN, Policy};
use mobimir_lab::MongoShards;
use mobimir_mongodb::schema;
use mongodb::bson::{Document, doc};

/// MongoDB takes the shard keys of every policy, and no two of them are mixed up.
#[test]
fn every_policys_collections_are_sharded_as_it_says() {
    let shards = MongoShards::ephemeral(2).expect("shards can be started");
    let run = |database: &str, command: Document| shards.run_as_mongos(database, command).unwrap();
    let mut keys = Vec::new();
    for built_in in BUILT_IN {
        let policy = Policy::parse(built_in.text, built_in.name).unwrap();
        let database = format!("shop_{}", built_in.name.replace('-', "_"));
        run("admin", doc! { "enableSharding": &database });
        for wanted in schema::wanted(&policy) {
            let Some(change) = wanted.sharding() else { continue };
            let (on, command) = change.command(&database);
            let name = format!("{database}.{}", wanted.collection.name);
            run(&on, command.clone());
            let found = run("config", doc! { "find": "collections", "filter": { "_id": &name } });
            let found = found.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
            let [found] = found.as_slice() else { panic!("{name} is not sharded: {found:?}") };
            let found = found.as_document().unwrap().get_document("key").unwrap();
            assert_eq!(found, command.get_document("key").unwrap(), "{name}");
            keys.push(format!("{name} {}", wanted.shard_key));
        }
    }
    for expected in [
        "shop_default.orders {user_id: hashed}",
        "shop_default.carts {owner_id: hashed}",
        "shop_history_only.products {category: 1, _id: 1}",
        "shop_history_only.checkouts {_id: hashed}",
    ] {
        assert!(keys.iter().any(|key| key == expected), "{expected}: {keys:#?}");
    }
}
