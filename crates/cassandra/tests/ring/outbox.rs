//! The outbox of a migration costs a poll what waits in it, not what was copied since somebody last
//! compacted.

use std::sync::Arc;

use futures_util::stream::{self, StreamExt};
use mobimir_cassandra::{CassandraCarts, RequestLog};
use mobimir_core::{
    cart::Owner,
    moving::CartSide,
    policy::{Entity, Policy},
    time::{Clock, SystemClock},
};

use crate::{
    carts,
    orders::block_on,
    support::{self, Fresh},
};

/// Entries that are written and removed before the outbox is polled.
const ENTRIES_VARIABLE: &str = "MOBIMIR_OUTBOX_ENTRIES";
const ENTRIES_DEFAULT: usize = 2_000;
const WRITTEN_AT_ONCE: usize = 32;
/// Two slots that may still get entries, seldom three, are read with what was removed from them.
const TOMBSTONES_MAX: u64 = 1_600;

fn entries() -> usize {
    let asked_for = std::env::var(ENTRIES_VARIABLE).ok();
    asked_for.map_or(ENTRIES_DEFAULT, |entries| entries.parse().expect("a number of entries"))
}

/// One more instance on the same tables.
async fn instance(
    fresh: &Fresh,
    policy: &Policy,
    log: Option<Arc<RequestLog>>,
) -> (Fresh, Arc<CassandraCarts>) {
    let ring = support::shared();
    let cluster = support::connect(ring.ring, policy, &fresh.prefix, log.clone()).await;
    let fresh = Fresh { cluster, prefix: fresh.prefix.clone(), log };
    let store = carts::open(&fresh, policy).await;
    (fresh, store)
}

async fn write(side: &CartSide, owner: Owner) {
    let now = SystemClock.now();
    let add = carts::add(owner, now);
    support::answered("a tracked write", || {
        side.tracked.append(owner, vec![add.clone()], now.plus_s(3_600), now)
    })
    .await;
}

async fn copy(side: &CartSide, owner: Owner) {
    let found = support::answered("a cart", || side.moving.whole(owner)).await;
    assert_eq!(found.marks.len(), 1, "the write is over");
    support::answered("an entry is removed", || side.moving.mirrored(&found.marks, SystemClock.now())).await;
}

/// Tombstones that one replica met while it answered these requests, from what the nodes wrote down.
async fn tombstones(fresh: &Fresh) -> u64 {
    let (session, log) = (fresh.cluster.session(), fresh.log.as_ref().expect("requests are written down"));
    let select = "SELECT activity FROM system_traces.events WHERE session_id = ?";
    let mut met = 0;
    for seen in log.take() {
        let trace = seen.trace.expect("every request is traced");
        met += support::until_some("a read is written down", async || {
            let rows = session.query_unpaged(select, (trace,)).await.ok()?.into_rows_result().ok()?;
            let events = rows.rows::<(String,)>().expect("events").flatten();
            events.filter_map(|(activity,)| met_by(&activity)).max()
        })
        .await;
    }
    met
}

/// "Read 3 live rows and 40 tombstone cells"
fn met_by(activity: &str) -> Option<u64> {
    let (_, counted) = activity.strip_prefix("Read ")?.split_once(" and ")?;
    counted.split_once(" tombstone cells")?.0.parse().ok()
}

#[test]
fn a_poll_meets_what_waits_and_not_what_was_copied() {
    let ring = support::shared();
    let policy = support::policy("default");
    block_on(async {
        let fresh = support::fresh(ring.ring, &policy, &[Entity::Carts]).await;
        let writer = carts::open(&fresh, &policy).await.side();
        let (watched, reader) = instance(&fresh, &policy, Some(Arc::new(RequestLog::with_traces()))).await;
        let reader = reader.side().moving;
        let waiting: Vec<Owner> = (0..3).map(|_| carts::owner()).collect();
        for owner in &waiting {
            write(&writer, *owner).await;
        }
        let (halfway, all) = (entries() / 2, entries());
        for entries in [halfway, all - halfway] {
            stream::iter(0..entries)
                .for_each_concurrent(WRITTEN_AT_ONCE, async |_| {
                    let owner = carts::owner();
                    write(&writer, owner).await;
                    copy(&writer, owner).await;
                })
                .await;
            // Whoever polls twice a second has seen most of it before.
            let backlog = support::answered("a backlog", || reader.backlog()).await;
            assert_eq!(backlog.entities, waiting.len() as u64);
        }
        watched.log.as_ref().expect("requests are written down").take();
        let marked = support::answered("a poll", || reader.unmirrored(500)).await;
        let mut keys: Vec<Owner> = marked.iter().map(|mark| mark.key).collect();
        keys.sort();
        assert_eq!(keys, {
            let mut waiting = waiting.clone();
            waiting.sort();
            waiting
        });
        let met = tombstones(&watched).await;
        println!(
            "{all} entries written and removed: a poll meets {met} tombstones and {} entries",
            keys.len()
        );
        assert!(met <= TOMBSTONES_MAX, "a poll meets {met} tombstones after {all} entries");

        // The gate opens when everything is copied, for whoever looks, one that has just started included.
        for owner in &waiting {
            copy(&writer, *owner).await;
        }
        let (_started, started) = instance(&fresh, &policy, None).await;
        for moving in [reader, started.side().moving] {
            assert_eq!(moving.backlog().await.unwrap().entities, 0);
        }
    });
}
