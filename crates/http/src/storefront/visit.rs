//! Who asks for a page.

use std::convert::Infallible;

use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, header, request::Parts},
};
use mobimir_core::{cart, ports::StoreError};
use mobimir_shop::{Caller, ClientInfo, Shop};

use super::{fault::Fault, links, notice::Notice};
use crate::{cookies, extract::Asker, state::AppState};

/// What a browser brings along.
#[derive(Clone, Debug, Default)]
pub(super) struct Visit {
    token: Option<String>,
    pub(super) notice: Option<Notice>,
    /// The path with its query, to come back to.
    pub(super) path: String,
    pub(super) client: ClientInfo,
    /// The browser reached us over TLS, as far as a proxy tells.
    pub(super) secure: bool,
}

impl Visit {
    pub(super) fn of_headers(headers: &HeaderMap) -> Self {
        let text = |name: header::HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        Self {
            token: cookies::find(headers, cookies::SESSION)
                .filter(|token| !token.is_empty())
                .map(str::to_owned),
            notice: cookies::find(headers, cookies::NOTICE).and_then(Notice::decode),
            path: "/".to_owned(),
            client: ClientInfo {
                user_agent: text(header::USER_AGENT).map(str::to_owned),
                ..ClientInfo::default()
            },
            secure: cookies::is_secure(headers),
        }
    }

    /// Whether the answer is for this visitor alone.
    pub(super) fn is_personal(&self) -> bool {
        self.token.is_some() || self.notice.is_some()
    }

    /// The holder of the session, guest or user, if there is a live one.
    pub(super) async fn caller(&self, shop: &Shop) -> Result<Option<Caller>, StoreError> {
        match &self.token {
            Some(token) => shop.authenticate(token).await,
            None => Ok(None),
        }
    }

    /// For pages that everybody may see: when the sessions cannot be read, nobody is known.
    pub(super) async fn caller_if_known(&self, shop: &Shop) -> Option<Caller> {
        self.caller(shop).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "a page is shown without its visitor's session");
            None
        })
    }

    /// For pages of users: guests are asked to log in first, and come back.
    pub(super) async fn user(&self, shop: &Shop) -> Result<(Caller, mobimir_core::id::UserId), Fault> {
        let caller = self.caller(shop).await?;
        let user = caller.as_ref().and_then(Caller::user);
        caller.zip(user).ok_or_else(|| Fault::LogInFirst { back_to: self.path.clone() })
    }
}

impl FromRequestParts<AppState> for Visit {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &AppState) -> Result<Self, Infallible> {
        let mut visit = Self::of_headers(&parts.headers);
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        visit.path = links::local_path(path).unwrap_or("/").to_owned();
        visit.client.ip_address = parts.extensions.get::<Asker>().map(|asker| asker.0);
        Ok(visit)
    }
}

/// How many pieces are in the cart. Beside the point on most pages, so a failure only hides the number.
pub(super) async fn cart_count(shop: &Shop, caller: Option<&Caller>) -> Option<u64> {
    let owner = caller?.cart_owner();
    let stored = shop.stores().carts.read(owner, shop.now()).await.ok()??;
    let count =
        cart::fold(&stored.changes).lines.iter().fold(0_u64, |sum, line| sum.saturating_add(line.quantity));
    (count > 0).then_some(count)
}
