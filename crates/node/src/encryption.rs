//! The keys of an encrypted data directory.
//!
//! ```text
//!   DATA/encryption.envelope    there: the store is encrypted. The wrapped data keys, and the number of the last opening
//!   TERRACE_KEY                 where the key-encryption key is: file:PATH, env:NAME, command:PROGRAM ARGUMENTS
//!   BACKUP/encryption.envelope  a copy: a backup can be read with the key-encryption key of that time
//! ```
//!
//! The place of the key is given to the process, and not recorded in the data directory: a directory or a backup from somewhere else must
//! not name a command that is run. Whether a directory is encrypted is recorded there, so that no command takes it for a clear one; and
//! the store itself refuses to open without its key.
//!
//! A process that writes takes the next epoch, under the lock of the data directory. A command that recovers in memory needs none: what
//! it seals never reaches a medium.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use encryption::{
    CommandKey, EnvelopeFile, EnvironmentKey, FileKey, KeyProvider, Sealer, SystemRandomness, open, open_in_memory,
};

use crate::error::NodeError;

/// The variable that says where the key-encryption key is.
pub const KEY_VARIABLE: &str = "TERRACE_KEY";

/// What is encrypted where a data directory is, for people.
pub const COVERED: &str = "journal, write image journal, pages and values of the store, and its backups";

/// What is not.
pub const NOT_COVERED: &str = "SQL (spill files, columns on disk), the search index, volumes made without a key file, files of file services, settings and productions";

/// The provider of this process.
static PROVIDER: OnceLock<Arc<dyn KeyProvider>> = OnceLock::new();

/// Reads where a key-encryption key is: `file:PATH`, `env:NAME` or `command:PROGRAM ARGUMENTS`.
///
/// # Errors
/// `Refused`: it is none of these.
pub fn provider_of(text: &str) -> Result<Arc<dyn KeyProvider>, NodeError> {
    let given = |rest: &str| !rest.trim().is_empty();
    match text.split_once(':') {
        Some(("file", path)) if given(path) => Ok(Arc::new(FileKey(path.into()))),
        Some(("env", name)) if given(name) => Ok(Arc::new(EnvironmentKey(name.to_owned()))),
        Some(("command", command)) if given(command) => {
            Ok(Arc::new(CommandKey(command.split_whitespace().map(str::to_owned).collect())))
        }
        _ => Err(NodeError::Refused(format!(
            "`{text}` does not say where a key is: write file:PATH, env:NAME or command:PROGRAM ARGUMENTS"
        ))),
    }
}

/// From now on this process asks that provider.
pub fn present_key(provider: Arc<dyn KeyProvider>) {
    // The first one counts; a program has one.
    _ = PROVIDER.set(provider);
}

/// The provider of this process.
///
/// # Errors
/// `Refused`: there is none.
pub fn provider(folder: &Path) -> Result<&'static dyn KeyProvider, NodeError> {
    let needed = || {
        let folder = folder.display();
        NodeError::Refused(format!("{folder} is encrypted: set {KEY_VARIABLE} to where its key-encryption key is"))
    };
    PROVIDER.get().map(|provider| &**provider).ok_or_else(needed)
}

/// Whether a data directory, or a backup, is encrypted.
///
/// # Errors
/// `Encryption`: there is an envelope and it cannot be read.
pub fn is_encrypted(folder: &Path) -> Result<bool, NodeError> {
    Ok(EnvelopeFile::of(folder).read()?.is_some())
}

/// For a process that writes the store of a data directory, whose lock the caller has; none where it is not encrypted. The epoch of this
/// opening is durable.
///
/// # Errors
/// `Encryption`: wrong key, damaged envelope; `Refused`: no key is given, or one for a directory that is not encrypted.
pub fn to_write(data: &Path) -> Result<Option<Arc<Sealer>>, NodeError> {
    if is_encrypted(data)? {
        return Ok(Some(open(&EnvelopeFile::of(data), provider(data)?, &SystemRandomness::default())?));
    }
    match PROVIDER.get() {
        None => Ok(None),
        Some(_) => Err(NodeError::Refused(format!(
            "{KEY_VARIABLE} is set, and {} is not encrypted: `terrace encryption init` makes a new directory so; to use one in clear, \
             leave {KEY_VARIABLE} out",
            data.display()
        ))),
    }
}

/// For a command that reads a data directory or a backup, and recovers in memory; none where it is not encrypted. Nothing is written.
///
/// # Errors
/// `Encryption`: wrong key, damaged envelope; `Refused`: no key is given.
pub fn to_look(folder: &Path) -> Result<Option<Arc<Sealer>>, NodeError> {
    match is_encrypted(folder)? {
        true => Ok(Some(open_in_memory(&EnvelopeFile::of(folder), provider(folder)?, &SystemRandomness::default())?)),
        false => Ok(None),
    }
}

/// Puts the envelope of a sealer into a folder: into a backup, or a data directory that is made of one.
///
/// # Errors
/// `Encryption`: it cannot be written.
pub(crate) fn put_envelope(folder: &Path, sealer: Option<&Sealer>) -> Result<(), NodeError> {
    match sealer.and_then(Sealer::envelope) {
        Some(envelope) => Ok(EnvelopeFile::of(folder).write(envelope)?),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_a_key_is_can_be_said_in_three_ways_and_anything_else_is_refused() {
        for (text, name) in [
            ("file:/etc/key", "file /etc/key"),
            ("env:KEY", "environment variable KEY"),
            ("command:/usr/bin/pass show terrace", "command /usr/bin/pass"),
        ] {
            assert_eq!(provider_of(text).expect("it says where").name(), name);
        }
        for odd in ["", "file", "file:", "env: ", "command:", "/etc/key", "kmip:host"] {
            assert!(provider_of(odd).is_err(), "{odd}");
        }
    }
}
