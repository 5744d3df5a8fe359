//! [`CallSize`]: how large the values of a function may become, and how many steps they may take, by its name and its arguments.
//!
//! ```text
//!   name, arguments --of--> bytes    of each row's value, which stay
//!                           steps    of each row, where they may be many
//!                           scratch  of the parts of documents, while one row's value is made
//! ```

use datafusion::arrow::array::AsArray;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::error::Result as DfResult;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs};

use super::value_lengths::{held, lengths};
use crate::SqlError;
use crate::engine::semantics::jsonb_builders::is_json;
use crate::engine::semantics::text_functions::format_sizes;
use crate::table::types::JSONB;
use crate::text::jsonb;

/// A function that returns its argument, and requests memory for its copies.
pub(super) const LARGE: &str = "large";

/// Smaller bounds are not examined: a batch of such values is small.
pub(super) const SMALL_BYTES: u128 = 1 << 20;

/// Most steps for one row, of a function whose steps exceed the number of characters: about a second's. Rows that take more together are
/// processed one after another, and the statement can be cancelled between them.
const STEPS_MAX: u128 = 1 << 29;

/// Steps for each byte of a document that is read, and for each comparison of a containment.
const DOCUMENT_STEPS: u128 = 16;

/// A document's text, and the same before it is copied into its column.
const WRITTEN: u128 = 2;

/// Most bytes for documents that become text at a time: Arrow's texts have no more than 2 GiB in one column of a batch.
pub(super) const DOCUMENTS_MAX: u128 = WRITTEN * i32::MAX as u128;

/// What a function makes of a document's parts beside them: a copy, or a table of them.
const PARTS: u128 = 2;

/// Most bytes of a document's parts for each of its bytes: a number of seven bytes may have a thousand digits.
const PARTS_OF_BYTE: u128 = 160;

/// The same for each byte of a list, without such numbers.
const PARTS_OF_ELEMENT: u128 = 64;

/// Most bytes of the parts of any document: the bytes of its text are bounded.
const PARTS_MAX: u128 = 256 << 20;

/// Bytes of the document of a list or an object of many values, which is as long as its text may be.
const JOINED_MAX: u128 = 8 * jsonb::BYTES_MAX as u128;

/// Bytes of the table of an object's keys, likewise: a key, its value's place, and their text of eight bytes.
const MEMBERS_MAX: u128 = 32 * jsonb::BYTES_MAX as u128;

/// What a call may take.
pub(super) struct CallSize {
    /// The most bytes of each row's value, or of one value if all rows share it; empty if they are small.
    bytes: Vec<u128>,
    /// The steps of each row; empty if they are few.
    steps: Vec<u128>,
    /// Bytes that are taken while a row's value is made, and given back.
    pub(super) scratch: u128,
}

impl CallSize {
    /// The size of a call. Errors: 54000 for too many steps.
    pub(super) fn of(name: &str, args: &ScalarFunctionArgs) -> DfResult<CallSize> {
        let scratch = scratch(name, args)?;
        let is_small = taken(args) <= SMALL_BYTES;
        let writes = writes_documents(name) && is_of_document(args);
        let of_documents: Bound = |row| DOCUMENT_STEPS * row.all_bytes();
        let reads_many = !is_small && args.args.iter().any(|value| value.data_type() == JSONB);
        // `[],` has five bytes.
        let of_text: Bound = |row| 2 * row.all_bytes();
        let reads_text = !is_small && name == "read_text" && *args.return_field.data_type() == JSONB;
        let bound = bound(name).or(reads_text.then_some(of_text));
        let steps = steps(name).or(reads_many.then_some(of_documents));
        if is_small && bound.or(steps).is_none() {
            let bytes = if writes { written(args, name == "jsonb_pretty")? } else { Vec::new() };
            return Ok(CallSize { bytes, steps: Vec::new(), scratch });
        }
        let mut arguments: Vec<Argument> = args.args.iter().map(argument).collect::<DfResult<_>>()?;
        if name == "format" {
            arguments.extend(of_template(args.args.first())?);
        }
        let each = arguments.iter().any(|argument| matches!(argument.values, Values::Each(_)));
        let rows = if each { args.number_rows } else { 1 };
        let row = |row| Row { arguments: &arguments, row };
        let steps: Vec<u128> = steps.map_or_else(Vec::new, |steps| (0..rows).map(|at| steps(&row(at))).collect());
        if name == "levenshtein" && steps.iter().any(|steps| *steps > STEPS_MAX) {
            let message = format!("{name} of texts that long takes too many steps");
            return Err(SqlError::statement("54000", message).into());
        }
        let bytes = match writes {
            true => written(args, name == "jsonb_pretty")?,
            false => {
                let bound = bound.unwrap_or(|row| row.all_bytes());
                (0..rows).map(|at| bound(&row(at))).collect()
            }
        };
        Ok(CallSize { bytes, steps, scratch })
    }

