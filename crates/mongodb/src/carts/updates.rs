//! How a cart changes: pipelines that the server runs on the document, whole or not at all.

use mobimir_core::{
    cart::{CartChange, Owner},
    ports::StoreResult,
    time::Timestamp,
};
use mongodb::bson::{Document, doc};

use super::document::{CartDoc, ChangeDoc, OwnerDoc};
use crate::{
    expiry::gone_at,
    leaves::{date, literal, next_version, uuid},
    moving::Tracking,
};

/// A list of this many changes takes no more until it is packed. What they take is far from the 16 MB of a document.
pub(super) const CHANGES_MAX: usize = 512;

/// The cart of an owner; both fields, so that one shard is asked whichever of them is the shard key.
pub(super) fn cart_of(owner: Owner) -> Document {
    let OwnerDoc { is_guest, id } = OwnerDoc::of(owner);
    doc! { "_id": { "is_guest": is_guest, "id": id }, "owner_id": uuid(owner.uuid()) }
}

/// The same, if it takes changes. An upsert of one that takes none fails, because it is there.
pub(super) fn cart_with_room(owner: Owner) -> Document {
    let mut filter = cart_of(owner);
    filter.insert(format!("changes.{}", CHANGES_MAX - 1), doc! { "$exists": false });
    filter
}

/// Adds changes that are not there, and makes the cart last.
pub(super) fn append(
    changes: &[CartChange],
    expires_at: Timestamp,
    now: Timestamp,
    tracking: Tracking,
) -> StoreResult<Vec<Document>> {
    let mut added: Vec<ChangeDoc> = Vec::with_capacity(changes.len());
    for change in changes.iter().map(ChangeDoc::of) {
        if !added.iter().any(|other| other.id == change.id) {
            added.push(change);
        }
    }
    let added = literal(&added)?;
    // What is not there is less than every date, so a new cart begins anew, too.
    let begins_anew = || doc! { "$lte": ["$expires_at", date(now)] };
    let missing = doc! { "$filter": {
        "input": added.clone(),
        "as": "added",
        "cond": { "$not": [{ "$in": ["$$added.id", known()] }] },
    } };
    let longest = |field: &str, time: mongodb::bson::DateTime| {
        doc! { "$cond": [begins_anew(), time, { "$max": [field, time] }] }
    };
    let mut fields = doc! {
        "changes": { "$cond": [begins_anew(), added, { "$concatArrays": ["$changes", missing] }] },
        "created_at": { "$cond": [begins_anew(), date(now), "$created_at"] },
        "updated_at": longest("$updated_at", date(now)),
        "expires_at": longest("$expires_at", date(expires_at)),
        "gone_at": longest("$gone_at", gone_at(expires_at, now)),
        "version": next_version(now),
    };
    tracking.mark(&mut fields);
    Ok(vec![doc! { "$set": fields }])
}

/// The ids that [`is_known`](mobimir_core::cart::is_known) finds: of the changes, and of what was packed into them.
fn known() -> Document {
    let of_all = |field: &str| {
        doc! { "$reduce": {
            "input": field,
            "initialValue": [],
            "in": { "$concatArrays": ["$$value", "$$this"] },
        } }
    };
    let parts = of_all("$changes.effect.packed.parts.id");
    let remembered = of_all("$changes.effect.packed.remembered.id");
    doc! { "$concatArrays": ["$changes.id", parts, remembered] }
}

/// The cart that was read, with all of what was read at the beginning of its list: changes only come to its end, a packed
/// one has an id of its own, and a cart that begins anew another time.
pub(super) fn cart_that_was_read(owner: Owner, read: &CartDoc) -> Document {
    let mut filter = cart_of(owner);
    filter.insert("created_at", read.created_at);
    if let (Some(first), Some(last)) = (read.changes.first(), read.changes.last()) {
        filter.insert("changes.0.id", first.id);
        filter.insert(format!("changes.{}.id", read.changes.len() - 1), last.id);
    }
    filter
}

/// Puts one change in the place of those that were read; what came since stays.
pub(super) fn pack(
    packed: &CartChange,
    read: &CartDoc,
    now: Timestamp,
    tracking: Tracking,
) -> StoreResult<Vec<Document>> {
    let packed = literal(&[ChangeDoc::of(packed)])?;
    let taken = i32::try_from(read.changes.len()).unwrap_or(i32::MAX);
    let rest = doc! { "$slice": ["$changes", taken, i32::MAX] };
    let mut fields = doc! { "changes": { "$concatArrays": [packed, rest] }, "version": next_version(now) };
    tracking.mark(&mut fields);
    Ok(vec![doc! { "$set": fields }])
}
