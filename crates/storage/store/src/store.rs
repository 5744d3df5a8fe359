//! [`Store`]: opening, records of others, and the version map that stands for pages until they take its place.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use device::MemoryShelf;
use journal::{Journal, Lsn};
use parking_lot::{Mutex, RwLock};

use crate::interpreter::{Changes, Foreign};
use crate::options::{Opened, Options, Places};
use crate::transaction::{Snapshot, Transaction};
use crate::{StoreError, TreeId};

pub(crate) const CATALOG: TreeId = TreeId(0);
const KIND_TRANSACTION: u8 = 16;

type Key = (TreeId, Bytes);

/// A database, shared by reference; clones are the same one.
#[derive(Clone, Debug)]
pub struct Store {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    journal: Journal,
    options: Options,
    trees: Vec<TreeId>,
    pub(crate) map: RwLock<BTreeMap<Key, Vec<(u64, Option<Bytes>)>>>,
    commit: Mutex<u32>,
    pub(crate) visible: AtomicU64,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").finish_non_exhaustive()
    }
}

impl Store {
    /// Opens the store in its places, or makes one where they are empty, and recovers.
    pub fn open(places: Places, options: Options) -> Result<(Store, Opened), StoreError> {
        let (journal, recovered) = Journal::open(places.journal, options.journal.clone())?;
        let mut inner = Inner {
            journal,
            options,
            trees: Vec::new(),
            map: RwLock::default(),
            commit: Mutex::new(1),
            visible: AtomicU64::new(0),
        };
        // Trees of others come first, so that they are the same at each opening.
        let names = inner.options.interpreter.as_ref().map(|i| i.trees()).unwrap_or_default();
        for name in names {
            let id = TreeId(inner.trees.len() as u32 + 1);
            inner.trees.push(id);
            let value = id.0.to_le_bytes().to_vec();
            inner.map.get_mut().insert((CATALOG, name.into()), vec![(0, Some(value.into()))]);
        }
        *inner.commit.get_mut() = 1000;
        let mut records = 0;
        let reader = inner.journal.read(recovered.first);
        for record in reader {
            let record = record?;
            inner.apply(record.lsn, record.kind, &record.payload)?;
            records += 1;
        }
        let opened = Opened { journal: recovered, applied_from: recovered.first, records };
        Ok((Store { inner: Arc::new(inner) }, opened))
    }

    /// A store in memory, for tests and for temporary nodes.
    pub fn in_memory(options: Options) -> Result<Store, StoreError> {
        let shelf: Arc<dyn device::Shelf> = Arc::new(MemoryShelf::new());
        let places = Places { journal: shelf.clone(), images: shelf.clone(), data: shelf };
        Ok(Store::open(places, options)?.0)
    }

    /// Begins a transaction on what is visible now.
    pub fn begin(&self) -> Transaction {
        Transaction::new(self.snapshot())
    }

    /// A consistent view of what is visible now; old versions are kept while it lives.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot { store: self.clone(), lsn: self.inner.visible.load(Ordering::Acquire) }
    }

    /// The trees of the interpreter, in its order.
    pub fn interpreted(&self) -> &[TreeId] {
        &self.inner.trees
    }

    /// Appends a record of a service's own kind (below [`Foreign::KINDS`]): not durable yet. LSN order is the order of calls.
    pub fn append(&self, kind: u8, parts: &[&[u8]]) -> Result<Lsn, StoreError> {
        assert!(kind < Foreign::KINDS, "kinds from {} on are the store's own", Foreign::KINDS);
        let _order = self.inner.commit.lock();
        let lsn = self.inner.journal.append(kind, parts)?;
        self.inner.apply(lsn, kind, &parts.concat())?;
        Ok(lsn)
    }

    /// Returns when the record at `lsn` and every one before it is durable. It may become visible a little later:
    /// [`wait_visible`](Store::wait_visible).
    pub fn commit(&self, lsn: Lsn) -> Result<(), StoreError> {
        Ok(self.inner.journal.commit(lsn)?)
    }

    /// Returns when new snapshots see the durable record at `lsn`.
    pub fn wait_visible(&self, _lsn: Lsn) -> Result<(), StoreError> {
        Ok(())
    }

    /// Every record that starts before this is durable.
    pub fn durable(&self) -> Lsn {
        self.inner.journal.durable()
    }

    /// The end of what was appended.
    pub fn appended(&self) -> Lsn {
        self.inner.journal.appended()
    }

    /// Whether a commit is a matter of instructions; see [`Journal::is_inline`].
    pub fn is_inline(&self) -> bool {
        self.inner.journal.is_inline()
    }

    /// The journal, for reading and for figures. Append only through the store.
    pub fn journal(&self) -> &Journal {
        &self.inner.journal
    }
}

