//! Lookup tables: keys, such as the codes of one system, with their values, such as the codes of another.
//!
//! ```text
//! # wards of the old system, departments of the new one
//! ICU,INT
//! "Ward 3, east",W3E
//! ```
//!
//! One entry a line: key, comma, value; blanks around both are not part of them. A field in double quotes may hold a
//! comma, blanks at its ends, a `#`, and a quote written twice; it ends on its line. Keys are compared exactly,
//! capital letters too. A key written twice is refused: which value counts would be a guess.

use std::collections::HashMap;

use super::diagnostic::{Diagnostic, Fault, Source, SourceSpan};

/// One lookup table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    entries: HashMap<Box<str>, Box<str>>,
}

impl Table {
    /// Reads a table from text.
    ///
    /// # Errors
    /// The first line that is not an entry, or whose key was there before.
    pub fn parse_csv(source: Source<'_>) -> Result<Table, Diagnostic> {
        read(&source).map_err(|fault| source.diagnostic(fault))
    }

    /// The value of a key, compared exactly.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.entries.get(key).map(|value| &**value)
    }

    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no entry at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// The tables of a production, by name.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    names: Vec<String>,
    tables: Vec<Table>,
}

/// A table's place in its [`Tables`].
pub(super) type TableId = u32;

impl Tables {
    /// No tables.
    #[must_use]
    pub fn new() -> Tables {
        Tables::default()
    }

    /// Adds a table, or replaces the one with this name.
    pub fn insert(&mut self, name: impl Into<String>, table: Table) {
        let name = name.into();
        match self.names.iter().position(|known| *known == name) {
            Some(at) => self.tables[at] = table,
            None => {
                self.names.push(name);
                self.tables.push(table);
            }
        }
    }

    /// The table of a name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Table> {
        self.find(name).map(|id| self.table(id))
    }

    /// The names, in the order of insertion.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    pub(super) fn find(&self, name: &str) -> Option<TableId> {
        self.names.iter().position(|known| known == name).map(|at| at as TableId)
    }

    pub(super) fn table(&self, id: TableId) -> &Table {
        &self.tables[id as usize]
    }

    pub(super) fn name(&self, id: TableId) -> &str {
        &self.names[id as usize]
    }
}

fn read(source: &Source<'_>) -> Result<Table, Fault> {
    source.check_size()?;
    let mut table = Table::default();
    let mut offset = 0;
    for line in source.text.split_inclusive('\n') {
        let start = offset;
        offset += line.len();
        let mut reader = Reader { line: line.trim_end_matches(['\n', '\r']), start, at: 0 };
        if start == 0 {
            reader.at = reader.line.len() - reader.line.trim_start_matches('\u{feff}').len();
        }
        reader.skip_blanks();
        if reader.rest().is_empty() || reader.rest().starts_with('#') {
            continue;
        }
        let (key, span) = reader.field()?;
        if !reader.rest().starts_with(',') {
            return Err(reader.fault("expected a comma and the value").hint("a line is: key,value"));
        }
        reader.at += 1;
        let (value, _) = reader.field()?;
        if !reader.rest().is_empty() && !reader.rest().starts_with('#') {
            return Err(reader
                .fault("there is more than a key and a value on this line")
                .hint("put a value that holds a comma in double quotes: key,\"a, b\""));
        }
        if table.entries.insert(key.clone().into(), value.into()).is_some() {
            return Err(Fault::new(span, format!("the key `{key}` is there already")).hint("keep one of the two lines"));
        }
    }
    Ok(table)
}

struct Reader<'a> {
    line: &'a str,
    /// Offset of the line in the file.
    start: usize,
    at: usize,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        &self.line[self.at..]
    }

    fn skip_blanks(&mut self) {
        self.at = self.line.len() - self.rest().trim_start().len();
    }

    fn fault(&self, message: &str) -> Fault {
        Fault::new(SourceSpan::new(self.start + self.at..self.start + self.line.len()), message)
    }

    /// A field and its place, blanks around it skipped.
    fn field(&mut self) -> Result<(String, SourceSpan), Fault> {
        self.skip_blanks();
        let from = self.at;
        let text = if self.rest().starts_with('"') {
            self.quoted()?
        } else {
            let bare = self.rest().split([',', '#']).next().unwrap_or("");
            self.at += bare.len();
            bare.trim().to_owned()
        };
        let span = SourceSpan::new(self.start + from..self.start + self.at);
        self.skip_blanks();
        Ok((text, span))
    }

    fn quoted(&mut self) -> Result<String, Fault> {
        let mut text = String::new();
        let mut characters = self.rest()[1..].char_indices().peekable();
        while let Some((offset, character)) = characters.next() {
            if character != '"' {
                text.push(character);
            } else if characters.next_if(|(_, next)| *next == '"').is_some() {
                text.push('"');
            } else {
                self.at += 1 + offset + 1;
                return Ok(text);
            }
        }
        Err(self.fault("this field has no closing quote"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_keys_and_values_with_blanks_quotes_and_comments() {
        let text = "\u{feff}# wards\r\nICU,INT\r\n\n W3 , Ward three # east\n\"a, b\",\"say \"\"hi\"\"\"\nempty,\n\" x \",\"#1\" # note\n,none\n";
        let table = Table::parse_csv(Source { file: "t.csv", text }).expect("a table");
        let expected =
            [("ICU", "INT"), ("W3", "Ward three"), ("a, b", "say \"hi\""), ("empty", ""), (" x ", "#1"), ("", "none")];
        assert_eq!(table.len(), expected.len());
        for (key, value) in expected {
            assert_eq!(table.get(key), Some(value), "{key}");
        }
        assert_eq!(table.get("icu"), None);
    }

    #[test]
    fn a_line_that_is_no_entry_is_refused_where_it_stands() {
        let cases = [
            ("a,1\nb\n", "t.csv:2:2: expected a comma and the value"),
            ("a,1,2\n", "t.csv:1:4: there is more than a key and a value"),
            ("a,1\n#\na,2\n", "t.csv:3:1: the key `a` is there already"),
            ("\"a,1\n", "t.csv:1:1: this field has no closing quote"),
            ("\"a\"\"", "t.csv:1:1: this field has no closing quote"),
            ("\"", "t.csv:1:1: this field has no closing quote"),
            ("\"a\"b,1", "t.csv:1:4: expected a comma"),
        ];
        for (text, expected) in cases {
            let fault = Table::parse_csv(Source { file: "t.csv", text }).expect_err(text).to_string();
            assert!(fault.starts_with(expected), "{text:?}: {fault}");
        }
    }
}
