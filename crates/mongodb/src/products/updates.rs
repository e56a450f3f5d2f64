//! How stock changes in place: each change is one update of one document, guarded by what has to be true of it.
//!
//! These are the rules of [`mobimir_core::product`] in the server's language. Where a guard refuses, the document is read
//! and core's own rule says why.

use mobimir_core::{
    id::{AttemptId, OrderId},
    product::{
        Decision, Hold, HoldKind, ProductEdit, STOCK_MAX, StockChange, Verdict, ZONES_PER_PRODUCT_MAX,
    },
    search,
    time::{Timestamp, Version},
    zone::Zone,
};
use mongodb::bson::{self, Bson, Document, doc};

use super::document::{self, HoldDoc, KindDoc};
use crate::leaves::{date, kopecks, number, uuid};

/// What a document must be, and what becomes of it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Change {
    pub(super) guard: Document,
    pub(super) pipeline: Vec<Document>,
}

impl Change {
    /// Of the document that is also this.
    pub(super) fn of(self, document: Document) -> Self {
        let mut guard = document;
        guard.extend(self.guard);
        Self { guard, pipeline: self.pipeline }
    }
}

/// Records a hold, if there is enough, this run has none here yet, and fewer than `holds_max` wait. `coming` units are put
/// in by the same update before it gets here.
pub(super) fn hold(hold: &Hold, holds_max: usize, coming: i64, now: Timestamp) -> Change {
    let stored = HoldDoc::of(hold);
    let same = doc! { "order": stored.order, "attempt": stored.attempt, "kind": stored.kind.as_str() };
    let mut guard = doc! {
        "holds": { "$not": { "$elemMatch": same } },
        format!("holds.{}", holds_max.saturating_sub(1)): { "$exists": false },
    };
    let mut changes = doc! {
        "holds": { "$concatArrays": ["$holds", [{
            "order": stored.order,
            "attempt": stored.attempt,
            "kind": stored.kind.as_str(),
            "zone": &stored.zone,
            "quantity": stored.quantity,
            "placed_at": stored.placed_at,
            "seq": "$$CLUSTER_TIME",
        }]] },
        "oldest_hold": { "$min": ["$oldest_hold", stored.placed_at] },
        "version": next_version(now),
    };
    if hold.kind == HoldKind::Sale {
        let zone = &stored.zone;
        let needed = stored.quantity.saturating_sub(coming);
        if needed > 0 {
            guard.insert(format!("stock.{zone}.available"), doc! { "$gte": needed });
        }
        let stock = doc! {
            "received": figure(zone, "received"),
            "available": { "$subtract": [figure(zone, "available"), stored.quantity] },
            "reserved": { "$add": [figure(zone, "reserved"), stored.quantity] },
            "sold": figure(zone, "sold"),
        };
        changes.insert(format!("stock.{zone}"), stock);
    }
    Change { guard, pipeline: vec![doc! { "$set": changes }] }
}

/// Settles the holds of an order that are there and decided; `None` when nothing is decided.
pub(super) fn settle(order: OrderId, verdict: Verdict, now: Timestamp) -> Option<Change> {
    let decided: Vec<Decided> = [(KindDoc::Sale, verdict.sale), (KindDoc::Return, verdict.cancellation)]
        .into_iter()
        .filter_map(|(kind, decision)| Decided::of(order, kind, decision))
        .collect();
    if decided.is_empty() {
        return None;
    }
    let any: Vec<Document> =
        decided.iter().map(|it| doc! { "holds": { "$elemMatch": it.filter() } }).collect();
    let settled = doc! { "$or": decided.iter().map(Decided::expression).collect::<Vec<_>>() };
    let take_out = doc! { "$set": {
        "settling": { "$filter": { "input": "$holds", "as": "h", "cond": settled.clone() } },
        "holds": { "$filter": { "input": "$holds", "as": "h", "cond": { "$not": [settled] } } },
    } };
    // A hold can be on a zone that has no stock yet.
    let no_stock = doc! { "received": 0_i64, "available": 0_i64, "reserved": 0_i64, "sold": 0_i64 };
    let zones_of_holds = doc! { "$arrayToObject": { "$map": {
        "input": "$settling", "as": "h", "in": { "k": "$$h.zone", "v": no_stock },
    } } };
    let is_sale = doc! { "$eq": ["$$h.kind", "sale"] };
    let is_return = doc! { "$eq": ["$$h.kind", "return"] };
    let won = |kind: KindDoc| {
        let winner = decided.iter().find(|it| it.kind == kind).and_then(|it| it.winner);
        winner.map_or_else(
            || doc! { "$literal": false },
            |winner| doc! { "$eq": ["$$h.attempt", uuid(winner.0)] },
        )
    };
    let sale_won = doc! { "$and": [is_sale.clone(), won(KindDoc::Sale)] };
    let sale_lost = doc! { "$and": [is_sale.clone(), { "$not": [won(KindDoc::Sale)] }] };
    let return_won = doc! { "$and": [is_return, won(KindDoc::Return)] };
    let comes_back = doc! { "$or": [sale_lost, return_won.clone()] };
    let zone = doc! { "k": "$$z.k", "v": {
        "received": "$$z.v.received",
        "available": { "$add": ["$$z.v.available", units_of(comes_back)] },
        "reserved": { "$subtract": ["$$z.v.reserved", units_of(is_sale)] },
        "sold": { "$add": ["$$z.v.sold", { "$subtract": [units_of(sale_won), units_of(return_won)] }] },
    } };
    let carry_out = doc! { "$set": {
        "stock": { "$arrayToObject": { "$map": {
            "input": { "$objectToArray": { "$mergeObjects": [zones_of_holds, "$stock"] } },
            "as": "z",
            "in": zone,
        } } },
        "oldest_hold": { "$ifNull": [{ "$min": "$holds.placed_at" }, "$$REMOVE"] },
        "version": next_version(now),
    } };
    let pipeline = vec![take_out, carry_out, doc! { "$unset": "settling" }];
    Some(Change { guard: doc! { "$or": any }, pipeline })
}

