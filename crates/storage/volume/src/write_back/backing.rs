//! [`Backing`]: one opened device of the capacity, and whether it still takes changes.
//!
//! Its handles share it. After a failure it stays poisoned; a handle that is opened later has another one, with the same number.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use device::Device;
use parking_lot::Mutex;

/// A device of the capacity.
#[derive(Debug)]
pub(super) struct Backing {
    pub(super) number: u32,
    /// The name that errors show.
    pub(super) name: String,
    pub(super) capacity: Arc<dyn Device>,
    pub(super) is_poisoned: AtomicBool,
    /// Whether anything went past the cache since the capacity was flushed.
    pub(super) is_unflushed: AtomicBool,
    /// Held while the capacity is flushed.
    pub(super) flushing: Mutex<()>,
}

impl Backing {
    pub(super) fn new(number: u32, name: &str, capacity: Arc<dyn Device>) -> Arc<Backing> {
        Arc::new(Backing {
            number,
            name: name.into(),
            capacity,
            is_poisoned: AtomicBool::new(false),
            is_unflushed: AtomicBool::new(false),
            flushing: Mutex::new(()),
        })
    }
}
