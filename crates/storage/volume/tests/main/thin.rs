//! Thin volumes: space is taken by what is written and given back by what is discarded, and a full medium refuses new data and nothing
//! else.

use std::sync::Arc;
use std::time::{Duration, Instant};

use device::faulty::{Fault, Rule};
use device::{
    BLOCK_BYTES, CrashShelf, Device, DeviceError, FaultyShelf, FileOptions, FileShelf, MemoryShelf, Operation,
    QuotaShelf, Shelf,
};
use volume::{CopySpace, CopyState, NewVolume, Options, Place, Step, Threads, Volume, VolumeError};

use crate::hanging::HangingShelf;
use crate::rival::RivalShelf;
use crate::support::{History, at, memory, new_volume, options, part, read_block, tag_of, tagged};
use crate::threads::wait_until;

/// Blocks that are left to others.
const LEFT_FREE: u64 = 16;

/// As those of the other tests.
fn thin(owner: u64) -> Options {
    Options { thin_free_bytes: at(LEFT_FREE), ..options(owner) }
}

fn new_thin(blocks: u64) -> NewVolume {
    NewVolume { is_thin: true, ..new_volume(blocks) }
}

/// Media with much more space than is needed.
fn media(copies: u8) -> Vec<Arc<QuotaShelf>> {
    let medium = || Arc::new(QuotaShelf::new(Arc::new(MemoryShelf::new()), 1 << 30).expect("it lists"));
    (0..copies).map(|_| medium()).collect()
}

fn places(media: &[Arc<QuotaShelf>]) -> Vec<Place> {
    media.iter().map(|medium| Place::on(medium.clone())).collect()
}

fn fresh(media: &[Arc<QuotaShelf>], blocks: u64) -> Volume {
    Volume::create(&places(media), &new_thin(blocks), &thin(1)).expect("creates");
    Volume::open(places(media), thin(2)).expect("opens")
}

/// Others take all of a medium but so many blocks.
fn leave(medium: &QuotaShelf, blocks: u64) {
    medium.set_bytes(medium.taken_bytes() + at(blocks));
}

fn space(volume: &Volume, copy: usize) -> CopySpace {
    volume.status().copies[copy].space.expect("it is thin and attached")
}

/// Bytes of the headroom on a shelf.
fn headroom(shelf: &dyn Shelf) -> u64 {
    let names = shelf.list().expect("lists").into_iter().filter(|name| name.starts_with("headroom-"));
    names.map(|name| shelf.open_read_only(&name).expect("opens").len()).sum()
}

fn is_refused(written: &Result<(), DeviceError>) -> bool {
    matches!(written, Err(DeviceError::Full { .. }))
}

fn assert_all_in_sync(volume: &Volume) {
    let status = volume.status();
    let works = status.copies.iter().all(|copy| copy.state == CopyState::InSync && copy.failures == 0);
    assert!(works && !status.is_frozen, "{:?}", status.copies);
}

#[test]
fn a_thin_volume_takes_no_space_until_it_is_written_and_gives_back_what_is_discarded() {
    let folder = tempfile::tempdir().expect("a folder");
    let shelf: Arc<dyn Shelf> = Arc::new(FileShelf::open(folder.path(), FileOptions::default()).expect("a shelf"));
    let places = [Place::on(shelf)];
    // A GiB; no more than its tables and the headroom is taken.
    match Volume::create(&places, &new_thin(1 << 18), &thin(1)) {
        Err(VolumeError::Options(_)) => return println!("skipped: the file system has no holes"),
        made => made.expect("creates"),
    }
    let volume = Volume::open(places.to_vec(), thin(2)).expect("opens");
    let allocated = || {
        volume.checkpoint().expect("checkpoints");
        space(&volume, 0).allocated
    };
    let metadata = 256 << 10;
    assert!(allocated() < metadata, "{}", allocated());
    (0..1024).step_by(64).for_each(|block| volume.write(at(block * 7), &[7; 64 * BLOCK_BYTES]).expect("writes"));
    let full = allocated();
    assert!((at(1024)..at(1024) + metadata).contains(&full), "{full}");
    volume.discard(at(64 * 7), at(64)).expect("discards");
    volume.write_zeroes(at(128 * 7), at(64), true).expect("writes zeros");
    volume.discard(at(192 * 7) + 100, at(64)).expect("discards parts of blocks too");
    let left = allocated();
    assert!(left <= full - at(64 + 64 + 63), "{left} of {full}");
    assert_eq!(read_block(&volume, 64 * 7 + 5).expect("reads"), [0; BLOCK_BYTES]);
    assert_eq!(read_block(&volume, 5).expect("reads"), [7; BLOCK_BYTES]);
    volume.close().expect("closes");
    drop(volume);
    Volume::grow(&places, 2 << 30, &thin(3)).expect("grows without space");
    let volume = Volume::open(places.to_vec(), thin(4)).expect("opens");
    assert_eq!(volume.len(), 2 << 30);
    assert!(space(&volume, 0).allocated <= left + metadata);
    volume.write(at(1 << 18), &tagged(9)).expect("writes to the new part");
    drop(volume);
    Volume::delete(&places).expect("deletes");
    assert!(places[0].data.list().expect("lists").is_empty());
}

