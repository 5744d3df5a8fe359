//! Directories of attributes, as the kernel presents devices below `/sys`.

use std::path::{Path, PathBuf};

/// A directory of attributes.
pub(super) struct Tree(pub(super) PathBuf);

impl Tree {
    /// A directory below.
    pub(super) fn at(&self, path: impl AsRef<Path>) -> Tree {
        Tree(self.0.join(path))
    }

    /// An attribute without its newline; `None` if it is missing or cannot be read.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        Some(std::fs::read_to_string(self.0.join(name)).ok()?.trim().to_owned())
    }

    /// An attribute that is a decimal number, or a hexadecimal one with `0x`.
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        let text = self.text(name)?;
        match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        }
    }

    /// Names of the entries, sorted; numbers in them are compared by value.
    pub(super) fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).into_iter().flatten();
        let mut names: Vec<String> =
            entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort_by_key(|name| natural(name));
        names
    }

    /// Names of entries that are a prefix and a number, such as `node0`, `region12` or `namespace0.1`.
    pub(super) fn numbered(&self, prefix: &str) -> Vec<String> {
        let is_numbered = |name: &String| {
            name.strip_prefix(prefix).is_some_and(|rest| {
                rest.starts_with(|c: char| c.is_ascii_digit()) && rest.chars().all(|c| c.is_ascii_digit() || c == '.')
            })
        };
        self.names().into_iter().filter(is_numbered).collect()
    }
}

/// A key that sorts `nvme10` after `nvme2`.
fn natural(name: &str) -> Vec<(String, u64)> {
    let mut key = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let word = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let (text, tail) = rest.split_at(word);
        let digits = tail.find(|c: char| !c.is_ascii_digit()).unwrap_or(tail.len());
        let (number, tail) = tail.split_at(digits);
        key.push((text.to_owned(), number.parse().unwrap_or(0)));
        rest = tail;
    }
    key
}
