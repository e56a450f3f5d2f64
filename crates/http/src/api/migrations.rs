//! `/v1/ops/migrations`: how entities move from one store to another, and what operators say to it.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use http::StatusCode;
use mobimir_core::time::Month;
use mobimir_migrate::{
    backfill::Months,
    follow::MoveError,
    service::{Action, Migration},
};
use serde::Deserialize;
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    extract::{Body, Operator, PathPair, PathText, json},
    problem::Problem,
    state::AppState,
    views::List,
};

const ENTITIES: [&str; 4] = ["carts", "order_history", "orders", "sessions"];
/// Months that can be chosen at once. Each stands in the record that all instances read.
const MONTHS_MAX: usize = 1_200;

pub(crate) fn router() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(migrations))
        .routes(routes!(migration))
        .routes(routes!(plan))
        .routes(routes!(choose_months))
        .routes(routes!(act))
}

/// The migrations under way
///
/// An entity can move when the policy names a `migration_store` for it and the instances run with `migrations = true`.
#[utoipa::path(get, path = "/v1/ops/migrations", tag = "operations", security(("token" = [])),
    responses((status = 200, body = List<Object>)))]
async fn migrations(State(state): State<AppState>, _: Operator) -> Result<Response, Problem> {
    // Beside each other: a store that does not answer takes as long for all as for one.
    let asked = state.inner.backend.migrations().iter().map(|migration| migration.status());
    let told = futures_util::future::try_join_all(asked).await?;
    Ok(json(StatusCode::OK, &List::whole(told.into_iter().flatten().collect())))
}

/// One migration: its phase, who follows it, what is not copied yet, what differs, and why the next phase cannot begin
#[utoipa::path(get, path = "/v1/ops/migrations/{entity}", tag = "operations", security(("token" = [])),
    params(("entity" = String, Path, description = "`carts`, `order_history`, `orders` or `sessions`")),
    responses((status = 200, body = Object), (status = 404, body = Problem, content_type = "application/problem+json"), (status = 409, description = "`no_migration`", body = Problem, content_type = "application/problem+json")))]
async fn migration(
    State(state): State<AppState>,
    _: Operator,
    PathText(entity): PathText,
) -> Result<Response, Problem> {
    let status = match of(&state, &entity)? {
        Some(migration) => migration.status().await?,
        None => None,
    };
    status.map_or_else(|| Err(no_migration(&entity)), |status| Ok(json(StatusCode::OK, &status)))
}

/// What a migration would be: how much, how long, how much space
///
/// A dry run: both stores are looked at for some seconds, and nothing is written.
#[utoipa::path(get, path = "/v1/ops/migrations/{entity}/plan", tag = "operations", security(("token" = [])),
    params(("entity" = String, Path, description = "`carts`, `order_history`, `orders` or `sessions`")),
    responses((status = 200, body = Object), (status = 409, description = "`migrations_off`", body = Problem, content_type = "application/problem+json")))]
async fn plan(
    State(state): State<AppState>,
    _: Operator,
    PathText(entity): PathText,
) -> Result<Response, Problem> {
    match of(&state, &entity)? {
        Some(migration) => Ok(json(StatusCode::OK, &migration.plan().await?)),
        None => Err(migrations_off(&entity)),
    }
}

/// The first and the last month; without them, everything.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ChosenMonths {
    /// Like `2025-01`.
    from: Option<String>,
    to: Option<String>,
}

/// Choose the months of the past that are copied first
///
/// Only orders belong to months. What is chosen is copied in the phase `backfill`, and then it waits to be told what is next; with an
/// empty object everything that is left is copied, which the next phase needs.
#[utoipa::path(put, path = "/v1/ops/migrations/{entity}/months", tag = "operations", security(("token" = [])),
    params(("entity" = String, Path, description = "`orders`")), request_body = ChosenMonths,
    responses((status = 200, body = Object), (status = 409, description = "`no_migration` or `migration_refused`", body = Problem, content_type = "application/problem+json"), (status = 422, body = Problem, content_type = "application/problem+json")))]