#[test]
fn a_full_medium_refuses_new_data_and_nothing_else_on_all_copies_alike() {
    let media = media(2);
    let volume = fresh(&media, 1024);
    leave(&media[0], 400);
    leave(&media[1], 100);
    let mut written: u64 = 0;
    let refused = loop {
        match volume.write(at(written), &tagged(written)) {
            Ok(()) => written += 1,
            refused => break refused,
        }
    };
    assert!(is_refused(&refused) && (100..400).contains(&written), "{written}: {refused:?}");
    assert_all_in_sync(&volume);
    let status = volume.status();
    assert!(status.is_thin && !status.has_room);
    assert_eq!([0, 1].map(|copy| space(&volume, copy).is_short), [false, true]);
    assert_eq!(read_block(&volume, written).expect("reads"), [0; BLOCK_BYTES], "what was refused is not there");
    // Blocks that are there can be changed, many times.
    for round in 0..1000 {
        volume.write(at(round % written), &tagged(10_000 + round)).expect("a block that has space");
    }
    let expected =
        |block: u64| 10_000 + (0..1000).rev().find(|round| round % written == block).expect("all were written");
    assert!(is_refused(&volume.write(at(written) - 100, &[1; 200])), "half of it is new");
    volume.close().expect("closes");
    drop(volume);
    let volume = Volume::open(places(&media), thin(3)).expect("opens on a full medium");
    for block in (0..written).filter(|block| *block != written - 1) {
        assert_eq!(tag_of(&read_block(&volume, block).expect("reads")), expected(block));
    }
    assert!(is_refused(&volume.write(at(900), &tagged(1))));
    // What is discarded makes room.
    volume.discard(0, at(90)).expect("discards");
    for block in 900..930 {
        volume.write(at(block), &tagged(block)).expect("there is space again");
    }
    assert!(volume.status().has_room);
    let mut more = 930;
    while volume.write(at(more), &tagged(more)).is_ok() {
        more += 1;
        assert!(more < 1024, "the medium is not that large");
    }
    // So does space that others free.
    media[1].set_bytes(1 << 30);
    for block in 900..1024 {
        volume.write(at(block), &tagged(block)).expect("there is space again");
    }
    assert_all_in_sync(&volume);
    assert_eq!(volume.scrub().expect("scrubs").repaired, 0);
}

#[test]
fn what_was_acknowledged_finds_its_place_although_others_have_filled_the_medium_since() {
    for is_killed in [false, true] {
        let media = media(2);
        let mut volume = fresh(&media, 512);
        (0..60).for_each(|block| volume.write(at(block), &tagged(block + 1)).expect("writes"));
        // Nothing of this is in place.
        media.iter().for_each(|medium| leave(medium, 0));
        if is_killed {
            std::mem::forget(volume);
            volume = Volume::open(places(&media), thin(3)).expect("opens");
        } else {
            volume.checkpoint().expect("the headroom has space for all of it");
        }
        assert_all_in_sync(&volume);
        assert!(!volume.status().has_room && is_refused(&volume.write(at(200), &tagged(1))));
        drop(volume);
        let volume = Volume::open(places(&media), thin(4)).expect("opens");
        (0..60).for_each(|block| assert_eq!(tag_of(&read_block(&volume, block).expect("reads")), block + 1));
        assert!(is_refused(&volume.write(at(200), &tagged(1))));
        media.iter().for_each(|medium| leave(medium, 10_000));
        volume.write(at(200), &tagged(1)).expect("the headroom is there again");
        assert!(media.iter().all(|medium| headroom(&**medium) >= 5 << 20));
    }
}

