//! A long segment, cut into blocks, so that to read or change one place of it costs a part of its length only.
//!
//! ```text
//! PID|1||1^^^A~2^^^A~   3^^^B~4^^^A~   5^^^B|DOE^JANE          bytes
//! | 3, ~ 2, ^ 6         ~ 2, ^ 6       | 1, ^ 4                 separators of each level in each block
//! ```
//!
//! A place is found by counting separators: field, repetition, component, subcomponent. Blocks that contain fewer
//! separators than needed, and none of a level above, are skipped. Blocks end after a separator if possible, so that a
//! value is in one block unless it is longer than a block.
//!
//! For a loop over the repetitions of one field, the place of the last one found is kept (the finger), and the search
//! for the next one starts there.
//!
//! Invariants: joined, the blocks are the segment; the counts are those of their bytes; there is a block, and none is
//! empty unless it is the only one; there is no CR or LF in them.

use std::cell::{Cell, OnceCell};
use std::cmp::Ordering;

use memchr::memchr2;

use super::splice::{Padding, take};
use crate::path::Place;
use crate::table::name_of;
use crate::{Delimiters, EditError, SegmentName, Value};

/// Segments from this length on are cut into blocks when they are edited again and again: to move the bytes of a shorter one
/// takes less than a microsecond.
pub(super) const LONG_BYTES: usize = 16 << 10;

/// The shortest length that blocks are cut to.
const BLOCK_BYTES: usize = 4 << 10;

/// Levels of separators: fields, repetitions, components, subcomponents.
const LEVELS: usize = 4;
const NO_LEVEL: u8 = LEVELS as u8;

#[derive(Clone)]
pub(super) struct Long {
    delimiters: Delimiters,
    /// The level each byte separates.
    levels: Box<[u8; 256]>,
    blocks: Vec<Block>,
    /// What blocks are cut to.
    block_bytes: usize,
    finger: Cell<Option<Finger>>,
    joined: OnceCell<Vec<u8>>,
}

#[derive(Clone)]
struct Block {
    bytes: Vec<u8>,
    counts: [usize; LEVELS],
}

/// A place between two bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Mark {
    block: usize,
    at: usize,
}

/// Where a repetition begins.
#[derive(Clone, Copy)]
struct Finger {
    part: usize,
    repetition: usize,
    mark: Mark,
}

/// A place: what is there, and the separators to write before it.
struct Found {
    start: Mark,
    end: Mark,
    padding: Padding,
}

impl Long {
    /// A segment in blocks; none if it contains a line end, whose meaning depends on the bytes around it.
    pub(super) fn new(raw: &[u8], delimiters: Delimiters) -> Option<Long> {
        if memchr2(b'\r', b'\n', raw).is_some() {
            return None;
        }
        let mut levels = Box::new([NO_LEVEL; 256]);
        let d = delimiters;
        for (level, separator) in [Some(d.field), d.repetition, d.component, d.subcomponent].into_iter().enumerate() {
            if let Some(separator) = separator {
                levels[usize::from(separator)] = level as u8;
            }
        }
        // As many blocks as a block has bytes, divided by 16: skipping a block costs about as much as reading 16 bytes.
        let block_bytes = (raw.len().isqrt() * 4).max(BLOCK_BYTES);
        let (finger, joined) = (Cell::new(None), OnceCell::new());
        let mut long = Long { delimiters, levels, blocks: Vec::new(), block_bytes, finger, joined };
        long.blocks = long.cut(raw);
        Some(long)
    }

    pub(super) fn name(&self) -> SegmentName {
        name_of(&self.blocks[0].bytes, self.delimiters.field)
    }

    /// All of it.
    pub(super) fn joined(&self) -> &[u8] {
        self.joined.get_or_init(|| {
            let mut all = Vec::with_capacity(self.blocks.iter().map(|block| block.bytes.len()).sum());
            self.blocks.iter().for_each(|block| all.extend_from_slice(&block.bytes));
            all
        })
    }

