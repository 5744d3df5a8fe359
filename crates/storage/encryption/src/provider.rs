//! [`KeyProvider`]: where the key-encryption key comes from. It never lies in the data directory.
//!
//! | provider | what it is for |
//! |---|---|
//! | [`FileKey`] | a file on another medium, a mounted secret, systemd's `LoadCredential` |
//! | [`EnvironmentKey`] | a variable that whoever starts the node sets |
//! | [`CommandKey`] | a program that asks a key manager, a TPM or a smart card, and prints the key |
//!
//! PKCS#11 and KMIP are reached by a command (docs/encryption.md has examples). Whatever a provider gives is text or raw bytes of one key
//! ([`Secret::parse`]), read once at each opening.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use zeroize::Zeroizing;

use crate::error::EncryptionError;
use crate::secret::Secret;

/// Longest text of a key, with white space.
const GIVEN_BYTES_MAX: u64 = 4096;

/// Gives the key-encryption key.
pub trait KeyProvider: fmt::Debug + Send + Sync {
    /// Its name in messages. It says where the key is, and nothing of the key.
    fn name(&self) -> String;

    /// The key. Errors: [`EncryptionError::Provider`].
    fn key(&self) -> Result<Secret, EncryptionError>;
}

/// A file that only its owner may read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileKey(pub PathBuf);

/// A variable of the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvironmentKey(pub String);

/// A program and its arguments, run without a shell; the key is what it prints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandKey(pub Vec<String>);

fn failed(provider: &dyn KeyProvider, why: impl fmt::Display) -> EncryptionError {
    EncryptionError::Provider { provider: provider.name(), why: why.to_string() }
}

fn parsed(provider: &dyn KeyProvider, given: &[u8]) -> Result<Secret, EncryptionError> {
    let why = "it is not 32 bytes, nor these in hexadecimal or base64";
    Secret::parse(given).ok_or_else(|| failed(provider, why))
}

fn read_to_end(from: impl Read) -> std::io::Result<Zeroizing<Vec<u8>>> {
    // Not moved while it grows, so that no copy stays behind.
    let mut given = Zeroizing::new(Vec::with_capacity(GIVEN_BYTES_MAX as usize));
    from.take(GIVEN_BYTES_MAX).read_to_end(&mut given)?;
    Ok(given)
}

impl KeyProvider for FileKey {
    fn name(&self) -> String {
        format!("file {}", self.0.display())
    }

    fn key(&self) -> Result<Secret, EncryptionError> {
        let file = File::open(&self.0).map_err(|error| failed(self, error))?;
        let mode = file.metadata().map_err(|error| failed(self, error))?.mode();
        if mode & 0o077 != 0 {
            return Err(failed(self, format_args!("others may read it (mode {:03o}): chmod 600 it", mode & 0o777)));
        }
        parsed(self, &read_to_end(file).map_err(|error| failed(self, error))?)
    }
}

impl KeyProvider for EnvironmentKey {
    fn name(&self) -> String {
        format!("environment variable {}", self.0)
    }

    fn key(&self) -> Result<Secret, EncryptionError> {
        let given = std::env::var(&self.0).map_err(|error| failed(self, error))?;
        parsed(self, Zeroizing::new(given).as_bytes())
    }
}

impl KeyProvider for CommandKey {
    fn name(&self) -> String {
        format!("command {}", self.0.first().map_or("(none)", String::as_str))
    }

    fn key(&self) -> Result<Secret, EncryptionError> {
        let (program, arguments) = self.0.split_first().ok_or_else(|| failed(self, "no program is named"))?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| failed(self, error))?;
        let given = match child.stdout.take() {
            Some(out) => read_to_end(out),
            None => Ok(Zeroizing::default()),
        };
        let status = child.wait().map_err(|error| failed(self, error))?;
        if !status.success() {
            return Err(failed(self, format_args!("it ended with {status}")));
        }
        parsed(self, &given.map_err(|error| failed(self, error))?)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn hex() -> String {
        "0a".repeat(32)
    }

    #[test]
    fn a_file_must_be_readable_by_its_owner_only() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("key");
        std::fs::write(&path, hex()).expect("it is written");
        let provider = FileKey(path.clone());
        for (mode, is_taken) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false), (0o660, false)] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("it is set");
            match provider.key() {
                Ok(key) => assert!(is_taken && key == Secret::new([10; 32]), "{mode:o}"),
                Err(error) => assert!(!is_taken && error.to_string().contains("chmod 600"), "{mode:o}: {error}"),
            }
        }
    }

    #[test]
    fn a_missing_file_a_missing_variable_and_a_failing_command_are_named() {
        let command = |text: &str| CommandKey(text.split(' ').map(String::from).collect());
        let providers: [(&dyn KeyProvider, &str); 5] = [
            (&FileKey("/nonexistent/key".into()), "/nonexistent/key"),
            (&EnvironmentKey("TERRACE_NO_SUCH_KEY".into()), "TERRACE_NO_SUCH_KEY"),
            (&command("false"), "command false"),
            (&command("/nonexistent/program"), "/nonexistent/program"),
            (&command("echo tooshort"), "not 32 bytes"),
        ];
        for (provider, part) in providers {
            let text = provider.key().expect_err("there is no key").to_string();
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn a_command_gives_what_it_prints_and_no_more_than_a_key_is_read() {
        let printed = CommandKey(vec!["echo".into(), hex()]).key();
        assert_eq!(printed.ok(), Some(Secret::new([10; 32])));
        assert!(CommandKey(vec!["yes".into()]).key().is_err(), "an endless answer ends");
        assert!(CommandKey(Vec::new()).key().is_err());
    }
}
