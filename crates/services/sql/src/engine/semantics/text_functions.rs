//! Functions of texts and bytes with PostgreSQL's results: `format`, `quote_literal`, `quote_ident`, `quote_nullable`, `to_hex`,
//! `split_part`, `unistr`, `convert_from`, `convert_to`, `get_byte`, `encode` and `decode` with `escape`, `num_nulls`, `num_nonnulls`,
//! `pg_typeof`.

use std::borrow::Cow;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BinaryArray, Int32Array, StringArray};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::datatypes::{DataType, Field, Int32Type, Int64Type};

use super::pg_function::{Argument, PgFunction, no_function};
use super::rows::{each, texts, wanted};
use crate::SqlError;
use crate::table::SqlType;
use crate::text::identifiers::quoted;

/// The widest field of `format`.
const WIDTH_MAX: usize = 1 << 20;

fn text(_: &[Argument<'_>]) -> Result<DataType, SqlError> {
    Ok(DataType::Utf8)
}

/// All arguments as text.
fn all_texts(name: &str, types: &[DataType]) -> Result<Vec<DataType>, SqlError> {
    if types.is_empty() {
        return Err(no_function(name, types));
    }
    Ok(vec![DataType::Utf8; types.len()])
}

/// The functions that can be called by name.
pub(crate) const CALLED: &[PgFunction] = &[
    PgFunction {
        name: "quote_literal",
        wants: |types| wanted("quote_literal", "a", types),
        gives: text,
        run: |arrays, _| texts(arrays, |row| Ok(literal(row.text(0)))),
        between: None,
    },
    PgFunction {
        name: "quote_nullable",
        wants: |types| wanted("quote_nullable", "a", types),
        gives: text,
        run: |arrays, _| {
            let values = arrays[0].as_string::<i32>().iter();
            Ok(Arc::new(values.map(|value| Some(value.map_or("NULL".into(), literal))).collect::<StringArray>()))
        },
        between: None,
    },
    PgFunction {
        name: "quote_ident",
        wants: |types| wanted("quote_ident", "t", types),
        gives: text,
        run: |arrays, _| texts(arrays, |row| Ok(quoted(row.text(0)))),
        between: None,
    },
    PgFunction { name: "format", wants: |types| all_texts("format", types), gives: text, run: format, between: None },
    PgFunction { name: "to_hex", wants: to_hex_wants, gives: text, run: to_hex, between: None },
    PgFunction {
        name: "split_part",
        wants: |types| wanted("split_part", "tti", types),
        gives: text,
        run: |arrays, _| texts(arrays, |row| split_part(row.text(0), row.text(1), row.int(2))),
        between: None,
    },
    PgFunction {
        name: "unistr",
        wants: |types| wanted("unistr", "t", types),
        gives: text,
        run: |arrays, _| texts(arrays, |row| unistr(row.text(0))),
        between: None,
    },
    PgFunction {
        name: "convert_from",
        wants: |types| wanted("convert_from", "bt", types),
        gives: text,
        run: |arrays, _| {
            texts(arrays, |row| {
                utf8(row.text(1))?;
                let wrong = || SqlError::value("22021", "invalid byte sequence for encoding \"UTF8\"");
                // No text has the character 0.
                let text = String::from_utf8(row.bytes(0).to_vec()).ok().filter(|text| !text.contains('\0'));
                text.ok_or_else(wrong)
            })
        },
        between: None,
    },
    PgFunction {
        name: "convert_to",
        wants: |types| wanted("convert_to", "tt", types),
        gives: |_| Ok(DataType::Binary),
        run: |arrays, _| {
            let bytes = each::<Vec<u8>, Bytes>(arrays, |row| {
                utf8(row.text(1))?;
                Ok(Some(row.text(0).as_bytes().to_vec()))
            })?;
            Ok(bytes.array())
        },
        between: None,
    },
    PgFunction {
        name: "get_byte",
        wants: |types| wanted("get_byte", "bi", types),
        gives: |_| Ok(DataType::Int32),
        run: |arrays, _| {
            Ok(Arc::new(each::<i32, Int32Array>(arrays, |row| {
                let (bytes, at) = (row.bytes(0), row.int(1));
                let found = usize::try_from(at).ok().and_then(|at| bytes.get(at));
                found.map(|byte| Some(i32::from(*byte))).ok_or_else(|| {
                    let last = bytes.len() as i64 - 1;
                    SqlError::value("2202E", format!("index {at} out of valid range, 0..{last}"))
                })
            })?))
        },
        between: None,
    },
    PgFunction {
        name: "num_nulls",
        wants: |types| if types.is_empty() { Err(no_function("num_nulls", types)) } else { Ok(types.to_vec()) },
        gives: |_| Ok(DataType::Int32),
        run: |arrays, _| Ok(count_nulls(arrays, true)),
        between: None,
    },
    PgFunction {
        name: "num_nonnulls",
        wants: |types| if types.is_empty() { Err(no_function("num_nonnulls", types)) } else { Ok(types.to_vec()) },
        gives: |_| Ok(DataType::Int32),
        run: |arrays, _| Ok(count_nulls(arrays, false)),
        between: None,
    },
    PgFunction {
        name: "pg_typeof",
        wants: |types| if types.len() == 1 { Ok(types.to_vec()) } else { Err(no_function("pg_typeof", types)) },
        gives: text,
        run: |arrays, _| {
            let name = type_name(&Field::new("", arrays[0].data_type().clone(), true));
            Ok(Arc::new(StringArray::from(vec![name; arrays[0].len()])))
        },
        between: None,
    },
];

/// Bytes of rows, which are collected without a copy of all.
#[derive(Default)]
struct Bytes(Vec<Option<Vec<u8>>>);

impl FromIterator<Option<Vec<u8>>> for Bytes {
    fn from_iter<I: IntoIterator<Item = Option<Vec<u8>>>>(rows: I) -> Bytes {
        Bytes(rows.into_iter().collect())
    }
}

impl Bytes {
    fn array(&self) -> ArrayRef {
        Arc::new(self.0.iter().map(Option::as_deref).collect::<BinaryArray>())
    }
}

fn utf8(name: &str) -> Result<(), SqlError> {
    match name.to_lowercase().replace(['-', '_'], "").as_str() {
        "utf8" | "unicode" => Ok(()),
        _ => Err(SqlError::unsupported(format!("the encoding \"{name}\"")).with_hint("Texts are UTF8 here.")),
    }
}

/// A text as SQL writes it.
fn literal(value: &str) -> String {
    let escapes = if value.contains('\\') { "E" } else { "" };
    format!("{escapes}'{}'", value.replace('\\', "\\\\").replace('\'', "''"))
}

fn count_nulls(arrays: &[ArrayRef], nulls: bool) -> ArrayRef {
    let rows = arrays.first().map_or(1, |array| array.len());
    // An array of NULL alone has no bits of its own for them.
    let each: Vec<_> = arrays.iter().map(|array| array.logical_nulls()).collect();
    let is_null = |known: &Option<NullBuffer>, row| known.as_ref().is_some_and(|known| known.is_null(row));
    let count = |row: usize| each.iter().filter(|known| is_null(known, row) == nulls).count() as i32;
    Arc::new((0..rows).map(|row| Some(count(row))).collect::<Int32Array>())
}

/// PostgreSQL's name of the type of a field, without its size.
pub(crate) fn type_name(field: &Field) -> String {
    if field.data_type().is_null() {
        return "unknown".into();
    }
    let name = SqlType::from_arrow(field).map_or_else(|_| field.data_type().to_string(), |it| it.name());
    match name.split_once('(') {
        Some((word, rest)) => word.to_owned() + rest.split_once(')').map_or("", |(_, rest)| rest),
        None => name,
    }
}

fn to_hex_wants(types: &[DataType]) -> Result<Vec<DataType>, SqlError> {
    match types {
        [DataType::Int16 | DataType::Int32] => Ok(vec![DataType::Int32]),
        [kind] if kind.is_integer() || kind.is_null() => Ok(vec![DataType::Int64]),
        _ => Err(no_function("to_hex", types)),
    }
}

fn to_hex(arrays: &[ArrayRef], _: &DataType) -> Result<ArrayRef, SqlError> {
    let hex: StringArray = match arrays[0].data_type() {
        DataType::Int32 => {
            let values = arrays[0].as_primitive::<Int32Type>().iter();
            values.map(|value| value.map(|value| format!("{value:x}"))).collect()
        }
        _ => {
            let values = arrays[0].as_primitive::<Int64Type>().iter();
            values.map(|value| value.map(|value| format!("{value:x}"))).collect()
        }
    };
    Ok(Arc::new(hex))
}

/// The part of a text with this number; negative ones are counted from the end.
fn split_part(value: &str, separator: &str, number: i64) -> Result<String, SqlError> {
    if number == 0 {
        return Err(SqlError::value("22023", "field position must not be zero"));
    }
    if separator.is_empty() {
        return Ok(if number.abs() == 1 { value.to_owned() } else { String::new() });
    }
    // Separators are found from the left, also where the parts are counted from the right.
    let from_end = |number: u64| (value.split(separator).count() as u64).checked_sub(number);
    let at = if number > 0 { Some(number.unsigned_abs() - 1) } else { from_end(number.unsigned_abs()) };
    let at = at.and_then(|at| usize::try_from(at).ok());
    Ok(at.and_then(|at| value.split(separator).nth(at)).unwrap_or_default().to_owned())
}

/// A text with escapes of code points: `\0061`, `\+000061`, `\u0061`, `\U00000061`, `\\`.
fn unistr(value: &str) -> Result<String, SqlError> {
    let wrong = || SqlError::value("42601", "invalid Unicode escape");
    let (mut out, mut rest) = (String::new(), value);
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(behind) = rest.strip_prefix('\\') {
            out.push('\\');
            rest = behind;
            continue;
        }
        let (mut code, behind) = code_point(rest).ok_or_else(wrong)?;
        rest = behind;
        if (0xd800..0xdc00).contains(&code) {
            // The first half of a code point; the second one follows.
            let half = rest.strip_prefix('\\').and_then(code_point);
            let (second, behind) = half.filter(|(second, _)| (0xdc00..0xe000).contains(second)).ok_or_else(wrong)?;
            code = 0x10000 + ((code - 0xd800) << 10) + (second - 0xdc00);
            rest = behind;
        }
        let none = || SqlError::value("22023", format!("invalid Unicode code point: {code:04X}"));
        let is_half = (0xdc00..0xe000).contains(&code);
        let letter = char::from_u32(code).filter(|letter| *letter != '\0');
        out.push(letter.ok_or_else(|| if is_half { wrong() } else { none() })?);
    }
    out.push_str(rest);
    Ok(out)
}

