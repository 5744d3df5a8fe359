//! Functions of jsonb, and those that its operators become: see [`own_types`](super::own_types).
//!
//! `->`, `->>`, `#>` and `#>>` are those of json (`json_functions`), which come here for documents. An array of text may also be given as a quoted
//! literal, `'{a,b}'`, whose type is open.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BinaryViewArray, BooleanArray, Int32Array, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::prelude::SessionContext;

use super::pg_function::{PgFunction, no_function};
use super::rows::{ArgumentRow, each, is_text};
use crate::SqlError;
use crate::table::types::JSONB;
use crate::text::array_text;
use crate::text::jsonb::{self, Document};

/// Registers the functions.
pub(crate) fn register(context: &SessionContext) {
    CALLED.iter().for_each(|function| context.register_udf(function.udf()));
}

fn texts() -> DataType {
    DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true)))
}

/// The types of arguments by a letter each: `j` a document, `t` a text, `p` an array of text, `b` a truth value.
fn wanted(name: &str, letters: &str, types: &[DataType]) -> Result<Vec<DataType>, SqlError> {
    if types.len() != letters.len() {
        return Err(no_function(name, types));
    }
    let each = types.iter().zip(letters.chars()).map(|(kind, letter)| match letter {
        'j' if *kind == JSONB || is_text(kind) => Some(JSONB),
        't' if is_text(kind) => Some(DataType::Utf8),
        'p' if is_text(kind) => Some(DataType::Utf8),
        'p' if matches!(kind, DataType::List(_)) => Some(texts()),
        'b' if matches!(kind, DataType::Boolean | DataType::Null) => Some(DataType::Boolean),
        _ => None,
    });
    each.collect::<Option<Vec<_>>>().ok_or_else(|| no_function(name, types))
}

