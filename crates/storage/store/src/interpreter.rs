//! Records of others: a service may append records in its own format, and the store applies them to trees as their
//! [`Interpreter`] says. One record is one transaction.

use bytes::Bytes;
use journal::Lsn;

use crate::record::{Change, Op};
use crate::{StoreError, TreeId};

/// A record as its service appended it.
#[derive(Clone, Debug)]
pub struct Foreign<'a> {
    /// Where it lies.
    pub lsn: Lsn,
    /// Its kind, below [`Foreign::KINDS`].
    pub kind: u8,
    /// What was appended, the parts joined.
    pub payload: &'a [u8],
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

    /// Adds what the record changes. Errors: [`StoreError::Corrupt`] where the record cannot be read; the store freezes.
    fn apply(&self, record: &Foreign<'_>, trees: &[TreeId], changes: &mut Changes) -> Result<(), StoreError>;
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

    /// Removes a key; nothing happens where it is absent.
    pub fn delete(&mut self, tree: TreeId, key: impl Into<Bytes>) {
        self.list.push(Change { tree, key: key.into(), op: Op::Delete });
    }
}
