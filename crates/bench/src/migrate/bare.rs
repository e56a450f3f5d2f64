//! The bare driver loads the rows that a backfill writes: the same statements, prepared by hand, at the same levels.
//!
//! What is bound is encoded beforehand, and nothing is asked before it is written. All rows of an entity are sent at the same
//! time, and many entities at once.

use std::{collections::HashSet, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use futures_util::future::{try_join, try_join_all};
use mobimir_cassandra::schema;
use mobimir_core::{
    cart,
    id::{self, ChangeId},
    moving::{Whole, WholeCart, WholeOrder},
    policy::Entity,
    time::{Clock, SystemClock},
};
use scylla::{
    client::session::Session as Driver,
    errors::ExecutionError,
    response::query_result::QueryResult,
    serialize::row::SerializeRow,
    statement::{
        Consistency, SerialConsistency,
        batch::{Batch, BatchType},
        prepared::PreparedStatement,
    },
    value::{CqlValue, Row},
};
use tokio::time::sleep;
use uuid::Uuid;

use super::{stores::Stores, values::MOVES_MAX};
use crate::{
    cassandra::{
        driver::{self, at, consistency, key, month_of, now_us, prepared_statements},
        ring,
    },
    sides::CART_TTL_MS,
};

const FIX: &str = "UPDATE {}.orders SET user_id = ?, geo_zone = ?, created_at = ?, bucket = ?, total = ?, body = ? \
    WHERE order_id = ?";
const REPLACE: &str = "UPDATE {}.orders SET stands_at = ?, updated_at = ?, version = ?, moves = ? \
    WHERE order_id = ? IF version = ?";
const ADD_MOVE: &str =
    "INSERT INTO {}.orders (order_id, seq, status, at, operator, move_id) VALUES (?, ?, ?, ?, ?, ?)";
const BY_USER: &str = "INSERT INTO {}.orders_by_user (user_id, month, created_at, order_id, geo_zone, status, updated_at, \
    version, bucket, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) USING TIMESTAMP ?";
const BY_DAY: &str = "INSERT INTO {}.orders_by_day (day, bucket, created_at, order_id, user_id, geo_zone, status, \
    updated_at, version, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) USING TIMESTAMP ?";
const REGISTER: &str = "INSERT INTO {}.registers (list, entry) VALUES (?, ?) USING TIMESTAMP ?";
const PACK: &str = "UPDATE {}.cart_changes USING TTL ? SET touched_at = ?, expires_at = ?, body = ?, created_at = ?, \
    pack_id = ?, version = ?, rows = ? WHERE owner_kind = ? AND owner = ? AND change_id = ? AND written_us = ? IF pack_id = ?";
const TOUCH: &str = "INSERT INTO {}.carts_by_touch (day, shard, touched_at, owner_kind, owner) \
    VALUES (?, ?, ?, ?, ?) USING TTL ? AND TIMESTAMP ?";

/// What begins the condition of a statement.
const CONDITION: &str = " IF ";
/// How often a statement is sent, when its answer is lost.
const ATTEMPTS_MAX: usize = 5;
const RETRY_PAUSE: Duration = Duration::from_millis(100);
const TOUCH_SHARDS: u8 = 16;
const CART_TTL_S: i32 = (CART_TTL_MS / 1_000) as i32 + 86_400;

/// Loads entities of one kind.
pub(super) trait Load: Send + Sync + 'static {
    type Whole: Whole;
    /// An entity as its rows are bound.
    type Rows: Send + Sync + 'static;

    /// Everything that need not be done while it is timed. Of partitions that come more than once the first registers them.
    fn prepare(&self, wholes: &[Self::Whole]) -> Result<Vec<Self::Rows>>;

    fn load(&self, rows: &Self::Rows) -> impl Future<Output = Result<()>> + Send;
}

/// Values of any statement.
type Values<'a> = Box<dyn SerializeRow + Send + Sync + 'a>;

