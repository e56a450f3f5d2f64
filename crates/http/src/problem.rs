//! Errors as RFC 9457 problems: the one place where what went wrong becomes an HTTP answer.

use std::sync::LazyLock;

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use mobimir_core::{
    checkout::ShortLine, id::OrderId, ports::StoreError, product::ProductError, user::UserError,
};
use mobimir_shop::{
    CartError, CatalogueError, LoginError, MoveOrderError, PlaceOrderError, RefreshError, RegisterError,
};
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::role::Role;

/// An error. `code` is stable, `title` and `detail` are for people.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Problem {
    /// Always `about:blank`: the code says which problem it is.
    #[serde(rename = "type")]
    kind: &'static str,
    pub(crate) title: &'static str,
    pub(crate) status: u16,
    #[schema(example = "out_of_stock")]
    pub(crate) code: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    /// Of `out_of_stock`: `{product_id, requested, available}` of each short line.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Object>>)]
    lines: Option<Value>,
    /// Of `cart_ordered` and `empty_cart`: the order that took the cart.
    #[serde(skip_serializing_if = "Option::is_none")]
    order_id: Option<Uuid>,
    #[serde(skip)]
    retry_after_s: Option<u64>,
    #[serde(skip)]
    replayed: bool,
}

const RETRY_SOON_S: u64 = 1;

impl Problem {
    pub(crate) fn new(status: StatusCode, code: &'static str, detail: impl Into<Option<String>>) -> Self {
        Self {
            kind: "about:blank",
            title: status.canonical_reason().unwrap_or("Error"),
            status: status.as_u16(),
            code,
            detail: detail.into(),
            lines: None,
            order_id: None,
            retry_after_s: None,
            replayed: false,
        }
    }

    pub(crate) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", detail.into())
    }

    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", detail.into())
    }

    pub(crate) fn bad_cursor() -> Self {
        let detail = "after: expected the `next` of a page of this list".to_owned();
        Self::new(StatusCode::BAD_REQUEST, "bad_cursor", detail)
    }

    pub(crate) fn not_found(what: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", format!("{what} does not exist"))
    }

    pub(crate) fn unauthorized() -> Self {
        let detail = "expected `Authorization: Bearer <token>` with the token of a live session".to_owned();
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", detail)
    }

    pub(crate) fn forbidden(detail: &str) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", detail.to_owned())
    }

    pub(crate) fn unknown_zone(detail: String) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "unknown_zone", detail)
    }

    pub(crate) fn internal() -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal",
            "something went wrong on our side".to_owned(),
        )
    }

    pub(crate) fn unavailable(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", detail.into()).retry_after(RETRY_SOON_S)
    }

    /// It was asked for what another role answers.
    pub(crate) fn misdirected(own: Role, wanted: Role) -> Self {
        let detail = format!(
            "this instance has the role {}, and this path is answered by the role {}",
            own.name(),
            wanted.name()
        );
        Self::new(StatusCode::MISDIRECTED_REQUEST, "misdirected", detail)
    }

    /// An answer at the door: it is the same every time, and was made once.
    pub(crate) fn overloaded() -> Response {
        static BODY: LazyLock<Bytes> = LazyLock::new(|| {
            let detail = "there is too much to do now: try again soon, under the same key if there is one";
            let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", detail.to_owned());
            serde_json::to_vec(&problem).unwrap_or_default().into()
        });
        let headers = [
            (header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json")),
            (header::RETRY_AFTER, HeaderValue::from(RETRY_SOON_S)),
            (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        ];
        (StatusCode::SERVICE_UNAVAILABLE, headers, BODY.clone()).into_response()
    }

    pub(crate) fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after_s = Some(seconds);
        self
    }

    fn order(mut self, order: Option<OrderId>) -> Self {
        self.order_id = order.map(|order| order.0);
        self
    }

    fn replayed(mut self, replayed: bool) -> Self {
        self.replayed = replayed;
        self
    }

    fn out_of_stock(lines: &[ShortLine]) -> Self {
        let detail = "fewer are available than were asked for".to_owned();
        let mut problem = Self::new(StatusCode::CONFLICT, "out_of_stock", detail);
        let short = |line: &ShortLine| json!({ "product_id": line.product_id, "requested": line.requested, "available": line.available });
        problem.lines = Some(lines.iter().map(short).collect());
        problem
    }

    fn conflict(code: &'static str, detail: impl std::fmt::Display) -> Self {
        Self::new(StatusCode::CONFLICT, code, detail.to_string())
    }

    fn unprocessable(code: &'static str, detail: impl std::fmt::Display) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, code, detail.to_string())
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.retry_after_s {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if self.replayed {
            headers.insert("idempotent-replayed", HeaderValue::from_static("true"));
        }
        response
    }
}

impl From<StoreError> for Problem {
    /// The store's own words stay in the log.
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable { .. } => {
                tracing::warn!(error = %chain(&error), "a store is unavailable");
                Self::unavailable(
                    "a store is unavailable now: try again soon, under the same key if there is one",
                )
            }
            StoreError::Unknown { .. } => {
                tracing::warn!(error = %chain(&error), "the outcome of a write is unknown");
                Self::new(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "outcome_unknown",
                    "whether it was done is unknown: read it back, or repeat it under the same key"
                        .to_owned(),
                )
                .retry_after(RETRY_SOON_S)
            }
            StoreError::Corrupt { .. } => {
                tracing::error!(error = %chain(&error), "stored data is damaged");
                Self::internal()
            }
        }
    }
}