#[test]
fn zeros_whose_space_is_to_be_kept_can_be_written_over_on_a_full_medium() {
    let media = media(1);
    let volume = fresh(&media, 512);
    volume.write_zeroes(at(10), at(20), false).expect("writes zeros");
    volume.write_zeroes(at(50), at(20), true).expect("writes zeros");
    volume.checkpoint().expect("checkpoints");
    assert_eq!(space(&volume, 0).allocated, at(20));
    leave(&media[0], 0);
    volume.checkpoint().expect("checkpoints");
    assert!(!volume.status().has_room);
    volume.write(at(10), &[5; 20 * BLOCK_BYTES]).expect("it has space");
    assert!(is_refused(&volume.write(at(50), &tagged(1))));
    volume.discard(at(50) + 10, 100).expect("a part of a block that has no space");
}

#[test]
fn a_copy_that_is_brought_up_to_date_waits_for_space_and_has_not_failed() {
    let media = media(2);
    let volume = fresh(&media, 512);
    (0..20).for_each(|block| volume.write(at(block), &tagged(block)).expect("writes"));
    volume.exclude(1).expect("one is left");
    (10..200).for_each(|block| volume.write(at(block), &tagged(block + 1)).expect("writes"));
    volume.discard(0, at(5)).expect("discards");
    leave(&media[1], LEFT_FREE + 40);
    volume.attach(places(&media)[1].clone()).expect("attaches");
    let waits = (0..100).find_map(|_| volume.resync_step(1).err());
    assert!(matches!(waits, Some(VolumeError::NoSpace)), "{waits:?}");
    assert!(matches!(volume.status().copies[1].state, CopyState::Syncing { .. }));
    volume.write(at(300), &tagged(300)).expect("the copies in sync have space");
    media[1].set_bytes(1 << 30);
    while volume.resync_step(1).expect("a step") != Step::Joined {}
    volume.checkpoint().expect("checkpoints");
    assert_eq!(volume.scrub().expect("scrubs").repaired, 0);
    assert_eq!(
        space(&volume, 0).allocated,
        space(&volume, 1).allocated,
        "also what was discarded meanwhile is given back"
    );
}

#[test]
fn others_who_take_what_is_given_up_of_a_headroom_do_not_get_all_of_it_and_new_data_ends_with_the_first_piece() {
    let medium = Arc::new(QuotaShelf::new(Arc::new(MemoryShelf::new()), 1 << 30).expect("it lists"));
    let rival = Arc::new(RivalShelf::new(medium.clone()));
    let places = vec![Place::on(rival.clone())];
    Volume::create(&places, &new_thin(512), &thin(1)).expect("creates");
    let volume = Arc::new(Volume::open(places, thin(2)).expect("opens"));
    (0..60).for_each(|block| volume.write(at(block), &tagged(block)).expect("writes"));
    leave(&medium, 0);
    let (whole, watched) = (headroom(&*medium), Arc::downgrade(&volume));
    rival.take_after_removals(5, move || {
        let volume = watched.upgrade().expect("it is open");
        assert!(!volume.status().has_room, "the first piece is gone");
    });
    volume.checkpoint().expect("the sixth piece is enough");
    assert_eq!(rival.taken(), 5);
    assert_all_in_sync(&volume);
    assert!(!volume.status().has_room && is_refused(&volume.write(at(200), &tagged(1))));
    let left = headroom(&*medium);
    assert!((whole / 2..whole).contains(&left), "{left} of {whole}");
    // It is put back without removing what there is.
    rival.take_after_removals(u64::MAX, || panic!("a piece was removed"));
    leave(&medium, 10_000);
    volume.write(at(200), &tagged(1)).expect("the headroom is there again");
    assert!(headroom(&*medium) >= whole);
}