pub(super) struct Orders {
    driver: Arc<Driver>,
    is_decided: bool,
    /// By the number of moves.
    replace: Vec<Batch>,
    by_user: PreparedStatement,
    by_day: PreparedStatement,
    register: PreparedStatement,
}

pub(super) struct OrderRows {
    whole: WholeOrder,
    body: Vec<u8>,
    total: String,
    month: i32,
    registers: Vec<(String, i64)>,
}

pub(super) struct Carts {
    driver: Arc<Driver>,
    pack: PreparedStatement,
    touch: PreparedStatement,
    register: PreparedStatement,
}

pub(super) struct CartRows {
    whole: WholeCart,
    pack_id: Uuid,
    body: Vec<u8>,
    registers: Vec<(String, i64)>,
}

/// Prepares statements of one entity's ports.
struct Preparing<'a> {
    driver: &'a Driver,
    keyspace: String,
    level: Consistency,
}

impl<'a> Preparing<'a> {
    fn new(driver: &'a Driver, stores: &Stores<'_>, entity: Entity) -> Result<Self> {
        let settings = ring::settings(&stores.policy, entity)?;
        let keyspace = schema::keyspace_name(ring::PREFIX, entity);
        Ok(Self { driver, keyspace, level: consistency(settings.write)? })
    }

    async fn prepare(&self, cql: &str) -> Result<PreparedStatement> {
        let text = cql.replace("{}", &self.keyspace);
        let is_of_ports = prepared_statements(self.driver).await?.contains(&text);
        ensure!(is_of_ports, "the ports have no such statement any more: {text}");
        self.any(cql).await
    }

    /// One of theirs without its condition.
    async fn alone(&self, cql: &str) -> Result<PreparedStatement> {
        let (cql, _) = cql.split_once(CONDITION).context("a statement has no condition")?;
        self.any(cql).await
    }

    async fn any(&self, cql: &str) -> Result<PreparedStatement> {
        let cql = cql.replace("{}", &self.keyspace);
        let mut prepared = self.driver.prepare(cql.as_str()).await?;
        prepared.set_consistency(self.level);
        prepared.set_serial_consistency(Some(SerialConsistency::LocalSerial));
        Ok(prepared)
    }
}

impl Orders {
    pub(super) async fn connect(stores: &Stores<'_>) -> Result<Self> {
        Self::open(stores, true).await
    }

    /// Writes the same rows without asking whether others are there, as who is alone in a cluster may.
    pub(super) async fn undecided(stores: &Stores<'_>) -> Result<Self> {
        Self::open(stores, false).await
    }

    async fn open(stores: &Stores<'_>, is_decided: bool) -> Result<Self> {
        let driver = driver::connect(&stores.servers.ring).await?;
        let preparing = Preparing::new(&driver, stores, Entity::Orders)?;
        let (fix, add) = (preparing.prepare(FIX).await?, preparing.prepare(ADD_MOVE).await?);
        let replace =
            if is_decided { preparing.prepare(REPLACE).await? } else { preparing.alone(REPLACE).await? };
        let batch = |moves: usize| {
            let mut batch = Batch::new(BatchType::Unlogged);
            batch.set_consistency(preparing.level);
            batch.set_serial_consistency(Some(SerialConsistency::LocalSerial));
            let adds = std::iter::repeat_n(&add, moves);
            [&fix, &replace].into_iter().chain(adds).for_each(|one| batch.append_statement(one.clone()));
            batch
        };
        Ok(Self {
            replace: (0..=MOVES_MAX).map(batch).collect(),
            by_user: preparing.prepare(BY_USER).await?,
            by_day: preparing.prepare(BY_DAY).await?,
            register: preparing.prepare(REGISTER).await?,
            driver: Arc::new(driver),
            is_decided,
        })
    }

