//! Products as JSON, written once for as long as the store hands out the very same value.
//!
//! Nothing here can be old: what was written belongs to one value in memory, and a product that was changed is another
//! value. A store that makes a new value for every read finds nothing here, and leaves nothing.

use std::sync::Arc;

use bytes::Bytes;
use mobimir_core::{id::ProductId, product::Product};
use quick_cache::{Weighter, sync::Cache};

use crate::views::ProductView;

const KEPT_BYTES_MAX: u64 = 48 * 1024 * 1024;
/// Of a product beside its JSON, roughly: the value is kept as long as what was written of it.
const PRODUCT_BYTES: u64 = 600;
const ITEMS_EXPECTED: usize = 10_000;

pub(crate) struct ProductJson {
    written: Cache<ProductId, Written, Bytesized>,
}

#[derive(Clone)]
struct Written {
    of: Arc<Product>,
    json: Bytes,
}

#[derive(Clone)]
struct Bytesized;

impl Weighter<ProductId, Written> for Bytesized {
    fn weight(&self, _: &ProductId, written: &Written) -> u64 {
        written.json.len() as u64 + PRODUCT_BYTES
    }
}

impl ProductJson {
    pub(crate) fn new() -> Self {
        Self { written: Cache::with_weighter(ITEMS_EXPECTED, KEPT_BYTES_MAX, Bytesized) }
    }

    pub(crate) fn of(&self, product: &Arc<Product>) -> serde_json::Result<Bytes> {
        if let Some(written) = self.written.get(&product.id)
            && Arc::ptr_eq(&written.of, product)
        {
            return Ok(written.json);
        }
        let json = Bytes::from(serde_json::to_vec(&ProductView(product.clone()))?);
        // One that nobody else holds will never be met again.
        if Arc::strong_count(product) > 1 {
            self.written.insert(product.id, Written { of: product.clone(), json: json.clone() });
        }
        Ok(json)
    }

    /// `{"items": [...], "next": ...}`, as [`crate::views::List`] is written.
    pub(crate) fn list(&self, products: &[Arc<Product>], next: Option<&str>) -> serde_json::Result<Vec<u8>> {
        let items =
            products.iter().map(|product| self.of(product)).collect::<serde_json::Result<Vec<Bytes>>>()?;
        let next = serde_json::to_vec(&next)?;
        let (begin, middle, end) = (&b"{\"items\":["[..], &b"],\"next\":"[..], &b"}"[..]);
        let length = items.iter().map(|item| item.len() + 1).sum::<usize>() + next.len();
        let mut list = Vec::with_capacity(length + begin.len() + middle.len() + end.len());
        list.extend_from_slice(begin);
        for (at, item) in items.iter().enumerate() {
            if at > 0 {
                list.push(b',');
            }
            list.extend_from_slice(item);
        }
        list.extend_from_slice(middle);
        list.extend_from_slice(&next);
        list.extend_from_slice(end);
        Ok(list)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use mobimir_core::{money::Money, time::Timestamp};
    use uuid::Uuid;

    use super::*;
    use crate::views::List;

    fn product(id: u128, name: &str) -> Arc<Product> {
        let id = ProductId(Uuid::from_u128(id));
        let (price, at) = (Money::from_kopecks(100), Timestamp::from_millis(0));
        let product =
            Product::new(id, name.into(), "Связь".into(), price, BTreeMap::new(), BTreeMap::new(), at);
        Arc::new(product.expect("a product"))
    }

    #[test]
    fn what_was_written_is_of_the_very_same_value() {
        let kept = ProductJson::new();
        let (store, other) = (product(1, "first"), product(1, "second"));
        let (held, other_held) = (store.clone(), other.clone());
        let first = kept.of(&held).expect("JSON");
        assert_eq!(kept.of(&held).expect("JSON").as_ptr(), first.as_ptr(), "written once");
        assert!(kept.of(&other_held).expect("JSON").windows(6).any(|part| part == b"second"));
        assert_eq!(kept.of(&held).expect("JSON"), first);
    }

    #[test]
    fn a_value_that_nobody_keeps_is_not_kept_here() {
        let kept = ProductJson::new();
        kept.of(&product(1, "first")).expect("JSON");
        assert!(kept.written.is_empty());
    }

    #[test]
    fn a_list_is_written_as_any_other() {
        let kept = ProductJson::new();
        let products = [product(1, "\"a\""), product(2, "б")];
        for (count, next) in [(0, None), (1, Some("abc")), (2, None)] {
            let list = List {
                items: products[..count].iter().cloned().map(ProductView).collect(),
                next: next.map(str::to_owned),
            };
            let expected = serde_json::to_string(&list).expect("JSON");
            let written = kept.list(&products[..count], next).expect("JSON");
            assert_eq!(String::from_utf8(written).expect("text"), expected);
        }
    }
}
