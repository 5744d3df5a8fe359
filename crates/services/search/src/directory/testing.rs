//! Stores of tests, in clear and encrypted, and what lies on a shelf.

use std::cell::Cell;
use std::sync::Arc;

use device::Shelf;
use encryption::Sealer;
use store::{Options, Store};

thread_local! {
    /// The number of the next opening of an encrypted store; 0: stores of this thread are clear.
    static EPOCH: Cell<u32> = const { Cell::new(0) };
}

/// Runs a test with clear stores, then with encrypted ones. What it checks must hold for both.
pub(crate) fn clear_and_encrypted(test: impl Fn()) {
    test();
    EPOCH.set(1);
    test();
    EPOCH.set(0);
}

/// The sealer of one more opening, if stores are encrypted.
pub(crate) fn sealer() -> Option<Arc<Sealer>> {
    let epoch = EPOCH.get();
    (epoch > 0).then(|| {
        EPOCH.set(epoch + 1);
        Sealer::for_tests(1, epoch, 0)
    })
}

/// A store in memory.
pub(crate) fn store() -> Store {
    store_with(sealer())
}

/// The same with this sealer.
pub(crate) fn store_with(sealer: Option<Arc<Sealer>>) -> Store {
    Store::in_memory(options_with(sealer)).expect("a store in memory")
}

/// Its options.
pub(crate) fn options_with(sealer: Option<Arc<Sealer>>) -> Options {
    let mut options = Options::default();
    options.journal.sealer = sealer;
    options
}

/// Whether these bytes lie anywhere on a shelf.
pub(crate) fn holds(shelf: &dyn Shelf, text: &str) -> bool {
    const PART: usize = 64 << 10;
    let mut part = vec![0; PART];
    for name in shelf.list().expect("listed") {
        let device = shelf.open(&name).expect("there");
        // The end of the part before is looked at with the next one.
        let mut seen = Vec::new();
        for at in (0..device.len()).step_by(PART) {
            let bytes = PART.min((device.len() - at) as usize);
            device.read(at, &mut part[..bytes]).expect("read");
            seen.drain(..seen.len().saturating_sub(text.len()));
            seen.extend_from_slice(&part[..bytes]);
            let is_empty = seen.iter().all(|byte| *byte == 0);
            if !is_empty && seen.windows(text.len()).any(|window| window == text.as_bytes()) {
                return true;
            }
        }
    }
    false
}
