//! Numbers, money, times and words as the console writes them.

use mobimir_core::{money::Money, order::OrderStatus, time::Timestamp};

const NARROW_SPACE: char = '\u{202f}';

/// `1 234 567`.
pub(super) fn count(number: impl Into<u128>) -> String {
    grouped(&number.into().to_string())
}

fn grouped(digits: &str) -> String {
    let mut text = String::with_capacity(digits.len() * 2);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(NARROW_SPACE);
        }
        text.push(digit);
    }
    text
}

/// `12 000,00 ₽`.
pub(super) fn roubles(amount: Money) -> String {
    let text = amount.to_string();
    let (sign, digits) = text.strip_prefix('-').map_or(("", text.as_str()), |digits| ("−", digits));
    let (whole, kopecks) = digits.split_once('.').unwrap_or((digits, "00"));
    format!("{sign}{},{kopecks}\u{a0}₽", grouped(whole))
}

/// `0,42 мс`, `12 мс`, `1,5 с`.
pub(super) fn duration(seconds: f64) -> String {
    let ms = seconds * 1000.0;
    let text = if ms < 1.0 {
        format!("{ms:.2} мс")
    } else if ms < 10.0 {
        format!("{ms:.1} мс")
    } else if ms < 1000.0 {
        format!("{ms:.0} мс")
    } else {
        format!("{seconds:.1} с")
    };
    text.replace('.', ",").replace(' ', "\u{a0}")
}

/// A time that somebody set: `24 ч`, `30 мин`, `7 дн`.
pub(super) fn span(ms: i64) -> String {
    const UNITS: [(i64, &str); 4] = [(86_400_000, "дн"), (3_600_000, "ч"), (60_000, "мин"), (1_000, "с")];
    // Two days read better as days, one as hours.
    let unit = UNITS
        .into_iter()
        .find(|(unit_ms, _)| ms % unit_ms == 0 && (*unit_ms < 86_400_000 || ms >= 2 * unit_ms));
    match unit {
        Some((unit_ms, name)) if ms > 0 => format!("{}\u{a0}{name}", ms / unit_ms),
        _ => format!("{ms}\u{a0}мс"),
    }
}

/// `0`, `3,4`, `1 250`.
pub(super) fn rate(per_second: f64) -> String {
    if per_second < 0.05 {
        "0".to_owned()
    } else if per_second < 10.0 {
        format!("{per_second:.1}").replace('.', ",")
    } else {
        grouped(&format!("{per_second:.0}"))
    }
}

/// `28.11.2025 09:00:00`, in UTC.
pub(super) fn moment(at: Timestamp) -> String {
    let text = at.to_string();
    let part = |range| text.get(range).unwrap_or_default();
    format!("{}.{}.{} {}", part(8..10), part(5..7), part(0..4), part(11..19))
}

/// `09:00:00`, in UTC.
pub(super) fn time(at: Timestamp) -> String {
    at.to_string().get(11..19).unwrap_or_default().to_owned()
}

pub(super) fn status(status: OrderStatus) -> &'static str {
    match status {
        OrderStatus::Pending => "ожидает",
        OrderStatus::Confirmed => "подтверждён",
        OrderStatus::Paid => "оплачен",
        OrderStatus::Shipped => "отправлен",
        OrderStatus::Delivered => "доставлен",
        OrderStatus::Cancelled => "отменён",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        assert_eq!(count(7_u64), "7");
        assert_eq!(count(1_000_u64), "1\u{202f}000");
        assert_eq!(roubles(Money::from_kopecks(123_456_705)), "1\u{202f}234\u{202f}567,05\u{a0}₽");
        assert_eq!(rate(12_345.6), "12\u{202f}346");
    }

    #[test]
    fn durations_and_times_read_well() {
        let texts = [0.000_42, 0.0123, 1.54].map(duration);
        assert_eq!(texts, ["0,42\u{a0}мс", "12\u{a0}мс", "1,5\u{a0}с"]);
        let spans = [86_400_000, 172_800_000, 1_800_000, 1_500, 0].map(span);
        assert_eq!(spans, ["24\u{a0}ч", "2\u{a0}дн", "30\u{a0}мин", "1500\u{a0}мс", "0\u{a0}мс"]);
        assert_eq!(moment(Timestamp::from_millis(0)), "01.01.1970 00:00:00");
    }
}
