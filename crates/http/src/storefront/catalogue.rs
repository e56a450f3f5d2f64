//! The catalogue: a filter, and a page of cards.

use askama::Template;
use axum::{extract::State, response::Response};
use mobimir_core::{
    money::Money,
    product::{CATEGORY_CHARS_MAX, Product, ProductPosition, ProductQuery, ProductSort},
    search,
    zone::Zone,
};
use serde::Deserialize;

use super::{
    fault::{Fault, Parameters, or_fault},
    links,
    page::{self, Frame},
    pictures::Picture,
    visit::Visit,
    wording,
};
use crate::{cursor, state::AppState};

const CARDS_PER_PAGE: usize = 24;
const CURSOR_KIND: &str = "storefront-products";
const SEARCH_CHARS_MAX: usize = 200;

const SORTS: [(&str, &str, ProductSort); 3] = [
    ("price", "Сначала дешёвые", ProductSort::PriceAscending),
    ("-price", "Сначала дорогие", ProductSort::PriceDescending),
    ("name", "По названию", ProductSort::Name),
];

/// What was asked for, as it was typed.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Filter {
    category: String,
    price_min: String,
    price_max: String,
    q: String,
    zone: String,
    sort: String,
    after: String,
}

/// A product as a card shows it.
pub(super) struct Card {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) picture: String,
    pub(super) label: &'static str,
    pub(super) price: String,
    pub(super) available: bool,
    pub(super) availability: String,
}

/// One choice of a list.
pub(super) struct Choice {
    pub(super) value: String,
    pub(super) label: String,
    pub(super) chosen: bool,
}

#[derive(Template)]
#[template(path = "storefront/catalogue.html")]
struct CataloguePage {
    frame: Frame,
    heading: String,
    filter: Filter,
    categories: Vec<Choice>,
    zones: Vec<Choice>,
    sorts: Vec<Choice>,
    /// What of the filter could not be used.
    remarks: Vec<&'static str>,
    cards: Vec<Card>,
    /// The zone that a card's button puts into the cart with the goods.
    zone_code: String,
    next: Option<String>,
    first: Option<String>,
    filtered: bool,
}

pub(super) async fn show(
    State(state): State<AppState>,
    visit: Visit,
    Parameters(filter): Parameters<Filter>,
) -> Response {
    let done = render(&state, &visit, filter).await;
    or_fault(&state, &visit, done).await
}

async fn render(state: &AppState, visit: &Visit, filter: Filter) -> Result<Response, Fault> {
    let shop = &state.shop;
    let caller = visit.caller_if_known(shop).await;
    let (query, remarks) = filter.query(&shop.settings().zones);
    let zone = query.zone;
    let sort = query.sort;
    let page = shop.list_products(query).await?;
    let categories = shop.categories().await?;

    let heading = match (filter.category.as_str(), filter.q.trim()) {
        ("", "") => "Каталог".to_owned(),
        (category, "") => category.to_owned(),
        (_, asked) => format!("Поиск: {asked}"),
    };
    let mut frame = Frame::of(shop, visit, caller.as_ref(), format!("{heading} — Мобильный мир")).await;
    frame.search.clone_from(&filter.q);
    let chosen = |label: String, value: &str, current: &str| Choice {
        chosen: value == current,
        value: value.to_owned(),
        label,
    };
    let zone_code = zone.map(|zone| zone.to_string()).unwrap_or_default();
    let view = CataloguePage {
        frame,
        heading,
        categories: categories.iter().map(|name| chosen(name.clone(), name, &filter.category)).collect(),
        zones: zone_choices(&shop.settings().zones, zone),
        sorts: SORTS
            .iter()
            .map(|(code, label, of)| Choice { chosen: *of == sort, ..chosen((*label).to_owned(), code, "") })
            .collect(),
        remarks,
        cards: page.items.iter().map(|product| Card::of(product, zone)).collect(),
        zone_code,
        next: page.next.map(|position| filter.link(&cursor::encode(CURSOR_KIND, &position))),
        first: (!filter.after.is_empty()).then(|| filter.link("")),
        filtered: filter.is_narrow(),
        filter,
    };
    Ok(page::ok(visit, &view))
}

