//! What the demo shop sells: kinds of goods by category, with their makers, properties and usual prices.
//!
//! Makers and models are made up. Values of a [`Property`] rise from cheap to dear where it is `priced`.

/// One kind of goods.
pub(super) struct Kind {
    /// What it is called, in the form that the name begins with.
    pub(super) noun: &'static str,
    pub(super) gender: Gender,
    pub(super) makers: &'static [&'static str],
    pub(super) model: Model,
    pub(super) properties: &'static [Property],
    /// How many of [`COLOURS`] it comes in; 0 where a colour says nothing.
    pub(super) colours: usize,
    /// Roubles; half of these goods cost less.
    pub(super) usual_price: u32,
    /// Months; 0 where nobody gives one.
    pub(super) warranty: i64,
}

/// What the noun asks of an adjective: `чёрный`, `чёрная`, `чёрное`, `чёрные`.
#[derive(Clone, Copy)]
pub(super) enum Gender {
    Masculine,
    Feminine,
    Neuter,
    Plural,
}

/// How the maker names a model.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Model {
    /// `Nova 12 Pro`
    Series,
    /// `KX-4520`
    Code,
    /// `«Северный ветер»`
    Line,
    /// `«Тайна старого маяка»`
    Title,
    /// The same, but the maker is an author and comes second.
    Book,
}

pub(super) struct Property {
    pub(super) name: &'static str,
    pub(super) values: &'static [&'static str],
    /// Stands in the name of the product.
    pub(super) shown: bool,
    pub(super) priced: bool,
}

pub(super) struct Category {
    pub(super) name: &'static str,
    /// Of a hundred products, how many are of this category.
    pub(super) percent: u8,
    pub(super) kinds: &'static [Kind],
}

/// Masculine, feminine, neuter, plural. The first [`SOBER_COLOURS`] suit a refrigerator too.
pub(super) const COLOURS: [[&str; 4]; 12] = [
    ["чёрный", "чёрная", "чёрное", "чёрные"],
    ["белый", "белая", "белое", "белые"],
    ["серый", "серая", "серое", "серые"],
    ["графитовый", "графитовая", "графитовое", "графитовые"],
    ["серебристый", "серебристая", "серебристое", "серебристые"],
    ["синий", "синяя", "синее", "синие"],
    ["красный", "красная", "красное", "красные"],
    ["зелёный", "зелёная", "зелёное", "зелёные"],
    ["золотистый", "золотистая", "золотистое", "золотистые"],
    ["бежевый", "бежевая", "бежевое", "бежевые"],
    ["фиолетовый", "фиолетовая", "фиолетовое", "фиолетовые"],
    ["голубой", "голубая", "голубое", "голубые"],
];

pub(super) const SOBER_COLOURS: usize = 5;

pub(super) const SERIES: &[&str] = &[
    "Nova", "Vega", "Orion", "Prime", "Edge", "Pulse", "Aero", "Zenith", "Atlas", "Flux", "Spark", "Quantum",
    "Lumen", "Polar", "Vector",
];

pub(super) const SERIES_SUFFIXES: &[&str] = &["", "", "", " Pro", " Lite", " Max", " SE", " Plus", " Ultra"];

pub(super) const LINES: &[&str] = &[
    "Северный ветер",
    "Классика",
    "Лето",
    "Город",
    "Уют",
    "Маяк",
    "Тайга",
    "Берег",
    "Полдень",
    "Радуга",
    "Горизонт",
    "Снегирь",
    "Лаванда",
    "Комфорт",
    "Старт",
    "Вершина",
    "Гармония",
    "Забава",
    "Премьер",
    "Акварель",
    "Рассвет",
    "Оазис",
    "Этника",
    "Модерн",
    "Прованс",
    "Волна",
    "Ритм",
    "Искра",
    "Облако",
    "Дача",
];

pub(super) const TITLE_HEADS: &[&str] = &[
    "Тайна",
    "Хроники",
    "Легенда",
    "Дорога",
    "Тени",
    "Дети",
    "Хозяин",
    "Последний день",
    "Возвращение",
    "Песня",
    "Наследники",
    "Зима",
    "Голоса",
    "Карта",
    "Ключи",
    "Сказки",
    "Дневник",
    "Сердце",
    "Осада",
    "Стражи",
];

pub(super) const TITLE_TAILS: &[&str] = &[
    "старого маяка",
    "северного ветра",
    "забытого города",
    "янтарного берега",
    "стеклянной башни",
    "полярной ночи",
    "тихой гавани",
    "чёрного озера",
    "медных гор",
    "далёкой звезды",
    "зелёного острова",
    "пустой станции",
    "белого леса",
    "серебряной реки",
    "каменного моста",
    "вечного лета",
    "лунной долины",
    "красного дома",
    "соляных пещер",
    "последней заставы",
];

pub(super) const fn shown(name: &'static str, values: &'static [&'static str]) -> Property {
    Property { name, values, shown: true, priced: false }
}

/// Shown, and the further down the list, the dearer.
pub(super) const fn priced(name: &'static str, values: &'static [&'static str]) -> Property {
    Property { name, values, shown: true, priced: true }
}

/// Known, but not in the name.
pub(super) const fn known(name: &'static str, values: &'static [&'static str]) -> Property {
    Property { name, values, shown: false, priced: false }
}

impl Kind {
    pub(super) const fn new(
        noun: &'static str,
        gender: Gender,
        makers: &'static [&'static str],
        model: Model,
        properties: &'static [Property],
        usual_price: u32,
    ) -> Self {
        Self { noun, gender, makers, model, properties, colours: COLOURS.len(), usual_price, warranty: 0 }
    }

    pub(super) const fn plain(self) -> Self {
        Self { colours: 0, ..self }
    }

    pub(super) const fn sober(self) -> Self {
        Self { colours: SOBER_COLOURS, ..self }
    }

    pub(super) const fn warranty(self, months: i64) -> Self {
        Self { warranty: months, ..self }
    }
}
