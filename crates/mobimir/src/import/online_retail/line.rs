//! One line of an invoice: what its eight columns mean, and everything that can be wrong with them.

use mobimir_core::{
    money::{Money, PRICE_MAX},
    product::QUANTITY_MAX,
    time::Timestamp,
};
use serde::Serialize;

pub(crate) const INVOICE_CHARS_MAX: usize = 40;
pub(crate) const STOCK_CODE_CHARS_MAX: usize = 40;
pub(crate) const CUSTOMER_DIGITS_MAX: usize = 20;
/// What a report quotes of a bad value.
const QUOTED_CHARS_MAX: usize = 60;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// As written, with the leading C of a cancellation.
    pub(crate) invoice: String,
    /// In upper case: clerks type the letters of a code either way.
    pub(crate) stock_code: String,
    pub(crate) description: String,
    /// Units, always positive; `kind` says which way they went.
    pub(crate) quantity: u64,
    pub(crate) kind: Kind,
    pub(crate) at: Timestamp,
    pub(crate) price: Money,
    /// The price had parts of a kopeck.
    pub(crate) rounded: bool,
    /// `None` for a guest.
    pub(crate) customer: Option<String>,
    pub(crate) country: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Sale,
    Cancellation,
    /// Units written off by hand: they left the shelf, but nobody ordered them.
    Adjustment,
}

/// A line that could not be used, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct BadLine {
    pub(crate) line: u64,
    pub(crate) reason: Reason,
    /// The value that was refused.
    pub(crate) value: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reason {
    LineTooLong,
    WrongColumns,
    BadInvoiceNo,
    BadStockCode,
    BadQuantity,
    ZeroQuantity,
    BadDate,
    DateAhead,
    BadPrice,
    NegativePrice,
    BadCustomerId,
}

/// The columns of a line as text, in the order of [`super::parse::COLUMNS`].
pub(crate) type Fields<'a> = [&'a str; 8];

impl Line {
    /// Reads the columns; a date after `now` is refused, because an order that was never placed has no history.
    pub(crate) fn read(fields: Fields<'_>, now: Timestamp) -> Result<Line, (Reason, String)> {
        let [invoice, stock_code, description, quantity, at, price, customer, country] =
            fields.map(str::trim);
        let bad = |reason: Reason, value: &str| (reason, value.chars().take(QUOTED_CHARS_MAX).collect());

        if !is_name(invoice, INVOICE_CHARS_MAX) {
            return Err(bad(Reason::BadInvoiceNo, invoice));
        }
        if !is_name(stock_code, STOCK_CODE_CHARS_MAX) {
            return Err(bad(Reason::BadStockCode, stock_code));
        }
        let signed: i64 = quantity.parse().map_err(|_| bad(Reason::BadQuantity, quantity))?;
        if signed == 0 {
            return Err(bad(Reason::ZeroQuantity, quantity));
        }
        if signed.unsigned_abs() > QUANTITY_MAX {
            return Err(bad(Reason::BadQuantity, quantity));
        }
        let time = parse_time(at).ok_or_else(|| bad(Reason::BadDate, at))?;
        if time > now {
            return Err(bad(Reason::DateAhead, at));
        }
        let (kopecks, rounded) = parse_kopecks(price).ok_or_else(|| bad(Reason::BadPrice, price))?;
        if kopecks < 0 {
            return Err(bad(Reason::NegativePrice, price));
        }
        let kind = match (invoice.starts_with(['C', 'c']), signed < 0) {
            (true, _) => Kind::Cancellation,
            (false, false) => Kind::Sale,
            (false, true) => Kind::Adjustment,
        };
        Ok(Line {
            invoice: invoice.to_owned(),
            stock_code: stock_code.to_uppercase(),
            description: description.to_owned(),
            quantity: signed.unsigned_abs(),
            kind,
            at: time,
            price: Money::from_kopecks(kopecks),
            rounded,
            customer: parse_customer(customer).ok_or_else(|| bad(Reason::BadCustomerId, customer))?,
            country: country.to_owned(),
        })
    }
}

fn is_name(text: &str, chars_max: usize) -> bool {
    !text.is_empty() && text.chars().count() <= chars_max && !text.chars().any(char::is_control)
}

/// `2010-12-01 08:26:00`, in UTC and since 1970.
fn parse_time(text: &str) -> Option<Timestamp> {
    let shape = "dddd-dd-dd dd:dd:dd";
    let fits = text.len() == shape.len()
        && text.bytes().zip(shape.bytes()).all(|(b, s)| if s == b'd' { b.is_ascii_digit() } else { b == s });
    if !fits {
        return None;
    }
    let time = Timestamp::parse(&format!("{}Z", text.replace(' ', "T"))).ok()?;
    (time >= Timestamp::from_millis(0)).then_some(time)
}

/// Kopecks, and whether they had to be rounded (half up). The sign counts only where something is left to have one.
fn parse_kopecks(text: &str) -> Option<(i128, bool)> {
    const DIGITS_MAX: usize = 30;
    let (negative, amount) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (whole, places) = amount.split_once('.').unwrap_or((amount, "0"));
    let digits =
        |part: &str| (1..=DIGITS_MAX).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(places) {
        return None;
    }
    let place = |at: usize| places.as_bytes().get(at).map_or(0, |digit| i128::from(digit - b'0'));
    let kopecks = whole.parse::<i128>().ok()? * 100 + place(0) * 10 + place(1);
    let rest_is_something = places.bytes().skip(2).any(|digit| digit != b'0');
    if negative {
        let some = kopecks > 0 || rest_is_something;
        return Some((if some { -kopecks.max(1) } else { 0 }, false));
    }
    let price = kopecks + i128::from(place(2) >= 5);
    (Money::from_kopecks(price) <= PRICE_MAX).then_some((price, rest_is_something))
}

