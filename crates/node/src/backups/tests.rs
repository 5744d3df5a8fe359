//! Backups by schedule: when they are due by a clock that the test moves, which are removed, and the folder of a real store.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use store::{Options, SpaceLimit, SpaceLimits};

use super::*;
use crate::error::NodeError;

const S: i64 = 1_000_000;
const HOUR: i64 = 3_600 * S;

/// Monday, 2026-11-30, 00:00 of universal time.
const MONDAY: i64 = 1_795_996_800 * S;

fn good(began_us: i64) -> BackupRecord {
    let folder = PathBuf::from("/backups").join(name_of(began_us));
    let good = GoodBackup { folder, began_us, ended_us: began_us + S, until: 7, verified: true };
    BackupRecord::default().succeeded(good)
}

#[test]
fn one_is_due_by_interval_or_once_in_each_window_and_after_a_failure_a_while_later() {
    let window = serde_json::json!({ "open": ["Mon-Sun 02:00-04:00"], "zone": "UTC" });
    let windows = BackupTimes::Windows(serde_json::from_value(window).expect("it is one"));
    let (every, none) = (BackupTimes::Every(6 * HOUR), BackupRecord::default());
    let failed = |record: BackupRecord, at_us: i64| record.failed(at_us, "no room");
    let two = MONDAY + 2 * HOUR;
    for (times, record, now_us, is_due) in [
        (&every, none.clone(), MONDAY, true),
        (&every, good(MONDAY), MONDAY + 6 * HOUR - 1, false),
        (&every, good(MONDAY), MONDAY + 6 * HOUR, true),
        // One from a time to come: the clock was wrong.
        (&every, good(MONDAY + HOUR), MONDAY, true),
        (&every, failed(none.clone(), MONDAY), MONDAY + RETRY_US - 1, false),
        (&every, failed(none.clone(), MONDAY), MONDAY + RETRY_US, true),
        (&every, failed(none.clone(), MONDAY + HOUR), MONDAY, true),
        (&every, failed(good(MONDAY), MONDAY + HOUR), MONDAY + 2 * HOUR, false),
        (&windows, none.clone(), two - 1, false),
        (&windows, none.clone(), two, true),
        (&windows, good(two - 24 * HOUR), two, true),
        (&windows, good(two + 1), two + HOUR, false),
        // Begun by hand of the clock at the very begin: it is of this window.
        (&windows, good(two), two + HOUR, false),
        (&windows, failed(good(two - 24 * HOUR), two), two + RETRY_US - 1, false),
        (&windows, failed(good(two - 24 * HOUR), two), two + RETRY_US, true),
        (&windows, none.clone(), two + 2 * HOUR, false),
    ] {
        assert_eq!(times.is_due(&record, None, now_us), is_due, "{times:?} {record:?} {now_us}");
        let kept = record.failed.as_ref().map(|failed| failed.at_us);
        let unrecorded = BackupRecord { failed: None, ..record.clone() };
        assert_eq!(
            times.is_due(&unrecorded, kept, now_us),
            is_due,
            "a failure that only the process knows of counts as well"
        );
    }
}

#[test]
fn a_failure_leaves_the_last_good_one_in_the_record_and_a_good_one_ends_the_failures() {
    let store = Store::in_memory(Options::default()).expect("memory");
    assert_eq!(BackupRecord::read(&store).expect("it reads"), None);
    let long = "w".repeat(WHY_MAX + 7);
    let change = |record: BackupRecord| record.failed(MONDAY, &long).failed(MONDAY + 1, &long);
    let record = BackupRecord::change(&store, &change).expect("it is stored");
    let failed = record.failed.clone().expect("it failed");
    assert_eq!((failed.tries, failed.at_us, failed.why.len(), record.good.is_none()), (2, MONDAY + 1, WHY_MAX, true));
    let made = good(MONDAY + 2).good.expect("it is good");
    let record = BackupRecord::change(&store, &|record| record.succeeded(made.clone())).expect("it is stored");
    assert_eq!((record.good.as_ref(), record.failed.as_ref()), (Some(&made), None));
    let record = BackupRecord::change(&store, &|record| record.failed(MONDAY + 3, "no room")).expect("it is stored");
    assert_eq!((record.good.as_ref(), record.failed.as_ref().map(|failed| failed.tries)), (Some(&made), Some(1)));
    assert_eq!(BackupRecord::read(&store).expect("it reads"), Some(record));
}

