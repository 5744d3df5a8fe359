//! Records of services: a service may append records in its own format, and its [`Interpreter`] turns them into changes
//! of trees. One record is one transaction.
//!
//! Invariant: a record that was appended can be applied. A refusal after the append would stop the store at every
//! opening, so [`Interpreter::check`] is called before it.

use bytes::Bytes;
use journal::Lsn;

use crate::record::{Change, Op};
use crate::{KEY_BYTES_MAX, StoreError, TreeId};

/// A record as its service appended it.
#[derive(Clone, Debug)]
pub struct Foreign<'a> {
    /// Its LSN.
    pub lsn: Lsn,
    /// Its kind, below [`Foreign::KINDS`].
    pub kind: u8,
    /// The appended payload. Values that are slices of it need no copy.
    pub payload: &'a Bytes,
}

impl Foreign<'_> {
    /// Kinds below this belong to the services, kinds from here on to the store.
    pub const KINDS: u8 = 16;
}

/// Turns a record into changes of trees: a pure function of the record, so that recovery does what was done before.
pub trait Interpreter: Send + Sync {
    /// The trees that it writes to, by name; opening the store creates those that do not exist. `trees` in
    /// [`apply`](Interpreter::apply) has the same order.
    fn trees(&self) -> Vec<String>;

    /// Those of its trees without which the service must not continue: if one cannot be read, its changes are not
    /// applied around the damage, and the store is poisoned, or does not open. Provided: none.
    fn vital(&self) -> Vec<String> {
        Vec::new()
    }

    /// Adds the changes of a record. Errors: [`StoreError::Corrupt`] if the record cannot be read; the store is then
    /// poisoned. So it must not refuse a record that [`check`](Interpreter::check) accepts.
    fn apply(&self, record: &Foreign<'_>, trees: &[TreeId], changes: &mut Changes) -> Result<(), StoreError>;

    /// Called before a record is appended. Checks that it can be applied: that it can be read, and gives keys of 1 to
    /// [`KEY_BYTES_MAX`] bytes and values of up to `value_bytes_max` in the trees of this interpreter. The record's LSN
    /// is not known yet; the largest LSN takes its place. Provided: interprets the record and checks the result.
    /// Override it if a cheaper check is possible.
    ///
    /// Errors: [`StoreError::Refused`]; nothing is appended then.
    fn check(&self, record: &Foreign<'_>, trees: &[TreeId], value_bytes_max: usize) -> Result<(), StoreError> {
        let mut changes = Changes::default();
        self.apply(record, trees, &mut changes).map_err(|error| StoreError::Refused(error.to_string().into()))?;
        changes.list.iter().try_for_each(|change| limits(change, trees, value_bytes_max))
    }
}

/// Checks that one of `trees` accepts a change.
fn limits(change: &Change, trees: &[TreeId], value_bytes_max: usize) -> Result<(), StoreError> {
    let Change { tree, key, op } = change;
    let refused = |why: String| Err(StoreError::Refused(format!("the record cannot be stored: {why}").into()));
    if !trees.contains(tree) {
        return refused(format!("it changes tree {}, which does not belong to its service", tree.0));
    }
    if key.is_empty() || key.len() > KEY_BYTES_MAX {
        return refused(format!("a key has 1 to {KEY_BYTES_MAX} bytes, not {}", key.len()));
    }
    if op.bytes() > value_bytes_max {
        return refused(format!("a value has at most {value_bytes_max} bytes, not {}", op.bytes()));
    }
    Ok(())
}

/// Changes of trees, in order; of several changes of a key the last one counts.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    pub(crate) list: Vec<Change>,
}

impl Changes {
    /// Sets a key.
    pub fn put(&mut self, tree: TreeId, key: impl Into<Bytes>, value: impl Into<Bytes>) {
        self.list.push(Change { tree, key: key.into(), op: Op::Put(value.into()) });
    }

    /// The puts so far: tree, key, value.
    pub fn puts(&self) -> impl Iterator<Item = (TreeId, &[u8], &[u8])> {
        self.list.iter().filter_map(|change| match &change.op {
            Op::Put(value) => Some((change.tree, &change.key[..], &value[..])),
            Op::Delete | Op::DropTree => None,
        })
    }

    /// Removes a key; does nothing if it is absent.
    pub fn delete(&mut self, tree: TreeId, key: impl Into<Bytes>) {
        self.list.push(Change { tree, key: key.into(), op: Op::Delete });
    }
}
