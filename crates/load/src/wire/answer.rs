//! The head of an HTTP answer: as much of it as a client with one request under way needs.

/// What is wrong with bytes that should have been an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotHttp {
    #[error("the answer does not begin like HTTP/1.1")]
    StatusLine,
    #[error("the answer's content-length is no number")]
    Length,
    #[error("the answer comes in chunks, which this client does not read")]
    Chunked,
    #[error("the answer is longer than this client reads")]
    TooLong,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) status: u16,
    pub(super) head_bytes: usize,
    pub(super) body_bytes: usize,
    /// The server hangs up after this answer.
    pub(super) last: bool,
}

pub(super) const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Far more than the largest answer of the API.
pub(super) const BODY_BYTES_MAX: usize = 16 * 1024 * 1024;

impl Head {
    /// `None` when it is not all there yet.
    pub(super) fn parse(bytes: &[u8]) -> Result<Option<Self>, NotHttp> {
        let mut head = Self { status: 0, head_bytes: 0, body_bytes: 0, last: false };
        let mut start = 0;
        while let Some(length) = bytes[start..].iter().position(|byte| *byte == b'\n') {
            let line = bytes[start..start + length].trim_ascii_end();
            let first = start == 0;
            start += length + 1;
            if first {
                head.status = status(line).ok_or(NotHttp::StatusLine)?;
            } else if line.is_empty() {
                head.head_bytes = start;
                return Ok(Some(head));
            } else {
                head.take(line)?;
            }
        }
        if bytes.len() > HEAD_BYTES_MAX { Err(NotHttp::TooLong) } else { Ok(None) }
    }

    fn take(&mut self, line: &[u8]) -> Result<(), NotHttp> {
        // Most headers of an answer are none of these, and their first letter says so.
        if !matches!(line[0], b'c' | b'C' | b't' | b'T') {
            return Ok(());
        }
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { return Ok(()) };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        match name.len() {
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                self.body_bytes = number(value).ok_or(NotHttp::Length)?;
                if self.body_bytes > BODY_BYTES_MAX {
                    return Err(NotHttp::TooLong);
                }
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => return Err(NotHttp::Chunked),
            10 if name.eq_ignore_ascii_case(b"connection") => {
                self.last = value.eq_ignore_ascii_case(b"close")
            }
            _ => {}
        }
        Ok(())
    }
}

fn status(line: &[u8]) -> Option<u16> {
    let rest = line.strip_prefix(b"HTTP/1.1 ").or_else(|| line.strip_prefix(b"HTTP/1.0 "))?;
    u16::try_from(number(rest.get(..3)?)?).ok()
}

fn number(text: &[u8]) -> Option<usize> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// The value of a header in the head of an answer.
pub(super) fn header<'a>(head: &'a [u8], name: &str) -> Option<&'a [u8]> {
    head.split(|byte| *byte == b'\n').skip(1).find_map(|line| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        line[..colon].eq_ignore_ascii_case(name.as_bytes()).then(|| line[colon + 1..].trim_ascii())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &[u8] =
        b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\nretry-after: 1\r\nConnection: close\r\n\r\nbody";

    #[test]
    fn a_head_is_status_length_and_whether_more_will_come() {
        let head = Head { status: 503, head_bytes: ANSWER.len() - 4, body_bytes: 4, last: true };
        assert_eq!(Head::parse(ANSWER), Ok(Some(head)));
        assert_eq!(header(ANSWER, "Retry-After"), Some(&b"1"[..]));
        assert_eq!(header(ANSWER, "server"), None);
    }

    #[test]
    fn half_a_head_is_none_yet() {
        for length in 0..ANSWER.len() - 4 {
            assert_eq!(Head::parse(&ANSWER[..length]), Ok(None), "{length}");
        }
    }

    #[test]
    fn what_is_not_http_is_said_to_be_so() {
        for (bytes, wrong) in [
            (&b"nonsense\r\n\r\n"[..], NotHttp::StatusLine),
            (b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n", NotHttp::Length),
            (b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n", NotHttp::TooLong),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", NotHttp::Chunked),
            (&[b'x'; HEAD_BYTES_MAX + 1], NotHttp::TooLong),
        ] {
            assert_eq!(Head::parse(bytes), Err(wrong));
        }
    }
}