#[test]
fn new_data_ends_when_a_medium_fills_up_although_a_checkpoint_lasts() {
    let medium = Arc::new(QuotaShelf::new(Arc::new(MemoryShelf::new()), 1 << 30).expect("it lists"));
    let shelf = Arc::new(HangingShelf::new(medium.clone()));
    let settings = |owner| Options {
        threads: Threads::Background,
        checkpoint_timeout: Duration::from_secs(100),
        scrub_interval: None,
        ..thin(owner)
    };
    Volume::create(&[Place::on(shelf.clone())], &new_thin(512), &settings(1)).expect("creates");
    let volume = Volume::open(vec![Place::on(shelf.clone())], settings(2)).expect("opens");
    volume.write(0, &tagged(1)).expect("writes");
    shelf.gate.hang("data");
    std::thread::scope(|scope| {
        let checkpoint = scope.spawn(|| volume.checkpoint());
        // It has the lock by then, and waits for the medium.
        std::thread::sleep(Duration::from_millis(300));
        leave(&medium, 0);
        wait_until("it is noticed", || !volume.status().has_room);
        assert!(is_refused(&volume.write(at(5), &tagged(2))));
        assert!(!checkpoint.is_finished());
        leave(&medium, 10_000);
        wait_until("there is room again", || volume.status().has_room);
        assert!(!checkpoint.is_finished());
        shelf.gate.release();
        checkpoint.join().expect("no panic").expect("checkpoints");
    });
    assert_all_in_sync(&volume);
}

#[test]
fn a_copy_that_returns_to_a_full_medium_gives_nothing_up_and_is_in_sync_again() {
    let media = media(2);
    let rival = Arc::new(RivalShelf::new(media[1].clone()));
    let places = vec![Place::on(media[0].clone()), Place::on(rival.clone())];
    Volume::create(&places, &new_thin(512), &thin(1)).expect("creates");
    let volume = Volume::open(places.clone(), thin(2)).expect("opens");
    (0..200).for_each(|block| volume.write(at(block), &tagged(block)).expect("writes"));
    volume.checkpoint().expect("checkpoints");
    volume.exclude(1).expect("one is left");
    (10..50).for_each(|block| volume.write(at(block), &tagged(block + 1)).expect("writes"));
    leave(&media[1], 0);
    rival.take_after_removals(u64::MAX, || ());
    volume.attach(places[1].clone()).expect("its journal has space");
    while volume.resync_step(1).expect("its blocks have space") != Step::Joined {}
    assert_eq!(rival.taken(), 0);
    let status = volume.status();
    assert!(status.copies.iter().all(|copy| copy.state == CopyState::InSync), "{status:?}");
    assert_eq!(volume.scrub().expect("scrubs").repaired, 0);
}

#[test]
fn a_copy_whose_medium_does_not_say_how_much_space_it_has_is_excluded_unless_it_is_needed() {
    let media = media(2);
    let rivals = [0, 1].map(|copy: usize| Arc::new(RivalShelf::new(media[copy].clone())));
    let places: Vec<Place> = rivals.iter().map(|rival| Place::on(rival.clone())).collect();
    Volume::create(&places, &new_thin(512), &thin(1)).expect("creates");
    let volume = Volume::open(places, thin(2)).expect("opens");
    volume.write(0, &tagged(1)).expect("writes");
    rivals[1].blind(true);
    volume.checkpoint().expect("checkpoints");
    assert!(matches!(volume.status().copies[1].state, CopyState::Out { .. }), "{:?}", volume.status().copies);
    volume.write(at(1), &tagged(2)).expect("the other one has space");
    rivals[0].blind(true);
    volume.checkpoint().expect("checkpoints");
    assert_eq!(volume.status().copies[0].state, CopyState::InSync);
    assert!(is_refused(&volume.write(at(2), &tagged(3))));
    volume.write(at(1), &tagged(4)).expect("it has space");
    rivals[0].blind(false);
    volume.write(at(2), &tagged(3)).expect("there is space");
}

