//! Generations of the production: each text that was loaded is kept in the store, with who loaded it and when, so that a decision can
//! be explained by the rules of then, and an earlier text can be loaded again.
//!
//! ```text
//!   tree production.generations
//!     g + number (u32 BE)      Generation, as JSON: who, when, how, commit, and path, hash and size of each file
//!     f + SHA-256 of a text    its length (u32 LE), and the text compressed (zlib)
//! ```
//!
//! A text that many generations have is there once. What is loaded again unchanged is no new generation.
//!
//! Invariants: a generation is durable, with the texts of its files, before it is in force: no message names one that is not there.
//! A row and its texts are one transaction. Space is bounded: the oldest texts go first, then the oldest rows; what is gone is named
//! as gone, and a number is never given twice.
//!
//! Certificates and keys are in no generation (see [`crate::production::text`]), so no secret is: the settings of a production name
//! the files of keys, and have no passwords.

mod commit;
mod difference;
mod explain;
mod stored;

use std::collections::BTreeMap;
use std::sync::Arc;

use ring::digest;
use serde::{Deserialize, Serialize};

use crate::production::Production;

pub use commit::commit_of;
pub use difference::{FileChange, FileDifference, Texts, differences};
pub use explain::rule_text;
pub use stored::{GENERATIONS_TREE, Generations};

/// The file of a generation that has the values which took the places of names in its settings; no file of the folder.
pub const VALUES_IN_FORCE: &str = "values (in force)";

/// How a generation came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LoadKind {
    /// The node started with it.
    Start,
    /// It was loaded by a running node.
    Reload,
    /// An earlier one was loaded again.
    Back(u32),
}

/// Who loads a production, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadCause {
    /// The role or user, as people know it.
    pub by: String,
    /// How.
    pub kind: LoadKind,
}

impl LoadCause {
    /// The start of a node.
    pub fn start() -> LoadCause {
        LoadCause { by: "the start of the node".to_owned(), kind: LoadKind::Start }
    }
}

/// A file of a generation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GenerationFile {
    /// Its path below the folder of the production.
    pub path: String,
    /// Its bytes.
    pub bytes: u64,
    /// The SHA-256 of its text, in hexadecimal.
    pub hash: String,
    /// Bytes of its text as it is kept; 0 where it was too large to be kept.
    pub kept_bytes: u64,
}

/// A generation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Generation {
    /// Its number, from 1.
    pub number: u32,
    /// When it was loaded, microseconds since 1970.
    pub loaded_us: i64,
    /// By whom.
    pub by: String,
    /// How.
    pub how: LoadKind,
    /// The name of the production.
    pub name: String,
    /// The commit that its folder was checked out at, where it is one of git; files may have differed from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The SHA-256 of all of it, in hexadecimal.
    pub hash: String,
    /// Its files, by path.
    pub files: Vec<GenerationFile>,
}

/// What a production consists of as a generation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GenerationContent {
    /// The name of the production.
    pub name: String,
    /// Its folder, to look for a commit.
    pub folder: std::path::PathBuf,
    /// Texts by path, with the values in force.
    pub files: BTreeMap<String, Arc<str>>,
}

impl GenerationContent {
    /// Of a production.
    pub fn of(production: &Production) -> GenerationContent {
        let mut files = production.text.files().clone();
        if !production.values.is_empty() {
            let lines: String =
                production.values.iter().map(|(name, value)| format!("{name} = \"{value}\"\n")).collect();
            files.insert(VALUES_IN_FORCE.to_owned(), lines.into());
        }
        GenerationContent { name: production.name.clone(), folder: production.folder.clone(), files }
    }

    /// The SHA-256 of all of it.
    pub fn hash(&self) -> String {
        let mut context = digest::Context::new(&digest::SHA256);
        for (path, text) in &self.files {
            // Lengths end the parts: no other files have the same bytes.
            for part in [path.as_bytes(), text.as_bytes()] {
                context.update(&(part.len() as u64).to_le_bytes());
                context.update(part);
            }
        }
        hex(context.finish().as_ref())
    }

    /// The paths of files that differ from those of a generation, each with a word for what happened to it.
    pub fn changes_since(&self, before: &Generation) -> Vec<(String, &'static str)> {
        let old: BTreeMap<&str, &str> =
            before.files.iter().map(|file| (file.path.as_str(), file.hash.as_str())).collect();
        let mut changes: Vec<(String, &'static str)> = Vec::new();
        for (path, text) in &self.files {
            match old.get(path.as_str()) {
                None => changes.push((path.clone(), "came")),
                Some(hash) if *hash != hash_of(text) => changes.push((path.clone(), "changed")),
                Some(_) => {}
            }
        }
        let went = old.keys().filter(|path| !self.files.contains_key(**path));
        changes.extend(went.map(|path| ((*path).to_owned(), "went")));
        changes.sort();
        changes
    }
}

/// The SHA-256 of a text, in hexadecimal.
fn hash_of(text: &str) -> String {
    hex(digest::digest(&digest::SHA256, text.as_bytes()).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(files: &[(&str, &str)]) -> GenerationContent {
        let files = files.iter().map(|(path, text)| ((*path).to_owned(), Arc::from(*text))).collect();
        GenerationContent { name: "p".to_owned(), folder: ".".into(), files }
    }

    #[test]
    fn other_files_have_another_hash_wherever_their_parts_are_cut() {
        let hashes = [
            content(&[("a", "bc")]).hash(),
            content(&[("ab", "c")]).hash(),
            content(&[("a", "b"), ("c", "")]).hash(),
            content(&[]).hash(),
        ];
        let different: std::collections::BTreeSet<_> = hashes.iter().collect();
        assert_eq!(different.len(), hashes.len());
        assert_eq!(content(&[("a", "bc")]).hash(), hashes[0]);
    }

    /// Names of settings that would hold a secret in clear.
    const SECRET: [&str; 4] = ["password", "secret", "token", "passphrase"];

    #[test]
    fn the_settings_of_a_production_have_no_place_for_a_password() {
        let settings = include_str!("../production/settings.rs");
        let fields = settings.lines().filter_map(|line| line.trim_start().strip_prefix("pub ")?.split_once(':'));
        for (name, _) in fields {
            assert!(!SECRET.iter().any(|word| name.contains(word)), "{name}: a generation would show it");
        }
    }
}
