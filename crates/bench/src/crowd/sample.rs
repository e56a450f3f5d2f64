//! A report of a run in which nothing is short, for tests to spoil.

use mobimir_load::{
    Check, Findings, Latency, Operation, OperationResult, Second,
    report::{FORMAT, Limits, Report},
};

pub(crate) const SECONDS: usize = 10;
const REQUESTS_PER_SECOND: u64 = 100;

pub(crate) fn report() -> Report {
    let latency = |count: u64| Latency { count, p99_us: 20_000, ..Latency::default() };
    let requests = REQUESTS_PER_SECOND * SECONDS as u64;
    let second = || Second {
        sent: REQUESTS_PER_SECOND,
        answered: REQUESTS_PER_SECOND,
        goodput: REQUESTS_PER_SECOND,
        operations: [Operation::ProductPage, Operation::CartAdd]
            .map(|operation| (operation, latency(REQUESTS_PER_SECOND / 2)))
            .into(),
        reads: latency(REQUESTS_PER_SECOND / 2),
        writes: latency(REQUESTS_PER_SECOND / 2),
        ..Second::default()
    };
    let result = || OperationResult {
        latency: latency(requests / 2),
        fine: requests / 2,
        ..OperationResult::default()
    };
    let checked = || Check { looked_at: 10, wrong: 0 };
    let mut report: Report = serde_json::from_value(serde_json::json!({
        "format": FORMAT, "version": "0", "started_at": "2026-11-27T00:00:00Z", "target": "http://shop",
        "profile": { "name": "sample", "mix": { "order": 1.0 } }, "rate": REQUESTS_PER_SECOND,
        "lasts_s": SECONDS, "even": false, "connections": 1, "seed": 1, "machine": "", "planned": requests,
        "sent": requests, "sent_share": 1.0, "took_s": SECONDS, "interrupted": false,
        "late": Latency::default(), "reads": latency(requests / 2), "writes": latency(requests / 2),
        "limits": null, "operations": {}, "seconds": [], "generator_cpu_us": 1.0, "shop_cpu_us": 1.0,
        "shop_memory_bytes": null, "events": [], "findings": null,
    }))
    .unwrap();
    report.limits = Some(Limits { read_p99_us: Some(50_000), write_p99_us: Some(30_000) });
    report.operations = [Operation::ProductPage, Operation::CartAdd].map(|of| (of, result())).into();
    report.seconds = (0..SECONDS).map(|_| second()).collect();
    report.findings = Some(Findings {
        orders: checked(),
        histories: checked(),
        days: Some(checked()),
        carts: checked(),
        stock: checked(),
        invariants: Some(checked()),
        ..Findings::default()
    });
    report
}
