//! The rest of the technical half: phones, computers, appliances, sound, accessories and games.

use super::{
    electronics::{GUARANTEED, TECH},
    goods::{Gender::*, Kind, Model::*, known, priced, shown},
};

const HOME_TECH: &[&str] =
    &["Веста", "Ладога", "Nordhaus", "Arktika", "Tekna Home", "Урал Быт", "Klar", "Bergen", "Заря", "Домна"];
const SOUND: &[&str] =
    &["Sonora", "Акустика", "Tonika", "Basso", "Nordton", "Соната", "Octava", "Reverb", "Форте"];

pub(super) static PHONES: &[Kind] = &[
    Kind::new(
        "Смартфон",
        Masculine,
        TECH,
        Series,
        &[
            priced("память", &["4/64 ГБ", "6/128 ГБ", "8/128 ГБ", "8/256 ГБ", "12/256 ГБ", "12/512 ГБ"]),
            known("диагональ", &["6.1\"", "6.4\"", "6.56\"", "6.67\"", "6.78\""]),
            known("аккумулятор", &["4500 мА·ч", "5000 мА·ч", "5500 мА·ч", "6000 мА·ч"]),
            known("связь", &["LTE", "5G"]),
        ],
        19_000,
    )
    .warranty(GUARANTEED),
    Kind::new(
        "Смартфон",
        Masculine,
        &["Aurion", "Quasar", "Orbita"],
        Code,
        &[
            priced("память", &["128 ГБ", "256 ГБ", "512 ГБ", "1 ТБ"]),
            known("диагональ", &["6.3\"", "6.7\"", "6.9\""]),
            known("связь", &["5G"]),
        ],
        64_000,
    )
    .warranty(GUARANTEED),
    Kind::new("Кнопочный телефон", Masculine, TECH, Code, &[known("SIM-карты", &["1", "2"])], 1_900)
        .warranty(GUARANTEED),
];

pub(super) static LAPTOPS: &[Kind] = &[
    Kind::new(
        "Ноутбук",
        Masculine,
        TECH,
        Series,
        &[
            shown("диагональ", &["14\"", "15.6\"", "16\"", "17.3\""]),
            priced("память", &["8 ГБ", "16 ГБ", "32 ГБ"]),
            priced("накопитель", &["SSD 256 ГБ", "SSD 512 ГБ", "SSD 1 ТБ"]),
            known("система", &["без системы", "Linux"]),
        ],
        38_000,
    )
    .sober()
    .warranty(GUARANTEED),
    Kind::new(
        "Игровой ноутбук",
        Masculine,
        &["Hexa", "Molnia", "Quasar", "Zorin"],
        Code,
        &[
            shown("диагональ", &["15.6\"", "16\"", "18\""]),
            priced("память", &["16 ГБ", "32 ГБ", "64 ГБ"]),
            known("частота экрана", &["144 Гц", "165 Гц", "240 Гц"]),
        ],
        98_000,
    )
    .sober()
    .warranty(GUARANTEED),
];

pub(super) static TELEVISIONS: &[Kind] = &[
    Kind::new(
        "Телевизор",
        Masculine,
        TECH,
        Code,
        &[
            priced("диагональ", &["32\"", "43\"", "50\"", "55\"", "65\"", "75\"", "85\""]),
            shown("разрешение", &["Full HD", "4K"]),
            known("матрица", &["LED", "QLED", "OLED"]),
        ],
        27_000,
    )
    .sober()
    .warranty(GUARANTEED),
    Kind::new(
        "Телевизионная приставка",
        Feminine,
        TECH,
        Series,
        &[shown("видео", &["Full HD", "4K"])],
        3_700,
    )
    .plain()
    .warranty(GUARANTEED),
];

pub(super) static APPLIANCES: &[Kind] = &[
    Kind::new(
        "Холодильник",
        Masculine,
        HOME_TECH,
        Code,
        &[
            priced("объём", &["240 л", "310 л", "360 л", "420 л", "560 л"]),
            known("разморозка", &["капельная", "No Frost"]),
        ],
        39_000,
    )
    .sober()
    .warranty(36),
    Kind::new(
        "Стиральная машина",
        Feminine,
        HOME_TECH,
        Code,
        &[
            priced("загрузка", &["5 кг", "6 кг", "7 кг", "8 кг", "10 кг"]),
            known("отжим", &["1000 об/мин", "1200 об/мин", "1400 об/мин"]),
        ],
        27_000,
    )
    .sober()
    .warranty(24),
    Kind::new(
        "Робот-пылесос",
        Masculine,
        HOME_TECH,
        Series,
        &[known("уборка", &["сухая", "сухая и влажная"])],
        18_500,
    )
    .sober()
    .warranty(GUARANTEED),
    Kind::new(
        "Пылесос",
        Masculine,
        HOME_TECH,
        Code,
        &[shown("мощность", &["1600 Вт", "1800 Вт", "2000 Вт", "2200 Вт"])],
        8_400,
    )
    .sober()
    .warranty(GUARANTEED),
    Kind::new(
        "Чайник электрический",
        Masculine,
        HOME_TECH,
        Code,
        &[priced("объём", &["1 л", "1.5 л", "1.7 л", "2 л"])],
        1_900,
    )
    .warranty(GUARANTEED),
    Kind::new(
        "Микроволновая печь",
        Feminine,
        HOME_TECH,
        Code,
        &[priced("объём", &["17 л", "20 л", "23 л", "28 л"])],
        6_200,
    )
    .sober()
    .warranty(GUARANTEED),
    Kind::new("Кофемашина", Feminine, HOME_TECH, Series, &[known("давление", &["15 бар", "19 бар"])], 36_000)
        .sober()
        .warranty(24),
    Kind::new(
        "Мультиварка",
        Feminine,
        HOME_TECH,
        Code,
        &[priced("объём", &["3 л", "4 л", "5 л", "6 л"])],
        4_900,
    )
    .warranty(GUARANTEED),
    Kind::new(
        "Утюг",
        Masculine,
        HOME_TECH,
        Code,
        &[shown("мощность", &["2000 Вт", "2400 Вт", "2800 Вт"])],
        2_700,
    )
    .warranty(GUARANTEED),
    Kind::new(
        "Блендер",
        Masculine,
        HOME_TECH,
        Series,
        &[shown("мощность", &["600 Вт", "800 Вт", "1000 Вт"])],
        3_300,
    )
    .warranty(GUARANTEED),
    Kind::new(
        "Посудомоечная машина",
        Feminine,
        HOME_TECH,
        Code,
        &[shown("ширина", &["45 см", "60 см"])],
        31_000,
    )
    .sober()
    .warranty(24),
];

