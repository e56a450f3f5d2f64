//! What a shop is told by its policy and configuration.

use std::sync::Arc;

use mobimir_core::{id::OrderId, time::Timestamp, zone::Zone};

#[derive(Clone, Debug)]
pub struct ShopSettings {
    pub zones: Vec<Zone>,
    /// How long any request may take.
    pub request_ms_max: i64,
    pub checkout_deadline_ms: i64,
    /// How long a request may spend on a checkout, waiting for a full hold list included.
    pub checkout_request_ms_max: i64,
    pub session_ttl_ms: i64,
    pub guest_session_ttl_ms: i64,
    pub session_cache_ms: i64,
    /// `last_active` of a session is written when it is older than this.
    pub session_activity_ms: i64,
    pub guest_cart_ttl_ms: i64,
    /// `None`: a user's cart never expires.
    pub user_cart_ttl_ms: Option<i64>,
    pub abandoned_after_ms: i64,
    pub order_buckets: BucketCount,
    pub password_memory_kib: u32,
    /// Orders may be read from copies that are a little behind.
    pub orders_from_copies: bool,
}

/// Over how many buckets the orders of a day are spread: what a store says when it is asked, or always the same.
#[derive(Clone)]
pub struct BucketCount(Arc<dyn Fn(Timestamp) -> u16 + Send + Sync>);

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;

impl Default for ShopSettings {
    fn default() -> Self {
        let zones =
            ["MSK", "SPB", "EKB", "NSK"].into_iter().filter_map(|code| Zone::parse(code).ok()).collect();
        Self {
            zones,
            request_ms_max: 10_000,
            checkout_deadline_ms: 15_000,
            checkout_request_ms_max: 8_000,
            session_ttl_ms: 30 * DAY_MS,
            guest_session_ttl_ms: 30 * DAY_MS,
            session_cache_ms: 2_000,
            session_activity_ms: 60_000,
            guest_cart_ttl_ms: 7 * DAY_MS,
            user_cart_ttl_ms: Some(30 * DAY_MS),
            abandoned_after_ms: DAY_MS,
            order_buckets: BucketCount::fixed(1),
            password_memory_kib: 19 * 1024,
            orders_from_copies: false,
        }
    }
}

impl ShopSettings {
    pub fn knows_zone(&self, zone: Zone) -> bool {
        self.zones.contains(&zone)
    }
}

impl BucketCount {
    pub fn fixed(count: u16) -> Self {
        Self::asked(move |_| count)
    }

    pub fn asked(count_at: impl Fn(Timestamp) -> u16 + Send + Sync + 'static) -> Self {
        Self(Arc::new(count_at))
    }

    pub fn count_at(&self, now: Timestamp) -> u16 {
        (self.0)(now).max(1)
    }

    /// The bucket of an order that is made now.
    pub(crate) fn bucket_of(&self, order: OrderId, now: Timestamp) -> u16 {
        let bytes = order.as_bytes();
        // Two bytes, so that counts up to some hundreds get about the same each.
        u16::from_be_bytes([bytes[14], bytes[15]]) % self.count_at(now)
    }
}

impl std::fmt::Debug for BucketCount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BucketCount")
    }
}

#[cfg(test)]
mod tests {
    use mobimir_core::id::UserId;

    use super::*;

    #[test]
    fn orders_are_spread_evenly_over_any_count() {
        const ORDERS_PER_BUCKET: usize = 100;
        for count in [1, 7, 96, 256] {
            let buckets = BucketCount::fixed(count);
            let mut orders = vec![0usize; usize::from(count)];
            for n in 0..ORDERS_PER_BUCKET * usize::from(count) {
                let order = OrderId::of(UserId(mobimir_core::id::derived("user", &[])), &n.to_string());
                orders[usize::from(buckets.bucket_of(order, Timestamp::default()))] += 1;
            }
            assert!(orders.iter().all(|orders| (50..=150).contains(orders)), "{count}: {orders:?}");
        }
    }
}
