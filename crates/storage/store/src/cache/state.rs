//! A page's state: one word.
//!
//! ```text
//!   bit  0..32  frame (its first unit in the arena of its tier), or slot of an inner page
//!       32..34  place: nowhere, near frame, far frame, slot
//!       34..42  pages of the run, less one
//!       42..44  usage: uses since the CLOCK hand passed, up to three
//!       44      dirty: changed since the last checkpoint began, and not written in place
//!       45      fresh: allocated since the last checkpoint began
//!       46      checkpoint: belongs to the running checkpoint, and is not written back yet
//!       47      pre-image: its image of the checkpoint was saved, because the page was changed or freed after that
//!       48      extent
//!       49      freed
//!       50      used: used in this place since it came there
//! ```
//!
//! A page that is nowhere is not dirty, and not in a checkpoint without a pre-image: its newest content is on the data
//! devices. Instead of a frame, its word then contains the number of pages that had left memory when it left, or 0 if
//! it was never in memory: so the word is the page's own entry in a ghost list. All functions are pure.

/// The place of a page's newest content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// On the data devices only.
    Nowhere,
    /// In a frame of near memory.
    Near,
    /// In a frame of far memory.
    Far,
    /// In a slot of the inner pages.
    Slot,
}

/// One word of the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct State(pub(super) u64);

/// The largest usage count.
pub(super) const USAGE_MAX: u64 = 3;

const FRAME: u64 = u32::MAX as u64;
const PLACE_AT: u32 = 32;
const PLACE: u64 = 3 << PLACE_AT;
const PAGES_AT: u32 = 34;
const PAGES: u64 = 0xff << PAGES_AT;
const USAGE_AT: u32 = 42;
const USAGE: u64 = 3 << USAGE_AT;

/// A flag of the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Flag {
    Dirty = 44,
    Fresh = 45,
    Checkpoint = 46,
    PreImage = 47,
    Extent = 48,
    Freed = 49,
    Used = 50,
}

impl State {
    pub(super) fn place(self) -> Place {
        match (self.0 & PLACE) >> PLACE_AT {
            0 => Place::Nowhere,
            1 => Place::Near,
            2 => Place::Far,
            _ => Place::Slot,
        }
    }

    pub(super) fn frame(self) -> u32 {
        (self.0 & FRAME) as u32
    }

    pub(super) fn at(self, place: Place, frame: u32) -> State {
        State(self.0 & !(PLACE | FRAME) | (place as u64) << PLACE_AT | u64::from(frame))
    }

    /// The word of a page that leaves memory as the `left`th page.
    pub(super) fn nowhere(self, left: u32) -> State {
        self.at(Place::Nowhere, left.max(1)).with_usage(0).without(Flag::Used)
    }

    /// Whether the page was among the last `many` that left memory; `left` have left in all.
    pub(super) fn left_lately(self, left: u32, many: u32) -> bool {
        self.place() == Place::Nowhere && self.frame() != 0 && left.wrapping_sub(self.frame()) < many
    }

    /// Whether both words have the same place.
    pub(super) fn is_where(self, other: State) -> bool {
        (self.0 ^ other.0) & (PLACE | FRAME) == 0
    }

    pub(super) fn pages(self) -> u32 {
        ((self.0 & PAGES) >> PAGES_AT) as u32 + 1
    }

    pub(super) fn of_pages(self, pages: u32) -> State {
        debug_assert!((1..=256).contains(&pages));
        State(self.0 & !PAGES | u64::from(pages - 1) << PAGES_AT)
    }

    pub(super) fn usage(self) -> u64 {
        (self.0 & USAGE) >> USAGE_AT
    }

    pub(super) fn with_usage(self, times: u64) -> State {
        State(self.0 & !USAGE | times.min(USAGE_MAX) << USAGE_AT)
    }

    pub(super) fn has(self, flag: Flag) -> bool {
        self.0 & 1 << flag as u8 != 0
    }

    pub(super) fn with(self, flag: Flag) -> State {
        State(self.0 | 1 << flag as u8)
    }

