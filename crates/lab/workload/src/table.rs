//! Tables whose columns line up: numbers to the right, words to the left.
//!
//! A column is one of numbers if every cell below its heading begins with a digit, a sign or is empty or `-`. What has no
//! figure is a `-`, never a zero.

use std::fmt;

/// A table.
#[derive(Clone, Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these headings.
    pub fn new(headings: &[&str]) -> Table {
        Table { rows: vec![headings.iter().map(|heading| (*heading).to_owned()).collect()] }
    }

    /// Adds a row.
    ///
    /// # Panics
    /// Unless it has a cell for each heading.
    pub fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.rows[0].len(), "a row has a cell for each heading");
        self.rows.push(cells);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = 0..self.rows[0].len();
        let width = |column: usize| self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = columns.clone().map(width).collect();
        let right: Vec<bool> = columns.map(|column| self.rows[1..].iter().all(|row| is_number(&row[column]))).collect();
        for row in &self.rows {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let pad = " ".repeat(widths[column] - cell.chars().count());
                let gap = if column == 0 { "" } else { "  " };
                line += &if right[column] { format!("{gap}{pad}{cell}") } else { format!("{gap}{cell}{pad}") };
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

fn is_number(cell: &str) -> bool {
    cell.is_empty() || cell == "-" || cell.starts_with(|c: char| c.is_ascii_digit() || c == '+' || c == '-')
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
    fn thousands_are_grouped() {
        for (value, text) in [(0.0, "0"), (999.0, "999"), (1_000.0, "1,000"), (3_072_000.4, "3,072,000")] {
            assert_eq!(grouped(value), text);
        }
    }
}