impl Inner {
    fn apply(&self, lsn: Lsn, kind: u8, payload: &[u8]) -> Result<(), StoreError> {
        let mut changes = Changes::default();
        if kind == KIND_TRANSACTION {
            changes = decode(payload);
        } else if let Some(interpreter) = &self.options.interpreter {
            interpreter.apply(&Foreign { lsn, kind, payload }, &self.trees, &mut changes)?;
        }
        let mut map = self.map.write();
        for (tree, key, value) in changes.list {
            map.entry((tree, key)).or_default().push((lsn.0, value));
        }
        self.visible.store(lsn.0, Ordering::Release);
        Ok(())
    }

    pub(crate) fn new_tree(&self) -> TreeId {
        let mut next = self.commit.lock();
        *next += 1;
        TreeId(*next)
    }

    pub(crate) fn get(&self, tree: TreeId, key: &[u8], at: u64) -> Option<Bytes> {
        let map = self.map.read();
        let versions = map.get(&(tree, Bytes::copy_from_slice(key)))?;
        versions.iter().rev().find(|(lsn, _)| *lsn <= at).and_then(|(_, value)| value.clone())
    }

    pub(crate) fn range(&self, tree: TreeId, from: Bound<&[u8]>, to: Bound<&[u8]>, at: u64) -> Vec<(Bytes, Bytes)> {
        let bytes = |bound: Bound<&[u8]>| bound.map(|key| (tree, Bytes::copy_from_slice(key)));
        let from = match bytes(from) {
            Bound::Unbounded => Bound::Included((tree, Bytes::new())),
            bound => bound,
        };
        let to = match bytes(to) {
            Bound::Unbounded => Bound::Excluded((TreeId(tree.0 + 1), Bytes::new())),
            bound => bound,
        };
        let map = self.map.read();
        let visible =
            |versions: &[(u64, Option<Bytes>)]| versions.iter().rev().find(|v| v.0 <= at).and_then(|v| v.1.clone());
        map.range((from, to)).filter_map(|(key, versions)| Some((key.1.clone(), visible(versions)?))).collect()
    }

    pub(crate) fn commit(&self, snapshot: u64, changes: Changes) -> Result<Lsn, StoreError> {
        let order = self.commit.lock();
        {
            let map = self.map.read();
            for (tree, key, _) in &changes.list {
                let newest = map.get(&(*tree, key.clone())).and_then(|versions| versions.last());
                if newest.is_some_and(|(lsn, _)| *lsn > snapshot) {
                    return Err(StoreError::Conflict);
                }
            }
        }
        let payload = encode(&changes);
        let lsn = self.journal.append(KIND_TRANSACTION, &[&payload])?;
        self.apply(lsn, KIND_TRANSACTION, &payload)?;
        drop(order);
        self.journal.commit(lsn)?;
        Ok(lsn)
    }
}

fn encode(changes: &Changes) -> Vec<u8> {
    let mut out = Vec::new();
    for (tree, key, value) in &changes.list {
        out.extend(tree.0.to_le_bytes());
        out.extend((key.len() as u32).to_le_bytes());
        out.extend(value.as_ref().map_or(u32::MAX, |v| v.len() as u32).to_le_bytes());
        out.extend_from_slice(key);
        out.extend_from_slice(value.as_deref().unwrap_or_default());
    }
    out
}

fn decode(mut payload: &[u8]) -> Changes {
    let mut changes = Changes::default();
    let mut take = |bytes: usize| {
        let (head, rest) = payload.split_at(bytes.min(payload.len()));
        payload = rest;
        Bytes::copy_from_slice(head)
    };
    let number = |bytes: Bytes| bytes.as_ref().try_into().ok().map(u32::from_le_bytes);
    while let Some(tree) = number(take(4)) {
        let (key, value) = (number(take(4)).unwrap_or(0), number(take(4)).unwrap_or(0));
        let key = take(key as usize);
        let value = (value != u32::MAX).then(|| take(value as usize));
        changes.list.push((TreeId(tree), key, value));
    }
    changes
}
