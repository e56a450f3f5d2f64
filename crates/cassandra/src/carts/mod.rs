//! Carts: a row a change, folded when read and packed when long.
//!
//! Adding writes one row and reads nothing. A row's key is the change's id and the stamp of this write of it, so a
//! change that comes twice is two rows of one change, and the earlier counts. What a cart is follows from its rows
//! alone ([`gather`]): when it began, when it was touched last, when it ends, and which rows belong to a cart
//! that has ended since.
//!
//! Packing replaces rows by one ([`pack`](mobimir_core::cart::pack)). That is a decision: one conditional batch in the
//! cart's partition writes the packed row, if it is still the one that was read, and removes the rows that went
//! into it. All or nothing of it is seen, and a row that arrived meanwhile stays.
//!
//! Rows live a little longer than the cart ([`kept_beyond_ms`]), because every change makes the cart last longer and must
//! not rewrite the others for it. When the cart's end comes near the end of its oldest row, it is packed.

mod gather;
mod listing;
mod moving;
mod packing;
mod rows;

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use mobimir_core::{
    cart::{self, CartChange, CartPosition, Effect, Owner, StoredCart},
    id::{self, IdSet},
    page::Page,
    policy::{CassandraSettings, Entity, Level, OnDcLoss},
    ports::{CartStore, StoreResult},
    time::Timestamp,
};
use quick_cache::sync::Cache;
use scylla::response::{PagingState, query_result::QueryRowsResult};
use tokio::sync::Semaphore;
use uuid::Uuid;

pub(crate) use self::rows::COLUMNS;
pub use self::{
    gather::{Gathered, Plan as PackPlan},
    packing::settled_us,
    rows::StoredRow,
};

use self::rows::{Batched, ChangeRow, TouchRow};
use crate::{
    Cluster, ConnectError, DcState, StatementKind, cql,
    link::{Debts, Link, Owed, Statement, damaged},
    outbox::{Outbox, OutboxKey},
    partitions::PartitionKey,
    registers::Registers,
    stamps,
    turns::Turns,
};

pub struct CassandraCarts {
    inner: Arc<Inner>,
    /// Whether what is written is marked.
    is_tracked: bool,
}

/// How carts are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CartOptions {
    /// A cart with more rows is packed.
    pub rows_max: usize,
    /// Rows are packed when they are this old, so that the removal is later than the row by every clock of the cluster.
    pub packed_after_ms: i64,
    /// How covers of orders are written, if not as all other changes.
    pub order_covers: Option<OrderCovers>,
}

/// What an order takes out of a cart is as certain as the order, because no read of a cart may miss it (CRT-4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderCovers {
    pub write: Level,
    pub on_dc_loss: OnDcLoss,
}

impl OrderCovers {
    /// As the policy wants orders written.
    pub fn like(orders: &CassandraSettings) -> Self {
        Self { write: orders.write, on_dc_loss: orders.on_dc_loss }
    }
}

struct Inner {
    link: Link,
    options: CartOptions,
    add: Statement,
    add_order_cover: Statement,
    touch: Statement,
    read: Statement,
    pack: Statement,
    remove: Statement,
    touched: Statement,
    /// The time of the node that is asked.
    clock: Statement,
    registers: Registers,
    outbox: Outbox,
    copies: moving::Copies,
    turns: Turns,
    /// When this instance last listed a cart as touched.
    listed: Cache<Owner, Timestamp>,
    /// Carts that are being packed by this instance.
    packing: Mutex<IdSet<PackedOwner>>,
    packers: Semaphore,
}

type PackedOwner = mobimir_core::id::SessionId;

/// A cart is listed anew when this has passed since it was listed, so its last change is at most that much later.
const LISTED_FOR_MS: i64 = 60_000;
const LISTED_CARTS_MAX: usize = 100_000;
/// Bytes of a batch. A cluster refuses those of 50 KiB.
const BATCHED_BYTES_MAX: usize = 30 * 1_024;
/// What a row takes besides its body, about.
const ROW_BYTES: usize = 128;
const READ_PAGE_ROWS_HINT: usize = 5_000;

impl Default for CartOptions {
    fn default() -> Self {
        Self { rows_max: cart::UNPACKED_CHANGES_MAX, packed_after_ms: 60_000, order_covers: None }
    }
}

/// How much longer than the cart a row is kept that was written for a cart of this length.
pub(crate) const fn kept_beyond_ms(lasts_ms: i64) -> i64 {
    const DAY_MS: i64 = 24 * 3_600_000;
    const MINUTE_MS: i64 = 60_000;
    let eighth = lasts_ms / 8;
    if eighth > DAY_MS {
        DAY_MS
    } else if eighth < MINUTE_MS {
        MINUTE_MS
    } else {
        eighth
    }
}

