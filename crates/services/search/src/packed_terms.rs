//! Terms of an analyzed text on their way to the index library, packed into one text, and the library's tokenizer that unpacks them.
//!
//! ```text
//!   "1 5 hello2 5 world"     position since the last one, bytes, the term; again
//! ```
//!
//! The library has a type for analyzed text, which goes to its threads as JSON: a third of the cost of indexing messages (perf,
//! 2026-11-24). It is given a text instead, whose tokenizer is [`PackedTokenizer`]. Offsets are not needed: positions are.

use tantivy::tokenizer::{Token, TokenStream, Tokenizer};

/// The name of the tokenizer in the schema. An index with columns of another one was written by an older program.
pub(crate) const PACKED: &str = "packed";

/// See the head comment of this file.
#[derive(Debug, Default)]
pub(crate) struct PackedTerms {
    text: String,
    last: usize,
}

impl PackedTerms {
    /// Adds a term. Positions do not go back: one that would stays where the last one is.
    pub(crate) fn push(&mut self, position: usize, term: &str) {
        let step = position.saturating_sub(self.last);
        self.number(step);
        self.number(term.len());
        self.text.push_str(term);
        self.last += step;
    }

    /// A number and a blank; the standard library's formatting takes longer than the rest of a term.
    fn number(&mut self, number: usize) {
        let (mut digits, mut at, mut rest) = ([0; 20], 20, number);
        loop {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        self.text.extend(digits[at..].iter().map(|digit| char::from(*digit)));
        self.text.push(' ');
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }
}

/// Reads packed terms.
#[derive(Clone, Debug, Default)]
pub(crate) struct PackedTokenizer;

impl Tokenizer for PackedTokenizer {
    type TokenStream<'a> = PackedStream<'a>;

    fn token_stream<'a>(&'a mut self, text: &'a str) -> PackedStream<'a> {
        PackedStream { rest: text, token: Token { position: 0, ..Token::default() } }
    }
}

/// The terms of one text.
#[derive(Debug)]
pub(crate) struct PackedStream<'a> {
    rest: &'a str,
    token: Token,
}

impl PackedStream<'_> {
    fn read(&mut self) -> Option<()> {
        let (step, rest) = self.rest.split_once(' ')?;
        let (length, rest) = rest.split_once(' ')?;
        let (term, rest) = rest.split_at_checked(length.parse().ok()?)?;
        self.token.position = self.token.position.wrapping_add(step.parse().ok()?);
        self.token.text.clear();
        self.token.text.push_str(term);
        self.rest = rest;
        Some(())
    }
}

impl TokenStream for PackedStream<'_> {
    fn advance(&mut self) -> bool {
        self.read().is_some()
    }

    fn token(&self) -> &Token {
        &self.token
    }

    fn token_mut(&mut self) -> &mut Token {
        &mut self.token
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_come_out_as_they_went_in() {
        let terms = [(0, "a b"), (0, "7 3 x"), (1, ""), (5, "gr\u{f6}\u{df}e"), (1_000_000, "\u{0} \n")];
        let mut packed = PackedTerms::default();
        terms.iter().for_each(|(position, term)| packed.push(*position, term));
        let mut tokenizer = PackedTokenizer;
        let mut stream = tokenizer.token_stream(packed.as_str());
        let mut found = Vec::new();
        while stream.advance() {
            found.push((stream.token().position, stream.token().text.clone()));
        }
        assert_eq!(found, terms.map(|(position, term)| (position, term.to_owned())));
    }
}
