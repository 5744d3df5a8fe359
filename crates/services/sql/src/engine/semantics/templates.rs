//! Templates of PostgreSQL's `to_char`, `to_date`, `to_timestamp` and `to_number`: `YYYY-MM-DD`, `FM999,990.00`.
//!
//! ```text
//!   template --parts--> fields and plain text --moments--> text of a timestamp, or the timestamp of a text
//!                                             --numbers--> text of a number, or the number of a text
//! ```
//!
//! A part of a template that has no meaning here is refused by name, never copied as plain text.

mod moment_fields;
mod moments;
mod numbers;

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Date32Array, Decimal128Array, StringArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Decimal256Type};
use datafusion::common::ScalarValue;

use super::datetime_functions::{TIMESTAMP, moment};
use super::numeric_division::operand;
use super::pg_function::{Argument, PgFunction, no_function};
use super::rows::{INTERVAL, Kept, each, is_text, moments as each_moment, texts, wanted};
use crate::SqlError;
use crate::text::calendar::DAY_US;
use moments::{MomentTemplate, Parts};
use numbers::NumberTemplate;

/// The functions.
pub(crate) const CALLED: &[PgFunction] = &[
    PgFunction { name: "to_char", wants: to_char_wants, gives: |_| Ok(DataType::Utf8), run: to_char, between: None },
    PgFunction {
        name: "to_date",
        wants: |types| wanted("to_date", "tt", types),
        gives: |_| Ok(DataType::Date32),
        run: |arrays, _| {
            let day = |us: i64| i32::try_from(us.div_euclid(DAY_US)).map_err(|_| moments::out_of_range());
            let templates = Kept::new(MomentTemplate::new);
            let days =
                each::<_, Date32Array>(arrays, |row| day(templates.of(row.text(1))?.read(row.text(0))?).map(Some))?;
            Ok(Arc::new(days))
        },
        between: None,
    },
    PgFunction {
        name: "to_timestamp",
        wants: |types| match types {
            [number] if number.is_numeric() => Ok(vec![DataType::Float64]),
            [_, _] => wanted("to_timestamp", "tt", types),
            _ => Err(no_function("to_timestamp", types)),
        },
        gives: |_| Ok(moment()),
        run: |arrays, gives| {
            let templates = Kept::new(MomentTemplate::new);
            each_moment(arrays, gives, |row| match row.width() {
                1 => seconds(row.float(0)),
                _ => templates.of(row.text(1))?.read(row.text(0)),
            })
        },
        between: None,
    },
    PgFunction {
        name: "to_number",
        wants: |types| wanted("to_number", "tt", types),
        gives: |types: &[Argument<'_>]| match types {
            [_, (_, Some(ScalarValue::Utf8(Some(template))))] => {
                Ok(DataType::Decimal128(38, NumberTemplate::new(template)?.scale()))
            }
            _ => Ok(DataType::Decimal128(38, 10)),
        },
        run: |arrays, gives| {
            let DataType::Decimal128(_, scale) = gives else { return Err(no_function("to_number", &[])) };
            let templates = Kept::new(NumberTemplate::new);
            let values = each::<_, Decimal128Array>(arrays, |row| {
                templates.of(row.text(1))?.read(row.text(0), *scale).map(Some)
            })?;
            Ok(Arc::new(values.with_data_type(gives.clone())))
        },
        between: None,
    },
];

fn seconds(number: f64) -> Result<i64, SqlError> {
    let us = (number * 1e6).round_ties_even();
    // The year 294,246, as far as microseconds go.
    if us.abs() < 9.2e18 { Ok(us as i64) } else { Err(moments::out_of_range()) }
}

