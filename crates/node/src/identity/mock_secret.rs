//! The secret of a node from which the login's challenge for users that do not exist is made. The challenge is the same at
//! each login and after each start, so that a restart does not reveal which users exist.
//!
//! 32 random bytes in the data directory, readable by the node's user only. A reader of the secret can find out which users
//! exist, and nothing else. It is in no backup: the next start draws another. Where it cannot be kept, one is drawn for this
//! start: a medium that is full must not keep a node from taking messages.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use device::os::PRIVATE_FILE;

use super::error::IdentityError;
use super::scram::{Mock, new_secret};

/// Its file.
const FILE: &str = "identity-secret";
/// A file that was not completed.
const PART: &str = ".identity-secret.part";

impl Mock {
    /// The one of the node on `data`; the first time, a new one.
    ///
    /// Errors: [`IdentityError::Randomness`].
    pub fn kept(data: &Path) -> Result<Mock, IdentityError> {
        let path = data.join(FILE);
        let why = match fs::read(&path).map(<[u8; 32]>::try_from) {
            Ok(Ok(key)) => return Ok(Mock::of(key)),
            Ok(Err(_)) => "it was damaged".to_owned(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => "this is the first start".to_owned(),
            Err(error) => error.to_string(),
        };
        let key = new_secret().map_err(|_| IdentityError::Randomness)?;
        match write(data, &path, &key) {
            Ok(()) => tracing::info!(why, "a secret for the challenges of unknown users was drawn"),
            Err(error) => {
                tracing::warn!(%error, why, path = %path.display(), "the secret for the challenges of unknown users cannot be kept: the next start draws another, which tells which users exist");
            }
        }
        Ok(Mock::of(key))
    }
}

fn write(data: &Path, path: &Path, secret: &[u8]) -> io::Result<()> {
    let part = data.join(PART);
    let mut file = File::options().write(true).create(true).truncate(true).mode(PRIVATE_FILE).open(&part)?;
    file.write_all(secret)?;
    file.sync_all()?;
    fs::rename(&part, path)?;
    device::os::sync_directory(data)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_secret_is_the_same_after_a_restart_and_its_users_alone() {
        let of = |data: &Path| Mock::kept(data).expect("there is randomness").verifier("ann");
        let data = tempfile::tempdir().expect("a folder");
        let first = of(data.path());
        assert_eq!(of(data.path()), first);
        let mode = fs::metadata(data.path().join(FILE)).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let other = tempfile::tempdir().expect("a folder");
        assert_ne!(of(other.path()), first);
        fs::write(data.path().join(FILE), "short").expect("a file");
        let second = of(data.path());
        assert_ne!(second, first, "a damaged one is drawn again");
        assert_eq!(of(data.path()), second);
        assert_ne!(of(&data.path().join("nowhere")), second, "one that cannot be kept serves this start");
    }
}
