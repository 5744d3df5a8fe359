//! What PostgreSQL's operators make of documents.

use super::{Document, place};
use crate::SqlError;

fn refused(what: &str) -> SqlError {
    SqlError::value("22023", what)
}

/// Whether two values without parts are equal; zeros at the end of a number are not compared.
fn same(one: &Document, other: &Document) -> bool {
    match (one, other) {
        (Document::Number(one), Document::Number(other)) => {
            let trimmed = |number: &str| match number.contains('.') {
                true => number.trim_end_matches('0').trim_end_matches('.').to_owned(),
                false => number.to_owned(),
            };
            let (one, other) = (trimmed(one), trimmed(other));
            one == other
        }
        (one, other) => one == other,
    }
}

/// `whole @> part`.
pub(crate) fn contains(whole: &Document, part: &Document) -> bool {
    match (whole, part) {
        (Document::Array(elements), scalar) if scalar.is_scalar() => {
            elements.iter().any(|element| same(element, scalar))
        }
        (whole, part) => contains_part(whole, part),
    }
}

fn contains_part(whole: &Document, part: &Document) -> bool {
    match (whole, part) {
        (Document::Object(_), Document::Object(members)) => {
            members.iter().all(|(key, value)| whole.member(key).is_some_and(|found| contains_part(found, value)))
        }
        (Document::Array(elements), Document::Array(parts)) => {
            parts.iter().all(|part| elements.iter().any(|element| contains_part(element, part)))
        }
        (one, other) => one.is_scalar() && same(one, other),
    }
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
    let is_gone = |name: &str| keys.contains(&name);
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
    step.trim().parse::<i32>().map(i64::from).map_err(|_| {
        SqlError::value("22P02", format!("path element at position {position} is not an integer: \"{step}\""))
    })
}

/// `document #- path`. Errors: 22023, 22P02.
pub(crate) fn without_path(mut document: Document, path: &[&str]) -> Result<Document, SqlError> {
    if document.is_scalar() {
        return Err(refused("cannot delete path in scalar"));
    }
    let Some((last, above)) = path.split_last() else { return Ok(document) };
    let mut part = &mut document;
    for (at, step) in above.iter().enumerate() {
        match step_into(part, step, at + 1)? {
            Some(inner) => part = inner,
            None => return Ok(document),
        }
    }
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
    let mut part = &mut document;
    for (at, step) in above.iter().enumerate() {
        match step_into(part, step, at + 1)? {
            Some(inner) => part = inner,
            None => return Ok(document),
        }
    }
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
