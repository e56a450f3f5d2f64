//! Applies the steps to the store and to the model.

use std::collections::{BTreeMap, HashMap};

use mobimir_core::{
    checkout::{AbortReason, Checkout, ShortLine},
    id::ProductId,
    product::{
        Decision, Hold, HoldKind, NAME_CHARS_MAX, Product, ProductEdit, ProductQuery, ProductSort, Verdict,
    },
    search,
    time::{Timestamp, Version},
    zone::Zone,
};

use super::{
    super::arena::{Bench, CaseClock, Universe, first_version, zone},
    Checked, Failure, answered, holds, listed, same, same_beginning,
    steps::{Choice, Draft, Move, ORDERS, PRODUCTS, Question, Step, WORDS},
    with_holds,
};

pub(super) async fn run(bench: &Bench, steps: &[Step]) -> Checked {
    let mut case = Case { bench, clock: bench.universe.clock() };
    for step in steps {
        case.apply(step).await?;
    }
    case.compare_all().await
}

struct Case<'a> {
    bench: &'a Bench,
    clock: CaseClock,
}

impl Case<'_> {
    async fn apply(&mut self, step: &Step) -> Checked {
        let (store, model) = (&self.bench.store.products, &self.bench.model.products);
        let (universe, now) = (&self.bench.universe, self.clock.now);
        match step {
            Step::Wait { ms } => self.clock.advance_ms(*ms),
            Step::Insert { products } => {
                // The same id twice in one batch means the same product.
                let products: BTreeMap<usize, &Draft> =
                    products.iter().map(|(n, draft)| (*n, draft)).collect();
                let mut products: Vec<Product> =
                    products.into_iter().map(|(n, draft)| inserted(universe, n, draft, now)).collect();
                products.push(products[0].clone());
                let count = answered(store.insert(products.clone()).await)?;
                same("insert", count, answered(model.insert(products).await)?)?;
            }
            Step::Get { product } => self.get(*product).await?,
            Step::GetMany { products } => {
                let ids: Vec<ProductId> = products.iter().map(|n| universe.product(*n)).collect();
                let expected: HashMap<_, _> = answered(model.get_many(&ids).await)?;
                self.bench.sees(step, expected, async || store.get_many(&ids).await).await?;
            }
            Step::Edit { product, category, word, edit } => {
                let edit = ProductEdit {
                    name: edit.name.as_ref().map(|name| name_of(universe, word.unwrap_or(0), name)),
                    category: category.map(|n| category_of(universe, n)),
                    ..edit.clone()
                };
                let id = universe.product(*product);
                let edited = answered(store.edit(id, edit.clone(), now).await)?;
                same(step, edited, answered(model.edit(id, edit, now).await)?)?;
            }
            Step::ChangeStock { product, zone: n, change } => {
                let (id, zone) = (universe.product(*product), zone(*n));
                let changed = answered(store.change_stock(id, zone, *change, now).await)?;
                same(step, changed, answered(model.change_stock(id, zone, *change, now).await)?)?;
            }
            Step::Hold { product, order, attempt, is_return } => {
                let id = universe.product(*product);
                let hold = Hold {
                    order: universe.order(*order),
                    attempt: universe.attempt(*attempt),
                    kind: if *is_return { HoldKind::Return } else { HoldKind::Sale },
                    zone: zone(order % 2),
                    quantity: (order * 2 + product) as u64 % 5 + 1,
                    placed_at: now,
                };
                let held = answered(store.hold(id, hold, now).await)?;
                same(step, held, answered(model.hold(id, hold, now).await)?)?;
            }
            Step::Settle { product, order, sale, cancellation } => {
                let (id, order) = (universe.product(*product), universe.order(*order));
                let verdict = Verdict {
                    sale: decision(universe, *sale),
                    cancellation: decision(universe, *cancellation),
                };
                let is_sound = match answered(model.get(id).await)? {
                    Some(product) => sold_suffices(&product, order, verdict),
                    None => true,
                };
                if is_sound {
                    let settled = answered(store.settle(id, order, verdict, now).await)?;
                    same(step, settled, answered(model.settle(id, order, verdict, now).await)?)?;
                }
                self.get(*product).await?;
            }
            Step::List(question) => self.list(question).await?,
            Step::Categories => self.categories().await?,
            Step::WithHolds { for_ms, limit } => self.with_holds(now.plus_ms(-for_ms), *limit).await?,
            Step::InsertCheckout { order, checkout } => {
                let checkout = Checkout {
                    order_id: universe.order(*order),
                    created_at: now,
                    deadline: now.plus_s(15),
                    due_at: Some(now.plus_s(15)),
                    version: first_version(now),
                    ..checkout.clone()
                };
                let existing = answered(store.insert_checkout(checkout.clone()).await)?;
                same("insert_checkout", existing, answered(model.insert_checkout(checkout).await)?)?;
            }
            Step::GetCheckout { order } => {
                self.checkout(*order).await?;
            }
            Step::MoveCheckout { order, step: a_move, attempt, right_version } => {
                let Some(current) = self.checkout(*order).await? else { return Ok(()) };
                let Some(next) = moved(universe, &current, *a_move, *attempt, now) else { return Ok(()) };
                let expected = if *right_version { current.version } else { Version(current.version.0 - 1) };
                let updated = answered(store.update_checkout(next.clone(), expected).await)?;
                same(step, updated, answered(model.update_checkout(next, expected).await)?)?;
                self.checkout(*order).await?;
            }
            Step::DueCheckouts { limit } => self.due(*limit).await?,
        }
        Ok(())
    }

    async fn get(&self, n: usize) -> Checked {
        let id = self.bench.universe.product(n);
        let expected = answered(self.bench.model.products.get(id).await)?;
        let read = async || -> Result<_, Failure> {
            let actual = answered(self.bench.store.products.get(id).await)?;
            let balanced = actual.as_ref().is_none_or(|product| product.books_balance());
            holds(format!("STK-1 for product {n}"), balanced)?;
            Ok(actual)
        };
        self.bench.sees(format!("get product {n}"), expected, read).await
    }

    async fn list(&self, question: &Question) -> Checked {
        let universe = &self.bench.universe;
        let mut words = question.word.map(|n| WORDS[n].to_owned()).unwrap_or_default();
        if question.category.is_none() {
            words = format!("{words} {}", universe.word);
        }
        let start = match question.after {
            Some(n) => answered(self.bench.model.products.get(universe.product(n)).await)?,
            None => None,
        };
        let query = ProductQuery {
            category: question.category.map(|n| category_of(universe, n)),
            price_min: question.price_min,
            price_max: question.price_max,
            terms: search::terms(&words),
            zone: question.zone.map(zone),
            sort: question.sort,
            after: start.map(|product| question.sort.position(&product)),
            limit: usize::MAX,
        };
        let expected = answered(self.bench.model.products.list(query.clone()).await)?;
        let expected: Vec<Product> = expected.items.iter().map(|product| Product::clone(product)).collect();
        let what = format!("{query:?} in pages of {}", question.limit);
        self.bench.sees(what, expected, async || listed(self.bench, &query, question.limit).await).await
    }

    async fn categories(&self) -> Checked {
        let expected = answered(self.bench.model.products.categories().await)?;
        let own = async || -> Result<Vec<String>, Failure> {
            let all = answered(self.bench.store.products.categories().await)?;
            holds("categories are sorted, each once", all.is_sorted_by(|a, b| a < b))?;
            Ok(all.into_iter().filter(|name| name.starts_with(&self.bench.universe.word)).collect())
        };
        self.bench.sees("categories", expected, own).await
    }

    async fn with_holds(&self, placed_before: Timestamp, limit: usize) -> Checked {
        let expected = answered(self.bench.model.products.with_holds(placed_before, None, usize::MAX).await)?;
        let expected: Vec<Product> = expected.iter().map(|product| Product::clone(product)).collect();
        let what = format!("holds placed before {placed_before} by pages of {limit}");
        self.bench.sees(what, expected, async || with_holds(self.bench, placed_before, limit).await).await
    }

    async fn checkout(&self, n: usize) -> Result<Option<Checkout>, Failure> {
        let id = self.bench.universe.order(n);
        let expected = answered(self.bench.model.products.get_checkout(id).await)?;
        let read = async || self.bench.store.products.get_checkout(id).await;
        self.bench.sees(format!("get_checkout {n}"), expected.clone(), read).await?;
        Ok(expected)
    }

    async fn due(&self, limit: usize) -> Checked {
        let now = self.clock.now;
        let whole = answered(self.bench.model.products.due_checkouts(now, usize::MAX).await)?;
        let observe = async || {
            let actual = answered(self.bench.store.products.due_checkouts(now, limit).await)?;
            same_beginning(format!("due before {now}"), &actual, &whole, limit, |checkout| checkout.due_at)
        };
        self.bench.eventually(observe).await?;
        let whole = answered(self.bench.model.products.due_uncommitted(now, usize::MAX).await)?;
        let observe = async || {
            let actual = answered(self.bench.store.products.due_uncommitted(now, limit).await)?;
            let what = format!("not committed and due before {now}");
            same_beginning(what, &actual, &whole, limit, |checkout| checkout.due_at)
        };
        self.bench.eventually(observe).await
    }

    async fn compare_all(&mut self) -> Checked {
        for n in 0..PRODUCTS {
            self.get(n).await?;
        }
        for sort in [ProductSort::PriceAscending, ProductSort::PriceDescending, ProductSort::Name] {
            let everything = Question {
                category: None,
                word: None,
                price_min: None,
                price_max: None,
                zone: None,
                sort,
                after: None,
                limit: 2,
            };
            self.list(&everything).await?;
        }
        self.categories().await?;
        self.clock.advance_ms(1);
        self.with_holds(self.clock.now, 2).await?;
        for n in 0..ORDERS {
            self.checkout(n).await?;
        }
        self.clock.advance_ms(20_000);
        self.due(100).await
    }
}

