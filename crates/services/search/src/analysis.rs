//! Analysis: from a text to its terms, with their positions and places.
//!
//! ```text
//!   text --[ char filters ]--> text --[ tokenizer ]--> tokens --[ token filters ]--> terms
//! ```
//!
//! The standard tokenizer finds words as Unicode's text segmentation (UAX #29) does, which is what Lucene's does too. An index
//! has the built-in analyzers and those of its settings (`analysis.analyzer`).
//!
//! It deliberately knows no index library: the terms are written to and sought in fields that analyze nothing themselves.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use serde_json::Value;
use unicode_segmentation::UnicodeSegmentation;

use crate::error::SearchError;

/// A longer token is cut into pieces of this length (Lucene's StandardAnalyzer, `DEFAULT_MAX_TOKEN_LENGTH`).
const TOKEN_CHARS_MAX: usize = 255;

/// Lengths of n-grams beside each other (Elasticsearch's `index.max_ngram_diff`).
const GRAM_DIFFERENCE_MAX: usize = 1;

/// Lucene's English stop words (EnglishAnalyzer.ENGLISH_STOP_WORDS_SET).
const ENGLISH: [&str; 33] = [
    "a", "an", "and", "are", "as", "at", "be", "but", "by", "for", "if", "in", "into", "is", "it", "no", "not", "of",
    "on", "or", "such", "that", "the", "their", "then", "there", "these", "they", "this", "to", "was", "will", "with",
];

/// A term at its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnalyzedTerm {
    /// The term.
    pub text: String,
    /// Where the token begins and ends in the text, in bytes.
    pub from: usize,
    /// See `from`.
    pub to: usize,
    /// Which token it is, from 0.
    pub position: usize,
}

#[derive(Clone, Debug)]
enum Tokenizer {
    Standard,
    Whitespace,
    Letter,
    Keyword,
    /// N-grams of characters: from, to, only at the beginning.
    NGram(usize, usize, bool),
    Pattern(regex::Regex),
}

#[derive(Clone, Debug)]
enum TokenFilter {
    Lowercase,
    Uppercase,
    Trim,
    AsciiFolding,
    Reverse,
    Unique,
    Stop(Arc<HashSet<String>>),
    Length(usize, usize),
    Truncate(usize),
    NGram(usize, usize, bool),
}

/// One way to make terms of a text.
#[derive(Clone, Debug)]
pub struct Analyzer {
    tokenizer: Tokenizer,
    filters: Vec<TokenFilter>,
}

/// The analyzers of an index, by name.
#[derive(Clone, Debug)]
pub struct Analyzers {
    by_name: BTreeMap<String, Analyzer>,
    normalizers: BTreeMap<String, Analyzer>,
}

impl Default for Analyzers {
    fn default() -> Analyzers {
        let lower = || vec![TokenFilter::Lowercase];
        let stop = || Arc::new(ENGLISH.iter().map(ToString::to_string).collect::<HashSet<_>>());
        let all = [
            ("standard", Tokenizer::Standard, lower()),
            ("default", Tokenizer::Standard, lower()),
            ("simple", Tokenizer::Letter, lower()),
            ("whitespace", Tokenizer::Whitespace, Vec::new()),
            ("keyword", Tokenizer::Keyword, Vec::new()),
            ("stop", Tokenizer::Letter, vec![TokenFilter::Lowercase, TokenFilter::Stop(stop())]),
        ];
        let by_name =
            all.into_iter().map(|(name, tokenizer, filters)| (name.to_owned(), Analyzer { tokenizer, filters }));
        let lowercase = Analyzer { tokenizer: Tokenizer::Keyword, filters: lower() };
        Analyzers { by_name: by_name.collect(), normalizers: BTreeMap::from([("lowercase".to_owned(), lowercase)]) }
    }
}

