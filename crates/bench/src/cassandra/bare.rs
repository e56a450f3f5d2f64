//! With the bare driver: the statements of the ports, prepared by hand, at the same levels and as much at the same time.
//!
//! Values are bound as they come, and bodies are encoded beforehand. Rows are looked at column by column and not
//! made into anything.

use std::{net::IpAddr, sync::Arc};

use anyhow::{Result, ensure};
use futures_util::future::{try_join, try_join3};
use mobimir_cassandra::schema;
use mobimir_core::{
    cart::{CartChange, Owner},
    id::{self, OrderId, SessionId, UserId},
    order::Order,
    policy::{Entity, Policy},
    session::{RefreshToken, Session},
    time::{Clock, SystemClock, Timestamp},
    zone::Zone,
};
use mobimir_lab::Ring;
use scylla::{
    SerializeRow,
    client::session::Session as Driver,
    response::PagingState,
    statement::{Consistency, prepared::PreparedStatement},
    value::{CqlTimestamp, MaybeUnset},
};
use uuid::Uuid;

use super::{
    driver::{self, at, consistency, key, month_of, now_us, prepared_statements},
    ring,
};
use crate::sides::{self, CART_TTL_MS, SESSION_TTL_MS, Side};

const ADD: &str = "INSERT INTO {}.cart_changes (owner_kind, owner, change_id, written_us, touched_at, expires_at, body) \
    VALUES (?, ?, ?, ?, ?, ?, ?) USING TTL ? AND TIMESTAMP ?";
const READ_CART: &str = "SELECT change_id, written_us, touched_at, expires_at, body, created_at, version, rows \
    FROM {}.cart_changes WHERE owner_kind = ? AND owner = ?";
const FIRST: &str = "INSERT INTO {}.orders (order_id, seq, user_id, geo_zone, created_at, bucket, total, body, status, at, \
    updated_at, version, stands_at, moves) VALUES (?, 0, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0) USING TIMESTAMP ?";
const BY_USER: &str = "INSERT INTO {}.orders_by_user (user_id, month, created_at, order_id, geo_zone, status, updated_at, \
    version, bucket, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) USING TIMESTAMP ?";
const BY_DAY: &str = "INSERT INTO {}.orders_by_day (day, bucket, created_at, order_id, user_id, geo_zone, status, \
    updated_at, version, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) USING TIMESTAMP ?";
const NOTE_NEW: &str = "INSERT INTO {}.pending_moves (slot, shard, noted_us, order_id, move_id, seq, user_id, geo_zone, \
    created_at, bucket, body, status, updated_at, version) \
    VALUES (?, ?, ?, ?, ?, 0, ?, ?, ?, ?, ?, ?, ?, ?) USING TIMESTAMP ?";
const REMOVE_NOTE: &str = "DELETE FROM {}.pending_moves USING TIMESTAMP ? \
    WHERE slot = ? AND shard = ? AND noted_us = ? AND order_id = ? AND move_id = ?";
const READ_ORDER: &str = "SELECT user_id, geo_zone, created_at, bucket, body, stands_at, updated_at, version, moves \
    FROM {}.orders WHERE order_id = ? LIMIT 1";
const INSERT_SESSION: &str = "UPDATE {}.sessions USING TTL :ttl AND TIMESTAMP :stamp SET user_id = :user_id, \
    token_hash = :token_hash, state = :state, state_at = :state_at, closed_into = :closed_into, merged = :merged, \
    ip_address = :ip_address, user_agent = :user_agent, device = :device, created_at = :created_at, \
    last_active = :last_active, expires_at = :expires_at, version = :version, changed_by = :changed_by \
    WHERE bucket = :bucket AND session_id = :session_id";
const LIST_SESSION: &str = "INSERT INTO {}.sessions_by_user (user_id, created_at, session_id) VALUES (?, ?, ?) \
    USING TTL ? AND TIMESTAMP ?";
const GIVE_TOKEN: &str = "INSERT INTO {}.refresh_tokens (hash, session_id, expires_at) VALUES (?, ?, ?) \
    USING TTL ? AND TIMESTAMP ?";
