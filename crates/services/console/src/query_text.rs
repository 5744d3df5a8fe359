//! What a person writes into the box, as a query.
//!
//! ```text
//!   4711                      one word: a number of a patient, a control id or a message's id, whichever it is
//!   id:88 mrn:4711            those alone; and: control, service, to, state, type, since, until
//!   PID-8=F                   a value at a path
//!   chest pain   "chest pain" more words, or quoted ones: the text of messages
//! ```
//!
//! Pure. Names of states are the decisions, and what became of outputs.

use crate::admin::{MessageQuery, OutputState};
use crate::format::moment;

/// Most bytes that are read.
pub(crate) const TEXT_BYTES_MAX: usize = 2_000;

/// The states that messages are selected by: the decisions, then those of outputs.
pub(crate) const STATES: [&str; 9] =
    ["routed", "errored", "unmatched", "rejected", "dropped", "waiting", "failed", "set-aside", "delivered"];

/// What is asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    /// What follows from names: every condition of it holds.
    pub(crate) query: MessageQuery,
    /// One word, which may be a number of a patient, a control id or a message's id.
    pub(crate) word: Option<String>,
    /// A message's id.
    pub(crate) id: Option<u64>,
    /// Words to look for in the text.
    pub(crate) text: Option<String>,
}

/// Selects by a state. Errors: it is none.
pub(crate) fn select_state(query: &mut MessageQuery, state: &str) -> Result<(), String> {
    match state {
        "waiting" => query.output = Some(OutputState::Waiting),
        "failed" => query.output = Some(OutputState::Failed),
        "set-aside" => query.output = Some(OutputState::SetAside),
        "delivered" => query.output = Some(OutputState::Delivered),
        state if STATES.contains(&state) => query.status = Some(state.to_owned()),
        other => return Err(format!("`{other}` is no state: there are {}", STATES.join(", "))),
    }
    Ok(())
}

/// Splits at blanks, but not within quotes; whether each part was quoted.
fn words(text: &str) -> Vec<(String, bool)> {
    let (mut found, mut word, mut is_quoted, mut within) = (Vec::new(), String::new(), false, false);
    for c in text.chars() {
        match c {
            '"' => (within, is_quoted) = (!within, true),
            c if c.is_whitespace() && !within => {
                if !word.is_empty() {
                    found.push((std::mem::take(&mut word), is_quoted));
                }
                is_quoted = false;
            }
            c => word.push(c),
        }
    }
    if !word.is_empty() {
        found.push((word, is_quoted));
    }
    found
}

/// Reads what was written; ages count from `now_us`. Errors: the text for who wrote it.
pub(crate) fn read(text: &str, now_us: i64) -> Result<Asked, String> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(format!("the text has more than {TEXT_BYTES_MAX} bytes"));
    }
    let (mut asked, mut free) = (Asked::default(), Vec::new());
    for (word, is_quoted) in words(text) {
        if !read_named(&mut asked, &word, now_us)? {
            free.push((word, is_quoted));
        }
    }
    match &free[..] {
        [] => {}
        [(word, false)] if is_alone(&asked) && !word.contains('*') => asked.word = Some(word.clone()),
        words => {
            let all = words.iter().map(|(word, quoted)| if *quoted { format!("\"{word}\"") } else { word.clone() });
            asked.text = Some(all.collect::<Vec<_>>().join(" "));
        }
    }
    Ok(asked)
}

/// Whether nothing was asked for yet: only then a word is looked up in all indexes.
fn is_alone(asked: &Asked) -> bool {
    asked.query == MessageQuery::default() && asked.id.is_none()
}

/// A condition with a name; false: it is none.
fn read_named(asked: &mut Asked, word: &str, now_us: i64) -> Result<bool, String> {
    let query = &mut asked.query;
    if let Some((path, value)) = word.split_once('=')
        && path.parse::<hl7::Path>().is_ok()
    {
        query.wanted.push((path.to_owned(), value.to_owned()));
        return Ok(true);
    }
    let Some((name, value)) = word.split_once(':').filter(|(_, value)| !value.is_empty()) else { return Ok(false) };
    let time = || moment(value, now_us).ok_or_else(|| format!("`{value}` is neither a time nor an age as 2h"));
    match name.to_ascii_lowercase().as_str() {
        "id" => {
            let id = value.parse().map_err(|_| format!("`{value}` is no id of a message"))?;
            asked.id = Some(id);
        }
        "mrn" | "patient" => query.mrn = Some(value.to_owned()),
        "control" => query.control_id = Some(value.to_owned()),
        "service" => query.service = Some(value.to_owned()),
        "to" | "operation" => query.interface = Some(value.to_owned()),
        "type" => query.kind = Some(value.to_owned()),
        "state" | "status" => select_state(query, value)?,
        "since" => query.since_us = Some(time()?),
        "until" => query.until_us = Some(time()?),
        _ => return Ok(false),
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Asked {
        read(text, 1_000_000_000_000).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn one_word_may_be_any_key_and_names_say_which() {
        assert_eq!(read_text(" 4711 ").word.as_deref(), Some("4711"));
        assert_eq!(read_text("MSG0007713").word.as_deref(), Some("MSG0007713"));
        assert_eq!(read_text("id:88").id, Some(88));
        let both = read_text("mrn:4711 state:failed to:lab type:ADT^A01 PID-8=F since:1h");
        let query = MessageQuery {
            mrn: Some("4711".into()),
            output: Some(OutputState::Failed),
            interface: Some("lab".into()),
            kind: Some("ADT^A01".into()),
            wanted: vec![("PID-8".into(), "F".into())],
            since_us: Some(1_000_000_000_000 - 3_600_000_000),
            ..MessageQuery::default()
        };
        assert_eq!(both, Asked { query, ..Asked::default() });
    }

    #[test]
    fn more_words_and_quoted_ones_are_text() {
        assert_eq!(read_text("chest pain").text.as_deref(), Some("chest pain"));
        assert_eq!(read_text("\"chest pain\"").text.as_deref(), Some("\"chest pain\""));
        assert_eq!(read_text("ward:ICU").word.as_deref(), Some("ward:ICU"), "no name of ours");
        assert_eq!(read_text("service:adt smith").text.as_deref(), Some("smith"));
        assert_eq!(read_text("smi*").text.as_deref(), Some("smi*"));
        assert_eq!(read_text(""), Asked::default());
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_what_there_is() {
        for (text, why) in [("state:broken", "there are routed"), ("id:x", "no id"), ("since:soon", "neither a time")] {
            assert!(read(text, 0).is_err_and(|error| error.contains(why)), "{text}");
        }
        assert!(read(&"x".repeat(TEXT_BYTES_MAX + 1), 0).is_err());
    }
}
