//! What one client, one request and one connection may take.

use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub body_bytes_max: usize,
    pub header_bytes_max: usize,
    pub headers_max: usize,
    /// From the first byte of a request's head to its last, and between two requests of a connection.
    pub header_read_ms_max: u64,
    /// From the head's last byte to the answer.
    pub request_ms_max: u64,
    pub connections_max: usize,
    /// Requests that are being answered at the same time. Of those beyond, none is begun; twice as many for orders.
    pub in_flight_max: usize,
    /// When everything is later than half of this, some requests are turned away, and more the later it is; 0 never turns any away.
    pub late_ms_max: u64,
    /// How long connections are still served after the end was asked for, so that whoever keeps them open can let them go first; 0
    /// closes those that are idle at once.
    pub drain_ms: u64,
    /// How long a shutdown waits for what was accepted.
    pub shutdown_ms_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes_max: 1024 * 1024,
            header_bytes_max: 64 * 1024,
            headers_max: 100,
            header_read_ms_max: 60_000,
            request_ms_max: 10_000,
            connections_max: 10_000,
            in_flight_max: 4_000,
            late_ms_max: 20,
            drain_ms: 0,
            shutdown_ms_max: 12_000,
        }
    }
}

impl Limits {
    pub(crate) fn request_time(&self) -> Duration {
        Duration::from_millis(self.request_ms_max)
    }
}
