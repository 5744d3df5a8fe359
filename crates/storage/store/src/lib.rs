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
//!   write cycles                            cut, images, flag, home, clear            checkpoint, cycle, images
//!        |
//!   pages at home                           data devices, allocation map              space
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
//! Pages come home in *write cycles*. A cut freezes the changed pages between two records; those that something durable refers
//! to go to the write image journal first, so that at home there is always the state at some record *X*, and at most a part of
//! the batch that begins there. Opening brings a flagged batch of images home, and applies the journal from X.
//!
//! # What a caller may rely on
//!
//! | call | when it returns |
//! |------|-----------------|
//! | [`Transaction::commit`] | durable, and seen by every snapshot taken from then on; or nothing of it happened |
//! | [`Store::commit`] | the service's record, and every one before it, is durable; it is seen a little later |
//! | [`Store::wait_visible`] | it is seen |
//! | [`Snapshot::get`], [`Cursor::next`] | what was committed when the snapshot was taken, whatever has happened since |
//! | [`Store::checkpoint`] | everything applied before the call is at home |
//!
//! *Isolation* is snapshot isolation: no lost updates, nothing half done is seen, and a snapshot never changes. Write skew is
//! allowed. A snapshot is too old when what it needs exceeds [`Options::versions_bytes`].
//!
//! *Failures*: when a journal or a device fails, updates are frozen and reads go on ([`Store::frozen`]); nothing acknowledged
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
mod checkpoint;
mod commit;
mod cursor;
mod cycle;
mod damage;
mod error;
mod forest;
mod images;
mod interpreter;
mod met;
mod metrics;
mod options;
pub mod page;
pub mod pages;
mod record;
mod repair;
mod space;
mod store;
mod transaction;
pub mod tree;
mod upkeep;
mod verify;
mod versions;
mod writes;

pub use backup::restore::{Restoration, Restoring};
pub use backup::{Copying, Manifest, Until};
pub use commit::bounds::{RoomBound, RoomBounds};
pub use cursor::{Cursor, Skipped, Tried};
pub use cycle::cycler::CycleStats;
pub use cycle::ground::Layout;
pub use cycle::pace::CycleOptions;
pub use cycle::write::Written;
pub use damage::{Damage, Quarantined};
pub use error::StoreError;
pub use interpreter::{Changes, Foreign, Interpreter};
pub use journal::Lsn;
pub use metrics::Metrics;
pub use options::{Opened, Options, Places};
pub use record::reads;
pub use repair::{Loss, Part};
pub use space::home::HomeStats;
pub use store::Store;
pub use transaction::{Direction, Savepoint, Snapshot, Transaction};
pub use tree::VALUE_BYTES_MAX;
pub use upkeep::{inspect_places, restore, verify_places};
pub use verify::{Progress, Still, Verified};

/// Names a tree of a store; given by [`Transaction::create_tree`], never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreeId(pub u32);

/// Longest key, in bytes, whatever the page size.
pub const KEY_BYTES_MAX: usize = 1024;
