//! Coming in and going out: login, signup, logout.

use askama::Template;
use axum::{extract::State, http::StatusCode, response::Response};
use mobimir_core::user::UserError;
use mobimir_shop::{Caller, LoggedIn, LoginError, RegisterError};
use serde::Deserialize;

use super::{
    fault::{Fault, Fields, Parameters, or_fault},
    links,
    notice::Notice,
    page::{self, Frame},
    visit::Visit,
};
use crate::state::AppState;

#[derive(Template)]
#[template(path = "storefront/login.html")]
struct LoginPage {
    frame: Frame,
    email: String,
    next: String,
    other_link: String,
    trouble: Option<&'static str>,
}

#[derive(Template)]
#[template(path = "storefront/signup.html")]
struct SignupPage {
    frame: Frame,
    email: String,
    next: String,
    other_link: String,
    trouble: Option<&'static str>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Destination {
    next: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Credentials {
    email: String,
    password: String,
    next: String,
}

pub(super) async fn show_login(
    State(state): State<AppState>,
    visit: Visit,
    Parameters(to): Parameters<Destination>,
) -> Response {
    let form = Credentials { next: to.next, ..Credentials::default() };
    let done = login_page(&state, &visit, &form, None).await;
    or_fault(&state, &visit, done).await
}

pub(super) async fn show_signup(
    State(state): State<AppState>,
    visit: Visit,
    Parameters(to): Parameters<Destination>,
) -> Response {
    let form = Credentials { next: to.next, ..Credentials::default() };
    let done = signup_page(&state, &visit, &form, None).await;
    or_fault(&state, &visit, done).await
}

pub(super) async fn log_in(
    State(state): State<AppState>,
    visit: Visit,
    Fields(form): Fields<Credentials>,
) -> Response {
    let done = enter(&state, &visit, &form).await;
    or_fault(&state, &visit, done).await
}

pub(super) async fn sign_up(
    State(state): State<AppState>,
    visit: Visit,
    Fields(form): Fields<Credentials>,
) -> Response {
    let done = register(&state, &visit, &form).await;
    or_fault(&state, &visit, done).await
}

pub(super) async fn log_out(State(state): State<AppState>, visit: Visit) -> Response {
    let done = leave(&state, &visit).await;
    or_fault(&state, &visit, done).await
}

async fn login_page(
    state: &AppState,
    visit: &Visit,
    form: &Credentials,
    trouble: Option<&'static str>,
) -> Result<Response, Fault> {
    let caller = visit.caller(&state.shop).await?;
    let next = form.destination();
    if trouble.is_none() && caller.as_ref().is_some_and(|caller| caller.user().is_some()) {
        return Ok(page::see_other(visit, next, None));
    }
    let view = LoginPage {
        frame: Frame::of(&state.shop, visit, caller.as_ref(), "Вход — Мобильный мир").await,
        email: form.email.clone(),
        other_link: links::with_query("/signup", &[("next", &form.next)]),
        next: next.to_owned(),
        trouble,
    };
    let status = if trouble.is_some() { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::OK };
    Ok(page::respond(visit, status, &view))
}

async fn signup_page(
    state: &AppState,
    visit: &Visit,
    form: &Credentials,
    trouble: Option<&'static str>,
) -> Result<Response, Fault> {
    let caller = visit.caller(&state.shop).await?;
    let next = form.destination();
    if trouble.is_none() && caller.as_ref().is_some_and(|caller| caller.user().is_some()) {
        return Ok(page::see_other(visit, next, None));
    }
    let view = SignupPage {
        frame: Frame::of(&state.shop, visit, caller.as_ref(), "Регистрация — Мобильный мир").await,
        email: form.email.clone(),
        other_link: links::with_query("/login", &[("next", &form.next)]),
        next: next.to_owned(),
        trouble,
    };
    let status = if trouble.is_some() { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::OK };
    Ok(page::respond(visit, status, &view))
}

async fn enter(state: &AppState, visit: &Visit, form: &Credentials) -> Result<Response, Fault> {
    let (guest, brings_goods) = guest(state, visit).await?;
    match state.shop.log_in(&form.email, &form.password, guest, visit.client.clone()).await {
        Ok(session) => {
            let notice = if brings_goods { Notice::WelcomeWithCart } else { Notice::Welcome };
            Ok(let_in(state, visit, form, &session, notice))
        }
        Err(LoginError::BadCredentials) => {
            let trouble = "Почта или пароль не подходят. Проверьте раскладку и попробуйте ещё раз.";
            login_page(state, visit, form, Some(trouble)).await
        }
        Err(error) => Err(error.into()),
    }
}

async fn register(state: &AppState, visit: &Visit, form: &Credentials) -> Result<Response, Fault> {
    match state.shop.register(&form.email, &form.password).await {
        Ok(_) => {}
        Err(RegisterError::Invalid(error)) => {
            let trouble = match error {
                UserError::BadEmail => "Это не похоже на адрес почты. Пример: anna@example.ru.",
                UserError::BadPassword => "Пароль должен быть от 8 до 128 знаков.",
            };
            return signup_page(state, visit, form, Some(trouble)).await;
        }
        Err(RegisterError::EmailTaken) => {
            let trouble = "С этой почтой уже зарегистрированы. Попробуйте войти.";
            return signup_page(state, visit, form, Some(trouble)).await;
        }
        Err(error) => return Err(error.into()),
    }
    let (guest, brings_goods) = guest(state, visit).await?;
    match state.shop.log_in(&form.email, &form.password, guest, visit.client.clone()).await {
        Ok(session) => {
            let notice = if brings_goods { Notice::SignedUpWithCart } else { Notice::SignedUp };
            Ok(let_in(state, visit, form, &session, notice))
        }
        // The account is there; what failed is only the way in.
        Err(error) => {
            tracing::warn!(%error, "a new user could not be logged in at once");
            Ok(page::see_other(visit, &links::login(form.destination()), Some(Notice::SignUpThenLogIn)))
        }
    }
}

async fn leave(state: &AppState, visit: &Visit) -> Result<Response, Fault> {
    if let Some(caller) = visit.caller(&state.shop).await? {
        state.shop.log_out(&caller).await?;
    }
    let mut response = page::see_other(visit, "/", Some(Notice::LoggedOut));
    page::keep_session(&mut response, visit, None);
    Ok(response)
}

/// The guest whose cart is to be merged, and whether there is anything in it.
async fn guest(state: &AppState, visit: &Visit) -> Result<(Option<Caller>, bool), Fault> {
    let Some(guest) = visit.caller(&state.shop).await?.filter(|caller| caller.user().is_none()) else {
        return Ok((None, false));
    };
    let brings_goods = !state.shop.cart(&guest).await?.items.is_empty();
    Ok((Some(guest), brings_goods))
}

fn let_in(
    state: &AppState,
    visit: &Visit,
    form: &Credentials,
    session: &LoggedIn,
    notice: Notice,
) -> Response {
    let mut response = page::see_other(visit, form.destination(), Some(notice));
    let max_age_s = session.expires_at.since(state.shop.now()) / 1_000;
    page::keep_session(&mut response, visit, Some((&session.token, max_age_s)));
    response
}

impl Credentials {
    /// Where to after it: back to where one came from, but not to a page that is only for coming in.
    fn destination(&self) -> &str {
        let entrance =
            |path: &&str| ["/login", "/signup", "/logout"].iter().any(|page| path.starts_with(page));
        links::local_path(&self.next).filter(|path| !entrance(path)).unwrap_or("/account")
    }
}
