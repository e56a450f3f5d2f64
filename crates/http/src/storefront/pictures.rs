//! A picture for every product: a drawing by what its name or category says it is, in a colour of its own.
//!
//! Drawings are SVG files in five key colours; a tint replaces each of them.

use mobimir_core::id::ProductId;

use super::assets;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Picture {
    drawing: &'static Drawing,
    tint: usize,
}

#[derive(Debug, PartialEq, Eq)]
struct Drawing {
    file: &'static str,
    svg: &'static str,
    /// What is to be seen.
    label: &'static str,
    /// Words that a name begins with or contains, in lower case.
    words: &'static [&'static str],
    categories: &'static [&'static str],
}

macro_rules! drawings {
    ($($file:literal $label:literal $words:tt $categories:tt)+) => {
        &[$(Drawing {
            file: $file,
            svg: include_str!(concat!("../../assets/pictures/", $file, ".svg")),
            label: $label,
            words: &$words,
            categories: &$categories,
        }),+]
    };
}

/// More telling words first: a case for a phone is a case. The last one stands for everything else.
static DRAWINGS: &[Drawing] = drawings! {
    "backpack" "Рюкзак" ["рюкзак"] []
    "case" "Чехол для телефона" ["чехол", "защитное стекло"] []
    "accessory" "Зарядное устройство и кабель" ["кабель", "зарядное", "внешний аккумулятор", "держатель"] ["Аксессуары"]
    "console" "Геймпад" ["геймпад", "игровая консоль", "игра ", "настольная игра"] ["Игры"]
    "laptop" "Ноутбук" ["ноутбук"] ["Ноутбуки"]
    "tablet" "Планшет" ["планшет", "электронная книга"] []
    "watch" "Умные часы" ["часы", "браслет", "ремешок"] []
    "camera" "Фотоаппарат" ["камера", "фотоаппарат", "видеорегистратор"] []
    "printer" "Принтер" ["принтер", "мфу"] []
    "router" "Роутер" ["роутер"] []
    "keyboard" "Клавиатура и мышь" ["клавиатура", "мышь"] []
    "drone" "Квадрокоптер" ["квадрокоптер"] []
    "chip" "Микросхема" ["видеокарта", "процессор", "оперативная", "карта памяти", "ssd", "жёсткий диск"] ["Электроника"]
    "lamp" "Лампа" ["лампа"] []
    "phone" "Смартфон" ["смартфон", "телефон"] ["Смартфоны"]
    "tv" "Телевизор" ["телевизор", "монитор", "проектор", "приставка"] ["Телевизоры"]
    "speaker" "Колонка" ["колонка", "саундбар", "микрофон", "проигрыватель"] []
    "headphones" "Наушники" ["наушник"] ["Аудио"]
    "kettle" "Чайник" ["чайник", "кофемашина", "блендер", "мультиварка", "утюг"] []
    "fridge" "Холодильник" ["холодильник"] []
    "vacuum" "Робот-пылесос" ["пылесос"] []
    "oven" "Микроволновая печь" ["микроволновая", "духовой"] []
    "washer" "Стиральная машина" ["стиральная", "посудомоечная"] ["Бытовая техника"]
    "bike" "Велосипед" ["велосипед", "самокат"] []
    "pan" "Сковорода" ["сковорода", "посуд"] []
    "cup" "Кружка" ["кружка"] []
    "plant" "Растение в горшке" ["горшок", "шланг"] []
    "book" "Книги" ["книга", "роман", "детектив", "фантастика"] ["Книги"]
    "toy" "Мишка" ["игрушка", "конструктор", "пазл", "коляска", "комбинезон", "детск"] ["Детские товары"]
    "home" "Кресло и растение" ["кресло", "плед", "стеллаж"] ["Дом и сад"]
    "shoe" "Кроссовок" ["кроссовки", "ботинки"] []
    "shirt" "Футболка" ["футболка", "куртка", "платье", "джинсы", "свитер"] ["Одежда"]
    "sport" "Мяч и гантель" ["мяч", "гантели"] ["Спорт"]
    "dryer" "Фен" ["фен"] []
    "beauty" "Флаконы" ["шампунь", "крем", "туалетная вода"] ["Красота и здоровье"]
    "tools" "Инструменты" ["шуруповёрт", "перфоратор", "инструмент"] ["Инструменты"]
    "car" "Автомобиль" ["автомобил", "моторное"] ["Автотовары"]
    "pet" "Кошка" ["корм", "лежанка", "когтеточка"] ["Зоотовары"]
    "box" "Коробка с товаром" [] []
};