/// Changes what is available in a zone, within the limits.
pub(super) fn change_stock(zone: Zone, change: StockChange, now: Timestamp) -> Change {
    let zone = zone.as_str();
    let available = || figure(zone, "available");
    let most = i64::try_from(STOCK_MAX).unwrap_or(i64::MAX);
    let (fits, target) = match change {
        StockChange::SetAvailable(units) => {
            let units = i64::try_from(units).unwrap_or(i64::MAX);
            // A cancellation may have lifted it past the limit; from there it may still go down.
            (doc! { "$lte": [units, { "$max": [most, available()] }] }, Bson::Int64(units))
        }
        StockChange::Delta(delta) if delta > 0 => {
            (doc! { "$lte": [available(), most.saturating_sub(delta)] }, add(available(), delta))
        }
        // What cannot be taken in one step of 64 bits is never there.
        StockChange::Delta(delta) => {
            let taken = delta.checked_neg().unwrap_or(i64::MAX);
            (doc! { "$gte": [available(), taken] }, add(available(), -taken))
        }
    };
    let zones_max = i64::try_from(ZONES_PER_PRODUCT_MAX).unwrap_or(i64::MAX);
    let has_room = doc! { "$or": [
        { "$gte": [format!("$stock.{zone}.available"), 0_i64] },
        { "$lt": [{ "$size": { "$objectToArray": "$stock" } }, zones_max] },
    ] };
    let stock = doc! {
        "received": { "$add": [figure(zone, "received"), { "$subtract": [target.clone(), available()] }] },
        "available": target,
        "reserved": figure(zone, "reserved"),
        "sold": figure(zone, "sold"),
    };
    let changes = doc! {
        format!("stock.{zone}"): stock,
        "updated_at": { "$max": ["$updated_at", date(now)] },
        "version": next_version(now),
    };
    Change { guard: doc! { "$expr": { "$and": [has_room, fits] } }, pipeline: vec![doc! { "$set": changes }] }
}

/// Changes the named fields, and what is derived from them.
pub(super) fn edit(edit: ProductEdit, now: Timestamp) -> bson::error::Result<Vec<Document>> {
    let mut changes = doc! {
        "updated_at": { "$max": ["$updated_at", date(now)] },
        "version": next_version(now),
    };
    let mut set = |field: &str, value: Bson| changes.insert(field, doc! { "$literal": value });
    if let Some(name) = edit.name {
        set("name_key", search::name_key(&name).into());
        set("terms", search::terms(&name).into_iter().collect::<Vec<String>>().into());
        set("name", name.into());
    }
    if let Some(category) = edit.category {
        set("category", category.into());
    }
    if let Some(price) = edit.price {
        set("price", kopecks(price).into());
    }
    if let Some(attributes) = edit.attributes {
        set("attributes", bson::serialize_to_bson(&document::attributes(attributes))?);
    }
    Ok(vec![doc! { "$set": changes }])
}

/// The version of the next write, as [`Version::next`] has it.
pub(super) fn next_version(now: Timestamp) -> Document {
    let clock = number(Version(now.as_millis().max(0).cast_unsigned().saturating_mul(1_000)));
    doc! { "$max": [clock, { "$add": ["$version", 1_i64] }] }
}

/// The holds that a verdict has decided.
struct Decided {
    order: OrderId,
    kind: KindDoc,
    /// If only this run is decided.
    only: Option<AttemptId>,
    winner: Option<AttemptId>,
}

impl Decided {
    fn of(order: OrderId, kind: KindDoc, decision: Decision) -> Option<Self> {
        match decision {
            Decision::Undecided => None,
            Decision::Won(winner) => Some(Self { order, kind, only: None, winner: Some(winner) }),
            Decision::Lost => Some(Self { order, kind, only: None, winner: None }),
            Decision::Failed(loser) => Some(Self { order, kind, only: Some(loser), winner: None }),
        }
    }

    fn filter(&self) -> Document {
        let mut filter = doc! { "order": uuid(self.order.0), "kind": self.kind.as_str() };
        if let Some(only) = self.only {
            filter.insert("attempt", uuid(only.0));
        }
        filter
    }

    fn expression(&self) -> Document {
        let equal =
            self.filter().into_iter().map(|(field, value)| doc! { "$eq": [format!("$$h.{field}"), value] });
        doc! { "$and": equal.collect::<Vec<_>>() }
    }
}

/// A figure of a zone, which may have none yet.
pub(super) fn figure(zone: &str, name: &str) -> Document {
    doc! { "$ifNull": [format!("$stock.{zone}.{name}"), 0_i64] }
}

fn add(number: Document, delta: i64) -> Bson {
    doc! { "$add": [number, delta] }.into()
}

/// Units in the zone `$$z` of the holds being settled that meet a condition.
fn units_of(condition: Document) -> Document {
    let of_zone = doc! { "$and": [{ "$eq": ["$$h.zone", "$$z.k"] }, condition] };
    let these = doc! { "$filter": { "input": "$settling", "as": "h", "cond": of_zone } };
    doc! { "$sum": { "$map": { "input": these, "as": "h", "in": "$$h.quantity" } } }
}
