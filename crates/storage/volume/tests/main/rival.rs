//! A shelf whose medium somebody else uses too: whatever is given up there is taken at once. It can also stop to say how much is free.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use device::{Device, DeviceError, Operation, QuotaShelf, Shelf};

type Seen = Box<dyn Fn() + Send>;

pub(crate) struct RivalShelf {
    medium: Arc<QuotaShelf>,
    /// How many removals are followed by a theft, and what is called then.
    thefts: Mutex<(u64, Seen)>,
    taken: AtomicU64,
    is_blind: AtomicBool,
}

impl RivalShelf {
    pub(crate) fn new(medium: Arc<QuotaShelf>) -> RivalShelf {
        RivalShelf {
            medium,
            thefts: Mutex::new((0, Box::new(|| ()))),
            taken: AtomicU64::new(0),
            is_blind: AtomicBool::new(false),
        }
    }

    /// After each of the next removals all free space is taken, and `seen` is called.
    pub(crate) fn take_after_removals(&self, count: u64, seen: impl Fn() + Send + 'static) {
        *self.thefts.lock().expect("no panic") = (count, Box::new(seen));
    }

    pub(crate) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Whether it is unknown how much is free.
    pub(crate) fn blind(&self, is_blind: bool) {
        self.is_blind.store(is_blind, Ordering::Relaxed);
    }
}

impl fmt::Debug for RivalShelf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RivalShelf").field(&self.medium).finish()
    }
}

impl Shelf for RivalShelf {
    fn create(&self, name: &str, bytes: u64) -> Result<Arc<dyn Device>, DeviceError> {
        self.medium.create(name, bytes)
    }

    fn create_sparse(&self, name: &str, bytes: u64) -> Result<Arc<dyn Device>, DeviceError> {
        self.medium.create_sparse(name, bytes)
    }

    fn medium(&self) -> Option<u64> {
        self.medium.medium()
    }

    fn free_bytes(&self) -> Result<Option<u64>, DeviceError> {
        if self.is_blind.load(Ordering::Relaxed) {
            let source = std::io::Error::other("no answer");
            return Err(DeviceError::Io { operation: Operation::List, name: "medium".to_owned(), offset: 0, source });
        }
        self.medium.free_bytes()
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        self.medium.open(name)
    }

    fn open_read_only(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        self.medium.open_read_only(name)
    }

    fn list(&self) -> Result<Vec<String>, DeviceError> {
        self.medium.list()
    }

    fn remove(&self, name: &str) -> Result<(), DeviceError> {
        self.medium.remove(name)?;
        let mut thefts = self.thefts.lock().expect("no panic");
        if thefts.0 > 0 {
            thefts.0 -= 1;
            self.medium.set_bytes(self.medium.taken_bytes());
            self.taken.fetch_add(1, Ordering::Relaxed);
            (thefts.1)();
        }
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DeviceError> {
        self.medium.rename(from, to)
    }
}
