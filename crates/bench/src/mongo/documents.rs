//! What is stored, field by field. The bare side reads all of it and makes nothing of it.

use std::collections::BTreeMap;

use mongodb::bson::{Binary, Bson, DateTime, Timestamp, Uuid};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
pub(super) struct ProductDoc {
    #[serde(rename = "_id")]
    pub(super) id: Uuid,
    name: String,
    #[serde(default)]
    name_key: String,
    category: String,
    price: i64,
    attributes: Vec<AttributeDoc>,
    stock: BTreeMap<String, StockDoc>,
    holds: Vec<HoldDoc>,
    #[serde(default)]
    oldest_hold: Option<DateTime>,
    created_at: DateTime,
    updated_at: DateTime,
    version: i64,
    #[serde(default)]
    terms: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct AttributeDoc {
    name: String,
    value: Bson,
}

#[derive(Serialize, Deserialize)]
struct StockDoc {
    received: i64,
    available: i64,
    reserved: i64,
    sold: i64,
}

#[derive(Serialize, Deserialize)]
struct HoldDoc {
    order: Uuid,
    attempt: Uuid,
    kind: String,
    zone: String,
    quantity: i64,
    placed_at: DateTime,
    #[serde(default)]
    seq: Option<Timestamp>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct CartDoc {
    #[serde(rename = "_id")]
    id: OwnerDoc,
    owner_id: Uuid,
    pub(super) changes: Vec<ChangeDoc>,
    created_at: DateTime,
    updated_at: DateTime,
    expires_at: DateTime,
    gone_at: DateTime,
    version: i64,
}

#[derive(Serialize, Deserialize)]
struct OwnerDoc {
    is_guest: bool,
    id: Uuid,
}

#[derive(Serialize, Deserialize)]
pub(super) struct ChangeDoc {
    id: Uuid,
    at: DateTime,
    origin: OwnerDoc,
    keyed: bool,
    effect: EffectDoc,
}

/// Nothing else is done to carts here.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum EffectDoc {
    Add {
        product: Uuid,
        quantity: i64,
        #[serde(default)]
        zone: Option<String>,
    },
}

#[derive(Serialize, Deserialize)]
pub(super) struct OrderDoc {
    #[serde(rename = "_id")]
    pub(super) id: Uuid,
    pub(super) user_id: Uuid,
    pub(super) status: String,
    pub(super) geo_zone: String,
    pub(super) lines: Vec<LineDoc>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) shipping_address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) payment_method: Option<String>,
    pub(super) created_at: DateTime,
    pub(super) updated_at: DateTime,
    pub(super) day: i32,
    pub(super) bucket: i32,
    pub(super) version: i64,
    #[serde(default)]
    pub(super) history: Vec<MoveDoc>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct LineDoc {
    pub(super) product_id: Uuid,
    pub(super) name: String,
    pub(super) category: String,
    pub(super) price: i64,
    pub(super) quantity: i64,
}

#[derive(Serialize, Deserialize)]
pub(super) struct MoveDoc {
    pub(super) status: String,
    pub(super) at: DateTime,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) operator: Option<String>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct SessionDoc {
    #[serde(rename = "_id")]
    pub(super) id: Uuid,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) user_id: Option<Uuid>,
    pub(super) token_hash: Binary,
    pub(super) state: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) state_at: Option<DateTime>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) closed_into: Option<Uuid>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) unmerged_since: Option<DateTime>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ip_address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) user_agent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) device: Option<String>,
    pub(super) created_at: DateTime,
    pub(super) last_active: DateTime,
    pub(super) expires_at: DateTime,
    pub(super) gone_at: DateTime,
    pub(super) version: i64,
}

#[derive(Serialize, Deserialize)]
pub(super) struct TokenDoc {
    #[serde(rename = "_id")]
    pub(super) hash: Binary,
    pub(super) session_id: Uuid,
    pub(super) expires_at: DateTime,
    pub(super) gone_at: DateTime,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) used_at: Option<DateTime>,
    pub(super) version: i64,
}