    /// The bytes of some rows.
    pub(super) fn bytes_of(&self, start: usize, rows: usize) -> u128 {
        self.bytes.iter().skip(start).take(rows).copied().fold(0, u128::saturating_add)
    }

    /// How many of some rows take no more than [`STEPS_MAX`] together; one at least.
    pub(super) fn rows_within_steps(&self, start: usize, rows: usize) -> usize {
        if self.steps.is_empty() {
            return rows;
        }
        let mut sum = 0_u128;
        let within = self.steps.iter().skip(start).take(rows).take_while(|steps| {
            sum = sum.saturating_add(**steps);
            sum <= STEPS_MAX
        });
        within.count().max(1)
    }
}

/// Whether a call of a function requests memory, whatever its arguments are.
pub(super) fn is_bounded(name: &str) -> bool {
    bound(name).or(steps(name)).is_some()
}

/// The largest number of bytes that a function makes of a row of arguments.
type Bound = fn(&Row<'_>) -> u128;

/// The bound of a function; `None` if its result is no larger than a few times its arguments.
fn bound(name: &str) -> Option<Bound> {
    Some(match name {
        "repeat" => |row| row.bytes(0) * row.count(1),
        // A character has at most four bytes.
        "lpad" | "rpad" => |row| row.bytes(0) + 4 * row.count(1),
        "replace" => |row| {
            let each = row.bytes(2).max(1);
            row.bytes(0) + row.bytes(0).div_ceil(row.bytes(1).max(1)) * each
        },
        // Each match may be replaced by all groups, of which each may be the whole text.
        "regexp_replace" => |row| {
            let matches = if row.bytes(3) > 0 { row.bytes(0) + 1 } else { 1 };
            let groups = row.bytes(2) / 2;
            row.bytes(0) + matches * row.bytes(2) + groups * row.bytes(0) * matches.min(row.bytes(0).isqrt() + 1)
        },
        LARGE => |row| row.bytes(0),
        // One copy of the arguments, if all rows share one, and the value.
        "||" => |row| 2 * row.all_bytes(),
        "concat" | "overlay" | "array_append" | "array_prepend" | "array_concat" | "make_array" => {
            |row| row.all_bytes()
        }
        // The last two are the fields of the template and the sum of their widths. A value in quotes is at most twice as long.
        "format" => |row| {
            let (fields, widths) = (row.arguments.len() - 2, row.arguments.len() - 1);
            let longest = (1..fields).map(|at| row.bytes(at)).max().unwrap_or(0);
            row.bytes(0) + row.count(fields) * (2 * longest + 3) + row.count(widths)
        },
        "concat_ws" => |row| row.all_bytes() + row.bytes(0) * row.width(),
        "translate" | "encode" | "upper" | "lower" | "initcap" | "reverse" | "quote_literal" | "quote_ident"
        | "quote_nullable" => |row| 4 * row.bytes(0),
        "string_to_array" | "regexp_split_to_array" => |row| 24 * row.bytes(0),
        // They are made of the bytes of their parts, whose numbers may get two more each.
        "jsonb_of_list" => |row| (2 * row.bytes(0)).min(JOINED_MAX),
        // With a table of the keys: a pair has 25 bytes at least.
        "jsonb_of_pairs" => |row| (8 * row.bytes(0)).min(JOINED_MAX + MEMBERS_MAX),
        // A number of four bytes takes up to sixteen, and one `{` of json eleven.
        "to_jsonb" | "jsonb_build_array" | "jsonb_build_object" | "jsonb_pair" => |row| 4 * row.all_bytes(),
        "array_to_string" => |row| row.bytes(0) * (1 + row.bytes(1)),
        "array_repeat" => |row| row.bytes(0).max(8) * row.count(1),
        "array_resize" => |row| row.bytes(0) + row.bytes(2).max(8) * row.count(1),
        "range" | "generate_series" => |row| match row.width() {
            1 => 8 * row.count(0),
            _ => 8 * row.number(1).abs_diff(row.number(0)) as u128 / u128::from(row.number(2).unsigned_abs().max(1)),
        },
        _ => return None,
    })
}

/// Whether a function makes text of a document.
pub(super) fn writes_documents(name: &str) -> bool {
    let of_parts = matches!(name, "json_get_text" | "json_extract_path_text" | "jsonb_extract_path_text");
    of_parts || matches!(name, "text_of" | "jsonb_pretty" | "json_whole_text")
}

/// Whether a call's first argument is a document.
pub(super) fn is_of_document(args: &ScalarFunctionArgs) -> bool {
    args.args.first().is_some_and(|value| value.data_type() == JSONB)
}

/// The most bytes for the text of each row's document, or for one if all rows share it.
fn written(args: &ScalarFunctionArgs, is_pretty: bool) -> DfResult<Vec<u128>> {
    let most = |bytes: Option<&[u8]>| -> u128 {
        // Of damaged bytes no text is made.
        bytes.map_or(0, |bytes| WRITTEN * jsonb::written_at_most(bytes, is_pretty).unwrap_or(0) as u128)
    };
    Ok(match args.args.first() {
        Some(ColumnarValue::Array(array)) => array.as_binary_view().iter().map(most).collect(),
        Some(ColumnarValue::Scalar(value)) => {
            let one = value.to_array()?;
            let rows = if are_shared(args) { 1 } else { args.number_rows };
            vec![most(one.as_binary_view().iter().next().flatten()); rows]
        }
        None => Vec::new(),
    })
}

/// Whether all rows share all arguments.
pub(super) fn are_shared(args: &ScalarFunctionArgs) -> bool {
    args.args.iter().all(|value| matches!(value, ColumnarValue::Scalar(_)))
}

/// The steps of a function whose steps exceed the number of characters; `None` for others.
fn steps(name: &str) -> Option<Bound> {
    Some(match name {
        "levenshtein" => |row| row.bytes(0) * row.bytes(1),
        "jsonb_contains" => |row| {
            let compared = (row.bytes(0) * row.bytes(1)).min(jsonb::CONTAINMENT_STEPS_MAX as u128);
            DOCUMENT_STEPS * (row.all_bytes() + compared)
        },
        _ => return None,
    })
}

/// One row of arguments.
struct Row<'a> {
    arguments: &'a [Argument],
    row: usize,
}