/// A document of each row.
fn documents(
    arrays: &[ArrayRef],
    of: impl Fn(&ArgumentRow<'_>) -> Result<Option<Document>, SqlError>,
) -> Result<ArrayRef, SqlError> {
    let made = each::<Vec<u8>, BinaryViewArray>(arrays, |row| of(&row)?.map(|it| jsonb::encode(&it)).transpose())?;
    Ok(Arc::new(made))
}

fn flags(arrays: &[ArrayRef], of: impl Fn(&ArgumentRow<'_>) -> Result<bool, SqlError>) -> Result<ArrayRef, SqlError> {
    Ok(Arc::new(each::<bool, BooleanArray>(arrays, |row| of(&row).map(Some))?))
}

/// The texts of an array. Errors: 22P02.
fn steps(row: &ArgumentRow<'_>, at: usize) -> Result<Vec<Option<String>>, SqlError> {
    if row.is_text(at) {
        let text = row.text(at);
        let wrong = || SqlError::value("22P02", format!("malformed array literal: \"{text}\""));
        return array_text::parse(text).ok_or_else(wrong);
    }
    Ok(row.list(at).as_string::<i32>().iter().map(|text| text.map(str::to_owned)).collect())
}

/// The steps of a path. Errors: 22004.
fn path(row: &ArgumentRow<'_>, at: usize) -> Result<Vec<String>, SqlError> {
    let each = steps(row, at)?.into_iter().enumerate();
    each.map(|(at, step)| {
        step.ok_or_else(|| SqlError::value("22004", format!("path element at position {} is null", at + 1)))
    })
    .collect()
}

fn as_strs(texts: &[String]) -> Vec<&str> {
    texts.iter().map(String::as_str).collect()
}

/// Whether the first argument is a document, and not json.
pub(crate) fn is_document(arrays: &[ArrayRef]) -> bool {
    arrays.first().is_some_and(|array| *array.data_type() == JSONB)
}

type Find = for<'d> fn(&'d Document, &ArgumentRow<'_>) -> Option<&'d Document>;

fn part(arrays: &[ArrayRef], gives: &DataType, find: Find) -> Result<ArrayRef, SqlError> {
    if *gives == JSONB {
        return documents(arrays, |row| Ok(find(&row.document(0)?, row).cloned()));
    }
    let plain = |row: ArgumentRow<'_>| match find(&row.document(0)?, &row) {
        Some(found) => found.plain(),
        None => Ok(None),
    };
    Ok(Arc::new(each::<String, StringArray>(arrays, plain)?))
}

/// `doc -> key`, `doc ->> key`.
pub(crate) fn member(arrays: &[ArrayRef], gives: &DataType) -> Result<ArrayRef, SqlError> {
    part(arrays, gives, |document, row| match row.is_text(1) {
        true => document.member(row.text(1)),
        false => document.element(row.int(1)),
    })
}

/// `doc #> path`, `doc #>> path`, where each step is an argument.
pub(crate) fn at_path(arrays: &[ArrayRef], gives: &DataType) -> Result<ArrayRef, SqlError> {
    part(arrays, gives, |document, row| {
        let steps: Vec<&str> = (1..row.width()).map(|at| row.text(at)).collect();
        document.at(&steps)
    })
}

fn path_types(types: &[DataType]) -> Result<Vec<DataType>, SqlError> {
    match types {
        [json, steps @ ..] if !steps.is_empty() && (*json == JSONB || is_text(json)) && steps.iter().all(is_text) => {
            Ok(std::iter::once(JSONB).chain(steps.iter().map(|_| DataType::Utf8)).collect())
        }
        _ => Err(no_function("jsonb_extract_path", types)),
    }
}

/// `one || other`.
pub(crate) const CONCAT: PgFunction = PgFunction {
    name: "jsonb_concat",
    wants: |types| wanted("jsonb_concat", "jj", types),
    gives: |_| Ok(JSONB),
    run: |arrays, _| documents(arrays, |row| Ok(Some(jsonb::concatenated(row.document(0)?, row.document(1)?)))),
    between: Some(" || "),
};

/// `whole @> part`.
pub(crate) const CONTAINS: PgFunction = PgFunction {
    name: "jsonb_contains",
    wants: |types| wanted("jsonb_contains", "jj", types),
    gives: |_| Ok(DataType::Boolean),
    run: |arrays, _| flags(arrays, |row| jsonb::contains(&row.document(0)?, &row.document(1)?)),
    between: Some(" @> "),
};

/// `document - key`.
pub(crate) const DELETE: PgFunction = PgFunction {
    name: "jsonb_delete",
    wants: |types| match types {
        [json, number] if *json == JSONB && number.is_integer() => Ok(vec![JSONB, DataType::Int64]),
        [_, DataType::List(_)] => wanted("jsonb_delete", "jp", types),
        _ => wanted("jsonb_delete", "jt", types),
    },
    gives: |_| Ok(JSONB),
    run: |arrays, _| {
        let is_number = *arrays[1].data_type() == DataType::Int64;
        documents(arrays, |row| {
            let document = row.document(0)?;
            if is_number {
                return jsonb::without_place(document, row.int(1)).map(Some);
            }
            if row.is_text(1) {
                return jsonb::without_key(document, &[row.text(1)]).map(Some);
            }
            let keys: Vec<String> = steps(row, 1)?.into_iter().flatten().collect();
            jsonb::without_key(document, &as_strs(&keys)).map(Some)
        })
    },
    between: Some(" - "),
};

/// What is compared of a document: `1.0` is `1`.
pub(crate) const COMPARED: PgFunction = PgFunction {
    name: "jsonb_compared",
    wants: |types| wanted("jsonb_compared", "j", types),
    gives: |_| Ok(JSONB),
    run: |arrays, _| {
        let compared = |bytes: Option<&[u8]>| bytes.map(|bytes| jsonb::compared(bytes).map(<[u8]>::to_vec)).transpose();
        let made = arrays[0].as_binary_view().iter().map(compared);
        Ok(Arc::new(made.collect::<Result<BinaryViewArray, SqlError>>()?))
    },
    between: Some(""),
};

/// The functions that can be called by name.
const CALLED: &[PgFunction] = &[
    CONCAT,
    CONTAINS,
    DELETE,
    COMPARED,
    PgFunction {
        name: "jsonb_exists",
        wants: |types| wanted("jsonb_exists", "jt", types),
        gives: |_| Ok(DataType::Boolean),
        run: |arrays, _| flags(arrays, |row| Ok(jsonb::has_key(&row.document(0)?, row.text(1)))),
        between: Some(" ? "),
    },
    PgFunction {
        name: "jsonb_exists_any",
        wants: |types| wanted("jsonb_exists_any", "jp", types),
        gives: |_| Ok(DataType::Boolean),
        run: |arrays, _| {
            flags(arrays, |row| {
                let (document, keys) = (row.document(0)?, steps(row, 1)?);
                let has = jsonb::key_finder(&document);
                let any = keys.iter().flatten().any(|key| has(key.as_str()));
                Ok(any)
            })
        },
        between: Some(" ?| "),
    },
    PgFunction {
        name: "jsonb_exists_all",
        wants: |types| wanted("jsonb_exists_all", "jp", types),
        gives: |_| Ok(DataType::Boolean),
        run: |arrays, _| {
            flags(arrays, |row| {
                let (document, keys) = (row.document(0)?, steps(row, 1)?);
                let has = jsonb::key_finder(&document);
                let all = keys.iter().flatten().all(|key| has(key.as_str()));
                Ok(all)
            })
        },
        between: Some(" ?& "),
    },
    PgFunction {
        name: "jsonb_delete_path",
        wants: |types| wanted("jsonb_delete_path", "jp", types),
        gives: |_| Ok(JSONB),
        run: |arrays, _| {
            documents(arrays, |row| jsonb::without_path(row.document(0)?, &as_strs(&path(row, 1)?)).map(Some))
        },
        between: Some(" #- "),
    },
    PgFunction {
        name: "jsonb_set",
        wants: |types| wanted("jsonb_set", if types.len() == 3 { "jpj" } else { "jpjb" }, types),
        gives: |_| Ok(JSONB),
        run: |arrays, _| {
            documents(arrays, |row| {
                let creates = row.width() < 4 || row.flag(3);
                jsonb::set_path(row.document(0)?, &as_strs(&path(row, 1)?), row.document(2)?, creates).map(Some)
            })
        },
        between: None,
    },
    PgFunction {
        name: "jsonb_strip_nulls",
        wants: |types| wanted("jsonb_strip_nulls", "j", types),
        gives: |_| Ok(JSONB),
        run: |arrays, _| documents(arrays, |row| Ok(Some(jsonb::without_nulls(row.document(0)?)))),
        between: None,
    },
    PgFunction {
        name: "jsonb_pretty",
        wants: |types| wanted("jsonb_pretty", "j", types),
        gives: |_| Ok(DataType::Utf8),
        run: |arrays, _| super::rows::texts(arrays, |row| row.document(0)?.pretty()),
        between: None,
    },
    PgFunction {
        name: "jsonb_typeof",
        wants: |types| wanted("jsonb_typeof", "j", types),
        gives: |_| Ok(DataType::Utf8),
        run: |arrays, _| super::rows::texts(arrays, |row| Ok(row.document(0)?.kind().to_owned())),
        between: None,
    },
    PgFunction {
        name: "jsonb_array_length",
        wants: |types| wanted("jsonb_array_length", "j", types),
        gives: |_| Ok(DataType::Int32),
        run: |arrays, _| Ok(Arc::new(each::<i32, Int32Array>(arrays, |row| length(&row.document(0)?).map(Some))?)),
        between: None,
    },
    PgFunction { name: "jsonb_extract_path", wants: path_types, gives: |_| Ok(JSONB), run: at_path, between: None },
    PgFunction {
        name: "jsonb_extract_path_text",
        wants: path_types,
        gives: |_| Ok(DataType::Utf8),
        run: at_path,
        between: None,
    },
];

fn length(document: &Document) -> Result<i32, SqlError> {
    let wrong = |what: &str| SqlError::value("22023", format!("cannot get array length of a {what}"));
    match document {
        Document::Array(elements) => Ok(elements.len() as i32),
        Document::Object(_) => Err(wrong("non-array")),
        _ => Err(wrong("scalar")),
    }
}

/// The field of a list of documents.
pub(super) fn list_of_documents() -> FieldRef {
    Arc::new(Field::new_list_field(JSONB, true))
}
