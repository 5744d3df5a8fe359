//! The secret of an encrypted volume: a file that only the user of the node can read; the description has its path, never its bytes.
//!
//! ```text
//!   key file         a secret of 32 bytes or more, from outside
//!      |  HKDF, with the salt of the volume
//!   envelope         in the description: the data keys of the volume, wrapped, and what recognises the secret
//!      |
//!   data keys        in memory; the volume derives a key of each opening from them
//! ```
//!
//! The epoch in the envelope is not used: a volume counts its openings itself, in the superblocks of its copies.
//!
//! Invariant: a volume is opened only with the secret that it was made with.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, ensure};
use encryption::{ENVELOPE_BYTES_MAX, EncryptionError, Envelope, KEY_BYTES, Randomness, Secret, SystemRandomness};
use node::Clock;
use serde::{Deserialize, Serialize};
use volume::encryption::VolumeKeys;
use zeroize::Zeroizing;

/// How a volume is encrypted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EncryptionDescription {
    /// The cipher: `aes-256-gcm`.
    cipher: String,
    /// The file with the secret.
    key_file: PathBuf,
    /// The salt, hexadecimal.
    salt: String,
    /// The data keys, wrapped with a key that is derived from secret and salt; hexadecimal.
    envelope: String,
}

const CIPHER: &str = "aes-256-gcm";

const DAMAGED: &str = "the envelope in the description of the volume is damaged";

/// Bytes of a salt.
const SALT_BYTES: usize = 32;

/// The most bytes of a secret that are read.
const SECRET_BYTES_MAX: usize = 4096;

impl EncryptionDescription {
    /// That of a new volume, with a new data key.
    ///
    /// # Errors
    /// The secret cannot be used.
    pub fn new(key_file: &Path) -> anyhow::Result<EncryptionDescription> {
        let random = SystemRandomness::default();
        let mut salt = [0; SALT_BYTES];
        random.fill(&mut salt)?;
        let key_file = std::path::absolute(key_file).unwrap_or_else(|_| key_file.to_owned());
        let made = u64::try_from(Clock::system().now_us()).unwrap_or_default();
        let envelope = Envelope::new(&wrapping_key(&key_file, &salt)?, made, &random)?;
        let envelope = hex(&envelope.encode());
        Ok(EncryptionDescription { cipher: CIPHER.to_owned(), key_file, salt: hex(&salt), envelope })
    }

    /// The keys.
    ///
    /// # Errors
    /// The secret cannot be used, or is not the one that the volume was made with.
    pub fn keys(&self) -> anyhow::Result<Arc<VolumeKeys>> {
        let (envelope, key) = self.envelope()?;
        let keys = envelope.unlock(&key, "").map_err(|error| self.refused(error))?;
        VolumeKeys::new(keys).context(DAMAGED)
    }

    /// The same data keys, wrapped with a key from another file; with a new one, which seals from the next opening on, if that is wanted.
    ///
    /// # Errors
    /// One of the secrets cannot be used, or the old one is not the right one.
    pub fn rekeyed(&self, key_file: &Path, has_new_data_key: bool) -> anyhow::Result<EncryptionDescription> {
        let (mut envelope, old) = self.envelope()?;
        let mut renewed = EncryptionDescription::new(key_file)?;
        let (_, new) = renewed.envelope()?;
        let random = SystemRandomness::default();
        envelope.wrap_with((&old, ""), &new, &random).map_err(|error| self.refused(error))?;
        if has_new_data_key {
            let made = u64::try_from(Clock::system().now_us()).unwrap_or_default();
            envelope.add_data_key((&new, ""), made, &random)?;
        }
        renewed.envelope = hex(&envelope.encode());
        Ok(renewed)
    }