    pub(super) fn into_joined(self) -> Vec<u8> {
        self.joined();
        self.joined.into_inner().expect("it was joined just now")
    }

    /// The value at a place in one repetition (1-based; none: the whole field).
    pub(super) fn get(&self, place: &Place, repetition: Option<usize>) -> Value<'_> {
        // Places made by hand may count from 0, where there is nothing.
        if place.field == 0 || repetition == Some(0) || [place.component, place.subcomponent].contains(&Some(0)) {
            return Value::Absent;
        }
        match self.find(place, repetition) {
            Ok(found) if !found.padding.is_needed() => Value::of(self.between(found.start, found.end)),
            _ => Value::Absent,
        }
    }

    /// How many repetitions a field has; one at least.
    pub(super) fn repetitions(&self, field: u16) -> usize {
        match self.find(&Place::field(field), None) {
            Ok(found) if !found.padding.is_needed() => match self.seek(found.start, 1, usize::MAX) {
                Ok(_) => usize::MAX,
                Err((separators, _)) => separators + 1,
            },
            _ => 1,
        }
    }

    /// Writes a value, which contains no line end, to a place; returns whether that changed the segment.
    pub(super) fn set(
        &mut self,
        place: &Place,
        repetition: Option<usize>,
        value: &[u8],
        left: &mut usize,
    ) -> Result<bool, EditError> {
        let found = self.find(place, repetition)?;
        found.padding.check(repetition)?;
        if !found.padding.is_needed() && self.between(found.start, found.end) == value {
            return Ok(false);
        }
        take(left, found.padding.len() + value.len())?;
        let new: Vec<u8> = found.padding.bytes().chain(value.iter().copied()).collect();
        self.replace(found.start, found.end, &new);
        Ok(true)
    }

    /// Whether a place holds `""`.
    pub(super) fn is_null(&self, place: &Place, repetition: Option<usize>) -> bool {
        let Ok(Found { start, end, padding }) = self.find(place, repetition) else { return false };
        // Two bytes: in one block, or at the end of one and the beginning of the next.
        let near = start.block == end.block || (start.block + 1 == end.block && end.at <= 1);
        !padding.is_needed() && near && self.between(start, end) == b"\"\""
    }

    /// Appends a value, which contains no line end, to the content of a place; returns whether that changed the
    /// segment.
    pub(super) fn extend(
        &mut self,
        place: &Place,
        repetition: Option<usize>,
        value: &[u8],
        left: &mut usize,
    ) -> Result<bool, EditError> {
        let found = self.find(place, repetition)?;
        found.padding.check(repetition)?;
        take(left, found.padding.len() + value.len())?;
        let new: Vec<u8> = found.padding.bytes().chain(value.iter().copied()).collect();
        if !new.is_empty() {
            self.replace(found.end, found.end, &new);
        }
        Ok(!new.is_empty())
    }

    /// Empties a place; returns whether it had content.
    pub(super) fn empty(&mut self, place: &Place, repetition: Option<usize>) -> bool {
        match self.find(place, repetition) {
            Ok(found) if !found.padding.is_needed() && found.start != found.end => {
                self.replace(found.start, found.end, b"");
                true
            }
            _ => false,
        }
    }

    /// Removes a repetition from its field; returns whether it existed.
    pub(super) fn delete_repetition(&mut self, field: u16, repetition: usize) -> bool {
        let Ok(found) = self.find(&Place::field(field), Some(repetition)) else { return false };
        if found.padding.is_needed() {
            return false;
        }
        let Found { mut start, mut end, .. } = found;
        if self.level_at(end) == Some(1) {
            end.at += 1;
        } else if repetition > 1 {
            start = self.back(start);
        } else if start == end {
            return false;
        }
        self.replace(start, end, b"");
        true
    }

    fn find(&self, place: &Place, repetition: Option<usize>) -> Result<Found, EditError> {
        // The name is part 1, so field n is part n + 1; in a header MSH-1 is a separator and takes no part of its own.
        let part = usize::from(place.field) + usize::from(!self.name().is_header());
        let numbers = [Some(part), repetition, place.component.map(usize::from), place.subcomponent.map(usize::from)];
        let d = self.delimiters;
        let separators = [Some(d.field), d.repetition, d.component, d.subcomponent];
        let (mut mark, mut deepest, mut padding) = (Mark { block: 0, at: 0 }, 0, Padding::default());
        let known = self.finger.get().filter(|finger| {
            finger.part == part && repetition.is_some_and(|repetition| repetition >= finger.repetition)
        });
        for (level, number) in numbers.into_iter().enumerate() {
            let Some(mut number) = number else { continue };
            deepest = level;
            if number > 1 && separators[level].is_none() {
                return Err(Padding::undeclared(level));
            }
            match (level, known) {
                (0, Some(_)) => continue,
                (1, Some(finger)) => {
                    mark = finger.mark;
                    number = number - finger.repetition + 1;
                }
                _ => {}
            }
            let missing = if padding.is_needed() {
                number - 1
            } else {
                match self.seek(mark, level, number - 1) {
                    Ok(there) => {
                        mark = there;
                        0
                    }
                    Err((separators, end)) => {
                        mark = end;
                        number - 1 - separators
                    }
                }
            };
            padding.add(level, separators[level], missing);
            if level == 1 && !padding.is_needed() {
                self.finger.set(repetition.map(|repetition| Finger { part, repetition, mark }));
            }
        }
        let start = self.settled(mark);
        let end = if padding.is_needed() { start } else { self.end_of(start, deepest) };
        Ok(Found { start, end, padding })
    }

    /// Behind the `wanted`th separator of a level; or how many there are, and where the part ends.
    fn seek(&self, from: Mark, level: usize, wanted: usize) -> Result<Mark, (usize, Mark)> {
        let (mut found, mut at) = (0, from.at);
        if wanted == 0 {
            return Ok(from);
        }
        for (number, block) in self.blocks.iter().enumerate().skip(from.block) {
            let counts = &block.counts;
            if at == 0 && found + counts[level] < wanted && counts[..level].iter().all(|&count| count == 0) {
                found += counts[level];
                continue;
            }
            for (offset, &byte) in block.bytes[at..].iter().enumerate() {
                match usize::from(self.levels[usize::from(byte)]).cmp(&level) {
                    Ordering::Greater => {}
                    Ordering::Less => return Err((found, Mark { block: number, at: at + offset })),
                    Ordering::Equal => {
                        found += 1;
                        if found == wanted {
                            return Ok(Mark { block: number, at: at + offset + 1 });
                        }
                    }
                }
            }
            at = 0;
        }
        Err((found, self.end()))
    }

    /// Where the part of a level that begins at a mark ends.
    fn end_of(&self, from: Mark, level: usize) -> Mark {
        let mut at = from.at;
        for (number, block) in self.blocks.iter().enumerate().skip(from.block) {
            if at > 0 || block.counts[..=level].iter().any(|&count| count > 0) {
                let ends = |byte: &u8| usize::from(self.levels[usize::from(*byte)]) <= level;
                if let Some(offset) = block.bytes[at..].iter().position(ends) {
                    return Mark { block: number, at: at + offset };
                }
            }
            at = 0;
        }
        self.end()
    }

    fn end(&self) -> Mark {
        let block = self.blocks.len() - 1;
        Mark { block, at: self.blocks[block].bytes.len() }
    }

    /// The same place, at the beginning of a block rather than at the end of the one before.
    fn settled(&self, mark: Mark) -> Mark {
        let ends = mark.at == self.blocks[mark.block].bytes.len() && mark.block + 1 < self.blocks.len();
        if ends { Mark { block: mark.block + 1, at: 0 } } else { mark }
    }

    /// One byte before.
    fn back(&self, mark: Mark) -> Mark {
        match mark.at {
            0 => Mark { block: mark.block - 1, at: self.blocks[mark.block - 1].bytes.len() - 1 },
            at => Mark { at: at - 1, ..mark },
        }
    }

    /// The level of the separator at a mark; none at the end.
    fn level_at(&self, mark: Mark) -> Option<usize> {
        let byte = self.blocks[mark.block].bytes.get(mark.at)?;
        Some(usize::from(self.levels[usize::from(*byte)]))
    }

    fn between(&self, start: Mark, end: Mark) -> &[u8] {
        if start.block == end.block {
            return &self.blocks[start.block].bytes[start.at..end.at];
        }
        if start.block + 1 == end.block && end.at == 0 {
            return &self.blocks[start.block].bytes[start.at..];
        }
        let offset = |mark: Mark| {
            let before = self.blocks[..mark.block].iter().map(|block| block.bytes.len());
            before.sum::<usize>() + mark.at
        };
        &self.joined()[offset(start)..offset(end)]
    }

    /// Replaces the bytes between two marks by `new`.
    fn replace(&mut self, start: Mark, end: Mark, new: &[u8]) {
        self.joined.take();
        let first = start.block;
        // Whether numbers or bounds of blocks changed, and whether numbers of later repetitions changed.
        let (mut recut, mut renumbered) = (first != end.block, first != end.block);
        if first == end.block {
            let block = &mut self.blocks[first];
            count(&block.bytes[start.at..end.at], &self.levels, |level| {
                block.counts[level] -= 1;
                renumbered |= level <= 1;
            });
            count(new, &self.levels, |level| {
                block.counts[level] += 1;
                renumbered |= level <= 1;
            });
            block.bytes.splice(start.at..end.at, new.iter().copied());
        } else {
            let rest = self.blocks[end.block].bytes.split_off(end.at);
            self.blocks.drain(first + 1..=end.block);
            let mut bytes = std::mem::take(&mut self.blocks[first].bytes);
            bytes.truncate(start.at);
            bytes.extend_from_slice(new);
            bytes.extend_from_slice(&rest);
            self.blocks[first] = self.block(bytes);
        }
        let length = self.blocks[first].bytes.len();
        if length > 2 * self.block_bytes {
            recut = true;
            let bytes = std::mem::take(&mut self.blocks[first].bytes);
            let cut = self.cut(&bytes);
            self.blocks.splice(first..=first, cut);
        } else if length == 0 && self.blocks.len() > 1 {
            recut = true;
            self.blocks.remove(first);
        }
        let behind = |mark: Mark| mark > start && (renumbered || mark.block == first);
        if self.finger.get().is_some_and(|Finger { mark, .. }| behind(mark) || (recut && mark.block >= first)) {
            self.finger.set(None);
        }
    }

    fn block(&self, bytes: Vec<u8>) -> Block {
        let mut counts = [0; LEVELS];
        count(&bytes, &self.levels, |level| counts[level] += 1);
        Block { bytes, counts }
    }

    /// Blocks that end behind a field or a repetition, if not behind a component or a subcomponent, if not anywhere.
    fn cut(&self, mut bytes: &[u8]) -> Vec<Block> {
        let mut blocks = Vec::with_capacity(bytes.len() / self.block_bytes + 1);
        while bytes.len() > self.block_bytes {
            let window = &bytes[..self.block_bytes];
            let last = |level: u8| window.iter().rposition(|byte| self.levels[usize::from(*byte)] <= level);
            let length = last(1).or_else(|| last(NO_LEVEL - 1)).map_or(window.len(), |at| at + 1);
            blocks.push(self.block(bytes[..length].to_vec()));
            bytes = &bytes[length..];
        }
        if !bytes.is_empty() || blocks.is_empty() {
            blocks.push(self.block(bytes.to_vec()));
        }
        blocks
    }
}

