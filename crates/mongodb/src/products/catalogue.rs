//! Questions to the catalogue in the server's language: what must be true of a document, in which order, from where on.
//!
//! Text is compared by its bytes and ids by theirs, as in the rules: no collation is ever asked for.

use mobimir_core::product::{ProductPosition, ProductQuery, ProductSort, price_key};
use mongodb::{
    bson::{Document, doc},
    options::FindOptions,
};

use crate::leaves::uuid;

/// What a query means, wherever its page starts, and where that is.
pub(super) fn filter(query: &ProductQuery) -> Document {
    let mut filter = Document::new();
    if let Some(category) = &query.category {
        filter.insert("category", category);
    }
    if !query.terms.is_empty() {
        filter.insert("terms", doc! { "$all": query.terms.iter().cloned().collect::<Vec<_>>() });
    }
    if let Some(zone) = query.zone {
        // Of a product that is split this is one stripe of several.
        let here = doc! { format!("stock.{zone}.available"): { "$gt": 0_i64 } };
        let elsewhere = doc! { "stripes.split": { "$exists": true } };
        filter.insert("$and", vec![doc! { "$or": [here, elsewhere] }]);
    }
    let mut price = Document::new();
    if let Some(min) = query.price_min {
        price.insert("$gte", price_key(min));
    }
    if let Some(max) = query.price_max {
        price.insert("$lte", price_key(max));
    }
    if let Some(after) = query.after.as_ref().filter(|after| query.sort.fits(after)) {
        start(&mut filter, &mut price, query.sort, after);
    }
    if !price.is_empty() {
        filter.insert("price", price);
    }
    filter
}

/// One bound on what is sorted by lets the index start there; the rest tells equals apart by their id.
fn start(filter: &mut Document, price: &mut Document, sort: ProductSort, after: &ProductPosition) {
    let past = if sort == ProductSort::PriceDescending { "$lt" } else { "$gt" };
    match after {
        ProductPosition::Price(at, id) => {
            filter.insert(
                "$or",
                vec![doc! { "price": { past: at } }, doc! { "price": at, "_id": { past: uuid(id.0) } }],
            );
            let (bound, tighter): (_, fn(i64, i64) -> i64) = match sort {
                ProductSort::PriceDescending => ("$lte", i64::min),
                ProductSort::PriceAscending | ProductSort::Name => ("$gte", i64::max),
            };
            let asked = price.get_i64(bound).unwrap_or(*at);
            price.insert(bound, tighter(asked, *at));
        }
        ProductPosition::Name(at, id) => {
            filter.insert("name_key", doc! { "$gte": at });
            filter.insert(
                "$or",
                vec![doc! { "name_key": { past: at } }, doc! { "name_key": at, "_id": { past: uuid(id.0) } }],
            );
        }
    }
}

pub(super) fn options(sort: ProductSort, limit: usize) -> FindOptions {
    let sort = match sort {
        ProductSort::PriceAscending => doc! { "price": 1, "_id": 1 },
        ProductSort::PriceDescending => doc! { "price": -1, "_id": -1 },
        ProductSort::Name => doc! { "name_key": 1, "_id": 1 },
    };
    page(sort, limit)
}

pub(super) fn page(sort: Document, limit: usize) -> FindOptions {
    // The fields that are only there to be searched by stay where they are.
    let projection = doc! { "terms": 0, "name_key": 0 };
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    FindOptions::builder().sort(sort).limit(limit).projection(projection).build()
}