pub(super) static AUDIO: &[Kind] = &[
    Kind::new(
        "Беспроводные наушники",
        Plural,
        SOUND,
        Series,
        &[
            known("шумоподавление", &["нет", "активное"]),
            known("работа без зарядки", &["5 ч", "8 ч", "30 ч", "50 ч"]),
        ],
        5_400,
    )
    .warranty(GUARANTEED),
    Kind::new(
        "Наушники",
        Plural,
        SOUND,
        Code,
        &[shown("тип", &["накладные", "полноразмерные", "вставные"])],
        2_600,
    )
    .warranty(GUARANTEED),
    Kind::new(
        "Портативная колонка",
        Feminine,
        SOUND,
        Series,
        &[priced("мощность", &["5 Вт", "10 Вт", "20 Вт", "40 Вт", "80 Вт"])],
        4_100,
    )
    .warranty(GUARANTEED),
    Kind::new("Саундбар", Masculine, SOUND, Code, &[shown("каналы", &["2.0", "2.1", "3.1", "5.1"])], 14_500)
        .sober()
        .warranty(GUARANTEED),
    Kind::new("Микрофон", Masculine, SOUND, Code, &[shown("подключение", &["USB", "XLR"])], 5_800)
        .sober()
        .warranty(GUARANTEED),
    Kind::new(
        "Проигрыватель винила",
        Masculine,
        SOUND,
        Code,
        &[known("привод", &["ременный", "прямой"])],
        19_500,
    )
    .sober()
    .warranty(24),
];

pub(super) static ACCESSORIES: &[Kind] = &[
    Kind::new(
        "Чехол для смартфона",
        Masculine,
        TECH,
        Series,
        &[shown("материал", &["силикон", "экокожа", "пластик"])],
        790,
    ),
    Kind::new(
        "Защитное стекло",
        Neuter,
        TECH,
        Series,
        &[shown("диагональ", &["6.1\"", "6.4\"", "6.56\"", "6.67\"", "6.78\""])],
        490,
    )
    .plain(),
    Kind::new(
        "Кабель USB-C",
        Masculine,
        TECH,
        Code,
        &[priced("длина", &["0.5 м", "1 м", "1.5 м", "2 м", "3 м"])],
        420,
    )
    .warranty(6),
    Kind::new(
        "Зарядное устройство",
        Neuter,
        TECH,
        Code,
        &[priced("мощность", &["20 Вт", "33 Вт", "45 Вт", "65 Вт", "100 Вт"])],
        1_300,
    )
    .warranty(GUARANTEED),
    Kind::new(
        "Внешний аккумулятор",
        Masculine,
        TECH,
        Series,
        &[priced("ёмкость", &["5000 мА·ч", "10000 мА·ч", "20000 мА·ч", "30000 мА·ч"])],
        1_700,
    )
    .warranty(GUARANTEED),
    Kind::new(
        "Ремешок для часов",
        Masculine,
        TECH,
        Series,
        &[shown("ширина", &["18 мм", "20 мм", "22 мм"])],
        690,
    ),
    Kind::new(
        "Рюкзак для ноутбука",
        Masculine,
        TECH,
        Series,
        &[shown("диагональ", &["14\"", "15.6\"", "17.3\""])],
        3_200,
    ),
    Kind::new(
        "Держатель для телефона",
        Masculine,
        TECH,
        Code,
        &[shown("крепление", &["на стол", "в автомобиль", "на руль"])],
        850,
    )
    .sober(),
];

pub(super) static GAMES: &[Kind] = &[
    Kind::new(
        "Игра",
        Feminine,
        &["Сова Геймс", "Hexa Play", "Polar Studio", "Искра", "Ночной экспресс"],
        Title,
        &[
            shown("платформа", &["для ПК", "для консоли Hexa", "для консоли Orbita"]),
            known("возраст", &["6+", "12+", "16+", "18+"]),
        ],
        2_900,
    )
    .plain(),
    Kind::new(
        "Игровая консоль",
        Feminine,
        &["Hexa", "Orbita", "Quasar"],
        Series,
        &[priced("накопитель", &["512 ГБ", "1 ТБ", "2 ТБ"])],
        42_000,
    )
    .sober()
    .warranty(GUARANTEED),
    Kind::new(
        "Геймпад",
        Masculine,
        &["Hexa", "Orbita", "Quasar", "Molnia"],
        Series,
        &[shown("подключение", &["проводной", "беспроводной"])],
        3_900,
    )
    .warranty(GUARANTEED),
    Kind::new(
        "Настольная игра",
        Feminine,
        &["Сова Геймс", "Дом игр", "Лис и Ко", "Ферзь"],
        Title,
        &[known("игроки", &["2", "2–4", "3–6", "4–10"]), known("возраст", &["6+", "8+", "12+", "16+"])],
        1_900,
    )
    .plain(),
];
