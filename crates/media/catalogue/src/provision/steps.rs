//! The steps of a plan: commands to run, and the actions between them.
//!
//! The name of a device is known only after ndctl has created the namespace. Until then a command contains a *slot*,
//! written `{region0.fsdax.0}`: it is printed as the expected name, and replaced by the name that ndctl returned.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// Program and arguments, with slots.
    pub words: Vec<String>,
    /// Its purpose, for users.
    pub purpose: String,
    /// The slot that its output fills: the device of the namespace that it creates.
    pub answers: Option<String>,
    /// The region of the namespace, which must exist when the command runs.
    pub region: Option<String>,
}

/// One action.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// Run a command.
    Run(Command),
    /// Check that a device of persistent memory contains only zeros before its namespace is destroyed.
    Empty {
        /// The namespace.
        namespace: String,
        /// Its block device, `pmem0`.
        device: String,
    },
    /// Switch the machine off and on: the firmware then divides the modules.
    Restart,
    /// Create a directory and its parents.
    Directory {
        /// Its path.
        path: String,
    },
    /// Create a file of zeros with all of its space allocated.
    File {
        /// Its path.
        path: String,
        /// Its size.
        bytes: u64,
    },
}

impl Step {
    /// The step as a shell command, or as a comment, with slots filled from `names`.
    pub fn to_text(&self, names: &BTreeMap<String, String>) -> String {
        match self {
            Step::Run(command) => command.filled(names).iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "),
            Step::Empty { device, .. } => format!("# (checks that /dev/{device} holds nothing but zeros)"),
            Step::Restart => "# (switch the machine off and on; then: terrace tier apply)".into(),
            Step::Directory { path } => format!("mkdir -p {}", quoted(path)),
            Step::File { path, bytes } => format!("fallocate -l {bytes} {}", quoted(path)),
        }
    }
}

impl Command {
    /// Its words with slots filled.
    pub fn filled(&self, names: &BTreeMap<String, String>) -> Vec<String> {
        let fill = |word: &String| {
            names.iter().fold(word.clone(), |word, (slot, name)| word.replace(&format!("{{{slot}}}"), name))
        };
        self.words.iter().map(fill).collect()
    }
}

/// A word quoted for a shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./,:+{}%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}
