//! How the shop says prices, places, times and numbers.

use mobimir_core::{money::Money, order::OrderStatus, product::Attribute, time::Timestamp, zone::Zone};

/// Keeps the groups of a number, and a number and its unit, on one line.
const NBSP: char = '\u{a0}';
/// Moscow, where the shop is, has no summer time.
const MOSCOW_OFFSET_MS: i64 = 3 * 3_600_000;

/// `12 990 ₽`, and `12 990,50 ₽` only where there are kopecks.
pub(super) fn price(amount: Money) -> String {
    let sign = if amount.kopecks() < 0 { "−" } else { "" };
    let kopecks = amount.kopecks().unsigned_abs();
    let whole = grouped(kopecks / 100);
    match kopecks % 100 {
        0 => format!("{sign}{whole}{NBSP}₽"),
        rest => format!("{sign}{whole},{rest:02}{NBSP}₽"),
    }
}

/// `1 234 567`
pub(super) fn grouped(number: u128) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 2);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(NBSP);
        }
        text.push(digit);
    }
    text
}

/// A number and the form of the noun that goes with it: 1 товар, 2 товара, 5 товаров.
pub(super) fn counted(number: u64, forms: [&str; 3]) -> String {
    let form = match (number % 10, number % 100) {
        (_, 11..=14) => forms[2],
        (1, _) => forms[0],
        (2..=4, _) => forms[1],
        _ => forms[2],
    };
    format!("{}{NBSP}{form}", grouped(number.into()))
}

pub(super) fn goods(number: u64) -> String {
    counted(number, ["товар", "товара", "товаров"])
}

pub(super) fn pieces(number: u64) -> String {
    format!("{}{NBSP}шт.", grouped(number.into()))
}

pub(super) fn zone(zone: Zone) -> String {
    match zone.as_str() {
        "MSK" => "Москва",
        "SPB" => "Санкт-Петербург",
        "EKB" => "Екатеринбург",
        "NSK" => "Новосибирск",
        code => code,
    }
    .to_owned()
}

pub(super) fn status(status: OrderStatus) -> &'static str {
    match status {
        OrderStatus::Pending => "Принят",
        OrderStatus::Confirmed => "Подтверждён",
        OrderStatus::Paid => "Оплачен",
        OrderStatus::Shipped => "Отправлен",
        OrderStatus::Delivered => "Доставлен",
        OrderStatus::Cancelled => "Отменён",
    }
}

pub(super) fn attribute(value: &Attribute) -> String {
    match value {
        Attribute::Flag(true) => "да".to_owned(),
        Attribute::Flag(false) => "нет".to_owned(),
        Attribute::Integer(number) => number.to_string(),
        Attribute::Decimal(number) => number.to_string().replace('.', ","),
        Attribute::Text(text) => text.clone(),
    }
}

/// `28 ноября 2025, 12:05`, by the clocks of Moscow.
pub(super) fn time(at: Timestamp) -> String {
    let text = at.plus_ms(MOSCOW_OFFSET_MS).to_string();
    format!("{}, {}", date(at), text.get(11..16).unwrap_or_default())
}

/// `28 ноября 2025`, the day that it is in Moscow.
pub(super) fn date(at: Timestamp) -> String {
    let text = at.plus_ms(MOSCOW_OFFSET_MS).to_string();
    let part = |from: usize, to: usize| text.get(from..to).unwrap_or_default();
    let month = part(5, 7).parse().ok().and_then(|month: usize| MONTHS.get(month.wrapping_sub(1)));
    match (part(8, 10).parse::<u8>(), month) {
        (Ok(day), Some(month)) => format!("{day}{NBSP}{month} {}", part(0, 4)),
        _ => text,
    }
}

const MONTHS: [&str; 12] = [
    "января",
    "февраля",
    "марта",
    "апреля",
    "мая",
    "июня",
    "июля",
    "августа",
    "сентября",
    "октября",
    "ноября",
    "декабря",
];

/// An order's number as one reads it out: the beginning of its id.
pub(super) fn order_number(id: &str) -> String {
    id.chars().filter(char::is_ascii_alphanumeric).take(8).collect::<String>().to_uppercase()
}

/// The first letter in upper case.
pub(super) fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

/// What a browser calls itself, in words that its owner knows.
pub(super) fn browser(user_agent: Option<&str>) -> String {
    let Some(agent) = user_agent else { return "Неизвестное устройство".to_owned() };
    let first = |known: &[(&str, &'static str)]| {
        known.iter().find(|(mark, _)| agent.contains(mark)).map(|(_, name)| *name)
    };
    let browser = first(&[
        ("YaBrowser", "Яндекс Браузер"),
        ("Edg", "Edge"),
        ("OPR", "Opera"),
        ("Firefox", "Firefox"),
        ("Chrome", "Chrome"),
        ("Safari", "Safari"),
    ]);
    let system = first(&[
        ("Android", "Android"),
        ("iPhone", "iPhone"),
        ("iPad", "iPad"),
        ("Windows", "Windows"),
        ("Mac OS", "macOS"),
        ("Linux", "Linux"),
    ]);
    match (browser, system) {
        (Some(browser), Some(system)) => format!("{browser}, {system}"),
        (Some(known), None) | (None, Some(known)) => known.to_owned(),
        (None, None) => "Приложение".to_owned(),
    }
}