impl Analyzers {
    /// The built-in ones and those of `analysis` of an index's settings. Errors: a part that is not known, by its name.
    pub fn of_settings(analysis: &Value) -> Result<Analyzers, SearchError> {
        let mut all = Analyzers::default();
        let of = |kind: &str, name: &str| analysis.get(kind).and_then(|kind| kind.get(name));
        for kind in ["analyzer", "normalizer"] {
            let Some(defined) = analysis.get(kind).and_then(Value::as_object) else { continue };
            for (name, definition) in defined {
                let analyzer = custom(definition, kind == "normalizer", &all, &of)
                    .map_err(|error| SearchError::argument(format!("{kind} [{name}]: {error}")))?;
                let to = if kind == "analyzer" { &mut all.by_name } else { &mut all.normalizers };
                to.insert(name.clone(), analyzer);
            }
        }
        Ok(all)
    }

    /// The analyzer with that name. Errors: there is none.
    pub fn get(&self, name: &str) -> Result<&Analyzer, SearchError> {
        self.by_name
            .get(name)
            .ok_or_else(|| SearchError::argument(format!("analyzer [{name}] has not been configured")))
    }

    /// The normalizer with that name. Errors: there is none.
    pub fn normalizer(&self, name: &str) -> Result<&Analyzer, SearchError> {
        self.normalizers
            .get(name)
            .ok_or_else(|| SearchError::argument(format!("normalizer [{name}] has not been configured")))
    }

    /// An analyzer of the parts that a request names (`_analyze`). Errors: as for [`of_settings`](Analyzers::of_settings).
    pub fn of_request(&self, definition: &Value) -> Result<Analyzer, SearchError> {
        custom(definition, definition.get("tokenizer").is_none(), self, &|_, _| None).map_err(SearchError::argument)
    }
}

/// An analyzer as settings define it; `of` finds other definitions by kind and name.
fn custom<'a>(
    definition: &'a Value,
    is_normalizer: bool,
    known: &Analyzers,
    of: &dyn Fn(&str, &str) -> Option<&'a Value>,
) -> Result<Analyzer, String> {
    let text = |key: &str| definition.get(key).and_then(Value::as_str);
    match text("type") {
        None | Some("custom") => {}
        Some(name) => {
            let mut analyzer =
                known.by_name.get(name).cloned().ok_or_else(|| format!("type [{name}] is not supported"))?;
            if let Some(words) = definition.get("stopwords") {
                analyzer.filters.push(TokenFilter::Stop(stop_words(words)?));
            }
            return Ok(analyzer);
        }
    }
    if definition.get("char_filter").and_then(Value::as_array).is_some_and(|filters| !filters.is_empty()) {
        return Err("char_filter is not supported".to_owned());
    }
    let tokenizer = match definition.get("tokenizer") {
        None if is_normalizer => Tokenizer::Keyword,
        None => return Err("it needs a tokenizer".to_owned()),
        Some(Value::String(name)) => match of("tokenizer", name) {
            Some(definition) => tokenizer(definition.get("type").and_then(Value::as_str).unwrap_or(name), definition)?,
            None => tokenizer(name, &Value::Null)?,
        },
        Some(definition) => tokenizer(definition.get("type").and_then(Value::as_str).unwrap_or(""), definition)?,
    };
    let names = match definition.get("filter") {
        None => Vec::new(),
        Some(Value::Array(names)) => names.iter().collect(),
        Some(one) => vec![one],
    };
    let filters = names.into_iter().map(|filter_of| match filter_of {
        Value::String(name) => match of("filter", name) {
            Some(definition) => filter(definition.get("type").and_then(Value::as_str).unwrap_or(name), definition),
            None => filter(name, &Value::Null),
        },
        definition => filter(definition.get("type").and_then(Value::as_str).unwrap_or(""), definition),
    });
    Ok(Analyzer { tokenizer, filters: filters.collect::<Result<_, _>>()? })
}

fn number(definition: &Value, key: &str, default: usize) -> usize {
    let value = definition.get(key);
    let number = value.and_then(|value| value.as_u64().or_else(|| value.as_str().and_then(|text| text.parse().ok())));
    number.map_or(default, |number| number as usize)
}

