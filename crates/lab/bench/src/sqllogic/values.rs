//! Compares rows with the expected ones of a record: written by the letters, sorted as requested, and compared, or
//! hashed.
//!
//! ```text
//! rows --letters--> texts --order--> texts --compare--> lines of the record
//!                                          \--MD5 of each text and a line feed--> "30 values hashing to 5bd5..."
//! ```
//!
//! The letter decides how a value is written, not the type that came: an average under `I` is cut to an integer and a
//! boolean is 1 or 0, as a C program that requests an integer from its driver gets them. NULL is `NULL`, the empty text
//! `(empty)`, and a character that is not printable ASCII `@`.

use md5::{Digest, Md5};

use super::script::{Letter, Order};

/// The text after the count if values are hashed.
const HASHING: &str = " values hashing to ";

/// Why rows are not the expected ones; `None` if they are.
pub(super) fn difference(
    rows: &[Vec<Option<String>>],
    letters: &[Letter],
    order: Order,
    lines: &[String],
) -> Option<String> {
    if let Some(row) = rows.iter().find(|row| row.len() != letters.len()) {
        return Some(format!("{} columns and not {}", row.len(), letters.len()));
    }
    let mut rows: Vec<Vec<String>> = rows
        .iter()
        .map(|row| letters.iter().zip(row).map(|(letter, value)| written(*letter, value.as_deref())).collect())
        .collect();
    if order == Order::Rows {
        rows.sort_unstable();
    }
    let mut values: Vec<String> = rows.into_iter().flatten().collect();
    if order == Order::Values {
        values.sort_unstable();
    }
    if let [line] = lines
        && line.contains(HASHING)
    {
        let mine = format!("{}{HASHING}{}", values.len(), hash(&values));
        return (mine != *line).then(|| format!("{mine} and not {line}"));
    }
    if values.len() != lines.len() {
        return Some(format!("{} values and not {}", values.len(), lines.len()));
    }
    let at = values.iter().zip(lines).position(|(value, line)| value != line)?;
    Some(format!("value {}: {} and not {}", at + 1, values[at], lines[at]))
}

/// A value under its letter. A value that is no number under `I` or `R` stays unchanged, and so differs.
fn written(letter: Letter, value: Option<&str>) -> String {
    let Some(value) = value else { return "NULL".into() };
    let number = || match value {
        "t" => Some(1.0),
        "f" => Some(0.0),
        _ => value.parse::<f64>().ok(),
    };
    match letter {
        Letter::Integer => match value.parse::<i64>() {
            Ok(whole) => whole.to_string(),
            Err(_) => number().map_or(value.into(), |number| format!("{}", number.trunc() as i64)),
        },
        Letter::Real => number().map_or(value.into(), |number| format!("{number:.3}")),
        Letter::Text if value.is_empty() => "(empty)".into(),
        Letter::Text => value.chars().map(|c| if (' '..='~').contains(&c) { c } else { '@' }).collect(),
    }
}

fn hash(values: &[String]) -> String {
    let mut md5 = Md5::new();
    for value in values {
        md5.update(value.as_bytes());
        md5.update(b"\n");
    }
    md5.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use Letter::{Integer, Real, Text};

    #[test]
    fn a_letter_decides_how_a_value_is_written() {
        for (letter, value, wanted) in [
            (Integer, Some("7"), "7"),
            (Integer, Some("-7.9"), "-7"),
            (Integer, Some("t"), "1"),
            (Integer, Some("x"), "x"),
            (Integer, None, "NULL"),
            (Real, Some("2"), "2.000"),
            (Real, Some("0.12345"), "0.123"),
            (Text, Some(""), "(empty)"),
            (Text, Some("a\tb"), "a@b"),
        ] {
            assert_eq!(written(letter, value), wanted);
        }
    }

    fn rows(values: &[&[&str]]) -> Vec<Vec<Option<String>>> {
        values.iter().map(|row| row.iter().map(|value| Some((*value).to_owned())).collect()).collect()
    }

    fn lines(lines: &[&str]) -> Vec<String> {
        lines.iter().map(|line| (*line).to_owned()).collect()
    }

    #[test]
    fn values_are_compared_in_the_order_that_is_asked_for() {
        let rows = rows(&[&["2", "a"], &["10", "b"]]);
        let same = |order, expected: &[&str]| difference(&rows, &[Integer, Text], order, &lines(expected)).is_none();
        assert!(same(Order::None, &["2", "a", "10", "b"]));
        assert!(same(Order::Rows, &["10", "b", "2", "a"]));
        assert!(same(Order::Values, &["10", "2", "a", "b"]));
        assert!(!same(Order::Rows, &["2", "a", "10", "b"]));
        assert!(!same(Order::None, &["2", "a", "10"]));
    }

    #[test]
    fn many_values_are_compared_by_their_hash() {
        // printf '1\n2\n' | md5sum
        let expected = lines(&["2 values hashing to 6ddb4095eb719e2a9f0a3f95677d24e0"]);
        assert_eq!(difference(&rows(&[&["1"], &["2"]]), &[Integer], Order::None, &expected), None);
        assert!(difference(&rows(&[&["1"], &["3"]]), &[Integer], Order::None, &expected).is_some());
    }

    #[test]
    fn another_number_of_columns_is_a_difference() {
        assert!(difference(&rows(&[&["1", "2"]]), &[Integer], Order::None, &lines(&["1", "2"])).is_some());
    }
}
