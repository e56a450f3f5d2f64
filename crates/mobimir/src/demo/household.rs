//! The other half of the catalogue: books, home, clothes, sport, children and the rest.

use super::goods::{Gender::*, Kind, Model::*, known, priced, shown};

const AUTHORS: &[&str] = &[
    "Анна Соколова",
    "Илья Воронов",
    "Мария Лаптева",
    "Пётр Снегирёв",
    "Ольга Дубровская",
    "Денис Карпатый",
    "Вера Полянская",
    "Артём Лесков",
    "Нина Заболотная",
    "Роман Ветров",
    "Екатерина Морозова",
    "Глеб Остапов",
    "София Ярцева",
    "Тимур Галеев",
    "Лидия Кравец",
    "Максим Стрельцов",
];
const HOME: &[&str] = &[
    "Уютный дом",
    "Берёзка",
    "Nordhaus",
    "Лён и Ко",
    "Хозяюшка",
    "Дачник",
    "Klar",
    "Ремесло",
    "Сосновый бор",
];
const WEAR: &[&str] =
    &["Северянка", "Тайга", "Nordwear", "Линия", "Вереск", "Модный край", "Ostrov", "Стрекоза", "Гранит"];
const SPORT: &[&str] = &["Вершина", "Atlet", "Старт", "Nordgo", "Темп", "Рекорд", "Ural Sport", "Маршрут"];
const CHILDREN: &[&str] =
    &["Умка", "Кроха", "Лисёнок", "Пчёлка", "Топтыжка", "Радуга", "Карусель", "Мишутка"];
const BEAUTY: &[&str] =
    &["Росинка", "Лаванда", "Belisse", "Травница", "Чистый лист", "Nordskin", "Роза ветров"];
const TOOLS: &[&str] = &["Мастер", "Кузнец", "Bergmann", "Сталь", "Уралец", "Forza", "Прораб"];
const CARS: &[&str] = &["Дорожник", "Motornik", "Трасса", "Nordcar", "Форсаж", "Авто Мир"];
const PETS: &[&str] = &["Хвостик", "Мурлыка", "Верный друг", "Лапка", "Zoo Nord", "Усы и Ко"];

const CLOTHES_SIZES: &[&str] = &["XS", "S", "M", "L", "XL", "XXL"];
const SHOE_SIZES: &[&str] = &["36", "37", "38", "39", "40", "41", "42", "43", "44", "45"];
const AGES: &[&str] = &["0+", "1+", "3+", "5+", "7+"];

pub(super) static BOOKS: &[Kind] = &[
    Kind::new(
        "Роман",
        Masculine,
        AUTHORS,
        Book,
        &[
            shown("переплёт", &["мягкая обложка", "твёрдый переплёт"]),
            known("страницы", &["256", "320", "384", "448", "512"]),
        ],
        590,
    )
    .plain(),
    Kind::new(
        "Детектив",
        Masculine,
        AUTHORS,
        Book,
        &[
            shown("переплёт", &["мягкая обложка", "твёрдый переплёт"]),
            known("страницы", &["224", "288", "352", "416"]),
        ],
        480,
    )
    .plain(),
    Kind::new(
        "Фантастика",
        Feminine,
        AUTHORS,
        Book,
        &[
            shown("переплёт", &["мягкая обложка", "твёрдый переплёт"]),
            known("страницы", &["320", "416", "512", "640"]),
        ],
        640,
    )
    .plain(),
    Kind::new(
        "Детская книга",
        Feminine,
        AUTHORS,
        Book,
        &[shown("возраст", &["0+", "3+", "6+"]), known("иллюстрации", &["чёрно-белые", "цветные"])],
        720,
    )
    .plain(),
];

pub(super) static HOME_AND_GARDEN: &[Kind] = &[
    Kind::new(
        "Комплект постельного белья",
        Masculine,
        HOME,
        Line,
        &[
            priced("размер", &["полутораспальный", "двуспальный", "евро", "семейный"]),
            known("ткань", &["бязь", "поплин", "сатин"]),
        ],
        3_100,
    ),
    Kind::new(
        "Плед",
        Masculine,
        HOME,
        Line,
        &[priced("размер", &["130×170 см", "150×200 см", "200×220 см"])],
        1_700,
    ),
    Kind::new("Настольная лампа", Feminine, HOME, Line, &[shown("цоколь", &["E14", "E27", "LED"])], 2_200)
        .warranty(12),
    Kind::new(
        "Сковорода",
        Feminine,
        HOME,
        Line,
        &[
            priced("диаметр", &["20 см", "24 см", "26 см", "28 см"]),
            known("покрытие", &["антипригарное", "керамическое", "чугун"]),
        ],
        1_800,
    ),
    Kind::new(
        "Набор посуды",
        Masculine,
        HOME,
        Line,
        &[priced("предметы", &["6 предметов", "12 предметов", "18 предметов", "24 предмета"])],
        3_900,
    ),
    Kind::new(
        "Кресло офисное",
        Neuter,
        HOME,
        Line,
        &[known("нагрузка", &["100 кг", "120 кг", "150 кг"])],
        9_900,
    )
    .warranty(12),
    Kind::new(
        "Стеллаж",
        Masculine,
        HOME,
        Line,
        &[priced("полки", &["3 полки", "4 полки", "5 полок"])],
        4_300,
    ),
    Kind::new(
        "Шланг садовый",
        Masculine,
        HOME,
        Line,
        &[priced("длина", &["15 м", "20 м", "25 м", "50 м"])],
        1_600,
    ),
    Kind::new(
        "Горшок для цветов",
        Masculine,
        HOME,
        Line,
        &[priced("объём", &["1 л", "3 л", "5 л", "10 л"])],
        450,
    ),
    Kind::new("Кружка", Feminine, HOME, Line, &[shown("объём", &["250 мл", "330 мл", "450 мл"])], 390),
];

