//! Requests as they go over the wire.

use std::io::Write;

/// A request, in memory that the next one uses again.
pub struct Request {
    /// The header that says which shop is meant.
    host: String,
    bytes: Vec<u8>,
    repeatable: bool,
}

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

impl Request {
    /// An empty one to `host` or `host:port`.
    pub(crate) fn to(host: &str) -> Self {
        Self { host: format!(" HTTP/1.1\r\nhost: {host}\r\n"), bytes: Vec::new(), repeatable: false }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether twice does the same as once (RFC 9110, 9.2.2): by its method, or because it has a key.
    pub(crate) fn is_repeatable(&self) -> bool {
        self.repeatable
    }

    /// Makes it another one. The path comes in pieces, because it is made for every request anew.
    pub(crate) fn put(&mut self, method: &str, path: &[&str], parts: Parts<'_>) {
        self.repeatable =
            matches!(method, "GET" | "HEAD" | "PUT" | "DELETE") || parts.idempotency_key.is_some();
        let out = &mut self.bytes;
        out.clear();
        out.extend_from_slice(method.as_bytes());
        out.push(b' ');
        path.iter().for_each(|piece| out.extend_from_slice(piece.as_bytes()));
        out.extend_from_slice(self.host.as_bytes());
        let headers = [
            ("authorization: Bearer ", parts.token),
            ("idempotency-key: ", parts.idempotency_key),
            ("read-after: ", parts.read_after),
        ];
        for (name, value) in headers {
            let Some(value) = value else { continue };
            [name, value, "\r\n"].iter().for_each(|piece| out.extend_from_slice(piece.as_bytes()));
        }
        if let Some(body) = parts.body {
            // Writing to memory cannot fail.
            let _ = write!(out, "content-type: application/json\r\ncontent-length: {}\r\n", body.len());
        }
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(parts.body.unwrap_or_default().as_bytes());
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
        let mut request = Request::to("shop.example:8080");
        let parts =
            Parts { token: Some("t"), idempotency_key: Some("k"), read_after: Some("r"), body: Some("{}") };
        request.put("POST", &["/v1/", "orders"], parts);
        assert_eq!(
            String::from_utf8_lossy(request.bytes()),
            "POST /v1/orders HTTP/1.1\r\nhost: shop.example:8080\r\nauthorization: Bearer t\r\n\
             idempotency-key: k\r\nread-after: r\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
        );
        // Nothing is left of the one before.
        request.put("GET", &["/"], Parts::default());
        assert_eq!(
            String::from_utf8_lossy(request.bytes()),
            "GET / HTTP/1.1\r\nhost: shop.example:8080\r\n\r\n"
        );
    }

    #[test]
    fn what_may_be_sent_twice() {
        let mut request = Request::to("shop");
        let key = Parts { idempotency_key: Some("k"), ..Parts::default() };
        for (method, parts, repeatable) in [
            ("GET", Parts::default(), true),
            ("PUT", Parts::default(), true),
            ("DELETE", Parts::default(), true),
            ("POST", key, true),
            ("POST", Parts::default(), false),
        ] {
            request.put(method, &["/"], parts);
            assert_eq!(request.is_repeatable(), repeatable, "{method}");
        }
    }

    #[test]
    fn a_query_is_letters_and_digits() {
        assert_eq!(encoded("Связь 5G"), "%D0%A1%D0%B2%D1%8F%D0%B7%D1%8C%205G");
    }
}