fn tokenizer(kind: &str, definition: &Value) -> Result<Tokenizer, String> {
    let grams = |first| gram_bounds(definition, first).map(|(min, max)| Tokenizer::NGram(min, max, first));
    Ok(match kind {
        "standard" => Tokenizer::Standard,
        "whitespace" => Tokenizer::Whitespace,
        "letter" | "lowercase" => Tokenizer::Letter,
        "keyword" => Tokenizer::Keyword,
        "ngram" | "nGram" => grams(false)?,
        "edge_ngram" | "edgeNGram" => grams(true)?,
        "pattern" => {
            let pattern = definition.get("pattern").and_then(Value::as_str).unwrap_or(r"\W+");
            Tokenizer::Pattern(regex::Regex::new(pattern).map_err(|error| error.to_string())?)
        }
        other => return Err(format!("tokenizer [{other}] is not supported")),
    })
}

/// The bounds of n-grams. Errors: so many lengths that each text would become a multiple of itself (Elasticsearch's
/// `index.max_ngram_diff`); those from the beginning only are bounded by their longest.
fn gram_bounds(definition: &Value, only_first: bool) -> Result<(usize, usize), String> {
    let (min, max) = (number(definition, "min_gram", 1).max(1), number(definition, "max_gram", 2));
    if min > max {
        return Err(format!("min_gram {min} is more than max_gram {max}"));
    }
    if !only_first && max - min > GRAM_DIFFERENCE_MAX {
        return Err(format!("max_gram is at most {GRAM_DIFFERENCE_MAX} more than min_gram, not {}", max - min));
    }
    if max > TOKEN_CHARS_MAX {
        return Err(format!("max_gram is at most {TOKEN_CHARS_MAX}"));
    }
    Ok((min, max))
}

fn stop_words(words: &Value) -> Result<Arc<HashSet<String>>, String> {
    match words {
        Value::Null => Ok(Arc::new(ENGLISH.iter().map(ToString::to_string).collect())),
        Value::String(name) if name == "_english_" => stop_words(&Value::Null),
        Value::String(name) if name == "_none_" => Ok(Arc::default()),
        Value::Array(words) => Ok(Arc::new(words.iter().filter_map(|word| Some(word.as_str()?.to_owned())).collect())),
        other => Err(format!("stop words [{other}] are not supported")),
    }
}

fn filter(kind: &str, definition: &Value) -> Result<TokenFilter, String> {
    Ok(match kind {
        "lowercase" => TokenFilter::Lowercase,
        "uppercase" => TokenFilter::Uppercase,
        "trim" => TokenFilter::Trim,
        "asciifolding" => TokenFilter::AsciiFolding,
        "reverse" => TokenFilter::Reverse,
        "unique" => TokenFilter::Unique,
        "stop" => TokenFilter::Stop(stop_words(definition.get("stopwords").unwrap_or(&Value::Null))?),
        "length" => TokenFilter::Length(number(definition, "min", 0), number(definition, "max", usize::MAX)),
        "truncate" => TokenFilter::Truncate(number(definition, "length", 10)),
        "ngram" | "nGram" => gram_bounds(definition, false).map(|(min, max)| TokenFilter::NGram(min, max, false))?,
        "edge_ngram" | "edgeNGram" => {
            gram_bounds(definition, true).map(|(min, max)| TokenFilter::NGram(min, max, true))?
        }
        other => return Err(format!("filter [{other}] is not supported")),
    })
}

impl Analyzer {
    /// The terms of a text, in order of their positions.
    pub fn analyze(&self, text: &str) -> Vec<AnalyzedTerm> {
        self.analyze_at_most(text, usize::MAX).unwrap_or_default()
    }

    /// As [`analyze`](Analyzer::analyze); none if there are more terms on the way, each of which takes more memory than its text.
    pub fn analyze_at_most(&self, text: &str, most: usize) -> Option<Vec<AnalyzedTerm>> {
        let mut terms = self.tokenizer.tokens(text, most)?;
        for filter in &self.filters {
            filter.apply(&mut terms, most);
            if terms.len() > most {
                return None;
            }
        }
        Some(terms)
    }