/// `17850.0` or `17850`; nothing for a guest. The outer `None` is for what is neither.
fn parse_customer(text: &str) -> Option<Option<String>> {
    if text.is_empty() {
        return Some(None);
    }
    let number = text.split_once('.').map_or(Some(text), |(number, places)| {
        (!places.is_empty() && places.bytes().all(|b| b == b'0')).then_some(number)
    })?;
    let fits =
        (1..=CUSTOMER_DIGITS_MAX).contains(&number.len()) && number.bytes().all(|b| b.is_ascii_digit());
    fits.then(|| Some(number.to_owned()))
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::LineTooLong => "the line is too long",
            Self::WrongColumns => "expected eight columns",
            Self::BadInvoiceNo => "expected an InvoiceNo of 1 to 40 characters",
            Self::BadStockCode => "expected a StockCode of 1 to 40 characters",
            Self::BadQuantity => "expected a whole Quantity of at most 1000000",
            Self::ZeroQuantity => "the Quantity is zero",
            Self::BadDate => "expected an InvoiceDate like 2010-12-01 08:26:00",
            Self::DateAhead => "the InvoiceDate lies ahead",
            Self::BadPrice => "expected a UnitPrice like 2.55",
            Self::NegativePrice => "the UnitPrice is negative",
            Self::BadCustomerId => "expected a CustomerID like 17850",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(change: impl FnOnce(&mut Fields<'static>)) -> Result<Line, Reason> {
        let mut fields =
            ["536365", "85123a", " WHITE HEART ", "6", "2010-12-01 08:26:00", "2.55", "17850.0", "EIRE"];
        change(&mut fields);
        Line::read(fields, Timestamp::parse("2025-01-01T00:00:00Z").unwrap()).map_err(|(reason, _)| reason)
    }

    #[test]
    fn a_line_is_read_as_it_is_meant() {
        let line = read(|_| {}).unwrap();
        assert_eq!((line.stock_code.as_str(), line.description.as_str()), ("85123A", "WHITE HEART"));
        assert_eq!((line.quantity, line.kind), (6, Kind::Sale));
        assert_eq!(line.at.to_string(), "2010-12-01T08:26:00.000Z");
        assert_eq!((line.price.to_string().as_str(), line.rounded), ("2.55", false));
        assert_eq!(line.customer.as_deref(), Some("17850"));
        assert_eq!(read(|f| f[6] = "").unwrap().customer, None);
        assert_eq!(read(|f| f[6] = "17850").unwrap().customer.as_deref(), Some("17850"));
    }

    #[test]
    fn a_leading_c_cancels_and_a_lone_minus_writes_off() {
        let cancelled = read(|f| (f[0], f[3]) = ("C536365", "-6")).unwrap();
        assert_eq!((cancelled.kind, cancelled.quantity), (Kind::Cancellation, 6));
        let written_off = read(|f| f[3] = "-6").unwrap();
        assert_eq!((written_off.kind, written_off.quantity), (Kind::Adjustment, 6));
    }

    #[test]
    fn prices_are_rounded_to_kopecks_half_up() {
        let price = |text| read(|f| f[5] = text).map(|line| (line.price.to_string(), line.rounded));
        for (text, price_is, rounded) in [
            ("0", "0.00", false),
            ("0.0", "0.00", false),
            ("-0.0", "0.00", false),
            ("2.5", "2.50", false),
            ("0.001", "0.00", true),
            ("0.005", "0.01", true),
            ("1.2349", "1.23", true),
            ("1.250000", "1.25", false),
            ("9999999999.99", "9999999999.99", false),
        ] {
            assert_eq!(price(text), Ok((price_is.to_owned(), rounded)), "{text}");
        }
        for negative in ["-11062.06", "-0.001"] {
            assert_eq!(price(negative), Err(Reason::NegativePrice), "{negative}");
        }
        for bad in ["", ".", "1.", "1e3", "NaN", "2,55", "£2", "10000000000", "9999999999.995"] {
            assert_eq!(price(bad), Err(Reason::BadPrice), "{bad}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert_eq!(read(|f| f[0] = " "), Err(Reason::BadInvoiceNo));
        assert_eq!(read(|f| f[1] = ""), Err(Reason::BadStockCode));
        assert_eq!(read(|f| f[3] = "0"), Err(Reason::ZeroQuantity));
        for quantity in ["", "six", "1.5", "1000001", "99999999999999999999"] {
            assert_eq!(read(|f| f[3] = quantity), Err(Reason::BadQuantity), "{quantity}");
        }
        for date in ["", "12/1/2010 8:26", "2010-13-01 08:26:00", "2010-12-01", "1969-12-31 23:59:59"] {
            assert_eq!(read(|f| f[4] = date), Err(Reason::BadDate), "{date}");
        }
        assert_eq!(read(|f| f[4] = "2031-01-01 00:00:00"), Err(Reason::DateAhead));
        for customer in ["anna", "17850.5", "17850.", "-1", "123456789012345678901"] {
            assert_eq!(read(|f| f[6] = customer), Err(Reason::BadCustomerId), "{customer}");
        }
    }
}
