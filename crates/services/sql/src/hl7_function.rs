//! The function `hl7(body, path)`: a field of an HL7 v2 message, as text.
//!
//! `hl7(body, 'PID-5.1')` is the first repetition's value, unescaped. A body of bytes is decoded by the message's
//! character set; a body of text is already decoded, whatever it declares. The result is NULL if the message does not
//! have the place, if the body is not an HL7 message, and if its character set cannot be determined or read, because
//! the message could then be split in the wrong places. An empty place returns an empty text, and the explicit null of
//! HL7 its two quotes. An invalid path is an error. A literal path is parsed once for each batch.

use std::str::FromStr;
use std::sync::Arc;

use ::hl7::{Path, Reading};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringViewBuilder};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use datafusion::error::Result as DfResult;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use datafusion::scalar::ScalarValue;

use crate::SqlError;

/// The function, for registration in a context.
pub(crate) fn function() -> ScalarUDF {
    ScalarUDF::from(Field { signature: Signature::any(2, Volatility::Immutable) })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Field {
    signature: Signature,
}

impl ScalarUDFImpl for Field {
    fn name(&self) -> &str {
        "hl7"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> DfResult<DataType> {
        let is_body = |kind: &DataType| kind.is_string() || kind.is_binary() || *kind == DataType::Null;
        let is_path = |kind: &DataType| kind.is_string() || *kind == DataType::Null;
        match arguments {
            [body, path] if is_body(body) && is_path(path) => Ok(DataType::Utf8View),
            _ => Err(SqlError::statement("42883", "hl7(body, path) takes text or bytea, and a path as text").into()),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let [body, path] = arguments.args.as_slice() else {
            return Err(SqlError::statement("42883", "hl7(body, path) takes two arguments").into());
        };
        let alone = matches!((body, path), (ColumnarValue::Scalar(_), ColumnarValue::Scalar(_)));
        let rows = if alone { 1 } else { arguments.number_rows };
        // Text is UTF-8, even if the message declared another character set.
        let is_text = body.data_type().is_string();
        let bodies = bodies(&body.to_array(rows)?)?;
        let bodies = bodies.as_binary_view();
        let mut texts = StringViewBuilder::with_capacity(rows);
        match path {
            ColumnarValue::Scalar(path) => {
                let path = match path.try_as_str().flatten() {
                    Some(path) => Some(parse(path)?),
                    None => None,
                };
                for body in bodies {
                    append_field(&mut texts, body.zip(path.as_ref()), is_text);
                }
            }
            ColumnarValue::Array(paths) => {
                let paths = cast(paths, &DataType::Utf8View)?;
                for (body, path) in bodies.iter().zip(paths.as_string_view()) {
                    let path = path.map(parse).transpose()?;
                    append_field(&mut texts, body.zip(path.as_ref()), is_text);
                }
            }
        }
        let texts: ArrayRef = Arc::new(texts.finish());
        match alone {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&texts, 0)?)),
            false => Ok(ColumnarValue::Array(texts)),
        }
    }
}

/// Bodies as views of bytes; views are not copied.
fn bodies(array: &ArrayRef) -> DfResult<ArrayRef> {
    let bytes = match array.data_type() {
        DataType::Utf8 => cast(array, &DataType::Binary)?,
        DataType::LargeUtf8 => cast(array, &DataType::LargeBinary)?,
        _ => array.clone(),
    };
    Ok(cast(&bytes, &DataType::BinaryView)?)
}

fn parse(path: &str) -> Result<Path, SqlError> {
    Path::from_str(path).map_err(|error| {
        SqlError::value("22023", format!("\"{path}\" is not a path of HL7: {error}"))
            .with_hint("Write a place as in PID-5.1 or OBX[2]-5.")
    })
}

/// Appends the value of a place, or NULL.
fn append_field(texts: &mut StringViewBuilder, asked: Option<(&[u8], &Path)>, is_text: bool) {
    let reading = asked.and_then(|(body, _)| match is_text {
        true => std::str::from_utf8(body).ok().map(Reading::of_text),
        false => Reading::of(body, None).ok(),
    });
    let value = reading.as_ref().zip(asked).and_then(|(reading, (_, path))| reading.text_at(path).ok()?);
    texts.append_option(value);
}