pub(super) static CLOTHES: &[Kind] = &[
    Kind::new(
        "Футболка мужская",
        Feminine,
        WEAR,
        Line,
        &[shown("размер", CLOTHES_SIZES), known("состав", &["хлопок 100 %", "хлопок 95 %, эластан 5 %"])],
        1_200,
    ),
    Kind::new(
        "Платье",
        Neuter,
        WEAR,
        Line,
        &[shown("размер", CLOTHES_SIZES), known("состав", &["вискоза", "хлопок", "лён"])],
        3_400,
    ),
    Kind::new(
        "Джинсы",
        Plural,
        WEAR,
        Line,
        &[
            shown("размер", &["28", "30", "32", "34", "36", "38"]),
            known("посадка", &["низкая", "средняя", "высокая"]),
        ],
        3_600,
    ),
    Kind::new(
        "Куртка",
        Feminine,
        WEAR,
        Line,
        &[shown("размер", CLOTHES_SIZES), known("сезон", &["осень", "зима", "весна"])],
        7_900,
    ),
    Kind::new(
        "Пуховик женский",
        Masculine,
        WEAR,
        Line,
        &[shown("размер", CLOTHES_SIZES), known("наполнитель", &["пух", "синтепух"])],
        11_500,
    ),
    Kind::new(
        "Кроссовки",
        Plural,
        WEAR,
        Line,
        &[shown("размер", SHOE_SIZES), known("материал", &["кожа", "текстиль", "замша"])],
        5_200,
    ),
    Kind::new(
        "Свитер",
        Masculine,
        WEAR,
        Line,
        &[shown("размер", CLOTHES_SIZES), known("состав", &["шерсть", "акрил", "хлопок"])],
        2_900,
    ),
    Kind::new("Шапка", Feminine, WEAR, Line, &[known("состав", &["шерсть", "акрил", "флис"])], 1_100),
];

pub(super) static SPORTS: &[Kind] = &[
    Kind::new(
        "Велосипед",
        Masculine,
        SPORT,
        Code,
        &[shown("колёса", &["24\"", "26\"", "27.5\"", "29\""]), known("скорости", &["7", "18", "21", "24"])],
        26_000,
    )
    .warranty(12),
    Kind::new(
        "Гантели",
        Plural,
        SPORT,
        Line,
        &[priced("вес", &["2 × 1 кг", "2 × 2 кг", "2 × 5 кг", "2 × 10 кг"])],
        1_400,
    )
    .plain(),
    Kind::new(
        "Коврик для йоги",
        Masculine,
        SPORT,
        Line,
        &[shown("толщина", &["4 мм", "6 мм", "8 мм"])],
        1_500,
    ),
    Kind::new(
        "Палатка",
        Feminine,
        SPORT,
        Series,
        &[priced("места", &["2-местная", "3-местная", "4-местная"])],
        8_300,
    )
    .warranty(12),
    Kind::new(
        "Спальный мешок",
        Masculine,
        SPORT,
        Series,
        &[priced("температура", &["до +10 °C", "до 0 °C", "до −10 °C"])],
        4_200,
    ),
    Kind::new(
        "Лыжи беговые",
        Plural,
        SPORT,
        Code,
        &[shown("длина", &["170 см", "180 см", "190 см", "200 см"])],
        6_700,
    ),
    Kind::new("Мяч футбольный", Masculine, SPORT, Line, &[shown("размер", &["3", "4", "5"])], 1_600),
    Kind::new(
        "Рюкзак туристический",
        Masculine,
        SPORT,
        Series,
        &[priced("объём", &["30 л", "45 л", "60 л", "80 л"])],
        5_300,
    ),
];

