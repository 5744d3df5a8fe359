//! Decimal numbers: as text, and in PostgreSQL's binary layout.
//!
//! ```text
//!   | count u16 | weight i16 | sign u16 | digits behind the point u16 | count times a digit 0..9999 u16 |
//! ```
//!
//! The digits are of base 10000; the first stands for 10000^weight. Both directions go through the number's decimal
//! digits, so numbers of any size that Arrow has (38 or 76 digits) are handled.

use std::fmt::Write;

use bytes::{Buf, BufMut, BytesMut};

const NEGATIVE: u16 = 0x4000;

/// Decimal digits of a group in the binary layout.
const GROUP: usize = 4;

/// The least number of significant digits in a quotient.
const SIGNIFICANT_MIN: i32 = 16;

/// Most decimal digits that are read; Arrow's largest number has 76.
const DIGITS_MAX: usize = 1000;

/// Writes a number given by its digits (with a `-` if it is negative) and the number of digits behind the point; a
/// negative number of digits means zeros before the point.
pub(crate) fn write_text(out: &mut BytesMut, unscaled: &str, scale: i8) {
    let (sign, digits) = split(unscaled);
    let zero = digits.bytes().all(|digit| digit == b'0');
    let sign = if zero { "" } else { sign };
    // Writing to memory cannot fail.
    let _ = match usize::try_from(scale) {
        Ok(0) => write!(out, "{sign}{digits}"),
        Ok(behind) => {
            let padded = format!("{digits:0>width$}", width = behind + 1);
            let (whole, part) = padded.split_at(padded.len() - behind);
            write!(out, "{sign}{whole}.{part}")
        }
        Err(_) if zero => write!(out, "0"),
        Err(_) => write!(out, "{sign}{digits}{}", "0".repeat(usize::from(scale.unsigned_abs()))),
    };
}

/// The number of digits shown behind the point for a number of Arrow's wide type, which quotients and averages have: 16
/// significant digits, in groups of four as PostgreSQL's own digits are, and further digits up to the last one that is
/// not zero.
pub(crate) fn shown_scale(unscaled: &str, scale: i8) -> i8 {
    let (_, digits) = split(unscaled);
    let zeros = digits.bytes().rev().take_while(|digit| *digit == b'0').count();
    let (first, used) = match zeros == digits.len() {
        true => (-1, 0),
        false => (digits.len() as i32 - 1 - i32::from(scale), i32::from(scale) - zeros as i32),
    };
    let group = GROUP as i32;
    let least = (SIGNIFICANT_MIN - group * first.div_euclid(group)).max(0);
    // Up to the end of the group that contains the last digit.
    let used = (used.max(0) + group - 1) / group * group;
    least.max(used).min(i32::from(scale)) as i8
}

/// The same number with only the digits that are shown behind the point, and their number.
fn as_shown(unscaled: &str, scale: i8) -> (&str, i8) {
    let shown = shown_scale(unscaled, scale);
    let (_, digits) = split(unscaled);
    let cut = ((scale - shown).max(0) as usize).min(digits.len() - 1);
    (&unscaled[..unscaled.len() - cut], shown)
}

/// Writes a number of Arrow's wide type.
pub(crate) fn write_shown(out: &mut BytesMut, unscaled: &str, scale: i8) {
    let (unscaled, scale) = as_shown(unscaled, scale);
    write_text(out, unscaled, scale);
}

/// Writes the same number in the binary layout.
pub(crate) fn write_shown_binary(out: &mut BytesMut, unscaled: &str, scale: i8) {
    let (unscaled, scale) = as_shown(unscaled, scale);
    write_binary(out, unscaled, scale);
}

fn split(unscaled: &str) -> (&'static str, &str) {
    match unscaled.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", unscaled),
    }
}

