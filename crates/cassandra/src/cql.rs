//! The statements of the most frequent operations. Benchmarks send the same with the bare driver, and compare
//! their texts with these. `{}` stands for the keyspace.

use crate::{carts, sessions};

pub const ADD_TO_CART: &str = "INSERT INTO {}.cart_changes \
    (owner_kind, owner, change_id, written_us, touched_at, expires_at, body) \
    VALUES (?, ?, ?, ?, ?, ?, ?) USING TTL ? AND TIMESTAMP ?";
pub const TOUCH_CART: &str = "INSERT INTO {}.carts_by_touch (day, shard, touched_at, owner_kind, owner) \
    VALUES (?, ?, ?, ?, ?) USING TTL ? AND TIMESTAMP ?";
pub const PACK_CART: &str = "UPDATE {}.cart_changes USING TTL ? SET touched_at = ?, \
    expires_at = ?, body = ?, created_at = ?, pack_id = ?, version = ?, rows = ? \
    WHERE owner_kind = ? AND owner = ? AND change_id = ? AND written_us = ? IF pack_id = ?";

/// Where the status has a column of its own, as all statements of orders here.
pub const INSERT_ORDER: &str = "INSERT INTO {}.orders (order_id, seq, user_id, geo_zone, created_at, bucket, \
    total, body, status, at, updated_at, version, stands_at, moves) \
    VALUES (?, 0, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0) USING TIMESTAMP ?";
pub const READ_ORDER: &str = "SELECT user_id, geo_zone, created_at, bucket, body, stands_at, updated_at, \
    version, moves FROM {}.orders WHERE order_id = ? LIMIT 1";
pub const FIX_ORDER: &str = "UPDATE {}.orders \
    SET user_id = ?, geo_zone = ?, created_at = ?, bucket = ?, total = ?, body = ? WHERE order_id = ?";
pub const REPLACE_ORDER: &str = "UPDATE {}.orders SET stands_at = ?, updated_at = ?, version = ?, moves = ? \
    WHERE order_id = ? IF version = ?";
pub const COPY_MOVE: &str =
    "INSERT INTO {}.orders (order_id, seq, status, at, operator, move_id) VALUES (?, ?, ?, ?, ?, ?)";
pub const LIST_BY_USER: &str = "INSERT INTO {}.orders_by_user \
    (user_id, month, created_at, order_id, geo_zone, status, updated_at, version, bucket, body) \
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) USING TIMESTAMP ?";
pub const LIST_BY_DAY: &str = "INSERT INTO {}.orders_by_day \
    (day, bucket, created_at, order_id, user_id, geo_zone, status, updated_at, version, body) \
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) USING TIMESTAMP ?";
pub const NOTE_NEW_ORDER: &str = "INSERT INTO {}.pending_moves (slot, shard, noted_us, order_id, move_id, \
    seq, user_id, geo_zone, created_at, bucket, body, status, updated_at, version) \
    VALUES (?, ?, ?, ?, ?, 0, ?, ?, ?, ?, ?, ?, ?, ?) USING TIMESTAMP ?";
pub const REMOVE_NOTE: &str = "DELETE FROM {}.pending_moves USING TIMESTAMP ? \
    WHERE slot = ? AND shard = ? AND noted_us = ? AND order_id = ? AND move_id = ?";

pub const LIST_SESSION: &str = "INSERT INTO {}.sessions_by_user (user_id, created_at, session_id) \
    VALUES (?, ?, ?) USING TTL ? AND TIMESTAMP ?";
pub const GIVE_TOKEN: &str = "INSERT INTO {}.refresh_tokens (hash, session_id, expires_at) VALUES (?, ?, ?) \
    USING TTL ? AND TIMESTAMP ?";

pub const REGISTER: &str = "INSERT INTO {}.registers (list, entry) VALUES (?, ?) USING TIMESTAMP ?";

pub fn read_cart() -> String {
    format!("SELECT {} FROM {{}}.cart_changes WHERE owner_kind = ? AND owner = ?", carts::COLUMNS)
}

/// An update, because an insert would leave a mark that outlives the columns when a session is cut short.
pub fn insert_session() -> String {
    format!(
        "UPDATE {{}}.sessions USING TTL :ttl AND TIMESTAMP :stamp SET {} \
        WHERE bucket = :bucket AND session_id = :session_id",
        set_session()
    )
}

pub fn read_session() -> String {
    let columns = sessions::selected();
    format!("SELECT {columns} FROM {{}}.sessions WHERE bucket = ? AND session_id = ?")
}

pub(crate) fn set_session() -> String {
    sessions::COLUMNS.map(|column| format!("{column} = :{column}")).join(", ")
}
