//! What keeps a service from taking its files: in the log once, as long as it lasts, and in the status.
//!
//! Invariants: a look makes [`NAMED`] lines of the log and two more at most, however many files there are, and none where nothing changed;
//! the words for the status have no name of a file, which may be that of a patient.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use crate::error::InteropError;

/// Files, and faults of one file, that have a line of their own.
pub(super) const NAMED: usize = 8;

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Hindrances {
    /// Why the folder cannot be read.
    folder: Option<String>,
    /// Why files of it cannot be taken.
    files: BTreeMap<OsString, String>,
}

impl Hindrances {
    /// The folder was looked at, and these files of it could not be taken; or it could not be.
    pub(super) fn looked(&mut self, service: &str, found: Result<BTreeMap<OsString, String>, InteropError>) {
        let was_hindered = !self.words().is_empty();
        match found {
            Ok(files) => {
                self.folder = None;
                let is_new = |(name, why): &(&OsString, &String)| self.files.get(*name) != Some(*why);
                let new: Vec<_> = files.iter().filter(is_new).collect();
                for (name, error) in new.iter().take(NAMED) {
                    let file = Path::new(name).display();
                    tracing::error!(service, %file, error, "a file cannot be taken; it is tried again");
                }
                let more = new.len().saturating_sub(NAMED);
                if more > 0 {
                    tracing::error!(service, more, "more files cannot be taken; they are tried again");
                }
                self.files = files;
            }
            Err(error) => {
                let error = error.to_string();
                if self.folder.as_ref() != Some(&error) {
                    tracing::error!(service, error, "the folder cannot be read; it is tried again");
                }
                self.folder = Some(error);
            }
        }
        if was_hindered && self.words().is_empty() {
            tracing::info!(service, "all files can be taken again");
        }
    }

    /// For the status; empty where nothing hinders.
    pub(super) fn words(&self) -> String {
        match (&self.folder, self.files.len()) {
            (Some(error), _) => format!("its folder cannot be read: {error}"),
            (None, 0) => String::new(),
            (None, 1) => "1 file cannot be taken; the log names it, and why".to_owned(),
            (None, files) => format!("{files} files cannot be taken; the log names them, and why"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_follow_what_was_found_and_name_no_file() {
        let mut hindrances = Hindrances::default();
        let files = |names: &[&str]| names.iter().map(|name| (OsString::from(name), "no".to_owned())).collect();
        let lost = || Err(InteropError::Refused("gone".to_owned()));
        for (found, words) in [
            (Ok(files(&[])), ""),
            (Ok(files(&["mrn-4711.hl7"])), "1 file cannot be taken; the log names it, and why"),
            (Ok(files(&["a", "b"])), "2 files cannot be taken; the log names them, and why"),
            (lost(), "its folder cannot be read: gone"),
            (Ok(files(&[])), ""),
        ] {
            hindrances.looked("files", found);
            assert_eq!(hindrances.words(), words);
        }
    }
}
