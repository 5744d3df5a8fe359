//! [`CatTable`]: the tables of `_cat` requests, as aligned text or as JSON.

use serde_json::{Value, json};

use super::message::{RestRequest, RestResponse};
use crate::error::SearchError;
use crate::mapping::matches_pattern;

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub(super) struct CatColumn {
    /// Its name.
    pub(super) name: &'static str,
    /// Other names for it, with commas between.
    pub(super) aliases: &'static str,
    /// What it means.
    pub(super) about: &'static str,
    /// Whether it is shown where the request names none.
    pub(super) shown: bool,
    /// Whether its values stand on the right.
    pub(super) right: bool,
}

/// A column that is shown, with its values on the left.
pub(super) const fn left(name: &'static str, aliases: &'static str, about: &'static str) -> CatColumn {
    CatColumn { name, aliases, about, shown: true, right: false }
}

/// A column that is shown, with its values on the right.
pub(super) const fn right(name: &'static str, aliases: &'static str, about: &'static str) -> CatColumn {
    CatColumn { name, aliases, about, shown: true, right: true }
}

/// A column that is shown on request.
pub(super) const fn hidden(name: &'static str, aliases: &'static str, about: &'static str) -> CatColumn {
    CatColumn { name, aliases, about, shown: false, right: true }
}

/// A table.
pub(super) struct CatTable {
    pub(super) columns: Vec<CatColumn>,
    pub(super) rows: Vec<Vec<String>>,
}

impl CatTable {
    /// The table as the request wants it. Errors: a column to sort by that is not there, a format that is not known.
    pub(super) fn answer(mut self, request: &RestRequest) -> Result<RestResponse, SearchError> {
        if request.flag("help")?.unwrap_or(false) {
            return Ok(RestResponse::text(200, self.help()));
        }
        if let Some(keys) = request.parameter("s") {
            self.sort(keys)?;
        }
        let chosen = self.chosen(request.parameter("h"));
        match request.parameter("format") {
            None | Some("text") => Ok(RestResponse::text(200, self.text(&chosen, request.flag("v")?.unwrap_or(false)))),
            Some("json") => {
                let row = |row: &Vec<String>| -> Value {
                    chosen
                        .iter()
                        .map(|(at, name)| (name.clone(), json!(row[*at])))
                        .collect::<serde_json::Map<_, _>>()
                        .into()
                };
                Ok(RestResponse::json(200, self.rows.iter().map(row).collect()))
            }
            Some(other) => Err(SearchError::unsupported(format!("format [{other}]"))),
        }
    }

    fn place(&self, name: &str) -> Option<usize> {
        let is = |column: &CatColumn| column.name == name || column.aliases.split(',').any(|alias| alias == name);
        self.columns.iter().position(is)
    }

    /// Columns to show, each with its name in the heading.
    fn chosen(&self, wanted: Option<&str>) -> Vec<(usize, String)> {
        let Some(wanted) = wanted else {
            let columns = self.columns.iter().enumerate().filter(|(_, column)| column.shown);
            return columns.map(|(at, column)| (at, column.name.to_owned())).collect();
        };
        let mut chosen = Vec::new();
        for name in wanted.split(',').map(str::trim) {
            if name.contains('*') {
                let fitting = self.columns.iter().enumerate().filter(|(_, column)| matches_pattern(name, column.name));
                chosen.extend(fitting.map(|(at, column)| (at, column.name.to_owned())));
            } else if let Some(at) = self.place(name) {
                chosen.push((at, name.to_owned()));
            }
        }
        chosen
    }

    fn sort(&mut self, keys: &str) -> Result<(), SearchError> {
        let mut places = Vec::new();
        for key in keys.split(',') {
            let (name, descending) = match key.split_once(':') {
                Some((name, order)) => (name, order == "desc"),
                None => (key, false),
            };
            let at = self.place(name);
            let at = at.ok_or_else(|| {
                SearchError::new(
                    400,
                    "unsupported_operation_exception",
                    format!("Unable to sort by unknown sort key `{name}`"),
                )
            })?;
            places.push((at, descending));
        }
        self.rows.sort_by(|a, b| {
            for (at, descending) in &places {
                let order = match (a[*at].parse::<f64>(), b[*at].parse::<f64>()) {
                    (Ok(a), Ok(b)) => a.total_cmp(&b),
                    _ => a[*at].cmp(&b[*at]),
                };
                if order.is_ne() {
                    return if *descending { order.reverse() } else { order };
                }
            }
            std::cmp::Ordering::Equal
        });
        Ok(())
    }

    fn text(&self, chosen: &[(usize, String)], with_head: bool) -> String {
        let width = |(at, name): &(usize, String)| {
            let values = self.rows.iter().map(|row| row[*at].chars().count()).max().unwrap_or(0);
            if with_head { values.max(name.chars().count()) } else { values }
        };
        let widths: Vec<usize> = chosen.iter().map(width).collect();
        let mut out = String::new();
        let mut line = |cells: Vec<&str>| {
            let from = out.len();
            // Empty cells at the end keep their place, as in Elasticsearch's tables.
            let ends_empty = cells.last().is_some_and(|cell| cell.is_empty());
            for (number, ((cell, width), (at, _))) in cells.into_iter().zip(&widths).zip(chosen).enumerate() {
                if number > 0 {
                    out.push(' ');
                }
                if self.columns[*at].right {
                    out.push_str(&format!("{cell:>width$}"));
                } else {
                    out.push_str(&format!("{cell:<width$}"));
                }
            }
            if !ends_empty {
                let end = out[from..].trim_end().len();
                out.truncate(from + end);
            }
            out.push('\n');
        };
        if with_head {
            line(chosen.iter().map(|(_, name)| name.as_str()).collect());
        }
        for row in &self.rows {
            line(chosen.iter().map(|(at, _)| row[*at].as_str()).collect());
        }
        out
    }

    fn help(&self) -> String {
        let widths = self
            .columns
            .iter()
            .fold((0, 0), |(names, aliases), column| (names.max(column.name.len()), aliases.max(column.aliases.len())));
        let line = |column: &CatColumn| {
            format!("{:<a$} | {:<b$} | {}\n", column.name, column.aliases, column.about, a = widths.0, b = widths.1)
        };
        self.columns.iter().map(line).collect()
    }
}

/// Bytes as people read them, or as a number where the request names a unit.
pub(super) fn bytes(request: &RestRequest, bytes: u64) -> String {
    match request.parameter("bytes") {
        Some("b") => bytes.to_string(),
        Some("kb" | "k") => (bytes >> 10).to_string(),
        Some("mb" | "m") => (bytes >> 20).to_string(),
        Some("gb" | "g") => (bytes >> 30).to_string(),
        _ => shown_bytes(bytes),
    }
}

/// Bytes as people read them.
pub(super) fn shown_bytes(bytes: u64) -> String {
    match bytes {
        bytes if bytes < 1 << 10 => format!("{bytes}b"),
        bytes if bytes < 1 << 20 => format!("{:.1}kb", bytes as f64 / 1024.0),
        bytes if bytes < 1 << 30 => format!("{:.1}mb", bytes as f64 / 1_048_576.0),
        bytes => format!("{:.1}gb", bytes as f64 / 1_073_741_824.0),
    }
}
