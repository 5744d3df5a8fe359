//! [`History`]: which values each block may have, and whether an owner may still acknowledge.
//!
//! ```text
//!   now     what a read may return; one value once it was read or acknowledged
//!   later   issued and not acknowledged: may become visible when the next owner opens the volume, and not before
//!
//!   issue   later + value          acknowledged   now = {value}, later = {}
//!   open    now + later, {}        read           now = {value}
//! ```
//!
//! So nothing acknowledged is lost, nothing old is read, nothing that was read vanishes, and what was not acknowledged does not come
//! back after another value was read behind an opening.
//!
//! An owner that another one has replaced may acknowledge nothing that the new one has not found, and reads what it had: it does not
//! know yet.

use std::collections::HashMap;

/// The content of a block: the tags of its halves.
pub(super) type Value = (u64, u64);

#[derive(Clone, Debug)]
struct Block {
    /// In the order of issue, as `later`.
    now: Vec<Value>,
    later: Vec<Value>,
    /// Those that were possible when a later one came: whoever issued them may still learn that they were stored.
    passed: Vec<Value>,
}

#[derive(Debug)]
pub(super) struct History {
    blocks: Vec<Block>,
    /// Its term and number.
    newest: Option<(u64, usize)>,
    /// The newest owner was opened with too few copies.
    is_frozen: bool,
    /// What replaced owners may still read.
    stale: HashMap<usize, Vec<Vec<Value>>>,
    owners: Vec<usize>,
    /// What there was when an owner began to open the volume.
    begun: HashMap<usize, Vec<Vec<Value>>>,
}

/// What a block may have, with what the next owner may find.
fn possible(block: &Block) -> Vec<Value> {
    [&block.now[..], &block.later[..]].concat()
}

impl History {
    pub(super) fn new(blocks: u64) -> History {
        let empty = Block { now: vec![(0, 0)], later: Vec::new(), passed: Vec::new() };
        let blocks = vec![empty; blocks as usize];
        History {
            blocks,
            newest: None,
            is_frozen: false,
            stale: HashMap::new(),
            owners: Vec::new(),
            begun: HashMap::new(),
        }
    }

    pub(super) fn is_newest(&self, owner: usize) -> bool {
        self.newest.is_some_and(|(_, newest)| newest == owner)
    }

    /// The one value that a block has for the newest owner, if it is known.
    pub(super) fn known(&self, owner: usize, block: u64) -> Option<Value> {
        let state = &self.blocks[block as usize];
        let is_certain = self.is_newest(owner) && (!self.is_frozen || state.later.is_empty());
        match &state.now[..] {
            [one] if is_certain => Some(*one),
            _ => None,
        }
    }

    /// An owner begins to open the volume.
    pub(super) fn begins(&mut self, owner: usize) {
        self.begun.insert(owner, self.blocks.iter().map(possible).collect());
    }

    /// An owner has opened the volume in a term; perhaps one of a later term was there already: what it reads may be of any moment
    /// since it began.
    pub(super) fn opened(&mut self, owner: usize, term: u64, is_frozen: bool) {
        let mut begun = self.begun.remove(&owner).unwrap_or_default();
        if self.newest.is_some_and(|(newest, _)| newest > term) {
            begun.iter_mut().zip(&self.blocks).for_each(|(known, block)| known.extend(&block.now));
            self.stale.insert(owner, begun);
            return;
        }
        // One that had too few copies may have found writes in place that were never acknowledged, as `read` allows it.
        let had = |block: &Block| if self.is_frozen { possible(block) } else { block.now.clone() };
        for old in std::mem::replace(&mut self.owners, vec![owner]) {
            self.stale.entry(old).or_insert_with(|| self.blocks.iter().map(had).collect());
        }
        (self.newest, self.is_frozen) = (Some((term, owner)), is_frozen);
        if is_frozen {
            return;
        }
        for block in &mut self.blocks {
            let later = std::mem::take(&mut block.later);
            block.now.extend(later);
        }
    }

    /// A write begins.
    pub(super) fn issue(&mut self, owner: usize, block: u64, value: Value) {
        // An owner that found too few copies has fenced off these only: the one before may still write to another, and the write may be
        // found there. It is not acknowledged.
        if self.is_newest(owner) || self.is_frozen {
            self.blocks[block as usize].later.push(value);
        }
    }

    /// A write was acknowledged. That of an owner that was replaced meanwhile must be part of what the new one has found.
    pub(super) fn acknowledged(&mut self, owner: usize, block: u64, value: Value) -> Result<(), String> {
        let (is_newest, newest, is_frozen) = (self.is_newest(owner), self.newest, self.is_frozen);
        if let Some(stale) = self.stale.get_mut(&owner) {
            stale[block as usize] = vec![value];
        }
        let state = &mut self.blocks[block as usize];
        if is_newest {
            state.passed.append(&mut state.now);
            state.passed.append(&mut state.later);
        } else if is_frozen && state.later.contains(&value) {
            state.later.retain(|later| *later != value);
        } else if state.passed.contains(&value) {
            return Ok(());
        } else if !state.now.contains(&value) {
            return Err(format!(
                "owner {owner}, replaced by {newest:?}, has acknowledged {value:?} in block {block}: {state:?}"
            ));
        }
        state.now = vec![value];
        Ok(())
    }

    pub(super) fn read(&mut self, owner: usize, block: u64, value: Value) -> Result<(), String> {
        if let Some(stale) = self.stale.get_mut(&owner) {
            let known = &mut stale[block as usize];
            if !known.contains(&value) {
                return Err(format!("replaced owner {owner} read {value:?} in block {block}, not one of {known:?}"));
            }
            *known = vec![value];
            return Ok(());
        }
        let state = &mut self.blocks[block as usize];
        if !state.now.contains(&value) {
            let found = state.later.iter().rposition(|later| *later == value).filter(|_| self.is_frozen);
            let Some(at) = found else {
                return Err(format!("owner {owner} read {value:?} in block {block}: {state:?}"));
            };
            state.later.remove(at);
        }
        let at = state.now.iter().rposition(|now| *now == value).unwrap_or(0);
        state.passed.extend(state.now.drain(..at));
        state.now = vec![value];
        Ok(())
    }
}
