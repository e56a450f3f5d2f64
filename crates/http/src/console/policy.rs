//! The policy in force as short tables, whatever is in it.

use serde_json::Value;

/// One part of the policy: an entity, the reads, the alerts.
pub(super) struct PolicyPart {
    pub(super) name: String,
    pub(super) rows: Vec<PolicyRow>,
}

pub(super) struct PolicyRow {
    pub(super) key: String,
    pub(super) value: String,
}

/// A part for each section, and before them one for what stands outside of any.
pub(super) fn parts(policy: &Value) -> Vec<PolicyPart> {
    let Value::Object(sections) = policy else {
        return vec![PolicyPart { name: String::new(), rows: rows("", policy) }];
    };
    let (nested, plain): (Vec<_>, Vec<_>) = sections.iter().partition(|(_, value)| is_nested(value));
    let general = plain.into_iter().flat_map(|(key, value)| rows(key, value)).collect();
    let general = PolicyPart { name: String::new(), rows: general };
    let sections =
        nested.into_iter().map(|(name, value)| PolicyPart { name: name.clone(), rows: rows("", value) });
    std::iter::once(general).chain(sections).filter(|part| !part.rows.is_empty()).collect()
}

fn is_nested(value: &Value) -> bool {
    match value {
        Value::Object(_) => true,
        Value::Array(items) => items.iter().any(|item| item.is_object() || item.is_array()),
        _ => false,
    }
}

/// The leaves below a value, each under its path: `ttl.guest`.
fn rows(path: &str, value: &Value) -> Vec<PolicyRow> {
    let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    match value {
        Value::Object(fields) => fields.iter().flat_map(|(key, value)| rows(&below(key), value)).collect(),
        Value::Array(items) if is_nested(value) => items
            .iter()
            .enumerate()
            .flat_map(|(at, item)| rows(&below(&(at + 1).to_string()), item))
            .collect(),
        leaf => vec![PolicyRow { key: path.to_owned(), value: leaf_text(leaf) }],
    }
}

fn leaf_text(value: &Value) -> String {
    match value {
        Value::Null => "—".to_owned(),
        Value::Bool(true) => "да".to_owned(),
        Value::Bool(false) => "нет".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(leaf_text).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn sections_become_parts_and_leaves_rows() {
        let policy = json!({
            "name": "default",
            "carts": { "home": "cassandra", "ttl": { "guest": "7d" }, "read_repair": true },
            "zones": ["MSK", "SPB"],
        });
        let text: Vec<String> = parts(&policy)
            .iter()
            .flat_map(|part| {
                part.rows.iter().map(move |row| format!("{}/{}={}", part.name, row.key, row.value))
            })
            .collect();
        assert_eq!(
            text,
            [
                "/name=default",
                "/zones=MSK, SPB",
                "carts/home=cassandra",
                "carts/read_repair=да",
                "carts/ttl.guest=7d"
            ]
        );
    }

    #[test]
    fn a_policy_that_says_nothing_is_shown_too() {
        assert!(parts(&json!({})).is_empty());
        assert_eq!(parts(&Value::Null).len(), 1);
    }
}