/// An argument: numbers, or the sizes of texts and lists in bytes.
struct Argument {
    is_number: bool,
    values: Values,
}

enum Values {
    One(i64),
    Each(Vec<i64>),
}

impl Row<'_> {
    /// A number, 0 if there is none, or the bytes of a text or list.
    fn number(&self, at: usize) -> i64 {
        match self.arguments.get(at).map(|argument| &argument.values) {
            None => 0,
            Some(Values::One(number)) => *number,
            Some(Values::Each(numbers)) => numbers[self.row],
        }
    }

    fn count(&self, at: usize) -> u128 {
        u128::try_from(self.number(at)).unwrap_or(0)
    }

    fn bytes(&self, at: usize) -> u128 {
        match self.arguments.get(at) {
            Some(Argument { is_number: true, .. }) => 8,
            _ => self.count(at),
        }
    }

    fn width(&self) -> u128 {
        self.arguments.len() as u128
    }

    fn all_bytes(&self) -> u128 {
        (0..self.arguments.len()).map(|at| self.bytes(at)).sum()
    }
}

/// The size of the arguments, each as a column of its own: a view counts with what it refers to.
fn taken(args: &ScalarFunctionArgs) -> u128 {
    let of = |value: &ColumnarValue| match value {
        ColumnarValue::Array(array) => held(array.as_ref()),
        ColumnarValue::Scalar(value) => {
            let one = match value {
                ScalarValue::List(list) => held(&**list),
                value => value.size() as u128,
            };
            one.saturating_mul(args.number_rows as u128)
        }
    };
    args.args.iter().map(of).fold(0, u128::saturating_add)
}

