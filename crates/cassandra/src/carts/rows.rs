//! The rows of carts, as they are bound and read.

use mobimir_core::{
    cart::{CartChange, Owner},
    id::{SessionId, UserId},
    ports::{StoreError, StoreResult},
    time::Timestamp,
};
use scylla::{
    errors::SerializationError,
    serialize::{
        row::{RowSerializationContext, SerializeRow},
        writers::RowWriter,
    },
    value::CqlTimestamp,
};
use uuid::Uuid;

use crate::{link::damaged, registers::RegisterRow};

/// Kind and id of an owner, the partition key of a cart.
pub(super) type OwnerKey = (i8, Uuid);

/// Shards that the carts touched on one day are spread over.
pub(super) const TOUCH_SHARDS: i8 = 16;

pub(super) fn key(owner: Owner) -> OwnerKey {
    match owner {
        Owner::User(id) => (0, id.0),
        Owner::Guest(id) => (1, id.0),
    }
}

pub(super) fn owner_of((kind, id): OwnerKey) -> StoreResult<Owner> {
    match kind {
        0 => Ok(Owner::User(UserId(id))),
        1 => Ok(Owner::Guest(SessionId(id))),
        _ => Err(StoreError::Corrupt {
            what: format!("expected an owner of kind 0 or 1, got {kind}"),
            source: None,
        }),
    }
}

pub(super) fn touch_shard(owner: Owner) -> i8 {
    (owner.uuid().as_bytes()[15] % TOUCH_SHARDS.unsigned_abs()).cast_signed()
}

/// A row that adds a change; without one it only says that the cart was touched.
pub(super) struct ChangeRow {
    pub(super) owner: Owner,
    pub(super) id: Uuid,
    pub(super) stamp: i64,
    pub(super) touched_at: Timestamp,
    pub(super) expires_at: Timestamp,
    pub(super) body: Option<Vec<u8>>,
    pub(super) ttl_s: i32,
}

pub(super) struct TouchRow {
    pub(super) owner: Owner,
    pub(super) touched_at: Timestamp,
    pub(super) ttl_s: i32,
    pub(super) stamp: i64,
}

pub(super) struct PackRow {
    pub(super) ttl_s: i32,
    pub(super) touched_at: CqlTimestamp,
    pub(super) expires_at: CqlTimestamp,
    pub(super) body: Vec<u8>,
    pub(super) created_at: CqlTimestamp,
    pub(super) pack_id: Uuid,
    pub(super) version: i64,
    pub(super) rows: i64,
    pub(super) owner: OwnerKey,
    /// The packed row that this one replaces.
    pub(super) expected: Option<Uuid>,
}

/// What stands together in a batch.
pub(super) enum Batched {
    Change(ChangeRow),
    Touch(TouchRow),
    Register(RegisterRow),
    Pack(PackRow),
    Remove((i8, Uuid, Uuid, i64)),
}

impl ChangeRow {
    /// What it takes in a batch, about.
    pub(super) fn bytes(&self) -> usize {
        super::ROW_BYTES + self.body.as_ref().map_or(0, Vec::len)
    }

    pub(super) fn values(&self) -> impl SerializeRow + '_ {
        let (kind, owner) = key(self.owner);
        let [touched_at, expires_at] =
            [self.touched_at, self.expires_at].map(|at| CqlTimestamp(at.as_millis()));
        (
            kind,
            owner,
            self.id,
            self.stamp,
            touched_at,
            expires_at,
            self.body.as_deref(),
            self.ttl_s,
            self.stamp,
        )
    }
}

impl TouchRow {
    fn values(&self) -> impl SerializeRow {
        let (kind, owner) = key(self.owner);
        let at = CqlTimestamp(self.touched_at.as_millis());
        (self.touched_at.day().number(), touch_shard(self.owner), at, kind, owner, self.ttl_s, self.stamp)
    }
}

impl PackRow {
    fn values(&self) -> impl SerializeRow + '_ {
        let (kind, owner) = self.owner;
        (
            self.ttl_s,
            self.touched_at,
            self.expires_at,
            self.body.as_slice(),
            self.created_at,
            self.pack_id,
            self.version,
            self.rows,
            kind,
            owner,
            Uuid::nil(),
            0i64,
            self.expected,
        )
    }
}

impl SerializeRow for Batched {
    fn serialize(
        &self,
        context: &RowSerializationContext<'_>,
        writer: &mut RowWriter<'_>,
    ) -> Result<(), SerializationError> {
        match self {
            Self::Change(row) => row.values().serialize(context, writer),
            Self::Touch(row) => row.values().serialize(context, writer),
            Self::Register(row) => row.values().serialize(context, writer),
            Self::Pack(row) => row.values().serialize(context, writer),
            Self::Remove(key) => key.serialize(context, writer),
        }
    }

    fn is_empty(&self) -> bool {
        false
    }
}

/// What is asked of a row: [`Raw`].
pub(crate) const COLUMNS: &str =
    "change_id, written_us, touched_at, expires_at, body, created_at, version, rows";

pub(super) type Raw<'a> =
    (Uuid, i64, CqlTimestamp, CqlTimestamp, Option<&'a [u8]>, Option<CqlTimestamp>, Option<i64>, Option<i64>);

/// A row as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRow {
    pub id: Uuid,
    pub written_us: i64,
    pub touched_at: Timestamp,
    pub expires_at: Timestamp,
    pub change: Option<CartChange>,
    /// For the packed row: when the cart began.
    pub created_at: Option<Timestamp>,
    /// And how new what went into it is: a version or the latest stamp, and so many rows beside.
    pub version: i64,
    pub rows: i64,
}

impl StoredRow {
    pub(super) fn decode(
        (id, written_us, touched_at, expires_at, body, created_at, version, rows): Raw<'_>,
    ) -> StoreResult<Self> {
        let time = |time: CqlTimestamp| Timestamp::from_millis(time.0);
        let change = body.map(mobimir_codec::cart_change::decode).transpose();
        Ok(Self {
            id,
            written_us,
            touched_at: time(touched_at),
            expires_at: time(expires_at),
            change: change.map_err(|error| damaged("a change of a cart", error))?,
            created_at: created_at.map(time),
            version: version.unwrap_or_default(),
            rows: rows.unwrap_or_default(),
        })
    }

    pub fn is_packed(&self) -> bool {
        self.id.is_nil()
    }
}
