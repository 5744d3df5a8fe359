//! The database: ordered trees of keys and values in pages, transactions over them, recovery.
//!
//! ```text
//!   Transaction, Snapshot, Cursor           snapshot isolation by deferred update     transaction, cursor, writes
//!        |
//!   commit: validate -> journal -> queue    first committer wins; durable first       commit, record
//!        |
//!   apply: batches, old versions            one applier at a time; then visible       apply, versions
//!        |
//!   trees                                   B+trees, one writer, many readers         forest, tree
//!        |
//!   page cache                              near and far memory, latched frames       cache, page, pages
//!        |
//!   checkpoints                             begin, images, commit, in place           checkpoint, images
//!        |
//!   pages                                   data devices, allocation map              space
//! ```
//!
//! # How a change becomes durable
//!
//! A transaction gathers its changes in memory. At commit its keys are compared with those that others committed since it
//! began; if none is the same, one record with all changes goes to the journal, in the order of commits. When the record is
//! durable (one flush for all that wait) it is *applied*: the trees are changed, the old values go aside for older snapshots,
//! and new snapshots see it. So pages never hold what is not durable, recovery only redoes, and an update that is refused or
//! rolled back has never been anywhere.
//!
//! The journal is logical: records say trees, keys and values, and no pages. A service may append records of its own instead,
//! which an [`Interpreter`] turns into changes when they are applied.
//!
//! Pages are written back in *checkpoints*. A checkpoint begins with the pages that are changed
//! between two records; those that something durable refers
//! to go to the write image journal first, so that the data devices always hold the state at some *redo LSN*, and at most a part of
//! the batch that begins there. Opening writes a committed batch of images in place, and applies the journal from the redo LSN.
//!
//! # What a caller may rely on
//!
//! | call | when it returns |
//! |------|-----------------|
//! | [`Transaction::commit`] | durable, and seen by every snapshot taken from then on; or nothing of it happened |
//! | [`Store::commit`] | the service's record, and every one before it, is durable; it is seen a little later |
//! | [`Store::wait_visible`] | it is seen |
//! | [`Snapshot::get`], [`Cursor::next`] | what was committed when the snapshot was taken, whatever has happened since |
//! | [`Store::checkpoint`] | everything applied before the call is in the pages |
//!
//! *Isolation* is snapshot isolation: no lost updates, nothing half done is seen, and a snapshot never changes. Write skew is
//! allowed. A snapshot is too old when what it needs exceeds [`Options::versions_bytes`].
//!
//! *Failures*: when a journal or a device fails, the store is poisoned and reads go on ([`Store::poisoned`]); nothing acknowledged
//! is lost. A full journal refuses what needs room, before anything of it happened; so does a full medium of pages, by an
//! estimate. What is durable and finds no room waits for it.
//!
//! *Damage*: a page that cannot be read, or does not verify, stops nothing else. Each read of what it holds is a
//! [`StoreError::Corrupt`] that names it; what changes there goes to a hole in its place ([`Store::quarantined`],
//! [`Store::losses`]). Without the superblock, the trees of all trees, and those that the interpreter calls vital, nothing opens.
//!
//! # What it deliberately does not do
//!
//! No serializable isolation, no locks held by users, no merging of half-empty leaves, no compression, no encryption. It knows
//! keys and values, no rows and no messages.

#![forbid(unsafe_code)]

mod apply;
mod backup;
pub mod cache;
mod catalog;
mod checkpoint;
mod commit;
mod cursor;
mod damage;
mod engine;
mod error;
mod forest;
mod images;
mod interpreter;
mod limits;
mod maintenance;
mod metrics;
mod options;
pub mod page;
mod page_id;
pub mod pages;
mod queue;
mod range;
mod record;
mod redo;
mod repair;
mod retention;
mod snapshot;
mod space;
mod spills;
mod store;
mod transaction;
pub mod tree;
mod verify;
mod versioned;
mod versions;
mod write_set;
mod writes;

pub use backup::restore::{Restoration, Restoring};
pub use backup::{Copying, Manifest, Until};
pub use checkpoint::checkpointer::CheckpointStats;
pub use checkpoint::open::Layout;
pub use checkpoint::pace::CheckpointOptions;
pub use checkpoint::writer::CheckpointSummary;
pub use cursor::{Cursor, Skipped, Tried};
pub use damage::{Damage, Quarantined};
pub use engine::Store;
pub use error::StoreError;
pub use interpreter::{Changes, Foreign, Interpreter};
pub use journal::Lsn;
pub use limits::{SpaceLimit, SpaceLimits};
pub use maintenance::{inspect_places, restore, verify_places};
pub use metrics::Metrics;
pub use options::{Opened, Options, Places};
pub use range::Direction;
pub use record::reads;
pub use repair::{Loss, Part};
pub use snapshot::Snapshot;
pub use space::devices::DataDeviceStats;
pub use transaction::{Savepoint, Transaction};
pub use tree::VALUE_BYTES_MAX;
pub use verify::{Progress, UncachedReader, Verified};

/// Names a tree of a store; given by [`Transaction::create_tree`], never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreeId(pub u32);

/// Longest key, in bytes, whatever the page size.
pub const KEY_BYTES_MAX: usize = 1024;