/// Bytes for the parts of the largest documents of a call: of those that it reads, and of those that it makes of other values.
fn scratch(name: &str, args: &ScalarFunctionArgs) -> DfResult<u128> {
    let makes_documents = *args.return_field.data_type() == JSONB;
    let mut all = 0_u128;
    for (value, field) in args.args.iter().zip(&args.arg_fields) {
        let kind = value.data_type();
        let most = if kind == JSONB {
            largest_document(value)
        } else if !makes_documents || matches!(name, "jsonb_of_list" | "jsonb_of_pairs") {
            0
        } else if kind.is_string() && (name == "read_text" || is_json(field)) {
            largest_text(value)?
        } else if kind.is_nested() {
            let longest = longest(value)?;
            let digits = longest.saturating_mul(PARTS_OF_BYTE).min(jsonb::BYTES_MAX as u128);
            longest.saturating_mul(PARTS_OF_ELEMENT).saturating_add(digits).min(PARTS_MAX)
        } else {
            0
        };
        all = all.saturating_add(if most > SMALL_BYTES { PARTS * most } else { 0 });
    }
    Ok(all)
}

/// Bytes of the longest value.
fn longest(value: &ColumnarValue) -> DfResult<u128> {
    let Argument { values, .. } = argument(value)?;
    let longest = match values {
        Values::One(bytes) => bytes,
        Values::Each(all) => all.into_iter().max().unwrap_or(0),
    };
    Ok(u128::try_from(longest).unwrap_or(0))
}

/// Bytes of the parts of the largest document; 0 if it is small.
fn largest_document(value: &ColumnarValue) -> u128 {
    let of = |bytes: &[u8]| match bytes.len() as u128 * PARTS_OF_BYTE > SMALL_BYTES {
        // Damaged bytes have no parts.
        true => jsonb::parts_at_most(bytes).unwrap_or(0) as u128,
        false => 0,
    };
    match value {
        ColumnarValue::Array(array) => array.as_binary_view().iter().flatten().map(of).max().unwrap_or(0),
        ColumnarValue::Scalar(ScalarValue::BinaryView(Some(bytes))) => of(bytes.as_slice()),
        ColumnarValue::Scalar(_) => 0,
    }
}

/// Bytes of the parts of the largest document that is read from a text; 0 if it is small.
fn largest_text(value: &ColumnarValue) -> DfResult<u128> {
    let of = |text: &str| jsonb::parts_of_text_at_most(text) as u128;
    Ok(match value {
        ColumnarValue::Array(array) => {
            let texts = cast(array, &DataType::Utf8View)?;
            texts.as_string_view().iter().flatten().map(of).max().unwrap_or(0)
        }
        ColumnarValue::Scalar(value) => value.try_as_str().flatten().map_or(0, of),
    })
}

/// The property of an argument that bounds the function's result.
fn argument(value: &ColumnarValue) -> DfResult<Argument> {
    let is_number = value.data_type().is_integer();
    let values = match value {
        ColumnarValue::Scalar(value) => Values::One(match value.try_as_str() {
            // This does not copy the text.
            Some(text) => text.map_or(0, |text| text.len() as i64),
            None => lengths(&value.to_array()?)?.first().copied().unwrap_or(0),
        }),
        ColumnarValue::Array(array) => Values::Each(lengths(array)?),
    };
    Ok(Argument { is_number, values })
}

