//! Writes that a comparison meets half way: one that is made and copied between two reads of the same look, and one
//! that does not end.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use async_trait::async_trait;
use mobimir_core::{
    cart::{CartChange, Effect, Owner},
    id::{ChangeId, ProductId, UserId},
    moving::{Backlog, Found, InTable, Mark, Movable, Place, Range, Row, Rows, Scanned, WholeCart},
    ports::{CartStore, StoreResult},
    time::{Clock, Timestamp},
};
use mobimir_migrate::{
    record::Notes,
    throttle::Nobody,
    verify::{Compared, Comparison, Purpose},
};
use mobimir_testkit::model::ModelStore;
use tokio::time::Instant;
use uuid::Uuid;

use crate::world::Now;

const OWNER: Owner = Owner::User(UserId(Uuid::from_u128(1)));
const DAY_MS: i64 = 86_400_000;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Meanwhile {
    WrittenAndCopied,
    /// What was written is there, and its mark is not given out before the write has ended.
    SlowToEnd,
}

/// In how many reads of the cart a slow write has not ended.
const SLOW_READS: u64 = 6;

/// The deciding store. Its cart is written, or copied to the target, while it is read for the n-th time.
struct WrittenMeanwhile {
    meanwhile: Meanwhile,
    port: Arc<dyn CartStore>,
    store: Arc<dyn Movable<WholeCart>>,
    target: Arc<dyn Movable<WholeCart>>,
    clock: Arc<Now>,
    reads: AtomicU64,
}

impl WrittenMeanwhile {
    async fn add(&self, change: u128) {
        let now = self.clock.now();
        let effect = Effect::Add { product: ProductId(Uuid::from_u128(7)), quantity: 1, zone: None };
        let id = ChangeId(Uuid::from_u128(change));
        let change = CartChange { id, at: now, origin: OWNER, keyed: false, effect };
        self.port.append(OWNER, vec![change], now.plus_ms(DAY_MS), now).await.expect("the model answers");
    }

    async fn copy(&self) {
        let whole = self.store.whole(OWNER).await.expect("the model answers").whole.expect("it was written");
        self.target.put(vec![whole], self.clock.now()).await.expect("the model answers");
    }
}

#[async_trait]
impl Movable<WholeCart> for WrittenMeanwhile {
    async fn whole(&self, owner: Owner) -> StoreResult<Found<WholeCart>> {
        let read = self.reads.fetch_add(1, Ordering::Relaxed);
        match (self.meanwhile, read) {
            // The first look (two reads) has met a cart that was not copied. The second reads no mark; then comes a
            // write, which this read sees and the target does not yet. Before the look's last read it is copied,
            // and its mark is gone.
            (Meanwhile::WrittenAndCopied, 2) => {
                self.copy().await;
                self.add(2).await;
            }
            (Meanwhile::WrittenAndCopied, 3) | (Meanwhile::SlowToEnd, SLOW_READS) => self.copy().await,
            _ => {}
        }
        let found = self.store.whole(owner).await?;
        let is_being_written = self.meanwhile == Meanwhile::SlowToEnd && read < SLOW_READS;
        Ok(Found { is_being_written, ..found })
    }

    fn tables(&self) -> &'static [&'static str] {
        self.store.tables()
    }

    async fn count(&self) -> StoreResult<u64> {
        self.store.count().await
    }

    async fn ranges(&self, parts: usize) -> StoreResult<Vec<Range>> {
        self.store.ranges(parts).await
    }

    async fn scan(&self, range: &Range, limit: usize) -> StoreResult<Scanned<WholeCart>> {
        self.store.scan(range, limit).await
    }

    async fn put(&self, wholes: Vec<WholeCart>, now: Timestamp) -> StoreResult<()> {
        self.store.put(wholes, now).await
    }

    async fn in_tables(&self, whole: &WholeCart) -> StoreResult<Vec<InTable>> {
        self.store.in_tables(whole).await
    }

    async fn rows(
        &self,
        table: &'static str,
        after: Option<&Place>,
        limit: usize,
    ) -> StoreResult<Rows<Owner>> {
        self.store.rows(table, after, limit).await
    }

    async fn remove(&self, table: &'static str, row: &Row<Owner>) -> StoreResult<()> {
        self.store.remove(table, row).await
    }

    async fn unmirrored(&self, limit: usize) -> StoreResult<Vec<Mark<Owner>>> {
        self.store.unmirrored(limit).await
    }

    async fn backlog(&self) -> StoreResult<Backlog> {
        self.store.backlog().await
    }

    async fn mirrored(&self, marks: &[Mark<Owner>], read_at: Timestamp) -> StoreResult<()> {
        self.store.mirrored(marks, read_at).await
    }
}

/// Compares a cart that was written once, and not copied.
async fn compare(meanwhile: Meanwhile) -> (Compared, u64) {
    let [source, target] = [0, 1].map(|_| ModelStore::default().as_movables().carts);
    let clock = Arc::new(Now(Instant::now()));
    let written = Arc::new(WrittenMeanwhile {
        meanwhile,
        port: source.port,
        store: source.moving,
        target: target.moving.clone(),
        clock: clock.clone(),
        reads: AtomicU64::new(0),
    });
    written.add(1).await;
    let comparison = Comparison {
        notes: Notes::new(Arc::new(ModelStore::default()), "carts"),
        source: written.clone(),
        target: target.moving,
        clock,
        pressure: Arc::new(Nobody),
        purpose: Purpose::Recheck,
        number: 1,
        is_forward: true,
    };
    let compared = comparison.run(Arc::default()).await.expect("the models answer");
    (compared, written.reads.load(Ordering::Relaxed))
}

#[tokio::test(start_paused = true)]
async fn a_write_that_is_copied_between_two_reads_is_no_difference() {
    let (compared, reads) = compare(Meanwhile::WrittenAndCopied).await;
    assert!(reads > 3, "the cart was not looked at twice");
    assert_eq!(compared.total(), 0, "{:?}", compared.by_kind);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_has_not_ended_is_no_difference() {
    let (compared, reads) = compare(Meanwhile::SlowToEnd).await;
    assert!(reads > SLOW_READS, "the comparison did not wait for the write");
    assert_eq!(compared.total(), 0, "{:?}", compared.by_kind);
}
