//! How stripes change: each change is one guarded update of one document, and may be repeated by anyone.

use std::collections::BTreeMap;

use mobimir_core::{id::ProductId, product::Hold, time::Timestamp};
use mongodb::bson::{self, Document, Uuid, doc};

use super::{
    super::{
        document::{HoldDoc, ZoneDoc},
        updates::{self, Change, figure},
    },
    document::{Split, StripeDoc, key},
    whole::{Transfer, US_PER_MS, later},
};
use crate::leaves::uuid;

/// One stripe that takes new holds and lets units go.
pub(super) fn open(split: &Split, n: u16) -> Document {
    let mut open = there(split, n);
    let closing = if n == 0 { "stripes.split.closing" } else { "closing" };
    open.insert(closing, doc! { "$exists": false });
    open
}

/// One stripe that still changes: what is there may be settled, what was sent there may come.
pub(super) fn there(split: &Split, n: u16) -> Document {
    if n == 0 {
        doc! { "_id": uuid(split.product.0), "stripes.split.epoch": split.epoch }
    } else {
        doc! { "_id": split.stripe_id(n), "sealed": { "$exists": false } }
    }
}

/// Takes units out of one stripe and notes where they go.
pub(super) fn take(split: &Split, transfer: &Transfer) -> Change {
    let Transfer { from, to, seq, zone, units, .. } = transfer;
    let to = key(*to);
    let mut guard = open(split, *from);
    guard.insert(format!("stock.{zone}.available"), doc! { "$gte": units });
    guard.insert(format!("transfers.out.{to}"), doc! { "$exists": false });
    guard.insert(format!("transfers.sent.{to}"), before(*seq));
    let less = |name: &str| doc! { "$subtract": [figure(zone, name), *units] };
    let changes = doc! {
        format!("stock.{zone}.received"): less("received"),
        format!("stock.{zone}.available"): less("available"),
        format!("transfers.out.{to}"): { "seq": seq, "zone": zone, "units": units },
        format!("transfers.sent.{to}"): seq,
    };
    Change { guard, pipeline: vec![doc! { "$set": changes }] }
}

/// Puts what was taken into the other stripe, once.
pub(super) fn put(split: &Split, transfer: &Transfer) -> Change {
    let Transfer { from, to, seq, zone, units, .. } = transfer;
    let from = key(*from);
    let mut guard = there(split, *to);
    guard.insert(format!("transfers.got.{from}"), before(*seq));
    let more = |name: &str| doc! { "$add": [figure(zone, name), *units] };
    let stock = doc! {
        "received": more("received"),
        "available": more("available"),
        "reserved": figure(zone, "reserved"),
        "sold": figure(zone, "sold"),
    };
    let changes = doc! { format!("stock.{zone}"): stock, format!("transfers.got.{from}"): seq };
    Change { guard, pipeline: vec![doc! { "$set": changes }] }
}

/// Puts it in and holds in the same update, so that nobody takes it away in between.
pub(super) fn put_and_hold(
    split: &Split,
    transfer: &Transfer,
    hold: &Hold,
    holds_max: usize,
    now: Timestamp,
) -> Change {
    let Change { guard, mut pipeline } = put(split, transfer);
    let held = updates::hold(hold, holds_max, transfer.units, now).of(open(split, transfer.to)).of(guard);
    pipeline.extend(held.pipeline);
    Change { guard: held.guard, pipeline }
}

/// Puts what was taken back to where it was.
pub(super) fn take_back(split: &Split, transfer: &Transfer) -> Change {
    let Transfer { from, to, seq, zone, units, .. } = transfer;
    let out = format!("transfers.out.{}", key(*to));
    let mut guard = there(split, *from);
    guard.insert(format!("{out}.seq"), seq);
    let more = |name: &str| doc! { "$add": [figure(zone, name), *units] };
    let changes = doc! {
        format!("stock.{zone}.received"): more("received"),
        format!("stock.{zone}.available"): more("available"),
    };
    Change { guard, pipeline: vec![doc! { "$set": changes }, doc! { "$unset": out }] }
}

