//! Documents made of values of any type: `to_jsonb`, `jsonb_build_array`, `jsonb_build_object`, and the functions that `jsonb_agg` and
//! `jsonb_object_agg` become: `jsonb_pair` of a key and a value, and those of the list of all documents, whose parts are not made again.
//!
//! A number is a number if it is finite, a timestamp has a `T` between day and time, json is what it says; every other value is its text.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BinaryViewArray};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::error::Result as DfResult;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};
use datafusion::prelude::SessionContext;
use datafusion::scalar::ScalarValue;

use super::jsonb_functions::list_of_documents;
use super::pg_function::{PgFunction, no_function};
use crate::SqlError;
use crate::table::types::{JSONB, TYPE_KEY};
use crate::text;
use crate::text::jsonb::{self, Document};

/// Registers the functions.
pub(crate) fn register(context: &SessionContext) {
    for (name, build) in [
        ("to_jsonb", to_jsonb as Build),
        ("jsonb_build_array", build_array as Build),
        ("jsonb_build_object", build_object as Build),
        ("jsonb_pair", build_pair as Build),
    ] {
        let any = TypeSignature::OneOf(vec![TypeSignature::Nullary, TypeSignature::VariadicAny]);
        let signature = Signature::new(any, Volatility::Immutable);
        context.register_udf(ScalarUDF::from(Builder { name, build, signature }));
    }
    for function in [OF_LIST, OF_PAIRS] {
        context.register_udf(function.udf());
    }
}

type Build = fn(Vec<Document>) -> Result<Option<Document>, SqlError>;

fn to_jsonb(values: Vec<Document>) -> Result<Option<Document>, SqlError> {
    match <[Document; 1]>::try_from(values) {
        Ok([value]) => Ok(Some(value)),
        Err(_) => Err(SqlError::statement("42883", "to_jsonb takes one value")),
    }
}

fn build_array(values: Vec<Document>) -> Result<Option<Document>, SqlError> {
    Ok(Some(Document::Array(values)))
}

fn build_object(values: Vec<Document>) -> Result<Option<Document>, SqlError> {
    if values.len() % 2 == 1 {
        return Err(SqlError::value("22023", "argument list must have even number of elements")
            .with_hint("The arguments of jsonb_build_object() must consist of alternating keys and values."));
    }
    let mut members = Vec::with_capacity(values.len() / 2);
    let mut values = values.into_iter();
    while let (Some(key), Some(value)) = (values.next(), values.next()) {
        let at = 2 * members.len() + 1;
        let no_key = || SqlError::value("22023", format!("argument {at}: key must not be null"));
        members.push((key_of(key)?.ok_or_else(no_key)?, value));
    }
    Ok(Some(Document::object(members)))
}

/// A key as text and a value. What is no key stays as it is: a filter may be asked later whether it is used.
fn build_pair(values: Vec<Document>) -> Result<Option<Document>, SqlError> {
    let Ok([key, value]) = <[Document; 2]>::try_from(values) else {
        return Err(SqlError::statement("42883", "jsonb_object_agg takes a key and a value"));
    };
    let key = match key.is_scalar() {
        true => key.plain()?.map_or(Document::Null, Document::Text),
        false => key,
    };
    Ok(Some(Document::Array(vec![key, value])))
}

/// The key that a value is; `None` for null. Errors: 22023 for what is no single value.
fn key_of(value: Document) -> Result<Option<String>, SqlError> {
    match value.is_scalar() {
        true => value.plain(),
        false => Err(SqlError::value("22023", "key value must be scalar, not array, composite, or json")),
    }
}

/// Takes a value's text out of the room of its row. Errors: 54000.
fn within(value: Document, room: &mut usize) -> Result<Document, SqlError> {
    *room = value.room_left(*room).ok_or_else(jsonb::too_large)?;
    Ok(value)
}

/// The values of a column as parts of documents, whose texts together have this room: no more of them are made than fit. Errors: 54000.
fn parts(array: &ArrayRef, field: &Field, room: &mut usize) -> Result<Vec<Document>, SqlError> {
    // Each has a letter at least.
    if array.len() > *room {
        return Err(jsonb::too_large());
    }
    let kind = array.data_type();
    if *kind == JSONB {
        let each = array.as_binary_view().iter();
        return each.map(|bytes| within(bytes.map_or(Ok(Document::Null), jsonb::decode)?, room)).collect();
    }
    match kind {
        DataType::Null => return vec![Document::Null; array.len()].into_iter().map(|it| within(it, room)).collect(),
        DataType::Boolean => {
            let each = array.as_boolean().iter().map(|value| value.map_or(Document::Null, Document::Boolean));
            return each.map(|value| within(value, room)).collect();
        }
        DataType::List(item) => {
            let lists = array.as_list::<i32>();
            let mut all = Vec::with_capacity(lists.len());
            for items in lists.iter() {
                all.push(match items {
                    Some(items) => {
                        // Brackets; a comma and a blank for each.
                        *room = room.checked_sub(2 + 2 * items.len()).ok_or_else(jsonb::too_large)?;
                        Document::Array(parts(&items, item, room)?)
                    }
                    None => within(Document::Null, room)?,
                });
            }
            return Ok(all);
        }
        kind if kind.is_nested() => return Err(SqlError::unsupported(format!("a value of type {kind} in jsonb"))),
        _ => {}
    }
    let texts = cast(&text::write(array)?, &DataType::Utf8View)?;
    let is_json = is_json(field);
    let part = |text: &str| match kind {
        _ if is_json => jsonb::parse(text),
        kind if kind.is_numeric() && jsonb::is_number(text) => jsonb::number(text),
        DataType::Timestamp(_, zone) => {
            let end = if zone.is_some() { ":00" } else { "" };
            Ok(Document::Text(format!("{}{end}", text.replacen(' ', "T", 1))))
        }
        _ => Ok(Document::Text(text.to_owned())),
    };
    let each = texts.as_string_view().iter();
    each.map(|text| within(text.map_or(Ok(Document::Null), &part)?, room)).collect()
}

