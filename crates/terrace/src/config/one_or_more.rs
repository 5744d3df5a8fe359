//! [`OneOrMore`]: a value of terrace.toml that is one text, or a list of texts; and where a secret is, as the file says it.

use node::identity::SecretPlace;
use serde::Deserialize;

/// One text, or several.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged, expecting = "expected a text or a list of texts")]
pub(super) enum OneOrMore {
    One(String),
    More(Vec<String>),
}

impl OneOrMore {
    /// All of them.
    pub(super) fn all(self) -> Vec<String> {
        match self {
            OneOrMore::One(one) => vec![one],
            OneOrMore::More(all) => all,
        }
    }
}

/// Where the secret of a key is: `file:PATH` or `env:NAME`. It is read here and not with the file: an error of that shows the line, and it
/// may be the secret itself that was written there.
pub(super) fn secret(key: &str, text: &str) -> anyhow::Result<SecretPlace> {
    match text.split_once(':') {
        Some(("file", path)) if !path.is_empty() => Ok(SecretPlace::File(path.into())),
        Some(("env", name)) if !name.is_empty() => Ok(SecretPlace::Variable(name.to_owned())),
        _ => anyhow::bail!("{key}: write `file:PATH` or `env:NAME`: a password does not belong into the settings"),
    }
}
