//! What a shop is told by its policy and configuration.

use mobimir_core::zone::Zone;

#[derive(Clone, Debug)]
pub struct ShopSettings {
    pub zones: Vec<Zone>,
    pub checkout_deadline_ms: i64,
    /// How long a request may spend on a checkout, waiting for a full hold list included.
    pub checkout_request_ms_max: i64,
    pub session_ttl_ms: i64,
    pub guest_session_ttl_ms: i64,
    pub session_cache_ms: i64,
    pub guest_cart_ttl_ms: i64,
    /// `None`: a user's cart never expires.
    pub user_cart_ttl_ms: Option<i64>,
    pub abandoned_after_ms: i64,
    pub order_buckets: u16,
    pub password_memory_kib: u32,
}

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;

impl Default for ShopSettings {
    fn default() -> Self {
        let zones =
            ["MSK", "SPB", "EKB", "NSK"].into_iter().filter_map(|code| Zone::parse(code).ok()).collect();
        Self {
            zones,
            checkout_deadline_ms: 15_000,
            checkout_request_ms_max: 8_000,
            session_ttl_ms: 30 * DAY_MS,
            guest_session_ttl_ms: 30 * DAY_MS,
            session_cache_ms: 2_000,
            guest_cart_ttl_ms: 7 * DAY_MS,
            user_cart_ttl_ms: Some(30 * DAY_MS),
            abandoned_after_ms: DAY_MS,
            order_buckets: 1,
            password_memory_kib: 19 * 1024,
        }
    }
}

impl ShopSettings {
    pub fn knows_zone(&self, zone: Zone) -> bool {
        self.zones.contains(&zone)
    }
}
