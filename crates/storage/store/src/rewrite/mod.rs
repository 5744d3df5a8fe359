//! Rewriting: everything that an older data key has encrypted is written anew with the newest one, while the store is used; until nothing
//! needs an older key.
//!
//! ```text
//!   checkpoint                                              what was changed before is on its device, as its seal says
//!   walk      tree after tree, leaf after leaf, by keys     which data key do the seals of the pages on the way name?
//!     page of an older key     marked as changed: the next checkpoint writes it, through the write image journal     walk
//!     extent of an older key   its value is put once more, as it is, in a transaction without effect                 walk
//!   checkpoint, now and then                                everything up to a place is durable
//!   journal   filled up to its next segment; checkpoint     segments of older keys are truncated
//! ```
//!
//! Nothing here writes a page: crash safety, snapshots and backups are those of any other change. Superblock and write image journal are
//! written by each checkpoint.
//!
//! Invariants:
//! 1. A page that was not written since the walk began is where it was in its tree: so the walk meets it, whatever happens beside it.
//! 2. A [place](RewritePlace) is reported only when all before it is durable under its data key.
//! 3. The walk decides nothing: what older keys still encrypt is found by reading everything at rest before a key is retired.
//!
//! Not rewritten: a tree that was dropped and that a snapshot still sees, which goes with the snapshot; files of services outside the store.

mod walk;

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::StoreError;
use crate::engine::Store;
use walk::{RewriteStop, RewriteWalk};

/// How much is written anew until it is made durable, if nothing else is said.
const SAVE_BYTES: u64 = 64 << 20;

/// How a store is rewritten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RewriteOptions {
    /// Where an earlier run had come to, which ended before it was complete; ignored if a newer data key was made since. Default: none.
    pub from: Option<RewritePlace>,
    /// Bytes that may be written anew until a checkpoint makes them durable and a place is reported. Default 64 MiB.
    pub save_bytes: u64,
    /// Give up the journal that is kept only for [`Options::keep_journal_bytes`](crate::Options::keep_journal_bytes), if an older key has
    /// encrypted it. Without it, rewriting waits until so much journal was written after it. Default false.
    pub drops_kept_journal: bool,
}

impl Default for RewriteOptions {
    fn default() -> RewriteOptions {
        RewriteOptions { from: None, save_bytes: SAVE_BYTES, drops_kept_journal: false }
    }
}

/// A place in the walk: everything before it is encrypted with a data key, or a newer one, durably.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RewritePlace {
    /// The number of that data key.
    pub data_key: u32,
    /// The tree, by its id.
    pub tree: u32,
    /// The first key of the tree that is not before it.
    pub key: Vec<u8>,
    /// Pages before it.
    pub pages: u64,
}

/// How far rewriting has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RewriteProgress {
    /// Pages that were looked at, of extents too.
    pub pages: u64,
    /// Pages in use: about as many as will be looked at.
    pub pages_total: u64,
    /// Pages of trees that were written anew.
    pub renewed: u64,
    /// Values in extents that were written anew.
    pub values: u64,
    /// Bytes that were read, and that are written because of it, in this run: for who limits its rate.
    pub bytes: u64,
    /// What comes after the pages: the journal is being filled up to its next segment.
    pub is_at_journal: bool,
    /// The last place up to which everything is durable.
    pub place: Option<RewritePlace>,
    /// What it waits for; it is tried again after the call.
    pub waits: Option<Arc<str>>,
}

/// What rewriting has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewritten {
    /// Nothing that was met needs an older data key any more. If not, the caller ended it.
    pub is_complete: bool,
    /// How far it had come.
    pub progress: RewriteProgress,
}

/// Implements [`Store::rewrite`].
pub(crate) fn rewrite(
    store: &Store,
    options: RewriteOptions,
    on_progress: &mut dyn FnMut(&RewriteProgress) -> ControlFlow<()>,
) -> Result<Rewritten, StoreError> {
    let Some(sealer) = store.sealer() else {
        return Err(StoreError::Refused("the store is not encrypted: there is nothing to write anew".into()));
    };
    let mut walk = RewriteWalk::new(store, sealer, &options, on_progress);
    let is_complete = match walk.run(options.from) {
        Ok(()) => true,
        Err(RewriteStop::Asked) => false,
        Err(RewriteStop::Failed(error)) => return Err(error),
    };
    Ok(Rewritten { is_complete, progress: walk.progress })
}