/// The code behind a backslash, and what follows it.
fn code_point(text: &str) -> Option<(u32, &str)> {
    let (skip, digits) = match text.as_bytes().first() {
        Some(b'+') => (1, 6),
        Some(b'u') => (1, 4),
        Some(b'U') => (1, 8),
        _ => (0, 4),
    };
    let code = text.get(skip..skip + digits)?;
    let code = code.bytes().all(|byte| byte.is_ascii_hexdigit()).then(|| u32::from_str_radix(code, 16).ok())??;
    Some((code, &text[skip + digits..]))
}

/// `format(template, ..)`: NULL is an empty `%s`.
fn format(arrays: &[ArrayRef], _: &DataType) -> Result<ArrayRef, SqlError> {
    let columns: Vec<&StringArray> = arrays.iter().map(|array| array.as_string::<i32>()).collect();
    let rows = (0..arrays[0].len()).map(|row| {
        if columns[0].is_null(row) {
            return Ok(None);
        }
        let values: Vec<Option<&str>> =
            columns[1..].iter().map(|column| column.is_valid(row).then(|| column.value(row))).collect();
        formatted(columns[0].value(row), &values).map(Some)
    });
    Ok(Arc::new(rows.collect::<Result<StringArray, SqlError>>()?))
}

fn wrong(message: &str) -> SqlError {
    SqlError::value("22023", message)
}