/// The fields of a template of `format`, and the sum of their widths.
fn of_template(template: Option<&ColumnarValue>) -> DfResult<[Argument; 2]> {
    let sizes = |template: Option<&str>| template.map_or((0, 0), format_sizes);
    let (fields, widths) = match template {
        Some(ColumnarValue::Array(array)) => {
            let texts = cast(array, &DataType::Utf8)?;
            let (fields, widths) = texts.as_string::<i32>().iter().map(sizes).unzip();
            (Values::Each(fields), Values::Each(widths))
        }
        Some(ColumnarValue::Scalar(value)) => {
            let (fields, widths) = sizes(value.try_as_str().flatten());
            (Values::One(fields), Values::One(widths))
        }
        None => (Values::One(0), Values::One(0)),
    };
    Ok([fields, widths].map(|values| Argument { is_number: true, values }))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{Array, ArrayRef, BinaryViewArray, ListArray, UInt32Array};
    use datafusion::arrow::buffer::OffsetBuffer;
    use datafusion::arrow::compute::take;
    use datafusion::arrow::datatypes::Field;
    use datafusion::common::config::ConfigOptions;

    use super::*;

    fn call(args: Vec<ArrayRef>, gives: DataType) -> ScalarFunctionArgs {
        let number_rows = args[0].len();
        let args: Vec<ColumnarValue> = args.into_iter().map(ColumnarValue::Array).collect();
        let fields = args.iter().map(|value| Arc::new(Field::new("", value.data_type(), true)));
        ScalarFunctionArgs {
            arg_fields: fields.collect(),
            number_rows,
            return_field: Arc::new(Field::new("", gives, true)),
            config_options: Arc::new(ConfigOptions::default()),
            args,
        }
    }

    /// A column whose rows are views of one document.
    fn repeated(text: &str, times: u32) -> ArrayRef {
        let document = jsonb::parse(text).and_then(|document| jsonb::encode(&document)).expect(text);
        let one: ArrayRef = Arc::new(BinaryViewArray::from_iter_values([document]));
        take(&one, &UInt32Array::from_iter_values((0..times).map(|_| 0)), None).expect("it is there")
    }

    #[test]
    fn documents_count_as_often_as_there_are_views_of_them() {
        let length = 100_000;
        let text = format!("\"{}\"", "x".repeat(length));
        let documents = repeated(&text, 50);
        let size =
            CallSize::of("jsonb_strip_nulls", &call(vec![documents.clone()], JSONB)).expect("they are documents");
        assert!(size.bytes_of(0, 50) >= 50 * length as u128);
        assert!(size.bytes_of(10, 1) >= length as u128 && size.bytes_of(50, 1) == 0);
        let item = Arc::new(Field::new_list_field(JSONB, true));
        let lists: ArrayRef = Arc::new(ListArray::new(item, OffsetBuffer::from_lengths([20, 30]), documents, None));
        for name in ["jsonb_of_list", "jsonb_of_pairs"] {
            let size = CallSize::of(name, &call(vec![lists.clone()], JSONB)).expect("they are lists");
            assert!(size.bytes_of(0, 1) >= 20 * length as u128, "{name}");
            assert!(size.bytes_of(1, 1) >= 30 * length as u128, "{name}");
        }
    }

    #[test]
    fn rows_that_take_many_steps_are_processed_apart() {
        let long = repeated(&format!("[{}0]", "[0],".repeat(5000)), 10);
        let size =
            CallSize::of("jsonb_contains", &call(vec![long.clone(), long], DataType::Boolean)).expect("few rows");
        assert_eq!(size.rows_within_steps(0, 10), 1, "each takes as many as one may");
        let short = repeated("[0]", 1000);
        let size = CallSize::of("jsonb_contains", &call(vec![short.clone(), short], DataType::Boolean)).expect("short");
        assert_eq!((size.rows_within_steps(0, 1000), size.rows_within_steps(990, 10)), (1000, 10));
    }

    #[test]
    fn the_parts_of_a_large_document_are_counted_before_it_is_read() {
        let text = format!("[{}0]", "[0],".repeat(50_000));
        let documents = repeated(&text, 2);
        let size = CallSize::of("jsonb_typeof", &call(vec![documents], DataType::Utf8)).expect("it is one");
        assert!(size.scratch > 50_000 * 100, "each of its lists has room for four values: {}", size.scratch);
        let texts: ArrayRef = Arc::new(datafusion::arrow::array::StringArray::from(vec![text]));
        let size = CallSize::of("read_text", &call(vec![texts.clone()], JSONB)).expect("it is a text");
        assert!(size.scratch > 50_000 * 100, "{}", size.scratch);
        let size = CallSize::of("read_text", &call(vec![texts], DataType::Binary)).expect("it is a text");
        assert_eq!(size.scratch, 0, "it becomes no document");
    }
}
