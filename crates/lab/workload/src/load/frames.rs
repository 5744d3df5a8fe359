//! MLLP framing of the load's own, kept apart from the one under test.
//!
//! ```text
//! 0x0B  message  0x1C 0x0D        strict: anything else between or inside frames is a fault of the peer
//! ```
//!
//! A frame that arrives whole in one read, the usual case, is handed on without being copied.

const START: u8 = 0x0B;
const END: u8 = 0x1C;
const CR: u8 = 0x0D;

/// The bytes of a frame that has not arrived whole yet.
#[derive(Debug, Default)]
pub(super) struct Frames {
    pending: Vec<u8>,
}

/// The fault in the bytes of a peer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FramingFault {
    /// A frame does not start with 0x0B.
    NoStart(u8),
    /// 0x1C is not followed by 0x0D.
    NoFinalCr(u8),
}

impl Frames {
    /// Takes the next bytes of the connection and calls `each` with every frame that is now whole.
    pub(super) fn feed(&mut self, chunk: &[u8], each: impl FnMut(&[u8])) -> Result<(), FramingFault> {
        if self.pending.is_empty() {
            let rest = split(chunk, each)?;
            self.pending.extend_from_slice(&chunk[rest..]);
        } else {
            self.pending.extend_from_slice(chunk);
            let rest = split(&self.pending, each)?;
            self.pending.drain(..rest);
        }
        Ok(())
    }

    /// Forgets a partial frame, as when the connection ended.
    pub(super) fn clear(&mut self) {
        self.pending.clear();
    }
}

/// Calls `each` with the whole frames in `data`; returns where the first partial frame starts.
fn split(data: &[u8], mut each: impl FnMut(&[u8])) -> Result<usize, FramingFault> {
    let mut at = 0;
    while let Some(first) = data.get(at) {
        if *first != START {
            return Err(FramingFault::NoStart(*first));
        }
        let Some(length) = memchr::memchr(END, &data[at + 1..]) else { break };
        let end = at + 1 + length;
        match data.get(end + 1) {
            None => break,
            Some(&CR) => each(&data[at + 1..end]),
            Some(other) => return Err(FramingFault::NoFinalCr(*other)),
        }
        at = end + 2;
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collect(frames: &mut Frames, chunk: &[u8]) -> Result<Vec<Vec<u8>>, FramingFault> {
        let mut all = Vec::new();
        frames.feed(chunk, |frame| all.push(frame.to_vec()))?;
        Ok(all)
    }

    #[test]
    fn frames_come_out_whole_however_the_bytes_are_cut() {
        let stream = b"\x0bone\r\x1c\r\x0btwo\r\x1c\r\x0b\x1c\r";
        for first in 0..stream.len() {
            for second in first..stream.len() {
                let mut frames = Frames::default();
                let mut all = Vec::new();
                for part in [&stream[..first], &stream[first..second], &stream[second..]] {
                    all.extend(collect(&mut frames, part).expect("well-formed frames"));
                }
                assert_eq!(all, [b"one\r".to_vec(), b"two\r".to_vec(), Vec::new()], "cut at {first} and {second}");
            }
        }
    }

    #[test]
    fn bytes_outside_a_frame_are_a_fault() {
        assert_eq!(collect(&mut Frames::default(), b"\x0ba\x1c\rx"), Err(FramingFault::NoStart(b'x')));
        assert_eq!(collect(&mut Frames::default(), b"\x0ba\x1cx"), Err(FramingFault::NoFinalCr(b'x')));
    }
}