async fn choose_months(
    State(state): State<AppState>,
    _: Operator,
    PathText(entity): PathText,
    Body(chosen): Body<ChosenMonths>,
) -> Result<Response, Problem> {
    let month = |text: Option<String>| text.map(|text| Month::parse(&text)).transpose();
    let (from, to) = match (month(chosen.from), month(chosen.to)) {
        (Ok(from), Ok(to)) => (from, to),
        (Err(error), _) | (_, Err(error)) => return Err(Problem::invalid(error.to_string())),
    };
    let months = match (from, to) {
        (None, None) => None,
        (Some(from), Some(to)) if from <= to => {
            let months = Months { from, to };
            if months.all().nth(MONTHS_MAX).is_some() {
                return Err(Problem::invalid(format!(
                    "expected at most {MONTHS_MAX} months, got {from} to {to}"
                )));
            }
            Some(months)
        }
        (Some(from), Some(to)) => {
            return Err(Problem::invalid(format!(
                "expected the first month before the last, got {from} and {to}"
            )));
        }
        _ => return Err(Problem::invalid("expected both from and to, or neither".to_owned())),
    };
    let migration = of(&state, &entity)?.ok_or_else(|| no_migration(&entity))?;
    Ok(json(StatusCode::OK, &migration.act(Action::Months(months)).await?))
}

/// Act on a migration
///
/// `start` begins one, `advance` and `rollback` set out for the next phase and the one before: the answer says where it is now, and it
/// goes on by itself as soon as every instance has come along. `pause` and `resume` hold copying and comparing, `verify` has
/// everything compared anew, `repair` has what differs mended, tries again what could not be copied, and compares.
#[utoipa::path(post, path = "/v1/ops/migrations/{entity}/{action}", tag = "operations", security(("token" = [])),
    params(("entity" = String, Path, description = "`carts`, `order_history`, `orders` or `sessions`"), ("action" = String, Path, description = "`start`, `advance`, `rollback`, `pause`, `resume`, `verify` or `repair`")),
    responses((status = 200, body = Object), (status = 409, description = "`no_migration`, `migration_refused` with the reasons, `migration_under_way` or `migrations_off`", body = Problem, content_type = "application/problem+json"), (status = 404, body = Problem, content_type = "application/problem+json")))]
async fn act(
    State(state): State<AppState>,
    _: Operator,
    PathPair(entity, action): PathPair,
) -> Result<Response, Problem> {
    let action = parse(&action).ok_or_else(|| Problem::not_found("the migration or the action"))?;
    match (of(&state, &entity)?, action) {
        (Some(migration), action) => Ok(json(StatusCode::OK, &migration.act(action).await?)),
        (None, Action::Start) => Err(migrations_off(&entity)),
        (None, _) => Err(no_migration(&entity)),
    }
}

fn migrations_off(entity: &str) -> Problem {
    let detail = format!(
        "{entity} cannot move: name a migration_store for them in the policy and run every instance with migrations = true"
    );
    Problem::new(StatusCode::CONFLICT, "migrations_off", detail)
}

fn parse(action: &str) -> Option<Action> {
    Some(match action {
        "start" => Action::Start,
        "advance" => Action::Advance,
        "rollback" => Action::Rollback,
        "pause" => Action::Pause,
        "resume" => Action::Resume,
        "verify" => Action::Verify,
        "repair" => Action::Repair,
        _ => return None,
    })
}

/// `None` if the entity stays where it is.
fn of<'a>(state: &'a AppState, entity: &str) -> Result<Option<&'a Arc<dyn Migration>>, Problem> {
    if !ENTITIES.contains(&entity) {
        return Err(Problem::not_found("the migration or the action"));
    }
    Ok(state.inner.backend.migrations().iter().find(|migration| migration.entity() == entity))
}

fn no_migration(entity: &str) -> Problem {
    Problem::new(StatusCode::CONFLICT, "no_migration", format!("no migration of {entity} is under way"))
}

impl From<MoveError> for Problem {
    fn from(error: MoveError) -> Self {
        let code = match &error {
            MoveError::NoMigration(_) => "no_migration",
            MoveError::Refused(_)
            | MoveError::NoTarget(_)
            | MoveError::NotNow { .. }
            | MoveError::Repairing
            | MoveError::NoMonths(_) => "migration_refused",
            MoveError::UnderWay { .. } => "migration_under_way",
            MoveError::Overtaken => "migration_overtaken",
            MoveError::Store(_) => {
                return match error {
                    MoveError::Store(error) => error.into(),
                    _ => Problem::not_found("the migration"),
                };
            }
        };
        Self::new(StatusCode::CONFLICT, code, error.to_string())
    }
}
