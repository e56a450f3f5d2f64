//! What users tell about themselves, and where they are logged in.

use askama::Template;
use axum::{extract::State, http::StatusCode, response::Response};
use mobimir_core::{
    user::{PROFILE_ADDRESS_CHARS_MAX, PROFILE_TEXT_CHARS_MAX, User},
    zone::Zone,
};
use mobimir_shop::{Caller, ProfileEdit, RegisterError};
use serde::Deserialize;

use super::{
    catalogue::{Choice, zone_choices},
    fault::{Fault, Fields, or_fault},
    notice::Notice,
    page::{self, Frame},
    visit::Visit,
    wording,
};
use crate::state::AppState;

const SESSIONS_SHOWN_MAX: usize = 20;

#[derive(Template)]
#[template(path = "storefront/account.html")]
struct AccountPage {
    frame: Frame,
    email: String,
    since: String,
    form: ProfileForm,
    zones: Vec<Choice>,
    text_max: usize,
    address_max: usize,
    trouble: Option<&'static str>,
    sessions: Vec<SessionLine>,
}

struct SessionLine {
    device: String,
    address: String,
    active: String,
    is_current: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ProfileForm {
    name: String,
    phone: String,
    zone: String,
    address: String,
}

pub(super) async fn show(State(state): State<AppState>, visit: Visit) -> Response {
    let done = render(&state, &visit, None).await;
    or_fault(&state, &visit, done).await
}

pub(super) async fn save(
    State(state): State<AppState>,
    visit: Visit,
    Fields(form): Fields<ProfileForm>,
) -> Response {
    let done = edit(&state, &visit, form).await;
    or_fault(&state, &visit, done).await
}

/// With a form that was refused, and why.
async fn render(
    state: &AppState,
    visit: &Visit,
    refused: Option<(ProfileForm, &'static str)>,
) -> Result<Response, Fault> {
    let shop = &state.shop;
    let (caller, user_id) = visit.user(shop).await?;
    let user = shop.user(user_id).await?.ok_or(Fault::NotFound)?;
    let sessions = shop.sessions_of(user_id, None, SESSIONS_SHOWN_MAX).await?;
    let (form, trouble) = match refused {
        Some((form, trouble)) => (form, Some(trouble)),
        None => (ProfileForm::of(&user), None),
    };
    let view = AccountPage {
        frame: Frame::of(shop, visit, Some(&caller), "Личный кабинет — Мобильный мир").await,
        email: user.email.to_string(),
        since: wording::date(user.created_at),
        zones: zone_choices(&shop.settings().zones, Zone::parse(&form.zone).ok()),
        form,
        text_max: PROFILE_TEXT_CHARS_MAX,
        address_max: PROFILE_ADDRESS_CHARS_MAX,
        trouble,
        sessions: sessions.items.iter().map(|session| SessionLine::of(session, &caller)).collect(),
    };
    let status = if trouble.is_some() { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::OK };
    Ok(page::respond(visit, status, &view))
}

async fn edit(state: &AppState, visit: &Visit, form: ProfileForm) -> Result<Response, Fault> {
    let (_, user_id) = visit.user(&state.shop).await?;
    let geo_zone = match form.zone.as_str() {
        "" => None,
        code => match Zone::parse(code).ok().filter(|zone| state.shop.settings().knows_zone(*zone)) {
            Some(zone) => Some(zone),
            None => return render(state, visit, Some((form, "Выберите город из списка."))).await,
        },
    };
    let typed = |text: &str| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
    let profile = ProfileEdit {
        name: Some(typed(&form.name)),
        phone: Some(typed(&form.phone)),
        geo_zone: Some(geo_zone),
        shipping_address: Some(typed(&form.address)),
    };
    match state.shop.edit_profile(user_id, profile).await {
        Ok(Some(_)) => Ok(page::see_other(visit, "/account", Some(Notice::ProfileSaved))),
        Ok(None) => Err(Fault::NotFound),
        Err(RegisterError::BadProfile(_)) => {
            let trouble = "Текста слишком много: имя и телефон — до 200 знаков, адрес — до 1000.";
            render(state, visit, Some((form, trouble))).await
        }
        Err(error) => Err(error.into()),
    }
}

impl ProfileForm {
    fn of(user: &User) -> Self {
        let profile = user.profile.clone();
        Self {
            name: profile.name.unwrap_or_default(),
            phone: profile.phone.unwrap_or_default(),
            zone: profile.geo_zone.map(|zone| zone.to_string()).unwrap_or_default(),
            address: profile.shipping_address.unwrap_or_default(),
        }
    }
}

impl SessionLine {
    fn of(session: &mobimir_core::session::Session, caller: &Caller) -> Self {
        Self {
            device: wording::browser(session.user_agent.as_deref()),
            address: session.ip_address.map(|address| address.to_string()).unwrap_or_default(),
            active: wording::time(session.last_active),
            is_current: session.id == caller.session.id,
        }
    }
}