fn to_char_wants(types: &[DataType]) -> Result<Vec<DataType>, SqlError> {
    let [value, template] = types else { return Err(no_function("to_char", types)) };
    let value = match value {
        _ if !is_text(template) => return Err(no_function("to_char", types)),
        DataType::Timestamp(_, Some(_)) => moment(),
        DataType::Timestamp(_, None) | DataType::Date32 | DataType::Date64 | DataType::Null => TIMESTAMP,
        DataType::Interval(_) | DataType::Duration(_) | DataType::Time64(_) => INTERVAL,
        DataType::Float16 | DataType::Float32 => DataType::Float32,
        DataType::Float64 => DataType::Float64,
        kind => operand(kind).ok_or_else(|| no_function("to_char", types))?,
    };
    Ok(vec![value, DataType::Utf8])
}

/// The text in quotes, and what follows it. A backslash stands before a letter that is taken as it is.
fn quoted(text: &str) -> (Vec<char>, &str) {
    let (mut plain, mut letters) = (Vec::new(), text.chars());
    while let Some(letter) = letters.next().filter(|letter| *letter != '"') {
        plain.push(if letter == '\\' { letters.next().unwrap_or(letter) } else { letter });
    }
    (plain, letters.as_str())
}

fn to_char(arrays: &[ArrayRef], _: &DataType) -> Result<ArrayRef, SqlError> {
    let templates = Kept::new(MomentTemplate::new);
    match arrays[0].data_type() {
        kind @ (DataType::Interval(_) | DataType::Timestamp(..)) => {
            let is_span = matches!(kind, DataType::Interval(_));
            let is_zoned = matches!(kind, DataType::Timestamp(_, Some(_)));
            let written = each::<String, StringArray>(arrays, |row| {
                let of = if is_span { Parts::of_span(row.span(0)) } else { Parts::of_moment(row.moment(0), is_zoned) };
                match row.text(1) {
                    "" => Ok(None),
                    template => templates.of(template)?.write(&of).map(Some),
                }
            })?;
            Ok(Arc::new(written))
        }
        DataType::Float32 | DataType::Float64 => float_texts(arrays),
        _ => number_texts(arrays),
    }
}

/// Floats have 15 digits, or 6. PostgreSQL writes no others, whatever the template has.
fn float_texts(arrays: &[ArrayRef]) -> Result<ArrayRef, SqlError> {
    let most = if *arrays[0].data_type() == DataType::Float32 { 6 } else { 15 };
    let wide = [cast(&arrays[0], &DataType::Float64)?, arrays[1].clone()];
    let templates = Kept::new(NumberTemplate::new);
    texts(&wide, |row| {
        let (value, template) = (row.float(0), templates.of(row.text(1))?);
        let scale = template.scale() as usize;
        let whole = format!("{:.0}", value.abs()).len();
        if scale > 0 && whole + scale > most {
            let error = SqlError::unsupported(format!("to_char of a float with more than {most} digits"));
            return Err(error.with_hint("Cast it to numeric, or take a template with fewer digits behind the point."));
        }
        let text = format!("{value:.scale$}");
        template.write(&text, text.starts_with('-'))
    })
}

fn number_texts(arrays: &[ArrayRef]) -> Result<ArrayRef, SqlError> {
    let scale = match arrays[0].data_type() {
        DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale) => *scale,
        _ => 0,
    };
    let wide = cast(&arrays[0], &DataType::Decimal256(76, scale))?;
    let (numbers, patterns) = (wide.as_primitive::<Decimal256Type>(), arrays[1].as_string::<i32>());
    let templates = Kept::new(NumberTemplate::new);
    let written = (0..wide.len()).map(|row| {
        if wide.is_null(row) || patterns.is_null(row) {
            return Ok(None);
        }
        let template = templates.of(patterns.value(row))?;
        let text = numbers::rounded(&numbers.value(row).to_string(), scale, template.scale());
        let is_negative = text.starts_with('-') && text.bytes().any(|digit| matches!(digit, b'1'..=b'9'));
        template.write(&text, is_negative).map(Some)
    });
    Ok(Arc::new(written.collect::<Result<StringArray, SqlError>>()?))
}

/// The text without a prefix, whatever the case of its letters; `None` if it begins differently.
fn after<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let head = text.get(..prefix.len())?;
    head.eq_ignore_ascii_case(prefix).then(|| &text[prefix.len()..])
}