const READ_SESSION: &str = "SELECT user_id, token_hash, state, state_at, closed_into, merged, ip_address, user_agent, \
    device, created_at, last_active, expires_at, version, changed_by, WRITETIME(version) AS written_us \
    FROM {}.sessions WHERE bucket = ? AND session_id = ?";

const CART_TTL_S: i32 = (CART_TTL_MS / 1_000) as i32 + 86_400;
const SESSION_TTL_S: i32 = (SESSION_TTL_MS / 1_000) as i32;
/// Without buckets all sessions have the same.
const SESSION_BUCKET: i32 = 0;
/// Notes of orders stand in slots of time, each in shards.
const SLOT_US: i64 = 60_000_000;
const SHARDS: u8 = 16;
/// Where a row's first write stands before the decisions that change it.
const FIRST_WRITE_BACK_US: i64 = 3_600_000_000;

pub(super) struct Bare {
    driver: Arc<Driver>,
    add: PreparedStatement,
    read_cart: PreparedStatement,
    read_order: PreparedStatement,
    read_session: PreparedStatement,
    note_new: PreparedStatement,
    remove_note: PreparedStatement,
    /// By id, by user, by day.
    insert_order: [PreparedStatement; 3],
    /// The session, its place in the list of its user, its refresh token.
    insert_session: [PreparedStatement; 3],
    change_body: Vec<u8>,
    order_body: Vec<u8>,
    month: i32,
}

#[derive(SerializeRow)]
#[scylla(flavor = "enforce_order", skip_name_checks)]
struct SessionRow<'a> {
    ttl: i32,
    stamp: i64,
    user_id: Option<Uuid>,
    token_hash: &'a [u8],
    state: &'static str,
    state_at: MaybeUnset<CqlTimestamp>,
    closed_into: MaybeUnset<Uuid>,
    merged: MaybeUnset<bool>,
    ip_address: Option<IpAddr>,
    user_agent: Option<&'a str>,
    device: Option<&'a str>,
    created_at: CqlTimestamp,
    last_active: CqlTimestamp,
    expires_at: CqlTimestamp,
    version: i64,
    changed_by: Uuid,
    bucket: i32,
    session_id: Uuid,
}

/// change_id, written_us, touched_at, expires_at, body, created_at, version, rows
type CartRow<'a> =
    (Uuid, i64, CqlTimestamp, CqlTimestamp, Option<&'a [u8]>, Option<CqlTimestamp>, Option<i64>, Option<i64>);
/// user_id, geo_zone, created_at, bucket, body, stands_at, updated_at, version, moves
type OrderRow<'a> = (Uuid, &'a str, CqlTimestamp, i32, &'a [u8], &'a str, CqlTimestamp, i64, i32);
/// user_id, token_hash, state, state_at, closed_into, merged, ip_address, user_agent, device, created_at, last_active,
/// expires_at, version, changed_by, and when version was written
type StoredSession<'a> = (
    Option<Uuid>,
    Option<&'a [u8]>,
    Option<&'a str>,
    Option<CqlTimestamp>,
    Option<Uuid>,
    Option<bool>,
    Option<IpAddr>,
    Option<&'a str>,
    Option<&'a str>,
    Option<CqlTimestamp>,
    Option<CqlTimestamp>,
    Option<CqlTimestamp>,
    Option<i64>,
    Option<Uuid>,
    Option<i64>,
);

