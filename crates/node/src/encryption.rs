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
//!
//! Keys are changed by the process that has the lock: a command, or the node at the request of one ([`KeyChange`]). The provider of a
//! node is the new one from then on; what `TERRACE_KEY` says at its next start is not its business.

use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use encryption::{
    CommandKey, EnvelopeFile, EnvironmentKey, FileKey, KeyProvider, Sealer, SystemRandomness, open,
    open_envelope_in_memory, open_in_memory,
};
use serde_json::{Value, json};
use store::Store;

use crate::clock::Clock;
use crate::error::NodeError;

/// The variable that says where the key-encryption key is.
pub const KEY_VARIABLE: &str = "TERRACE_KEY";

/// What is encrypted where a data directory is, for people.
pub const COVERED: &str = "journal, write image journal, pages and values of the store, its backups, spill files of SQL, the files of search indices";

/// What is not.
pub const NOT_COVERED: &str =
    "external tables of SQL, volumes made without a key file, files of file services, settings and productions";

/// The provider of this process.
static PROVIDER: RwLock<Option<Arc<dyn KeyProvider>>> = RwLock::new(None);

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
    *PROVIDER.write().unwrap_or_else(PoisonError::into_inner) = Some(provider);
}

fn presented() -> Option<Arc<dyn KeyProvider>> {
    PROVIDER.read().unwrap_or_else(PoisonError::into_inner).clone()
}

/// The provider of this process.
///
/// # Errors
/// `Refused`: there is none.
pub fn provider(folder: &Path) -> Result<Arc<dyn KeyProvider>, NodeError> {
    presented().ok_or_else(|| {
        let folder = folder.display();
        NodeError::Refused(format!("{folder} is encrypted: set {KEY_VARIABLE} to where its key-encryption key is"))
    })
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
        return Ok(Some(open(&EnvelopeFile::of(data), &*provider(data)?, &SystemRandomness::default())?));
    }
    match presented() {
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
        true => Ok(Some(open_in_memory(&EnvelopeFile::of(folder), &*provider(folder)?, &SystemRandomness::default())?)),
        false => Ok(None),
    }
}

/// As [`to_look`], at data that lie in two folders, of which one continues the other: with the data keys of both envelopes, as far as one
/// key wraps both. The epoch is that of the first.
///
/// # Errors
/// Those of [`to_look`].
pub fn to_look_at_both(first: &Path, second: &Path) -> Result<Option<Arc<Sealer>>, NodeError> {
    let (file, other) = (EnvelopeFile::of(first), EnvelopeFile::of(second).read()?);
    let Some(mut envelope) = file.read()? else { return to_look(second) };
    if let Some(other) = &other {
        envelope.take_data_keys(other);
    }
    Ok(Some(open_envelope_in_memory(envelope, &*provider(first)?, &SystemRandomness::default())?))
}

/// Whether a folder that is to get the envelope of a sealer has that one already; `None`: of what is not encrypted.
///
/// # Errors
/// `Refused`: it has another one, which alone may have the keys of other data. `Encryption`: it cannot be read.
pub(crate) fn is_envelope_of(folder: &Path, sealer: Option<&Sealer>) -> Result<bool, NodeError> {
    let file = EnvelopeFile::of(folder);
    let Some(found) = file.read()? else { return Ok(false) };
    if sealer.and_then(Sealer::envelope).is_some_and(|own| own == found) {
        return Ok(true);
    }
    let path = file.path().display();
    Err(NodeError::Refused(format!(
        "{path} is there already, and is the envelope of other data, or of another time: choose an empty place, or move it away and keep \
         it as long as something encrypted with its keys is left"
    )))
}

/// Puts the envelope of a sealer into a folder: into a backup, or a data directory that is made of one.
///
/// # Errors
/// `Encryption`: it cannot be written.
pub(crate) fn put_envelope(folder: &Path, sealer: Option<&Sealer>) -> Result<(), NodeError> {
    match sealer.and_then(Sealer::envelope) {
        Some(envelope) => Ok(EnvelopeFile::of(folder).write(&envelope)?),
        None => Ok(()),
    }
}

/// A change of the keys of a node that runs.
#[derive(Clone, Debug)]
pub enum KeyChange {
    /// A new data key encrypts from now on.
    DataKey,
    /// The data keys are wrapped with the key of this provider.
    KeyEncryptionKey(Arc<dyn KeyProvider>),
}

