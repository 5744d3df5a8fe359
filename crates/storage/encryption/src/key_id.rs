//! [`KeyId`]: recognises a key-encryption key without revealing it.

use std::fmt;

/// Derived from a key; nothing of the key can be computed from it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KeyId(pub(crate) [u8; 8]);

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key ")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
