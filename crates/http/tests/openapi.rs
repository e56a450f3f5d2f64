//! The API's description is part of the API: a change of it is reviewed as a change of its snapshot.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;

use serde_json::Value;

/// Every call that the design names.
const CALLS: &[(&str, &[&str])] = &[
    ("/healthz", &["get"]),
    ("/metrics", &["get"]),
    ("/readyz", &["get"]),
    ("/v1/cart", &["get", "delete"]),
    ("/v1/cart/items", &["post"]),
    ("/v1/cart/items/{product_id}", &["put", "delete"]),
    ("/v1/carts", &["get"]),
    ("/v1/categories", &["get"]),
    ("/v1/ops/invariants", &["get"]),
    ("/v1/ops/migrations", &["get"]),
    ("/v1/ops/migrations/{entity}/{action}", &["post"]),
    ("/v1/ops/policy", &["get"]),
    ("/v1/orders", &["get", "post"]),
    ("/v1/orders/{order_id}", &["get"]),
    ("/v1/orders/{order_id}/history", &["get"]),
    ("/v1/orders/{order_id}/status", &["post"]),
    ("/v1/products", &["get", "post"]),
    ("/v1/products/{product_id}", &["get", "patch"]),
    ("/v1/products/{product_id}/stock", &["get"]),
    ("/v1/products/{product_id}/stock/{zone}", &["put"]),
    ("/v1/reports/orders", &["get"]),
    ("/v1/sessions", &["get", "post"]),
    ("/v1/sessions/current", &["delete"]),
    ("/v1/sessions/login", &["post"]),
    ("/v1/sessions/refresh", &["post"]),
    ("/v1/users", &["post"]),
    ("/v1/users/me", &["get", "patch"]),
];

fn description() -> Value {
    serde_json::from_str(mobimir_http::openapi_json()).unwrap()
}

fn operations(description: &Value) -> impl Iterator<Item = (String, &Value)> {
    let paths = description["paths"].as_object().unwrap();
    paths.iter().flat_map(|(path, methods)| {
        let methods = methods.as_object().unwrap();
        methods.iter().map(move |(method, operation)| (format!("{method} {path}"), operation))
    })
}

#[test]
fn the_description() {
    insta::assert_snapshot!("openapi", mobimir_http::openapi_json());
}

#[test]
fn every_call_of_the_design_is_described() {
    let description = description();
    for (path, methods) in CALLS {
        let described =
            description["paths"][path].as_object().unwrap_or_else(|| panic!("{path} is not described"));
        let described: BTreeSet<&str> = described.keys().map(String::as_str).collect();
        assert_eq!(described, methods.iter().copied().collect(), "{path}");
    }
}

#[test]
fn every_call_has_a_summary_a_known_tag_and_answers() {
    let description = description();
    let tags: Vec<&Value> = description["tags"].as_array().unwrap().iter().map(|tag| &tag["name"]).collect();
    for (call, operation) in operations(&description) {
        assert!(
            operation["summary"].as_str().is_some_and(|summary| !summary.is_empty()),
            "{call} has no summary"
        );
        let answers = operation["responses"].as_object().map_or(0, serde_json::Map::len);
        assert!(answers > 0, "{call} has no answers");
        let own = operation["tags"].as_array().unwrap_or_else(|| panic!("{call} has no tag"));
        assert!(own.iter().all(|tag| tags.contains(&tag)), "{call} has a tag that nobody explains");
    }
}

#[test]
fn every_reference_leads_somewhere() {
    fn references<'a>(value: &'a Value, found: &mut BTreeSet<&'a str>) {
        match value {
            Value::Object(fields) => fields.iter().for_each(|(key, value)| match value {
                Value::String(target) if key == "$ref" => {
                    found.insert(target);
                }
                other => references(other, found),
            }),
            Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            _ => {}
        }
    }
    let description = description();
    let mut found = BTreeSet::new();
    references(&description, &mut found);
    assert!(!found.is_empty());
    for target in found {
        let pointer = target.strip_prefix('#').unwrap();
        assert!(description.pointer(pointer).is_some(), "{target} leads nowhere");
    }
}

#[test]
fn every_parameter_of_a_path_is_described_and_required() {
    let description = description();
    for (call, operation) in operations(&description) {
        let named = call.split('{').skip(1).filter_map(|rest| rest.split_once('}')).map(|(name, _)| name);
        let none = Vec::new();
        let parameters = operation["parameters"].as_array().unwrap_or(&none);
        let described = |name: &str| {
            parameters.iter().any(|one| one["in"] == "path" && one["name"] == name && one["required"] == true)
        };
        named.for_each(|name| assert!(described(name), "{call}: {name}"));
    }
}
