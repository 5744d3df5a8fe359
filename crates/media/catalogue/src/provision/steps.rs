//! The steps of a plan: commands to run, and the few things between them.
//!
//! A device's name is known only once ndctl has made the namespace. Until then a command holds a *slot*, written
//! `{region0.fsdax.0}`: printed as the name to expect, run with the name that ndctl answered.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// Program and arguments; slots are not filled in.
    pub words: Vec<String>,
    /// What it is for, for people.
    pub purpose: String,
    /// The slot that its answer fills: the device of a namespace it makes.
    pub answers: Option<String>,
    /// The region it makes a namespace in, which must be there when it runs.
    pub region: Option<String>,
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// Run a command.
    Run(Command),
    /// See that a device of persistent memory holds nothing before its namespace is destroyed.
    Empty {
        /// The namespace.
        namespace: String,
        /// Its block device, `pmem0`.
        device: String,
    },
    /// Switch the machine off and on: the firmware divides modules then.
    Restart,
    /// Make a directory, and those above it.
    Directory {
        /// Which.
        path: String,
    },
    /// Make a file of zeros with all of its space allocated.
    File {
        /// Which.
        path: String,
        /// Its size.
        bytes: u64,
    },
}

impl Step {
    /// As a shell would take it, or a remark, with slots filled from `names`.
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

/// A word as a shell needs it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./,:+{}%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}
