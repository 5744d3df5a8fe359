//! Floating point numbers as text, as PostgreSQL writes them: with the fewest digits that identify the number, and with
//! an exponent for small and large numbers.

use std::fmt::{LowerExp, Write};

use bytes::BytesMut;

/// A `double precision` from this power of ten on has an exponent, as in PostgreSQL.
const DOUBLE_LARGE: i32 = 15;
/// The same for `real`.
const SINGLE_LARGE: i32 = 6;
/// Numbers below this power of ten have an exponent.
const SMALL: i32 = -4;

/// Writes a `double precision`.
pub(crate) fn write_double(out: &mut BytesMut, number: f64) {
    match special(number) {
        Some(text) => out.extend_from_slice(text.as_bytes()),
        None => write_finite(out, &number, DOUBLE_LARGE),
    }
}

/// Writes a `real`.
pub(crate) fn write_single(out: &mut BytesMut, number: f32) {
    match special(f64::from(number)) {
        Some(text) => out.extend_from_slice(text.as_bytes()),
        None => write_finite(out, &number, SINGLE_LARGE),
    }
}

fn special(number: f64) -> Option<&'static str> {
    if number.is_nan() {
        Some("NaN")
    } else if number.is_infinite() {
        Some(if number > 0.0 { "Infinity" } else { "-Infinity" })
    } else {
        None
    }
}

fn write_finite(out: &mut BytesMut, number: &impl LowerExp, large: i32) {
    let text = format!("{number:e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (sign, mantissa) = match mantissa.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", mantissa),
    };
    let mut digits = String::with_capacity(20);
    digits.extend(mantissa.chars().filter(char::is_ascii_digit));
    // Writing to memory cannot fail.
    let _ = if !(SMALL..large).contains(&exponent) {
        let (first, rest) = digits.split_at(1);
        let point = if rest.is_empty() { "" } else { "." };
        let direction = if exponent < 0 { '-' } else { '+' };
        write!(out, "{sign}{first}{point}{rest}e{direction}{:02}", exponent.unsigned_abs())
    } else if exponent < 0 {
        let zeros = "0".repeat((-exponent - 1) as usize);
        write!(out, "{sign}0.{zeros}{digits}")
    } else {
        let whole = exponent as usize + 1;
        if digits.len() <= whole {
            write!(out, "{sign}{digits:0<whole$}")
        } else {
            write!(out, "{sign}{}.{}", &digits[..whole], &digits[whole..])
        }
    };
}

/// Reads a floating point number: `None` if the text is not one, infinity if it is too large.
pub(crate) fn parse(text: &str) -> Option<f64> {
    let text = text.trim();
    let digits = text.trim_start_matches(['+', '-']);
    if digits.eq_ignore_ascii_case("infinity") || digits.eq_ignore_ascii_case("inf") || text.eq_ignore_ascii_case("nan")
    {
        return text.parse().ok();
    }
    if !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_postgresql_does() {
        // Outputs of PostgreSQL 15 with extra_float_digits 1.
        let examples = [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.5, "1.5"),
            (0.1, "0.1"),
            (0.0001, "0.0001"),
            (0.000_01, "1e-05"),
            (1e14, "100000000000000"),
            (1e15, "1e+15"),
            (-123_456.789, "-123456.789"),
            (1.797_693_134_862_315_7e308, "1.7976931348623157e+308"),
            (5e-324, "5e-324"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Infinity"),
        ];
        for (number, text) in examples {
            let mut out = BytesMut::new();
            write_double(&mut out, number);
            assert_eq!(&out[..], text.as_bytes());
            let back = parse(text).expect("it is a number");
            assert!(back == number || (back.is_nan() && number.is_nan()));
        }
        for (number, text) in [(1e5f32, "100000"), (1e6, "1e+06"), (3.4e38, "3.4e+38"), (0.3, "0.3")] {
            let mut out = BytesMut::new();
            write_single(&mut out, number);
            assert_eq!(&out[..], text.as_bytes());
        }
        for broken in ["", "x", "1,5", "e5", "--1", "1e", "0x10"] {
            assert_eq!(parse(broken), None, "{broken}");
        }
    }
}
