//! A simulated machine that records what is written and can lose power at any moment of the recording.
//!
//! ```text
//!   engine under test --- Shelf / Device ---> CrashShelf
//!                                               live content: what reads see
//!                                               trace: 0 create a | 1 write a | 2 write a | 3 flush a | 4 write a ...
//!                                                                        ^
//!   images(2): power fails while operation 2 is in flight  ------------ -+
//!      persistent: the zeros that create made      un-flushed: writes 1 and 2
//!      -> none | all | each alone | all but one | torn | random subsets      each a fresh CrashShelf
//! ```
//!
//! The idea is that of dm-log-writes (docs.kernel.org/admin-guide/device-mapper/log-writes.html) and of ALICE (Pillai et
//! al., OSDI 2014) without a kernel: run the workload once, then open every state in which a power failure could
//! have left the medium, and let the engine recover from each. On persistent memory it is that of Yat (Lantz et al.,
//! USENIX ATC 2014), without a hypervisor: the device's own instructions are what is recorded.
//!
//! # Media
//!
//! | made with | device | an operation of the recording is |
//! |-----------|--------|----------------------------------|
//! | [`CrashShelf::new`] | a drive | write, discard, flush |
//! | [`CrashShelf::pmem`], [`PmemMode::Adr`], [`PmemMode::Eadr`] | persistent memory by line | store, store past the cache, write-back of a line, fence, sync |
//! | [`CrashShelf::pmem`], [`PmemMode::Pages`] | a mapping by page | store, sync |
//!
//! On persistent memory the device is the one that runs on the machine, [`crate::pmem`]: which stores it makes, which lines
//! it writes back and when it fences is not simulated, only what the instructions do is.
//!
//! # Points
//!
//! Point `p` is the moment at which operation `p` has been called and has not returned; point [`CrashShelf::operations`]
//! is the end. That is every moment there is: the state between the return of one operation and the call of the next is
//! among the images of the next one's point, as the image in which nothing of it was kept. What an engine had acknowledged
//! when `operations()` was `n` must be found again at every point `p >= n`.
//!
//! # What an image may hold
//!
//! What rules 1 to 6 of [`crate::contract`] leave open, and nothing else. On sectors: an un-flushed write may be there, or
//! not, or in part, sector by sector, regardless of its order among the other un-flushed writes; sectors that were written
//! twice may come back with the older write. What a returned flush covers is in every image. A name operation that has
//! returned is in every image; the one in flight is in some.
//!
//! On persistent memory the atom is a word of 8 bytes, and:
//!
//! * *ADR*: of the ordinary stores to one line any prefix of their program order, lines independent of each other; what
//!   its thread had written back before a fence that has returned is certain. Stores past the cache in any subset until
//!   a fence of their thread has returned.
//! * *eADR*: of a thread's ordinary stores any prefix, over all lines, until a fence (it empties the store buffer); stores
//!   past the cache as above. A write-back changes nothing.
//! * *pages*: any subset of all stores until a sync of their page has returned. Neither fence nor write-back counts.
//!
//! The words of one store are stored in ascending order. A thread's fence does nothing for another thread's stores.
//! `moment.rs` is this as code, `plan.rs` chooses which of the images are made.
//!
//! # Leaving out one instruction
//!
//! [`CrashShelf::omit`] makes the machine leave out the n-th flush, write-back, fence or sync of a recording. An engine's
//! tests are worth something if every such machine is caught by some image, or a reason can be given why nobody needs
//! that instruction: a *mutation check*. [`CrashShelf::persists`] lists them, with what each of them made persistent.
//!
//! # How tests use it
//!
//! * [`CrashShelf::images`] enumerates images of a point; each [`Image`] prints how to get it again
//! * [`CrashShelf::every_image`] enumerates all of them where there are few: for tests that say what is *not* possible
//! * [`Image::shelf`] is a fresh shelf that records in its turn: a crash during recovery is the same call once more
//! * [`CrashShelf::crash_at`] makes the machine die under a running engine, at the n-th operation
//! * [`CrashShelf::kill_at`] kills the process only; or forget the engine and open it again on the same shelf
//!
//! # What it does not do
//!
//! It does not schedule threads: with several, the recording differs from run to run (each recording is still exhausted).
//! It does not damage what was persistent: that is what [`crate::faulty`] does. It knows no cache but that of lines:
//! a line that is evicted unasked is an image like any other, what that costs is not its business.

mod content;
#[cfg(test)]
mod exhaustive;
mod image;
mod memory;
mod moment;
mod plan;
mod shelf;
mod trace;

use std::fmt;

pub use image::{Image, Images};
pub use shelf::CrashShelf;
pub use trace::{Instruction, Persist, Step};

/// What a simulated machine with persistent memory keeps when its power fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PmemMode {
    /// What has reached the memory controller.
    Adr,
    /// The caches too.
    Eadr,
    /// What the file system has synced, page by page: a mapping without direct access.
    Pages,
}

/// What lies under the devices of a shelf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Medium {
    Sectors,
    Pmem { machine: PmemMode, believed: PmemMode },
}

impl Medium {
    /// What its atoms are called.
    fn atoms(self) -> &'static str {
        match self {
            Medium::Sectors => "sectors",
            Medium::Pmem { .. } => "words",
        }
    }
}

impl fmt::Display for Medium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Medium::Sectors => f.write_str("sectors"),
            Medium::Pmem { machine, believed } if machine == believed => write!(f, "pmem {machine:?}"),
            Medium::Pmem { machine, believed } => write!(f, "pmem {machine:?} taken for {believed:?}"),
        }
    }
}

/// A seed of its own for every point and image (SplitMix64's finaliser, Steele et al., OOPSLA 2014).
fn mix(seed: u64, point: usize, index: usize) -> u64 {
    let mut z = seed ^ (point as u64).rotate_left(32) ^ index as u64;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
