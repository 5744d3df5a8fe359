//! Moving pages between near and far memory, and the cost of far memory.
//!
//! ```text
//!   far -> near   a page that is used in far memory: promoted with the probability `promote`, else used in place
//!   near -> far   a page that leaves near memory: into a free frame; it evicts another page if it is dirty or was used since it came
//! ```
//!
//! Probabilistic promotion prevents pages that are used once or twice from displacing others (Zhou et al., "Spitfire",
//! SIGMOD 2021). Dirty pages move like others: their state is in the word, and both tiers are volatile.
//!
//! A move copies between two frames under both exclusive latches, and does one compare-and-swap of the word. If far
//! memory is modelled, each access to a frame there, and each copy, takes the model's time for all of its bytes. The
//! cache does not know which bytes a reader really touches, so modelled far memory is rather too slow than too fast.

use std::sync::atomic::{AtomicU64, Ordering};

use catalogue::medium::Direction;
use device::arena::Exclusive;

use super::Cache;
use super::direct::Moved;
use super::frames::Tier;
use super::metrics::Count;
use super::state::{Flag, Place, State};
use crate::page::PageId;

/// How a reader uses a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hint {
    /// Like one of many readers of the page.
    Point,
    /// Once, as part of a scan: it must not displace pages that are used often. It may use free frames, and beyond that
    /// a sixteenth of near memory.
    Scan,
}

/// Draws with a probability; the seed determines which draws win.
pub(super) struct Draw {
    state: AtomicU64,
    /// Wins out of 2^32.
    wins: u64,
}

impl Draw {
    pub(super) fn new(probability: f64, seed: u64) -> Draw {
        Draw { state: AtomicU64::new(seed), wins: (probability.clamp(0.0, 1.0) * (1u64 << 32) as f64) as u64 }
    }

    pub(super) fn wins(&self) -> bool {
        // SplitMix64 (Steele et al., "Fast splittable pseudorandom number generators", OOPSLA 2014).
        let mut z = self.state.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ z >> 31) >> 32 < self.wins
    }
}

impl Cache {
    /// Charges and counts an access to a frame whose latch is held. `is_new`: all of it is written, whatever it
    /// contained.
    pub(super) fn touch(&self, tier: &Tier, frame: u32, pages: u32, direction: Direction, is_new: bool) {
        let bytes = u64::from(pages) * self.page_bytes as u64;
        if tier.place == Place::Far {
            self.counters.add(Count::FarHit, 1);
            return self.far_access(direction, frame, bytes, || ());
        }
        let Some(map) = &self.direct else {
            if !is_new {
                self.counters.add(Count::NearHit, 1);
            }
            return;
        };
        let Moved { missed, written_back } = map.access(frame, pages, direction == Direction::Write);
        let page_bytes = self.page_bytes as u64;
        if written_back > 0 {
            self.counters.add(Count::DirectWriteBack, written_back.into());
            self.far_access(Direction::Write, frame, u64::from(written_back) * page_bytes, || ());
        }
        if is_new {
            return;
        }
        if missed == 0 {
            self.counters.add(Count::NearHit, 1);
        } else {
            self.counters.add(Count::FarHit, 1);
            self.counters.add(Count::DirectFetch, missed.into());
            self.far_access(Direction::Read, frame, u64::from(missed) * page_bytes, || ());
        }
    }

    /// Runs `work` on a frame of far memory, for the time that the model requires.
    fn far_access<T>(&self, direction: Direction, frame: u32, bytes: u64, work: impl FnOnce() -> T) -> T {
        match &self.far_model {
            Some(model) => model.access(direction, u64::from(frame) * self.page_bytes as u64, bytes, work),
            None => work(),
        }
    }

    /// Moves a page from far to near memory; returns `false` if it is latched or there is no space.
    pub(super) fn promote(&self, page: PageId, state: State) -> bool {
        let Some(far) = &self.far else { return false };
        let Some(from) = far.arena.try_exclusive(state.frame()) else { return false };
        let now = self.state(page);
        if !now.is_where(state) {
            return false;
        }
        let Ok(mut to) = self.frame(&self.main, now.pages()) else { return false };
        let bytes = now.pages() as usize * self.page_bytes;
        self.far_access(Direction::Read, from.number(), bytes as u64, || {
            to[..bytes].copy_from_slice(&from[..bytes]);
        });
        self.moved(page, state, &to, &self.main);
        far.release(from);
        self.counters.add(Count::Promotion, 1);
        true
    }

    /// Moves a page from its frame `from` in near memory to far memory; returns `false` if there is no space for it.
    pub(super) fn demote(&self, page: PageId, state: State, from: &Exclusive<'_>) -> bool {
        let Some(far) = &self.far else { return false };
        let displaces = state.has(Flag::Used) || !state.is_clean();
        let Some(mut to) = self.far_frame(far, state.pages(), displaces) else { return false };
        let bytes = state.pages() as usize * self.page_bytes;
        self.far_access(Direction::Write, to.number(), bytes as u64, || {
            to[..bytes].copy_from_slice(&from[..bytes]);
        });
        self.moved(page, state, &to, far);
        self.counters.add(Count::Demotion, 1);
        true
    }

    /// Puts the new frame into the word; both frames are latched exclusively, so only flags can change meanwhile.
    pub(super) fn moved(&self, page: PageId, from: State, to: &Exclusive<'_>, tier: &Tier) {
        tier.set_owner(to.number(), page);
        let new = |now: State| now.at(tier.place, to.number()).without(Flag::Used).with_usage(1);
        let moved = self.change(page, |now| now.is_where(from).then(|| new(now)));
        assert!(moved.is_ok(), "page {page} moved under an exclusive latch");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draw_wins_as_often_as_it_should() {
        for (probability, expected) in [(0.0, 0..=0), (0.1, 900..=1100), (0.5, 4800..=5200), (1.0, 10_000..=10_000)] {
            let draw = Draw::new(probability, 7);
            let wins = (0..10_000).filter(|_| draw.wins()).count();
            assert!(expected.contains(&wins), "{wins} of 10000 at {probability}");
        }
    }
}
