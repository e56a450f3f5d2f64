//! The goods of the demo shop, made up and repeatable: a seed and an index always give the same product, so a demo
//! that is started again inserts nothing new, and a smaller catalogue is the beginning of a larger one.

mod electronics;
mod goods;
mod household;
mod tech;

use std::collections::{BTreeMap, HashSet};

use mobimir_core::{
    id::{self, ProductId},
    money::Money,
    product::{Attribute, Product},
    random::Random,
    time::Timestamp,
    zone::Zone,
};

use self::goods::{COLOURS, Category, Kind, LINES, Model, SERIES, SERIES_SUFFIXES, TITLE_HEADS, TITLE_TAILS};

pub(crate) const PRODUCTS_DEFAULT: usize = 10_000;

/// How often a name that is taken is drawn anew before it gets an article number.
const NAME_DRAWS_MAX: usize = 8;
/// Products entered the shop at some time in this period before the demo.
const ASSORTMENT_AGE_DAYS: u64 = 400;
const SOLD_OUT_PERCENT: u64 = 3;
const ZONE_EMPTY_PERCENT: u64 = 15;

static CATEGORIES: &[Category] = &[
    Category { name: "Электроника", percent: 30, kinds: electronics::ELECTRONICS },
    Category { name: "Смартфоны", percent: 8, kinds: tech::PHONES },
    Category { name: "Ноутбуки", percent: 6, kinds: tech::LAPTOPS },
    Category { name: "Телевизоры", percent: 4, kinds: tech::TELEVISIONS },
    Category { name: "Бытовая техника", percent: 8, kinds: tech::APPLIANCES },
    Category { name: "Аудио", percent: 6, kinds: tech::AUDIO },
    Category { name: "Аксессуары", percent: 8, kinds: tech::ACCESSORIES },
    Category { name: "Игры", percent: 4, kinds: tech::GAMES },
    Category { name: "Книги", percent: 5, kinds: household::BOOKS },
    Category { name: "Дом и сад", percent: 5, kinds: household::HOME_AND_GARDEN },
    Category { name: "Одежда", percent: 5, kinds: household::CLOTHES },
    Category { name: "Спорт", percent: 3, kinds: household::SPORTS },
    Category { name: "Детские товары", percent: 3, kinds: household::CHILDRENS },
    Category { name: "Красота и здоровье", percent: 2, kinds: household::BEAUTY_AND_HEALTH },
    Category { name: "Инструменты", percent: 1, kinds: household::TOOLS_AND_REPAIR },
    Category { name: "Автотовары", percent: 1, kinds: household::CAR_GOODS },
    Category { name: "Зоотовары", percent: 1, kinds: household::PET_GOODS },
];

/// The first `products` goods of the catalogue that `seed` stands for, in stock in `zones` (the first one has most).
pub(crate) fn catalogue(seed: u64, products: usize, zones: &[Zone], now: Timestamp) -> Vec<Product> {
    let mut names = HashSet::with_capacity(products);
    (0..products as u64).filter_map(|index| product(seed, index, &mut names, zones, now)).collect()
}

/// `None` never happens as long as the tables respect what a product may be, which the tests make sure of.
fn product(
    seed: u64,
    index: u64,
    names: &mut HashSet<String>,
    zones: &[Zone],
    now: Timestamp,
) -> Option<Product> {
    let id = id::derived("demo-product", &[&seed.to_be_bytes(), &index.to_be_bytes()]);
    let mut random = Random::new(seed ^ id.as_u64_pair().0);
    let category = category(index);
    let kind = &category.kinds[random.below(category.kinds.len() as u64) as usize];

    let mut draft = Draft::of(kind, &mut random);
    for _ in 0..NAME_DRAWS_MAX {
        if !names.contains(&draft.name) {
            break;
        }
        draft = Draft::of(kind, &mut random);
    }
    if !names.insert(draft.name.clone()) {
        draft.name = format!("{}, арт. {}", draft.name, 100_000 + index);
    }

    let price = price(kind, draft.dearness, &mut random);
    let stock = stock(price, zones, &mut random);
    let age_ms = random.below(ASSORTMENT_AGE_DAYS * 86_400_000);
    let created_at = now.plus_ms(-age_ms.cast_signed());
    let price = Money::from_kopecks(i128::from(price) * 100);
    let category = category.name.to_owned();
    Product::new(ProductId(id), draft.name, category, price, draft.attributes, stock, created_at).ok()
}

