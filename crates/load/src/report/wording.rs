//! Numbers as people read them.

/// `1,234,567`
pub(super) fn count(number: u64) -> String {
    grouped(&number.to_string())
}

/// As many places as say something: `2,000`, `1,234`, `12.3`, `0.50`.
pub(super) fn number(value: f64) -> String {
    if value.fract() == 0.0 { grouped(&format!("{value:.0}")) } else { ms_of(value) }
}

/// Microseconds as milliseconds: `0.85`, `12.3`, `250`.
pub(super) fn ms(us: u64) -> String {
    ms_of(us as f64 / 1e3)
}

pub(super) fn ms_of(ms: f64) -> String {
    let places = match ms {
        100.0.. => 0,
        10.0.. => 1,
        _ => 2,
    };
    grouped(&format!("{ms:.places$}"))
}

/// `12.3`
pub(super) fn seconds(s: f64) -> String {
    grouped(&format!("{s:.1}"))
}

/// `99.9 %`, never more than it is: 99.96 % is not all.
pub(super) fn share(share: f64) -> String {
    // What is not exact in binary must not fall a tenth.
    let tenths = (share * 1e3 + 1e-6).floor();
    format!("{:.1} %", tenths / 10.0)
}

/// `120.5 MiB`
pub(super) fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", grouped(&format!("{:.1}", bytes as f64 / f64::from(1 << 20))))
}

/// Without what a terminal or a page could take for a command.
pub(super) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\t' { '\u{fffd}' } else { c }).collect()
}

/// At most so many characters, the last of which says that there were more.
pub(super) fn shortened(text: &str, chars_max: usize) -> String {
    if text.chars().count() <= chars_max {
        return text.to_owned();
    }
    text.chars().take(chars_max.saturating_sub(1)).chain(['…']).collect()
}

pub(super) fn grouped(number: &str) -> String {
    let whole = number.find('.').unwrap_or(number.len());
    let mut grouped = String::with_capacity(number.len() + whole / 3);
    for (at, digit) in number.char_indices() {
        if at > 0 && at < whole && (whole - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_grouped_before_the_point() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([2_000.0, 1_234.4, 12.34, 0.5, 0.0].map(number), ["2,000", "1,234", "12.3", "0.50", "0"]);
        assert_eq!(seconds(3_600.04), "3,600.0");
    }

    #[test]
    fn times_have_the_places_that_matter() {
        assert_eq!([0, 849, 9_990, 12_340, 250_400].map(ms), ["0.00", "0.85", "9.99", "12.3", "250"]);
    }

    #[test]
    fn shares_are_never_rounded_up() {
        assert_eq!(
            [1.0, 0.9996, 0.999, 0.972, 0.0].map(share),
            ["100.0 %", "99.9 %", "99.9 %", "97.2 %", "0.0 %"]
        );
    }

    #[test]
    fn text_from_outside_is_tamed() {
        assert_eq!(plain("a\u{1b}[31mb\n"), "a\u{fffd}[31mb\u{fffd}");
        assert_eq!(shortened("docker kill shop", 8), "docker …");
        assert_eq!(shortened("docker", 8), "docker");
    }
}
