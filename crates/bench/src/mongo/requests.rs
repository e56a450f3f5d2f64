//! The requests of the ports as somebody would write them who needs just these. [`super::same`] holds them to that.

use mobimir_core::{
    cart::{CartChange, Effect, Owner},
    id::ProductId,
    product::{HOLDS_PER_PRODUCT_MAX, Hold},
    time::{Timestamp, Version},
};
use mongodb::{
    bson::{DateTime, Document, Uuid, doc},
    options::FindOptions,
};

use crate::sides::{CART_TTL_MS, PAGE_PRODUCTS};

/// Where the ports keep carts, sessions and tokens beyond their time.
const KEPT_BEYOND_MS: i64 = 60_000;
const CHANGES_PER_CART_MAX: usize = 512;

/// A condition and what becomes of the document that meets it.
pub(super) type Update = (Document, Vec<Document>);

pub(super) fn uuid(id: uuid::Uuid) -> Uuid {
    Uuid::from_bytes(id.into_bytes())
}

pub(super) fn date(time: Timestamp) -> DateTime {
    DateTime::from_millis(time.as_millis())
}

/// Of what is written now.
pub(super) fn gone_at(expires_at: Timestamp) -> DateTime {
    date(expires_at.plus_ms(KEPT_BEYOND_MS))
}

pub(super) fn cart(owner: Owner) -> Document {
    let id = uuid(owner.uuid());
    doc! { "_id": { "is_guest": matches!(owner, Owner::Guest(_)), "id": id }, "owner_id": id }
}

pub(super) fn first_page() -> FindOptions {
    FindOptions::builder()
        .sort(doc! { "price": 1, "_id": 1 })
        .limit(PAGE_PRODUCTS as i64 + 1)
        .projection(doc! { "terms": 0, "name_key": 0 })
        .build()
}

/// `None` for what is not adding.
pub(super) fn add_to_cart(change: &CartChange, now: Timestamp) -> Option<Update> {
    let Effect::Add { product, quantity, .. } = &change.effect else { return None };
    let mut filter = cart(change.origin);
    filter.insert(format!("changes.{}", CHANGES_PER_CART_MAX - 1), doc! { "$exists": false });

    let (now_at, expires_at) = (date(now), now.plus_ms(CART_TTL_MS));
    let added = doc! { "$literal": [{
        "id": uuid(change.id.0),
        "at": date(change.at),
        "origin": {
            "is_guest": matches!(change.origin, Owner::Guest(_)),
            "id": uuid(change.origin.uuid()),
        },
        "keyed": change.keyed,
        "effect": { "add": { "product": uuid(product.0), "quantity": quantity.cast_signed() } },
    }] };
    let begins_anew = doc! { "$lte": ["$expires_at", now_at] };
    let all = |ids: &str| {
        doc! { "$reduce": {
            "input": ids,
            "initialValue": [],
            "in": { "$concatArrays": ["$$value", "$$this"] },
        } }
    };
    let known = doc! { "$concatArrays": [
        "$changes.id",
        all("$changes.effect.packed.parts.id"),
        all("$changes.effect.packed.remembered.id"),
    ] };
    let missing = doc! { "$filter": {
        "input": added.clone(),
        "as": "added",
        "cond": { "$not": [{ "$in": ["$$added.id", known] }] },
    } };
    let longest =
        |field: &str, at: DateTime| doc! { "$cond": [begins_anew.clone(), at, { "$max": [field, at] }] };
    let update = doc! { "$set": {
        "changes": { "$cond": [begins_anew.clone(), added, { "$concatArrays": ["$changes", missing] }] },
        "created_at": { "$cond": [begins_anew.clone(), now_at, "$created_at"] },
        "updated_at": longest("$updated_at", now_at),
        "expires_at": longest("$expires_at", date(expires_at)),
        "gone_at": longest("$gone_at", gone_at(expires_at)),
        "version": next_version(doc! { "$ifNull": ["$version", 0_i64] }, now),
    } };
    Some((filter, vec![update]))
}

