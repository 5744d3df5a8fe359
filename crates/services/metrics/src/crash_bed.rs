//! For tests: a store on a device whose power fails, the same in every run.

use std::sync::Arc;

use device::{CrashShelf, Shelf};
use store::{Options, Places, Store};

/// The smallest size of each structure, without threads: every run is the same.
fn options() -> Options {
    let journal = journal::Options {
        segment_bytes: 64 << 10,
        buffer_bytes: 16 << 10,
        preparation: journal::Preparation::Inline,
        identity: 0x5eed_3500,
        ..journal::Options::default()
    };
    Options {
        journal,
        page_bytes: 4096,
        cache_bytes: 4 << 20,
        data_device_bytes: 1 << 20,
        images_device_bytes: 64 << 10,
        background: false,
        clock: Arc::new(|| 1),
        ..Options::default()
    }
}

/// Opens a store on it.
pub(crate) fn open(shelf: &Arc<CrashShelf>) -> Store {
    let shelf: Arc<dyn Shelf> = shelf.clone();
    let places = Places { journal: shelf.clone(), images: shelf.clone(), data: shelf };
    Store::open(places, options()).expect("it opens").0
}

/// Calls `check` with a store after a power failure at each point, and how many of the moments in `acknowledged` were before it.
pub(crate) fn after_each_crash(shelf: &CrashShelf, acknowledged: &[usize], check: impl Fn(Store, usize, String)) {
    let mut images = 0;
    let first = acknowledged.first().copied().unwrap_or(0);
    for point in shelf.points().filter(|point| *point >= first) {
        let all: Vec<_> = shelf.images(point).collect();
        let Some(image) = all.get(point % all.len().max(1)) else { continue };
        let least = acknowledged.iter().filter(|operations| **operations <= point).count();
        check(open(&Arc::new(image.shelf())), least, image.to_string());
        images += 1;
    }
    assert!(images > 20, "only {images} images: too few to mean anything");
}
