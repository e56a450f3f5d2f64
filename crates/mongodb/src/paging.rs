//! Pages of lists that an index has in their order.

use mobimir_core::{ports::Period, time::Timestamp};
use mongodb::{
    bson::{Document, doc},
    options::FindOptions,
};

use crate::leaves::{date, uuid};

/// One document further than the page, so that [`Page::cut`](mobimir_core::page::Page::cut) can tell whether there are more.
pub(crate) fn page_of(limit: usize, sort: Document) -> FindOptions {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1);
    FindOptions::builder().sort(sort).limit(limit).build()
}

/// The order of [`newest_first`].
pub(crate) fn by_age() -> Document {
    doc! { "created_at": -1, "_id": 1 }
}

/// What meets `filter` and was created in a period, after a position in a list: the newest first, equal times by rising id.
///
/// From a position on these are two ranges of the index, which the server merges, reading no more than the page. Each of them
/// says the whole filter: if it stood outside, one range from the beginning of the list would do, too, and be taken.
pub(crate) fn newest_first(
    filter: Document,
    period: Period,
    after: Option<(Timestamp, uuid::Uuid)>,
) -> Document {
    let with = |range: Document| {
        filter.iter().map(|(key, value)| (key.clone(), value.clone())).chain(range).collect()
    };
    let Some((created_at, id)) = after else { return with(created(period)) };
    let earlier = Period { to: Some(period.to.map_or(created_at, |to| to.min(created_at))), ..period };
    let mut ranges: Vec<Document> = vec![with(created(earlier))];
    if period.contains(created_at) {
        ranges.push(with(doc! { "created_at": date(created_at), "_id": { "$gt": uuid(id) } }));
    }
    doc! { "$or": ranges }
}

fn created(period: Period) -> Document {
    let mut bounds = Document::new();
    if let Some(from) = period.from {
        bounds.insert("$gte", date(from));
    }
    if let Some(to) = period.to {
        bounds.insert("$lt", date(to));
    }
    if bounds.is_empty() {
        Document::new()
    } else {
        doc! { "created_at": bounds }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_goes_on_within_its_period() {
        let at = Timestamp::from_millis;
        let id = uuid::Uuid::from_u128(7);
        let of = |from: Option<i64>, to: Option<i64>, after: Option<i64>| {
            let period = Period { from: from.map(at), to: to.map(at) };
            newest_first(doc! { "user_id": 1 }, period, after.map(|ms| (at(ms), id)))
        };
        assert_eq!(of(None, None, None), doc! { "user_id": 1 });
        let (ten, five) = (date(at(10)), date(at(5)));
        assert_eq!(of(None, Some(10), None), doc! { "user_id": 1, "created_at": { "$lt": ten } });
        let there = doc! { "user_id": 1, "created_at": five, "_id": { "$gt": uuid(id) } };
        let earlier = doc! { "user_id": 1, "created_at": { "$lt": five } };
        assert_eq!(of(None, Some(10), Some(5)), doc! { "$or": [earlier.clone(), there] });
        // The position lies behind the end, and before the start.
        assert_eq!(of(None, Some(5), Some(10)), doc! { "$or": [earlier] });
        let none = doc! { "user_id": 1, "created_at": { "$gte": ten, "$lt": five } };
        assert_eq!(of(Some(10), None, Some(5)), doc! { "$or": [none] });
    }
}
