//! Replica sets of real servers, and shards.
#![expect(clippy::unwrap_used, reason = "a test stops at what it does not expect")]

use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use mobimir_lab::{Mongo, MongoShards, MongoSpec};
use mongodb::{
    bson::{Bson, Document, doc},
    error::{ErrorKind, WriteFailure},
    options::{ReadConcern, WriteConcern},
    sync::{Client, Collection},
};

#[test]
fn a_set_elects_another_primary_and_leaves_nothing_behind() {
    let mongo = Mongo::ephemeral(&MongoSpec::for_tests(3)).unwrap();
    let (dir, addresses) = (mongo.dir().to_owned(), mongo.addresses());
    assert_eq!(addresses.len(), 3);
    assert_eq!(mongo.uri(), format!("mongodb://{}/?replicaSet={}", addresses.join(","), mongo.set()));
    let things = things(&mongo.uri());
    things.insert_one(doc! { "_id": 1 }).run().unwrap();

    let first = mongo.wait_primary().unwrap();
    let killed_at = Instant::now();
    mongo.kill(first).unwrap();
    assert_eq!(mongo.pid(first).unwrap(), None);
    let second = mongo.wait_primary().unwrap();
    assert_ne!(second, first);
    // A driver that was told of the failure asks again, and may find that it was done.
    within(|| things.insert_one(doc! { "_id": 2 }).run().map_or_else(|error| is_there(&error), |_| true));
    println!("majority writes again after {} ms", killed_at.elapsed().as_millis());
    mongo.start_member(first).unwrap();
    assert!(mongo.start_member(first).is_err(), "it runs already");
    mongo.wait_ready().unwrap();
    let returned = self::things(&mongo.member_uri(first).unwrap());
    within(|| returned.count_documents(doc! {}).run().unwrap() == 2);

    // Members that are late elect once more, and perhaps the same: then it is tried again.
    within(|| {
        let before = mongo.wait_primary().unwrap();
        let started = Instant::now();
        let after = mongo.step_down();
        println!("stepped down in {} ms", started.elapsed().as_millis());
        after.is_ok_and(|after| after != before)
    });

    let (mut third, mut fourth) = (0, 0);
    within(|| {
        third = mongo.wait_primary().unwrap();
        mongo.pause(third).unwrap();
        fourth = mongo.wait_primary().unwrap();
        assert_ne!(fourth, third, "one that says nothing is no primary");
        mongo.resume(third).unwrap();
        mongo.wait_ready().is_ok() && mongo.primary().is_ok_and(|primary| primary == fourth)
    });

    let started = Instant::now();
    mongo.stop(fourth).unwrap();
    println!("stopped in {} ms", started.elapsed().as_millis());
    mongo.pause(third).unwrap();
    assert_eq!(servers_below(&dir), 2);
    drop(mongo);
    assert_eq!(servers_below(&dir), 0);
    assert!(!dir.exists());
}

#[test]
fn a_member_that_does_not_apply_lags_and_majority_writes_go_on_without_it() {
    let mongo = Mongo::ephemeral(&MongoSpec::for_tests(2).non_voting(2)).unwrap();
    assert_eq!(mongo.wait_primary().unwrap(), 1);
    within(|| mongo.secondary().is_ok_and(|secondary| secondary == 2));
    let things = things(&mongo.uri());
    let lagging = self::things(&mongo.member_uri(2).unwrap());
    things.insert_one(doc! { "_id": 1 }).run().unwrap();
    within(|| lagging.count_documents(doc! {}).run().unwrap() == 1);

    mongo.stop_applying(2).unwrap();
    for id in 2..=50 {
        things.insert_one(doc! { "_id": id }).run().unwrap();
    }
    thread::sleep(Duration::from_secs(1));
    assert_eq!(lagging.count_documents(doc! {}).run().unwrap(), 1);
    mongo.resume_applying(2).unwrap();
    within(|| lagging.count_documents(doc! {}).run().unwrap() == 50);

    // One that lags can be ended.
    mongo.stop_applying(2).unwrap();
    mongo.stop(2).unwrap();
    mongo.start_member(2).unwrap();
    mongo.wait_primary().unwrap();
    assert_eq!(mongo.step_down().unwrap(), 1, "there is no other that may be");
}

