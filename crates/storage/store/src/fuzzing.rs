//! The body of the fuzz target of the store's records: what must be true for any bytes.

use bytes::Bytes;

use crate::record;

/// Decodes the bytes as each kind of record of the store: a decoded record has a time, and is not longer than its
/// bytes.
pub fn transaction(input: &[u8]) {
    let payload = Bytes::copy_from_slice(input);
    if let Ok(changes) = record::decode(payload.clone()) {
        assert!(record::time_us(input).is_ok(), "a record without a time");
        let read: usize = changes.iter().map(|change| change.key.len() + change.op.bytes()).sum();
        assert!(changes.len() * record::CHANGE_BYTES + read <= input.len(), "changes longer than their record");
    }
    if let Ok(runs) = record::decode_spilled_commit(payload) {
        let chunks: usize = runs.iter().map(Vec::len).sum();
        assert!(runs.len() * 4 + chunks * 8 <= input.len(), "runs longer than their record");
    }
}
