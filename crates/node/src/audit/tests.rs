//! The audit in real stores: order, group commit, crashes at every point, attacks on its rows, a full place, retention.

use std::ops::Bound;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use device::crash::Image;
use device::faulty::{Fault, Rule};
use device::{AlignedBuffer, CrashShelf, FaultyShelf, FileOptions, FileShelf, MemoryShelf, Operation, Shelf};
use journal::Preparation;
use store::{Direction, Options, Places, Store};

use super::retention::PER_TRANSACTION;
use super::rows::{AUDIT_TREE, entry_key};
use super::*;
use crate::clock::Clock;
use crate::interpreters::Interpreters;

const DAY_US: i64 = 86_400_000_000;

fn open(shelf: Arc<dyn Shelf>, background: bool) -> Store {
    let journal = journal::Options {
        segment_bytes: 32 << 10,
        buffer_bytes: 8 << 10,
        preparation: Preparation::Inline,
        ..journal::Options::default()
    };
    let interpreter = Interpreters::of(vec![(&[KIND_AUDIT], Arc::new(AuditRows))]);
    let options = Options {
        cache_bytes: 8 << 20,
        data_device_bytes: 512 << 10,
        images_device_bytes: 64 << 10,
        journal,
        interpreter: Some(Arc::new(interpreter)),
        background,
        ..Options::default()
    };
    let places = Places { journal: Arc::clone(&shelf), images: Arc::clone(&shelf), data: shelf };
    Store::open(places, options).expect("it opens").0
}

fn in_memory() -> Store {
    open(Arc::new(MemoryShelf::new()), false)
}

fn audit(store: &Store, settings: AuditSettings) -> (Arc<Audit>, Clock) {
    let clock = Clock::fixed(10 * DAY_US);
    (Audit::open(store, settings, clock.clone()), clock)
}

fn entry(n: u64) -> AuditEntry {
    AuditEntry { reads: Reads::one(n), ..AuditEntry::new("message.body", format!("message {n}")) }
}

fn write(audit: &Audit, n: u64) -> Result<AuditTicket, AuditRefused> {
    let ticket = audit.record(entry(n))?;
    audit.wait(ticket)?;
    Ok(ticket)
}

fn write_all(audit: &Audit, count: u64) {
    for n in 1..=count {
        write(audit, n).expect("there is room");
    }
}

fn reader(audit: &Audit) -> AuditReader {
    audit.wait_visible().expect("it works");
    AuditReader::at(audit.store().snapshot()).expect("it reads")
}

fn objects(reader: &AuditReader) -> Vec<String> {
    let page = reader.page(&AuditQuery::default()).expect("it reads");
    assert_eq!((page.next, page.damaged), (None, Vec::<String>::new()));
    page.entries.into_iter().map(|shown| shown.chained.entry.object).collect()
}

/// Changes rows behind the audit's back.
fn attack(store: &Store, change: impl FnOnce(&mut store::Transaction, store::TreeId)) {
    let mut transaction = store.begin();
    let tree = transaction.tree(AUDIT_TREE).expect("it reads").expect("it is there");
    change(&mut transaction, tree);
    transaction.commit().expect("it is taken");
}

#[test]
fn entries_are_numbered_in_the_order_of_their_records_and_the_chain_goes_on_after_reopening() {
    let shelf: Arc<dyn Shelf> = Arc::new(MemoryShelf::new());
    for life in 0..3 {
        let store = open(Arc::clone(&shelf), false);
        let (audit, _) = audit(&store, AuditSettings::default());
        assert_eq!(audit.head().number, life * 10);
        let tickets: Vec<AuditTicket> =
            (1..=10).map(|n| write(&audit, life * 10 + n).expect("there is room")).collect();
        assert!(tickets.windows(2).all(|pair| pair[0].number + 1 == pair[1].number && pair[0].lsn < pair[1].lsn));
        let report = reader(&audit).verify(&[audit.head()]).expect("it reads");
        assert!(report.is_sound() && report.entries == (life + 1) * 10, "{report:?}");
        assert_eq!((report.head, report.bytes), (audit.head(), audit.bytes()));
        store.close().expect("it closes");
    }
}

