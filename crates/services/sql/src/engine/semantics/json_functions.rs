//! Operators and functions of json: `->`, `->>`, `#>`, `#>>` with a constant path, `::json`, `json_array_length`, `json_typeof`,
//! `json_extract_path`, `json_extract_path_text`.
//!
//! Json is text with the name of its type in the field's metadata, so that clients are told `json`. A function cannot tell it from other text:
//! each checks its argument.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int32Array, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::error::Result as DfResult;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::prelude::SessionContext;

use super::jsonb_functions;
use super::pg_function::{PgFunction, no_function};
use super::rows::{ArgumentRow, each, is_text, wanted};
use crate::SqlError;
use crate::table::types::{JSONB, TYPE_KEY};
use crate::text::json_text;

fn text(name: &'static str, wants: Wants, run: Run) -> PgFunction {
    PgFunction { name, wants, gives: |_| Ok(DataType::Utf8), run, between: None }
}

type Wants = fn(&[DataType]) -> Result<Vec<DataType>, SqlError>;
type Run = fn(&[ArrayRef], &DataType) -> Result<ArrayRef, SqlError>;

/// Registers the functions.
pub(crate) fn register(context: &SessionContext) {
    let json = [
        text(
            "json_of",
            |types| wanted("json", "t", types),
            |arrays, _| values(arrays, |row| Ok(Some(row.text(0).into()))),
        ),
        text("json_get", key, |arrays, gives| match jsonb_functions::is_document(arrays) {
            true => jsonb_functions::member(arrays, gives),
            false => values(arrays, |row| Ok(got(&row).map(str::to_owned))),
        }),
        text("json_extract_path", path, part_at),
        text("json_whole", whole, part_at),
    ];
    for meant in json {
        context.register_udf(ScalarUDF::from(JsonCall {
            meant,
            signature: Signature::user_defined(Volatility::Immutable),
        }));
    }
    let others = [
        text("json_get_text", key, |arrays, gives| match jsonb_functions::is_document(arrays) {
            true => jsonb_functions::member(arrays, gives),
            false => values(arrays, |row| got(&row).map_or(Ok(None), json_text::plain)),
        }),
        text("json_extract_path_text", path, text_at),
        text("json_whole_text", whole, text_at),
        text(
            "json_typeof",
            |types| wanted("json_typeof", "t", types),
            |arrays, _| values(arrays, |row| Ok(Some(json_text::kind(row.text(0)).into()))),
        ),
        PgFunction {
            name: "json_array_length",
            wants: |types| wanted("json_array_length", "t", types),
            gives: |_| Ok(DataType::Int32),
            run: |arrays, _| Ok(Arc::new(each::<i32, Int32Array>(arrays, |row| length(row.text(0)).map(Some))?)),
            between: None,
        },
    ];
    for function in others {
        context.register_udf(function.udf());
    }
}

/// A json and a key, or the number of an element.
fn key(types: &[DataType]) -> Result<Vec<DataType>, SqlError> {
    match types {
        [json, key] if *json == JSONB && key.is_integer() => Ok(vec![JSONB, DataType::Int64]),
        [json, key] if *json == JSONB && is_text(key) => Ok(vec![JSONB, DataType::Utf8]),
        [json, key] if is_text(json) && key.is_integer() => Ok(vec![DataType::Utf8, DataType::Int64]),
        [json, key] if is_text(json) && is_text(key) => Ok(vec![DataType::Utf8; 2]),
        _ => Err(no_function("->", types)),
    }
}

fn path(types: &[DataType]) -> Result<Vec<DataType>, SqlError> {
    match types {
        [json, steps @ ..] if !steps.is_empty() && steps.iter().all(is_text) && (is_text(json) || *json == JSONB) => {
            let json = if *json == JSONB { JSONB } else { DataType::Utf8 };
            Ok(std::iter::once(json).chain(steps.iter().map(|_| DataType::Utf8)).collect())
        }
        _ => Err(no_function("json_extract_path", types)),
    }
}

/// The json that an empty path leads to: functions of paths have one step at least.
fn whole(types: &[DataType]) -> Result<Vec<DataType>, SqlError> {
    match types {
        [json] if *json == JSONB => Ok(vec![JSONB]),
        [json] if is_text(json) => Ok(vec![DataType::Utf8]),
        _ => Err(no_function("#>", types)),
    }
}

/// The result of each row. The first argument is json.
fn values(
    arrays: &[ArrayRef],
    of: impl Fn(ArgumentRow<'_>) -> Result<Option<String>, SqlError>,
) -> Result<ArrayRef, SqlError> {
    let found = each::<String, StringArray>(arrays, |row| {
        json_text::check(row.text(0))?;
        of(row)
    })?;
    Ok(Arc::new(found))
}

fn got<'a>(row: &ArgumentRow<'a>) -> Option<&'a str> {
    match row.is_text(1) {
        true => json_text::member(row.text(0), row.text(1)),
        false => json_text::element(row.text(0), row.int(1)),
    }
}

fn at_path<'a>(row: &ArgumentRow<'a>) -> Option<&'a str> {
    let steps: Vec<&str> = (1..row.width()).map(|at| row.text(at)).collect();
    json_text::at_path(row.text(0), &steps)
}

fn part_at(arrays: &[ArrayRef], gives: &DataType) -> Result<ArrayRef, SqlError> {
    match jsonb_functions::is_document(arrays) {
        true => jsonb_functions::at_path(arrays, gives),
        false => values(arrays, |row| Ok(at_path(&row).map(str::to_owned))),
    }
}

fn text_at(arrays: &[ArrayRef], gives: &DataType) -> Result<ArrayRef, SqlError> {
    match jsonb_functions::is_document(arrays) {
        true => jsonb_functions::at_path(arrays, gives),
        false => values(arrays, |row| at_path(&row).map_or(Ok(None), json_text::plain)),
    }
}

fn length(text: &str) -> Result<i32, SqlError> {
    json_text::check(text)?;
    let wrong = |what: &str| SqlError::value("22023", format!("cannot get array length of a {what}"));
    match json_text::elements(text) {
        Some(all) => i32::try_from(all.len()).map_err(|_| wrong("value that is too long")),
        None => Err(wrong(if json_text::kind(text) == "object" { "non-array" } else { "scalar" })),
    }
}

/// A function whose result is json.
#[derive(Debug)]
struct JsonCall {
    meant: PgFunction,
    signature: Signature,
}

// Each name has only one function.
impl PartialEq for JsonCall {
    fn eq(&self, other: &JsonCall) -> bool {
        self.meant.name == other.meant.name
    }
}

impl Eq for JsonCall {}

impl std::hash::Hash for JsonCall {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.meant.name.hash(state);
    }
}

impl ScalarUDFImpl for JsonCall {
    fn name(&self) -> &str {
        self.meant.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> DfResult<Vec<DataType>> {
        Ok((self.meant.wants)(arguments)?)
    }

    fn return_type(&self, arguments: &[DataType]) -> DfResult<DataType> {
        Ok(if arguments.first() == Some(&JSONB) { JSONB } else { DataType::Utf8 })
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DfResult<FieldRef> {
        if args.arg_fields.first().is_some_and(|field| *field.data_type() == JSONB) {
            return Ok(Arc::new(Field::new(self.name(), JSONB, true)));
        }
        let metadata = HashMap::from([(TYPE_KEY.to_owned(), "json".to_owned())]);
        Ok(Arc::new(Field::new(self.name(), DataType::Utf8, true).with_metadata(metadata)))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        self.meant.invoke(&arguments)
    }
}
