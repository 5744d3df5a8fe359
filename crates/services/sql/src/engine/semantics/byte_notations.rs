//! `encode` and `decode`: bytes as text in hexadecimal digits, in base64 with lines of 76 characters, and with escapes (`\\000`).

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, BinaryArray};
use datafusion::arrow::datatypes::DataType;

use super::pg_function::{PgFunction, no_function};
use super::rows::{ArgumentRow, each, is_text, texts, wanted};
use crate::SqlError;
use crate::text;

/// The functions.
pub(crate) const CALLED: &[PgFunction] = &[
    PgFunction {
        name: "encode",
        // A quoted literal is bytes in their own notation.
        wants: |types| match types {
            [bytes, notation] if (bytes.is_binary() || is_text(bytes)) && is_text(notation) => {
                Ok(vec![DataType::Binary, DataType::Utf8])
            }
            _ => Err(no_function("encode", types)),
        },
        gives: |_| Ok(DataType::Utf8),
        run: |arrays, _| texts(arrays, |row| encoded(row.bytes(0), row.text(1))),
        between: None,
    },
    PgFunction {
        name: "decode",
        wants: |types| wanted("decode", "tt", types),
        gives: |_| Ok(DataType::Binary),
        run: |arrays, _| bytes(arrays, |row| decoded(row.text(0), row.text(1))),
        between: None,
    },
];

/// Bytes of each row.
fn bytes(arrays: &[ArrayRef], of: impl Fn(ArgumentRow<'_>) -> Result<Vec<u8>, SqlError>) -> Result<ArrayRef, SqlError> {
    let rows = each::<Vec<u8>, Vec<Option<Vec<u8>>>>(arrays, |row| of(row).map(Some))?;
    Ok(Arc::new(rows.iter().map(Option::as_deref).collect::<BinaryArray>()))
}

fn unknown(notation: &str) -> SqlError {
    SqlError::value("22023", format!("unrecognized encoding: \"{notation}\""))
}

fn encoded(bytes: &[u8], notation: &str) -> Result<String, SqlError> {
    match notation.to_ascii_lowercase().as_str() {
        "hex" => Ok(bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(|four| HEX[usize::from(four)]).collect()),
        "base64" => Ok(base64_of(bytes)),
        "escape" => Ok(bytes
            .iter()
            .map(|byte| match byte {
                0 | 128.. => format!("\\{byte:03o}"),
                b'\\' => "\\\\".to_owned(),
                byte => char::from(*byte).to_string(),
            })
            .collect()),
        _ => Err(unknown(notation)),
    }
}

fn decoded(value: &str, notation: &str) -> Result<Vec<u8>, SqlError> {
    match notation.to_ascii_lowercase().as_str() {
        "hex" => of_hex(value),
        "base64" => of_base64(value),
        "escape" => text::escaped_bytes(value),
        _ => Err(unknown(notation)),
    }
}

const HEX: [char; 16] = ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The characters of a line.
const LINE: usize = 76;

fn base64_of(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4 + bytes.len() / 57);
    let mut in_line = 0;
    for three in bytes.chunks(3) {
        let at = |at: usize| u32::from(three.get(at).copied().unwrap_or(0));
        let all = at(0) << 16 | at(1) << 8 | at(2);
        for place in 0..4 {
            let digit = DIGITS[(all >> (18 - 6 * place) & 63) as usize];
            out.push(if place <= three.len() { char::from(digit) } else { '=' });
        }
        in_line += 4;
        if in_line == LINE && three.len() == 3 {
            out.push('\n');
            in_line = 0;
        }
    }
    out
}

fn of_base64(value: &str) -> Result<Vec<u8>, SqlError> {
    let wrong = |message: String| SqlError::value("22023", message);
    let (mut out, mut all, mut digits, mut padding) = (Vec::new(), 0u32, 0, 0);
    for letter in value.chars().filter(|letter| !matches!(letter, ' ' | '\t' | '\n' | '\r')) {
        let digit = match letter {
            '=' if padding == 0 && digits < 2 => {
                return Err(wrong("unexpected \"=\" while decoding base64 sequence".into()));
            }
            '=' => {
                padding = if padding == 0 { 4 - digits } else { padding };
                0
            }
            letter => {
                let found = DIGITS.iter().position(|digit| char::from(*digit) == letter);
                let symbol = || wrong(format!("invalid symbol \"{letter}\" found while decoding base64 sequence"));
                found.ok_or_else(symbol)? as u32
            }
        };
        all = all << 6 | digit;
        digits += 1;
        if digits == 4 {
            let kept = 3usize.saturating_sub(padding);
            out.extend_from_slice(&all.to_be_bytes()[1..=kept]);
            (all, digits) = (0, 0);
        }
    }
    match digits {
        0 => Ok(out),
        _ => Err(wrong("invalid base64 end sequence".into())
            .with_hint("Input data is missing padding, is truncated, or is otherwise corrupted.")),
    }
}

fn of_hex(value: &str) -> Result<Vec<u8>, SqlError> {
    let wrong = |message: String| SqlError::value("22023", message);
    let digit = |letter: char| {
        letter
            .to_digit(16)
            .map(|digit| digit as u8)
            .ok_or_else(|| wrong(format!("invalid hexadecimal digit: \"{letter}\"")))
    };
    // Blanks are between bytes only.
    let mut letters = value.chars();
    let mut out = Vec::with_capacity(value.len() / 2);
    while let Some(first) = letters.find(|letter| !matches!(letter, ' ' | '\t' | '\n' | '\r')) {
        let first = digit(first)?;
        let second = letters.next().ok_or_else(|| wrong("invalid hexadecimal data: odd number of digits".into()))?;
        out.push(first << 4 | digit(second)?);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_written_and_read_in_each_notation() {
        for (bytes, notation, expected) in [
            (&b"abc"[..], "hex", "616263"),
            (&b"abc"[..], "base64", "YWJj"),
            (&b"ab"[..], "BASE64", "YWI="),
            (&b"a"[..], "base64", "YQ=="),
            (&b"a\\\x00\xff"[..], "escape", "a\\\\\\000\\377"),
        ] {
            assert_eq!(encoded(bytes, notation).expect(notation), expected);
            assert_eq!(decoded(expected, notation).expect(notation), bytes);
        }
        assert_eq!(decoded(" ab\n\tcd ", "hex").expect("it is two bytes"), [0xab, 0xcd]);
        // 57 bytes are one line.
        let line = base64_of(&[0; 57]);
        assert_eq!((line.len(), line.ends_with('\n')), (77, true));
        assert_eq!(of_base64(&base64_of(&[7; 100])).expect("it was written"), [7; 100]);
        for (value, notation) in [
            ("6", "hex"),
            ("6g", "hex"),
            ("a b", "hex"),
            ("ab c", "hex"),
            ("YQ", "base64"),
            ("Y=", "base64"),
            ("Y-Q=", "base64"),
            ("", "x"),
        ] {
            assert_eq!(decoded(value, notation).expect_err(value).code(), "22023");
        }
    }
}