#[test]
fn only_what_has_such_a_name_and_is_older_than_the_newest_is_removed_the_oldest_first() {
    assert_eq!(name_of(MONDAY), "backup-20261130T000000Z");
    for (name, is_one) in [
        ("backup-20261130T000000Z", true),
        ("backup-20261130T00000Z", false),
        ("backup-2026113xT000000Z", false),
        ("backup-20261130T000000", false),
        ("monday", false),
        ("../backup-20261130T000000Z", false),
    ] {
        assert_eq!(is_name(name), is_one, "{name}");
    }
    let names: Vec<String> = (0..5).map(|day| name_of(MONDAY + day * 24 * HOUR)).chain(["monday".to_owned()]).collect();
    for (keep, newest, gone) in [(3, 4, 2), (1, 4, 4), (5, 4, 0), (9, 4, 0), (1, 2, 2), (0, 4, 4)] {
        assert_eq!(beyond(&names, keep, &names[newest]), names[..gone], "{keep} {newest}");
    }
}

#[test]
fn a_backup_that_would_leave_too_little_room_is_not_begun() {
    let mib = |count: u64| count << 20;
    assert_eq!(BackupRoom { needed: mib(100), free: mib(356) }.lack(), None);
    let lack = BackupRoom { needed: mib(100), free: mib(355) }.lack().expect("it lacks room");
    assert!(lack.contains("takes 100 MiB and 256 MiB are to stay free, 355 MiB are free"), "{lack}");
}

#[test]
fn a_folder_in_one_of_the_data_or_around_it_is_refused_by_whatever_path() {
    let place = tempfile::tempdir().expect("a folder");
    let at = |path: &str| place.path().join(path);
    for folder in ["data/x", "backups", "fast/node/journal"] {
        fs::create_dir_all(at(folder)).expect("a folder");
    }
    std::os::unix::fs::symlink(at("data"), at("link")).expect("a link");
    let of = |folder: &Path| crate::location::Location {
        tier: "t".to_owned(),
        kind: "file".to_owned(),
        folder: Some(folder.to_owned()),
    };
    let (journal, home) = (of(&at("fast/node/journal")), of(Path::new("pages")));
    let locations = crate::location::Locations { journal, images: home.clone(), data: home };
    crate::location::claim(&at("data"), &locations).expect("it is recorded");
    for (folder, is_right) in [
        ("backups", true),
        ("backups/not/there/yet", true),
        ("data/backups", false),
        ("link", false),
        ("link/backups", false),
        ("backups/../data/x", false),
        ("", false),
        ("fast", false),
        ("fast/node/journal/backups", false),
        ("fast/node/other", true),
    ] {
        let checked = check_folder(&at(folder), &at("data"));
        assert_eq!(checked.is_ok(), is_right, "{folder}: {checked:?}");
    }
    assert!(check_folder(&at("data/backups"), &at("link")).is_err(), "the data directory may be a link, too");
}

fn small() -> Options {
    Options {
        journal: journal::Options { segment_bytes: 1 << 20, ..journal::Options::default() },
        cache_bytes: 8 << 20,
        data_device_bytes: 512 << 10,
        images_device_bytes: 64 << 10,
        ..Options::default()
    }
}

/// A store with something to copy, a folder for it, and what of backups is there.
struct Kept {
    place: tempfile::TempDir,
    settings: BackupSettings,
    store: Store,
}

impl Kept {
    fn new(options: Options) -> Kept {
        let place = tempfile::tempdir().expect("a folder");
        let folder = place.path().join("backups");
        fs::create_dir(&folder).expect("a folder");
        let settings = BackupSettings { folder, times: BackupTimes::Every(HOUR), keep: 2, verify: true };
        let store = Store::in_memory(options).expect("memory");
        BackupRecord::change(&store, &|record| record.failed(MONDAY, "something to copy")).expect("it is stored");
        Kept { place, settings, store }
    }

