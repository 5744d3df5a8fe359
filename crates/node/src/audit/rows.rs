//! The rows of the audit: one for each entry, and an anchor where older entries were removed.
//!
//! ```text
//!   node.audit    key                          value
//!                 0 (8 bytes)                  anchor: u8 version = 1, u64 number, 32 hash of the newest entry that was removed
//!                 number, big endian (8 bytes) the entry's record
//! ```

use store::{Changes, Foreign, Interpreter, StoreError, TreeId};

use super::record::{AuditHead, ChainedEntry, EntryHash, KIND_AUDIT, number_of};

/// The tree of the audit.
pub const AUDIT_TREE: &str = "node.audit";

const ANCHOR_VERSION: u8 = 1;

/// The interpreter of the audit's records.
#[derive(Clone, Copy, Debug, Default)]
pub struct AuditRows;

impl Interpreter for AuditRows {
    fn trees(&self) -> Vec<String> {
        vec![AUDIT_TREE.to_owned()]
    }

    fn apply(&self, record: &Foreign<'_>, trees: &[TreeId], changes: &mut Changes) -> Result<(), StoreError> {
        let number = number_of(record.payload).filter(|number| *number > 0 && record.kind == KIND_AUDIT);
        match (number, trees) {
            (Some(number), [tree]) => {
                changes.put(*tree, number.to_be_bytes().to_vec(), record.payload.clone());
                Ok(())
            }
            _ => {
                let text = format!("the audit's record at {} is not of a version this release reads", record.lsn);
                Err(StoreError::Corrupt(text.into()))
            }
        }
    }

    fn check(&self, record: &Foreign<'_>, _: &[TreeId], value_bytes_max: usize) -> Result<(), StoreError> {
        let is_read = ChainedEntry::decode(record.payload).is_some_and(|entry| entry.number > 0);
        if is_read && record.payload.len() <= value_bytes_max {
            return Ok(());
        }
        Err(StoreError::Refused("an entry of the audit that this release would not read again".into()))
    }
}

/// The key of an entry.
pub fn entry_key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// The number of a row's entry; 0 is the anchor.
pub fn number_of_key(key: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(key.try_into().ok()?))
}

/// The value of the anchor.
pub fn encode_anchor(anchor: AuditHead) -> Vec<u8> {
    let mut out = vec![ANCHOR_VERSION];
    out.extend_from_slice(&anchor.number.to_le_bytes());
    out.extend_from_slice(&anchor.hash.0);
    out
}

/// Reads the value of an anchor; none where it is not one of this version.
pub fn decode_anchor(value: &[u8]) -> Option<AuditHead> {
    let rest = value.strip_prefix(&[ANCHOR_VERSION])?;
    let (number, hash) = rest.split_first_chunk::<8>()?;
    Some(AuditHead { number: u64::from_le_bytes(*number), hash: EntryHash(hash.try_into().ok()?) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_anchor_reads_back_and_nothing_else_is_one() {
        let anchor = AuditHead { number: 9, hash: EntryHash::of(b"x") };
        let bytes = encode_anchor(anchor);
        assert_eq!((bytes.len(), decode_anchor(&bytes)), (41, Some(anchor)));
        assert!((0..bytes.len()).all(|end| decode_anchor(&bytes[..end]).is_none()));
    }
}
