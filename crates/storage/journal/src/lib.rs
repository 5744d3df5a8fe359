//! A durable, ordered log with group commit: the write-ahead log of a node. After a crash of the process or of the
//! machine, a committed record is found again, in order and byte for byte, or the journal refuses to open and reports
//! where it is damaged.
//!
//! ```text
//!   append          copies the record into a log buffer, returns its LSN               (one lock, no I/O)
//!   commit(lsn)     one of the waiting threads writes for all of them, flushes once    (group commit)
//!   read, read_at   return durable records, verified again                             (no lock while reading)
//!   truncate        frees whole segments for reuse
//!   open            recovery: finds the end, cuts the torn tail, refuses damage
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
//! The log is one endless sequence of bytes. An *LSN* is a position in it and is never used twice. Segments divide the
//! log into devices of a fixed size. A batch is the content of one write. A frame is the unit of the checksums. A
//! record is one frame, or several if a buffer or a segment ended inside it. `format.md` describes every byte;
//! [`mod@format`] is the code.
//!
//! **No tail pointer.** A pointer to the end would have to be made persistent separately, before or after the records,
//! and would be wrong in between. Instead every frame certifies itself: it is valid if its checksums match, and it
//! *belongs* here if its header contains this position ([`Lsn`]) and this journal and epoch ([`Nonce`]). So one write
//! and one flush make a batch durable.
//!
//! # Why a block is written only once
//!
//! Direct I/O writes whole blocks, and a batch rarely ends at the edge of a block. Either the next batch rewrites the
//! last block with the old bytes and new ones after them, or each batch is padded.
//!
//! *Rewriting* saves space, and seems safe: if the medium tears a block only between sectors, and every sector has
//! either its old or its new content, the acknowledged bytes are equal in both. But it relies on three more
//! assumptions:
//!
//! 1. A torn sector is never garbage, even though it contains bytes that are *already acknowledged*. A batch that only
//!    adds blocks puts at risk only its own bytes, which are not acknowledged yet.
//! 2. The drive treats a rewritten block as carefully as a new one. Of 15 drives that lost power under load 13
//!    misbehaved, with shorn writes among the symptoms (Zheng et al., "Understanding the Robustness of SSDs under Power
//!    Fault", FAST 2013).
//! 3. Two batches never overlap in time: two overlapping writes of one block can leave any mixture. So two writes in
//!    flight would be impossible, or would need an order that devices do not guarantee.
//!
//! *Padding* needs none of them: a block belongs to one batch and is written once in an epoch. It costs space, not
//! time, since both ways write whole blocks. Measured (2026-11-21, 2 cores under load, ext4 on a virtual disk): pwrite
//! and fdatasync of the same 4 KiB repeatedly, against one block after the other, 175 and 172 us at the 10th
//! percentile, 4.05 and 4.04 ms at the median. Space, with 1 KiB records (`commit_bench`): 4.0 bytes written per byte
//! of payload with one committer, 1.32 with 16, 1.08 with 128; it comes from segments that are reused. So the journal
//! pads.
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
//! There is no timer. A committing thread that finds the device free becomes the
//! leader: it writes everything that waits. A thread that finds the device busy waits for the batch that contains its
//! record. A batch grows exactly as long as the device is busy. So one committer has the latency of a plain write and
//! flush, and many committers share them. `pipeline` is the plain state machine; `shared` contains the lock and the
//! waiting.
//!
//! *Two writes in flight.* While A is being written, B may be handed to the device if it is at least as large as A.
//! Without that condition the first thread that returns would send only its own record, and all the others would wait
//! for two flushes. B is reported durable only after A, whichever flush returns first.
//!
//! *Waiting* is per batch: a finished batch wakes its own committers and one new leader, not all threads.
//!
//! *Without waiting.* A task of an asynchronous runtime requests a flush and observes `durable`
//! ([`Journal::start_flusher`]). One thread commits for all such callers: `flusher`.
//!
//! Measured 2026-11-21 on 2 quiet cores, ext4 on a virtual disk, 1 KiB records, engines in turn, both rounds of
//! `scripts/bench-journal-peers.sh` (its comments list what else each engine does):
//!
//! | commits per second | 1 committer | 16 | 128 |
//! |--------------------|------------:|---:|----:|
//! | this journal | 8,297 7,580 | 56,054 55,183 | 113,432 120,474 |
//! | bare loop: one mutex, two buffers, pwrite, fdatasync | 8,212 7,960 | 54,323 51,464 | 108,318 108,857 |
//! | Redis 7.0.15, appendfsync always | 5,436 4,199 | 38,075 36,250 | 93,465 94,232 |
//! | RocksDB 7.8.3, db_bench sync=1 | 5,382 4,962 | 27,098 27,672 | 56,033 55,921 |
//! | fio, a flush for each job | 8,674 8,529 | 50,819 51,005 | 91,481 91,995 |
//!
//! CPU per commit, threads included (`commit_bench`, same day): 42, 12 and 9.9 us here, 44, 13 and 11 us in the bare
//! loop. The fio row shows that this disk merges flushes well by itself; where a flush is expensive, grouping gains
//! more.
//!
//! # On persistent memory
//!
//! If a write is persistent after a few instructions ([`device::Device::is_inline`]), waiting for other threads costs
//! more than writing. A commit then writes on the calling thread, under the lock. A [`Committer`], which appends and
//! commits in one step, holds the lock only to reserve a place; it writes in parallel with other threads and publishes
//! in the order of the log. This takes one fence per record, no hand-over between threads, and units of 256 bytes. The
//! head comment of `inline` has the reasons.
//!
//! # Recovery: a torn tail or damage?
//!
//! A crash may leave B without A. Recovery then finds a hole with valid frames after it. Damage to acknowledged records
//! looks exactly the same. The two must not be confused: a torn tail must be cut off, acknowledged records must never
//! be.
//!
//! ```text
//!   crash       | ... | A missing | B whole, durable = start of A |               A was never acknowledged
//!   damage      | ... | A damaged | B whole, durable = start of A | C whole, durable = end of A or later |
//! ```
//!
//! So each batch header contains the LSN up to which the log was *durable when the batch was handed to the device*. If
//! a later header has a `durable` beyond the bad place, that place had been durable: this is damage, and the journal
//! does not open. Without such a header the bad place was never acknowledged: this is a torn tail. Since at most two
//! writes are in flight, the third batch after any batch always contains the proof. On persistent memory, where every
//! committer may have one batch in flight, it is the batch after all of those. [`recovery`] has the decision as a
//! table, and its limit: it cannot recognise damage to the last one or two batches of a journal that was killed.
//! [`Journal::close`] writes a batch that proves them all.
//!
//! *A tail that was cut off must not reappear.* B is still on the medium when new batches are written over the hole,
//! perhaps of exactly A's size. So each opening begins a new *epoch*: it writes a batch of one sector with the next
//! epoch number, and makes it persistent before it writes anything else. Along the log, epochs never decrease; B's
//! epoch is over, so B is stale. If recovery itself crashes, the next recovery finds that batch or not, and decides the
//! same in both cases.
//!
//! *Bytes that recovery reads must be persistent.* A killed process leaves bytes that can be read but could still be
//! lost. Opening a device flushes it ([`device::contract`], rule 5) before recovery relies on what it reads.
//!
//! # When things fail
//!
//! | fault | reaction |
//! |-------|--------|
//! | a write or flush of a batch fails | [`JournalError::Poisoned`] for every later append and commit, until reopened |
//! | no space for the next segment | [`JournalError::Full`] for appends that need it, before any part of them is appended |
//! | no file descriptor for the next segment | retried until there is one; [`JournalError::NoDescriptors`] meanwhile, as above |
//! | damage to acknowledged bytes | [`JournalError::Corrupt`]: segment, offset, LSN, expected, found, proof |
//! | a segment is missing in the middle, or belongs to another journal | the same |
//! | bytes of an encrypted journal were changed, moved or put back | the same, when the record is read |
//! | an encrypted journal without its key, or a clear one with a key | [`JournalError::Encrypted`], [`JournalError::Clear`], [`JournalError::Key`]; nothing was written |
//! | a torn tail | cut off, counted in [`Recovered::torn_bytes`] |
//! | a block cannot be read while opening | [`JournalError::Device`]; nothing was changed |
//!
//! A separate thread allocates segments and writes them with zeros before they are needed ([`Preparation`]), and
//! truncated segments are reused: a commit never waits for the file system's metadata. `docs/faults.md` names the test
//! of each fault.
//!
//! # What it does not do
//!
//! No mirror: there is one copy on one medium, so damage is detected, not repaired. No compression: it belongs to layers above.
//! No keys: who opens an encrypted journal passes a sealer ([`Options::sealer`]); `encrypt` has what is encrypted. No index of records: an LSN *is* the position. No background commit: nothing
//! becomes durable before a thread commits. The journal does not interpret its records. It cannot detect that
//! its oldest or its newest segments were removed by hand.

#![forbid(unsafe_code)]

mod append;
mod checksum;
mod copy;
mod encrypt;
pub mod error;
mod flush_requests;
mod flusher;
pub mod format;
mod inline;
pub mod inspect;
mod journal;
mod lineage;
mod lsn;
mod options;
mod pipeline;
mod reader;
pub mod recovery;
mod scan;
mod segment;
mod segment_pool;
mod shared;
mod upkeep;
mod view;
mod window;

pub use copy::{Copied, copy};
pub use error::{Corruption, Damage, JournalError, Proof};
pub use inline::Committer;
pub use inspect::{Inspect, Verified, inspect, verify};
pub use journal::Journal;
pub use lineage::{ends_within, is_continued_by};
pub use lsn::{Lsn, Nonce};
pub use options::{
    BUFFERS, COMMIT_CLASSES, Check, GroupCommits, Options, Preparation, RECORD_BYTES_LIMIT, Record, Recovered, Stats,
};
pub use reader::Reader;
pub use segment_pool::recycle;
pub use view::View;
