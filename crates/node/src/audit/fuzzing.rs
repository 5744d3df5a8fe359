//! Bodies of the fuzz targets of the audit: what must hold for any bytes at all.

use super::chain::verify;
use super::export::{json_line, syslog_line};
use super::reading::ShownEntry;
use super::record::{ChainedEntry, EntryHash, RECORD_BYTES_MAX};
use super::rows::decode_anchor;

/// Decodes the bytes as a record and as an anchor. What is read is encoded to the same bytes, and shown as one line; checking
/// it never panics.
pub fn record(input: &[u8]) {
    if let Some(chained) = ChainedEntry::decode(input) {
        assert!(input.len() <= RECORD_BYTES_MAX, "a record beyond its bound");
        assert_eq!(chained.encode(), input, "one record for an entry");
        let shown = ShownEntry { hash: EntryHash::of(input), chained };
        assert!(!json_line(&shown).contains('\n') && !syslog_line(&shown, "-").contains('\n'), "an entry is one line");
    }
    let (one, other) = input.split_at(input.len() / 2);
    let report = verify(decode_anchor(input), &[], [(1, one), (2, other), (u64::MAX, input)]);
    assert!(!report.is_sound(), "a gap is found whatever lies around it");
}