#[test]
fn a_discard_for_which_a_full_file_system_has_no_space_takes_a_piece_of_the_headroom_and_never_fails_the_copy() {
    for failures in [1, u64::MAX] {
        let medium = media(1).remove(0);
        let faults = Arc::new(FaultyShelf::new(medium.clone()));
        let places = vec![Place::on(faults.clone())];
        Volume::create(&places, &new_thin(512), &thin(1)).expect("creates");
        let volume = Volume::open(places, thin(2)).expect("opens");
        (0..100).for_each(|block| volume.write(at(block), &tagged(block)).expect("writes"));
        volume.checkpoint().expect("checkpoints");
        leave(&medium, 0);
        let whole = headroom(&*medium);
        let rule = if failures == 1 { Rule::nth } else { Rule::from };
        faults.inject(rule(Operation::Discard, 1, Fault::NoSpace).on("data-0"));
        volume.discard(at(10), at(20)).expect("discards");
        volume.checkpoint().expect("a discard is no reason to fail");
        assert_all_in_sync(&volume);
        // Put back already where the discard had it to give.
        assert_eq!(headroom(&*medium) < whole, failures > 1);
        assert_eq!(space(&volume, 0).allocated, at(if failures == 1 { 80 } else { 100 }));
        assert_eq!(read_block(&volume, 15).expect("reads"), [0; BLOCK_BYTES]);
        leave(&medium, 10_000);
        volume.write(at(15), &tagged(7)).expect("writes");
        volume.checkpoint().expect("checkpoints");
        assert_eq!(volume.scrub().expect("scrubs").repaired, 0);
    }
}

#[test]
fn a_medium_that_cannot_give_space_back_is_refused_when_the_volume_is_made() {
    let refused = Volume::create(&memory(1), &new_thin(16), &thin(1));
    assert!(matches!(refused, Err(VolumeError::Options(_))), "{refused:?}");
    let media = media(1);
    leave(&media[0], 100);
    let refused = Volume::create(&places(&media), &new_thin(16), &thin(1));
    assert!(
        matches!(refused, Err(VolumeError::Device(DeviceError::Full { .. }) | VolumeError::Journal(_))),
        "{refused:?}"
    );
}

