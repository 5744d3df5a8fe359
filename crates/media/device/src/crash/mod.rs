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
//! The idea is that of dm-log-writes (docs.kernel.org/admin-guide/device-mapper/log-writes.html) and of ALICE (Pillai
//! et al., OSDI 2014), without a kernel: run the workload once, then open every state in which a power failure could
//! have left the medium, and let the engine recover from each. For persistent memory it is that of Yat (Lantz et al.,
//! USENIX ATC 2014), without a hypervisor: the device's own instructions are recorded.
//!
//! # Media
//!
//! | created with | device | an operation of the recording is |
//! |-----------|--------|----------------------------------|
//! | [`CrashShelf::new`] | a drive | write, discard, flush |
//! | [`CrashShelf::pmem`], [`PmemMode::Adr`], [`PmemMode::Eadr`] | persistent memory by line | store, store past the cache, write-back of a line, fence, sync |
//! | [`CrashShelf::pmem`], [`PmemMode::Pages`] | a mapping by page | store, sync |
//!
//! On persistent memory the device is the one that runs on the real machine, [`crate::pmem`]: its stores, write-backs
//! and fences are real, and only the effect of the instructions is simulated.
//!
//! # Points
//!
//! Point `p` is the moment at which operation `p` has been called and has not returned; point
//! [`CrashShelf::operations`] is the end. These are all possible moments: the state between the return of one operation
//! and the call of the next is among the images of the next one's point, as the image that contains nothing of it.
//! Everything that an engine had acknowledged when `operations()` was `n` must be found again at every point `p >= n`.
//!
//! # What an image may contain
//!
//! An image contains exactly what rules 1 to 6 of [`crate::contract`] allow. On sectors, an un-flushed write may be
//! present, absent or partly present, sector by sector, regardless of its order among the other un-flushed writes; a
//! sector that was written twice may contain the older write. Everything that a returned flush covers is in every
//! image. A name operation that has returned is in every image; one in flight is in some.
//!
//! On persistent memory the atom is a word of 8 bytes, and:
//!
//! * *ADR*: of the ordinary stores to one line, any prefix of their program order; lines are independent of each other.
//!   Everything that a thread had written back before a fence of that thread that has returned is certain. Stores past
//!   the cache are present in any subset until a fence of their thread has returned.
//! * *eADR*: of a thread's ordinary stores, any prefix, over all lines, until a fence (it empties the store buffer);
//!   stores past the cache as above. A write-back changes nothing.
//! * *pages*: any subset of all stores until a sync of their page has returned. Neither fence nor write-back has an
//!   effect.
//!
//! The words of one store are stored in ascending order. A thread's fence does not affect another thread's stores.
//! `moment.rs` implements these rules, `plan.rs` chooses which images are made.
//!
//! # Leaving out one instruction
//!
//! [`CrashShelf::omit`] makes the machine leave out the n-th flush, write-back, fence or sync of a recording. An
//! engine's tests are meaningful if every such machine is detected by some image, or if there is a reason why that
//! instruction is redundant: this is a *mutation check*. [`CrashShelf::persists`] lists the instructions, with what
//! each of them made persistent.
//!
//! # How tests use it
//!
//! * [`CrashShelf::images`] enumerates images of a point; each [`Image`] prints how to reproduce it
//! * [`CrashShelf::every_image`] enumerates all of them if there are few: for tests of what is *not* possible
//! * [`Image::shelf`] is a new shelf that records again: a crash during recovery is the same call once more
//! * [`CrashShelf::crash_at`] makes the machine fail under a running engine, at the n-th operation
//! * [`CrashShelf::kill_at`] kills the process only; or drop the engine without closing it and open it again on the
//!   same shelf
//!
//! # What it does not do
//!
//! It does not schedule threads: with several threads the recording differs from run to run (each recording is still
//! exhausted). It does not damage persistent content: [`crate::faulty`] does. It has no cache except that of lines: an
//! image may contain an evicted line like any other, and the cost of evictions is not modelled.

mod content;
#[cfg(test)]
mod exhaustive;
mod image;
mod machine;
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
    /// Everything that has reached the memory controller.
    Adr,
    /// Also the caches.
    Eadr,
    /// Everything that the file system has synced, page by page: a mapping without direct access.
    Pages,
}

/// The medium below the devices of a shelf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Medium {
    Sectors,
    Pmem { machine: PmemMode, believed: PmemMode },
}

impl Medium {
    /// The name of its atoms.
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

/// A separate seed for every point and image (SplitMix64's finaliser, Steele et al., OOPSLA 2014).
fn mix(seed: u64, point: usize, index: usize) -> u64 {
    let mut z = seed ^ (point as u64).rotate_left(32) ^ index as u64;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
