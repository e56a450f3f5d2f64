//! What may happen to products, made up at random.

use mobimir_core::{
    checkout::Checkout,
    money::Money,
    product::{Product, ProductEdit, ProductSort, STOCK_MAX, StockChange},
};
use proptest::{collection, option, prelude::*, sample};

use crate::strategies;

pub(super) const PRODUCTS: usize = 6;
pub(super) const ORDERS: usize = 4;
pub(super) const ATTEMPTS: usize = 3;
pub(super) const ZONES: usize = 2;
pub(super) const CATEGORIES: usize = 4;
/// Words that many names have in common, in several forms.
pub(super) const WORDS: [&str; 4] = ["телефон", "Телефоны", "чёрный", "phone"];

#[derive(Clone, Debug)]
pub(super) enum Step {
    Wait { ms: i64 },
    Insert { products: Vec<(usize, Draft)> },
    Get { product: usize },
    GetMany { products: Vec<usize> },
    Edit { product: usize, category: Option<usize>, word: Option<usize>, edit: ProductEdit },
    ChangeStock { product: usize, zone: usize, change: StockChange },
    Hold { product: usize, order: usize, attempt: usize, is_return: bool },
    Settle { product: usize, order: usize, sale: Choice, cancellation: Choice },
    List(Question),
    Categories,
    WithHolds { for_ms: i64, limit: usize },
    InsertCheckout { order: usize, checkout: Checkout },
    GetCheckout { order: usize },
    MoveCheckout { order: usize, step: Move, attempt: usize, right_version: bool },
    DueCheckouts { limit: usize },
}

#[derive(Clone, Debug)]
pub(super) struct Draft {
    pub(super) category: usize,
    pub(super) word: usize,
    pub(super) units: [u64; ZONES],
    pub(super) product: Product,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Choice {
    Undecided,
    Won(usize),
    Lost,
    Failed(usize),
}

/// Always about one universe: by a category of it, or by the word that all names in it have.
#[derive(Clone, Debug)]
pub(super) struct Question {
    pub(super) category: Option<usize>,
    pub(super) word: Option<usize>,
    pub(super) price_min: Option<Money>,
    pub(super) price_max: Option<Money>,
    pub(super) zone: Option<usize>,
    pub(super) sort: ProductSort,
    /// The page starts after this product, as it is now.
    pub(super) after: Option<usize>,
    pub(super) limit: usize,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Move {
    Commit,
    AbortShort,
    AbortExpired,
    Cancel,
    Dispatch,
    Settled,
    Fenced,
}

pub(super) fn step() -> impl Strategy<Value = Step> {
    let (product, order, attempt, zone) = (|| 0..PRODUCTS, || 0..ORDERS, || 0..ATTEMPTS, || 0..ZONES);
    let choice = || {
        prop_oneof![
            1 => Just(Choice::Undecided),
            3 => attempt().prop_map(Choice::Won),
            1 => Just(Choice::Lost),
            1 => attempt().prop_map(Choice::Failed),
        ]
    };
    let edit = (product(), option::of(0..CATEGORIES), option::of(0..WORDS.len()), strategies::product_edit())
        .prop_map(|(product, category, word, edit)| Step::Edit { product, category, word, edit });
    let hold = (product(), order(), attempt(), prop::bool::weighted(0.3))
        .prop_map(|(product, order, attempt, is_return)| Step::Hold { product, order, attempt, is_return });
    let settle = (product(), order(), choice(), choice())
        .prop_map(|(product, order, sale, cancellation)| Step::Settle { product, order, sale, cancellation });
    let catalogue = prop_oneof![
        4 => collection::vec((product(), draft()), 1..4).prop_map(|products| Step::Insert { products }),
        1 => product().prop_map(|product| Step::Get { product }),
        1 => collection::vec(product(), 0..5).prop_map(|products| Step::GetMany { products }),
        3 => edit,
        4 => question().prop_map(Step::List),
        1 => Just(Step::Categories),
    ];
    let stock = prop_oneof![
        2 => (product(), zone(), stock_change())
            .prop_map(|(product, zone, change)| Step::ChangeStock { product, zone, change }),
        6 => hold,
        4 => settle,
        1 => (wait_ms(), 1..3usize).prop_map(|(for_ms, limit)| Step::WithHolds { for_ms, limit }),
    ];
    let checkouts = prop_oneof![
        2 => (order(), strategies::checkout())
            .prop_map(|(order, checkout)| Step::InsertCheckout { order, checkout }),
        1 => order().prop_map(|order| Step::GetCheckout { order }),
        4 => (order(), a_move(), attempt(), prop::bool::weighted(0.8)).prop_map(
            |(order, step, attempt, right_version)| Step::MoveCheckout { order, step, attempt, right_version }
        ),
        1 => (1..4usize).prop_map(|limit| Step::DueCheckouts { limit }),
    ];
    prop_oneof![
        1 => wait_ms().prop_map(|ms| Step::Wait { ms }),
        4 => catalogue,
        4 => stock,
        3 => checkouts,
    ]
}

fn wait_ms() -> impl Strategy<Value = i64> {
    sample::select(&[0, 1, 1, 1_000, 5_000, 15_000, 15_001, 3_600_000][..])
}

/// Little stock, so that it runs out.
fn draft() -> impl Strategy<Value = Draft> {
    (0..CATEGORIES, 0..WORDS.len(), [0..12u64, 0..12u64], strategies::product())
        .prop_map(|(category, word, units, product)| Draft { category, word, units, product })
}

fn stock_change() -> impl Strategy<Value = StockChange> {
    prop_oneof![
        2 => (0..12u64).prop_map(StockChange::SetAvailable),
        4 => (-8..8i64).prop_map(StockChange::Delta),
        1 => sample::select(
            &[
                StockChange::SetAvailable(STOCK_MAX),
                StockChange::SetAvailable(STOCK_MAX + 1),
                StockChange::Delta(STOCK_MAX as i64),
                StockChange::Delta(i64::MAX),
                StockChange::Delta(i64::MIN),
            ][..],
        ),
    ]
}

fn question() -> impl Strategy<Value = Question> {
    let price = || option::weighted(0.3, strategies::price());
    let conditions = (
        option::of(0..CATEGORIES),
        option::weighted(0.3, 0..WORDS.len()),
        price(),
        price(),
        option::weighted(0.3, 0..ZONES),
    );
    (conditions, strategies::product_sort(), option::weighted(0.3, 0..PRODUCTS), 1..4usize).prop_map(
        |((category, word, price_min, price_max, zone), sort, after, limit)| Question {
            category,
            word,
            price_min,
            price_max,
            zone,
            sort,
            after,
            limit,
        },
    )
}

fn a_move() -> impl Strategy<Value = Move> {
    sample::select(
        &[
            Move::Commit,
            Move::Commit,
            Move::AbortShort,
            Move::AbortExpired,
            Move::Cancel,
            Move::Dispatch,
            Move::Settled,
            Move::Fenced,
        ][..],
    )
}