    /// The text as one term, by the filters alone: for normalizers, and for prefixes and patterns of analyzed fields.
    pub fn normalize(&self, text: &str) -> String {
        let mut terms = vec![AnalyzedTerm { text: text.to_owned(), from: 0, to: text.len(), position: 0 }];
        let filters = self.filters.iter();
        for filter in filters.filter(|filter| {
            matches!(
                filter,
                TokenFilter::Lowercase | TokenFilter::Uppercase | TokenFilter::Trim | TokenFilter::AsciiFolding
            )
        }) {
            filter.apply(&mut terms, usize::MAX);
        }
        terms.pop().map_or_else(String::new, |term| term.text)
    }
}

impl Tokenizer {
    /// None if there are more than so many. Of a text that may have more they are counted first: each takes more memory than its text.
    fn tokens(&self, text: &str, most: usize) -> Option<Vec<AnalyzedTerm>> {
        if text.len() / 2 >= most && matches!(self, Tokenizer::Standard | Tokenizer::Whitespace | Tokenizer::Letter) {
            let mut count = 0_usize;
            self.each(text, &mut |_, _| count += 1);
            if count > most {
                return None;
            }
        }
        let (mut tokens, mut is_full) = (Vec::new(), false);
        let mut add = |from: usize, token: &str| {
            let position = tokens.len();
            if position >= most {
                is_full = true;
                return;
            }
            tokens.push(AnalyzedTerm { text: token.to_owned(), from, to: from + token.len(), position });
        };
        self.each(text, &mut add);
        (!is_full).then_some(tokens)
    }

    /// Hands over each token with its place.
    fn each(&self, text: &str, add: &mut dyn FnMut(usize, &str)) {
        match self {
            Tokenizer::Standard => {
                for (from, word) in text.unicode_word_indices() {
                    in_pieces(from, word, add);
                }
            }
            Tokenizer::Whitespace => split(text, |c| !c.is_whitespace(), add),
            Tokenizer::Letter => split(text, char::is_alphabetic, add),
            Tokenizer::Keyword if text.is_empty() => {}
            Tokenizer::Keyword => add(0, text),
            Tokenizer::NGram(min, max, first) => grams(text, *min, *max, *first, &mut |from, gram| add(from, gram)),
            Tokenizer::Pattern(pattern) => {
                let mut from = 0;
                for found in pattern.find_iter(text) {
                    if found.start() > from {
                        add(from, &text[from..found.start()]);
                    }
                    from = found.end();
                }
                if from < text.len() {
                    add(from, &text[from..]);
                }
            }
        }
    }
}

/// A word, or its pieces if it is longer than a token may be.
fn in_pieces(from: usize, word: &str, add: &mut dyn FnMut(usize, &str)) {
    if word.len() <= TOKEN_CHARS_MAX {
        return add(from, word);
    }
    let mut start = 0;
    for (count, (at, _)) in word.char_indices().enumerate() {
        if count > 0 && count % TOKEN_CHARS_MAX == 0 {
            add(from + start, &word[start..at]);
            start = at;
        }
    }
    add(from + start, &word[start..]);
}

/// The runs of characters that belong to tokens.
fn split(text: &str, belongs: impl Fn(char) -> bool, add: &mut dyn FnMut(usize, &str)) {
    let mut start = None;
    for (at, c) in text.char_indices() {
        match (belongs(c), start) {
            (true, None) => start = Some(at),
            (false, Some(from)) => {
                in_pieces(from, &text[from..at], add);
                start = None;
            }
            _ => {}
        }
    }
    if let Some(from) = start {
        in_pieces(from, &text[from..], add);
    }
}

/// N-grams of `min` to `max` characters.
fn grams(text: &str, min: usize, max: usize, only_first: bool, add: &mut dyn FnMut(usize, &str)) {
    let ends: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
    let starts = if only_first { 1.min(ends.len() - 1) } else { ends.len() - 1 };
    for start in 0..starts {
        for length in min..=max {
            let Some(end) = ends.get(start + length) else { break };
            add(ends[start], &text[ends[start]..*end]);
        }
    }
}

