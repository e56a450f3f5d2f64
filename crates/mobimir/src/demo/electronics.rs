//! The largest category, and the makers of everything technical.

use super::goods::{Gender::*, Kind, Model::*, known, priced, shown};

pub(super) const TECH: &[&str] = &[
    "Aurion",
    "Vektor",
    "Северин",
    "Nordex",
    "Lumica",
    "Quasar",
    "Tekna",
    "Orbita",
    "Hexa",
    "Zorin",
    "Molnia",
    "Karat",
    "Полюс",
    "Сигнал",
    "Датум",
];

/// Months.
pub(super) const GUARANTEED: i64 = 12;

pub(super) static ELECTRONICS: &[Kind] = &[
    Kind::new(
        "Планшет",
        Masculine,
        TECH,
        Series,
        &[
            priced("память", &["64 ГБ", "128 ГБ", "256 ГБ", "512 ГБ"]),
            known("диагональ", &["8.7\"", "10.1\"", "10.9\"", "11\"", "12.4\""]),
            shown("связь", &["Wi-Fi", "Wi-Fi + LTE"]),
        ],
        21_000,
    )
    .warranty(GUARANTEED),
    Kind::new(
        "Умные часы",
        Plural,
        TECH,
        Series,
        &[
            shown("корпус", &["40 мм", "42 мм", "44 мм", "46 мм"]),
            known("защита от воды", &["IP68", "5 ATM", "10 ATM"]),
        ],
        9_500,
    )
    .warranty(GUARANTEED),
    Kind::new(
        "Фитнес-браслет",
        Masculine,
        TECH,
        Series,
        &[known("работа без зарядки", &["7 дней", "14 дней", "21 день"])],
        2_900,
    )
    .warranty(GUARANTEED),
    Kind::new(
        "Монитор",
        Masculine,
        TECH,
        Code,
        &[
            priced("диагональ", &["21.5\"", "23.8\"", "27\"", "31.5\"", "34\""]),
            shown("разрешение", &["1920×1080", "2560×1440", "3840×2160"]),
            known("частота", &["60 Гц", "75 Гц", "100 Гц", "144 Гц", "165 Гц"]),
        ],
        14_000,
    )
    .sober()
    .warranty(24),
    Kind::new(
        "Роутер",
        Masculine,
        TECH,
        Code,
        &[
            priced("стандарт", &["Wi-Fi 5", "Wi-Fi 6", "Wi-Fi 6E", "Wi-Fi 7"]),
            known("порты", &["4 × 1 Гбит/с", "4 × 2.5 Гбит/с", "8 × 1 Гбит/с"]),
        ],
        3_600,
    )
    .sober()
    .warranty(24),
    Kind::new(
        "Внешний SSD",
        Masculine,
        TECH,
        Series,
        &[
            priced("объём", &["500 ГБ", "1 ТБ", "2 ТБ", "4 ТБ"]),
            known("интерфейс", &["USB 3.2 Gen 1", "USB 3.2 Gen 2", "USB4"]),
        ],
        6_800,
    )
    .sober()
    .warranty(36),
    Kind::new(
        "Жёсткий диск",
        Masculine,
        TECH,
        Code,
        &[
            priced("объём", &["1 ТБ", "2 ТБ", "4 ТБ", "8 ТБ", "12 ТБ"]),
            known("скорость вращения", &["5400 об/мин", "7200 об/мин"]),
        ],
        6_500,
    )
    .plain()
    .warranty(24),
    Kind::new(
        "Карта памяти microSD",
        Feminine,
        TECH,
        Series,
        &[priced("объём", &["32 ГБ", "64 ГБ", "128 ГБ", "256 ГБ", "512 ГБ"])],
        780,
    )
    .plain()
    .warranty(60),
    Kind::new(
        "Видеокарта",
        Feminine,
        TECH,
        Code,
        &[
            priced("память", &["6 ГБ", "8 ГБ", "12 ГБ", "16 ГБ", "24 ГБ"]),
            known("длина", &["200 мм", "240 мм", "300 мм", "330 мм"]),
        ],
        32_000,
    )
    .plain()
    .warranty(36),
    Kind::new(
        "Процессор",
        Masculine,
        TECH,
        Code,
        &[
            priced("ядра", &["4 ядра", "6 ядер", "8 ядер", "12 ядер", "16 ядер"]),
            known("комплект", &["OEM", "BOX"]),
        ],
        13_500,
    )
    .plain()
    .warranty(36),
    Kind::new(
        "Оперативная память",
        Feminine,
        TECH,
        Code,
        &[
            priced("объём", &["8 ГБ", "16 ГБ", "32 ГБ", "64 ГБ"]),
            shown("тип", &["DDR4-3200", "DDR5-5600", "DDR5-6000"]),
        ],
        3_400,
    )
    .plain()
    .warranty(60),
    Kind::new(
        "Лазерный принтер",
        Masculine,
        TECH,
        Code,
        &[
            shown("печать", &["чёрно-белая печать", "цветная печать"]),
            known("скорость", &["18 стр/мин", "22 стр/мин", "30 стр/мин"]),
        ],
        15_500,
    )
    .plain()
    .warranty(GUARANTEED),
    Kind::new("МФУ струйное", Neuter, TECH, Code, &[shown("подключение", &["USB", "Wi-Fi"])], 9_800)
        .sober()
        .warranty(GUARANTEED),
    Kind::new(
        "Веб-камера",
        Feminine,
        TECH,
        Code,
        &[priced("разрешение", &["720p", "1080p", "2K", "4K"])],
        2_600,
    )
    .plain()
    .warranty(GUARANTEED),
    Kind::new(
        "Экшн-камера",
        Feminine,
        TECH,
        Series,
        &[priced("видео", &["1080p", "2.7K", "4K", "5.3K"])],
        14_500,
    )
    .warranty(GUARANTEED),
    Kind::new(
        "Фотоаппарат",
        Masculine,
        TECH,
        Code,
        &[
            priced("матрица", &["20 Мп", "24 Мп", "33 Мп", "45 Мп"]),
            known("объектив", &["без объектива", "15–45 мм", "24–105 мм"]),
        ],
        62_000,
    )
    .sober()
    .warranty(24),
    Kind::new(
        "Электронная книга",
        Feminine,
        TECH,
        Series,
        &[priced("экран", &["6\"", "7\"", "7.8\"", "10.3\""]), known("память", &["16 ГБ", "32 ГБ", "64 ГБ"])],
        11_500,
    )
    .sober()
    .warranty(GUARANTEED),
    Kind::new(
        "Проектор",
        Masculine,
        TECH,
        Series,
        &[priced("яркость", &["300 лм", "800 лм", "2000 лм", "3500 лм"])],
        24_000,
    )
    .sober()
    .warranty(GUARANTEED),
    Kind::new(
        "Квадрокоптер",
        Masculine,
        TECH,
        Series,
        &[
            priced("дальность", &["100 м", "2 км", "6 км", "10 км"]),
            known("время полёта", &["12 мин", "25 мин", "31 мин", "40 мин"]),
        ],
        23_000,
    )
    .sober()
    .warranty(GUARANTEED),
    Kind::new(
        "Умная лампа",
        Feminine,
        TECH,
        Series,
        &[shown("цоколь", &["E14", "E27", "GU10"]), known("мощность", &["6 Вт", "9 Вт", "12 Вт"])],
        890,
    )
    .plain()
    .warranty(GUARANTEED),
    Kind::new(
        "Камера видеонаблюдения",
        Feminine,
        TECH,
        Code,
        &[shown("место", &["для дома", "уличная"]), priced("разрешение", &["2 Мп", "3 Мп", "5 Мп", "8 Мп"])],
        3_100,
    )
    .plain()
    .warranty(GUARANTEED),
    Kind::new(
        "Клавиатура",
        Feminine,
        TECH,
        Series,
        &[
            shown("тип", &["мембранная", "механическая", "беспроводная"]),
            known("подсветка", &["нет", "белая", "RGB"]),
        ],
        3_300,
    )
    .warranty(GUARANTEED),
    Kind::new(
        "Мышь",
        Feminine,
        TECH,
        Series,
        &[
            shown("тип", &["проводная", "беспроводная", "игровая"]),
            known("разрешение", &["1600 dpi", "4000 dpi", "16000 dpi"]),
        ],
        1_500,
    )
    .warranty(GUARANTEED),
];
