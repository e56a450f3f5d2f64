//! What the next page says after a change: a code in a cookie, and a fixed text for every code. Nothing that anybody
//! typed travels this way.

/// Long enough for a redirect, short enough not to appear out of nowhere.
pub(super) const NOTICE_MAX_AGE_S: i64 = 60;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Notice {
    Added,
    CartChanged,
    Removed,
    Cleared,
    /// This many are left, fewer than were asked for.
    Short(u64),
    SoldOut,
    BadQuantity,
    EmptyCart,
    GoneProduct,
    FullCart,
    Welcome,
    WelcomeWithCart,
    SignedUp,
    SignedUpWithCart,
    SignUpThenLogIn,
    LoggedOut,
    ProfileSaved,
    Ordered,
    LogInFirst,
}

impl Notice {
    pub(super) fn encode(self) -> String {
        match self {
            Self::Short(left) => format!("short.{left}"),
            other => FIXED
                .iter()
                .find(|(_, notice)| *notice == other)
                .map(|(code, _)| *code)
                .unwrap_or_default()
                .to_owned(),
        }
    }

    pub(super) fn decode(code: &str) -> Option<Self> {
        match code.strip_prefix("short.") {
            Some(left) => left.parse().ok().map(Self::Short),
            None => FIXED.iter().find(|(known, _)| *known == code).map(|(_, notice)| *notice),
        }
    }

    pub(super) fn text(self) -> String {
        match self {
            Self::Added => "Товар в корзине",
            Self::CartChanged => "Количество изменено",
            Self::Removed => "Товар убран из корзины",
            Self::Cleared => "Корзина очищена",
            Self::Short(left) => return format!("Столько нет: осталось {}", super::wording::pieces(left)),
            Self::SoldOut => "Этот товар закончился в выбранном городе",
            Self::BadQuantity => "Укажите количество числом, от 1 до 1 000 000",
            Self::EmptyCart => "В корзине пока пусто — выберите что-нибудь",
            Self::GoneProduct => "Этот товар больше не продаётся",
            Self::FullCart => "В корзине больше нет места: оформите заказ или уберите что-нибудь",
            Self::Welcome => "С возвращением!",
            Self::WelcomeWithCart => "С возвращением! Всё, что вы выбрали до входа, теперь в вашей корзине",
            Self::SignedUp => "Добро пожаловать! Вы зарегистрированы и уже вошли",
            Self::SignedUpWithCart => "Добро пожаловать! Вы зарегистрированы, а корзина сохранилась",
            Self::SignUpThenLogIn => "Вы зарегистрированы. Теперь войдите, пожалуйста",
            Self::LoggedOut => "Вы вышли. Приходите ещё!",
            Self::ProfileSaved => "Данные сохранены",
            Self::Ordered => "Спасибо! Заказ оформлен",
            Self::LogInFirst => "Войдите или зарегистрируйтесь, чтобы продолжить",
        }
        .to_owned()
    }

    /// Asks for attention, and stays on the page.
    pub(super) fn is_warning(self) -> bool {
        matches!(
            self,
            Self::Short(_) | Self::SoldOut | Self::BadQuantity | Self::GoneProduct | Self::FullCart
        )
    }

    /// How the style sheet shows it: in the page where it should be read, else for some seconds above it.
    pub(super) fn class(self) -> &'static str {
        match self {
            _ if self.is_warning() => "remark",
            Self::Ordered => "remark remark-good",
            Self::LogInFirst | Self::SignUpThenLogIn | Self::EmptyCart => "remark remark-new",
            _ => "toast",
        }
    }

    /// Where the notice leads on to.
    pub(super) fn link(self) -> Option<(&'static str, &'static str)> {
        matches!(self, Self::Added).then_some(("/cart", "Перейти в корзину"))
    }
}

const FIXED: [(&str, Notice); 18] = [
    ("added", Notice::Added),
    ("changed", Notice::CartChanged),
    ("removed", Notice::Removed),
    ("cleared", Notice::Cleared),
    ("sold-out", Notice::SoldOut),
    ("quantity", Notice::BadQuantity),
    ("empty-cart", Notice::EmptyCart),
    ("gone", Notice::GoneProduct),
    ("full", Notice::FullCart),
    ("welcome", Notice::Welcome),
    ("welcome-cart", Notice::WelcomeWithCart),
    ("signed-up", Notice::SignedUp),
    ("signed-up-cart", Notice::SignedUpWithCart),
    ("log-in-now", Notice::SignUpThenLogIn),
    ("logged-out", Notice::LoggedOut),
    ("saved", Notice::ProfileSaved),
    ("ordered", Notice::Ordered),
    ("log-in-first", Notice::LogInFirst),
];