#[test]
fn readers_at_the_same_time_share_flushes_and_each_has_its_own_place_in_the_chain() {
    const THREADS: u64 = 16;
    const EACH: u64 = 40;
    let folder = tempfile::tempdir().expect("a folder");
    let shelf = FileShelf::open(folder.path(), FileOptions::default()).expect("it opens");
    let store = open(Arc::new(shelf), true);
    let (audit, _) = audit(&store, AuditSettings::default());
    let before = store.journal().stats().batches;
    let numbers = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (audit, numbers) = (&audit, &numbers);
            scope.spawn(move || {
                for n in 0..EACH {
                    let ticket = write(audit, thread * EACH + n).expect("there is room");
                    numbers.lock().expect("no panic").push(ticket.number);
                }
            });
        }
    });
    let mut numbers = numbers.into_inner().expect("no panic");
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=THREADS * EACH).collect::<Vec<_>>());
    let batches = store.journal().stats().batches - before;
    assert!(batches < THREADS * EACH, "{batches} writes for {} entries", THREADS * EACH);
    let report = reader(&audit).verify(&[]).expect("it reads");
    assert!(report.is_sound() && report.entries == THREADS * EACH, "{report:?}");
}

/// Writes entries on a recording shelf, with retention in between; how many operations there had been when each was durable.
fn load(recording: &Arc<CrashShelf>, shelf: Arc<dyn Shelf>, settings: AuditSettings) -> Vec<(usize, AuditHead)> {
    let store = open(shelf, false);
    let (audit, clock) = audit(&store, settings);
    let mut durable = Vec::new();
    for n in 1..=60 {
        clock.set(10 * DAY_US + n as i64 * DAY_US);
        let ticket = audit.record(entry(n)).expect("there is room");
        let head = audit.head();
        audit.wait(ticket).expect("it works");
        durable.push((recording.operations(), head));
        if n % 20 == 0 {
            audit.wait_visible().expect("it works");
            audit.tend(clock.now_us(), &|| false).expect("it works");
            store.checkpoint().expect("there is room");
        }
    }
    durable
}

/// Whether an image has every entry that was durable at its point, and goes on.
fn survives(image: &Image, durable: &[(usize, AuditHead)]) -> Result<(), String> {
    let store = open(Arc::new(image.shelf()), false);
    let (audit, _) = audit(&store, AuditSettings::default());
    let newest = durable.iter().rev().find(|(operations, _)| *operations <= image.point()).map(|(_, head)| *head);
    let heads: Vec<AuditHead> = newest.into_iter().collect();
    let report = reader(&audit).verify(&heads).map_err(|error| error.to_string())?;
    if !report.is_sound() || report.head != audit.head() {
        return Err(format!("{image}: {report:?}"));
    }
    write(&audit, 9_999).map_err(|error| error.to_string())?;
    let report = reader(&audit).verify(&heads).map_err(|error| error.to_string())?;
    report.is_sound().then_some(()).ok_or_else(|| format!("{image}: it does not go on: {report:?}"))
}

#[test]
fn a_durable_entry_is_in_every_image_of_a_crash_and_the_chain_is_whole_and_goes_on() {
    for settings in [
        AuditSettings::default(),
        AuditSettings { keep: Some(Duration::from_secs(5 * 86_400)), ..AuditSettings::default() },
    ] {
        let recording = Arc::new(CrashShelf::new(1));
        let durable = load(&recording, recording.clone(), settings);
        let mut random = fastrand::Rng::with_seed(1);
        let end = recording.operations();
        let points = (0..60).map(|_| random.usize(..=end)).chain([0, end]);
        for point in points {
            for index in 0..3 {
                let Some(image) = recording.image(point, index) else { break };
                survives(&image, &durable).unwrap_or_else(|why| panic!("{settings:?}: {why}"));
            }
        }
    }
}