fn count(bytes: &[u8], levels: &[u8; 256], mut see: impl FnMut(usize)) {
    for byte in bytes {
        let level = levels[usize::from(*byte)];
        if level < NO_LEVEL {
            see(usize::from(level));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Draft, Message, Segment, SegmentId, Which};

    impl Long {
        fn check(&self) {
            for block in &self.blocks {
                assert!(!block.bytes.is_empty() || self.blocks.len() == 1, "no block is empty");
                assert_eq!(block.counts, self.block(block.bytes.clone()).counts, "the counts are those of the bytes");
            }
        }
    }

    fn random_text(rng: &mut fastrand::Rng, separators: &[u8]) -> Vec<u8> {
        (0..rng.usize(..12)).map(|_| if rng.u8(..3) == 0 { *rng.choice(separators).unwrap() } else { b'x' }).collect()
    }

    fn random_place(rng: &mut fastrand::Rng, nth: u32) -> Place {
        let component = rng.bool().then(|| rng.u16(1..4));
        let subcomponent = component.and_then(|_| rng.bool().then(|| rng.u16(1..3)));
        let repetition = if rng.u8(..4) > 0 { Some(Which::Nth(nth)) } else { None };
        Place { field: rng.u16(1..6), repetition, component, subcomponent }
    }

    /// Random edits in very short blocks, against a draft that keeps the segment in one piece.
    #[test]
    fn a_segment_in_blocks_says_and_becomes_what_it_does_in_one_piece() {
        for seed in 0..1_000 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let header: &[u8] = if rng.bool() { b"MSH|^~\\&\r" } else { b"MSH|^\r" };
            let mut raw = [b"PID|", random_text(&mut rng, b"|~~~^&").repeat(rng.usize(1..9)).as_slice()].concat();
            let d = Message::parse(header).unwrap().delimiters();
            let mut long = Long::new(&raw, d).expect("it holds no line end");
            long.block_bytes = rng.usize(4..40);
            long.blocks = long.cut(&raw);
            for turn in 1..rng.u32(2..60) {
                // In ascending order half of the time, as in a loop.
                let nth = if rng.bool() { turn / 2 + 1 } else { rng.u32(1..8) };
                let place = random_place(&mut rng, nth);
                let repetition = super::super::repetition_of(&place);
                let value = random_text(&mut rng, if place.component.is_some() { b"x" } else { b"^&" });
                let whole = [header, raw.as_slice()].concat();
                let message = Message::parse(&whole).unwrap();
                let mut draft = Draft::new(&message);
                let pid = SegmentId::original(1);
                let what = || format!("seed {seed}, turn {turn}, {place:?} of {}", String::from_utf8_lossy(&raw));
                assert_eq!(long.get(&place, repetition), Segment::new(&raw, d).get(&place), "{}", what());
                if rng.u8(..4) == 0 && place.component.is_some() {
                    let null = Segment::new(&raw, d).get(&place) == Value::Null;
                    assert_eq!(long.is_null(&place, repetition), null, "{}", what());
                    let there = Segment::new(&raw, d).get(&place).bytes().to_vec();
                    let done = long.extend(&place, repetition, &value, &mut usize::MAX.clone()).map(|_| 1);
                    assert_eq!(done, draft.set_at(pid, &place, &[there, value].concat()), "{}", what());
                } else if rng.bool() {
                    let done = long.set(&place, repetition, &value, &mut usize::MAX.clone()).map(|_| 1);
                    assert_eq!(done, draft.set_at(pid, &place, &value), "{}", what());
                } else {
                    let done = match (&place.repetition, place.component) {
                        (Some(Which::Nth(n)), None) => long.delete_repetition(place.field, *n as usize),
                        _ => long.empty(&place, repetition),
                    };
                    assert_eq!(Ok(done), draft.delete_at(pid, &place), "{}", what());
                }
                let expected = draft.segment_bytes(pid).to_vec();
                let shown = |raw: &[u8]| String::from_utf8_lossy(raw).into_owned();
                assert_eq!(shown(long.joined()), shown(&expected), "{}", what());
                long.check();
                raw = expected;
                let field = Segment::new(&raw, d).field(place.field).bytes().to_vec();
                assert_eq!(long.repetitions(place.field), crate::segment::count(&field, d.repetition));
            }
        }
    }
}