    async fn replace(&self, OrderRows { whole, body, total, .. }: &OrderRows) -> Result<()> {
        let WholeOrder { order, history } = whole;
        let (id, version) = (order.id.0, order.version.0.cast_signed());
        let (created_at, bucket) = (at(order.created_at), i32::from(order.bucket));
        let newest = i32::try_from(history.len())? - 1;
        let (status, updated_at) = (order.status.as_str(), at(order.updated_at));
        let mut rows: Vec<Values<'_>> = vec![
            Box::new((
                order.user_id.0,
                order.geo_zone.as_str(),
                created_at,
                bucket,
                total,
                body.as_slice(),
                id,
            )),
            match self.is_decided {
                true => Box::new((status, updated_at, version, newest, id, None::<i64>)),
                false => Box::new((status, updated_at, version, newest, id)),
            },
        ];
        for (change, seq) in history.iter().zip(0i32..) {
            let move_id = id::derived("order-move-copied", &[order.id.as_bytes(), &seq.to_be_bytes()]);
            let operator = change.operator.as_deref();
            rows.push(Box::new((id, seq, change.status.as_str(), at(change.at), operator, move_id)));
        }
        let batch = self.replace.get(history.len()).context("an order has too many moves")?;
        if self.is_decided {
            return decided(|| self.driver.batch(batch, &rows)).await;
        }
        sent(|| self.driver.batch(batch, &rows)).await?;
        Ok(())
    }

    async fn list(&self, OrderRows { whole, body, month, .. }: &OrderRows) -> Result<()> {
        let order = &whole.order;
        let (id, user, zone, status) =
            (order.id.0, order.user_id.0, order.geo_zone.as_str(), order.status.as_str());
        let (created_at, updated_at) = (at(order.created_at), at(order.updated_at));
        let (bucket, version) = (i32::from(order.bucket), order.version.0.cast_signed());
        let (body, day) = (body.as_slice(), order.day().number());
        let user_row =
            (user, *month, created_at, id, zone, status, updated_at, version, bucket, body, version);
        let day_row = (day, bucket, created_at, id, user, zone, status, updated_at, version, body, version);
        try_join(
            sent(|| self.driver.execute_unpaged(&self.by_user, &user_row)),
            sent(|| self.driver.execute_unpaged(&self.by_day, &day_row)),
        )
        .await?;
        Ok(())
    }
}

impl Load for Orders {
    type Whole = WholeOrder;
    type Rows = OrderRows;

    fn prepare(&self, wholes: &[WholeOrder]) -> Result<Vec<OrderRows>> {
        let mut registered = HashSet::new();
        let rows = wholes.iter().map(|whole| {
            let order = &whole.order;
            let month = month_of(order.created_at)?;
            let mut registers = vec![
                (format!("months/{}", order.user_id), i64::from(month)),
                (format!("buckets/{}", order.day().number()), i64::from(order.bucket)),
            ];
            registers.retain(|entry| registered.insert(entry.clone()));
            let (body, total) = (mobimir_codec::order_body::encode(order), order.total().to_string());
            Ok(OrderRows { whole: whole.clone(), body, total, month, registers })
        });
        rows.collect()
    }

    async fn load(&self, rows: &OrderRows) -> Result<()> {
        let registered = register(&self.driver, &self.register, &rows.registers);
        futures_util::try_join!(self.replace(rows), self.list(rows), registered)?;
        Ok(())
    }
}

impl Carts {
    pub(super) async fn connect(stores: &Stores<'_>) -> Result<Self> {
        let driver = driver::connect(&stores.servers.ring).await?;
        let preparing = Preparing::new(&driver, stores, Entity::Carts)?;
        Ok(Self {
            pack: preparing.prepare(PACK).await?,
            touch: preparing.prepare(TOUCH).await?,
            register: preparing.prepare(REGISTER).await?,
            driver: Arc::new(driver),
        })
    }
}

impl Load for Carts {
    type Whole = WholeCart;
    type Rows = CartRows;

    fn prepare(&self, wholes: &[WholeCart]) -> Result<Vec<CartRows>> {
        let mut registered = HashSet::new();
        let rows = wholes.iter().map(|whole| {
            let (now, pack_id) = (whole.cart.updated_at, id::fresh(whole.cart.updated_at));
            let packed = cart::pack(ChangeId(pack_id), whole.owner, &whole.cart.changes, now);
            let mut registers = vec![("touched".to_owned(), i64::from(now.day().number()))];
            registers.retain(|entry| registered.insert(entry.clone()));
            let body = mobimir_codec::cart_change::encode(&packed);
            CartRows { whole: whole.clone(), pack_id, body, registers }
        });
        Ok(rows.collect())
    }

