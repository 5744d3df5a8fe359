//! A block volume: a mirror of one to three copies, each with a journal, checksums and a superblock; one owner at a time.
//!
//! ```text
//!   read    overlay, or one copy in place; verified by its sum; repaired from another copy
//!
//!   write   +-- journal of copy 0 --+
//!           +-- journal of copy 1 --+  durable on all in sync  -->  overlay, sums  -->  acknowledged
//!           +-- journal of copy 2 --+                                   |
//!                                                          checkpoint: data-0.., tables-0.. of each copy, in place
//! ```
//!
//! # What it promises
//!
//! 1. A write that returned `Ok` is durable on every copy in sync, at least `min_copies`, and is found after any crash of the owner, of
//!    media, and of all but one of the copies in sync.
//! 2. A block of 4096 bytes is old or new after a crash, also if a write changed a part of it, on every medium: it is in a journal
//!    whole, with its sum, before it is written in place.
//! 3. A read returns what the last write of each block stored, or an error; never bytes that do not match their sum; nothing that is
//!    not durable; nothing older than an earlier read returned, whichever copies they used.
//! 4. An owner that was replaced by another acknowledges nothing that the other has not found when it opened the volume.
//!
//! Promise 3 is that of one owner. One that was replaced and does not know it reads what it had, until it needs a copy that refuses it:
//! no clock is trusted here.
//!
//! # Modules, from the top
//!
//! * `volume`: the calls of users; `requests`, `queue`, `upkeep`: the threads; `handed`: reads that need none
//! * `recovery`, `resync`, `scrub`, `checkpoint`, `write`, `read`: what happens, one file each
//! * `core`: the state they share
//! * [`membership`]: which copies count, a pure state machine
//! * `copy`: one copy on its shelves
//! * `thin`, `space`: space that is taken when it is needed, and what keeps an acknowledged block from finding none
//! * `overlay`, `tables`, `stripes`, `workers`: blocks on their way, sums and dirty maps, locks, threads for calls that may hang
//! * [`encryption`]: seals blocks when they are written; `verify`: what stored bytes must be
//! * [`write_back`]: a cache under one copy
//! * [`superblock`], [`record`], `geometry`, `tables`: the format, described in their head comments and in `format.md`
//!
//! # How it is tested
//!
//! * `simulation`: seeds in which copies and owners fail side by side, with a history of the values that each block may have; leaving out
//!   any one of the rules of [`membership`] fails it
//! * crash images of every moment; real threads while copies fail, hang and return; fences and coordinators; the faults of other volumes
//!   by name; a golden dump of the format; the parsers with changed bytes
//!
//! Not tested: power failures during a replacement, except in the simulation; a volume beside another process on real media.
//!
//! # What it does not do
//!
//! No snapshots, no deduplication, no compression. No network: a copy on another machine is a shelf whose devices are remote, with a
//! [`Fence`]. It does not shrink. It does not find out by itself that a copy is back: somebody attaches it. It keeps no keys: who opens
//! an encrypted volume gives them.

#![forbid(unsafe_code)]

mod bits;
mod checkpoint;
mod checksum;
mod copy;
mod core;
pub mod encryption;
pub mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod geometry;
mod handed;
mod mark;
pub mod members;
pub mod membership;
mod metrics;
mod options;
mod overlay;
mod queue;
mod read;
pub mod record;
mod recovery;
mod requests;
mod resync;
mod rules;
mod scrub;
#[cfg(any(test, feature = "simulation"))]
pub mod simulation;
mod space;
mod stripes;
pub mod superblock;
mod tables;
mod thin;
mod upkeep;
mod verify;
mod volume;
mod workers;
mod write;
pub mod write_back;

pub use device::Noted;
pub use error::VolumeError;
pub use geometry::{REGION_BLOCKS, SECTOR};
pub use members::{COPIES_MAX, Epoch, Members, Set};
pub use metrics::{CopySpace, CopyState, CopyStatus, Status};
pub use options::{AccessWatch, Coordinator, Disagreement, Fence, NewVolume, Options, Place, Threads};
pub use resync::Step;
pub use scrub::Scrubbed;
pub use tables::number_of;
pub use volume::Volume;
