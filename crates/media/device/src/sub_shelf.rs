//! A part of a shelf: the devices whose names begin with a prefix, so that several structures share one shelf.
//!
//! ```text
//!   SubShelf "pages"     data-0    <-->    shelf     pages.data-0
//!   SubShelf "journal"   journal-0 <-->              journal.journal-0
//! ```
//!
//! The prefix ends with the first point: `a` sees nothing of `a.b`'s parts only if no name under `a` begins with `b.`; prefixes without
//! points are apart. Space, flushes and failures are those of the shelf.

use std::fmt;
use std::sync::Arc;

use crate::contract::is_name;
use crate::{Device, DeviceError, Shelf};

/// See the head comment of this file.
pub struct SubShelf {
    inner: Arc<dyn Shelf>,
    prefix: String,
}

impl SubShelf {
    /// The devices of `inner` whose names begin with `prefix` and a point.
    ///
    /// # Panics
    /// If the prefix is not a name of a device, or has a point.
    pub fn new(inner: Arc<dyn Shelf>, prefix: &str) -> SubShelf {
        assert!(is_name(prefix) && !prefix.contains('.'), "not a prefix: {prefix:?}");
        SubShelf { inner, prefix: format!("{prefix}.") }
    }

    fn full(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }
}

impl fmt::Debug for SubShelf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubShelf").field("prefix", &self.prefix).field("inner", &self.inner).finish()
    }
}

impl Shelf for SubShelf {
    fn create(&self, name: &str, bytes: u64) -> Result<Arc<dyn Device>, DeviceError> {
        self.inner.create(&self.full(name), bytes)
    }

    fn create_unwritten(&self, name: &str, bytes: u64) -> Result<Arc<dyn Device>, DeviceError> {
        self.inner.create_unwritten(&self.full(name), bytes)
    }

    fn create_sparse(&self, name: &str, bytes: u64) -> Result<Arc<dyn Device>, DeviceError> {
        self.inner.create_sparse(&self.full(name), bytes)
    }

    fn medium(&self) -> Option<u64> {
        self.inner.medium()
    }

    fn free_bytes(&self) -> Result<Option<u64>, DeviceError> {
        self.inner.free_bytes()
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        self.inner.open(&self.full(name))
    }

    fn open_read_only(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        self.inner.open_read_only(&self.full(name))
    }

    fn list(&self) -> Result<Vec<String>, DeviceError> {
        let names = self.inner.list()?;
        Ok(names.iter().filter_map(|name| name.strip_prefix(&self.prefix)).map(ToOwned::to_owned).collect())
    }

    fn remove(&self, name: &str) -> Result<(), DeviceError> {
        self.inner.remove(&self.full(name))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DeviceError> {
        self.inner.rename(&self.full(from), &self.full(to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryShelf;

    #[test]
    fn two_parts_of_one_shelf_have_devices_of_the_same_name_and_do_not_see_each_other() {
        let below: Arc<dyn Shelf> = Arc::new(MemoryShelf::new());
        let [one, other] = ["one", "other"].map(|prefix| SubShelf::new(Arc::clone(&below), prefix));
        one.create("a", 4096).expect("it is made");
        other.create("a", 8192).expect("it is made");
        one.rename("a", "b").expect("it is renamed");
        assert_eq!((one.list().expect("listed"), other.list().expect("listed")), (vec!["b".into()], vec!["a".into()]));
        assert_eq!(below.list().expect("listed"), ["one.b", "other.a"]);
        assert_eq!((one.open("b").expect("opens").len(), other.open("a").expect("opens").len()), (4096, 8192));
        other.remove("a").expect("it is removed");
        assert_eq!(below.list().expect("listed"), ["one.b"]);
    }
}