/// Units of a sale leave what is available, if there are enough. All stock is in one document.
pub(super) fn hold(product: ProductId, hold: &Hold, now: Timestamp) -> Update {
    let (order, attempt, quantity) = (uuid(hold.order.0), uuid(hold.attempt.0), hold.quantity.cast_signed());
    let zone = hold.zone.as_str();
    let same = doc! { "order": order, "attempt": attempt, "kind": "sale" };
    let filter = doc! {
        "_id": uuid(product.0),
        "stripes.split": { "$exists": false },
        "holds": { "$not": { "$elemMatch": same } },
        format!("holds.{}", HOLDS_PER_PRODUCT_MAX - 1): { "$exists": false },
        format!("stock.{zone}.available"): { "$gte": quantity },
    };
    let figure = |name: &str| doc! { "$ifNull": [format!("$stock.{zone}.{name}"), 0_i64] };
    let placed_at = date(hold.placed_at);
    let update = doc! { "$set": {
        "holds": { "$concatArrays": ["$holds", [{
            "order": order,
            "attempt": attempt,
            "kind": "sale",
            "zone": zone,
            "quantity": quantity,
            "placed_at": placed_at,
            "seq": "$$CLUSTER_TIME",
        }]] },
        "oldest_hold": { "$min": ["$oldest_hold", placed_at] },
        "version": next_version("$version", now),
        format!("stock.{zone}"): {
            "received": figure("received"),
            "available": { "$subtract": [figure("available"), quantity] },
            "reserved": { "$add": [figure("reserved"), quantity] },
            "sold": figure("sold"),
        },
    } };
    (filter, vec![update])
}

/// The units that the run of a sale holds are sold.
pub(super) fn settle(product: ProductId, hold: &Hold, now: Timestamp) -> Update {
    let (order, attempt) = (uuid(hold.order.0), uuid(hold.attempt.0));
    let filter = doc! {
        "_id": uuid(product.0),
        "stripes.split": { "$exists": false },
        "$or": [{ "holds": { "$elemMatch": { "order": order, "kind": "sale" } } }],
    };
    let settled =
        doc! { "$or": [{ "$and": [{ "$eq": ["$$h.order", order] }, { "$eq": ["$$h.kind", "sale"] }] }] };
    let is_sale = doc! { "$eq": ["$$h.kind", "sale"] };
    let won = doc! { "$eq": ["$$h.attempt", attempt] };
    let sale_won = doc! { "$and": [is_sale.clone(), won.clone()] };
    let sale_lost = doc! { "$and": [is_sale.clone(), { "$not": [won] }] };
    let return_won = doc! { "$and": [{ "$eq": ["$$h.kind", "return"] }, { "$literal": false }] };
    let comes_back = doc! { "$or": [sale_lost, return_won.clone()] };
    let units = |condition: Document| {
        doc! { "$sum": { "$map": {
            "input": { "$filter": {
                "input": "$settling",
                "as": "h",
                "cond": { "$and": [{ "$eq": ["$$h.zone", "$$z.k"] }, condition] },
            } },
            "as": "h",
            "in": "$$h.quantity",
        } } }
    };
    let no_stock = doc! { "received": 0_i64, "available": 0_i64, "reserved": 0_i64, "sold": 0_i64 };
    let zones_of_holds = doc! { "$arrayToObject": { "$map": {
        "input": "$settling", "as": "h", "in": { "k": "$$h.zone", "v": no_stock },
    } } };
    let zone = doc! { "k": "$$z.k", "v": {
        "received": "$$z.v.received",
        "available": { "$add": ["$$z.v.available", units(comes_back)] },
        "reserved": { "$subtract": ["$$z.v.reserved", units(is_sale)] },
        "sold": { "$add": ["$$z.v.sold", { "$subtract": [units(sale_won), units(return_won)] }] },
    } };
    let update = vec![
        doc! { "$set": {
            "settling": { "$filter": { "input": "$holds", "as": "h", "cond": settled.clone() } },
            "holds": { "$filter": { "input": "$holds", "as": "h", "cond": { "$not": [settled] } } },
        } },
        doc! { "$set": {
            "stock": { "$arrayToObject": { "$map": {
                "input": { "$objectToArray": { "$mergeObjects": [zones_of_holds, "$stock"] } },
                "as": "z",
                "in": zone,
            } } },
            "oldest_hold": { "$ifNull": [{ "$min": "$holds.placed_at" }, "$$REMOVE"] },
            "version": next_version("$version", now),
        } },
        doc! { "$unset": "settling" },
    ];
    (filter, update)
}

fn next_version(version: impl Into<mongodb::bson::Bson>, now: Timestamp) -> Document {
    let by_the_clock = Version::default().next(now).0.cast_signed();
    doc! { "$max": [by_the_clock, { "$add": [version, 1_i64] }] }
}