#[test]
fn a_flush_that_is_not_done_is_caught_by_the_images() {
    let recording = Arc::new(CrashShelf::new(1));
    let lying = Arc::new(FaultyShelf::new(recording.clone()));
    lying.inject(Rule::from(Operation::Flush, 12, Fault::Lost));
    let durable = load(&recording, lying, AuditSettings::default());
    let lost = recording.points().any(|point| {
        let image = recording.image(point, 0).expect("every point has an image");
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| survives(&image, &durable).is_err())).unwrap_or(true)
    });
    assert!(lost);
}

#[test]
fn what_is_done_to_the_rows_is_found_by_the_check_of_the_chain() {
    type Attack = fn(&mut store::Transaction, store::TreeId);
    let attacks: [(&str, Attack); 5] = [
        ("entry 5 is missing", |t, tree| t.delete(tree, &entry_key(5)).expect("it is there")),
        ("entries 1 to 9 are missing", |t, tree| {
            (1..=9).for_each(|n| t.delete(tree, &entry_key(n)).expect("it is there"));
        }),
        ("in place of entry 5 there is entry 6", |t, tree| {
            let other = t.get(tree, &entry_key(6)).expect("it reads").expect("it is there");
            t.put(tree, &entry_key(5), &other).expect("it fits");
        }),
        ("entry 6 does not follow entry 5", |t, tree| {
            let mut row = t.get(tree, &entry_key(5)).expect("it reads").expect("it is there").to_vec();
            row[16] ^= 1;
            t.put(tree, &entry_key(5), &row).expect("it fits");
        }),
        ("ends at entry 19, and the given head is entry 20", |t, tree| {
            t.delete(tree, &entry_key(20)).expect("it is there");
        }),
    ];
    for (expected, change) in attacks {
        let store = in_memory();
        let (audit, _) = audit(&store, AuditSettings::default());
        write_all(&audit, 20);
        let head = audit.head();
        audit.wait_visible().expect("it works");
        attack(&store, change);
        let report = reader(&audit).verify(&[head]).expect("it reads");
        assert!(report.problems.iter().any(|problem| problem.contains(expected)), "{expected}: {report:?}");
    }
}

#[test]
fn a_full_place_refuses_entries_says_so_and_takes_them_again_when_the_bound_is_raised() {
    let shelf: Arc<dyn Shelf> = Arc::new(MemoryShelf::new());
    let store = open(Arc::clone(&shelf), false);
    let bounded = AuditSettings { max_bytes: 20_000, ..AuditSettings::default() };
    let (full, _) = audit(&store, bounded);
    assert_eq!(full.trouble(), None);
    let taken = (1..).find(|n| write(&full, *n).is_err()).expect("it becomes full") - 1;
    let refused = write(&full, 0).expect_err("it is full");
    assert!(matches!(refused, AuditRefused::Full { max: 18_750, reserve: 1_250, .. }), "{refused}");
    assert!(full.bytes() <= 20_000 && refused.to_string().contains("max_bytes"));
    assert!(full.trouble().expect("it says so").contains("2 entries were refused"));
    let report = reader(&full).verify(&[full.head()]).expect("it reads");
    assert!(report.is_sound() && report.entries == taken, "a refusal leaves no gap: {report:?}");
    store.close().expect("it closes");
    let store = open(shelf, false);
    let (raised, _) = audit(&store, AuditSettings { max_bytes: 60_000, ..bounded });
    assert_eq!(write(&raised, 1).expect("there is room").number, taken + 1);
    assert_eq!(raised.trouble(), None);
}