    fn take(&self) -> Result<BackupFolder, NodeError> {
        self.take_for(&self.store)
    }

    fn take_for(&self, store: &Store) -> Result<BackupFolder, NodeError> {
        BackupFolder::take(self.settings.clone(), store, &small(), self.place.path())
    }

    /// The names in the folder that are folders.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.settings.folder).expect("it lists").map(|entry| entry.expect("it is there"));
        let folders = entries.filter(|entry| entry.file_type().expect("a kind").is_dir());
        let mut names: Vec<String> = folders.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }
}

fn make(taken: &BackupFolder, store: &Store, began_us: i64, stopped: Stopped) -> Result<GoodBackup, NodeError> {
    taken.make(store, began_us, &|| began_us + S, &stopped)
}

fn never() -> Stopped {
    Arc::new(|| false)
}

#[test]
fn backups_of_a_store_are_checked_kept_and_removed_and_one_that_is_ended_leaves_the_former() {
    let kept = Kept::new(small());
    let folder = kept.settings.folder.clone();
    fs::remove_dir(&folder).expect("it is empty");
    let missing = kept.take().expect_err("it is not there").to_string();
    assert!(missing.contains("No such file"), "{missing}");
    fs::create_dir(&folder).expect("a folder");
    let taken = kept.take().expect("it is free");
    let refused = kept.take().expect_err("it is taken").to_string();
    assert!(refused.contains("another node, which runs, keeps its backups"), "{refused}");
    let somebodys = ["backup-20200101T000000Z", "monday"];
    somebodys.iter().for_each(|name| fs::create_dir(folder.join(name)).expect("a folder of somebody else"));
    fs::create_dir(folder.join(".backup-20200101T000000Z.part")).expect("one that a crash ended");
    let mut all: Vec<String> = somebodys.map(str::to_owned).to_vec();
    for day in 0..3 {
        let began_us = MONDAY + day * 24 * HOUR;
        let good = make(&taken, &kept.store, began_us, never()).expect("it is made");
        assert_eq!(good.folder, folder.join(name_of(began_us)));
        let record = BackupRecord::read(&kept.store).expect("it reads").expect("it is there");
        assert_eq!(record.good.as_ref(), Some(&good));
        all.insert(all.len() - 1, name_of(began_us));
        assert_eq!(kept.names(), all, "nothing goes before it is recorded");
        let old = taken.old(&good.folder).expect("it can be read");
        assert_eq!(old.len(), usize::from(day == 2));
        old.iter().for_each(|old| taken.remove(old).expect("it can be removed"));
    }
    all.remove(1);
    assert_eq!(kept.names(), all, "what has the name of one, and no manifest, stays");
    let ended = make(&taken, &kept.store, MONDAY + 96 * HOUR, Arc::new(|| true)).expect_err("it is ended");
    assert!(matches!(ended, NodeError::Stopping), "{ended}");
    make(&taken, &kept.store, MONDAY + 24 * HOUR, never()).expect_err("it is there already");
    assert_eq!(kept.names(), all);
    assert!(taken.is_in_place());
    fs::rename(&folder, kept.place.path().join("unmounted")).expect("it moves");
    fs::create_dir(&folder).expect("another medium");
    assert!(!taken.is_in_place());
    kept.take().expect("the other one is free");
}

#[test]
fn a_folder_of_another_store_is_refused_by_name_and_its_backups_are_neither_counted_nor_removed() {
    let kept = Kept::new(small());
    let other = Kept::new(small());
    let taken = kept.take().expect("it is free");
    let first = make(&taken, &kept.store, MONDAY, never()).expect("it is made").folder;
    drop(taken);
    let refused = kept.take_for(&other.store).expect_err("it is the first one's").to_string();
    let data = fs::canonicalize(kept.place.path()).expect("it is there");
    assert!(refused.contains("another node, with the data directory") && refused.contains(&data.display().to_string()));
    kept.take().expect("it is still its own");
    let file = kept.settings.folder.join(".terrace-backups");
    fs::write(&file, "{").expect("it can be written");
    let refused = kept.take().expect_err("nobody's").to_string();
    assert!(refused.contains("does not say whose backups these are") && refused.contains("remove it"), "{refused}");
    fs::remove_file(&file).expect("as the error says");
    let taken = kept.take_for(&other.store).expect("it is free now");
    for day in 1..4 {
        let good = make(&taken, &other.store, MONDAY + day * 24 * HOUR, never()).expect("it is made");
        let old = taken.old(&good.folder).expect("it can be read");
        assert_eq!(old.len(), usize::from(day == 3), "{old:?}");
        assert!(!old.contains(&first));
        old.iter().for_each(|old| taken.remove(old).expect("it can be removed"));
    }
    assert!(kept.names().contains(&name_of(MONDAY)));
}

