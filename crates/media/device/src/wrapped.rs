//! Another shelf whose devices are wrapped one by one: for wrappers that change devices but not names.
//!
//! Every device is wrapped, including those opened for reading. A wrapper that also changes the shelf's own calls, such
//! as the script of faults, is a separate shelf.

use std::fmt;
use std::sync::Arc;

use crate::{Device, DeviceError, Shelf};

/// Wraps a device.
type Wrap = dyn Fn(Arc<dyn Device>) -> Arc<dyn Device> + Send + Sync;

/// See the head comment of this file.
pub struct WrappedShelf {
    inner: Arc<dyn Shelf>,
    wrap: Box<Wrap>,
}

impl WrappedShelf {
    /// The devices of `inner`, each passed through `wrap` when it is created or opened.
    pub fn new(
        inner: Arc<dyn Shelf>,
        wrap: impl Fn(Arc<dyn Device>) -> Arc<dyn Device> + Send + Sync + 'static,
    ) -> WrappedShelf {
        WrappedShelf { inner, wrap: Box::new(wrap) }
    }
}

impl fmt::Debug for WrappedShelf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WrappedShelf").field(&self.inner).finish()
    }
}

impl Shelf for WrappedShelf {
    fn create(&self, name: &str, bytes: u64) -> Result<Arc<dyn Device>, DeviceError> {
        self.inner.create(name, bytes).map(&self.wrap)
    }

    fn medium(&self) -> Option<u64> {
        self.inner.medium()
    }

    fn free_bytes(&self) -> Result<Option<u64>, DeviceError> {
        self.inner.free_bytes()
    }

    fn create_unwritten(&self, name: &str, bytes: u64) -> Result<Arc<dyn Device>, DeviceError> {
        self.inner.create_unwritten(name, bytes).map(&self.wrap)
    }

    fn create_sparse(&self, name: &str, bytes: u64) -> Result<Arc<dyn Device>, DeviceError> {
        self.inner.create_sparse(name, bytes).map(&self.wrap)
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        self.inner.open(name).map(&self.wrap)
    }

    fn open_read_only(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        self.inner.open_read_only(name).map(&self.wrap)
    }

    fn list(&self) -> Result<Vec<String>, DeviceError> {
        self.inner.list()
    }

    fn remove(&self, name: &str) -> Result<(), DeviceError> {
        self.inner.remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DeviceError> {
        self.inner.rename(from, to)
    }
}
