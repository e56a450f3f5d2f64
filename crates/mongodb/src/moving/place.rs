//! Where documents stand: in collections one after the other, and there by `_id`.
//!
//! Any `_id` has its place, also one that no entity has: a scan has to get past everything.

use mobimir_core::{moving::Place, ports::StoreResult};
use mongodb::bson::{Bson, Document, RawDocument, deserialize_from_slice, doc, serialize_to_vec};

use crate::link::damaged;

/// What a [`Place`] means here.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Spot {
    pub(super) collection: usize,
    pub(super) id: Bson,
    /// As it was seen, where that is of interest.
    version: Option<Bson>,
}

impl Spot {
    pub(super) fn new(collection: usize, id: Bson) -> Self {
        Self { collection, id, version: None }
    }

    pub(super) fn of(collection: usize, stored: &RawDocument) -> StoreResult<Self> {
        let id = field(stored, "_id")?.ok_or_else(|| damaged("expected an _id in a document"))?;
        Ok(Self::new(collection, id))
    }

    pub(super) fn with_version(self, stored: &RawDocument) -> StoreResult<Self> {
        Ok(Self { version: field(stored, "version")?, ..self })
    }

    /// The collection in one byte, and the `_id` as the server has it.
    pub(super) fn place(&self) -> StoreResult<Place> {
        let wrong = |error: String| damaged(format!("expected an _id, got {}: {error}", self.id));
        let collection = u8::try_from(self.collection).map_err(|error| wrong(error.to_string()))?;
        let mut fields = doc! { "_id": self.id.clone() };
        fields.extend(self.version.clone().map(|version| ("version".to_owned(), version)));
        let fields = serialize_to_vec(&fields).map_err(|error| wrong(error.to_string()))?;
        Ok(Place([vec![collection], fields].concat()))
    }

    pub(super) fn read(place: Option<&Place>) -> StoreResult<Option<Self>> {
        let Some(Place(bytes)) = place else { return Ok(None) };
        let wrong = || damaged("expected a place that a scan has given");
        let (collection, fields) = bytes.split_first().ok_or_else(wrong)?;
        let mut fields: Document = deserialize_from_slice(fields).map_err(|_| wrong())?;
        let (id, version) = (fields.remove("_id").ok_or_else(wrong)?, fields.remove("version"));
        Ok(Some(Self { collection: usize::from(*collection), id, version }))
    }

    /// The document as it was seen.
    pub(super) fn filter(self) -> Document {
        let version = self.version.unwrap_or_else(|| doc! { "$exists": false }.into());
        doc! { "_id": self.id, "version": version }
    }
}

fn field(stored: &RawDocument, name: &str) -> StoreResult<Option<Bson>> {
    let wrong = |error: String| damaged(format!("expected a document with a field {name}: {error}"));
    let value = stored.get(name).map_err(|error| wrong(error.to_string()))?;
    value.map(|value| Bson::try_from(value).map_err(|error| wrong(error.to_string()))).transpose()
}

/// What of a collection lies behind one spot and no further than another; nothing, if they are all elsewhere.
///
/// As expressions, because these compare ids of all types. A condition on `_id` itself is met by those of its own
/// type only, and what somebody else has left there would be passed over.
pub(super) fn between(collection: usize, after: Option<&Spot>, to: Option<&Spot>) -> Option<Document> {
    if after.is_some_and(|after| collection < after.collection)
        || to.is_some_and(|to| collection > to.collection)
    {
        return None;
    }
    let bound = |operator: &str, spot: Option<&Spot>| {
        let spot = spot.filter(|spot| spot.collection == collection)?;
        Some(doc! { operator: ["$_id", { "$literal": spot.id.clone() }] })
    };
    let bounds: Vec<Document> = [bound("$gt", after), bound("$lte", to)].into_iter().flatten().collect();
    Some(if bounds.is_empty() {
        Document::new()
    } else {
        doc! { "$expr": { "$and": bounds } }
    })
}

#[cfg(test)]
mod tests {
    use mongodb::bson::{Uuid, oid::ObjectId, serialize_to_raw_document_buf};

    use super::*;

    #[test]
    fn a_place_comes_back_as_it_was() {
        let owner = doc! { "is_guest": true, "id": Uuid::from_bytes([7; 16]) };
        let ids = [Bson::from(Uuid::from_bytes([1; 16])), owner.into(), Bson::from(ObjectId::new())];
        for (collection, id) in ids.into_iter().enumerate() {
            let stored =
                serialize_to_raw_document_buf(&doc! { "_id": id.clone(), "version": 5_i64 }).unwrap();
            let spot = Spot::of(collection, &stored).unwrap();
            assert_eq!(
                Spot::read(Some(&spot.place().unwrap())).unwrap(),
                Some(Spot::new(collection, id.clone()))
            );
            let seen = spot.with_version(&stored).unwrap();
            let read = Spot::read(Some(&seen.place().unwrap())).unwrap().unwrap();
            assert_eq!(read.filter(), doc! { "_id": id, "version": 5_i64 });
        }
        for broken in [vec![], vec![0], vec![0, 1, 2, 3]] {
            assert!(Spot::read(Some(&Place(broken))).is_err());
        }
    }

    #[test]
    fn a_range_may_span_collections() {
        let spot = |collection, id: i32| Spot::new(collection, id.into());
        let (after, to) = (spot(0, 5), spot(1, 9));
        let of = |collection| between(collection, Some(&after), Some(&to));
        assert_eq!(of(0), Some(doc! { "$expr": { "$and": [{ "$gt": ["$_id", { "$literal": 5 }] }] } }));
        assert_eq!(of(1), Some(doc! { "$expr": { "$and": [{ "$lte": ["$_id", { "$literal": 9 }] }] } }));
        assert_eq!(of(2), None);
        assert_eq!(between(0, Some(&to), None), None);
        assert_eq!(between(1, None, None), Some(Document::new()));
    }
}
