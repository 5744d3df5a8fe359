//! Files for the fuzz target of profiles: contents from outside behind right headers and checksums.

use crate::format::{Fields, Kind, MAGIC, PART_MAGIC, file_header, pack, write_section};

/// Reads the bytes as a part of a profile, and a part that has them as its last state, with right checksums.
pub fn part(input: &[u8]) {
    _ = crate::recovery::last_state(input);
    let mut part = file_header(PART_MAGIC).to_vec();
    let content = pack(input).and_then(|packed| write_section(&mut part, Kind::State, 0, &packed, input.len() as u64));
    if content.is_ok() {
        let state = crate::recovery::last_state(part.as_slice());
        assert!(state.is_ok(), "it is a part, whatever its state is");
    }
}

/// A file whose sections have these contents: two bytes for the length of the summary, two for that of the reuse, both, one chunk. `None` if
/// the input is too short for its lengths.
pub fn file_of_contents(input: &[u8]) -> Option<Vec<u8>> {
    let mut fields = Fields(input);
    let (head, reuse) = (usize::from(fields.u16()?), usize::from(fields.u16()?));
    let (head, reuse, chunk) = (fields.take(head)?, fields.take(reuse)?, fields.0);
    // The number of accesses that the chunk says it has.
    let entries = u64::from(chunk.get(16..20).and_then(|bytes| Fields(bytes).u32()).unwrap_or_default());
    let mut tail = 3u32.to_le_bytes().to_vec();
    tail.extend(entries.to_le_bytes());
    let mut out = file_header(MAGIC).to_vec();
    for (number, kind, content) in
        [(0, Kind::Head, head), (1, Kind::Reuse, reuse), (2, Kind::Stream, chunk), (3, Kind::Tail, tail.as_slice())]
    {
        write_section(&mut out, kind, number, &pack(content).ok()?, content.len() as u64).ok()?;
    }
    Some(out)
}