/// Writes a number in the binary layout.
pub(crate) fn write_binary(out: &mut BytesMut, unscaled: &str, scale: i8) {
    let (sign, digits) = split(unscaled);
    let behind = usize::try_from(scale).unwrap_or(0);
    let mut whole = digits.to_owned();
    whole.extend(std::iter::repeat_n('0', usize::from(scale.min(0).unsigned_abs())));
    let padded = format!("{whole:0>width$}", width = behind + 1);
    let (whole, part) = padded.split_at(padded.len() - behind);
    // Groups are aligned at the point.
    let front = whole.len().div_ceil(GROUP) * GROUP;
    let back = part.len().div_ceil(GROUP) * GROUP;
    let all = format!("{whole:0>front$}{part:0<back$}");
    let groups: Vec<u16> =
        all.as_bytes().chunks(GROUP).map(|g| g.iter().fold(0, |n, d| n * 10 + u16::from(d - b'0'))).collect();
    let first = groups.iter().position(|group| *group != 0).unwrap_or(groups.len());
    let last = groups.iter().rposition(|group| *group != 0).map_or(first, |at| at + 1);
    let weight = if first == last { 0 } else { (front / GROUP) as i16 - 1 - first as i16 };
    out.put_u16((last - first) as u16);
    out.put_i16(weight);
    out.put_u16(if sign.is_empty() || first == last { 0 } else { NEGATIVE });
    out.put_u16(behind as u16);
    groups[first..last].iter().for_each(|group| out.put_u16(*group));
}

/// Reads the binary layout as text; `None` if it is not a number, or a number without digits (NaN, the infinities).
pub(crate) fn read_binary(mut bytes: &[u8]) -> Option<String> {
    let count = usize::from(bytes.try_get_u16().ok()?);
    let weight = bytes.try_get_i16().ok()?;
    let sign = bytes.try_get_u16().ok()?;
    let behind = usize::from(bytes.try_get_u16().ok()?);
    let digits_front = (i32::from(weight) + 1).max(0) as usize * GROUP;
    let wrong = bytes.len() != count * 2 || (sign != 0 && sign != NEGATIVE);
    if wrong || digits_front > DIGITS_MAX || behind > DIGITS_MAX {
        return None;
    }
    let groups: Vec<u16> = (0..count).map(|_| bytes.get_u16()).collect();
    if groups.iter().any(|group| *group > 9999) {
        return None;
    }
    // The group that stands for 10000^power.
    let group = |power: i32| {
        let at = usize::try_from(i32::from(weight) - power).ok();
        at.and_then(|at| groups.get(at)).copied().unwrap_or(0)
    };
    let mut text = String::from(if sign == NEGATIVE { "-" } else { "" });
    let whole: String = (0..=i32::from(weight)).rev().map(|power| format!("{:04}", group(power))).collect();
    let whole = whole.trim_start_matches('0');
    text.push_str(if whole.is_empty() { "0" } else { whole });
    if behind > 0 {
        let groups = behind.div_ceil(GROUP) as i32;
        let part: String = (1..=groups).map(|power| format!("{:04}", group(-power))).collect();
        text.push('.');
        text.push_str(&part[..behind]);
    }
    Some(text)
}

/// Why a text is not a decimal number of some size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// The text is not a number.
    Syntax,
    /// The number is too large.
    Range,
}

/// Reads a decimal number of at most `precision` digits, rounded half away from zero to `scale` digits behind the
/// point. Returns the number without its point.
pub(crate) fn parse(text: &str, precision: u8, scale: i8) -> Result<i128, Wrong> {
    let text = text.trim();
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().map_err(|_| Wrong::Syntax)?),
        None => (text, 0),
    };
    let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if (whole.is_empty() && part.is_empty()) || !whole.bytes().chain(part.bytes()).all(|byte| byte.is_ascii_digit()) {
        return Err(Wrong::Syntax);
    }
    // The number of digits that are kept; the next digit rounds.
    let counted = whole.len() as i64 + i64::from(exponent) + i64::from(scale);
    let mut digits = whole.bytes().chain(part.bytes()).map(|byte| i128::from(byte - b'0'));
    let mut number: i128 = 0;
    let length = (whole.len() + part.len()) as i64;
    for at in 0..counted.max(0) {
        let digit = digits.next().unwrap_or(0);
        number = number.checked_mul(10).and_then(|number| number.checked_add(digit)).ok_or(Wrong::Range)?;
        if number == 0 && at >= length {
            break;
        }
    }
    if counted >= 0 && digits.next().is_some_and(|digit| digit >= 5) {
        number += 1;
    }
    if number >= 10i128.checked_pow(u32::from(precision)).unwrap_or(i128::MAX) {
        return Err(Wrong::Range);
    }
    Ok(if negative { -number } else { number })
}

