//! Stock of a very hot product, split into stripes that are sold from independently.
//!
//! One document takes a few thousand updates a second at most. A product that needs more is split: its own document is the
//! first stripe, the others are documents beside it, and every order has a home among them, where all that concerns it happens
//! ([`sale`]). A stripe that is short borrows from the others before anybody is told that there is too little ([`borrow`]).
//! Splitting and putting together again ([`switch`]) go by steps that anyone may repeat or finish. What a reader sees is
//! all stripes at one moment of the server's ([`look`]).
//!
//! Why it is made like this stands in decision 16.

mod borrow;
mod document;
mod faults;
mod known;
mod look;
mod sale;
mod switch;
mod updates;
mod whole;

pub use self::faults::{StripeFaults, StripeStep};
pub(super) use self::{
    document::{SplitDoc, StripeDoc, StripesDoc, Transfers},
    known::Known,
    whole::Whole,
};

/// Room for holds that each stripe adds to a product; in all there is no less than when it is whole.
const HOLDS_PER_STRIPE: usize = 64;

/// Holds up to which a stripe asks nobody. Half of its share, so that when all is full no stripe is below it, but for
/// rare chance: then some more fit in.
const HOLDS_UNASKED: usize = HOLDS_PER_STRIPE / 2;

pub(super) const STRIPES: &str = "product_stripes";
