//! [`SecretPlace`]: where a secret is by which the node says who it is elsewhere: at a directory, at a provider of logins. A secret is in no
//! setting, since settings are shown, copied and kept with others.

use std::fmt;
use std::path::PathBuf;

/// Most bytes of a file with a password.
const SECRET_BYTES_MAX: u64 = 4096;

/// Where a secret is.
#[derive(Clone, PartialEq, Eq)]
pub enum SecretPlace {
    /// The first line of a file, which is read for each use: a new one needs no restart.
    File(PathBuf),
    /// A variable of the environment.
    Variable(String),
}

impl fmt::Debug for SecretPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SecretPlace::File(file) => write!(f, "file {}", file.display()),
            SecretPlace::Variable(name) => write!(f, "variable {name}"),
        }
    }
}

impl SecretPlace {
    /// The secret; never an empty one. Blocks. Errors: why it cannot be read.
    pub(super) fn read(&self) -> Result<String, String> {
        let text = match self {
            SecretPlace::File(file) => {
                use std::io::Read;
                let mut text = String::new();
                let opened = std::fs::File::open(file).map(|opened| opened.take(SECRET_BYTES_MAX));
                let read = opened.and_then(|mut opened| opened.read_to_string(&mut text));
                read.map_err(|error| format!("{}: {error}", file.display()))?;
                text.lines().next().unwrap_or_default().to_owned()
            }
            SecretPlace::Variable(name) => {
                std::env::var(name).map_err(|_| format!("the environment has no variable {name} with a text"))?
            }
        };
        if text.is_empty() { Err("it is empty".to_owned()) } else { Ok(text) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_the_first_line_of_its_file_and_never_shown() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("password");
        let secret = SecretPlace::File(file.clone());
        for (text, expected) in
            [("s3cret\nmore\n", Some("s3cret")), ("s3cret", Some("s3cret")), ("", None), ("\n", None)]
        {
            std::fs::write(&file, text).expect("a file");
            assert_eq!(secret.read().ok().as_deref(), expected, "{text:?}");
        }
        assert!(!format!("{secret:?}").contains("s3cret"));
    }
}