pub(super) static CHILDRENS: &[Kind] = &[
    Kind::new(
        "Конструктор",
        Masculine,
        CHILDREN,
        Line,
        &[
            priced("детали", &["60 деталей", "150 деталей", "300 деталей", "650 деталей"]),
            known("возраст", AGES),
        ],
        1_700,
    )
    .plain(),
    Kind::new(
        "Мягкая игрушка",
        Feminine,
        CHILDREN,
        Line,
        &[priced("высота", &["20 см", "30 см", "45 см", "70 см"]), known("возраст", AGES)],
        1_100,
    ),
    Kind::new(
        "Коляска",
        Feminine,
        CHILDREN,
        Line,
        &[shown("тип", &["прогулочная", "2 в 1", "3 в 1"])],
        21_000,
    )
    .warranty(12),
    Kind::new("Самокат детский", Masculine, CHILDREN, Line, &[known("возраст", &["3+", "5+", "7+"])], 3_200)
        .warranty(6),
    Kind::new(
        "Пазл",
        Masculine,
        CHILDREN,
        Line,
        &[priced("элементы", &["60 элементов", "120 элементов", "500 элементов", "1000 элементов"])],
        520,
    )
    .plain(),
    Kind::new(
        "Детский комбинезон",
        Masculine,
        CHILDREN,
        Line,
        &[shown("рост", &["74 см", "86 см", "98 см", "110 см"])],
        2_800,
    ),
];

pub(super) static BEAUTY_AND_HEALTH: &[Kind] = &[
    Kind::new(
        "Фен",
        Masculine,
        BEAUTY,
        Code,
        &[shown("мощность", &["1200 Вт", "1600 Вт", "2000 Вт"])],
        2_400,
    )
    .warranty(12),
    Kind::new(
        "Электрическая зубная щётка",
        Feminine,
        BEAUTY,
        Code,
        &[known("режимы", &["1", "3", "5"])],
        3_300,
    )
    .warranty(12),
    Kind::new("Шампунь", Masculine, BEAUTY, Line, &[priced("объём", &["250 мл", "400 мл", "750 мл"])], 390)
        .plain(),
    Kind::new(
        "Крем для рук",
        Masculine,
        BEAUTY,
        Line,
        &[priced("объём", &["50 мл", "75 мл", "150 мл"])],
        250,
    )
    .plain(),
    Kind::new(
        "Туалетная вода",
        Feminine,
        BEAUTY,
        Line,
        &[priced("объём", &["30 мл", "50 мл", "100 мл"])],
        2_900,
    )
    .plain(),
];

pub(super) static TOOLS_AND_REPAIR: &[Kind] = &[
    Kind::new(
        "Шуруповёрт",
        Masculine,
        TOOLS,
        Code,
        &[priced("напряжение", &["12 В", "16 В", "18 В", "20 В"])],
        5_300,
    )
    .plain()
    .warranty(24),
    Kind::new(
        "Перфоратор",
        Masculine,
        TOOLS,
        Code,
        &[priced("мощность", &["650 Вт", "800 Вт", "1100 Вт", "1500 Вт"])],
        7_800,
    )
    .plain()
    .warranty(24),
    Kind::new(
        "Набор инструментов",
        Masculine,
        TOOLS,
        Line,
        &[priced("предметы", &["38 предметов", "82 предмета", "108 предметов", "216 предметов"])],
        4_600,
    )
    .plain(),
    Kind::new(
        "Лестница-стремянка",
        Feminine,
        TOOLS,
        Line,
        &[priced("ступени", &["3 ступени", "5 ступеней", "7 ступеней"])],
        3_700,
    )
    .plain(),
];

pub(super) static CAR_GOODS: &[Kind] = &[
    Kind::new("Видеорегистратор", Masculine, CARS, Code, &[shown("видео", &["Full HD", "2K", "4K"])], 5_600)
        .plain()
        .warranty(12),
    Kind::new(
        "Автомобильный компрессор",
        Masculine,
        CARS,
        Code,
        &[shown("подача", &["30 л/мин", "40 л/мин", "60 л/мин"])],
        2_700,
    )
    .plain()
    .warranty(12),
    Kind::new(
        "Моторное масло",
        Neuter,
        CARS,
        Line,
        &[shown("вязкость", &["5W-30", "5W-40", "10W-40"]), priced("объём", &["1 л", "4 л", "5 л"])],
        1_500,
    )
    .plain(),
    Kind::new(
        "Коврики автомобильные",
        Plural,
        CARS,
        Line,
        &[shown("материал", &["резина", "EVA", "ворс"])],
        2_900,
    ),
];

pub(super) static PET_GOODS: &[Kind] = &[
    Kind::new(
        "Сухой корм для кошек",
        Masculine,
        PETS,
        Line,
        &[
            priced("вес", &["0.4 кг", "1.5 кг", "3 кг", "10 кг"]),
            known("вкус", &["курица", "лосось", "индейка"]),
        ],
        790,
    )
    .plain(),
    Kind::new(
        "Сухой корм для собак",
        Masculine,
        PETS,
        Line,
        &[
            priced("вес", &["1 кг", "3 кг", "10 кг", "15 кг"]),
            known("вкус", &["говядина", "ягнёнок", "курица"]),
        ],
        1_100,
    )
    .plain(),
    Kind::new("Лежанка", Feminine, PETS, Line, &[priced("размер", &["S", "M", "L", "XL"])], 1_400),
    Kind::new("Когтеточка", Feminine, PETS, Line, &[shown("высота", &["45 см", "70 см", "120 см"])], 2_300),
];
