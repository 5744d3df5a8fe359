//! What PostgreSQL's operators make of documents.

use std::collections::HashSet;

use super::{Document, place};
use crate::SqlError;

fn refused(what: &str) -> SqlError {
    SqlError::value("22023", what)
}

/// Most comparisons for one containment: a few seconds' at most.
pub(crate) const CONTAINMENT_STEPS_MAX: usize = 1 << 25;

/// A value without parts as it is compared: without zeros at the end of a number.
#[derive(PartialEq, Eq, Hash)]
enum Scalar<'a> {
    Null,
    Boolean(bool),
    Number(&'a str),
    Text(&'a str),
}

fn scalar(document: &Document) -> Option<Scalar<'_>> {
    Some(match document {
        Document::Null => Scalar::Null,
        Document::Boolean(value) => Scalar::Boolean(*value),
        Document::Number(number) => match number.contains('.') {
            true => Scalar::Number(number.trim_end_matches('0').trim_end_matches('.')),
            false => Scalar::Number(number),
        },
        Document::Text(text) => Scalar::Text(text),
        Document::Array(_) | Document::Object(_) => return None,
    })
}

/// `whole @> part`. Errors: 54000 if that takes too many steps.
pub(crate) fn contains(whole: &Document, part: &Document) -> Result<bool, SqlError> {
    let mut left = CONTAINMENT_STEPS_MAX;
    contains_within(whole, part, &mut left)
}

/// The same; `left` are the steps that it may take.
fn contains_within(whole: &Document, part: &Document, left: &mut usize) -> Result<bool, SqlError> {
    match (whole, scalar(part)) {
        (Document::Array(elements), Some(wanted)) => Ok(has_scalar(elements, &wanted)),
        _ => contains_part(whole, part, left),
    }
}

fn has_scalar(elements: &[Document], wanted: &Scalar<'_>) -> bool {
    elements.iter().any(|element| scalar(element).is_some_and(|found| found == *wanted))
}

fn take_steps(left: &mut usize, steps: usize) -> Result<(), SqlError> {
    let too_many = || SqlError::value("54000", "jsonb documents that large take too many steps to compare");
    *left = left.checked_sub(steps).ok_or_else(too_many)?;
    Ok(())
}