impl TokenFilter {
    /// Where it makes more terms than so many, it stops behind that.
    fn apply(&self, terms: &mut Vec<AnalyzedTerm>, most: usize) {
        let each = |terms: &mut Vec<AnalyzedTerm>, change: &dyn Fn(&str) -> String| {
            terms.iter_mut().for_each(|term| term.text = change(&term.text));
        };
        match self {
            TokenFilter::Lowercase => terms.iter_mut().for_each(|term| match term.text.is_ascii() {
                true => term.text.make_ascii_lowercase(),
                false => term.text = term.text.to_lowercase(),
            }),
            TokenFilter::Uppercase => each(terms, &str::to_uppercase),
            TokenFilter::Trim => each(terms, &|text| text.trim().to_owned()),
            TokenFilter::AsciiFolding => each(terms, &|text| text.chars().map(folded).collect()),
            TokenFilter::Reverse => each(terms, &|text| text.chars().rev().collect()),
            TokenFilter::Truncate(length) => each(terms, &|text| text.chars().take(*length).collect()),
            TokenFilter::Unique => {
                let mut seen = HashSet::new();
                terms.retain(|term| seen.insert(term.text.clone()));
            }
            TokenFilter::Stop(words) => terms.retain(|term| !words.contains(&term.text)),
            TokenFilter::Length(min, max) => terms.retain(|term| (*min..=*max).contains(&term.text.chars().count())),
            TokenFilter::NGram(min, max, first) => {
                let mut all = Vec::new();
                for term in terms.iter() {
                    if all.len() > most {
                        break;
                    }
                    let AnalyzedTerm { from, to, position, .. } = *term;
                    grams(&term.text, *min, *max, *first, &mut |_, gram| {
                        all.push(AnalyzedTerm { text: gram.to_owned(), from, to, position });
                    });
                }
                *terms = all;
            }
        }
    }
}