#[test]
fn the_record_has_room_where_tables_have_taken_theirs_and_a_backup_that_is_not_recorded_is_removed() {
    let pages = Some(SpaceLimit { bytes: 1, setting: "[sql] space" });
    let kept = Kept::new(Options { limits: SpaceLimits { pages, reserve: None }, ..small() });
    let mut full = kept.store.begin();
    let tree = full.create_tree("rows").expect("it is a change of this transaction");
    full.put(tree, b"k", b"v").expect("it fits");
    assert!(matches!(full.commit(), Err(StoreError::Full(_))), "tables may not grow");
    let taken = kept.take().expect("it is free");
    make(&taken, &kept.store, MONDAY, never()).expect("it is made and recorded");
    let mut damage = kept.store.begin();
    let tree = damage.tree(TREE).expect("it reads").expect("it is there");
    damage.put(tree, KEY, br#"{"version":9}"#).expect("it fits");
    damage.commit_beyond_limits().expect("it is stored");
    make(&taken, &kept.store, MONDAY + HOUR, never()).expect_err("it cannot be recorded");
    assert_eq!(kept.names(), [name_of(MONDAY)], "nothing of it is left, and the former is");
}

#[test]
fn a_crash_at_any_operation_of_a_backup_leaves_the_former_and_nothing_that_counts() {
    let kept = Kept::new(small());
    let first = make(&kept.take().expect("it is free"), &kept.store, MONDAY, never()).expect("it is made").folder;
    // The last ones are those of the check: it is stopped there, too.
    let mut operations = 1;
    for crash in 0.. {
        let (began_us, count) = (MONDAY + (crash + 1) * HOUR, AtomicUsize::new(0));
        let stops: Stopped = Arc::new(move || {
            let nth = count.fetch_add(1, Ordering::Relaxed) as i64;
            assert!(nth != crash, "a crash");
            false
        });
        let taken = kept.take().expect("the lock went with the process");
        let made = catch_unwind(AssertUnwindSafe(|| make(&taken, &kept.store, began_us, stops)));
        if let Ok(made) = made {
            made.expect("it was not ended");
            break;
        }
        operations += 1;
        assert!(kept.names().iter().all(|name| !is_name(name) || *name == name_of(MONDAY)), "{:?}", kept.names());
        assert!(taken.old(&first).expect("it can be read").is_empty());
    }
    assert!(operations > 20, "{operations}");
    let last = name_of(MONDAY + operations * HOUR);
    assert_eq!(kept.names(), [name_of(MONDAY), last], "what the crashes left is gone");
    let stops_at = |end: i64| {
        let count = AtomicUsize::new(0);
        Arc::new(move || count.fetch_add(1, Ordering::Relaxed) as i64 >= end)
    };
    let taken = kept.take().expect("it is free");
    for end in 0..operations - 1 {
        let stopped = make(&taken, &kept.store, MONDAY + 1_000 * HOUR, stops_at(end));
        assert!(matches!(stopped, Err(NodeError::Stopping)), "{end}: {stopped:?}");
        assert_eq!(kept.names().len(), 2);
    }
    // A crash while it is removed: it has lost its name first.
    let half = kept.settings.folder.join(format!(".{}.part", name_of(MONDAY)));
    fs::rename(&first, half).expect("it moves");
    make(&taken, &kept.store, MONDAY + 2_000 * HOUR, never()).expect("it is made");
    assert!(kept.names().iter().all(|name| is_name(name)), "{:?}", kept.names());
}