fn contains_part(whole: &Document, part: &Document, left: &mut usize) -> Result<bool, SqlError> {
    take_steps(left, 1)?;
    match (whole, part) {
        (Document::Object(_), Document::Object(members)) => {
            for (key, value) in members {
                let Some(found) = whole.member(key) else { return Ok(false) };
                if !contains_part(found, value, left)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        (Document::Array(elements), Document::Array(parts)) => contains_parts(elements, parts, left),
        (one, other) => Ok(one.is_scalar() && scalar(one) == scalar(other)),
    }
}

/// Whether each of the parts is in an element. Those without parts of their own are looked up: long arrays of them take few steps.
fn contains_parts(elements: &[Document], parts: &[Document], left: &mut usize) -> Result<bool, SqlError> {
    take_steps(left, elements.len() + parts.len())?;
    let wanted: Vec<Scalar<'_>> = parts.iter().filter_map(scalar).collect();
    let has_all = match wanted.as_slice() {
        [] => true,
        [one] => has_scalar(elements, one),
        several => {
            let there: HashSet<Scalar<'_>> = elements.iter().filter_map(scalar).collect();
            several.iter().all(|one| there.contains(one))
        }
    };
    if !has_all {
        return Ok(false);
    }
    for part in parts.iter().filter(|part| !part.is_scalar()) {
        let mut is_there = false;
        for element in elements {
            is_there = contains_part(element, part, left)?;
            if is_there {
                break;
            }
        }
        if !is_there {
            return Ok(false);
        }
    }
    Ok(true)
}

/// `document ? key`.
pub(crate) fn has_key(document: &Document, key: &str) -> bool {
    let is_it = |value: &Document| matches!(value, Document::Text(text) if text == key);
    match document {
        Document::Object(_) => document.member(key).is_some(),
        Document::Array(elements) => elements.iter().any(is_it),
        scalar => is_it(scalar),
    }
}

/// Tells of many keys whether `document ? key`.
pub(crate) fn key_finder(document: &Document) -> impl Fn(&str) -> bool + '_ {
    let texts: HashSet<&str> = match document {
        Document::Array(elements) => elements
            .iter()
            .filter_map(|element| match element {
                Document::Text(text) => Some(text.as_str()),
                _ => None,
            })
            .collect(),
        _ => HashSet::new(),
    };
    move |key: &str| match document {
        Document::Array(_) => texts.contains(key),
        other => has_key(other, key),
    }
}

/// `one || other`: the members of both objects, or the elements of both; what is no array is one element.
pub(crate) fn concatenated(one: Document, other: Document) -> Document {
    let elements = |document| match document {
        Document::Array(elements) => elements,
        element => vec![element],
    };
    match (one, other) {
        (Document::Object(mut members), Document::Object(others)) => {
            members.extend(others);
            Document::object(members)
        }
        (one, other) => {
            let mut all = elements(one);
            all.extend(elements(other));
            Document::Array(all)
        }
    }
}

/// `document - key`: without a member, or without elements that are this string. Errors: 22023.
pub(crate) fn without_key(mut document: Document, keys: &[&str]) -> Result<Document, SqlError> {
    let keys: HashSet<&str> = keys.iter().copied().collect();
    let is_gone = |name: &str| keys.contains(name);
    match &mut document {
        Document::Object(members) => members.retain(|(name, _)| !is_gone(name)),
        Document::Array(elements) => {
            elements.retain(|element| !matches!(element, Document::Text(text) if is_gone(text)));
        }
        _ => return Err(refused("cannot delete from scalar")),
    }
    Ok(document)
}

/// `document - number`: without an element. Errors: 22023.
pub(crate) fn without_place(mut document: Document, number: i64) -> Result<Document, SqlError> {
    match &mut document {
        Document::Array(elements) => {
            if let Some(at) = place(elements.len(), number) {
                elements.remove(at);
            }
            Ok(document)
        }
        Document::Object(_) => Err(refused("cannot delete from object using integer index")),
        _ => Err(refused("cannot delete from scalar")),
    }
}

/// The number of an element, from the step of a path.
fn number_of(step: &str, position: usize) -> Result<i64, SqlError> {
    super::step_number(step).ok_or_else(|| {
        SqlError::value("22P02", format!("path element at position {position} is not an integer: \"{step}\""))
    })
}

/// `document #- path`. Errors: 22023, 22P02.
pub(crate) fn without_path(mut document: Document, path: &[&str]) -> Result<Document, SqlError> {
    if document.is_scalar() {
        return Err(refused("cannot delete path in scalar"));
    }
    let Some((last, above)) = path.split_last() else { return Ok(document) };
    let Some(part) = part_at(&mut document, above)? else { return Ok(document) };
    match part {
        Document::Object(members) => members.retain(|(name, _)| name != last),
        Document::Array(elements) => {
            if let Some(at) = place(elements.len(), number_of(last, path.len())?) {
                elements.remove(at);
            }
        }
        _ => {}
    }
    Ok(document)
}

/// The part at the end of a path; `None` if there is none.
fn part_at<'a>(document: &'a mut Document, path: &[&str]) -> Result<Option<&'a mut Document>, SqlError> {
    let mut part = document;
    for (at, step) in path.iter().enumerate() {
        match step_into(part, step, at + 1)? {
            Some(inner) => part = inner,
            None => return Ok(None),
        }
    }
    Ok(Some(part))
}

fn step_into<'a>(part: &'a mut Document, step: &str, position: usize) -> Result<Option<&'a mut Document>, SqlError> {
    Ok(match part {
        Document::Object(members) => members.iter_mut().find(|(name, _)| name == step).map(|(_, value)| value),
        Document::Array(elements) => {
            let at = place(elements.len(), number_of(step, position)?);
            at.and_then(|at| elements.get_mut(at))
        }
        _ => None,
    })
}

