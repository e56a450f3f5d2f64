//! Orders, their status machine and their history.

use serde::{Deserialize, Serialize};

use crate::{
    id::{OrderId, ProductId, UserId},
    money::Money,
    time::{Day, Timestamp, Version},
    zone::Zone,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    pub id: OrderId,
    pub user_id: UserId,
    pub status: OrderStatus,
    pub geo_zone: Zone,
    pub lines: Vec<OrderLine>,
    pub shipping_address: Option<String>,
    pub payment_method: Option<String>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub bucket: u16,
    pub version: Version,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderLine {
    pub product_id: ProductId,
    pub name: String,
    pub category: String,
    pub price: Money,
    pub quantity: u64,
}

/// `pending -> confirmed -> paid -> shipped -> delivered`, and `cancelled` from the first three.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OrderStatus {
    Pending,
    Confirmed,
    Paid,
    Shipped,
    Delivered,
    Cancelled,
}

/// One line of an order's history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusChange {
    pub status: OrderStatus,
    pub at: Timestamp,
    /// Who moved it; `None` when the shop did.
    pub operator: Option<String>,
}

/// Where a page of orders ends. Newest first; equal times by rising order id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderPosition {
    pub created_at: Timestamp,
    pub order_id: OrderId,
}

impl Order {
    pub fn total(&self) -> Money {
        self.lines.iter().map(OrderLine::amount).sum()
    }

    pub fn day(&self) -> Day {
        self.created_at.day()
    }

    pub fn position(&self) -> OrderPosition {
        OrderPosition { created_at: self.created_at, order_id: self.id }
    }

    /// The order after a move that [`OrderStatus::can_become`] allows.
    pub fn moved(&self, status: OrderStatus, at: Timestamp) -> Order {
        Order { status, updated_at: self.updated_at.max(at), version: self.version.next(at), ..self.clone() }
    }

    /// The history's first line.
    pub fn first_change(&self) -> StatusChange {
        StatusChange { status: self.status, at: self.created_at, operator: None }
    }
}

impl OrderLine {
    pub fn amount(&self) -> Money {
        self.price.times(self.quantity)
    }
}

impl OrderStatus {
    pub const ALL: [OrderStatus; 6] =
        [Self::Pending, Self::Confirmed, Self::Paid, Self::Shipped, Self::Delivered, Self::Cancelled];

    pub fn can_become(self, next: OrderStatus) -> bool {
        use OrderStatus::{Cancelled, Confirmed, Delivered, Paid, Pending, Shipped};
        matches!(
            (self, next),
            (Pending, Confirmed)
                | (Confirmed, Paid)
                | (Paid, Shipped)
                | (Shipped, Delivered)
                | (Pending | Confirmed | Paid, Cancelled)
        )
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Confirmed => "confirmed",
            Self::Paid => "paid",
            Self::Shipped => "shipped",
            Self::Delivered => "delivered",
            Self::Cancelled => "cancelled",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }
}

impl std::fmt::Display for OrderStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl OrderPosition {
    /// The order of lists: newest first, equal times by rising id.
    pub fn key(&self) -> (std::cmp::Reverse<Timestamp>, OrderId) {
        (std::cmp::Reverse(self.created_at), self.order_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_has_exactly_seven_moves() {
        let moves: Vec<String> = OrderStatus::ALL
            .into_iter()
            .flat_map(|from| {
                OrderStatus::ALL
                    .into_iter()
                    .filter(move |to| from.can_become(*to))
                    .map(move |to| format!("{from}>{to}"))
            })
            .collect();
        assert_eq!(
            moves,
            [
                "pending>confirmed",
                "pending>cancelled",
                "confirmed>paid",
                "confirmed>cancelled",
                "paid>shipped",
                "paid>cancelled",
                "shipped>delivered"
            ]
        );
    }
}
