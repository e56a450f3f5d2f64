//! Reads a policy's TOML and remembers where everything stands, so that every error names its key and its line.
//!
//! A [`Section`] learns which keys exist by being asked for them. When it goes out of scope it reports those
//! that nobody asked for, so an unknown key can never be overlooked.

use std::{cell::RefCell, ops::RangeInclusive};

use serde::Serialize;
use thiserror::Error;
use toml::de::{DeTable, DeValue};

use super::values::Period;

const ISSUES_MAX: usize = 50;
const SHOWN_CHARS_MAX: usize = 40;

/// Everything that is wrong with a policy, in the order of the file.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("{}", .issues.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct PolicyError {
    pub issues: Vec<PolicyIssue>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PolicyIssue {
    pub file: String,
    /// Counted from 1.
    pub line: usize,
    /// The full dotted path; empty only where the file breaks off before any key.
    pub key: String,
    pub message: String,
}

impl std::fmt::Display for PolicyIssue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { file, line, key, message } = self;
        if key.is_empty() {
            write!(f, "{file}:{line}: {message}")
        } else {
            write!(f, "{file}:{line}: {key}: {message}")
        }
    }
}

/// What a key may hold.
pub(super) trait Value: Sized {
    /// Completes "expected ...".
    fn expected() -> String;

    fn read(value: &DeValue<'_>) -> Option<Self>;
}

pub(super) struct Source<'a> {
    file: &'a str,
    text: &'a str,
    issues: RefCell<Vec<PolicyIssue>>,
}

pub(super) struct Section<'a> {
    source: &'a Source<'a>,
    path: String,
    line: usize,
    table: Option<&'a DeTable<'a>>,
    known: RefCell<Vec<&'static str>>,
}

impl<'a> Source<'a> {
    pub(super) fn new(file: &'a str, text: &'a str) -> Self {
        Self { file, text, issues: RefCell::default() }
    }

    /// The document, or what keeps it from being TOML.
    pub(super) fn parse(&self) -> Result<DeTable<'a>, PolicyError> {
        let (table, errors) = DeTable::parse_recoverable(self.text);
        for error in &errors {
            let at = error.span().map_or(0, |span| span.start);
            let line = self.line_at(at);
            // One broken line often breaks several rules; the first says it best.
            if !self.issues.borrow().iter().any(|issue| issue.line == line) {
                self.fail(line, self.key_near(line), error.message().to_owned());
            }
        }
        if errors.is_empty() { Ok(table.into_inner()) } else { Err(self.error()) }
    }

    pub(super) fn section(&'a self, table: &'a DeTable<'a>) -> Section<'a> {
        Section { source: self, path: String::new(), line: 1, table: Some(table), known: RefCell::default() }
    }

    pub(super) fn finish(self) -> Result<(), PolicyError> {
        if self.issues.borrow().is_empty() { Ok(()) } else { Err(self.error()) }
    }

    fn error(&self) -> PolicyError {
        let mut issues = self.issues.take();
        issues.sort_by_key(|issue| issue.line);
        issues.truncate(ISSUES_MAX);
        PolicyError { issues }
    }

    fn fail(&self, line: usize, key: String, message: String) {
        self.issues.borrow_mut().push(PolicyIssue { file: self.file.to_owned(), line, key, message });
    }

    fn line_at(&self, offset: usize) -> usize {
        self.text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
    }

    /// The key that a broken line seems to be about.
    fn key_near(&self, line: usize) -> String {
        let mut header = "";
        let mut key = "";
        for text in self.text.lines().take(line).map(str::trim) {
            key = "";
            if let Some(name) = text.strip_prefix('[') {
                header = name.split(']').next().unwrap_or_default().trim();
            } else if !text.starts_with('#') {
                key = text.split('=').next().unwrap_or_default().trim();
            }
        }
        let parts: Vec<&str> = [header, key].into_iter().filter(|part| !part.is_empty()).collect();
        shorten(&parts.join("."))
    }
}

impl<'a> Section<'a> {
    pub(super) fn is_given(&self, key: &'static str) -> bool {
        self.find(key).is_some()
    }

    pub(super) fn given<T: Value>(&self, key: &'static str) -> Option<T> {
        let (_, value) = self.find(key)?;
        let read = T::read(value);
        if read.is_none() {
            self.fail(key, format!("expected {}, got {}", T::expected(), shown(value)));
        }
        read
    }

    pub(super) fn get<T: Value>(&self, key: &'static str, default: T) -> T {
        self.given(key).unwrap_or(default)
    }

