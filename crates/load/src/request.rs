//! Requests as they go over the wire.

use std::io::Write;

/// What a request is made of, besides its method and path.
#[derive(Clone, Copy, Default)]
pub(crate) struct Parts<'a> {
    pub(crate) token: Option<&'a str>,
    pub(crate) idempotency_key: Option<&'a str>,
    pub(crate) read_after: Option<&'a str>,
    pub(crate) body: Option<&'a str>,
}

impl<'a> Parts<'a> {
    pub(crate) fn of(token: &'a str) -> Self {
        Self { token: Some(token), ..Self::default() }
    }
}

/// Puts a request behind what `out` has.
pub(crate) fn put(out: &mut Vec<u8>, method: &str, path: &str, parts: Parts<'_>) {
    // Writing to memory cannot fail.
    let _ = write!(out, "{method} {path} HTTP/1.1\r\nhost: shop\r\n");
    if let Some(token) = parts.token {
        let _ = write!(out, "authorization: Bearer {token}\r\n");
    }
    if let Some(key) = parts.idempotency_key {
        let _ = write!(out, "idempotency-key: {key}\r\n");
    }
    if let Some(position) = parts.read_after {
        let _ = write!(out, "read-after: {position}\r\n");
    }
    match parts.body {
        Some(body) => {
            let length = body.len();
            let _ = write!(out, "content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}");
        }
        None => out.extend_from_slice(b"\r\n"),
    }
}

/// For a query: everything but letters and digits as bytes in hex.
pub(crate) fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut encoded, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte));
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
        encoded
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_head_and_body() {
        let mut out = Vec::new();
        let parts =
            Parts { token: Some("t"), idempotency_key: Some("k"), read_after: Some("r"), body: Some("{}") };
        put(&mut out, "POST", "/v1/orders", parts);
        put(&mut out, "GET", "/", Parts::default());
        assert_eq!(
            String::from_utf8(out).expect("text"),
            "POST /v1/orders HTTP/1.1\r\nhost: shop\r\nauthorization: Bearer t\r\nidempotency-key: k\r\n\
             read-after: r\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}GET / HTTP/1.1\r\nhost: shop\r\n\r\n"
        );
        assert_eq!(encoded("Связь 5G"), "%D0%A1%D0%B2%D1%8F%D0%B7%D1%8C%205G");
    }
}