impl Filter {
    /// The question, and what of the filter makes no sense and was left out of it.
    fn query(&self, zones: &[Zone]) -> (ProductQuery, Vec<&'static str>) {
        let mut remarks = Vec::new();
        let sort = SORTS.iter().find(|(code, _, _)| *code == self.sort).map(|(_, _, sort)| *sort);
        if sort.is_none() && !self.sort.is_empty() {
            remarks.push("Такого порядка нет, показываем сначала дешёвые.");
        }
        let mut query = ProductQuery::all(sort.unwrap_or(ProductSort::PriceAscending), CARDS_PER_PAGE);

        let category = self.category.trim();
        if category.chars().count() <= CATEGORY_CHARS_MAX {
            query.category = Some(category.to_owned()).filter(|category| !category.is_empty());
        } else {
            remarks.push("Такой категории нет, показываем все.");
        }
        match typed_price(&self.price_min) {
            Ok(price) => query.price_min = price,
            Err(()) => {
                remarks.push("Цена «от» не похожа на число, поэтому мы её не учли. Пример: 12\u{a0}990.")
            }
        }
        match typed_price(&self.price_max) {
            Ok(price) => query.price_max = price,
            Err(()) => {
                remarks.push("Цена «до» не похожа на число, поэтому мы её не учли. Пример: 24\u{a0}990.")
            }
        }
        if let (Some(min), Some(max)) = (query.price_min, query.price_max)
            && min > max
        {
            (query.price_min, query.price_max) = (Some(max), Some(min));
            remarks.push("Цена «от» больше цены «до», поэтому мы поменяли их местами.");
        }
        let asked: String = self.q.chars().take(SEARCH_CHARS_MAX).collect();
        query.terms = search::terms(&asked);
        if query.terms.is_empty() && !asked.trim().is_empty() {
            remarks.push("В запросе нет ни одного слова, показываем всё.");
        }
        if !self.zone.is_empty() {
            query.zone = Zone::parse(&self.zone).ok().filter(|zone| zones.contains(zone));
            if query.zone.is_none() {
                remarks.push("В этот город мы пока не доставляем, показываем товары во всех городах.");
            }
        }
        if !self.after.is_empty() {
            let position = cursor::decode::<ProductPosition>(CURSOR_KIND, &self.after).ok();
            query.after = position.filter(|position| query.sort.fits(position));
            if query.after.is_none() {
                remarks.push("Эта страница списка устарела, показываем с начала.");
            }
        }
        (query, remarks)
    }

    /// The same list from another place on.
    fn link(&self, after: &str) -> String {
        links::with_query(
            "/catalog",
            &[
                ("category", self.category.trim()),
                ("price_min", self.price_min.trim()),
                ("price_max", self.price_max.trim()),
                ("q", self.q.trim()),
                ("zone", &self.zone),
                ("sort", &self.sort),
                ("after", after),
            ],
        )
    }

    fn is_narrow(&self) -> bool {
        [&self.category, &self.price_min, &self.price_max, &self.q, &self.zone]
            .iter()
            .any(|part| !part.trim().is_empty())
    }
}

impl Card {
    pub(super) fn of(product: &Product, zone: Option<Zone>) -> Self {
        let picture = Picture::of_product(product.id, &product.name, &product.category);
        let available = product.best_available(zone) > 0;
        let availability = match (available, zone) {
            (false, _) => "Нет в наличии".to_owned(),
            (true, Some(zone)) => format!("В наличии, {}", wording::zone(zone)),
            (true, None) => "В наличии".to_owned(),
        };
        Self {
            id: product.id.to_string(),
            name: product.name.clone(),
            picture: picture.url(),
            label: picture.label(),
            price: wording::price(product.price),
            available,
            availability,
        }
    }
}

pub(super) fn zone_choices(zones: &[Zone], chosen: Option<Zone>) -> Vec<Choice> {
    let choice = |zone: &Zone| Choice {
        value: zone.to_string(),
        label: wording::zone(*zone),
        chosen: chosen == Some(*zone),
    };
    zones.iter().map(choice).collect()
}

/// A price as people type it: `12 990`, `12990,50`, `500 ₽`. Nothing typed is no price.
pub(super) fn typed_price(text: &str) -> Result<Option<Money>, ()> {
    let bare: String = text.chars().filter(|c| !c.is_whitespace() && *c != '₽').collect();
    if bare.is_empty() {
        return Ok(None);
    }
    Money::parse_price(&bare.replace(',', ".")).map(Some).map_err(|_| ())
}
