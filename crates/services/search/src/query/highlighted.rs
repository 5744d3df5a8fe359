//! [`HighlightTerm`]: what of a text a query highlights.

use std::sync::Arc;

use super::term_scan::edit_distance;

/// What of a text is highlighted: compared with the analyzed terms of the text.
#[derive(Clone, Debug)]
pub enum HighlightTerm {
    /// This term.
    Term(String),
    /// These terms one after the other.
    Phrase(Vec<String>),
    /// Terms with this beginning.
    Prefix(String),
    /// Terms that fit an expression from end to end.
    Pattern(Arc<regex::Regex>),
    /// Terms at most so many edits away.
    Fuzzy(String, u8),
}

impl HighlightTerm {
    /// Whether a single term is highlighted; the terms of a phrase each are.
    pub fn matches(&self, term: &str) -> bool {
        match self {
            HighlightTerm::Term(own) => own == term,
            HighlightTerm::Phrase(terms) => terms.iter().any(|own| own == term),
            HighlightTerm::Prefix(prefix) => term.starts_with(prefix.as_str()),
            HighlightTerm::Pattern(pattern) => pattern.is_match(term),
            HighlightTerm::Fuzzy(own, distance) => edit_distance(own, term, *distance, true).is_some(),
        }
    }
}
