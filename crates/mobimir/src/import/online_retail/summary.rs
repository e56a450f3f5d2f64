//! What an import did, for people and for programs.

use std::{collections::BTreeMap, fmt};

use mobimir_core::money::Money;
use serde::Serialize;

use super::{
    line::{BadLine, Kind, Line, Reason},
    orders::Counts,
};

/// Bad lines that are named one by one; all are counted.
pub(crate) const BAD_LINES_NAMED_MAX: usize = 20;

#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Summary {
    /// Lines after the header that are not blank.
    pub(crate) lines: u64,
    pub(crate) invoices: u64,
    pub(crate) products: Written,
    pub(crate) users: Written,
    pub(crate) orders: Written,
    pub(crate) orders_cancelled: u64,
    pub(crate) orders_of_guests: u64,
    pub(crate) invoices_split: u64,
    pub(crate) adjustments: Adjustments,
    pub(crate) notes: Notes,
    pub(crate) bad_lines: BadLines,
    pub(crate) seconds: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Written {
    pub(crate) in_file: u64,
    /// The others had been imported before.
    pub(crate) new: u64,
}

/// Negative quantities outside a cancellation: stock that was written off. They make no order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Adjustments {
    pub(crate) lines: u64,
    pub(crate) units: u64,
}

/// What was imported, but not exactly as it stood there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Notes {
    pub(crate) prices_rounded: u64,
    pub(crate) prices_zero: u64,
    pub(crate) fields_recoded: u64,
    pub(crate) lines_joined: u64,
    pub(crate) lines_repriced: u64,
    /// Kopecks of the invoices that their orders lack (or, if negative, have too much) because of it.
    pub(crate) lines_repriced_kopecks: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct BadLines {
    pub(crate) total: u64,
    pub(crate) by_reason: BTreeMap<Reason, u64>,
    pub(crate) first: Vec<BadLine>,
}

impl Summary {
    pub(crate) fn count(&mut self, line: &Line) {
        self.lines += 1;
        self.notes.prices_rounded += u64::from(line.rounded);
        if line.kind == Kind::Adjustment {
            self.adjustments.lines += 1;
            self.adjustments.units += line.quantity;
        } else {
            self.notes.prices_zero += u64::from(line.price == Money::ZERO);
        }
    }

    pub(crate) fn count_bad(&mut self, line: BadLine) {
        self.lines += 1;
        self.bad_lines.total += 1;
        *self.bad_lines.by_reason.entry(line.reason).or_default() += 1;
        if self.bad_lines.first.len() < BAD_LINES_NAMED_MAX {
            self.bad_lines.first.push(line);
        }
    }

    pub(crate) fn count_orders(&mut self, counts: Counts) {
        self.orders.in_file = counts.orders;
        self.orders_cancelled = counts.cancelled;
        self.orders_of_guests = counts.of_guests;
        self.invoices_split = counts.split;
        self.notes.lines_joined = counts.joined;
        self.notes.lines_repriced = counts.repriced;
        self.notes.lines_repriced_kopecks = i64::try_from(counts.repriced_kopecks).unwrap_or(i64::MAX);
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} lines of {} invoices in {:.1} s", self.lines, self.invoices, self.seconds)?;
        for (what, written) in [("products", self.products), ("users", self.users), ("orders", self.orders)] {
            writeln!(f, "  {what:<12} {:>8}, {} of them new", written.in_file, written.new)?;
        }
        writeln!(f, "    cancelled  {:>8}", self.orders_cancelled)?;
        writeln!(f, "    of guests  {:>8}", self.orders_of_guests)?;
        if self.invoices_split > 0 {
            writeln!(
                f,
                "    {} invoices are too long for one order and became several",
                self.invoices_split
            )?;
        }
        let Adjustments { lines, units } = self.adjustments;
        writeln!(f, "  adjustments  {lines:>8} lines, {units} units written off: no orders, not imported")?;
        self.notes.fmt(f)?;
        self.bad_lines.fmt(f)
    }
}

impl fmt::Display for Notes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let off = Money::from_kopecks(i128::from(self.lines_repriced_kopecks));
        for (count, what) in [
            (self.prices_rounded, "prices rounded to kopecks".to_owned()),
            (self.prices_zero, "order lines without a price".to_owned()),
            (self.fields_recoded, "fields read as Latin-1".to_owned()),
            (self.lines_joined, "lines joined with an earlier one of the same product".to_owned()),
            (
                self.lines_repriced,
                format!("of these took the earlier one's price (invoices less orders: {off})"),
            ),
        ] {
            if count > 0 {
                writeln!(f, "  note         {count:>8} {what}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for BadLines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  bad lines    {:>8}", self.total)?;
        for (reason, count) in &self.by_reason {
            writeln!(f, "               {count:>8} {reason}")?;
        }
        for BadLine { line, reason, value } in &self.first {
            writeln!(f, "    line {line}: {reason}, got {value:?}")?;
        }
        if self.total > self.first.len() as u64 {
            writeln!(f, "    and {} more", self.total - self.first.len() as u64)?;
        }
        Ok(())
    }
}