/// A Latin letter without its mark; any other character as it is.
fn folded(c: char) -> char {
    const FOLDED: [(&str, char); 20] = [
        ("\u{e0}\u{e1}\u{e2}\u{e3}\u{e4}\u{e5}\u{101}\u{103}\u{105}", 'a'),
        ("\u{c0}\u{c1}\u{c2}\u{c3}\u{c4}\u{c5}\u{100}\u{102}\u{104}", 'A'),
        ("\u{e7}\u{107}\u{109}\u{10b}\u{10d}", 'c'),
        ("\u{c7}\u{106}\u{108}\u{10a}\u{10c}", 'C'),
        ("\u{e8}\u{e9}\u{ea}\u{eb}\u{113}\u{115}\u{117}\u{119}\u{11b}", 'e'),
        ("\u{c8}\u{c9}\u{ca}\u{cb}\u{112}\u{114}\u{116}\u{118}\u{11a}", 'E'),
        ("\u{ec}\u{ed}\u{ee}\u{ef}\u{129}\u{12b}\u{12d}\u{12f}", 'i'),
        ("\u{cc}\u{cd}\u{ce}\u{cf}\u{128}\u{12a}\u{12c}\u{12e}\u{130}", 'I'),
        ("\u{f1}\u{144}\u{146}\u{148}", 'n'),
        ("\u{d1}\u{143}\u{145}\u{147}", 'N'),
        ("\u{f2}\u{f3}\u{f4}\u{f5}\u{f6}\u{f8}\u{14d}\u{14f}\u{151}", 'o'),
        ("\u{d2}\u{d3}\u{d4}\u{d5}\u{d6}\u{d8}\u{14c}\u{14e}\u{150}", 'O'),
        ("\u{f9}\u{fa}\u{fb}\u{fc}\u{169}\u{16b}\u{16d}\u{16f}\u{171}\u{173}", 'u'),
        ("\u{d9}\u{da}\u{db}\u{dc}\u{168}\u{16a}\u{16c}\u{16e}\u{170}\u{172}", 'U'),
        ("\u{fd}\u{ff}\u{177}", 'y'),
        ("\u{dd}\u{178}\u{176}", 'Y'),
        ("\u{15b}\u{15d}\u{15f}\u{161}", 's'),
        ("\u{15a}\u{15c}\u{15e}\u{160}", 'S'),
        ("\u{17a}\u{17c}\u{17e}", 'z'),
        ("\u{179}\u{17b}\u{17d}", 'Z'),
    ];
    if c.is_ascii() {
        return c;
    }
    FOLDED.iter().find(|(marked, _)| marked.contains(c)).map_or(c, |(_, plain)| *plain)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn terms(analyzer: &Analyzer, text: &str) -> Vec<String> {
        analyzer.analyze(text).into_iter().map(|term| term.text).collect()
    }

    #[test]
    fn built_in_analyzers_find_the_words() {
        let all = Analyzers::default();
        for (name, text, expected) in [
            (
                "standard",
                "The 2 QUICK Brown-Foxes jumped over the lazy dog's bone.",
                "the 2 quick brown foxes jumped over the lazy dog's bone",
            ),
            ("standard", "GET /images/hm_bg.jpg HTTP/1.0", "get images hm_bg.jpg http 1.0"),
            ("simple", "Dog's 2 bones", "dog s bones"),
            ("whitespace", "Brown-Fox  ran", "Brown-Fox ran"),
            ("stop", "The fox and the dog", "fox dog"),
        ] {
            assert_eq!(terms(all.get(name).expect("built in"), text).join(" "), expected, "{name}");
        }
        assert!(all.get("klingon").is_err());
    }

    #[test]
    fn custom_analyzers_combine_a_tokenizer_and_filters_and_refuse_what_is_not_known() {
        let settings = json!({"analyzer": {"folding": {"tokenizer": "whitespace", "filter": ["lowercase", "asciifolding", "two"]}},
            "filter": {"two": {"type": "length", "min": 2}}});
        let all = Analyzers::of_settings(&settings).expect("known parts");
        assert_eq!(terms(all.get("folding").expect("defined"), "Caf\u{e9} \u{e0} M\u{fc}ller"), ["cafe", "muller"]);
        let wide = json!({"analyzer": {"a": {"tokenizer": {"type": "ngram", "min_gram": 1, "max_gram": 50}}}});
        assert!(
            Analyzers::default().of_request(&wide["analyzer"]["a"]).expect_err("too wide").reason.contains("max_gram")
        );
        let unknown = json!({"analyzer": {"a": {"tokenizer": "kuromoji"}}});
        let error = Analyzers::of_settings(&unknown).expect_err("not known");
        assert!(error.reason.contains("[kuromoji]"), "{error}");
    }

    #[test]
    fn a_text_with_more_terms_than_so_many_is_given_up_also_where_filters_make_them() {
        let grams = json!({"tokenizer": "whitespace", "filter": [{"type": "ngram", "min_gram": 1, "max_gram": 1}]});
        let grams = Analyzers::default().of_request(&grams).expect("known parts");
        let all = Analyzers::default();
        for (name, analyzer) in [("whitespace", all.get("whitespace").expect("built in")), ("grams", &grams)] {
            let (text, count) = if name == "grams" { ("abcd", 4) } else { ("a b c d", 4) };
            assert_eq!(analyzer.analyze_at_most(text, count).map(|terms| terms.len()), Some(count), "{name}");
            assert_eq!(analyzer.analyze_at_most(text, count - 1), None, "{name}");
        }
    }

    #[test]
    fn a_very_long_word_is_cut_into_tokens() {
        let all = Analyzers::default();
        let found = all.get("standard").expect("built in").analyze(&"x".repeat(600));
        assert_eq!(found.iter().map(|term| term.text.len()).collect::<Vec<_>>(), [255, 255, 90]);
    }
}