    pub(super) fn without(self, flag: Flag) -> State {
        State(self.0 & !(1 << flag as u8))
    }

    /// Whether the checkpoint still needs the content of the frame.
    pub(super) fn is_held(self) -> bool {
        self.has(Flag::Checkpoint) && !self.has(Flag::PreImage)
    }

    /// Whether the content on the data devices can be one page with a header.
    pub(super) fn can_be_loaded_as_page(self) -> bool {
        !self.has(Flag::Freed) && !self.has(Flag::Extent)
    }

    /// Whether the frame can be evicted at once.
    pub(super) fn is_clean(self) -> bool {
        !self.has(Flag::Dirty) && !self.is_held()
    }

    /// Whether the page can be evicted after it was written in place: nothing durable refers to it.
    pub(super) fn may_write_early(self) -> bool {
        self.has(Flag::Dirty) && self.has(Flag::Fresh) && !self.has(Flag::Checkpoint)
    }

    /// The word of a freed page: the checkpoint may need its pre-image.
    pub(super) fn freed(self) -> State {
        let checkpoint = self.0 & (1 << Flag::Checkpoint as u8 | 1 << Flag::PreImage as u8);
        State(checkpoint).of_pages(self.pages()).with(Flag::Freed)
    }

    /// The word of a page at which a new run is created.
    pub(super) fn created(self, pages: u32) -> State {
        let checkpoint = self.0 & (1 << Flag::Checkpoint as u8 | 1 << Flag::PreImage as u8);
        State(checkpoint).of_pages(pages).with(Flag::Dirty).with(Flag::Fresh).with_usage(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_the_word_is_its_own() {
        let flags = [Flag::Dirty, Flag::Fresh, Flag::Checkpoint, Flag::PreImage, Flag::Extent, Flag::Freed, Flag::Used];
        for place in [Place::Nowhere, Place::Near, Place::Far, Place::Slot] {
            for (frame, pages, seen) in [(0, 1, 0), (u32::MAX, 256, 3), (0x8000_0001, 129, 2)] {
                for flag in flags {
                    let state = State::default().at(place, frame).of_pages(pages).with_usage(seen).with(flag);
                    assert_eq!((state.place(), state.frame()), (place, frame));
                    assert_eq!((state.pages(), state.usage()), (pages, seen));
                    assert!(flags.iter().all(|other| state.has(*other) == (*other == flag)));
                    let other = state.of_pages(7).with_usage(1).without(flag);
                    assert_eq!((other.place(), other.frame(), other.pages(), other.usage()), (place, frame, 7, 1));
                    assert!(other.is_where(state) && flags.iter().all(|flag| !other.has(*flag)));
                }
            }
        }
    }

    #[test]
    fn a_page_that_left_is_remembered_until_many_others_left() {
        let page = State::default().at(Place::Near, 5).nowhere(1000);
        assert!(page.left_lately(1000, 10) && page.left_lately(1009, 10) && !page.left_lately(1010, 10));
        assert!(!State::default().left_lately(3, 10), "it never was there");
        assert!(!page.at(Place::Near, 1000).left_lately(1000, 10), "it is there");
        assert!(State::default().nowhere(u32::MAX).left_lately(4, 10), "the count begins anew");
    }

    #[test]
    fn only_what_is_written_back_may_go_and_only_fresh_pages_outside_a_cut_may_be_written() {
        let (dirty, fresh, checkpoint, pre_images) = (1, 2, 4, 8);
        for flags in 0..16 {
            let mut state = State::default().at(Place::Near, 1);
            for (bit, flag) in [
                (dirty, Flag::Dirty),
                (fresh, Flag::Fresh),
                (checkpoint, Flag::Checkpoint),
                (pre_images, Flag::PreImage),
            ] {
                if flags & bit != 0 {
                    state = state.with(flag);
                }
            }
            assert_eq!(
                state.is_clean(),
                flags & dirty == 0 && (flags & checkpoint == 0 || flags & pre_images != 0),
                "{flags}"
            );
            assert_eq!(state.may_write_early(), flags & (dirty | fresh | checkpoint) == dirty | fresh, "{flags}");
        }
    }
}