fn formatted(template: &str, values: &[Option<&str>]) -> Result<String, SqlError> {
    // `next` counts arguments from 1, as templates do.
    let (mut out, mut rest, mut next) = (String::new(), template, 0);
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(behind) = rest.strip_prefix('%') {
            out.push('%');
            rest = behind;
            continue;
        }
        let (field, behind) = Slot::read(rest, values, &mut next)?;
        rest = behind;
        field.write(&mut out)?;
    }
    out.push_str(rest);
    Ok(out)
}

/// A field of a template, `%2$-10L`.
struct Slot<'a> {
    kind: char,
    is_left: bool,
    width: usize,
    value: Option<&'a str>,
}

impl<'a> Slot<'a> {
    /// Reads what is behind a `%`. Returns also what follows it.
    fn read<'t>(text: &'t str, values: &[Option<&'a str>], next: &mut usize) -> Result<(Slot<'a>, &'t str), SqlError> {
        let unterminated = || wrong("unterminated format() type specifier").with_hint("For a single \"%\" use \"%%\".");
        let value = |at: usize| {
            let none = || wrong("format specifies argument 0, but arguments are numbered from 1");
            let place = at.checked_sub(1).ok_or_else(none)?;
            values.get(place).copied().ok_or_else(|| wrong("too few arguments for format()"))
        };
        let (place, mut rest) = place(text);
        let mut is_left = false;
        while let Some(behind) = rest.strip_prefix('-') {
            (is_left, rest) = (true, behind);
        }
        let mut width = 0;
        if let Some(behind) = rest.strip_prefix('*') {
            let (of_width, behind) = self::place(behind);
            *next = of_width.unwrap_or(*next + 1);
            let given = value(*next)?.map_or(Ok(0), str::parse::<i64>);
            let given = given.map_err(|_| wrong("the width of a field is not a number"))?;
            (is_left, width, rest) = (is_left || given < 0, given.unsigned_abs() as usize, behind);
        } else if let Some((given, behind)) = number(rest) {
            (width, rest) = (given, behind);
        }
        if width > WIDTH_MAX {
            return Err(SqlError::value("22003", format!("a field of format() is wider than {WIDTH_MAX}")));
        }
        let kind = rest.chars().next().ok_or_else(unterminated)?;
        if !matches!(kind, 's' | 'I' | 'L') {
            let message = format!("unrecognized format() type specifier \"{kind}\"");
            return Err(wrong(&message).with_hint("For a single \"%\" use \"%%\"."));
        }
        *next = place.unwrap_or(*next + 1);
        Ok((Slot { kind, is_left, width, value: value(*next)? }, &rest[1..]))
    }