#[test]
fn strangers_leave_the_last_eighth_to_others_and_that_it_is_nearly_full_is_said_before_it_is() {
    let settings = AuditSettings { max_bytes: 40_000, ..AuditSettings::default() };
    let (audit_of, keep) = (|settings| audit(&in_memory(), settings).0, Some(30_000));
    let knock = || AuditEntry::failed_login("sql", "nobody", "10.0.0.1".into(), "Unknown".into(), 0);
    let full = audit_of(settings);
    assert_eq!(full.trouble(), None);
    let knocks = (0..).take_while(|_| full.record(knock()).is_ok()).count();
    assert!(knocks > 100 && full.bytes() <= 35_000 && full.bytes() > 34_000, "{knocks}: {}", full.bytes());
    let trouble = full.trouble().expect("it says so");
    assert!(trouble.contains("nothing is removed") && !trouble.contains("were refused"), "{trouble}");
    write(&full, 1).expect("there is room for who is known");
    // Where the oldest entries go, nobody fills it.
    let kept = audit_of(AuditSettings { keep_bytes: keep, ..settings });
    while kept.bytes() < 36_000 {
        kept.record(knock()).expect("there is room");
    }
    assert_eq!(kept.trouble(), None);
}

#[test]
fn a_place_that_is_full_of_reads_still_takes_what_administrators_do_and_says_that_it_is_full() {
    let store = in_memory();
    let (full, _) = audit(&store, AuditSettings { max_bytes: 40_000, ..AuditSettings::default() });
    let by_administrator = |entry: AuditEntry| AuditEntry { by_administrator: true, ..entry };
    while write(&full, 1).is_ok() {}
    // Not for reads, whoever it is; for what ends the flood, and for that only as long as there is a reserve.
    assert!(full.record(by_administrator(entry(1))).is_err(), "an administrator's read of a body is one too");
    assert!(full.record(AuditEntry::new("identity.change", "")).is_err(), "nor for others' changes");
    let lock = || full.record(by_administrator(AuditEntry::new("identity.change", "lock the role")));
    full.wait(lock().expect("it has a place")).expect("it is durable");
    let trouble = full.trouble().expect("it is still full for others");
    assert!(trouble.contains("2500 more are kept for what administrators do"), "{trouble}");
    full.look_for_room();
    assert!(full.trouble().is_some() && full.record(entry(1)).is_err());
    let refused = std::iter::repeat_with(lock).find_map(Result::err).expect("the reserve is bounded");
    assert!(matches!(refused, AuditRefused::Full { max: 40_000, reserve: 0, .. }), "{refused}");
    assert!(full.bytes() <= 40_000);
    assert!(reader(&full).verify(&[full.head()]).expect("it reads").is_sound());
}

#[test]
fn a_flood_of_refusals_has_few_entries_and_the_next_one_says_how_many_had_none() {
    let store = in_memory();
    let (bounded, _) = audit(&store, AuditSettings::default());
    let refused = |id| {
        let actor = Actor { kind: ActorKind::Role, id: Some(id), name: "eve".to_owned() };
        AuditEntry { actor, ..entry(1) }.ended(AuditOutcome::Refused, "no right")
    };
    let of = |id| bounded.record_bounded(refused(id)).expect("there is room");
    assert_eq!((0..1_000).filter(|_| of(1).is_some()).count(), 20);
    assert!(of(2).is_some(), "another role has entries of its own");
    assert_eq!(bounded.head().number, 21);
}

#[test]
fn without_room_on_the_medium_entries_are_refused_until_there_is_some() {
    let shelf = Arc::new(FaultyShelf::new(Arc::new(MemoryShelf::new())));
    let store = open(shelf.clone(), false);
    let (audit, clock) = audit(&store, AuditSettings::default());
    shelf.inject(Rule::from(Operation::Create, 1, Fault::NoSpace));
    let refused = (1..5_000).find_map(|n| write(&audit, n).err()).expect("the medium is full at some time");
    assert!(matches!(refused, AuditRefused::NoRoom(_)), "{refused}");
    let taken = audit.head().number;
    assert!(audit.trouble().expect("it says so").contains("no room"));
    shelf.heal();
    audit.tend(clock.now_us(), &|| false).expect("nothing is due");
    assert_eq!(audit.trouble(), None);
    assert_eq!(write(&audit, 1).expect("there is room").number, taken + 1);
    assert!(reader(&audit).verify(&[]).expect("it reads").is_sound());
}

