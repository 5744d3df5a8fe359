//! Turns at watched folders: however many services watch one, under whatever paths, one of them takes its files at a time.
//!
//! A service that a reload has renamed or taken away may be in the middle of a long file when its successor begins. It ends
//! behind the messages in hand, with its progress noted; until then the successor waits, and goes on from there.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OwnedMutexGuard;

use crate::folder::FolderId;

/// See the module's text.
#[derive(Debug, Default)]
pub struct FolderTurns(Mutex<HashMap<FolderId, Arc<tokio::sync::Mutex<()>>>>);

impl FolderTurns {
    /// Waits for the turn at a folder; it lasts until the guard is dropped.
    pub(super) async fn take(&self, folder: FolderId) -> OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            // Nobody has those, or waits for them.
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
            Arc::clone(turns.entry(folder).or_default())
        };
        turn.lock_owned().await
    }
}
