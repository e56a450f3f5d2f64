//! Made-up reports for tests.

use std::collections::BTreeMap;

use super::{FORMAT, Limits, MemoryBytes, Report, Totals};
use crate::{
    operation::Operation,
    oracle::{Check, Findings},
    profile::Profile,
    record::{Latency, OperationResult, Second},
    rules::AnswerCheck,
};

const READS_PER_S: u64 = 900;
const ORDERS_PER_S: u64 = 100;

/// A good run of so many seconds, whose answers took `slower` times as long as they usually do.
pub(super) fn report(lasts: u64, slower: f64) -> Report {
    let seconds: Vec<Second> = (0..lasts).map(|at| second(at, slower)).collect();
    let reads = latency(lasts * READS_PER_S, (2_000.0 * slower) as u64);
    let writes = latency(lasts * ORDERS_PER_S, (8_000.0 * slower) as u64);
    let operations = [
        (
            Operation::ProductPage,
            OperationResult { latency: reads, fine: reads.count, ..OperationResult::default() },
        ),
        (
            Operation::Order,
            OperationResult {
                latency: writes,
                fine: writes.count - 3,
                refused: 3,
                ..OperationResult::default()
            },
        ),
    ];
    let sent = reads.count + writes.count;
    let right = |looked_at: u64| Check { looked_at, wrong: 0 };
    Report {
        planned: sent,
        sent,
        sent_share: 1.0,
        lasts_s: lasts as f64,
        took_s: lasts as f64,
        reads,
        writes,
        operations: operations.into(),
        seconds,
        shop_cpu_us: Some(84.5 * slower),
        shop_memory_bytes: Some(MemoryBytes { before: 120 << 20, after: 144 << 20 }),
        findings: Some(Findings {
            orders: right(writes.count - 3),
            histories: right(writes.count - 3),
            days: Some(right(writes.count - 3)),
            unasked_orders: right(writes.count - 3),
            carts: right(600),
            stock: right(3_000),
            invariants: Some(right(12)),
            answers: [("cart_contents".to_owned(), AnswerCheck { checked: 1_200, ..AnswerCheck::default() })]
                .into(),
            reads_checked_one_in: 8,
            settled: 3,
            ..Findings::default()
        }),
        ..silent()
    }
}

/// A run of two seconds to which nobody answered.
pub(super) fn silent() -> Report {
    let waited = |count: u64| {
        let us = 30_000_000;
        Latency { count, p50_us: us, p90_us: us, p99_us: us, p999_us: us, max_us: us }
    };
    let failed = OperationResult {
        latency: waited(40),
        failed: [("no answer in time".to_owned(), 40)].into(),
        ..OperationResult::default()
    };
    let operations: BTreeMap<Operation, Latency> = [(Operation::ProductPage, waited(20))].into();
    let second = Second { sent: 20, failed: 20, lost: 20, operations, ..Second::default() };
    Report {
        format: FORMAT,
        version: "0.1.0".to_owned(),
        started_at: "2026-11-27T18:00:00Z".to_owned(),
        target: "http://127.0.0.1:8080".to_owned(),
        profile: Profile::built_in("browsing").expect("a profile"),
        rate: 1_000.0,
        lasts_s: 2.0,
        even: false,
        connections: 64,
        seed: 7,
        machine: "2 cores, 8 GiB".to_owned(),
        planned: 40,
        sent: 40,
        sent_share: 1.0,
        took_s: 2.0,
        interrupted: false,
        totals: Totals::default(),
        late: Latency { count: 40, p50_us: 50, p90_us: 80, p99_us: 210, p999_us: 900, max_us: 3_100 },
        reads: waited(40),
        writes: Latency::default(),
        limits: Some(Limits { read_p99_us: Some(200_000), write_p99_us: Some(500_000) }),
        operations: [(Operation::ProductPage, failed)].into(),
        seconds: vec![second.clone(), second],
        generator_cpu_us: 12.5,
        shop_cpu_us: None,
        shop_memory_bytes: None,
        findmax: None,
        events: Vec::new(),
        findings: None,
    }
}

fn second(at: u64, slower: f64) -> Second {
    // Up to a fifth more or less, in an order that has no trend.
    let jitter = 0.8 + (at * 37 % 101) as f64 / 250.0;
    let reads = latency(READS_PER_S, (2_000.0 * slower * jitter) as u64);
    let writes = latency(ORDERS_PER_S, (8_000.0 * slower * jitter) as u64);
    let operations = [(Operation::ProductPage, reads), (Operation::Order, writes)].into();
    let answered = READS_PER_S + ORDERS_PER_S;
    // One is always too late.
    Second { sent: answered, answered, goodput: answered - 1, operations, reads, writes, ..Second::default() }
}

fn latency(count: u64, p50_us: u64) -> Latency {
    Latency {
        count,
        p50_us,
        p90_us: p50_us * 2,
        p99_us: p50_us * 4,
        p999_us: p50_us * 6,
        max_us: p50_us * 10,
    }
}
