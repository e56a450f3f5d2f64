//! Requests under way, for when their answers come.

use super::Crowd;
use crate::{goods::PriceRange, operation::Operation};

use super::shopper::Pending;

/// A request that was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) operation: Operation,
    pub(super) what: What,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    /// A read that is not in the sample of those that are checked.
    Unchecked,
    Product {
        product: u32,
    },
    Listing {
        range: PriceRange,
    },
    Cart {
        shopper: u32,
        /// How many changes the shopper had sent before.
        changes: u32,
    },
    History {
        user: u32,
        /// The place of the user's last order among all that were placed.
        last: Option<u32>,
        orders_begun: u32,
    },
    PlacedOrder {
        placed: u32,
    },
    Add {
        shopper: u32,
        product: u32,
        units: u64,
        /// What refused orders had released of the product before.
        released: u64,
    },
    Set {
        shopper: u32,
        product: u32,
        units: u64,
        released: u64,
    },
    Clear {
        shopper: u32,
    },
    Order {
        shopper: u32,
    },
    Login {
        guest: u32,
        user: u32,
    },
    Guest {
        guest: u32,
    },
}

impl What {
    /// Who has changed something.
    pub(super) fn shopper(self) -> Option<u32> {
        match self {
            Self::Add { shopper, .. }
            | Self::Set { shopper, .. }
            | Self::Clear { shopper }
            | Self::Order { shopper }
            | Self::Login { user: shopper, .. } => Some(shopper),
            _ => None,
        }
    }
}

/// Where an answer that is checked comes from.
#[derive(Clone, Copy)]
pub(super) enum Source<'a> {
    Asked(What),
    Order { user: u32, pending: &'a Pending },
}

impl Source<'_> {
    /// The request for people.
    pub(super) fn described(self, crowd: &Crowd) -> String {
        let id = |product: u32| &crowd.goods.product(product).id;
        match self {
            Self::Order { user, pending: Pending { key, body, .. } } => {
                format!("POST /v1/orders of shopper {user} under the key {key}: {body}")
            }
            Self::Asked(what) => match what {
                What::Unchecked => "a read".to_owned(),
                What::Product { product } => format!("GET /v1/products/{}", id(product)),
                What::Listing { range } => {
                    let PriceRange { category, low_kopecks, high_kopecks } = range;
                    let price = |kopecks: u64| format!("{}.{:02}", kopecks / 100, kopecks % 100);
                    let (category, low, high) =
                        (crowd.goods.category(category), price(low_kopecks), price(high_kopecks));
                    format!("GET /v1/products?category={category}&price_min={low}&price_max={high}")
                }
                What::Cart { shopper, .. } => format!("GET /v1/cart of shopper {shopper}"),
                What::History { user, .. } => format!("GET /v1/orders of shopper {user}"),
                What::PlacedOrder { placed } => {
                    format!("GET /v1/orders/{}", crowd.placed[placed as usize].id)
                }
                What::Add { shopper, product, units, .. } => {
                    format!("POST /v1/cart/items of shopper {shopper}: {units} of {}", id(product))
                }
                What::Set { shopper, product, units: 0, .. } => {
                    format!("DELETE /v1/cart/items/{} of shopper {shopper}", id(product))
                }
                What::Set { shopper, product, units, .. } => {
                    format!("PUT /v1/cart/items/{} of shopper {shopper}: {units}", id(product))
                }
                What::Clear { shopper } => format!("DELETE /v1/cart of shopper {shopper}"),
                What::Order { shopper } => format!("POST /v1/orders of shopper {shopper}"),
                What::Login { guest, user } => {
                    format!("POST /v1/sessions/login of guest {guest} as user {user}")
                }
                What::Guest { .. } => "POST /v1/sessions".to_owned(),
            },
        }
    }
}