/// Main, deep, pale, and the two ends of the background.
type Palette = [&'static str; 5];

/// The first are the key colours that the files are drawn in.
const PALETTES: [Palette; 8] = [
    ["#4a7bd8", "#2c4f9e", "#c4d8fb", "#edf3fe", "#d5e3fb"],
    ["#e0674f", "#a83f2b", "#fbd0c5", "#fef1ed", "#fbdfd7"],
    ["#2f9e83", "#1c6a57", "#b9e6da", "#ebf8f4", "#cfeee5"],
    ["#8a63d2", "#5c3d9c", "#dccdf7", "#f4effd", "#e5daf8"],
    ["#d99a2b", "#94640f", "#f8e0ad", "#fef7e6", "#faeac5"],
    ["#3d97b8", "#22647d", "#bfe3f0", "#ebf6fa", "#cfeaf3"],
    ["#cf5f8c", "#943a60", "#f7cadb", "#fdeff4", "#f9dae6"],
    ["#6b8f3f", "#456023", "#d5e5ba", "#f3f8ea", "#e1edcc"],
];

impl Picture {
    pub(super) fn of_product(id: ProductId, name: &str, category: &str) -> Self {
        let name = name.to_lowercase();
        let by_name =
            || DRAWINGS.iter().find(|drawing| drawing.words.iter().any(|word| has_word(&name, word)));
        let by_category = || DRAWINGS.iter().find(|drawing| drawing.categories.contains(&category));
        // Ids may rise with time, so all of their bytes count.
        let tint =
            id.as_bytes().iter().fold(0_usize, |sum, byte| sum.wrapping_mul(31).wrapping_add((*byte).into()));
        Self { drawing: by_name().or_else(by_category).unwrap_or(generic()), tint: tint % PALETTES.len() }
    }

    /// `place` among its like, so that neighbours differ in colour.
    pub(super) fn of_category(category: &str, place: usize) -> Self {
        let drawing =
            DRAWINGS.iter().find(|drawing| drawing.categories.contains(&category)).unwrap_or(generic());
        Self { drawing, tint: place % PALETTES.len() }
    }

    /// The drawing that stands for anything.
    pub(super) fn generic(place: usize) -> Self {
        Self { drawing: generic(), tint: place % PALETTES.len() }
    }

    pub(super) fn of_file(name: &str) -> Option<Self> {
        let (file, tint) = name.strip_suffix(".svg")?.rsplit_once('-')?;
        let drawing = DRAWINGS.iter().find(|drawing| drawing.file == file)?;
        let tint = tint.parse().ok().filter(|tint| *tint < PALETTES.len())?;
        Some(Self { drawing, tint })
    }

    pub(super) fn url(self) -> String {
        assets::url(&format!("pictures/{}-{}.svg", self.drawing.file, self.tint))
    }

    pub(super) fn label(self) -> &'static str {
        self.drawing.label
    }

    pub(super) fn draw(self) -> String {
        let keys = PALETTES[0].into_iter().zip(PALETTES[self.tint]);
        keys.fold(self.drawing.svg.to_owned(), |svg, (key, colour)| svg.replace(key, colour))
    }
}

/// What every picture is made of.
pub(super) fn drawings() -> impl Iterator<Item = &'static str> {
    let colours = PALETTES.iter().flatten().copied();
    DRAWINGS.iter().map(|drawing| drawing.svg).chain(colours)
}

fn generic() -> &'static Drawing {
    &DRAWINGS[DRAWINGS.len() - 1]
}

/// Whether a word of the name begins so.
fn has_word(name: &str, word: &str) -> bool {
    name.match_indices(word).any(|(at, _)| !name[..at].ends_with(char::is_alphanumeric))
}