impl Bare {
    /// After the ports are open: it checks that its statements are theirs.
    pub(super) async fn connect(ring: &Ring, policy: &Policy) -> Result<Self> {
        let driver = driver::connect(ring).await?;
        let of_ports = prepared_statements(&driver).await?;
        let prepare = async |entity, cql: &str, level| -> Result<PreparedStatement> {
            let cql = cql.replace("{}", &schema::keyspace_name(ring::PREFIX, entity));
            ensure!(of_ports.contains(&cql), "the ports have no such statement any more: {cql}");
            let mut prepared = driver.prepare(cql).await?;
            prepared.set_consistency(level);
            Ok(prepared)
        };
        let levels = |entity| -> Result<(Consistency, Consistency)> {
            let settings = ring::settings(policy, entity)?;
            Ok((consistency(settings.read)?, consistency(settings.write)?))
        };
        let (carts, orders, sessions) =
            (levels(Entity::Carts)?, levels(Entity::Orders)?, levels(Entity::Sessions)?);
        let add = prepare(Entity::Carts, ADD, carts.1).await?;
        let read_cart = prepare(Entity::Carts, READ_CART, carts.0).await?;
        let read_order = prepare(Entity::Orders, READ_ORDER, orders.0).await?;
        let read_session = prepare(Entity::Sessions, READ_SESSION, sessions.0).await?;
        let order = async |cql| prepare(Entity::Orders, cql, orders.1).await;
        let session = async |cql| prepare(Entity::Sessions, cql, sessions.1).await;
        let note_new = order(NOTE_NEW).await?;
        let remove_note = order(REMOVE_NOTE).await?;
        let insert_order = [order(FIRST).await?, order(BY_USER).await?, order(BY_DAY).await?];
        let insert_session =
            [session(INSERT_SESSION).await?, session(LIST_SESSION).await?, session(GIVE_TOKEN).await?];
        let (now, user) = (SystemClock.now(), UserId(id::fresh(SystemClock.now())));
        let order = sides::order(user, 0, Zone::parse("MSK")?, now);
        let change = sides::change(Owner::User(user), 0, now);
        Ok(Self {
            driver: Arc::new(driver),
            note_new,
            remove_note,
            add,
            read_cart,
            read_order,
            read_session,
            insert_order,
            insert_session,
            change_body: mobimir_codec::cart_change::encode(&change),
            order_body: mobimir_codec::order_body::encode(&order),
            month: month_of(now)?,
        })
    }
}

impl Side for Bare {
    async fn add_to_cart(&self, change: CartChange, now: Timestamp) -> Result<()> {
        let ((kind, owner), stamp) = (key(change.origin), now_us(now));
        let body = self.change_body.as_slice();
        let (touched_at, expires_at) = (at(now), at(now.plus_ms(CART_TTL_MS)));
        let values = (kind, owner, change.id.0, stamp, touched_at, expires_at, body, CART_TTL_S, stamp);
        self.driver.execute_unpaged(&self.add, values).await?;
        Ok(())
    }

