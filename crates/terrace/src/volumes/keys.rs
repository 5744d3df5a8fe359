//! The secret of an encrypted volume: a file that only the user of the node can read; the description has its path, never its bytes.
//!
//! Invariant: a volume is opened only with the secret that it was made with.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};
use volume::encryption::{CHECK_BYTES, EncryptionKeys, SALT_BYTES, SECRET_BYTES_MIN};

/// How a volume is encrypted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EncryptionDescription {
    /// The cipher: `aes-256-xts`.
    cipher: String,
    /// The file with the secret.
    key_file: PathBuf,
    /// The salt, hexadecimal.
    salt: String,
    /// What tells whether a secret is the right one, hexadecimal.
    check: String,
}

const CIPHER: &str = "aes-256-xts";

/// The most bytes of a secret that are read.
const SECRET_BYTES_MAX: usize = 4096;

impl EncryptionDescription {
    /// That of a new volume.
    ///
    /// # Errors
    /// The secret cannot be used.
    pub fn new(key_file: &Path) -> anyhow::Result<EncryptionDescription> {
        let mut salt = [0; SALT_BYTES];
        salt.chunks_exact_mut(16).for_each(|half| half.copy_from_slice(&super::draw_id().to_be_bytes()));
        let key_file = std::path::absolute(key_file).unwrap_or_else(|_| key_file.to_owned());
        let keys = derive(&key_file, &salt)?;
        let check = hex(&keys.check());
        Ok(EncryptionDescription { cipher: CIPHER.to_owned(), key_file, salt: hex(&salt), check })
    }

    /// The keys.
    ///
    /// # Errors
    /// The secret cannot be used, or is not the one that the volume was made with.
    pub fn keys(&self) -> anyhow::Result<EncryptionKeys> {
        ensure!(self.cipher == CIPHER, "the cipher `{}` is not of this release", self.cipher);
        let salt = unhex::<SALT_BYTES>(&self.salt).context("the salt in the description of the volume is damaged")?;
        let check =
            unhex::<CHECK_BYTES>(&self.check).context("the check in the description of the volume is damaged")?;
        let keys = derive(&self.key_file, &salt)?;
        ensure!(
            keys.check() == check,
            "{} does not contain the secret that this volume was made with: put that file back",
            self.key_file.display()
        );
        Ok(keys)
    }
}

fn derive(key_file: &Path, salt: &[u8; SALT_BYTES]) -> anyhow::Result<EncryptionKeys> {
    let shown = key_file.display();
    let found = fs::metadata(key_file).with_context(|| format!("the key file {shown} cannot be read"))?;
    let mode = found.permissions().mode();
    ensure!(mode & 0o077 == 0, "other users of this machine can read the key file {shown}: chmod 600 {shown}");
    ensure!(found.len() <= SECRET_BYTES_MAX as u64, "the key file {shown} is longer than {SECRET_BYTES_MAX} bytes");
    let secret = fs::read(key_file).with_context(|| format!("the key file {shown} cannot be read"))?;
    EncryptionKeys::derive(&secret, salt).with_context(|| {
        format!("the key file {shown} has fewer than {SECRET_BYTES_MIN} bytes; make one: head -c 64 /dev/urandom > {shown}; chmod 600 {shown}")
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
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
        assert_ne!(EncryptionDescription::new(&file).expect("it can be used").salt, made.salt, "salts are drawn");
        for (bytes, mode, error) in [
            (&[2; 64][..], 0o600, "does not contain the secret"),
            (&[1; 64], 0o640, "chmod 600"),
            (&[1; 31], 0o600, "fewer than 32"),
            (&[1; 4097], 0o600, "longer than"),
        ] {
            write(bytes, mode);
            assert!(made.keys().expect_err("it is refused").to_string().contains(error), "{error}");
        }
        fs::remove_file(&file).expect("it is removed");
        assert!(format!("{:#}", made.keys().expect_err("it is gone")).contains("cannot be read"));
    }
}
