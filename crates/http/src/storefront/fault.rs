//! What can go wrong with a page, and the page that says so. The one place where that becomes a status.

use axum::{
    extract::{FromRequest, FromRequestParts, Path, Query, Request, State, rejection::FormRejection},
    http::{StatusCode, request::Parts},
    response::{IntoResponse, Response},
};
use mobimir_core::ports::StoreError;
use mobimir_shop::{CartError, LoginError, RegisterError};
use serde::de::DeserializeOwned;
use thiserror::Error;

use super::{
    links,
    notice::Notice,
    page::{self, Frame},
    visit::Visit,
    wording,
};
use crate::state::AppState;

const RETRY_AFTER_S: u64 = 5;

#[derive(Debug, Error)]
pub(super) enum Fault {
    #[error("no such page")]
    NotFound,
    #[error("this page is for users")]
    LogInFirst { back_to: String },
    #[error("there is no cart to change")]
    NoCart,
    #[error("the post came from another site")]
    Foreign,
    #[error("the form cannot be read")]
    BadForm,
    #[error("the form is too large")]
    TooLarge,
    #[error("this page does not take this method")]
    WrongMethod,
    #[error("too many failed logins, wait {retry_after_s} s")]
    TooManyLogins { retry_after_s: u64 },
    #[error("too much to do: {0}")]
    Busy(String),
    #[error("too many visitors")]
    Crowded,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Fault {
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::LogInFirst { .. } | Self::NoCart => StatusCode::SEE_OTHER,
            Self::Foreign => StatusCode::FORBIDDEN,
            Self::BadForm => StatusCode::BAD_REQUEST,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::WrongMethod => StatusCode::METHOD_NOT_ALLOWED,
            Self::TooManyLogins { .. } => StatusCode::TOO_MANY_REQUESTS,
            Self::Busy(_) | Self::Crowded | Self::Store(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    pub(super) fn heading(&self) -> &'static str {
        match self {
            Self::NotFound => "Такой страницы нет",
            Self::LogInFirst { .. } => "Сначала войдите",
            Self::NoCart => "Корзина пуста",
            Self::Foreign => "Запрос пришёл с другого сайта",
            Self::BadForm | Self::TooLarge => "Не получилось прочитать форму",
            Self::WrongMethod => "Эта страница открывается иначе",
            Self::TooManyLogins { .. } => "Слишком много попыток входа",
            Self::Crowded => "Сейчас у нас очень много покупателей",
            Self::Busy(_) | Self::Store(_) => "Магазин ненадолго недоступен",
        }
    }

    pub(super) fn text(&self) -> String {
        match self {
            Self::NotFound => "Возможно, ссылка устарела или в адресе опечатка. Загляните в каталог: там точно есть что-нибудь интересное.",
            Self::LogInFirst { .. } => "Эта страница доступна после входа.",
            Self::NoCart => "Выберите что-нибудь в каталоге.",
            Self::Foreign => "Мы его не выполнили, чтобы никто не сделал покупку за вас. Откройте магазин сами и повторите действие.",
            Self::BadForm => "Вернитесь назад, проверьте поля и отправьте форму ещё раз.",
            Self::TooLarge => "Текста слишком много. Вернитесь назад, сократите его и отправьте форму ещё раз.",
            Self::WrongMethod => "Вернитесь на главную страницу и попробуйте ещё раз.",
            Self::TooManyLogins { retry_after_s } => {
                let wait = wording::counted(*retry_after_s, ["секунду", "секунды", "секунд"]);
                return format!("Подождите, пожалуйста, {wait} и попробуйте снова. Так мы бережём ваш аккаунт от подбора пароля.");
            }
            Self::Crowded => "Обновите страницу через несколько секунд — корзина и заказы никуда не денутся.",
            Self::Busy(_) | Self::Store(_) => "Мы уже чиним. Обновите страницу через несколько секунд — корзина и заказы никуда не денутся.",
        }
        .to_owned()
    }

    pub(super) fn retry_after_s(&self) -> Option<u64> {
        match self {
            Self::TooManyLogins { retry_after_s } => Some(*retry_after_s),
            Self::Busy(_) | Self::Crowded | Self::Store(_) => Some(RETRY_AFTER_S),
            _ => None,
        }
    }

    /// The page that says so, in the visitor's own frame where the stores can be asked for it.
    pub(super) async fn page(&self, state: &AppState, visit: &Visit) -> Response {
        match self {
            Self::LogInFirst { back_to } => {
                return page::see_other(visit, &links::login(back_to), Some(Notice::LogInFirst));
            }
            Self::NoCart => return page::see_other(visit, "/cart", Some(Notice::EmptyCart)),
            _ => {}
        }
        if self.status().is_server_error() {
            tracing::error!(error = %self, path = visit.path, "a page could not be shown");
            return page::plain(self, visit);
        }
        let caller = visit.caller_if_known(&state.shop).await;
        let frame = Frame::of(&state.shop, visit, caller.as_ref(), self.heading()).await;
        page::fault_in(frame, self, visit)
    }
}

impl From<CartError> for Fault {
    /// What the pages of the cart do not say themselves.
    fn from(error: CartError) -> Self {
        match error {
            CartError::Store(error) => Self::Store(error),
            CartError::UnknownProduct(_) => Self::NotFound,
            CartError::UnknownZone(_)
            | CartError::OutOfStock { .. }
            | CartError::Mismatch
            | CartError::Full => Self::BadForm,
        }
    }
}

impl From<LoginError> for Fault {
    fn from(error: LoginError) -> Self {
        match error {
            LoginError::TooMany { retry_after_s } => Self::TooManyLogins { retry_after_s },
            LoginError::Store(error) => Self::Store(error),
            LoginError::BadCredentials => Self::BadForm,
            LoginError::Password(_) | LoginError::Stopped(_) => Self::Busy(error.to_string()),
        }
    }
}

impl From<RegisterError> for Fault {
    fn from(error: RegisterError) -> Self {
        match error {
            RegisterError::Store(error) => Self::Store(error),
            RegisterError::Password(error) => Self::Busy(error.to_string()),
            RegisterError::Invalid(_) | RegisterError::EmailTaken | RegisterError::BadProfile(_) => {
                Self::BadForm
            }
        }
    }
}

/// Turns what a handler could not do into its page.
pub(super) async fn or_fault(state: &AppState, visit: &Visit, done: Result<Response, Fault>) -> Response {
    match done {
        Ok(response) => response,
        Err(fault) => fault.page(state, visit).await,
    }
}

pub(super) async fn wrong_method(State(state): State<AppState>, visit: Visit) -> Response {
    Fault::WrongMethod.page(&state, &visit).await
}

/// The fields of a form.
pub(super) struct Fields<T>(pub(super) T);

impl<T: DeserializeOwned + Send> FromRequest<AppState> for Fields<T> {
    type Rejection = Response;

