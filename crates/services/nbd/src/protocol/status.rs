//! Block status: extents of a device as the descriptors of `base:allocation`, and holes of a read.
//!
//! ```text
//!   chunk:  context id (4)   [ length (4)   status (4) ]...
//! ```
//!
//! Invariants: a descriptor has at least one byte; neighbours differ; together they are at most as long as the request.

use device::Extent;

use super::Front;

/// The range has no space of its own.
pub const STATUS_HOLE: u32 = 1;
/// The range reads as zeros.
pub const STATUS_ZERO: u32 = 2;

/// Descriptors of one reply: the client requests the rest again.
pub const DESCRIPTORS_MAX: usize = 1024;

/// Ranges without space shorter than this are sent as bytes: a chunk of its own would cost more than it saves.
pub const HOLE_BYTES_MIN: u64 = 64 << 10;

/// One descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptor {
    /// Bytes.
    pub bytes: u32,
    /// [`STATUS_HOLE`], [`STATUS_ZERO`], or of another context.
    pub status: u32,
}

/// The extents of the range of `length` bytes that begins `skip` bytes into them, with neighbours that are alike as one.
pub fn clipped(extents: &[Extent], skip: u64, length: u64) -> Vec<Extent> {
    let (mut skip, mut left) = (skip, length);
    let mut clipped: Vec<Extent> = Vec::new();
    for extent in extents {
        let skipped = skip.min(extent.bytes);
        skip -= skipped;
        let bytes = (extent.bytes - skipped).min(left);
        left -= bytes;
        match clipped.last_mut() {
            _ if bytes == 0 => {}
            Some(last) if last.has_space == extent.has_space => last.bytes += bytes,
            _ => clipped.push(Extent { bytes, has_space: extent.has_space }),
        }
    }
    clipped
}

/// The descriptors of extents, of which only one is wanted, or as many as one reply has.
pub fn descriptors(extents: &[Extent], only_one: bool) -> Vec<Descriptor> {
    let count = if only_one { 1 } else { DESCRIPTORS_MAX };
    let status = |extent: &Extent| if extent.has_space { 0 } else { STATUS_HOLE | STATUS_ZERO };
    // An extent of a request is shorter than 4 GiB, since the request is.
    let each = extents.iter().take(count);
    each.map(|extent| Descriptor { bytes: extent.bytes as u32, status: status(extent) }).collect()
}

/// The extents of a read that are worth a chunk each: short holes are part of the bytes around them.
pub fn pieces(extents: &[Extent]) -> Vec<Extent> {
    let mut pieces: Vec<Extent> = Vec::new();
    for extent in extents {
        let has_space = extent.has_space || extent.bytes < HOLE_BYTES_MIN;
        match pieces.last_mut() {
            Some(last) if last.has_space == has_space => last.bytes += extent.bytes,
            _ => pieces.push(Extent { bytes: extent.bytes, has_space }),
        }
    }
    pieces
}

/// The payload of a block status chunk.
pub fn encode(context: u32, descriptors: &[Descriptor]) -> Vec<u8> {
    let mut bytes = context.to_be_bytes().to_vec();
    for descriptor in descriptors {
        bytes.extend_from_slice(&descriptor.bytes.to_be_bytes());
        bytes.extend_from_slice(&descriptor.status.to_be_bytes());
    }
    bytes
}

/// Context and descriptors of the payload of a block status chunk; `None` if it is none, or a descriptor is empty.
pub fn decode(payload: &[u8]) -> Option<(u32, Vec<Descriptor>)> {
    let mut front = Front(payload);
    let context = front.u32()?;
    if front.0.is_empty() || !front.0.len().is_multiple_of(8) {
        return None;
    }
    let mut descriptors = Vec::with_capacity(front.0.len() / 8);
    while let (Some(bytes), Some(status)) = (front.u32(), front.u32()) {
        if bytes == 0 {
            return None;
        }
        descriptors.push(Descriptor { bytes, status });
    }
    Some((context, descriptors))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extents(text: &str) -> Vec<Extent> {
        let extent = |word: &str| {
            let (kind, bytes) = word.split_at(1);
            Extent { bytes: bytes.parse().expect("a number"), has_space: kind == "d" }
        };
        text.split_whitespace().map(extent).collect()
    }

    #[test]
    fn extents_are_cut_to_the_request_and_neighbours_that_are_alike_are_one() {
        for (all, skip, length, expected) in [
            ("d100 h100", 0, 200, "d100 h100"),
            ("d100 h100", 50, 100, "d50 h50"),
            ("d100 d50 h10 h10 d5", 10, 164, "d140 h20 d4"),
            ("h100", 99, 1, "h1"),
            ("d10 h10 d10", 10, 10, "h10"),
        ] {
            assert_eq!(clipped(&extents(all), skip, length), extents(expected), "{all} from {skip}, {length}");
        }
    }

    #[test]
    fn short_holes_of_a_read_are_sent_as_bytes() {
        let all = extents("d4096 h4096 d4096 h65536 d1 h65535 h1");
        assert_eq!(pieces(&all), extents("d12288 h65536 d65537"));
    }

    #[test]
    fn descriptors_read_back_and_a_damaged_list_is_refused() {
        let list = descriptors(&extents("d4096 h8192 d1"), false);
        let payload = encode(7, &list);
        assert_eq!(decode(&payload), Some((7, list)));
        assert_eq!(descriptors(&extents("h8192 d1"), true), [Descriptor { bytes: 8192, status: 3 }]);
        for wrong in [&payload[..4], &payload[..11], &[0; 12], &[]] {
            assert_eq!(decode(wrong), None, "{wrong:?}");
        }
    }
}