/// Until when a row is kept.
fn kept_until(touched_at: Timestamp, expires_at: Timestamp) -> Timestamp {
    expires_at.plus_ms(kept_beyond_ms(expires_at.since(touched_at)))
}

impl CassandraCarts {
    pub async fn open(
        cluster: Arc<Cluster>,
        settings: CassandraSettings,
        options: CartOptions,
    ) -> Result<Self, ConnectError> {
        use StatementKind::{Decision, Read, Write};
        let covers = options.order_covers.unwrap_or(OrderCovers::like(&settings));
        let watched = if settings.write.needs_every_dc(&settings.replication) {
            settings.clone()
        } else {
            CassandraSettings { write: covers.write, on_dc_loss: covers.on_dc_loss, ..settings.clone() }
        };
        let link = Link::open_watching(cluster, Entity::Carts, settings, &watched).await?;
        let inner = Inner {
            add: link.prepare("add", Write, cql::ADD_TO_CART).await?,
            add_order_cover: link.prepare_write_at("add_order_cover", covers.write, cql::ADD_TO_CART).await?,
            touch: link.prepare("touch", Write, cql::TOUCH_CART).await?,
            read: link.prepare("read", Read, &cql::read_cart()).await?,
            pack: link.prepare("pack", Decision, cql::PACK_CART).await?,
            remove: link
                .prepare(
                    "remove",
                    Write,
                    "DELETE FROM {}.cart_changes WHERE owner_kind = ? AND owner = ? AND change_id = ? AND written_us = ?",
                )
                .await?,
            touched: link
                .prepare(
                    "touched",
                    Read,
                    "SELECT touched_at, owner_kind, owner FROM {}.carts_by_touch \
                    WHERE day = ? AND shard = ? AND touched_at >= ? AND touched_at <= ? LIMIT ?",
                )
                .await?,
            clock: link.prepare("clock", Read, "SELECT toUnixTimestamp(now()) FROM system.local").await?,
            registers: Registers::open(&link).await?,
            outbox: Outbox::open(&link).await?,
            copies: moving::Copies::open(&link).await?,
            turns: Turns::default(),
            listed: Cache::new(LISTED_CARTS_MAX),
            packing: Mutex::default(),
            packers: Semaphore::new(packing::PACKED_AT_ONCE),
            link,
            options,
        };
        let inner = Arc::new(inner);
        let debts: Arc<dyn Debts> = inner.clone();
        inner.link.watch(Arc::downgrade(&debts));
        Ok(Self { inner, is_tracked: false })
    }

    pub fn dc_state(&self) -> DcState {
        self.inner.link.dc_state()
    }
}

#[async_trait]
impl CartStore for CassandraCarts {
    async fn append(
        &self,
        owner: Owner,
        changes: Vec<CartChange>,
        expires_at: Timestamp,
        now: Timestamp,
    ) -> StoreResult<()> {
        let Inner { link, outbox, .. } = &*self.inner;
        let has_cover = changes.iter().any(is_order_cover);
        let add = if has_cover { &self.inner.add_order_cover } else { &self.inner.add };
        let append = self.inner.append(add, owner, &changes, expires_at, now);
        outbox.tracked(link, self.is_tracked, &[owner], append).await
    }

    async fn read(&self, owner: Owner, now: Timestamp) -> StoreResult<Option<StoredCart>> {
        let gathered = self.inner.gather(owner).await?;
        // Also while it moves, or a row would be gone before its cart. It may come when another store decides already: it
        // changes neither what the cart says nor how new it is, and is refused where a copy was put meanwhile.
        self.inner.pack_later(owner, &gathered, now);
        Ok(gathered.live(now))
    }

    async fn untouched(
        &self,
        untouched_since: Timestamp,
        after: Option<CartPosition>,
        limit: usize,
        now: Timestamp,
    ) -> StoreResult<Page<(Owner, StoredCart), CartPosition>> {
        self.inner.untouched(untouched_since, after, limit, now).await
    }
}

