//! Borders of ranges that have about as many documents each.
//!
//! Ids grow with time, or are spread evenly, or are documents: where the middle is, only a sample of them tells.

use mobimir_core::{
    moving::{Place, Range},
    ports::StoreResult,
};
use mongodb::{
    Collection,
    bson::{Document, RawDocumentBuf, doc},
};

use super::place::Spot;
use crate::link::Link;

const PARTS_MAX: usize = 256;
/// So many that the largest of the parts is seldom twice as large as it should be.
const SAMPLED_PER_PART: usize = 16;

pub(super) async fn ranges(
    link: &Link,
    collections: &[Collection<RawDocumentBuf>],
    parts: usize,
) -> StoreResult<Vec<Range>> {
    let parts = parts.clamp(1, PARTS_MAX);
    if parts == 1 {
        return Ok(vec![Range::default()]);
    }
    let sample = sample(link, collections, parts * SAMPLED_PER_PART).await?;
    Ok(split(&borders(&sample, parts)))
}

/// Places of about so many documents, in order; from each collection as many as it has a share in all of them.
async fn sample(
    link: &Link,
    collections: &[Collection<RawDocumentBuf>],
    wanted: usize,
) -> StoreResult<Vec<Place>> {
    let mut sizes = Vec::with_capacity(collections.len());
    for documents in collections {
        sizes.push(link.estimated_count("moving_size", documents).await?);
    }
    let mut places = Vec::new();
    for (collection, (documents, size)) in collections.iter().zip(&sizes).enumerate() {
        let share = (wanted as u64).saturating_mul(*size).div_ceil(sizes.iter().sum::<u64>().max(1));
        if share == 0 {
            continue;
        }
        // In the server's own order.
        let ids: Vec<RawDocumentBuf> = link.aggregate("moving_sample", documents, sampled(share)).await?;
        for id in ids {
            places.push(Spot::of(collection, &id)?.place()?);
        }
    }
    Ok(places)
}

fn sampled(documents: u64) -> Vec<Document> {
    let size = i64::try_from(documents).unwrap_or(i64::MAX);
    vec![
        doc! { "$sample": { "size": size } },
        doc! { "$project": { "_id": 1 } },
        doc! { "$sort": { "_id": 1 } },
    ]
}

/// What divides a sample evenly. The same document may have been met twice, and a part without any is none.
fn borders(sample: &[Place], parts: usize) -> Vec<Place> {
    let mut borders: Vec<Place> =
        (1..parts).filter_map(|part| sample.get(part * sample.len() / parts).cloned()).collect();
    borders.dedup();
    borders
}

/// Everything, in ranges between borders.
fn split(borders: &[Place]) -> Vec<Range> {
    let ends = borders.iter().cloned().map(Some).chain([None]);
    let starts = [None].into_iter().chain(borders.iter().cloned().map(Some));
    starts.zip(ends).map(|(after, to)| Range { after, to }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(numbers: impl IntoIterator<Item = u8>) -> Vec<Place> {
        numbers.into_iter().map(|number| Place(vec![number])).collect()
    }

    #[test]
    fn borders_divide_what_was_sampled() {
        assert_eq!(borders(&places(0..100), 4), places([25, 50, 75]));
        assert_eq!(borders(&places([1, 1, 1, 1]), 4), places([1]));
        assert_eq!(borders(&[], 4), []);
        assert_eq!(borders(&places(0..2), 16).len(), 2);
    }

    #[test]
    fn ranges_are_everything() {
        assert_eq!(split(&[]), [Range::default()]);
        let ranges = split(&places([3, 7]));
        assert_eq!(ranges.len(), 3);
        assert!(ranges[0].after.is_none() && ranges[2].to.is_none());
        assert!(ranges.windows(2).all(|two| two[0].to == two[1].after && two[0].to.is_some()));
    }
}
