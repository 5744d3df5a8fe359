//! A durable, ordered log with group commit: what is committed is found again after a crash of the process or of the
//! machine, in order and byte for byte, or the journal refuses to open and says where it is damaged.
//!
//! ```text
//!   append          copies the record into a log buffer, answers its LSN               (one lock, no I/O)
//!   commit(lsn)     one of the waiting threads writes for all of them, flushes once    (group commit)
//!   read, read_at   durable records, checked again                                     (no lock while reading)
//!   truncate        whole segments are given up, and used again
//!   open            recovery: find the end, cut the torn tail, refuse damage
//! ```
//!
//! # On the medium
//!
//! ```text
//!   shelf     journal-0000000000000000   journal-0000000004000000   journal-0000000008000000   spare-00000003
//!
//!   segment   | header | batch | batch | batch | .................. preallocated .................. |
//!              base^                            ^ end of the log: found, not stored
//!
//!   batch     | batch frame: durable, bytes | frame | frame | frame | 0 0 0 |     starts and ends on a unit: a 4 KiB
//!                                                                                 block, or 256 bytes on persistent memory
//!
//!   frame     | header crc | payload crc | lsn | epoch, identity | bytes | flags, kind | payload | 0..7 zeros |
//! ```
//!
//! The log is one endless sequence of bytes; an *LSN* is a position in it and never used twice. Segments cut it into
//! devices of a fixed size, batches are what one write carried, frames are what one checksum covers, and a record is one
//! frame, or several where a buffer or a segment ended. `format.md` has every byte; [`mod@format`] is the code.
//!
//! **No tail pointer.** A pointer to the end would be a second thing to make persistent, before or after the records, and
//! wrong in between. Instead everything certifies itself: a frame is valid if its checksums fit, and *belongs* here if it
//! names this place ([`Lsn`]) and this journal and epoch ([`Nonce`]). So one write and one flush make a batch durable.
//!
//! # Why a block is written only once
//!
//! With direct I/O whole blocks are written, and a batch rarely ends on a block's edge. Either the next batch rewrites
//! the last block with the old bytes and more behind them, or each batch is padded.
//!
//! *Rewriting* saves space, and looks safe: if the medium tears a block only between sectors, and every sector is the old
//! one or the new one, the acknowledged bytes are equal in both. It takes three assumptions too many:
//!
//! 1. That a torn sector never is garbage, for bytes *already acknowledged*. A batch that only adds blocks risks its own,
//!    on which nobody relies yet.
//! 2. That the drive treats a rewritten block as carefully as a new one. Of 15 drives that lost power under load 13
//!    misbehaved, with shorn writes among the symptoms (Zheng et al., "Understanding the Robustness of SSDs under Power
//!    Fault", FAST 2013).
//! 3. That two batches never overlap in time: two overlapping writes of one block end as any mixture. Two writes in flight
//!    would be gone, or need an order between them that devices do not keep.
//!
//! *Padding* needs none of that: a block belongs to one batch and is written once in an epoch. Its price is space, not
//! time, since both ways write whole blocks. Measured (2026-11-21, 2 cores under load, ext4 on a virtual disk): pwrite and
//! fdatasync of the same 4 KiB again and again, against one block after the other, 175 and 172 us at the 10th percentile,
//! 4.05 and 4.04 ms at the median. Space, with 1 KiB records (`commit_bench`): 4.0 bytes written per byte of payload with
//! one committer, 1.32 with 16, 1.08 with 128; and it comes out of segments that are used again. We pad.
//!
//! # Group commit
//!
//! ```text
//!   thread 1   append  commit: takes A -- write + flush A --------------> A durable, wakes A's slot and a new leader
//!   thread 2   append  commit: waits in A's slot .......................... returns
//!   thread 3             append  commit: B is as large as A: takes B -- write + flush B ----> returns once A *and* B are
//!   thread 4                append  commit: waits in C's slot ..... leader: takes C -- write + flush C -->
//! ```
//!
//! No timer, no thread of its own, no callback. Whoever commits and finds something to write and the device free writes
//! everything that waits; whoever finds the device busy waits for the batch that carries its record. A batch grows exactly
//! as long as the device is busy, so that one committer has the latency of a bare write and flush, and many share them.
//! `pipeline` is this as a plain state machine; `shared` is the lock and the waiting around it.
//!
//! *Two writes in flight.* While A is being written, B may be handed to the device if it is at least as large. Without
//! that condition the first thread that comes back would send its one record alone, and all the others would wait behind
//! two flushes. B is reported durable only after A, whichever flush returns first.
//!
//! *Waiting* is by batch: a finished batch wakes its own committers and one new leader, not everybody.
//!
//! Measured 2026-11-21 on 2 quiet cores, ext4 on a virtual disk, 1 KiB records, engines in turn, both rounds of
//! `scripts/bench-journal-peers.sh` (which says what else each of them does):
//!
//! | commits per second | 1 committer | 16 | 128 |
//! |--------------------|------------:|---:|----:|
//! | this journal | 8,297 7,580 | 56,054 55,183 | 113,432 120,474 |
//! | bare loop: one mutex, two buffers, pwrite, fdatasync | 8,212 7,960 | 54,323 51,464 | 108,318 108,857 |
//! | Redis 7.0.15, appendfsync always | 5,436 4,199 | 38,075 36,250 | 93,465 94,232 |
//! | RocksDB 7.8.3, db_bench sync=1 | 5,382 4,962 | 27,098 27,672 | 56,033 55,921 |
//! | fio, a flush for each job | 8,674 8,529 | 50,819 51,005 | 91,481 91,995 |
//!
//! CPU per commit, threads included (`commit_bench`, same day): 42, 12 and 9.9 us here, 44, 13 and 11 us in the bare loop.
//! fio shows that this disk merges flushes well by itself; where a flush is dear, grouping gains more.
//!
//! # On persistent memory
//!
//! Where a write is a matter of instructions ([`device::Device::is_inline`]), waiting for others costs more than writing.
//! A commit then writes on the calling thread, under the lock; and a [`Committer`], which appends and commits in one step,
//! holds the lock only to reserve a place, stores beside other threads, and publishes in the order of the log. One fence a
//! record, no hand-over, units of 256 bytes. The essay of `inline` has the reasons.
//!
//! # Recovery: a torn tail or damage?
//!
//! A crash may leave B without A. Recovery then finds a hole with valid frames behind it, which is just what damage to
//! acknowledged records looks like. The two must not be confused: the one is to be cut off, the other must never be.
//!
//! ```text
//!   crash       | ... | A missing | B whole, durable = start of A |               A was never acknowledged
//!   damage      | ... | A damaged | B whole, durable = start of A | C whole, durable = end of A or later |
//! ```
//!
//! So each batch header carries what was *durable when the batch was handed to the device*. A bad place with a header
//! behind it whose `durable` lies beyond that place had been durable: damage, and the journal does not open. Without
//! such a header nobody was told that it was durable: a torn tail. As at most two writes are in flight,
//! the third batch behind any other always carries the proof; on persistent memory, where every committer may have one in
//! flight, the one behind all of those. [`recovery`] has the decision as a table, and what it cannot see: damage to
//! the last one or two batches of a journal that was killed. [`Journal::close`] writes a batch that proves them all.
//!
//! *What was cut off must not come back.* B still lies there when new batches are written over the hole, perhaps of
//! exactly A's size. So each opening begins a new *epoch*: a batch of one sector with the next number, persistent before
//! anything else is written. Along the log epochs never go down; B's is over, so B is stale. A crash during recovery finds
//! that batch, or does not, and decides the same.
//!
//! *What was read must be persistent.* A killed process leaves bytes that can be read and could still be lost. Opening a
//! device flushes it ([`device::contract`], rule 5) before recovery believes what it reads.
//!
//! # When things fail
//!
//! | fault | answer |
//! |-------|--------|
//! | a write or flush of a batch fails | [`JournalError::Poisoned`] for every later append and commit, until reopened |
//! | no space for the next segment | [`JournalError::Full`] for appends that need it, before anything of them is appended |
//! | no file descriptor for the next segment | tried again until there is one; [`JournalError::NoDescriptors`] meanwhile, as above |
//! | damage to acknowledged bytes | [`JournalError::Corrupt`]: segment, offset, LSN, expected, found, proof |
//! | a segment is missing in the middle, or belongs to another journal | the same |
//! | a torn tail | cut off, counted in [`Recovered::torn_bytes`] |
//! | a block cannot be read while opening | [`JournalError::Device`]; nothing was changed |
//!
//! Segments are allocated and written with zeros ahead of need by a thread of their own ([`Preparation`]), and truncated
//! ones are used again: a commit never waits for the file system's metadata. `docs/faults.md` names the test of each.
//!
//! # What it deliberately does not do
//!
//! No mirror: one copy on one medium, so damage is found, not repaired. No compression, no encryption: layers above or
//! below. No per-record index: an LSN *is* the place. No background commit: nothing is durable before somebody commits.
//! It does not know what records mean. It cannot notice that its oldest or its newest segments were removed by hand.

#![forbid(unsafe_code)]

mod append;
mod checksum;
mod copy;
pub mod error;
pub mod format;
mod inline;
pub mod inspect;
mod journal;
mod lsn;
mod options;
mod pipeline;
mod reader;
pub mod recovery;
mod scan;
mod segment;
mod segment_pool;
mod shared;
mod view;
mod window;

pub use copy::{Copied, copy};
pub use error::{Corruption, Damage, JournalError, Proof};
pub use inline::Committer;
pub use inspect::{Inspect, Verified, inspect, verify};
pub use journal::Journal;
pub use lsn::{Lsn, Nonce};
pub use options::{BUFFERS, Check, Options, Preparation, RECORD_BYTES_LIMIT, Record, Recovered, Stats};
pub use reader::Reader;
pub use view::View;
