//! `Read-After`: what a client has seen travels with it, so that no instance serves it anything older.
//!
//! Every answer to a write says how far the stores were by then: a position, signed, because a made-up one could make a
//! server wait. The storefront keeps it in a cookie. A token that this process cannot check (of an instance with another
//! key, or of nobody) is never an error and never ignored: its holder has seen something, and is served what is current.

use axum::{
    body::Body,
    http::{HeaderMap, HeaderName, HeaderValue, Method, Request, header},
    response::Response,
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use mobimir_core::{
    reading::{self, Position},
    secret::random_bytes,
};
use sha2::Sha256;

use crate::cookies;

pub(crate) const READ_AFTER: HeaderName = HeaderName::from_static("read-after");

const POSITION_BYTES: usize = 8;
/// Half of the hash: more than anybody can guess.
const SIGNATURE_BYTES: usize = 16;
const TOKEN_BYTES: usize = POSITION_BYTES + SIGNATURE_BYTES;
/// No budget is longer than a day, so nothing older than that can be served anyway.
const COOKIE_MAX_AGE_S: i64 = 24 * 60 * 60;
/// So that a signature of something else made with the same key says nothing here.
const PURPOSE: &[u8] = b"mobimir read-after 1";

/// Signs positions and knows its own signature again.
pub(crate) struct Signer(Hmac<Sha256>);

/// What a request says that its sender has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Nothing,
    UpTo(Position),
    /// Something, but nobody here knows what.
    Unknown,
}

impl Signer {
    pub(crate) fn of(key: &[u8]) -> Self {
        // Keys of any length are fine; the error is for other kinds of codes.
        Self(Hmac::new_from_slice(key).unwrap_or_else(|_| Hmac::new(&Default::default())))
    }

    /// With a key that nobody else has, so its tokens mean nothing to other instances.
    pub(crate) fn random() -> Self {
        Self::of(&random_bytes::<32>())
    }

    pub(crate) fn token(&self, position: Position) -> String {
        let mut bytes = [0; TOKEN_BYTES];
        bytes[..POSITION_BYTES].copy_from_slice(&position.0.to_be_bytes());
        bytes[POSITION_BYTES..]
            .copy_from_slice(&self.signed(position).finalize().into_bytes()[..SIGNATURE_BYTES]);
        URL_SAFE_NO_PAD.encode(bytes)
    }

    fn position(&self, token: &[u8]) -> Option<Position> {
        let mut bytes = [0; TOKEN_BYTES];
        let length = URL_SAFE_NO_PAD.decode_slice(token, &mut bytes).ok()?;
        let (number, signature) = bytes.split_at(POSITION_BYTES);
        let position = Position(u64::from_be_bytes(number.try_into().ok()?));
        let is_ours = length == TOKEN_BYTES && self.signed(position).verify_truncated_left(signature).is_ok();
        is_ours.then_some(position)
    }

    fn signed(&self, position: Position) -> Hmac<Sha256> {
        self.0.clone().chain_update(PURPOSE).chain_update(position.0.to_be_bytes())
    }

    /// From the header and from the cookie; both count.
    pub(crate) fn seen(&self, headers: &HeaderMap) -> Seen {
        let sent = headers.get_all(READ_AFTER).iter().map(HeaderValue::as_bytes);
        let kept = cookies::find(headers, cookies::READ_AFTER).map(str::as_bytes);
        let mut seen = Seen::Nothing;
        for token in sent.chain(kept) {
            seen = match (seen, self.position(token)) {
                (_, None) | (Seen::Unknown, _) => return Seen::Unknown,
                (Seen::Nothing, Some(position)) => Seen::UpTo(position),
                (Seen::UpTo(other), Some(position)) => Seen::UpTo(position.max(other)),
            };
        }
        seen
    }

    /// Tells whoever has just written how far the stores are now.
    pub(crate) fn tell(&self, position: Position, keep: Option<Keep>, response: &mut Response) {
        let token = self.token(position);
        if let Some(Keep { secure }) = keep
            && position > Position::default()
            && let Some(cookie) = cookies::set(cookies::READ_AFTER, &token, COOKIE_MAX_AGE_S, secure)
        {
            response.headers_mut().append(header::SET_COOKIE, cookie);
        }
        if let Ok(value) = HeaderValue::from_str(&token) {
            response.headers_mut().insert(READ_AFTER, value);
        }
    }
}

/// A browser that should keep the token.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keep {
    secure: bool,
}

/// Whether a request may change something.
pub(crate) fn is_write(method: &Method) -> bool {
    [Method::POST, Method::PUT, Method::PATCH, Method::DELETE].contains(method)
}

/// Clients of the API carry the header themselves; a page's visitors have a browser with cookies.
pub(crate) fn keeps(request: &Request<Body>) -> Option<Keep> {
    let is_page = !request.uri().path().starts_with("/v1/");
    is_page.then(|| Keep { secure: cookies::is_secure(request.headers()) })
}

/// Serves a request with nothing older than what its sender has seen.
pub(crate) async fn serve<F: Future>(seen: Seen, serve: F) -> F::Output {
    match seen {
        Seen::Nothing => serve.await,
        Seen::UpTo(position) => reading::after(position, serve).await,
        Seen::Unknown => reading::newest(serve).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(given: &[(HeaderName, &str)]) -> HeaderMap {
        given.iter().map(|(name, value)| (name.clone(), HeaderValue::from_str(value).unwrap())).collect()
    }

    #[test]
    fn a_position_comes_back_to_every_instance_with_the_same_key() {
        let (one, other) = (Signer::of(b"the same key"), Signer::of(b"the same key"));
        for position in [0, 1, u64::MAX].map(Position) {
            let token = one.token(position);
            assert_eq!(other.seen(&headers(&[(READ_AFTER, &token)])), Seen::UpTo(position));
            assert!(
                token.len() == 32 && token.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
            );
        }
    }

    #[test]
    fn what_cannot_be_checked_is_something_unknown() {
        let signer = Signer::random();
        let token = signer.token(Position(7));
        let forged = {
            let mut bytes = URL_SAFE_NO_PAD.decode(&token).unwrap();
            bytes[0] = 0x7f;
            URL_SAFE_NO_PAD.encode(bytes)
        };
        let foreign = Signer::random().token(Position(7));
        let long = "A".repeat(10_000);
        for bad in ["", "x", "not base64!", &token[1..], &format!("{token}A"), &forged, &foreign, &long] {
            assert_eq!(signer.seen(&headers(&[(READ_AFTER, bad)])), Seen::Unknown, "{bad}");
            let cookie = format!("mobimir_read_after={bad}");
            assert_eq!(signer.seen(&headers(&[(header::COOKIE, &cookie)])), Seen::Unknown, "{bad}");
        }
        assert_eq!(signer.seen(&HeaderMap::new()), Seen::Nothing);
    }

    #[test]
    fn of_several_tokens_the_newest_counts_and_an_unknown_one_is_not_forgotten() {
        let signer = Signer::of(b"k");
        let (older, newer) = (signer.token(Position(3)), signer.token(Position(9)));
        let cookie = format!("a=b; mobimir_read_after={newer}");
        let both = headers(&[(READ_AFTER, &older), (header::COOKIE, &cookie)]);
        assert_eq!(signer.seen(&both), Seen::UpTo(Position(9)));
        let mixed = headers(&[(READ_AFTER, "?"), (header::COOKIE, &cookie)]);
        assert_eq!(signer.seen(&mixed), Seen::Unknown);
    }
}
