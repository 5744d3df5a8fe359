//! [`Own`]: the changes of a transaction in a range, as they were when the cursor was created.

use std::ops::Bound;

use bytes::Bytes;

use super::in_order;
use crate::range::Direction;
use crate::record::Op;
use crate::snapshot::Snapshot;
use crate::writes::{RunCursor, WriteBuffer};
use crate::{StoreError, TreeId};

/// One run, with its next change.
#[derive(Debug)]
struct Source {
    cursor: RunCursor,
    ahead: Option<(Bytes, Op)>,
}

/// See the head comment of this file.
#[derive(Debug)]
pub(crate) struct Own {
    direction: Direction,
    /// The changes in memory.
    layer: std::iter::Peekable<std::vec::IntoIter<(Bytes, Op)>>,
    /// Newest first; filled at the first step.
    runs: Vec<Source>,
    started: bool,
}

impl Own {
    /// No changes.
    pub(crate) fn none(direction: Direction) -> Own {
        Own { direction, layer: Vec::new().into_iter().peekable(), runs: Vec::new(), started: true }
    }

    /// The changes of a write buffer.
    pub(crate) fn of(
        writes: &WriteBuffer,
        tree: TreeId,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
    ) -> Own {
        let mut layer = writes.range(tree, range);
        if direction == Direction::Backward {
            layer.reverse();
        }
        let source = |run: &std::sync::Arc<_>| Source {
            cursor: RunCursor::range(std::sync::Arc::clone(run), tree, range, direction),
            ahead: None,
        };
        let runs = writes.runs().iter().rev().map(source).collect();
        Own { direction, layer: layer.into_iter().peekable(), runs, started: false }
    }

    pub(super) fn next(&mut self, snapshot: &Snapshot) -> Result<Option<(Bytes, Op)>, StoreError> {
        if self.runs.is_empty() {
            return Ok(self.layer.next());
        }
        let journal = &snapshot.store.engine.journal;
        if !self.started {
            self.started = true;
            for run in &mut self.runs {
                run.ahead = run.cursor.next(journal)?.map(|change| (change.key, change.op));
            }
        }
        let keys = self.layer.peek().into_iter().chain(self.runs.iter().filter_map(|run| run.ahead.as_ref()));
        let Some(key) = keys.map(|(key, _)| key).min_by(|a, b| in_order(self.direction, a, b)).cloned() else {
            return Ok(None);
        };
        let mut found = self.layer.next_if(|(own, _)| *own == key);
        for run in &mut self.runs {
            if run.ahead.as_ref().is_some_and(|(own, _)| *own == key) {
                let next = run.cursor.next(journal)?.map(|change| (change.key, change.op));
                let taken = std::mem::replace(&mut run.ahead, next);
                found = found.or(taken);
            }
        }
        Ok(found)
    }
}