    /// The envelope, and the key that should open it.
    fn envelope(&self) -> anyhow::Result<(Envelope, Secret)> {
        ensure!(self.cipher == CIPHER, "the cipher `{}` is not of this release", self.cipher);
        let salt = unhex(&self.salt, SALT_BYTES).filter(|salt| salt.len() == SALT_BYTES);
        let salt = salt.context("the salt in the description of the volume is damaged")?;
        let envelope =
            Envelope::decode(&unhex(&self.envelope, ENVELOPE_BYTES_MAX).context(DAMAGED)?).context(DAMAGED)?;
        Ok((envelope, wrapping_key(&self.key_file, &salt)?))
    }

    fn refused(&self, error: EncryptionError) -> anyhow::Error {
        match error {
            EncryptionError::WrongKey { .. } => anyhow::anyhow!(
                "{} does not contain the secret that this volume was made with: put that file back",
                self.key_file.display()
            ),
            error => anyhow::Error::new(error).context(DAMAGED),
        }
    }
}

/// The key that wraps the data keys.
fn wrapping_key(key_file: &Path, salt: &[u8]) -> anyhow::Result<Secret> {
    let shown = key_file.display();
    let found = fs::metadata(key_file).with_context(|| format!("the key file {shown} cannot be read"))?;
    let mode = found.permissions().mode();
    ensure!(mode & 0o077 == 0, "other users of this machine can read the key file {shown}: chmod 600 {shown}");
    ensure!(found.len() <= SECRET_BYTES_MAX as u64, "the key file {shown} is longer than {SECRET_BYTES_MAX} bytes");
    let secret = fs::read(key_file).with_context(|| format!("the key file {shown} cannot be read"))?;
    Secret::of_long(&Zeroizing::new(secret), salt, b"terrace volume key").with_context(|| {
        format!("the key file {shown} has fewer than {KEY_BYTES} bytes; make one: head -c 64 /dev/urandom > {shown}; chmod 600 {shown}")
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str, bytes_max: usize) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) || digits.len() > 2 * bytes_max {
        return None;
    }
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.chunks_exact(2).map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_secret_of_the_volume_opens_it_and_only_from_a_file_that_nobody_else_reads() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("key");
        let write = |bytes: &[u8], mode: u32| {
            fs::write(&file, bytes).expect("it is written");
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("it is changed");
        };
        write(&[1; 64], 0o600);
        let made = EncryptionDescription::new(&file).expect("it can be used");
        assert!(made.keys().is_ok());
        let other = EncryptionDescription::new(&file).expect("it can be used");
        assert!(other.salt != made.salt && other.envelope != made.envelope, "salts and data keys are drawn");
        let mut damaged = made.clone();
        damaged.envelope.replace_range(100..101, if &made.envelope[100..101] == "0" { "1" } else { "0" });
        for damaged in [damaged, EncryptionDescription { envelope: "g0".into(), ..made.clone() }] {
            assert!(format!("{:#}", damaged.keys().expect_err("it is damaged")).contains("envelope"));
        }
        let second = dir.path().join("second");
        fs::write(&second, [3; 40]).expect("it is written");
        fs::set_permissions(&second, fs::Permissions::from_mode(0o600)).expect("it is changed");
        let renewed = made.rekeyed(&second, true).expect("both can be used");
        assert!(renewed.keys().is_ok() && renewed.key_file == second);
        assert_eq!(renewed.envelope().expect("it is whole").0.data_keys().len(), 2);
        for (bytes, mode, error) in [
            (&[2; 64][..], 0o600, "does not contain the secret"),
            (&[1; 64], 0o640, "chmod 600"),
            (&[1; 31], 0o600, "fewer than 32"),
            (&[1; 4097], 0o600, "longer than"),
        ] {
            write(bytes, mode);
            assert!(made.keys().expect_err("it is refused").to_string().contains(error), "{error}");
            assert!(made.rekeyed(&second, false).expect_err("it is refused").to_string().contains(error), "{error}");
        }
        fs::remove_file(&file).expect("it is removed");
        assert!(renewed.keys().is_ok(), "the former file is not needed");
        assert!(format!("{:#}", made.keys().expect_err("it is gone")).contains("cannot be read"));
    }
}