#[test]
fn where_the_newest_entry_cannot_be_read_every_entry_is_refused_and_the_store_works() {
    let shelf: Arc<dyn Shelf> = Arc::new(MemoryShelf::new());
    let store = open(Arc::clone(&shelf), false);
    let (whole, _) = audit(&store, AuditSettings::default());
    write(&whole, 1).expect("there is room");
    whole.wait_visible().expect("it works");
    attack(&store, |t, tree| t.put(tree, &entry_key(2), b"nonsense").expect("it fits"));
    let (broken, _) = audit(&store, AuditSettings::default());
    assert!(matches!(write(&broken, 2), Err(AuditRefused::Failed(_))));
    assert!(broken.trouble().expect("it says so").contains("cannot be read"));
    let page = reader(&broken).page(&AuditQuery::default()).expect("it reads");
    assert_eq!((page.entries.len(), page.damaged), (1, vec!["entry 2 cannot be read: it was changed".to_owned()]));
    store.begin().create_tree("other").expect("everything else works");
}

/// Changes a bit wherever a text stands in the pages of a store that is closed; at how many places.
fn damage_pages(shelf: &Arc<dyn Shelf>, text: &[u8]) -> usize {
    let device = shelf.open("pages-0000").expect("it is there");
    let mut bytes = AlignedBuffer::zeroed(device.len() as usize);
    device.read(0, &mut bytes).expect("it reads");
    let places: Vec<usize> = (0..bytes.len() - text.len()).filter(|at| bytes[*at..].starts_with(text)).collect();
    places.iter().for_each(|at| bytes[*at] ^= 1);
    device.write(0, &bytes).expect("it is written");
    places.len()
}

#[test]
fn a_large_entry_at_the_old_end_whose_pages_are_damaged_stops_neither_writing_nor_retention_and_is_reported() {
    let shelf: Arc<dyn Shelf> = Arc::new(MemoryShelf::new());
    let store = open(Arc::clone(&shelf), false);
    let (whole, _) = audit(&store, AuditSettings::default());
    let text = "needle!!".repeat(64);
    let large = (0..16).fold(entry(1), |entry, n| entry.with(format!("detail {n:02}"), &text));
    let large = large.ended(AuditOutcome::Failed, &text);
    whole.wait(whole.record(large).expect("there is room")).expect("it works");
    write_all(&whole, 5);
    drop(whole);
    store.close().expect("it closes");
    assert!(damage_pages(&shelf, b"needle!!needle!!needle!!") > 0, "its value lies in pages of its own");
    let store = open(shelf, false);
    let keep = Some(Duration::from_secs(3 * 86_400));
    let (aged, clock) = audit(&store, AuditSettings { keep, ..AuditSettings::default() });
    clock.set(20 * DAY_US);
    let trouble = aged.trouble().expect("it says so");
    assert!(trouble.contains("old entries of the audit are damaged"), "{trouble}");
    assert_eq!(write(&aged, 6).expect("new entries are taken").number, 7);
    let report = reader(&aged).verify(&[]).expect("it reads");
    assert!(report.problems.iter().any(|problem| problem.starts_with("damaged: ")), "{report:?}");
    assert_eq!(aged.tend(20 * DAY_US, &|| false).expect("it works"), 6);
    assert_eq!(objects(&reader(&aged))[0], "message 6");
    let report = reader(&aged).verify(&[]).expect("it reads");
    assert!(report.is_sound() && report.bytes == aged.bytes(), "{report:?}");
    assert_eq!(aged.tend(20 * DAY_US, &|| false).expect("it works"), 0);
    assert_eq!(aged.trouble(), None);
}

