//! How figures and tables look on a terminal.

use std::fmt;

use workload::table::thousands;

use crate::terminal;

/// A table whose columns line up; numbers to the right.
#[derive(Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these headings.
    pub fn new(headings: &[&str]) -> Self {
        Self { rows: vec![headings.iter().map(|h| (*h).to_owned()).collect()] }
    }

    /// Adds a row, with as many cells as there are headings.
    pub fn row(&mut self, cells: &[&str]) {
        assert_eq!(cells.len(), self.rows[0].len(), "a row has a cell for each heading");
        self.rows.push(cells.iter().map(|c| terminal::one_line(c).into_owned()).collect());
    }

    /// Whether it has no rows below the headings.
    pub fn is_empty(&self) -> bool {
        self.rows.len() == 1
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows[0].len();
        let width = |c: usize| self.rows.iter().map(|row| row[c].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let numeric = |c: usize| {
            let mut cells = self.rows[1..].iter().map(|row| row[c].as_str()).filter(|cell| *cell != "-").peekable();
            cells.peek().is_some() && cells.all(|cell| cell.starts_with(|d: char| d.is_ascii_digit()))
        };
        let right: Vec<bool> = (0..columns).map(numeric).collect();
        for (at, row) in self.rows.iter().enumerate() {
            let mut line = String::new();
            for (c, cell) in row.iter().enumerate() {
                let pad = " ".repeat(widths[c] - cell.chars().count());
                let gap = if c == 0 { "" } else { "  " };
                line += &if right[c] { format!("{gap}{pad}{cell}") } else { format!("{gap}{cell}{pad}") };
            }
            writeln!(f, "{}", line.trim_end())?;
            if at == 0 {
                let rule: Vec<String> = widths.iter().map(|w| "-".repeat(*w)).collect();
                writeln!(f, "{}", rule.join("  "))?;
            }
        }
        Ok(())
    }
}

/// `1234567` as `1,234,567`.
pub fn count(n: u64) -> String {
    thousands(&n.to_string())
}

/// Bytes in the largest unit that leaves at least one before the point.
pub fn bytes(n: u64) -> String {
    for (unit, size) in [("GiB", 1u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
        if n >= size {
            return format!("{:.1} {unit}", n as f64 / size as f64);
        }
    }
    format!("{n} B")
}

/// Microseconds since 1970 as local time, to the millisecond.
pub fn time(us: i64) -> String {
    jiff::Timestamp::from_microsecond(us)
        .unwrap_or(jiff::Timestamp::UNIX_EPOCH)
        .to_zoned(jiff::tz::TimeZone::system())
        .strftime("%Y-%m-%d %H:%M:%S.%3f")
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_numbers_stand_to_the_right() {
        let mut table = Table::new(&["name", "n"]);
        table.row(&["a", "5"]);
        table.row(&["longer", "1,234"]);
        assert_eq!(table.to_string(), "name        n\n------  -----\na           5\nlonger  1,234\n");
    }

    #[test]
    fn figures_are_grouped_and_sizes_have_units() {
        assert_eq!(count(0), "0");
        assert_eq!(count(614_400), "614,400");
        assert_eq!(bytes(1_023), "1023 B");
        assert_eq!(bytes(1_536), "1.5 KiB");
        assert_eq!(bytes(3 << 30), "3.0 GiB");
    }
}
