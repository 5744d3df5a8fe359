//! Tables whose columns line up: numbers to the right, words to the left.
//!
//! A column is one of numbers if one of its cells below the heading is, and the others are too, or empty, or `-`. A
//! cell without a figure is a `-`, never a zero. The binary's tables are these as well, with a rule below the headings.

use std::fmt;

/// A table.
#[derive(Clone, Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
    ruled: bool,
}

impl Table {
    /// A table with these headings.
    pub fn new(headings: &[&str]) -> Table {
        Table { rows: vec![headings.iter().map(|heading| (*heading).to_owned()).collect()], ruled: false }
    }

    /// The same with a rule below the headings.
    pub fn ruled(headings: &[&str]) -> Table {
        Table { ruled: true, ..Table::new(headings) }
    }

    /// Whether it has no rows below the headings.
    pub fn is_empty(&self) -> bool {
        self.rows.len() == 1
    }

    /// Adds a row.
    ///
    /// # Panics
    /// Unless it has a cell for each heading.
    pub fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.rows[0].len(), "a row has a cell for each heading");
        self.rows.push(cells);
    }

    fn is_of_numbers(&self, column: usize) -> bool {
        let mut cells =
            self.rows[1..].iter().map(|row| row[column].as_str()).filter(|cell| !matches!(*cell, "" | "-")).peekable();
        cells.peek().is_some() && cells.all(is_number)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = 0..self.rows[0].len();
        let width = |column: usize| self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = columns.clone().map(width).collect();
        let right: Vec<bool> = columns.map(|column| self.is_of_numbers(column)).collect();
        for (at, row) in self.rows.iter().enumerate() {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let pad = " ".repeat(widths[column] - cell.chars().count());
                let gap = if column == 0 { "" } else { "  " };
                line += &if right[column] { format!("{gap}{pad}{cell}") } else { format!("{gap}{cell}{pad}") };
            }
            writeln!(f, "{}", line.trim_end())?;
            if at == 0 && self.ruled {
                let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
                writeln!(f, "{}", rule.join("  "))?;
            }
        }
        Ok(())
    }
}

/// Whether a cell begins as a number does, with or without a sign.
fn is_number(cell: &str) -> bool {
    cell.strip_prefix(['+', '-']).unwrap_or(cell).starts_with(|c: char| c.is_ascii_digit())
}

/// A whole number with commas between thousands.
pub fn grouped(value: f64) -> String {
    thousands(&format!("{value:.0}"))
}

/// Digits with commas between thousands.
pub fn thousands(digits: &str) -> String {
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_right_words_left_and_nothing_trails() {
        let mut table = Table::new(&["store", "GB/s", "against"]);
        table.row(vec!["ntstore".into(), "12.5".into(), "+50 %".into()]);
        table.row(vec!["none".into(), "-".into(), "".into()]);
        assert_eq!(table.to_string(), "store    GB/s  against\nntstore  12.5    +50 %\nnone        -\n");
    }

    #[test]
    fn a_rule_is_as_wide_as_its_columns_and_without_a_number_a_column_is_of_words() {
        let mut table = Table::ruled(&["name", "n", "state"]);
        assert!(table.is_empty());
        table.row(vec!["a".into(), "5".into(), "-".into()]);
        table.row(vec!["longer".into(), "1,234".into(), "-".into()]);
        let shown = "name        n  state\n------  -----  -----\na           5  -\nlonger  1,234  -\n";
        assert_eq!(table.to_string(), shown);
    }

    #[test]
    fn thousands_are_grouped() {
        for (value, text) in [(0.0, "0"), (999.0, "999"), (1_000.0, "1,000"), (3_072_000.4, "3,072,000")] {
            assert_eq!(grouped(value), text);
        }
    }
}
