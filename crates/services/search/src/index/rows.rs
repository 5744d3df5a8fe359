//! The rows of an index in the store: the documents themselves, from which everything else can be made again.
//!
//! ```text
//!   tree search.<uuid>.docs   d <seq>   [version u64][id length u16][id][routing length u16][routing][source]   an operation that stored a document
//!                             t <seq>   [time u64][id]                                one that deleted a document
//!                             g <seq>   nothing                                       row d <seq> was replaced or deleted
//!   tree search.<uuid>.ids    <id>      [seq u64][version u64][deleted u8]            the last operation on an id
//! ```
//!
//! The highest bit of the id's length says whether there is a routing. Numbers of values are little-endian; sequence numbers in keys are big-endian, so that rows lie in the order of operations, and
//! new ones at the end of the tree. A replaced document's row is kept while an older view may show it.

use bytes::Bytes;

use crate::error::SearchError;

/// Longest id, in bytes (Elasticsearch's limit).
pub const ID_BYTES_MAX: usize = 512;

/// Kinds of rows, the first byte of their keys.
pub(crate) const DOCUMENT: u8 = b'd';
pub(crate) const TOMBSTONE: u8 = b't';
pub(crate) const REPLACED: u8 = b'g';

/// Key of a row of an operation.
pub(crate) fn key(kind: u8, seq: u64) -> [u8; 9] {
    let mut key = [kind; 9];
    key[1..].copy_from_slice(&seq.to_be_bytes());
    key
}

/// The sequence number of a key; `None` if it is none of that kind.
pub(crate) fn seq_of(kind: u8, key: &[u8]) -> Option<u64> {
    let (first, seq) = key.split_first()?;
    (*first == kind).then(|| seq.try_into().ok().map(u64::from_be_bytes)).flatten()
}

/// Set in the length of an id that a routing follows.
const ROUTED: u16 = 1 << 15;

/// A stored document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredDocument {
    /// Its id.
    pub id: String,
    /// Its version.
    pub version: u64,
    /// The routing that it was sent with. All documents of an index lie together: it is kept and shown.
    pub routing: Option<String>,
    /// Its source, as it was sent.
    pub source: Bytes,
}

/// The value of a document's row.
pub(crate) fn encode_document(id: &str, version: u64, routing: Option<&str>, source: &[u8]) -> Vec<u8> {
    let routed = routing.map_or(0, |routing| 2 + routing.len());
    let mut out = Vec::with_capacity(10 + id.len() + routed + source.len());
    let flag = if routing.is_some() { ROUTED } else { 0 };
    out.extend_from_slice(&version.to_le_bytes());
    out.extend_from_slice(&(id.len() as u16 | flag).to_le_bytes());
    out.extend_from_slice(id.as_bytes());
    if let Some(routing) = routing {
        out.extend_from_slice(&(routing.len() as u16).to_le_bytes());
        out.extend_from_slice(routing.as_bytes());
    }
    out.extend_from_slice(source);
    out
}

/// See [`encode_document`]. Errors: these are not such bytes.
pub(crate) fn decode_document(value: &Bytes) -> Result<StoredDocument, SearchError> {
    let read = || {
        let version = u64::from_le_bytes(value.get(..8)?.try_into().ok()?);
        let length = u16::from_le_bytes(value.get(8..10)?.try_into().ok()?);
        let mut at = 10 + usize::from(length & !ROUTED);
        let id = std::str::from_utf8(value.get(10..at)?).ok()?.to_owned();
        let mut routing = None;
        if length & ROUTED != 0 {
            let bytes = usize::from(u16::from_le_bytes(value.get(at..at + 2)?.try_into().ok()?));
            routing = Some(std::str::from_utf8(value.get(at + 2..at + 2 + bytes)?).ok()?.to_owned());
            at += 2 + bytes;
        }
        Some(StoredDocument { id, version, routing, source: value.slice(at..) })
    };
    read().ok_or_else(|| SearchError::internal("a document's row cannot be read"))
}

/// The last operation on an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdState {
    /// Its sequence number.
    pub seq: u64,
    /// The version that it made.
    pub version: u64,
    /// Whether it deleted the document.
    pub deleted: bool,
}

impl IdState {
    pub(crate) fn encode(self) -> [u8; 17] {
        let mut out = [u8::from(self.deleted); 17];
        out[..8].copy_from_slice(&self.seq.to_le_bytes());
        out[8..16].copy_from_slice(&self.version.to_le_bytes());
        out
    }

    /// Errors: these are not such bytes.
    pub(crate) fn decode(value: &[u8]) -> Result<IdState, SearchError> {
        let number = |range: std::ops::Range<usize>| Some(u64::from_le_bytes(value.get(range)?.try_into().ok()?));
        let read = || Some(IdState { seq: number(0..8)?, version: number(8..16)?, deleted: *value.get(16)? != 0 });
        read().ok_or_else(|| SearchError::internal("the row of an id cannot be read"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_as_written_and_anything_else_is_refused() {
        let row = Bytes::from(encode_document("a1", 3, None, br#"{"a":1}"#));
        let document = decode_document(&row).expect("a row");
        assert_eq!((document.id.as_str(), document.version, &document.source[..]), ("a1", 3, &br#"{"a":1}"#[..]));
        for cut in 0..12 {
            assert!(decode_document(&row.slice(..cut)).is_err(), "{cut} bytes");
        }
        let row = Bytes::from(encode_document("a1", 3, Some("r"), b"{}"));
        let document = decode_document(&row).expect("a row");
        assert_eq!((document.routing.as_deref(), &document.source[..]), (Some("r"), &b"{}"[..]));
        for cut in 0..15 {
            assert!(decode_document(&row.slice(..cut)).is_err(), "{cut} bytes");
        }
        let state = IdState { seq: 7, version: 2, deleted: true };
        assert_eq!(IdState::decode(&state.encode()).expect("a row"), state);
        assert!(IdState::decode(&[0; 16]).is_err());
        assert_eq!(seq_of(DOCUMENT, &key(DOCUMENT, 258)), Some(258));
        assert_eq!(seq_of(TOMBSTONE, &key(DOCUMENT, 258)), None);
    }
}
