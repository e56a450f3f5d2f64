//! Words of a product's name, in Russian and English, reduced to their stems.
//!
//! Every store indexes [`terms`] and answers a search by looking for all terms of the question, so that a search
//! means the same wherever the products live.

use std::collections::BTreeSet;

use rust_stemmers::{Algorithm, Stemmer};

pub const TERMS_MAX: usize = 32;
pub const TERM_CHARS_MAX: usize = 40;

/// The stems of the words in a text. At most [`TERMS_MAX`] words count.
pub fn terms(text: &str) -> BTreeSet<String> {
    let russian = Stemmer::create(Algorithm::Russian);
    let english = Stemmer::create(Algorithm::English);
    let folded = fold(text);
    folded
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .take(TERMS_MAX)
        .map(|word| {
            let word: String = word.chars().take(TERM_CHARS_MAX).collect();
            let cyrillic = word.chars().any(|c| ('а'..='я').contains(&c));
            let stemmer = if cyrillic { &russian } else { &english };
            stemmer.stem(&word).into_owned()
        })
        .collect()
}

/// The key that names are sorted by: without case, `ё` beside `е`.
pub fn name_key(name: &str) -> String {
    fold(name)
}

fn fold(text: &str) -> String {
    text.to_lowercase().replace('ё', "е")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_found_in_any_of_its_forms() {
        let name = terms("Беспроводные наушники Sony WH-1000XM5, чёрные");
        for question in ["наушник", "НАУШНИКИ", "sony", "черный", "беспроводных наушников", "wh 1000xm5"]
        {
            assert!(terms(question).is_subset(&name), "{question}: {:?} not in {name:?}", terms(question));
        }
        assert!(!terms("колонка").is_subset(&name));
        assert!(terms("phones").is_subset(&terms("Phone case")));
        assert!(terms("  ,.!").is_empty());
    }
}