    async fn read_cart(&self, owner: Owner, _: Timestamp) -> Result<usize> {
        let answer =
            self.driver.execute_single_page(&self.read_cart, key(owner), PagingState::start()).await?;
        let rows = answer.0.into_rows_result()?;
        let mut changes = 0;
        for row in rows.rows::<CartRow<'_>>()? {
            std::hint::black_box(row?);
            changes += 1;
        }
        Ok(changes)
    }

    async fn insert_order(&self, order: Order) -> Result<()> {
        let (id, user, zone, status) =
            (order.id.0, order.user_id.0, order.geo_zone.as_str(), order.status.as_str());
        let (created_at, updated_at) = (at(order.created_at), at(order.updated_at));
        let (bucket, version) = (i32::from(order.bucket), order.version.0.cast_signed());
        let (total, body) = (order.total().to_string(), self.order_body.as_slice());
        let noted_us = now_us(order.created_at);
        let (slot, shard) = (noted_us.div_euclid(SLOT_US), (id.as_bytes()[15] % SHARDS).cast_signed());
        let move_id = id::fresh(order.created_at);
        let note = (
            slot, shard, noted_us, id, move_id, user, zone, created_at, bucket, body, status, updated_at,
            version, noted_us,
        );
        let noted = async { Ok(self.driver.execute_unpaged(&self.note_new, note).await?) };
        let (was_there, _) = try_join(self.get_order(order.id), noted).await?;
        ensure!(!was_there, "an order was there before");

        let (stamp, day) = (noted_us - FIRST_WRITE_BACK_US, order.created_at.day().number());
        let [first, by_user, by_day] = &self.insert_order;
        let first_row = (
            id, user, zone, created_at, bucket, total, body, status, created_at, updated_at, version, status,
            stamp,
        );
        let user_row =
            (user, self.month, created_at, id, zone, status, updated_at, version, bucket, body, version);
        let day_row = (day, bucket, created_at, id, user, zone, status, updated_at, version, body, version);
        try_join3(
            self.driver.execute_unpaged(first, first_row),
            self.driver.execute_unpaged(by_user, user_row),
            self.driver.execute_unpaged(by_day, day_row),
        )
        .await?;
        let (driver, remove) = (self.driver.clone(), self.remove_note.clone());
        tokio::spawn(async move {
            let values = (noted_us + 1, slot, shard, noted_us, id, move_id);
            let _ = driver.execute_unpaged(&remove, values).await;
        });
        Ok(())
    }

    async fn get_order(&self, id: OrderId) -> Result<bool> {
        let rows = self.driver.execute_unpaged(&self.read_order, (id.0,)).await?.into_rows_result()?;
        Ok(std::hint::black_box(rows.maybe_first_row::<OrderRow<'_>>()?).is_some())
    }

    async fn get_session(&self, id: SessionId, _: Timestamp) -> Result<bool> {
        let key = (SESSION_BUCKET, id.0);
        let rows = self.driver.execute_unpaged(&self.read_session, key).await?.into_rows_result()?;
        Ok(std::hint::black_box(rows.maybe_first_row::<StoredSession<'_>>()?).is_some())
    }

    async fn insert_session(&self, session: Session, refresh: RefreshToken) -> Result<()> {
        let stamp = now_us(session.created_at);
        let user = session.user().map(|user| user.0);
        let row = SessionRow {
            ttl: SESSION_TTL_S,
            stamp: stamp - FIRST_WRITE_BACK_US,
            user_id: user,
            token_hash: &session.token_hash.0,
            state: "live",
            state_at: MaybeUnset::Unset,
            closed_into: MaybeUnset::Unset,
            merged: MaybeUnset::Unset,
            ip_address: session.ip_address,
            user_agent: session.user_agent.as_deref(),
            device: session.device.as_deref(),
            created_at: at(session.created_at),
            last_active: at(session.last_active),
            expires_at: at(session.expires_at),
            version: session.version.0.cast_signed(),
            changed_by: id::fresh(session.created_at),
            bucket: SESSION_BUCKET,
            session_id: session.id.0,
        };
        let listed = (user, at(session.created_at), session.id.0, SESSION_TTL_S, stamp);
        let hash = refresh.hash.0.as_slice();
        let token =
            (hash, refresh.session.0, at(refresh.expires_at), SESSION_TTL_S, stamp - FIRST_WRITE_BACK_US);
        let [insert, list, give_token] = &self.insert_session;
        try_join3(
            self.driver.execute_unpaged(insert, row),
            self.driver.execute_unpaged(list, listed),
            self.driver.execute_unpaged(give_token, token),
        )
        .await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use mobimir_cassandra::cql;

    use super::*;

    /// Without a server: [`Bare::connect`] checks the same against what the ports have prepared.
    #[test]
    fn the_statements_are_those_of_the_ports() {
        let (read_cart, insert_session, read_session) =
            (cql::read_cart(), cql::insert_session(), cql::read_session());
        let pairs = [
            (ADD, cql::ADD_TO_CART),
            (READ_CART, &read_cart),
            (FIRST, cql::INSERT_ORDER),
            (BY_USER, cql::LIST_BY_USER),
            (BY_DAY, cql::LIST_BY_DAY),
            (NOTE_NEW, cql::NOTE_NEW_ORDER),
            (REMOVE_NOTE, cql::REMOVE_NOTE),
            (READ_ORDER, cql::READ_ORDER),
            (INSERT_SESSION, &insert_session),
            (LIST_SESSION, cql::LIST_SESSION),
            (GIVE_TOKEN, cql::GIVE_TOKEN),
            (READ_SESSION, &read_session),
        ];
        for (bare, of_port) in pairs {
            assert_eq!(bare, of_port);
        }
    }
}