    fn write(&self, out: &mut String) -> Result<(), SqlError> {
        let shown: Cow<'_, str> = match (self.kind, self.value) {
            ('I', None) => {
                return Err(SqlError::value("22004", "null values cannot be formatted as an SQL identifier"));
            }
            ('L', None) => "NULL".into(),
            (_, None) => "".into(),
            ('I', Some(value)) => quoted(value).into(),
            ('L', Some(value)) => literal(value).into(),
            (_, Some(value)) => value.into(),
        };
        let blanks = self.width.saturating_sub(if self.width > 0 { shown.chars().count() } else { 0 });
        let pad = |out: &mut String| out.extend(std::iter::repeat_n(' ', blanks));
        if !self.is_left {
            pad(out);
        }
        out.push_str(&shown);
        if self.is_left {
            pad(out);
        }
        Ok(())
    }
}

/// The place of an argument, `2$`, if there is one, and what is behind it.
fn place(text: &str) -> (Option<usize>, &str) {
    match number(text) {
        Some((place, behind)) if behind.starts_with('$') => (Some(place), &behind[1..]),
        _ => (None, text),
    }
}

/// The number at the beginning of a text, and what is behind it.
fn number(text: &str) -> Option<(usize, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    (digits > 0).then(|| (text[..digits].parse().unwrap_or(usize::MAX), &text[digits..]))
}

