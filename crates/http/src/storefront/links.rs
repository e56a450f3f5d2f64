//! Addresses within the shop.

/// Longer ones are no address that a page of ours has made.
const PATH_BYTES_MAX: usize = 2_000;

/// Where to go back to, if it is a path of this shop and nothing else: `//host`, `/\host` and the like lead away.
pub(super) fn local_path(path: &str) -> Option<&str> {
    let printable = path.bytes().all(|b| b.is_ascii_graphic() && b != b'\\');
    let local = path.starts_with('/') && !path.starts_with("//");
    (printable && local && path.len() <= PATH_BYTES_MAX).then_some(path)
}

/// Text as it may stand in a query.
pub(super) fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

/// A path with those parameters that have a value.
pub(super) fn with_query(path: &str, parameters: &[(&str, &str)]) -> String {
    let given: Vec<String> = parameters
        .iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| format!("{name}={}", encode(value)))
        .collect();
    if given.is_empty() { path.to_owned() } else { format!("{path}?{}", given.join("&")) }
}

pub(super) fn category(name: &str) -> String {
    with_query("/catalog", &[("category", name)])
}

pub(super) fn login(back_to: &str) -> String {
    with_query("/login", &[("next", back_to)])
}