#[test]
fn with_threads_a_write_after_a_discard_waits_for_its_space_and_freed_space_is_noticed() {
    let media = media(2);
    let settings = |owner| Options {
        threads: Threads::Background,
        write_timeout: Duration::from_secs(20),
        scrub_interval: None,
        ..thin(owner)
    };
    Volume::create(&places(&media), &new_thin(4096), &settings(1)).expect("creates");
    let volume = Volume::open(places(&media), settings(2)).expect("opens");
    media.iter().for_each(|medium| leave(medium, 800));
    let written = (0..4096).take_while(|block| volume.write(at(*block), &tagged(*block)).is_ok()).count() as u64;
    assert!((500..4096).contains(&written), "{written}");
    assert_all_in_sync(&volume);
    // More than the headroom can have been used for.
    volume.discard(0, at(450)).expect("discards");
    volume.write(at(4000), &tagged(4000)).expect("it waits for the space");
    // All that was discarded has given its space back, and others take it.
    volume.checkpoint().expect("checkpoints");
    leave(&media[0], 0);
    volume.checkpoint().expect("checkpoints");
    let refused = volume.write(at(3900), &[7; 64 * BLOCK_BYTES]);
    assert!(is_refused(&refused), "{refused:?}");
    media[0].set_bytes(1 << 30);
    let began = Instant::now();
    while volume.write(at(3900), &[7; 64 * BLOCK_BYTES]).is_err() {
        assert!(began.elapsed() < Duration::from_secs(20), "freed space is not noticed");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_all_in_sync(&volume);
    (450..written).for_each(|block| assert_eq!(tag_of(&read_block(&volume, block).expect("reads")), block));
}

#[test]
fn thin_volumes_on_one_medium_leave_each_other_the_space_of_what_they_have_acknowledged() {
    let medium = Arc::new(QuotaShelf::new(Arc::new(MemoryShelf::new()), 1 << 30).expect("it lists"));
    let shelf: Arc<dyn Shelf> = medium.clone();
    let open = |prefix: &str| {
        let places = [Place::on(part(&shelf, prefix))];
        Volume::create(&places, &new_thin(1024), &thin(1)).expect("creates");
        Volume::open(places.to_vec(), thin(2)).expect("opens")
    };
    let (one, other) = (open("one"), open("other"));
    // The window of the other one, what is left to others, and a little.
    leave(&medium, 256 + LEFT_FREE + 10);
    let written = (0..1024).take_while(|block| one.write(at(*block), &tagged(*block)).is_ok()).count() as u64;
    assert!((50..200).contains(&written), "{written}");
    assert!(space(&one, 0).free.is_some_and(|free| free > at(100)), "{:?}", space(&one, 0));
    other.write(0, &[7; 100 * BLOCK_BYTES]).expect("it was not looked at yet");
    other.checkpoint().expect("checkpoints");
    assert!(is_refused(&other.write(at(500), &tagged(1))));
    assert_eq!(["one", "other"].map(|prefix| headroom(&*part(&shelf, prefix)) >= 5 << 20), [true; 2]);
    drop(other);
    one.write(at(900), &tagged(1)).expect("it is alone on the medium");
}

/// Takes all of a file system that is left.
fn fill(path: &std::path::Path) {
    let mut file = std::fs::File::create(path).expect("a file");
    for bytes in [1 << 20, 4096, 1] {
        let data = vec![9; bytes];
        while std::io::Write::write_all(&mut file, &data).and_then(|()| file.sync_data()).is_ok() {}
    }
}

/// As [`what_was_acknowledged_finds_its_place_although_others_have_filled_the_medium_since`], on a small file system that
/// `scripts/check-thin-volume.sh` makes.
#[test]
fn on_a_file_system_that_is_full_to_the_last_byte_a_checkpoint_places_what_was_acknowledged() {
    let Some(folder) = std::env::var_os("TERRACE_SMALL_FOLDER").map(std::path::PathBuf::from) else {
        return println!("skipped: TERRACE_SMALL_FOLDER is not set");
    };
    let places = || {
        let shelf = FileShelf::open(&folder.join("copy"), FileOptions::default()).expect("a shelf");
        vec![Place::on(Arc::new(shelf))]
    };
    let settings = |owner| Options {
        threads: Threads::Background,
        write_timeout: Duration::from_secs(20),
        thin_free_bytes: 8 << 20,
        ..thin(owner)
    };
    Volume::create(&places(), &new_thin(1 << 18), &settings(1)).expect("creates");
    let volume = Volume::open(places(), settings(2)).expect("opens");
    let piece = |number: u64| tagged(number + 1).repeat(64);
    let written = (0..4096).take_while(|number| volume.write(at(number * 64), &piece(*number)).is_ok()).count() as u64;
    println!("{written} pieces of 256 KiB; then {:?}", volume.status().copies[0].space);
    assert!((16..4096).contains(&written));
    // Until there is room; then some that have no place yet.
    let discarded = 64;
    volume.discard(0, at(discarded * 64)).expect("discards");
    (2000..2001).for_each(|number| volume.write(at(number * 64), &piece(number)).expect("there is space again"));
    volume.checkpoint().expect("checkpoints");
    (2001..2002).for_each(|number| volume.write(at(number * 64), &piece(number)).expect("there is space again"));
    fill(&folder.join("others"));
    volume.checkpoint().expect("the headroom has space for it");
    assert_all_in_sync(&volume);
    assert!(is_refused(&volume.write(at(3000 * 64), &piece(1))) && !volume.status().has_room);
    (discarded..written).for_each(|number| volume.write(at(number * 64), &piece(number)).expect("it has space"));
    volume.close().expect("closes");
    drop(volume);
    let volume = Volume::open(places(), settings(3)).expect("opens on a full medium");
    for number in (discarded..written).chain(2000..2002) {
        let mut found = vec![0; 64 * BLOCK_BYTES];
        volume.read(at(number * 64), &mut found).expect("reads");
        assert!(found == piece(number), "{number}");
    }
    assert!(is_refused(&volume.write(at(3000 * 64), &piece(1))));
    std::fs::remove_file(folder.join("others")).expect("it is there");
    let began = Instant::now();
    while volume.write(at(3000 * 64), &piece(1)).is_err() {
        assert!(began.elapsed() < Duration::from_secs(20), "freed space is not noticed");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_all_in_sync(&volume);
}

const BLOCKS: u64 = 64;

/// The medium of a copy on a recording.
fn medium_on(shelf: &Arc<dyn Shelf>, copy: u8) -> Arc<QuotaShelf> {
    let is_sparse = |name: &str| name.starts_with("data-");
    Arc::new(QuotaShelf::around(part(shelf, &format!("c{copy}")), 1 << 30, is_sparse).expect("it reads"))
}

/// A volume on a recording, and what was acknowledged.
struct Recorded<'r> {
    shelf: &'r CrashShelf,
    volume: Volume,
    history: &'r mut History,
    tag: u64,
}

impl Recorded<'_> {
    fn write(&mut self, first: u64, blocks: u64) -> Result<(), DeviceError> {
        self.tag += 1;
        let data = tagged(self.tag).repeat(blocks as usize);
        let called = self.shelf.operations();
        self.volume.write(at(first), &data)?;
        self.history.change(at(first), &data, called, Some(self.shelf.operations()));
        Ok(())
    }

    fn discard(&mut self, first: u64, blocks: u64) {
        let called = self.shelf.operations();
        self.volume.discard(at(first), at(blocks)).expect("discards");
        self.history.change(at(first), &vec![0; at(blocks) as usize], called, Some(self.shelf.operations()));
    }
}

