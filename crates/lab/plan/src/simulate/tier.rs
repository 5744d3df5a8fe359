//! The frames of one memory, and the hand of CLOCK over them; without contents.

/// A frame with an owner.
#[derive(Clone, Copy, Debug)]
struct Frame {
    owner: Option<u64>,
    bytes: u64,
    /// The first byte of memory that it would have: for the direct map.
    address: u64,
}

/// See the head comment of this file.
#[derive(Debug, Default)]
pub(super) struct ClockTier {
    capacity: u64,
    used: u64,
    frames: Vec<Frame>,
    free: Vec<u32>,
    hand: usize,
}

impl ClockTier {
    pub(super) fn new(capacity: u64) -> ClockTier {
        ClockTier { capacity, ..ClockTier::default() }
    }

    pub(super) fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Frames, with and without an owner.
    pub(super) fn frames(&self) -> usize {
        self.frames.len()
    }

    pub(super) fn has_room(&self, bytes: u64) -> bool {
        self.used.saturating_add(bytes) <= self.capacity
    }

    /// Gives a key a frame; the caller made room.
    pub(super) fn put(&mut self, owner: u64, bytes: u64) -> u32 {
        self.used += bytes;
        if let Some(number) = self.free.pop() {
            let frame = &mut self.frames[number as usize];
            (frame.owner, frame.bytes) = (Some(owner), bytes);
            return number;
        }
        let address = self.frames.last().map_or(0, |last| last.address + last.bytes);
        self.frames.push(Frame { owner: Some(owner), bytes, address });
        self.frames.len() as u32 - 1
    }

    pub(super) fn release(&mut self, number: u32) {
        let frame = &mut self.frames[number as usize];
        if frame.owner.take().is_some() {
            self.used -= frame.bytes;
            self.free.push(number);
        }
    }

    pub(super) fn address(&self, number: u32) -> u64 {
        self.frames[number as usize].address
    }

    /// The frame under the hand and its owner, if it has one; the hand moves on.
    pub(super) fn next(&mut self) -> (u32, Option<u64>) {
        if self.hand >= self.frames.len() {
            self.hand = 0;
        }
        let number = self.hand;
        self.hand += 1;
        (number as u32, self.frames.get(number).and_then(|frame| frame.owner))
    }
}