fn inserted(universe: &Universe, n: usize, draft: &Draft, now: Timestamp) -> Product {
    let stock = draft.units.iter().enumerate().map(|(n, units)| (zone(n), *units)).collect();
    Product::new(
        universe.product(n),
        name_of(universe, draft.word, &draft.product.name),
        category_of(universe, draft.category),
        draft.product.price,
        draft.product.attributes.clone(),
        stock,
        now,
    )
    .expect("the strategy keeps to the limits")
}

fn name_of(universe: &Universe, word: usize, name: &str) -> String {
    let full = format!("{} {} {name}", universe.word, WORDS[word]);
    full.chars().take(NAME_CHARS_MAX).collect()
}

/// Each is the beginning of the next.
fn category_of(universe: &Universe, n: usize) -> String {
    format!("{}{}", universe.word, &["", " ", " Ё", " Ёлки"][n])
}

fn decision(universe: &Universe, choice: Choice) -> Decision {
    match choice {
        Choice::Undecided => Decision::Undecided,
        Choice::Won(attempt) => Decision::Won(universe.attempt(attempt)),
        Choice::Lost => Decision::Lost,
        Choice::Failed(attempt) => Decision::Failed(universe.attempt(attempt)),
    }
}

/// A checkout record never names a return of more than was sold.
fn sold_suffices(product: &Product, order: mobimir_core::id::OrderId, verdict: Verdict) -> bool {
    let won = |kind: HoldKind, zone: Zone, decision: Decision| -> u64 {
        let wins = |hold: &&Hold| {
            hold.order == order
                && hold.kind == kind
                && hold.zone == zone
                && decision.of(hold.attempt) == Some(true)
        };
        product.holds.iter().filter(wins).map(|hold| hold.quantity).sum()
    };
    product.holds.iter().all(|hold| {
        let sold = product.stock.get(&hold.zone).map_or(0, |stock| stock.sold);
        let returned = won(HoldKind::Return, hold.zone, verdict.cancellation);
        sold + won(HoldKind::Sale, hold.zone, verdict.sale) >= returned
    })
}

fn moved(
    universe: &Universe,
    current: &Checkout,
    a_move: Move,
    attempt: usize,
    now: Timestamp,
) -> Option<Checkout> {
    let attempt = universe.attempt(attempt);
    let short = ShortLine { product_id: universe.product(0), requested: 3, available: 2 };
    match a_move {
        Move::Commit => current.commit(attempt, now).ok(),
        Move::AbortShort => current.abort(AbortReason::OutOfStock { lines: vec![short] }, now).ok(),
        Move::AbortExpired => current.abort(AbortReason::Expired, now).ok(),
        Move::Cancel => current.cancel(attempt, Some("оператор 😀".into()), now).ok(),
        Move::Dispatch => current.dispatch(now).ok(),
        Move::Settled => Some(current.settled(now)),
        Move::Fenced => Some(current.fenced(now)),
    }
}