/// How many fields a template of `format` has at most, and the sum of their widths, for the memory of the result.
pub(crate) fn format_sizes(template: &str) -> (i64, i64) {
    let most = WIDTH_MAX as i64;
    let (mut fields, mut widths) = (0, 0i64);
    for behind in template.split('%').skip(1) {
        fields += 1;
        let field = place(behind).1.trim_start_matches('-');
        let width = match number(field) {
            Some((width, _)) => i64::try_from(width).unwrap_or(most).min(most),
            None if field.starts_with('*') => most,
            None => 0,
        };
        widths = widths.saturating_add(width);
    }
    (fields, widths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_put_together_as_postgresql_does() {
        // Results of PostgreSQL 15.18.
        for (template, values, expected) in [
            ("%s-%s", vec![Some("a"), None], "a-"),
            ("%L %I", vec![Some("it's"), Some("A b")], "'it''s' \"A b\""),
            ("|%5s|%-5s|", vec![Some("a"), Some("b")], "|    a|b    |"),
            ("%2$s %1$s %%", vec![Some("a"), Some("b")], "b a %"),
            ("%*s", vec![Some("3"), Some("x")], "  x"),
            ("%L", vec![None], "NULL"),
            ("%1$*2$s|%s", vec![Some("a"), Some("3")], "  a|3"),
            ("%-3s|", vec![Some("\u{e4}")], "\u{e4}  |"),
        ] {
            assert_eq!(formatted(template, &values).expect(template), expected, "{template}");
        }
        for (template, code) in [("%s", "22023"), ("%x", "22023"), ("%", "22023"), ("%0$s", "22023")] {
            assert_eq!(formatted(template, &[]).expect_err(template).code(), code, "{template}");
        }
        assert_eq!(literal("a\\b"), "E'a\\\\b'");
        assert_eq!(formatted("%70000s", &[Some("x")]).expect("it is not too wide").len(), 70_000);
        assert_eq!(formatted("%99999999999999999999999s", &[Some("x")]).expect_err("too wide").code(), "22003");
        for (value, separator, number, expected) in [
            ("a,b,c", ",", -1, "c"),
            ("aXXXb", "XX", -1, "Xb"),
            ("aaa", "aa", -1, "a"),
            ("aaa", "aa", -2, ""),
            ("a", ",", -2, ""),
        ] {
            assert_eq!(split_part(value, separator, number).expect(value), expected, "{value} {separator} {number}");
        }
        assert_eq!(format_sizes("%s %2$-10L %*s %%"), (5, 10 + WIDTH_MAX as i64));
        for (escaped, expected) in [("\\0441\\+000061", "\u{441}a"), ("\\d83d\\uDE00\\U0001F600", "\u{1f600}\u{1f600}")]
        {
            assert_eq!(unistr(escaped).expect(escaped), expected);
        }
        for (escaped, code) in [("\\d83d", "42601"), ("\\d83dx", "42601"), ("\\de00", "42601"), ("\\0000", "22023")] {
            assert_eq!(unistr(escaped).expect_err(escaped).code(), code, "{escaped}");
        }
    }
}
