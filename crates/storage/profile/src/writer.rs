//! Writes the sections of a whole profile, and the state of a part.

use std::io::Write;

use crate::ProfileError;
use crate::format::{self, Fields, Kind, SECTION_BYTES_MAX, pack, write_section};
use crate::spool::Spool;
use crate::summary::Summary;

/// Writes a profile with these chunks.
pub(crate) fn write(summary: &Summary, spool: &mut Spool, out: &mut impl Write) -> Result<(), ProfileError> {
    let head = serde_json::to_vec(summary).map_err(|error| ProfileError::Refused(error.to_string()))?;
    let reuse = format::encode_reuse(summary);
    let tail_number = 2 + spool.chunks();
    let mut tail = Vec::new();
    tail.extend(tail_number.to_le_bytes());
    tail.extend(spool.entries().to_le_bytes());
    debug_assert!(head.len() as u64 <= SECTION_BYTES_MAX);
    out.write_all(&format::file_header(format::MAGIC))?;
    for (number, kind, content) in [(0, Kind::Head, &head), (1, Kind::Reuse, &reuse)] {
        write_section(out, kind, number, &pack(content)?, content.len() as u64)?;
    }
    spool.write_to(out, 2)?;
    write_section(out, Kind::Tail, tail_number, &pack(&tail)?, tail.len() as u64)
}

/// The bytes of a state.
pub(crate) fn encode_state(summary: &Summary) -> Result<Vec<u8>, ProfileError> {
    let head = serde_json::to_vec(summary).map_err(|error| ProfileError::Refused(error.to_string()))?;
    let mut out = (head.len() as u64).to_le_bytes().to_vec();
    out.extend(head);
    out.extend(format::encode_reuse(summary));
    Ok(out)
}

/// Decodes them; `None` if it is none.
pub(crate) fn decode_state(content: &[u8]) -> Option<Summary> {
    let mut fields = Fields(content);
    let head = usize::try_from(fields.u64()?).ok()?;
    let mut summary: Summary = serde_json::from_slice(fields.take(head)?).ok()?;
    if summary.contradiction().is_some() {
        return None;
    }
    format::decode_reuse(fields.0, &mut summary)?;
    Some(summary)
}