/// Forgets a transfer that has arrived.
pub(super) fn clear(split: &Split, transfer: &Transfer) -> (Document, Document) {
    let out = format!("transfers.out.{}", key(transfer.to));
    let mut guard = there(split, transfer.from);
    guard.insert(format!("{out}.seq"), transfer.seq);
    (guard, doc! { "$unset": { out: "" } })
}

/// The product's stock is the first of `count` stripes from here on.
pub(super) fn begin(product: ProductId, epoch: Uuid, count: u16) -> Change {
    let count = i32::from(count);
    let guard = doc! {
        "_id": uuid(product.0),
        "stripes.split": { "$exists": false },
        "stripes.wanted": count,
    };
    let orders = doc! { "$setUnion": ["$holds.order"] };
    let split = doc! { "epoch": epoch, "count": count, "settled_here": orders };
    let pipeline = vec![doc! { "$set": { "stripes.split": split } }, doc! { "$unset": "transfers" }];
    Change { guard, pipeline }
}

pub(super) fn begin_closing(split: &Split) -> (Document, Document) {
    (open(split, 0), doc! { "$set": { "stripes.split.closing": true } })
}

pub(super) fn close(split: &Split, n: u16) -> (Document, Document) {
    (open(split, n), doc! { "$set": { "closing": true } })
}

/// Nothing is on its way from here any more, and nothing will change here.
pub(super) fn seal(split: &Split, n: u16) -> (Document, Document) {
    let mut guard = there(split, n);
    guard.insert("closing", true);
    guard.insert("$expr", nothing_out());
    (guard, doc! { "$set": { "sealed": true } })
}

/// Adds what is in the sealed stripes to the product, which is whole again from here on.
pub(super) fn put_together(split: &Split, stripes: &[StripeDoc]) -> bson::error::Result<Change> {
    let mut stock: BTreeMap<&str, ZoneDoc> = BTreeMap::new();
    let mut holds: Vec<&HoldDoc> = Vec::new();
    let mut version = 0;
    for stripe in stripes {
        for (zone, figures) in &stripe.stock {
            stock.entry(zone).or_default().add(*figures);
        }
        holds.extend(&stripe.holds);
        version = later(version, stripe.version);
    }
    let mut changes = doc! { "version": later_of_both(version) };
    for (zone, figures) in stock {
        let more = |name: &str, units: i64| doc! { "$add": [figure(zone, name), units] };
        let sum = doc! {
            "received": more("received", figures.received),
            "available": more("available", figures.available),
            "reserved": more("reserved", figures.reserved),
            "sold": more("sold", figures.sold),
        };
        changes.insert(format!("stock.{zone}"), sum);
    }
    if let Some(oldest) = holds.iter().map(|hold| hold.placed_at).min() {
        let holds = bson::serialize_to_bson(&holds)?;
        changes.insert("holds", doc! { "$concatArrays": ["$holds", { "$literal": holds }] });
        changes.insert("oldest_hold", doc! { "$min": ["$oldest_hold", oldest] });
    }
    let mut guard = there(split, 0);
    guard.insert("stripes.split.closing", true);
    guard.insert("$expr", nothing_out());
    let pipeline = vec![doc! { "$set": changes }, doc! { "$unset": ["stripes.split", "transfers"] }];
    Ok(Change { guard, pipeline })
}

/// [`later`] of the document's version and another.
fn later_of_both(other: i64) -> Document {
    let ms = other - other.rem_euclid(US_PER_MS);
    let own_ms = doc! { "$subtract": ["$version", { "$mod": ["$version", US_PER_MS] }] };
    let sum = doc! { "$add": ["$version", other.rem_euclid(US_PER_MS) + 1] };
    let is_same = if other == 0 {
        doc! { "$literal": false }
    } else {
        doc! { "$eq": [own_ms, ms] }
    };
    doc! { "$cond": [is_same, sum, { "$max": ["$version", other] }] }
}

fn nothing_out() -> Document {
    let out = doc! { "$objectToArray": { "$ifNull": ["$transfers.out", { "$literal": {} }] } };
    doc! { "$eq": [{ "$size": out }, 0] }
}

/// What a pair's counter is before its transfer `seq`.
fn before(seq: i64) -> Document {
    if seq <= 1 {
        doc! { "$exists": false }
    } else {
        doc! { "$eq": seq - 1 }
    }
}