    pub(super) fn number(&self, key: &'static str, range: RangeInclusive<u64>, default: u64) -> u64 {
        let Some((_, value)) = self.find(key) else { return default };
        match integer(value) {
            Some(number) if range.contains(&number) => number,
            _ => {
                let (min, max) = range.into_inner();
                self.fail(key, format!("expected a whole number from {min} to {max}, got {}", shown(value)));
                default
            }
        }
    }

    pub(super) fn period(&self, key: &'static str, range: RangeInclusive<Period>, default: Period) -> Period {
        let Some(period) = self.given::<Period>(key) else { return default };
        if range.contains(&period) {
            return period;
        }
        let (min, max) = range.into_inner();
        self.fail(key, format!("expected a duration from {min} to {max}, got {period}"));
        default
    }

    /// The table under a key. An absent one reads like an empty one.
    pub(super) fn section(&self, key: &'static str) -> Section<'a> {
        let found = self.find(key);
        let table = found.and_then(|(_, value)| value.as_table());
        if let (Some((_, value)), None) = (found, table) {
            self.fail(key, format!("expected a table, got {}", shown(value)));
        }
        let line = found.map_or(self.line, |(line, _)| line);
        Section { source: self.source, path: self.path_of(key), line, table, known: RefCell::default() }
    }

    /// Keys and values of a table whose keys are names that the operator chose.
    pub(super) fn names(&self) -> Vec<(String, &'a DeValue<'a>)> {
        let entries = self.table.into_iter().flat_map(|table| table.iter());
        entries.map(|(key, value)| (key.get_ref().to_string(), value.get_ref())).collect()
    }

    /// Reports what is wrong with a key: at its own line, or at its section's when it is not written there.
    pub(super) fn fail(&self, key: &str, message: String) {
        let line = self.entry(key).map_or(self.line, |(line, _)| line);
        self.source.fail(line, self.path_of(key), message);
    }

    fn find(&self, key: &'static str) -> Option<(usize, &'a DeValue<'a>)> {
        self.known.borrow_mut().push(key);
        self.entry(key)
    }

    fn entry(&self, key: &str) -> Option<(usize, &'a DeValue<'a>)> {
        let (name, value) = self.table?.iter().find(|(name, _)| name.get_ref() == key)?;
        Some((self.source.line_at(name.span().start), value.get_ref()))
    }

    fn path_of(&self, key: &str) -> String {
        let bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let key = if key.chars().all(bare) { key.to_owned() } else { format!("{:?}", shorten(key)) };
        if self.path.is_empty() { key } else { format!("{}.{key}", self.path) }
    }
}

/// A section whose keys are names is never asked for one, and has none that it could miss.
impl Drop for Section<'_> {
    fn drop(&mut self) {
        let known = self.known.take();
        if known.is_empty() {
            return;
        }
        for (name, _) in self.names() {
            if !known.contains(&name.as_str()) {
                let hint = nearest(&name, &known).map_or_else(
                    || format!("unknown key; expected one of {}", known_list(&known)),
                    |near| format!("unknown key; did you mean {near:?}?"),
                );
                self.fail(&name, hint);
            }
        }
    }
}

pub(super) fn integer(value: &DeValue<'_>) -> Option<u64> {
    let number = value.as_integer()?;
    u64::from_str_radix(number.as_str(), number.radix()).ok()
}

pub(super) fn shown(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("{:?}", shorten(text)),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(truth) => truth.to_string(),
        DeValue::Datetime(time) => time.to_string(),
        DeValue::Array(_) => "an array".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}

fn shorten(text: &str) -> String {
    text.chars().take(SHOWN_CHARS_MAX).collect()
}

fn known_list(known: &[&str]) -> String {
    let mut sorted = known.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    sorted.join(", ")
}

/// The known key that a mistyped one most likely meant: at most a third of it may differ.
fn nearest<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    let near = known.iter().map(|key| (edits(name, key), *key)).min()?;
    (near.0 <= near.1.chars().count().div_ceil(3)).then_some(near.1)
}

/// How many characters to insert, delete or replace to turn one word into the other.
fn edits(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_key_is_found_and_a_far_one_is_not() {
        let known = ["hint_window", "read_repair", "repair"];
        assert_eq!(nearest("hint_windw", &known), Some("hint_window"));
        assert_eq!(nearest("repairs", &known), Some("repair"));
        assert_eq!(nearest("colour", &known), None);
    }
}