impl Inner {
    async fn append(
        &self,
        add: &Statement,
        owner: Owner,
        changes: &[CartChange],
        expires_at: Timestamp,
        now: Timestamp,
    ) -> StoreResult<()> {
        let stamp = self.link.stamps().next();
        let ttl_s = stamps::ttl_s(kept_until(now, expires_at));
        let row = |id: Uuid, body| ChangeRow { owner, id, stamp, touched_at: now, expires_at, body, ttl_s };
        let mut added: Vec<ChangeRow> = changes
            .iter()
            .map(|change| row(change.id.0, Some(mobimir_codec::cart_change::encode(change))))
            .collect();
        if added.is_empty() {
            added.push(row(id::fresh(now), None));
        }
        let (kind, id) = rows::key(owner);
        let bytes = added.iter().map(ChangeRow::bytes).sum::<usize>();
        self.link.partitions().wrote(
            "cart_changes",
            PartitionKey::Cart(kind, id),
            added.len() as u64,
            bytes as u64,
        );
        let is_listed = self.is_listed(owner, now);
        if is_listed && let [row] = &added[..] {
            return self.link.write(add, row.values(), owed(owner)).await;
        }
        let mut added = in_batches(added).into_iter().peekable();
        if !is_listed {
            // A row that fills a batch by itself does not go into the one that lists the cart.
            let fits =
                |rows: &Vec<ChangeRow>| rows.iter().map(ChangeRow::bytes).sum::<usize>() <= BATCHED_BYTES_MAX;
            let first = added.next_if(fits).unwrap_or_default();
            self.append_listed(add, owner, first, now, ttl_s, stamp).await?;
        }
        for mut rows in added {
            if rows.len() == 1
                && let Some(row) = rows.pop()
            {
                // However large it is.
                self.link.write(add, row.values(), owed(owner)).await?;
                continue;
            }
            // All in one partition.
            let batch = self.link.batch("add_many", &vec![add; rows.len()]);
            let rows: Vec<Batched> = rows.into_iter().map(Batched::Change).collect();
            self.link.write_batch(&batch, &rows, owed(owner)).await?;
        }
        Ok(())
    }

    /// Whether this instance has listed the cart so short a time before that it need not be listed again.
    fn is_listed(&self, owner: Owner, touched_at: Timestamp) -> bool {
        let listed_at = self.listed.get(&owner);
        listed_at.is_some_and(|at| at <= touched_at && touched_at.since(at) < LISTED_FOR_MS)
    }

    /// Adds rows, and lists the cart as touched.
    async fn append_listed(
        &self,
        add: &Statement,
        owner: Owner,
        rows: Vec<ChangeRow>,
        now: Timestamp,
        ttl_s: i32,
        stamp: i64,
    ) -> StoreResult<()> {
        let mut written: Vec<(&Statement, Batched)> =
            rows.into_iter().map(|row| (add, Batched::Change(row))).collect();
        written.push((&self.touch, Batched::Touch(TouchRow { owner, touched_at: now, ttl_s, stamp })));
        let registered = self.registers.row(listing::DAYS, i64::from(now.day().number()), stamp);
        written.extend(registered.map(|row| (&self.registers.note, Batched::Register(row))));
        self.link.write_all(&written, owed(owner)).await?;
        self.listed.insert(owner, now);
        if let Some(row) = registered {
            self.registers.written(&row);
        }
        Ok(())
    }

    async fn gather(&self, owner: Owner) -> StoreResult<Gathered> {
        self.gather_by(&self.read, owner).await
    }

    async fn gather_by(&self, read: &Statement, owner: Owner) -> StoreResult<Gathered> {
        let mut stored = Vec::new();
        let mut from = PagingState::start();
        loop {
            let (rows, next) = self.link.read_page(read, rows::key(owner), from).await?;
            stored.reserve(rows.rows_num().min(READ_PAGE_ROWS_HINT));
            decode_into(&mut stored, &rows)?;
            match next {
                Some(state) => from = state,
                None => return Ok(Gathered::of(stored)),
            }
        }
    }
}

fn is_order_cover(change: &CartChange) -> bool {
    matches!(change.effect, Effect::Cover { order: Some(_), .. })
}

fn decode_into(stored: &mut Vec<StoredRow>, rows: &QueryRowsResult) -> StoreResult<()> {
    for row in rows.rows::<rows::Raw<'_>>().map_err(|error| damaged("a cart", error))? {
        stored.push(StoredRow::decode(row.map_err(|error| damaged("a cart", error))?)?);
    }
    Ok(())
}

/// Rows in portions that a batch can hold, each with one at least.
fn in_batches(rows: Vec<ChangeRow>) -> Vec<Vec<ChangeRow>> {
    let mut batches: Vec<Vec<ChangeRow>> = Vec::new();
    let mut bytes = BATCHED_BYTES_MAX;
    for row in rows {
        let row_bytes = row.bytes();
        bytes += row_bytes;
        match batches.last_mut() {
            Some(last) if bytes <= BATCHED_BYTES_MAX => last.push(row),
            _ => {
                bytes = row_bytes;
                batches.push(vec![row]);
            }
        }
    }
    batches
}

fn owed(owner: Owner) -> Owed {
    let (kind, id) = rows::key(owner);
    let mut key = Vec::with_capacity(1 + id.as_bytes().len());
    key.push(kind.unsigned_abs());
    key.extend_from_slice(id.as_bytes());
    Owed(key)
}

#[async_trait]
impl Debts for Inner {
    async fn settle(&self, key: &[u8]) -> StoreResult<()> {
        let Some(owner) = Owner::from_bytes(key) else { return Ok(()) };
        self.link.read_of_all_replicas(&self.read, rows::key(owner)).await?;
        self.outbox.settle(&self.link, owner).await
    }
}
