//! The HTTP API, version 1, one file a noun.

pub(crate) mod carts;
pub(crate) mod health;
pub(crate) mod migrations;
pub(crate) mod ops;
pub(crate) mod orders;
pub(crate) mod products;
pub(crate) mod sessions;
pub(crate) mod users;

use utoipa_axum::router::OpenApiRouter;

use crate::{role::Role, state::AppState};

/// What an instance of that role answers and, unless it is [`Role::All`], no other.
pub(crate) fn of(role: Role) -> OpenApiRouter<AppState> {
    match role {
        Role::Products => products::router(),
        // A login brings the guest's cart along, so whoever has the carts has sessions and users, too.
        Role::Carts => carts::router().merge(sessions::router()).merge(users::router()),
        Role::Orders => orders::router(),
        Role::All => of(Role::Products).merge(of(Role::Carts)).merge(of(Role::Orders)),
    }
}

/// What every instance answers for itself.
pub(crate) fn of_every_role() -> OpenApiRouter<AppState> {
    ops::router().merge(migrations::router()).merge(health::router())
}