#[test]
fn retention_goes_past_rows_that_are_no_entries_and_says_so() {
    let store = in_memory();
    let keep = Some(Duration::from_secs(3 * 86_400));
    let (aged, clock) = audit(&store, AuditSettings { keep, ..AuditSettings::default() });
    for n in 1..=10 {
        clock.set((10 + n as i64) * DAY_US);
        write(&aged, n).expect("there is room");
    }
    aged.wait_visible().expect("it works");
    attack(&store, |t, tree| {
        [1, 3].into_iter().for_each(|n| t.put(tree, &entry_key(n), b"nonsense").expect("it fits"));
    });
    // Entry 2 has been too old for less than an hour: it is the oldest one that can be read.
    assert_eq!(aged.tend(15 * DAY_US + 1, &|| false).expect("it works"), 0);
    assert_eq!(aged.tend(20 * DAY_US, &|| false).expect("it works"), 6);
    let trouble = aged.trouble().expect("it says so");
    assert!(trouble.contains("entry 1 cannot be read") && trouble.ends_with("and 1 more"), "{trouble}");
    assert_eq!(aged.tend(20 * DAY_US, &|| false).expect("it works"), 0);
    assert_eq!(aged.trouble(), None);
    let report = reader(&aged).verify(&[]).expect("it reads");
    assert!(report.is_sound() && report.bytes == aged.bytes(), "{report:?}");
}

#[test]
fn who_asks_how_it_is_does_not_wait_for_an_entry_that_is_being_appended() {
    let store = in_memory();
    let (audit, clock) = audit(&store, AuditSettings::default());
    write(&audit, 1).expect("there is room");
    let _appending = audit.lock();
    assert_eq!((audit.trouble(), audit.bytes() > 0), (None, true));
    audit.look_for_room();
    assert_eq!(audit.tend(clock.now_us(), &|| false).expect("nothing is set"), 0);
}

#[test]
fn retention_removes_the_oldest_by_age_and_by_bytes_and_an_entry_confirms_it() {
    let store = in_memory();
    let keep = Some(Duration::from_secs(3 * 86_400));
    let (aged, clock) = audit(&store, AuditSettings { keep, ..AuditSettings::default() });
    for n in 1..=10 {
        clock.set((10 + n as i64) * DAY_US);
        write(&aged, n).expect("there is room");
    }
    aged.wait_visible().expect("it works");
    // Entries 1 to 6 are older than three days at day 20; entry 7 is three days old.
    assert_eq!(aged.tend(20 * DAY_US, &|| false).expect("it works"), 6);
    assert_eq!(aged.tend(20 * DAY_US, &|| false).expect("it works"), 0, "nothing more is due");
    let read = reader(&aged);
    let kept = objects(&read);
    assert_eq!(kept[..4], ["message 7", "message 8", "message 9", "message 10"]);
    let report = read.verify(&[]).expect("it reads");
    let anchor = report.anchor.expect("there is one");
    assert!(report.is_sound() && anchor.number == 6 && kept[4] == anchor.to_string(), "{report:?}");
    assert_eq!(report.bytes, aged.bytes());
    let (again, _) = audit(&store, AuditSettings { keep_bytes: Some(600), max_bytes: 700, ..AuditSettings::default() });
    assert_eq!(again.bytes(), report.bytes, "found again");
    again.tend(20 * DAY_US, &|| false).expect("retention may go beyond the bound");
    let report = reader(&again).verify(&[]).expect("it reads");
    assert!(report.is_sound() && again.bytes() < 1_200, "{report:?}");
}

