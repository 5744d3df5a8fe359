//! The layout of figures and tables on a terminal.

use std::fmt;

use workload::table::{self, thousands};

use crate::terminal;

/// A table with a line below its headings; its cells cannot contain control characters of the terminal or line ends.
#[derive(Debug)]
pub struct TextTable(table::Table);

impl TextTable {
    /// A table with these headings.
    pub fn new(headings: &[&str]) -> Self {
        Self(table::Table::ruled(headings))
    }

    /// Adds a row, with as many cells as there are headings.
    pub fn row(&mut self, cells: &[&str]) {
        self.0.row(cells.iter().map(|cell| terminal::one_line(cell).into_owned()).collect());
    }

    /// Whether it has no rows below the headings.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for TextTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
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
    fn a_cell_stays_on_its_line() {
        let mut table = TextTable::new(&["name", "n"]);
        table.row(&["a\nb", "5"]);
        assert_eq!(table.to_string(), "name      n\n--------  -\na\\u000ab  5\n");
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
