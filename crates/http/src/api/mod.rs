//! The HTTP API, version 1, one file a noun.

pub(crate) mod carts;
pub(crate) mod health;
pub(crate) mod ops;
pub(crate) mod orders;
pub(crate) mod products;
pub(crate) mod sessions;
pub(crate) mod users;

use utoipa_axum::router::OpenApiRouter;

use crate::state::AppState;

pub(crate) fn router() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .merge(products::router())
        .merge(carts::router())
        .merge(orders::router())
        .merge(sessions::router())
        .merge(users::router())
        .merge(ops::router())
        .merge(health::router())
}