impl KeyChange {
    /// Reads what follows the word of the request.
    ///
    /// # Errors
    /// `Refused`: it is none, or does not say where a key is.
    pub fn of(text: &str) -> Result<KeyChange, NodeError> {
        match text.split_once(char::is_whitespace).map_or((text, ""), |(word, rest)| (word, rest.trim())) {
            ("rotate-data-key", "") => Ok(KeyChange::DataKey),
            ("rotate-key-encryption-key", place) if !place.is_empty() => {
                let unread = |_| NodeError::Refused(format!("`{place}` is no JSON text"));
                Ok(KeyChange::KeyEncryptionKey(provider_of(&serde_json::from_str::<String>(place).map_err(unread)?)?))
            }
            _ => Err(NodeError::Refused(format!("`encryption {text}` is not a request"))),
        }
    }

    /// The request to a node that runs.
    pub fn request(place: Option<&str>) -> String {
        match place {
            None => "encryption rotate-data-key".to_owned(),
            Some(place) => format!("encryption rotate-key-encryption-key {}", Value::from(place)),
        }
    }

    /// Its name in the audit, and where the new key is.
    pub fn described(&self) -> (&'static str, Option<String>) {
        match self {
            KeyChange::DataKey => ("encryption.rotate-data-key", None),
            KeyChange::KeyEncryptionKey(new) => ("encryption.rotate-key-encryption-key", Some(new.name())),
        }
    }
}

/// Changes the keys of the node whose data directory is `data`, while it works. Asks providers: it may block.
///
/// # Errors
/// `Refused`: it is not encrypted; `Encryption`: a key cannot be had or is wrong, or a backup is being made. Nothing was changed.
pub fn change_keys(data: &Path, store: &Store, change: &KeyChange) -> Result<Value, NodeError> {
    let Some(sealer) = store.sealer() else {
        return Err(NodeError::Refused(format!("{} is not encrypted: it has no keys", data.display())));
    };
    let (file, old, random) = (EnvelopeFile::of(data), provider(data)?, SystemRandomness::default());
    match change {
        KeyChange::DataKey => {
            let made = u64::try_from(Clock::system().now_us()).unwrap_or_default();
            let number = sealer.rotate_data_key(&file, &*old, made, &random)?;
            tracing::info!(data_key = number, "a new data key encrypts from now on");
            Ok(json!({ "data_key": number }))
        }
        KeyChange::KeyEncryptionKey(new) => {
            let envelope = sealer.rotate_key_encryption_key(&file, &*old, &**new, &random)?;
            present_key(Arc::clone(new));
            let (wrapped_with, from) = (envelope.wrapped_with().to_string(), new.name());
            tracing::info!(wrapped_with, from, "the data keys are wrapped with another key");
            Ok(json!({ "wrapped_with": wrapped_with, "from": from }))
        }
    }
}

/// Answers a [`KeyChange`] over the control socket.
///
/// # Errors
/// Those of [`change_keys`].
pub async fn answer_change(data: &Path, store: &Store, change: KeyChange) -> Result<Value, NodeError> {
    let (data, store) = (data.to_owned(), store.clone());
    let work = move || change_keys(&data, &store, &change);
    tokio::task::spawn_blocking(work).await.unwrap_or(Err(NodeError::Stopping))
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

    #[test]
    fn a_change_of_keys_is_read_as_it_is_requested_and_names_no_more_than_where_the_key_is() {
        let read = |request: &str| KeyChange::of(request.strip_prefix("encryption ").expect("its word"));
        let data_key = read(&KeyChange::request(None)).expect("a request");
        assert_eq!(data_key.described(), ("encryption.rotate-data-key", None));
        let new = read(&KeyChange::request(Some("command:/usr/bin/pass \"x y\" secret"))).expect("a request");
        let (action, from) = new.described();
        assert_eq!((action, from.as_deref()), ("encryption.rotate-key-encryption-key", Some("command /usr/bin/pass")));
        for odd in ["", "rotate", "rotate-data-key 2", "rotate-key-encryption-key", "rotate-key-encryption-key x"] {
            assert!(KeyChange::of(odd).is_err(), "{odd}");
        }
        assert!(KeyChange::of("rotate-key-encryption-key \"kmip:x\"").is_err());
    }
}
