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
//! A transaction collects its changes in memory. A commit compares its keys with those that other transactions have
//! committed since it began. If no key is the same, one record with all changes goes to the journal, in the order of
//! commits. When the record is durable (one flush for all that wait), it is *applied*: the trees are changed, the old
//! values are kept for older snapshots, and new snapshots see it. So pages never contain changes that are not durable,
//! recovery only redoes, and an update that is refused or rolled back leaves no trace anywhere.
//!
//! The journal is logical: records contain trees, keys and values, but no pages. A service may append records of its
//! own instead; an [`Interpreter`] turns them into changes when they are applied.
//!
//! Pages are written back in *checkpoints*. A checkpoint begins between two records and writes the pages that are dirty
//! then. The images of pages to which something durable refers go to the write image journal (a double-write buffer)
//! first. So the data devices always contain the state at some *redo LSN*, with at most a part of the batch that begins
//! there. Opening writes a committed batch of images in place, and applies the journal from the redo LSN.
//!
//! # Guarantees to callers
//!
//! | call | when it returns |
//! |------|-----------------|
//! | [`Transaction::commit`] | durable, and seen by every snapshot taken from then on; or, after an error, without effect |
//! | [`Store::commit`] | the record of the service, and every one before it, is durable; it becomes visible a little later |
//! | [`Store::wait_visible`] | the record is visible |
//! | [`Snapshot::get`], [`Cursor::next`] | the state that was committed when the snapshot was taken, whatever has happened since |
//! | [`Store::checkpoint`] | everything applied before the call is in the pages |
//!
//! *Isolation* is snapshot isolation: there are no lost updates, no transaction is seen partly, and a snapshot never
//! changes. Write skew is possible. A snapshot becomes too old when the old versions that it needs exceed
//! [`Options::versions_bytes`].
//!
//! *Failures*: when the journal or a device fails, the store is poisoned and reads continue ([`Store::poisoned`]);
//! nothing acknowledged is lost. A full journal refuses a change that needs space before any part of it takes effect;
//! so does a full medium of pages, by an estimate. A durable record that finds no space waits for it.
//!
//! *Damage*: a page that cannot be read, or does not verify, stops nothing else. Each read of its contents returns
//! [`StoreError::Corrupt`] with its number. Changes to its keys go to a hole in its place ([`Store::quarantined`],
//! [`Store::losses`]). The store does not open without the superblock, the catalog, and the trees that the interpreter
//! declares vital.
//!
//! # Encryption
//!
//! With a sealer in [`journal::Options`] the journal, the pages of trees, values in extents, the images of these, and so backups are
//! encrypted and authenticated, from the creation of the store on (`page::encrypted`, crate `encryption`). A seal that does not verify is
//! damage like a checksum that does not match. Superblock, allocation map and headers are not secret. [`Store::rewrite`] writes anew what
//! older data keys encrypted.
//!
//! # What it does not do
//!
//! No serializable isolation, no locks held by users, no merging of half-empty leaves, no compression.
//! The store has keys and values, but neither rows nor messages.

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
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
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
mod rewrite;
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

pub use backup::restore::{BackupSource, Restoration, Restoring};
pub use backup::{Copying, Manifest, Until};
pub use cache::ReadAhead;
pub use checkpoint::checkpointer::CheckpointStats;
pub use checkpoint::open::Layout;
pub use checkpoint::pace::CheckpointOptions;
pub use checkpoint::writer::CheckpointSummary;
pub use cursor::{Cursor, ScanParts, Skipped, Tried};
pub use damage::{Damage, Quarantined};
pub use engine::Store;
pub use error::StoreError;
pub use interpreter::{Changes, Foreign, Interpreter};
pub use journal::Lsn;
pub use limits::{SpaceLimit, SpaceLimits};
pub use maintenance::{inspect_places, restore, verify_places, verify_places_with};
pub use metrics::Metrics;
pub use options::{Opened, Options, Places};
pub use range::Direction;
pub use repair::{Loss, Part};
pub use rewrite::{RewriteOptions, RewritePlace, RewriteProgress, Rewritten};
pub use snapshot::Snapshot;
pub use space::devices::DataDeviceStats;
pub use transaction::{Savepoint, Transaction};
pub use tree::VALUE_BYTES_MAX;
pub use verify::{Progress, UncachedReader, Verified};

/// The id of a tree of a store; given by [`Transaction::create_tree`], never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreeId(pub u32);

/// Longest key, in bytes, whatever the page size.
pub const KEY_BYTES_MAX: usize = 1024;