/// Writes, discards, and media that others fill and empty; the second life is killed.
fn workload(shelf: &Arc<CrashShelf>, copies: u8) -> History {
    let any: Arc<dyn Shelf> = shelf.clone();
    let mut history = History::new(BLOCKS);
    for life in 0..2 {
        let media: Vec<_> = (0..copies).map(|copy| medium_on(&any, copy)).collect();
        let volume = Volume::open(places(&media), thin(10 + life)).expect("opens");
        let mut recorded = Recorded { shelf, volume, history: &mut history, tag: life * 100 };
        recorded.write(0, 10).expect("there is space");
        recorded.volume.checkpoint().expect("checkpoints");
        recorded.discard(2, 4);
        recorded.write(3, 1).expect("there is space");
        recorded.volume.checkpoint().expect("checkpoints");
        recorded.write(20, 5).expect("there is space");
        media.iter().for_each(|medium| leave(medium, 0));
        recorded.volume.checkpoint().expect("there is the headroom");
        assert!(is_refused(&recorded.write(30, 1)));
        recorded.write(21, 1).expect("it has space");
        if life == 0 {
            media.iter().for_each(|medium| leave(medium, 5000));
            recorded.write(40, 2).expect("there is space again");
            recorded.volume.close().expect("closes");
        } else {
            std::mem::forget(recorded.volume);
        }
    }
    history
}

/// What is found on media that are full to the last block is allowed, and the copies are equal.
fn check(shelf: CrashShelf, copies: u8, history: &History, point: usize) -> Result<(), String> {
    let any: Arc<dyn Shelf> = Arc::new(shelf);
    let media: Vec<_> = (0..copies).map(|copy| medium_on(&any, copy)).collect();
    for medium in &media {
        // What was given up of the headroom is what is left.
        leave(medium, (5_u64 << 20).saturating_sub(headroom(&**medium)) / BLOCK_BYTES as u64);
    }
    let volume = Volume::open(places(&media), thin(99)).map_err(|error| error.to_string())?;
    for block in 0..BLOCKS {
        history.allows(block, &read_block(&volume, block).map_err(|error| error.to_string())?, point)?;
    }
    let (scrubbed, status) = (volume.scrub().map_err(|error| error.to_string())?, volume.status());
    let is_whole = status.copies.iter().all(|copy| copy.state == CopyState::InSync);
    if scrubbed.repaired + scrubbed.damaged > 0 || status.disputed > 0 || !is_whole {
        return Err(format!("the copies differ: {scrubbed:?} {status:?}"));
    }
    std::mem::forget(volume);
    Ok(())
}

#[test]
fn a_power_failure_at_any_moment_of_discards_and_of_full_media_loses_nothing_that_was_acknowledged() {
    for (copies, every) in [(1, 1), (2, 3)] {
        let shelf = Arc::new(CrashShelf::new(u64::from(copies)));
        let any: Arc<dyn Shelf> = shelf.clone();
        let media: Vec<_> = (0..copies).map(|copy| medium_on(&any, copy)).collect();
        Volume::create(&places(&media), &new_thin(BLOCKS), &thin(1)).expect("creates");
        let first = shelf.operations();
        let history = workload(&shelf, copies);
        let mut count = 0;
        for point in first..=shelf.operations() {
            for image in shelf.images(point) {
                count += 1;
                if count % every == 0 {
                    check(image.shelf(), copies, &history, point)
                        .unwrap_or_else(|why| panic!("{image} at {point}: {why}"));
                }
            }
        }
        println!("{count} images of {copies} copies");
        assert!(count > 300, "only {count} images");
    }
}