/// Spreads the categories evenly: every hundred products hold each of them by its percentage.
fn category(index: u64) -> &'static Category {
    const STEP: u64 = 37;
    let mut place = (index % 100) * STEP % 100;
    for category in CATEGORIES {
        match place.checked_sub(u64::from(category.percent)) {
            Some(rest) => place = rest,
            None => return category,
        }
    }
    &CATEGORIES[0]
}

struct Draft {
    name: String,
    attributes: BTreeMap<String, Attribute>,
    /// How much dearer than the usual one its properties make it.
    dearness: f64,
}

impl Draft {
    fn of(kind: &Kind, random: &mut Random) -> Self {
        let maker = random.pick(kind.makers);
        let (noun, model) = (kind.noun, model(kind.model, random));
        let (mut name, maker_is) = match kind.model {
            Model::Book => (format!("{noun} {model}, {maker}"), "автор"),
            _ => (format!("{noun} {maker} {model}"), "бренд"),
        };
        let mut attributes = BTreeMap::new();
        attributes.insert(maker_is.to_owned(), Attribute::Text(maker.to_owned()));
        let mut dearness = 1.0;
        for property in kind.properties {
            let choice = random.below(property.values.len() as u64) as usize;
            let value = property.values[choice];
            if property.shown {
                name.push_str(", ");
                name.push_str(value);
            }
            if property.priced {
                let middle = (property.values.len() - 1) as f64 / 2.0;
                dearness *= 1.25_f64.powf(choice as f64 - middle);
            }
            let attribute =
                value.parse().map_or_else(|_| Attribute::Text(value.to_owned()), Attribute::Integer);
            attributes.insert(property.name.to_owned(), attribute);
        }
        if kind.colours > 0 {
            let forms = &COLOURS[random.below(kind.colours as u64) as usize];
            name.push_str(", ");
            name.push_str(forms[kind.gender as usize]);
            attributes.insert("цвет".to_owned(), Attribute::Text(forms[0].to_owned()));
        }
        if kind.warranty > 0 {
            attributes.insert("гарантия, мес.".to_owned(), Attribute::Integer(kind.warranty));
        }
        Self { name, attributes, dearness }
    }
}

fn model(model: Model, random: &mut Random) -> String {
    match model {
        Model::Series => {
            let series = random.pick(SERIES);
            let number = 1 + random.below(30);
            format!("{series} {number}{}", random.pick(SERIES_SUFFIXES))
        }
        Model::Code => {
            const LETTERS: &[u8] = b"ABDEFGHKLMNRSTVWX";
            let mut letter = || char::from(LETTERS[random.below(LETTERS.len() as u64) as usize]);
            let (first, second) = (letter(), letter());
            format!("{first}{second}-{}", 10 * (10 + random.below(890)))
        }
        Model::Line => format!("«{}»", random.pick(LINES)),
        Model::Title | Model::Book => format!("«{} {}»", random.pick(TITLE_HEADS), random.pick(TITLE_TAILS)),
    }
}

/// Roubles, around the usual price and with the ending that shops like: 490, 2 390, 24 990.
fn price(kind: &Kind, dearness: f64, random: &mut Random) -> u64 {
    let roubles = (f64::from(kind.usual_price) * dearness * (0.9 * random.bell()).exp()).max(100.0) as u64;
    let (step, below) = match roubles {
        0..1_000 => (50, 10),
        1_000..10_000 => (100, 10),
        10_000..100_000 => (1_000, 10),
        _ => (5_000, 10),
    };
    roubles.div_ceil(step) * step - below
}

/// Cheap goods lie in piles, dear ones in single pieces; every further zone holds less.
fn stock(price: u64, zones: &[Zone], random: &mut Random) -> BTreeMap<Zone, u64> {
    let sold_out = random.percent(SOLD_OUT_PERCENT);
    let usual = match price {
        0..1_000 => 240,
        1_000..10_000 => 90,
        10_000..50_000 => 30,
        _ => 10,
    };
    let mut stock = BTreeMap::new();
    for (place, &zone) in zones.iter().enumerate() {
        let share = (2 * usual / (place as u64 + 2)).max(1);
        let units = 1 + share / 2 + random.below(share + 1);
        let empty = place > 0 && random.percent(ZONE_EMPTY_PERCENT);
        stock.insert(zone, if sold_out || empty { 0 } else { units });
    }
    stock
}

#[cfg(test)]
mod tests;