impl From<RegisterError> for Problem {
    fn from(error: RegisterError) -> Self {
        match error {
            RegisterError::Invalid(error) => error.into(),
            RegisterError::EmailTaken => Self::conflict("email_taken", error),
            RegisterError::BadProfile(detail) => Self::invalid(detail),
            RegisterError::Password(error) => Self::unavailable(error.to_string()),
            RegisterError::Store(error) => error.into(),
        }
    }
}

impl From<UserError> for Problem {
    fn from(error: UserError) -> Self {
        let field = match error {
            UserError::BadEmail => "email",
            UserError::BadPassword => "password",
        };
        Self::invalid(format!("{field}: {error}"))
    }
}

impl From<LoginError> for Problem {
    fn from(error: LoginError) -> Self {
        match error {
            LoginError::BadCredentials => {
                Self::new(StatusCode::UNAUTHORIZED, "bad_credentials", error.to_string())
            }
            LoginError::TooMany { retry_after_s } => {
                Self::new(StatusCode::TOO_MANY_REQUESTS, "too_many_attempts", error.to_string())
                    .retry_after(retry_after_s)
            }
            LoginError::Password(error) => Self::unavailable(error.to_string()),
            LoginError::Store(error) => error.into(),
            LoginError::Stopped(_) => Self::internal(),
        }
    }
}

impl From<RefreshError> for Problem {
    fn from(error: RefreshError) -> Self {
        match error {
            RefreshError::Unknown => {
                Self::new(StatusCode::UNAUTHORIZED, "bad_refresh_token", error.to_string())
            }
            RefreshError::Used => {
                Self::new(StatusCode::UNAUTHORIZED, "refresh_token_used", error.to_string())
            }
            RefreshError::Store(error) => error.into(),
        }
    }
}

impl From<ProductError> for Problem {
    fn from(error: ProductError) -> Self {
        Self::invalid(error.to_string())
    }
}

impl From<CatalogueError> for Problem {
    fn from(error: CatalogueError) -> Self {
        match error {
            CatalogueError::Invalid(error) => error.into(),
            CatalogueError::UnknownZone(_) => Self::unknown_zone(error.to_string()),
            CatalogueError::NoSuchProduct => Self::not_found("the product"),
            CatalogueError::InsufficientStock { .. } => Self::conflict("insufficient_stock", error),
            CatalogueError::Store(error) => error.into(),
        }
    }
}

impl From<CartError> for Problem {
    fn from(error: CartError) -> Self {
        match error {
            CartError::UnknownProduct(_) => Self::unprocessable("unknown_product", error),
            CartError::UnknownZone(_) => Self::unknown_zone(error.to_string()),
            CartError::OutOfStock { product_id, requested, available } => {
                Self::out_of_stock(&[ShortLine { product_id, requested, available }])
            }
            CartError::Mismatch => Self::unprocessable("idempotency_mismatch", error),
            CartError::Full => Self::unprocessable("cart_full", error),
            CartError::Store(error) => error.into(),
        }
    }
}

impl From<PlaceOrderError> for Problem {
    fn from(error: PlaceOrderError) -> Self {
        match error {
            PlaceOrderError::EmptyCart { ordered_by } => {
                Self::conflict("empty_cart", error).order(ordered_by)
            }
            PlaceOrderError::CartOrdered { by, replayed } => {
                Self::conflict("cart_ordered", error).order(Some(by)).replayed(replayed)
            }
            PlaceOrderError::Changed => Self::conflict("order_changed", error),
            PlaceOrderError::UnknownProduct(_) => Self::unprocessable("unknown_product", error),
            PlaceOrderError::UnknownZone(_) => Self::unknown_zone(error.to_string()),
            PlaceOrderError::TooManyLines(_) | PlaceOrderError::TooMany { .. } => {
                Self::invalid(error.to_string())
            }
            PlaceOrderError::OutOfStock { lines, replayed } => Self::out_of_stock(&lines).replayed(replayed),
            PlaceOrderError::Expired => Self::conflict("checkout_aborted", error).replayed(true),
            PlaceOrderError::Mismatch => Self::unprocessable("idempotency_mismatch", error),
            PlaceOrderError::InProgress => Self::conflict("in_progress", error).retry_after(RETRY_SOON_S),
            PlaceOrderError::Busy => Self::unavailable(error.to_string()),
            PlaceOrderError::Store(error) => error.into(),
            PlaceOrderError::Stopped(_) => Self::internal(),
        }
    }
}

impl From<MoveOrderError> for Problem {
    fn from(error: MoveOrderError) -> Self {
        match error {
            MoveOrderError::NoSuchOrder => Self::not_found("the order"),
            MoveOrderError::BadTransition { .. } => Self::conflict("bad_transition", error),
            MoveOrderError::Busy => Self::unavailable(error.to_string()),
            MoveOrderError::Store(error) => error.into(),
            MoveOrderError::Stopped(_) => Self::internal(),
        }
    }
}

/// An error with all that caused it, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
