//! The power fails at every moment of a history of changes: what was acknowledged is there, all of a change or nothing.

use device::{CrashShelf, Shelf};
use store::{Options, Places, Store};

use super::*;
use crate::identity::IdentityStore;

/// The smallest size of each structure, without threads: every run is the same.
fn options() -> Options {
    let journal = journal::Options {
        segment_bytes: 64 << 10,
        buffer_bytes: 16 << 10,
        preparation: journal::Preparation::Inline,
        identity: 0x5eed_1d00,
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

fn open(shelf: &Arc<CrashShelf>) -> Result<(Store, IdentityStore), IdentityError> {
    let shelf: Arc<dyn Shelf> = shelf.clone();
    let places = Places { journal: shelf.clone(), images: shelf.clone(), data: shelf };
    let (store, _) = Store::open(places, options())?;
    let stored = IdentityStore::of(store.clone());
    Ok((store, stored))
}

/// The names of the roles and the number of rights.
fn state(stored: &IdentityStore) -> (Vec<String>, usize) {
    let directory = stored.load().expect("it is read");
    (directory.roles().values().map(|role| role.name.clone()).collect(), directory.privileges().len())
}

#[test]
fn a_power_failure_at_any_point_leaves_every_acknowledged_change_and_no_half_of_one() {
    let shelf = Arc::new(CrashShelf::new(15));
    let (store, stored) = open(&shelf).expect("it opens");
    let mut states = vec![state(&stored)];
    let mut acknowledged = vec![(shelf.operations(), 0)];
    for number in 0..12 {
        let name = format!("user{number}");
        let role = Role { name: name.clone(), attributes: Attributes::user(), credentials: Credentials::default() };
        let mut changes = vec![IdentityChange::Create(role), grant(&name)];
        if number % 3 == 2 {
            changes.push(IdentityChange::Drop { role: format!("user{}", number - 1), cascade: true });
        }
        stored.change(&Caller::node(), &changes, 1).expect("it is allowed");
        if number == 5 {
            store.checkpoint().expect("it is written");
        }
        states.push(state(&stored));
        acknowledged.push((shelf.operations(), states.len() - 1));
    }
    let first = acknowledged[0].0;
    let mut images = 0;
    for point in shelf.points().filter(|point| *point >= first) {
        let all: Vec<_> = shelf.images(point).collect();
        let Some(image) = all.get(point % all.len().max(1)) else { continue };
        let (_store, after) = open(&Arc::new(image.shelf())).unwrap_or_else(|error| panic!("{image}: {error}"));
        let found = state(&after);
        let least = acknowledged.iter().filter(|(operations, _)| *operations <= point).map(|(_, at)| *at).max();
        let at = states.iter().position(|state| *state == found);
        assert!(at >= least && at.is_some(), "{image}: {found:?} is not a state, or older than what was acknowledged");
        images += 1;
    }
    assert!(images > 20, "only {images} images: too few to mean anything");
}
