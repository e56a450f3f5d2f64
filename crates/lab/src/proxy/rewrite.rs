//! What a proxy changes in the bytes that it carries, so that clients come back to it.

/// Of every connection of a proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rewrite {
    Nothing,
    /// Members of a replica set, each with the proxy before it: a driver connects to the names that the
    /// members tell. Both names are equally long, because messages and documents carry their lengths.
    MongoNames(Vec<(String, String)>),
    /// HTTP: every request asks for the end of its connection, so the next one goes to the next server.
    OneRequest,
}

/// Of one direction of one connection.
pub(super) enum Rewriter {
    Nothing,
    /// What has come of a message that is not complete.
    MongoNames {
        names: Vec<(String, String)>,
        partial: Vec<u8>,
    },
    /// What has come of the head; `None` after it.
    OneRequest {
        head: Option<Vec<u8>>,
    },
}

const LENGTH_BYTES: usize = 4;
const HEAD_END: &[u8] = b"\r\n\r\n";
const LINE_END_BYTES: usize = 2;
const CLOSE: &[u8] = b"connection: close\r\n";

impl Rewrite {
    /// For requests, and for answers.
    pub(super) fn of_connection(&self) -> (Rewriter, Rewriter) {
        match self {
            Rewrite::Nothing => (Rewriter::Nothing, Rewriter::Nothing),
            Rewrite::MongoNames(names) => {
                (Rewriter::Nothing, Rewriter::MongoNames { names: names.clone(), partial: Vec::new() })
            }
            Rewrite::OneRequest => (Rewriter::OneRequest { head: Some(Vec::new()) }, Rewriter::Nothing),
        }
    }
}

impl Rewriter {
    /// What can be sent on now that these have come.
    pub(super) fn rewritten(&mut self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Rewriter::Nothing => bytes.to_vec(),
            Rewriter::MongoNames { names, partial } => {
                partial.extend_from_slice(bytes);
                let mut complete: Vec<u8> = partial.drain(..whole_messages(partial)).collect();
                for (name, proxy) in names {
                    replace(&mut complete, name.as_bytes(), proxy.as_bytes());
                }
                complete
            }
            Rewriter::OneRequest { head } => {
                let Some(mut begun) = head.take() else { return bytes.to_vec() };
                begun.extend_from_slice(bytes);
                let end = begun.windows(HEAD_END.len()).position(|bytes| bytes == HEAD_END);
                let Some(end) = end else {
                    *head = Some(begun);
                    return Vec::new();
                };
                begun.splice(end + LINE_END_BYTES..end + LINE_END_BYTES, CLOSE.iter().copied());
                begun
            }
        }
    }

    /// What is left when nothing more will come.
    pub(super) fn rest(&mut self) -> Vec<u8> {
        match self {
            Rewriter::Nothing | Rewriter::OneRequest { head: None } => Vec::new(),
            Rewriter::MongoNames { partial, .. } => std::mem::take(partial),
            Rewriter::OneRequest { head: Some(head) } => std::mem::take(head),
        }
    }
}

/// How many bytes the complete messages of MongoDB at the beginning of these have. Each begins with its
/// length.
fn whole_messages(bytes: &[u8]) -> usize {
    let mut end = 0;
    loop {
        let Some(length) = bytes.get(end..).and_then(<[u8]>::first_chunk::<LENGTH_BYTES>) else { return end };
        let length = usize::try_from(i32::from_le_bytes(*length)).unwrap_or(0).max(LENGTH_BYTES);
        if bytes.len() < end + length {
            return end;
        }
        end += length;
    }
}

fn replace(bytes: &mut [u8], old: &[u8], new: &[u8]) {
    debug_assert_eq!(old.len(), new.len());
    let mut at = 0;
    while let Some(found) = bytes[at..].windows(old.len()).position(|part| part == old) {
        at += found;
        bytes[at..at + old.len()].copy_from_slice(new);
        at += old.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> Vec<u8> {
        let length = i32::try_from(LENGTH_BYTES + text.len()).unwrap();
        [&length.to_le_bytes()[..], text.as_bytes()].concat()
    }

    #[test]
    fn names_are_replaced_however_messages_are_torn() {
        let names = vec![
            ("127.0.0.1:28401".to_owned(), "127.0.0.2:28401".to_owned()),
            ("127.0.0.1:28402".to_owned(), "127.0.0.2:28402".to_owned()),
        ];
        let told = [message("me 127.0.0.1:28401, 127.0.0.1:28402"), message("x"), message("127.0.0.1:28402")];
        let expected =
            [message("me 127.0.0.2:28401, 127.0.0.2:28402"), message("x"), message("127.0.0.2:28402")];
        for size in 1..told.concat().len() {
            let (mut requests, mut answers) = Rewrite::MongoNames(names.clone()).of_connection();
            let mut carried = Vec::new();
            for chunk in told.concat().chunks(size) {
                carried.extend(answers.rewritten(chunk));
            }
            assert_eq!(answers.rest(), b"");
            assert_eq!(carried, expected.concat(), "in chunks of {size} bytes");
            assert_eq!(requests.rewritten(&told.concat()), told.concat());
        }
    }

    #[test]
    fn a_message_that_never_ends_is_sent_on_as_it_is() {
        let (_, mut answers) = Rewrite::MongoNames(Vec::new()).of_connection();
        assert_eq!(answers.rewritten(&message("torn")[..6]), b"");
        assert_eq!(answers.rest(), &message("torn")[..6]);
    }

    #[test]
    fn a_request_asks_for_the_end_of_its_connection() {
        let request = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: keep-alive\r\n\r\nbody\r\n\r\n";
        for size in 1..request.len() {
            let (mut requests, _) = Rewrite::OneRequest.of_connection();
            let mut carried = Vec::new();
            request.chunks(size).for_each(|chunk| carried.extend(requests.rewritten(chunk)));
            carried.extend(requests.rest());
            let expected = "GET / HTTP/1.1\r\nhost: x\r\nconnection: keep-alive\r\nconnection: close\r\n\r\nbody\r\n\r\n";
            assert_eq!(String::from_utf8(carried).unwrap(), expected);
        }
    }
}
