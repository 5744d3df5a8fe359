//! Values of parameters: from PostgreSQL's layouts to the planner's values.

use datafusion::arrow::datatypes::DataType;
use datafusion::scalar::ScalarValue;

use super::Format;
use super::error_response::ErrorResponse;
use super::oid::{Kind, Scalar};
use super::value::ValueBuilder;
use crate::engine::NUMERIC;
use crate::text::numeric;

/// Reads a value that was sent as this type; `wanted` is its type in the statement, if it is known.
pub(super) fn read(
    value: Option<&[u8]>,
    kind: Kind,
    format: Format,
    wanted: Option<&DataType>,
) -> Result<ScalarValue, ErrorResponse> {
    // A type without a size takes the value as it is.
    let wanted = wanted.filter(|wanted| **wanted != NUMERIC);
    let Some(bytes) = value else {
        return match wanted {
            Some(wanted) => ScalarValue::try_from(wanted).map_err(invalid),
            None => Ok(ScalarValue::Null),
        };
    };
    // A text of an unknown type has that of the statement.
    let kind = match (kind, wanted) {
        (Kind::One(Scalar::Unknown), Some(wanted)) => Kind::of(wanted)?,
        (kind, _) => kind,
    };
    // A numeric has the digits that its value needs, unless the statement determines them.
    let own = match (kind, wanted) {
        (Kind::One(Scalar::Numeric), Some(DataType::Decimal128(..))) => None,
        (Kind::One(Scalar::Numeric), _) => Some(numeric_type(bytes, format)?),
        _ => kind.arrow(),
    };
    let target = match (own, wanted) {
        (Some(own), _) => own,
        (None, Some(wanted)) => wanted.clone(),
        (None, None) => DataType::Utf8,
    };
    let mut column = ValueBuilder::of(kind, &target)?;
    match format {
        Format::Binary => column.push_binary(bytes)?,
        Format::Text => {
            let text = std::str::from_utf8(bytes);
            column.push_text(
                text.map_err(|_| ErrorResponse::new("22021", "invalid byte sequence for encoding \"UTF8\""))?,
            )?;
        }
    }
    let scalar = ScalarValue::try_from_array(&column.finish()?, 0).map_err(invalid)?;
    match wanted {
        Some(wanted) if wanted != &scalar.data_type() => scalar.cast_to(wanted).map_err(invalid),
        _ => Ok(scalar),
    }
}

fn invalid(error: datafusion::error::DataFusionError) -> ErrorResponse {
    ErrorResponse::from(crate::SqlError::from(error))
}

fn numeric_type(bytes: &[u8], format: Format) -> Result<DataType, ErrorResponse> {
    let read;
    let text = match format {
        Format::Text => std::str::from_utf8(bytes).unwrap_or(""),
        Format::Binary => {
            let wrong = || ErrorResponse::new("22P03", "incorrect binary data format for type numeric");
            read = numeric::read_binary(bytes).ok_or_else(wrong)?;
            &read
        }
    };
    let (behind, all) = numeric::size(text);
    if all > 38 {
        let response = ErrorResponse::new("22003", "numeric field overflow");
        return Err(response.with_hint("At most 38 digits are kept."));
    }
    Ok(DataType::Decimal128(38, behind.min(38) as i8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_takes_the_type_that_the_statement_wants() {
        let int = Kind::One(Scalar::Int2);
        let read_int = |wanted| read(Some(b"\0\x05"), int, Format::Binary, wanted).expect("it is one");
        assert_eq!(read_int(None), ScalarValue::Int16(Some(5)));
        assert_eq!(read_int(Some(&DataType::Int64)), ScalarValue::Int64(Some(5)));
        let numeric = Kind::One(Scalar::Numeric);
        let read_numeric = |wanted| read(Some(b"1.50"), numeric, Format::Text, wanted).expect("it is one");
        assert_eq!(read_numeric(None), ScalarValue::Decimal128(Some(150), 38, 2));
        assert_eq!(read_numeric(Some(&DataType::Decimal128(15, 4))), ScalarValue::Decimal128(Some(15_000), 15, 4));
        assert_eq!(read_numeric(Some(&DataType::Float64)), ScalarValue::Float64(Some(1.5)));
        assert_eq!(read_numeric(Some(&NUMERIC)), ScalarValue::Decimal128(Some(150), 38, 2));
        assert_eq!(read(None, numeric, Format::Text, Some(&NUMERIC)), Ok(ScalarValue::Null));
        assert_eq!(read(None, int, Format::Text, None), Ok(ScalarValue::Null));
        assert_eq!(read(None, int, Format::Text, Some(&DataType::Int32)), Ok(ScalarValue::Int32(None)));
        let response = read(Some(b"x"), Kind::One(Scalar::Int4), Format::Text, None).expect_err("no number");
        assert_eq!(response.code, "22P02");
    }
}