    async fn load(&self, CartRows { whole, pack_id, body, registers }: &CartRows) -> Result<()> {
        let ((kind, owner), cart) = (key(whole.owner), &whole.cart);
        let [touched_at, expires_at, created_at] =
            [cart.updated_at, cart.expires_at, cart.created_at].map(at);
        let version = whole.version.0.cast_signed();
        let of_row = (kind, owner, Uuid::nil(), 0i64);
        let packed = (
            CART_TTL_S,
            touched_at,
            expires_at,
            body.as_slice(),
            created_at,
            *pack_id,
            version,
            0i64,
            of_row.0,
            of_row.1,
            of_row.2,
            of_row.3,
            None::<Uuid>,
        );
        let (day, shard) =
            (cart.updated_at.day().number(), (owner.as_bytes()[15] % TOUCH_SHARDS).cast_signed());
        let touched = (day, shard, touched_at, kind, owner, CART_TTL_S, now_us(SystemClock.now()));
        let decide = decided(|| self.driver.execute_unpaged(&self.pack, &packed));
        let touch = sent(|| self.driver.execute_unpaged(&self.touch, &touched));
        futures_util::try_join!(decide, touch, register(&self.driver, &self.register, registers))?;
        Ok(())
    }
}

async fn register(driver: &Driver, statement: &PreparedStatement, entries: &[(String, i64)]) -> Result<()> {
    let stamp = now_us(SystemClock.now());
    let writes = entries
        .iter()
        .map(|(list, entry)| sent(move || driver.execute_unpaged(statement, (list, *entry, stamp))));
    try_join_all(writes).await?;
    Ok(())
}

/// Sent again when its answer is lost, as a good loader does. Of what is decided the row may be there already then: nobody else
/// has its key.
async fn decided<F>(send: impl Fn() -> F) -> Result<()>
where
    F: Future<Output = Result<QueryResult, ExecutionError>>,
{
    let (result, attempts) = sent(send).await?;
    ensure!(is_applied(result)? || attempts > 1, "a row was there before");
    Ok(())
}

/// The answer, and how often it was asked for.
async fn sent<F>(send: impl Fn() -> F) -> Result<(QueryResult, usize)>
where
    F: Future<Output = Result<QueryResult, ExecutionError>>,
{
    let mut attempts = 1;
    loop {
        match send().await {
            Ok(result) => return Ok((result, attempts)),
            Err(error) if attempts == ATTEMPTS_MAX => return Err(error.into()),
            Err(_) => sleep(RETRY_PAUSE).await,
        }
        attempts += 1;
    }
}

fn is_applied(result: QueryResult) -> Result<bool> {
    let rows = result.into_rows_result()?;
    let first = rows.first_row::<Row>()?.columns.into_iter().next().flatten();
    first.as_ref().and_then(CqlValue::as_boolean).context("expected [applied] in a decision's answer")
}

#[cfg(test)]
mod tests {
    use mobimir_cassandra::cql;

    use super::*;

    /// Without a server: [`Preparing::prepare`] checks the same against what the ports have prepared.
    #[test]
    fn the_statements_are_those_of_the_ports() {
        let pairs = [
            (FIX, cql::FIX_ORDER),
            (REPLACE, cql::REPLACE_ORDER),
            (ADD_MOVE, cql::COPY_MOVE),
            (BY_USER, cql::LIST_BY_USER),
            (BY_DAY, cql::LIST_BY_DAY),
            (REGISTER, cql::REGISTER),
            (PACK, cql::PACK_CART),
            (TOUCH, cql::TOUCH_CART),
        ];
        for (bare, of_port) in pairs {
            assert_eq!(bare, of_port);
        }
    }
}
