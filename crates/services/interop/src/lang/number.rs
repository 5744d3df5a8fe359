//! Ordering decimal numbers exactly, as text: HL7 numbers (NM) have no size limit, and timestamps are numbers too.
//!
//! A number is an optional sign, digits, optionally `.` and digits (HL7 v2.5.1, 2.A.47). Blanks around it are ignored.
//! Anything else, `1E5` and `<5` among them, is not a number and compares with nothing.

use std::cmp::Ordering;

/// Sign, whole digits without leading zeros, fraction digits without trailing zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Decimal<'a> {
    negative: bool,
    whole: &'a [u8],
    fraction: &'a [u8],
}

impl<'a> Decimal<'a> {
    fn read(text: &'a [u8]) -> Option<Decimal<'a>> {
        let text = text.trim_ascii();
        let (negative, digits) = match text.first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let point = digits.iter().position(|byte| *byte == b'.');
        let (whole, fraction) = match point {
            Some(at) => (&digits[..at], &digits[at + 1..]),
            None => (digits, &digits[digits.len()..]),
        };
        if whole.len() + fraction.len() == 0 || !whole.iter().chain(fraction).all(u8::is_ascii_digit) {
            return None;
        }
        let leading = whole.iter().take_while(|digit| **digit == b'0').count();
        let trailing = fraction.iter().rev().take_while(|digit| **digit == b'0').count();
        let (whole, fraction) = (&whole[leading..], &fraction[..fraction.len() - trailing]);
        let zero = whole.is_empty() && fraction.is_empty();
        Some(Decimal { negative: negative && !zero, whole, fraction })
    }

    fn magnitude(&self, other: &Decimal<'_>) -> Ordering {
        // Without leading zeros the longer whole part is the larger; digits of equal count compare as bytes.
        let whole = self.whole.len().cmp(&other.whole.len()).then_with(|| self.whole.cmp(other.whole));
        whole.then_with(|| self.fraction.cmp(other.fraction))
    }
}

/// How two numbers compare; `None` if either is not a number.
pub(super) fn compare(left: &[u8], right: &[u8]) -> Option<Ordering> {
    let (left, right) = (Decimal::read(left)?, Decimal::read(right)?);
    Some(match (left.negative, right.negative) {
        (false, false) => left.magnitude(&right),
        (true, true) => right.magnitude(&left),
        (true, false) => Ordering::Less,
        (false, true) => Ordering::Greater,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_compare_by_value_and_other_texts_do_not_compare() {
        use Ordering::{Equal, Greater, Less};
        let cases = [
            ("1", "1", Some(Equal)),
            ("01", "1.0", Some(Equal)),
            ("-0", "0.00", Some(Equal)),
            (" 7 ", "+7", Some(Equal)),
            ("9", "10", Some(Less)),
            ("-9", "-10", Some(Greater)),
            ("-1", "1", Some(Less)),
            ("1.25", "1.3", Some(Less)),
            (".5", "0.49", Some(Greater)),
            ("5.", "5", Some(Equal)),
            ("20240229103000.0001", "20240229103000", Some(Greater)),
            ("123456789012345678901234567890", "123456789012345678901234567891", Some(Less)),
            ("1E5", "1", None),
            ("<5", "5", None),
            ("", "0", None),
            ("-", "0", None),
            (".", "0", None),
            ("1.2.3", "0", None),
        ];
        for (left, right, expected) in cases {
            assert_eq!(compare(left.as_bytes(), right.as_bytes()), expected, "{left} against {right}");
            assert_eq!(
                compare(right.as_bytes(), left.as_bytes()),
                expected.map(Ordering::reverse),
                "{right} against {left}"
            );
        }
    }
}
