//! Backups by schedule: when they are due by a clock that the test moves, which are removed, and the folder of a real store.

use std::fs;

use store::Options;

use super::*;

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
        assert_eq!(times.is_due(&record, now_us), is_due, "{times:?} {record:?} {now_us}");
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
fn a_folder_in_the_data_directory_or_around_it_is_refused() {
    for (folder, is_right) in [("/var/backups", true), ("/var/lib/terrace/backups", false), ("/var/lib", false)] {
        let checked = check_folder(Path::new(folder), Path::new("/var/lib/terrace"));
        assert_eq!(checked.is_ok(), is_right, "{folder}: {checked:?}");
    }
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

#[test]
fn backups_of_a_store_are_checked_kept_and_removed_and_one_that_is_ended_leaves_the_former() {
    let place = tempfile::tempdir().expect("a folder");
    let folder = place.path().join("backups");
    let settings = BackupSettings { folder: folder.clone(), times: BackupTimes::Every(HOUR), keep: 2, verify: true };
    let store = Store::in_memory(small()).expect("memory");
    BackupRecord::change(&store, &|record| record.failed(MONDAY, "something to copy")).expect("it is stored");
    let missing = BackupFolder::take(settings.clone(), &small()).expect_err("it is not there").to_string();
    assert!(missing.contains("No such file"), "{missing}");
    fs::create_dir(&folder).expect("a folder");
    let taken = BackupFolder::take(settings.clone(), &small()).expect("it is free");
    let refused = BackupFolder::take(settings.clone(), &small()).expect_err("it is taken").to_string();
    assert!(refused.contains("another node keeps its backups"), "{refused}");
    fs::create_dir(folder.join("monday")).expect("a folder of somebody else");
    fs::create_dir(folder.join("backup-20200101T000000Z")).expect("one that a crash ended");
    let names = || {
        let entries = fs::read_dir(&folder).expect("it lists").map(|entry| entry.expect("it is there").file_name());
        let mut names: Vec<String> = entries.filter_map(|name| name.into_string().ok()).collect();
        names.retain(|name| !name.starts_with('.'));
        names.sort();
        names
    };
    let mut all = vec!["monday".to_owned()];
    for day in 0..3 {
        let began_us = MONDAY + day * 24 * HOUR;
        let made = taken.make(&store, began_us, &|| false).expect("it is made");
        assert_eq!(made.folder, folder.join(name_of(began_us)));
        all.insert(all.len() - 1, name_of(began_us));
        assert_eq!(names(), all, "nothing goes before it is recorded");
        let old = taken.old(&made.folder).expect("it can be read");
        assert_eq!(old.len(), usize::from(day == 2));
        old.iter().for_each(|old| taken.remove(old).expect("it can be removed"));
    }
    all.remove(0);
    assert_eq!(names(), all);
    taken.make(&store, MONDAY + 96 * HOUR, &|| true).expect_err("it is ended");
    taken.make(&store, MONDAY + 24 * HOUR, &|| false).expect_err("it is there already");
    assert_eq!(names(), all);
    drop(taken);
    BackupFolder::take(settings, &small()).expect("it is free again");
}
