//! Scripts of sqllogictest, as SQLite's own runner reads them (sqlite.org/sqllogictest, "About").
//!
//! ```text
//! skipif mysql # a remark          the next record is not for this engine
//! query IR rowsort label-7         I integer, R real, T text; nosort, rowsort or valuesort
//! SELECT a, b FROM t1
//! ----
//! 1                                one value a line, or "30 values hashing to 5bd5..."
//! 2.500
//!                                  a blank line ends a record
//! ```
//!
//! Records that are not for PostgreSQL stay in the list, as skipped: they are counted. A `halt` for us ends the script.

use anyhow::{Context, bail};

/// The name under which scripts know the engine whose protocol and dialect ours are.
const ENGINE: &str = "postgresql";

/// How a column's values are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Letter {
    Integer,
    Real,
    Text,
}

/// The values that are sorted before the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    None,
    Rows,
    Values,
}

/// The expected result of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    /// That the statement is taken.
    Done,
    /// That it is refused.
    Refused,
    /// These values, or the line that stands for many.
    Values { letters: Vec<Letter>, order: Order, lines: Vec<String> },
}

/// A statement or query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// Its first line in the script, from 1.
    pub(super) line: usize,
    pub(super) sql: String,
    pub(super) expected: Expected,
    /// It is for other engines.
    pub(super) skipped: bool,
}

impl Record {
    pub(super) fn is_query(&self) -> bool {
        matches!(self.expected, Expected::Values { .. })
    }
}

/// Reads a script.
///
/// # Errors
/// If it has a line that the format does not know, with its number.
pub(super) fn parse(text: &str) -> anyhow::Result<Vec<Record>> {
    let mut lines = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim_end()));
    let (mut records, mut skipped) = (Vec::new(), false);
    while let Some((number, line)) = lines.next() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let expected = match words[..] {
            [] => continue,
            [first, ..] if first.starts_with('#') => continue,
            ["hash-threshold", ..] => continue,
            ["skipif", engine, ..] => {
                skipped |= engine == ENGINE;
                continue;
            }
            ["onlyif", engine, ..] => {
                skipped |= engine != ENGINE;
                continue;
            }
            ["halt", ..] if std::mem::take(&mut skipped) => continue,
            ["halt", ..] => break,
            ["statement", "ok", ..] => Expected::Done,
            ["statement", "error", ..] => Expected::Refused,
            ["query", letters, ref rest @ ..] => {
                let letters = letters.chars().map(letter).collect::<Option<Vec<_>>>();
                let letters = letters.with_context(|| format!("line {number}: types are I, R and T"))?;
                Expected::Values { letters, order: order(rest), lines: Vec::new() }
            }
            _ => bail!("line {number}: \"{line}\" is no record of sqllogictest"),
        };
        let mut record = Record { line: number, sql: String::new(), expected, skipped: std::mem::take(&mut skipped) };
        let mut in_results = false;
        for (_, line) in lines.by_ref().take_while(|(_, line)| !line.is_empty()) {
            match &mut record.expected {
                Expected::Values { lines, .. } if in_results => lines.push(line.to_owned()),
                Expected::Values { .. } if line == "----" => in_results = true,
                _ => {
                    if !record.sql.is_empty() {
                        record.sql.push('\n');
                    }
                    record.sql += line;
                }
            }
        }
        records.push(record);
    }
    Ok(records)
}

fn letter(letter: char) -> Option<Letter> {
    match letter {
        'I' => Some(Letter::Integer),
        'R' => Some(Letter::Real),
        'T' => Some(Letter::Text),
        _ => None,
    }
}

/// The order is before the label; both may be missing.
fn order(words: &[&str]) -> Order {
    match words.first() {
        Some(&"rowsort") => Order::Rows,
        Some(&"valuesort") => Order::Values,
        _ => Order::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_queries_conditions_and_halts_are_read() {
        let text = "# remark\nhash-threshold 8\n\nonlyif mssql\nhalt\n\nstatement ok\nCREATE TABLE t(a)\n\n\
                    skipif postgresql # why\nquery IT rowsort label-1\nSELECT 1,\n'x'\n----\n1\nx\n\n\
                    onlyif mysql # DIV for integer division: \nskipif oracle\nstatement error\nDROP\n\n\
                    query R\nSELECT 2\n----\n2.000\n\nhalt\n\nstatement ok\nnever\n";
        let records = parse(text).expect("a script");
        let shape: Vec<_> = records.iter().map(|record| (record.line, record.sql.as_str(), record.skipped)).collect();
        assert_eq!(
            shape,
            [
                (7, "CREATE TABLE t(a)", false),
                (11, "SELECT 1,\n'x'", true),
                (20, "DROP", true),
                (23, "SELECT 2", false)
            ]
        );
        let values = |letters: &[Letter], order, lines: &[&str]| Expected::Values {
            letters: letters.to_vec(),
            order,
            lines: lines.iter().map(|line| (*line).to_owned()).collect(),
        };
        assert_eq!(records[1].expected, values(&[Letter::Integer, Letter::Text], Order::Rows, &["1", "x"]));
        assert_eq!(records[2].expected, Expected::Refused);
        assert_eq!(records[3].expected, values(&[Letter::Real], Order::None, &["2.000"]));
    }

    #[test]
    fn a_line_that_is_no_record_is_named() {
        for (text, line) in [("select 1\n", "line 1"), ("\nquery X nosort\nselect 1\n----\n1\n", "line 2")] {
            let error = parse(text).expect_err("it is no script").to_string();
            assert!(error.starts_with(line), "{error}");
        }
    }
}