#[test]
fn a_collection_is_split_over_shards_by_the_commands_of_a_router() {
    let shards = MongoShards::ephemeral(2).unwrap();
    let dir = shards.dir().to_owned();
    let run = |command: Document| shards.run_as_mongos("admin", command).unwrap();
    assert_eq!(run(doc! { "listShards": 1 }).get_array("shards").unwrap().len(), 2);
    assert_eq!(run(doc! { "balancerStatus": 1 }).get_str("mode").unwrap(), "off");

    run(doc! { "enableSharding": "lab", "primaryShard": "shard1" });
    run(doc! { "shardCollection": "lab.things", "key": { "k": 1 } });
    assert_eq!(chunks(&shards, "lab.things"), ["shard1"]);
    run(doc! { "split": "lab.things", "middle": { "k": 100 } });
    run(doc! { "split": "lab.things", "middle": { "k": 200 } });
    let first = things(&shards.shard_uri(1).unwrap());
    first.insert_many([doc! { "k": 1 }, doc! { "k": 150 }]).run().unwrap();
    run(doc! { "moveChunk": "lab.things", "find": { "k": 150 }, "to": "shard2", "_waitForDelete": true });
    assert_eq!(chunks(&shards, "lab.things"), ["shard1", "shard2", "shard1"]);
    let second = things(&shards.shard_uri(2).unwrap());
    let keys = |things: &Collection<Document>| things.distinct("k", doc! {}).run().unwrap();
    assert_eq!((keys(&first), keys(&second)), (vec![Bson::Int32(1)], vec![Bson::Int32(150)]));

    run(doc! { "shardCollection": "lab.hashed", "key": { "k": "hashed" }, "numInitialChunks": 4 });
    assert_eq!(chunks(&shards, "lab.hashed").len(), 4);
    run(doc! { "addShardToZone": "shard2", "zone": "MSK" });
    run(doc! { "updateZoneKeyRange": "lab.things", "min": { "k": 100 }, "max": { "k": 200 }, "zone": "MSK" });
    run(doc! { "balancerStart": 1 });
    run(doc! { "balancerStop": 1 });

    let refused = |command: Document| shards.run_as_mongos("admin", command).unwrap_err().to_string();
    assert!(refused(doc! { "flushRouterConfig": 1 }).contains("flushRouterConfig"));
    assert!(refused(doc! { "split": "lab.none", "middle": { "k": 1 } }).contains("lab.none is not sharded"));
    shards.kill(2).unwrap();
    shards.start_server(2).unwrap();
    assert_eq!(keys(&second), [Bson::Int32(150)]);
    drop(shards);
    assert_eq!(servers_below(&dir), 0);
}

/// Which shard has each chunk, in the order of keys.
fn chunks(shards: &MongoShards, namespace: &str) -> Vec<String> {
    let find = |collection: &str, filter: Document| -> Vec<Document> {
        let command = doc! { "find": collection, "filter": filter, "sort": { "min": 1 } };
        let answer = shards.run_as_mongos("config", command).unwrap();
        let batch = answer.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
        batch.iter().map(|document| document.as_document().unwrap().clone()).collect()
    };
    let collection = &find("collections", doc! { "_id": namespace })[0];
    let chunks = find("chunks", doc! { "uuid": collection.get("uuid").unwrap().clone() });
    chunks.iter().map(|chunk| chunk.get_str("shard").unwrap().to_owned()).collect()
}

fn things(uri: &str) -> Collection<Document> {
    let client = Client::with_uri_str(uri).unwrap();
    // Majority is the server's own choice, too; a test says so.
    let options = mongodb::options::CollectionOptions::builder()
        .write_concern(WriteConcern::majority())
        .read_concern(ReadConcern::local())
        .build();
    client.database("lab").collection_with_options("things", options)
}

/// The document was inserted before, by whoever tells of it.
fn is_there(error: &mongodb::error::Error) -> bool {
    const DUPLICATE_KEY: i32 = 11_000;
    matches!(&*error.kind, ErrorKind::Write(WriteFailure::WriteError(error)) if error.code == DUPLICATE_KEY)
}

fn within(mut is_so: impl FnMut() -> bool) {
    const PATIENCE: Duration = Duration::from_secs(180);
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE);
        thread::sleep(Duration::from_millis(50));
    }
}

/// How many processes name the directory, found without the help of the library.
fn servers_below(dir: &Path) -> usize {
    let dir = format!("--dbpath={}/", dir.display());
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter(|process| {
            let cmdline = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&cmdline).contains(&dir)
        })
        .count()
}