#[test]
fn entries_of_a_clock_that_was_ahead_keep_nothing_behind_them() {
    let store = in_memory();
    let keep = Some(Duration::from_secs(3 * 86_400));
    let (aged, clock) = audit(&store, AuditSettings { keep, ..AuditSettings::default() });
    // By a clock that was a year ahead for a minute.
    for (n, day) in [(1, 10), (2, 375), (3, 375), (4, 11), (5, 12), (6, 19), (7, 20)] {
        clock.set(day * DAY_US);
        write(&aged, n).expect("there is room");
    }
    aged.wait_visible().expect("it works");
    assert_eq!(aged.tend(20 * DAY_US, &|| false).expect("it works"), 5);
    assert_eq!(objects(&reader(&aged))[..2], ["message 6", "message 7"]);
    // One that nothing old follows stays.
    clock.set(400 * DAY_US);
    write(&aged, 8).expect("there is room");
    clock.set(21 * DAY_US);
    write(&aged, 9).expect("there is room");
    aged.wait_visible().expect("it works");
    assert_eq!(aged.tend(21 * DAY_US, &|| false).expect("it works"), 0);
    assert!(reader(&aged).verify(&[]).expect("it reads").is_sound());
}

#[test]
fn more_entries_of_a_clock_that_was_ahead_than_go_at_once_keep_nothing_behind_them() {
    let store = in_memory();
    let keep = Some(Duration::from_secs(3 * 86_400));
    let (aged, clock) = audit(&store, AuditSettings { keep, ..AuditSettings::default() });
    let ahead = PER_TRANSACTION as u64 + 10;
    clock.set(375 * DAY_US);
    write_all(&aged, ahead);
    for (n, day) in [(1, 10), (2, 19), (3, 20)] {
        clock.set(day * DAY_US);
        write(&aged, ahead + n).expect("there is room");
    }
    aged.wait_visible().expect("it works");
    assert_eq!(aged.tend(20 * DAY_US, &|| false).expect("it works"), ahead + 1);
    let kept = [ahead + 2, ahead + 3].map(|n| format!("message {n}"));
    assert_eq!(objects(&reader(&aged))[..2], kept);
    assert!(reader(&aged).verify(&[]).expect("it reads").is_sound());
    assert_eq!(aged.tend(20 * DAY_US, &|| false).expect("it works"), 0);
}

#[test]
fn nothing_is_removed_where_nothing_is_set_and_never_the_newest_entry() {
    let store = in_memory();
    let (audit_all, _) = audit(&store, AuditSettings::default());
    write_all(&audit_all, 5);
    assert_eq!(audit_all.tend(i64::MAX, &|| false).expect("it works"), 0);
    let (least, _) = audit(&store, AuditSettings { keep: Some(Duration::ZERO), ..AuditSettings::default() });
    assert_eq!(least.tend(i64::MAX, &|| false).expect("it works"), 4);
    assert_eq!(objects(&reader(&least))[0], "message 5");
}

#[test]
fn pages_follow_each_other_in_both_directions_without_a_gap() {
    let store = in_memory();
    let (audit, _) = audit(&store, AuditSettings::default());
    write_all(&audit, 25);
    let read = reader(&audit);
    for newest_first in [false, true] {
        let (mut from, mut numbers) = (None, Vec::new());
        loop {
            let query = AuditQuery { newest_first, from, limit: 7, ..AuditQuery::default() };
            let page = read.page(&query).expect("it reads");
            numbers.extend(page.entries.iter().map(|shown| shown.chained.number));
            from = page.next;
            if from.is_none() {
                break;
            }
        }
        if newest_first {
            numbers.reverse();
        }
        assert_eq!(numbers, (1..=25).collect::<Vec<_>>());
    }
    let tree = store.snapshot().tree(AUDIT_TREE).expect("it reads").expect("it is there");
    let mut rows = store.snapshot().scan(tree, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
    let (_, row) = rows.next().expect("it reads").expect("there is one");
    assert_eq!(ChainedEntry::decode(&row).expect("it is one").entry, entry(1), "a row is the record");
}