/// The number of digits that a number needs behind the point, and in all; for numbers without a type.
pub(crate) fn size(text: &str) -> (usize, usize) {
    let mantissa = text.trim().trim_start_matches(['+', '-']);
    let (mantissa, exponent) = mantissa.split_once(['e', 'E']).unwrap_or((mantissa, "0"));
    let exponent = exponent.parse::<i64>().unwrap_or(0).clamp(-100, 100);
    let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let behind = (part.len() as i64 - exponent).max(0) as usize;
    let whole = (whole.trim_start_matches('0').len() as i64 + exponent).max(0) as usize;
    (behind, whole + behind)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(unscaled: i128, scale: i8) -> String {
        let mut out = BytesMut::new();
        write_text(&mut out, &unscaled.to_string(), scale);
        String::from_utf8(out.to_vec()).expect("it is text")
    }

    #[test]
    fn numbers_survive_both_layouts() {
        let numbers =
            [0, 1, -1, 5, 9999, 10_000, -10_001, 123_456_789, 100_000_000, i128::MAX / 10, -(i128::MAX / 100)];
        for number in numbers {
            for scale in [0i8, 1, 2, 3, 4, 5, 10, 37] {
                let text = text(number, scale);
                assert_eq!(parse(&text, 38, scale), Ok(number), "{text}");
                let mut out = BytesMut::new();
                write_binary(&mut out, &number.to_string(), scale);
                assert_eq!(read_binary(&out).as_deref(), Some(&*text));
            }
        }
        assert_eq!(text(12, -3), "12000");
        assert_eq!(text(-5, 2), "-0.05");
        assert_eq!(text(0, 2), "0.00");
    }

    #[test]
    fn the_binary_layout_is_postgresqls() {
        let mut out = BytesMut::new();
        write_binary(&mut out, "-1234567", 2); // -12345.67
        assert_eq!(&out[..], [0, 3, 0, 1, 0x40, 0, 0, 2, 0, 1, 0x09, 0x29, 0x1a, 0x2c]);
        assert_eq!(read_binary(&[0, 0, 0, 0, 0xc0, 0, 0, 0]), None, "NaN");
        assert_eq!(read_binary(&[0, 1, 0, 0, 0, 0, 0, 0, 0x27, 0x10]), None, "a digit of 10000");
        assert_eq!(read_binary(&[0, 1, 0, 0, 0, 0]), None, "cut off");
    }

    #[test]
    fn texts_are_rounded_and_bounded() {
        let examples = [
            ("1.005", Ok(101)),
            ("-1.005", Ok(-101)),
            ("1e2", Ok(10_000)),
            (".5", Ok(50)),
            ("1e-2", Ok(1)),
            ("5e-3", Ok(1)),
            ("4e-3", Ok(0)),
            ("1e-50", Ok(0)),
            ("999.99", Ok(99_999)),
            ("1000", Err(Wrong::Range)),
            ("1e99", Err(Wrong::Range)),
            ("0e99", Ok(0)),
            ("", Err(Wrong::Syntax)),
            ("1.2.3", Err(Wrong::Syntax)),
            ("NaN", Err(Wrong::Syntax)),
            ("1e", Err(Wrong::Syntax)),
        ];
        for (text, expected) in examples {
            assert_eq!(parse(text, 5, 2), expected, "{text}");
        }
        assert_eq!(size("-123.450"), (3, 6));
        assert_eq!(size("1.5e3"), (0, 4));
    }
}
