//! The secret of a node from which the login's challenge for users that do not exist is made. The challenge is the same
//! at each login and after each start, so that a restart does not reveal which users exist.
//!
//! 32 random bytes in the data directory, readable by the node's user only. A reader of the secret can find out which
//! users exist, and nothing else. It is in no backup: the next start draws another.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::Context;
use device::os::PRIVATE_FILE;

/// Its file.
const FILE: &str = "sql-secret";

/// The secret of the node on `data`; the first time, a new one.
pub fn kept(data: &Path) -> anyhow::Result<[u8; 32]> {
    let path = data.join(FILE);
    match fs::read(&path) {
        Ok(bytes) => {
            let told = || format!("{} is damaged: remove it, and a new one is made", path.display());
            bytes.try_into().ok().with_context(told)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let secret = sql::wire::new_secret()?;
            write(data, &path, &secret).with_context(|| format!("cannot write {}", path.display()))?;
            Ok(secret)
        }
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

fn write(data: &Path, path: &Path, secret: &[u8]) -> io::Result<()> {
    let part = data.join(".sql-secret.part");
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
        let data = tempfile::tempdir().expect("a folder");
        let first = kept(data.path()).expect("there is room");
        assert_eq!(kept(data.path()).expect("it can be read"), first);
        let mode = fs::metadata(data.path().join(FILE)).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        fs::write(data.path().join(FILE), "short").expect("a file");
        let told = format!("{:#}", kept(data.path()).expect_err("it is no secret"));
        assert!(told.contains("remove it"), "{told}");
        let other = tempfile::tempdir().expect("a folder");
        assert_ne!(kept(other.path()).expect("there is room"), first);
    }
}