/// `jsonb_set(document, path, value, creates)`. Errors: 22023, 22P02.
pub(crate) fn set_path(
    mut document: Document,
    path: &[&str],
    value: Document,
    creates: bool,
) -> Result<Document, SqlError> {
    if document.is_scalar() {
        return Err(refused("cannot set path in scalar"));
    }
    let Some((last, above)) = path.split_last() else { return Ok(document) };
    let Some(part) = part_at(&mut document, above)? else { return Ok(document) };
    match part {
        Document::Object(members) => match members.iter_mut().find(|(name, _)| name == last) {
            Some((_, there)) => *there = value,
            None if creates => {
                let mut all = std::mem::take(members);
                all.push(((*last).to_owned(), value));
                *part = Document::object(all);
            }
            None => {}
        },
        Document::Array(elements) => {
            let number = number_of(last, path.len())?;
            match place(elements.len(), number) {
                Some(at) => elements[at] = value,
                None if creates && number < 0 => elements.insert(0, value),
                None if creates => elements.push(value),
                None => {}
            }
        }
        _ => {}
    }
    Ok(document)
}

/// `jsonb_strip_nulls`: without members that are null, at all levels.
pub(crate) fn without_nulls(document: Document) -> Document {
    match document {
        Document::Object(members) => Document::Object(
            members
                .into_iter()
                .filter(|(_, value)| *value != Document::Null)
                .map(|(key, value)| (key, without_nulls(value)))
                .collect(),
        ),
        Document::Array(elements) => Document::Array(elements.into_iter().map(without_nulls).collect()),
        scalar => scalar,
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    #[test]
    fn a_containment_takes_no_more_steps_than_it_may() {
        // Answers of PostgreSQL 15.18.
        for (whole, part, expected) in [
            ("[1.0, \"a\", null, true]", "[null, true, 1, \"a\", 1.00]", true),
            ("[1, \"a\"]", "[1, \"b\"]", false),
            ("[1, [2, 3]]", "[[3.0]]", true),
            ("[1, [2, 3]]", "[3]", false),
            ("[\"1\", 10]", "[1, 10]", false),
            ("[{\"a\": 1, \"b\": [1, 2]}, 5]", "[5, {\"b\": [2, 1]}]", true),
            ("[\"a\", 1]", "\"a\"", true),
            ("[[\"a\"]]", "\"a\"", false),
            ("{}", "[]", false),
            ("[]", "[]", true),
        ] {
            let (whole, part) = (parse(whole).expect(whole), parse(part).expect(part));
            assert_eq!(contains(&whole, &part).expect("few steps"), expected, "{whole:?} @> {part:?}");
        }
        let array = |of: fn(usize) -> Document| Document::Array((0..1000).map(of).collect());
        let numbers = array(|number| Document::Number(number.to_string().into_boxed_str()));
        assert!(contains_within(&numbers, &numbers, &mut 3000).expect("each is looked up"));
        let nested = array(|number| Document::Array(vec![Document::Text(number.to_string())]));
        let refused = contains_within(&nested, &nested, &mut 3000).expect_err("each is compared with each");
        assert_eq!(refused.code(), "54000");
    }

    #[test]
    fn many_keys_are_found_and_deleted_as_one_is() {
        for text in ["[\"a\", 1, \"b\", [\"c\"]]", "{\"a\": 1, \"c\": 2}", "\"a\"", "1"] {
            let document = parse(text).expect(text);
            let finder = key_finder(&document);
            for key in ["a", "b", "c", "1", ""] {
                assert_eq!(finder(key), has_key(&document, key), "{text} ? {key}");
            }
        }
        let document = parse("[\"a\", 1, \"b\", \"a\"]").expect("it is one");
        let left = without_key(document, &["a", "x", "1"]).expect("it is an array");
        assert_eq!(left, parse("[1, \"b\"]").expect("it is one"));
    }
}
