//! What shoppers ask for.

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    ProductPage,
    CategoryPage,
    CartAdd,
    CartChange,
    CartRead,
    Order,
    OrderHistory,
    OrderStatus,
    Login,
    /// A new guest in the place of one who has logged in.
    GuestSession,
}

impl Operation {
    pub const ALL: [Self; 10] = [
        Self::ProductPage,
        Self::CategoryPage,
        Self::CartAdd,
        Self::CartChange,
        Self::CartRead,
        Self::Order,
        Self::OrderHistory,
        Self::OrderStatus,
        Self::Login,
        Self::GuestSession,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::ProductPage => "product_page",
            Self::CategoryPage => "category_page",
            Self::CartAdd => "cart_add",
            Self::CartChange => "cart_change",
            Self::CartRead => "cart_read",
            Self::Order => "order",
            Self::OrderHistory => "order_history",
            Self::OrderStatus => "order_status",
            Self::Login => "login",
            Self::GuestSession => "guest_session",
        }
    }

    /// Whether it changes something: writes have a limit of their own.
    pub fn is_write(self) -> bool {
        matches!(self, Self::CartAdd | Self::CartChange | Self::Order | Self::Login | Self::GuestSession)
    }

    pub(crate) fn index(self) -> usize {
        self as usize
    }
}