/// Whether a value may take much more memory as a document than in its column: such values are read one by one.
fn grows(kind: &DataType, field: &Field) -> bool {
    *kind == JSONB || kind.is_nested() || is_json(field)
}

/// Whether a text is json, by its field.
pub(crate) fn is_json(field: &Field) -> bool {
    field.metadata().get(TYPE_KEY).is_some_and(|name| name == "json")
}

/// An argument of all rows.
struct Column<'a> {
    values: ArrayRef,
    field: &'a Field,
    /// The documents of all rows, if they are no larger than the values.
    made: Option<std::vec::IntoIter<Document>>,
    /// NULL of `to_jsonb` is no document.
    nulls: Option<NullBuffer>,
    /// Values of json and jsonb are no keys, not even texts.
    is_no_key: bool,
}

impl Column<'_> {
    fn of(values: ArrayRef, field: &Field, finds_nulls: bool, is_key: bool) -> Result<Column<'_>, SqlError> {
        // The room is that of each row: see `document`.
        let mut of_all = usize::MAX;
        let made = match grows(values.data_type(), field) {
            true => None,
            false => Some(parts(&values, field, &mut of_all)?.into_iter()),
        };
        let nulls = values.logical_nulls().filter(|_| finds_nulls);
        let is_no_key = is_key && (*values.data_type() == JSONB || is_json(field));
        Ok(Column { values, field, made, nulls, is_no_key })
    }

    fn is_null(&self, row: usize) -> bool {
        self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row))
    }

    /// The document of a row; each is asked for once, in their order. Errors: 54000 if there is no room for its text.
    fn document(&mut self, row: usize, room: &mut usize) -> Result<Document, SqlError> {
        if self.is_no_key && self.values.is_valid(row) {
            return Ok(Document::Array(Vec::new()));
        }
        Ok(match &mut self.made {
            Some(made) => within(made.next().unwrap_or(Document::Null), room)?,
            None => parts(&self.values.slice(row, 1), self.field, room)?.pop().unwrap_or(Document::Null),
        })
    }
}

/// A function of any number of values of any type.
#[derive(Debug)]
struct Builder {
    name: &'static str,
    build: Build,
    signature: Signature,
}

// Each name has only one function.
impl PartialEq for Builder {
    fn eq(&self, other: &Builder) -> bool {
        self.name == other.name
    }
}

impl Eq for Builder {}

impl Hash for Builder {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for Builder {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(JSONB)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let alone = arguments.args.iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let rows = if alone { 1 } else { arguments.number_rows };
        let mut columns = Vec::with_capacity(arguments.args.len());
        for (at, (value, field)) in arguments.args.iter().zip(&arguments.arg_fields).enumerate() {
            let values = value.to_array(rows)?;
            let is_key = match self.name {
                "jsonb_build_object" => at % 2 == 0,
                "jsonb_pair" => at == 0,
                _ => false,
            };
            columns.push(Column::of(values, field, self.name == "to_jsonb", is_key)?);
        }
        let mut made = Vec::with_capacity(rows);
        for row in 0..rows {
            let is_null = columns.iter().any(|column| column.is_null(row));
            let mut room = jsonb::BYTES_MAX;
            let values = columns.iter_mut().map(|column| column.document(row, &mut room));
            let values = values.collect::<Result<Vec<_>, SqlError>>()?;
            made.push(match is_null {
                true => None,
                false => (self.build)(values)?.map(|document| jsonb::encode(&document)).transpose()?,
            });
        }
        let made: ArrayRef = Arc::new(made.into_iter().collect::<BinaryViewArray>());
        Ok(match alone {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&made, 0)?),
            false => ColumnarValue::Array(made),
        })
    }
}

fn list_type(name: &str, types: &[DataType]) -> Result<Vec<DataType>, SqlError> {
    match types {
        [DataType::List(_)] => Ok(vec![DataType::List(list_of_documents())]),
        _ => Err(no_function(name, types)),
    }
}

/// A document of each list of documents.
fn of_lists(
    arrays: &[ArrayRef],
    of: impl Fn(&BinaryViewArray) -> Result<Vec<u8>, SqlError>,
) -> Result<ArrayRef, SqlError> {
    let lists = arrays[0].as_list::<i32>().iter();
    let each = lists.map(|list| list.map(|list| of(list.as_binary_view())).transpose());
    Ok(Arc::new(each.collect::<Result<BinaryViewArray, SqlError>>()?))
}

/// The end of `jsonb_agg`.
const OF_LIST: PgFunction = PgFunction {
    name: "jsonb_of_list",
    wants: |types| list_type("jsonb_agg", types),
    gives: |_| Ok(JSONB),
    run: |arrays, _| of_lists(arrays, |list| jsonb::joined_array(list.iter())),
    between: None,
};

/// The end of `jsonb_object_agg`.
const OF_PAIRS: PgFunction = PgFunction {
    name: "jsonb_of_pairs",
    wants: |types| list_type("jsonb_object_agg", types),
    gives: |_| Ok(JSONB),
    run: |arrays, _| of_lists(arrays, |list| jsonb::joined_object(list.iter())),
    between: None,
};