    async fn from_request(request: Request, state: &AppState) -> Result<Self, Response> {
        let visit = Visit::of_headers(request.headers());
        match axum::Form::<T>::from_request(request, state).await {
            Ok(form) => Ok(Self(form.0)),
            Err(rejection) => {
                let too_large = matches!(&rejection, FormRejection::BytesRejection(_))
                    && rejection.status() == StatusCode::PAYLOAD_TOO_LARGE;
                let fault = if too_large { Fault::TooLarge } else { Fault::BadForm };
                Err(fault.page(state, &visit).await.into_response())
            }
        }
    }
}

/// The parameters of a page; what cannot be read counts as not given.
pub(super) struct Parameters<T>(pub(super) T);

impl<T: DeserializeOwned + Default + Send> FromRequestParts<AppState> for Parameters<T> {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Self::Rejection> {
        let query = Query::<T>::from_request_parts(parts, state).await;
        Ok(Self(query.map(|query| query.0).unwrap_or_default()))
    }
}

/// The id in a path. One that is none leads nowhere.
pub(super) struct PathId(pub(super) uuid::Uuid);

impl FromRequestParts<AppState> for PathId {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Response> {
        let path = Path::<String>::from_request_parts(parts, state).await.ok();
        match path.and_then(|Path(id)| id.parse().ok()) {
            Some(id) => Ok(Self(id)),
            None => {
                let visit = Visit::of_headers(&parts.headers);
                Err(Fault::NotFound.page(state, &visit).await.into_response())
            }
        }
    }
}
