//! Records of others: a service may append records in its own format, and the store applies them to trees as their
//! [`Interpreter`] says. One record is one transaction.
//!
//! Invariant: a record that was appended can be applied. Behind the append a refusal would stop the store at every opening;
//! so [`Interpreter::check`] is asked before it.

use bytes::Bytes;
use journal::Lsn;

use crate::record::{Change, Op};
use crate::{KEY_BYTES_MAX, StoreError, TreeId};

/// A record as its service appended it.
#[derive(Clone, Debug)]
pub struct Foreign<'a> {
    /// Where it lies.
    pub lsn: Lsn,
    /// Its kind, below [`Foreign::KINDS`].
    pub kind: u8,
    /// What was appended, the parts joined. Values that are parts of it need no copy.
    pub payload: &'a Bytes,
}

impl Foreign<'_> {
    /// Kinds below this are the services', kinds from here on the store's own.
    pub const KINDS: u8 = 16;
}

/// Turns a record into changes of trees: a pure function of the record, so that recovery does what was done before.
pub trait Interpreter: Send + Sync {
    /// The trees it writes to, by name; the store makes those that do not exist when it opens. Order is that of `trees`
    /// in [`apply`](Interpreter::apply).
    fn trees(&self) -> Vec<String>;

    /// Of those trees the ones without which the service must not go on: where one cannot be read, its changes are not applied
    /// past the damage, and the store is poisoned, or does not open. Provided: none.
    fn vital(&self) -> Vec<String> {
        Vec::new()
    }

    /// Adds what the record changes. Errors: [`StoreError::Corrupt`] where the record cannot be read; the store is poisoned. So it must
    /// not refuse what [`check`](Interpreter::check) lets pass.
    fn apply(&self, record: &Foreign<'_>, trees: &[TreeId], changes: &mut Changes) -> Result<(), StoreError>;

    /// Asked before a record is appended: whether it can be applied, that is, whether it can be read and becomes keys of 1 to
    /// [`KEY_BYTES_MAX`] bytes and values of up to `value_bytes_max` in the trees of this interpreter. The record's LSN is not
    /// known yet; the largest stands for it. Provided: interprets it and looks. To be overridden where it is known for less.
    ///
    /// Errors: [`StoreError::Refused`]; nothing is appended then.
    fn check(&self, record: &Foreign<'_>, trees: &[TreeId], value_bytes_max: usize) -> Result<(), StoreError> {
        let mut changes = Changes::default();
        self.apply(record, trees, &mut changes).map_err(|error| StoreError::Refused(error.to_string().into()))?;
        changes.list.iter().try_for_each(|change| limits(change, trees, value_bytes_max))
    }
}

/// Whether a tree takes a change, of those in `trees`.
fn limits(change: &Change, trees: &[TreeId], value_bytes_max: usize) -> Result<(), StoreError> {
    let Change { tree, key, op } = change;
    let refused = |why: String| Err(StoreError::Refused(format!("the record cannot be stored: {why}").into()));
    if !trees.contains(tree) {
        return refused(format!("it changes tree {}, which is not its service's", tree.0));
    }
    if key.is_empty() || key.len() > KEY_BYTES_MAX {
        return refused(format!("a key has 1 to {KEY_BYTES_MAX} bytes, not {}", key.len()));
    }
    if op.bytes() > value_bytes_max {
        return refused(format!("a value has at most {value_bytes_max} bytes, not {}", op.bytes()));
    }
    Ok(())
}

/// Changes of trees, in order; a later one of the same key counts.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    pub(crate) list: Vec<Change>,
}

impl Changes {
    /// Sets a key.
    pub fn put(&mut self, tree: TreeId, key: impl Into<Bytes>, value: impl Into<Bytes>) {
        self.list.push(Change { tree, key: key.into(), op: Op::Put(value.into()) });
    }

    /// What was put so far: tree, key, value.
    pub fn puts(&self) -> impl Iterator<Item = (TreeId, &[u8], &[u8])> {
        self.list.iter().filter_map(|change| match &change.op {
            Op::Put(value) => Some((change.tree, &change.key[..], &value[..])),
            Op::Delete | Op::DropTree => None,
        })
    }

    /// Removes a key; nothing happens where it is absent.
    pub fn delete(&mut self, tree: TreeId, key: impl Into<Bytes>) {
        self.list.push(Change { tree, key: key.into(), op: Op::Delete });
    }
}
