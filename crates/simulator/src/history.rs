//! What clients asked and were answered. Plain data: the checker judges a history of real servers as well.

use std::sync::{Arc, Mutex, PoisonError};

/// Whoever has a cart, orders and sessions: a number is enough.
pub type Customer = usize;
/// A product, by number.
pub type Item = usize;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    pub client: usize,
    pub instance: usize,
    /// In milliseconds of a clock that all clients share.
    pub asked_ms: i64,
    pub answered_ms: i64,
    pub call: Call,
    pub answer: Answer,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// To the cart of a customer, or of a guest (`guest`) who may become one.
    Add {
        customer: Customer,
        guest: Option<usize>,
        item: Item,
        units: u64,
    },
    ReadCart {
        customer: Customer,
    },
    /// Replaces what is in the cart of an item; without units it removes the line.
    SetLine {
        customer: Customer,
        item: Item,
        units: u64,
    },
    Clear {
        customer: Customer,
    },
    /// Logs in with a guest's cart.
    Merge {
        customer: Customer,
        guest: usize,
    },
    /// `lines` is `None` when the cart is ordered.
    Order {
        customer: Customer,
        key: String,
        lines: Option<Vec<(Item, u64)>>,
        shown: Option<Vec<(Item, u64, i64)>>,
    },
    /// By the guest whose cart it is.
    ReadGuestCart {
        guest: usize,
    },
    ListAbandoned,
    /// The orders of a customer with where each stands.
    ListStatuses {
        customer: Customer,
    },
    ReadOrder {
        order: String,
    },
    ListOrders {
        customer: Customer,
    },
    Move {
        order: String,
        to: &'static str,
        operator: String,
    },
    ReadHistory {
        order: String,
    },
    /// An access token is presented; tokens are numbers, sessions too.
    Present {
        session: usize,
        token: usize,
    },
    Refresh {
        session: usize,
        token: usize,
    },
    LogIn {
        session: usize,
    },
    LogOut {
        session: usize,
    },
    Restock {
        item: Item,
        delta: i64,
    },
    Reprice {
        item: Item,
        price: i64,
    },
    ViewProduct {
        item: Item,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Done,
    /// With lines of item, units and price.
    Placed {
        order: String,
        lines: Vec<(Item, u64, i64)>,
        replayed: bool,
    },
    Cart(Vec<(Item, u64)>),
    Order(Option<Vec<(Item, u64, i64)>>),
    Orders(Vec<String>),
    Statuses(Vec<(String, String)>),
    Abandoned(Vec<Whose>),
    /// Each status with who moved the order there.
    History(Vec<(String, Option<String>)>),
    /// A new pair of tokens under this number.
    Tokens(usize),
    Stock {
        available: u64,
        reserved: u64,
        sold: u64,
    },
    Price(i64),
    /// Refused for a reason, finally: nothing was done.
    Refused(&'static str),
    /// Not now: nothing was done, or it is for the key's next try to say.
    NotNow,
    /// An error, or no answer at all: it may have been done, or may still be.
    Open,
}

/// Whose cart was left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whose {
    Customer(Customer),
    /// A guest who never logs in.
    Visitor(usize),
    Other(String),
}

#[derive(Clone, Default)]
pub struct History(Arc<Mutex<Vec<Operation>>>);

impl History {
    pub fn record(&self, operation: Operation) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(operation);
    }

    pub fn operations(&self) -> Vec<Operation> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
