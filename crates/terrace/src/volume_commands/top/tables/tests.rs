//! Tests of the tables: what is shown of two reports, letter by letter, and how wide it may become.

use serde_json::{Value, json};

use super::*;

fn copy(number: u8, tier: &str, journal_tier: &str, more: Value) -> Value {
    let mut copy = json!({
        "number": number, "tier": tier, "journal_tier": journal_tier, "at": "", "medium": "", "real": true, "state": "in-sync",
        "behind_bytes": 0, "reads": 0, "repaired": 0, "is_unfenced": false, "failures": 0, "read_ns": 0,
    });
    for (key, value) in more.as_object().expect("an object") {
        copy[key] = value.clone();
    }
    copy
}

fn report(name: &str, activity: Activity, copies: Vec<Value>) -> VolumeReport {
    let copies = copies.into_iter().map(|copy| serde_json::from_value(copy).expect("a copy")).collect();
    let state = crate::volumes::VolumeState::Open;
    VolumeReport { state, why: None, copies, activity, ..VolumeReport::unreadable(name, "") }
}

fn activity(reads: &[(u64, u64)], read_bytes: u64) -> Activity {
    Activity { reads: reads.to_vec(), read_bytes, ..Activity::default() }
}

#[test]
fn a_load_is_what_happened_between_two_reports_and_begins_anew_after_a_restart() {
    let (first, second) = (activity(&[(1_000, 10)], 40_960), activity(&[(1_000, 10), (9_000, 4)], 57_344));
    let load = Load::between(Some(Counted::volume(&first)), Counted::volume(&second));
    assert_eq!((&load.reads.classes, load.reads.bytes), (&BTreeMap::from([(9_000, 4)]), 16_384));
    assert_eq!(load.cells(2.0)[..4], ["2", "0.0", "9.0 us", "9.0 us"]);
    let restarted = activity(&[(2_000, 1)], 4_096);
    let load = Load::between(Some(Counted::volume(&second)), Counted::volume(&restarted));
    assert_eq!(load.reads.classes, BTreeMap::from([(2_000, 1)]));
}

#[test]
fn a_line_shows_the_reads_and_writes_of_each_copy_and_a_tier_what_lies_on_it() {
    let cache = |hits, destaged| {
        json!({"tier": "pmem", "bytes": 1 << 30, "hit_bytes": hits, "miss_bytes": 1 << 20, "dirty_bytes": 3 << 20,
               "destaged_bytes": destaged, "stalls": 0})
    };
    let before = report(
        "vol-7",
        activity(&[(50_000, 100)], 409_600),
        vec![
            copy(
                0,
                "disk",
                "pmem",
                json!({"reads": 100, "read_times": [[50_000, 100]], "read_bytes": 409_600,
                       "write_times": [[7_000, 5]], "written_bytes": 20_480, "cache": cache(1 << 20, 0)}),
            ),
            copy(1, "nvme", "nvme", json!({"state": "syncing", "behind_bytes": 30 << 20})),
        ],
    );
    let now = report(
        "vol-7",
        Activity {
            writes: vec![(12_000, 2_000)],
            written_bytes: 8_192_000,
            journaled_bytes: 5 << 20,
            ..activity(&[(50_000, 100), (60_000, 390), (4_000_000, 10)], 2_048_000)
        },
        vec![
            copy(
                0,
                "disk",
                "pmem",
                json!({"reads": 500, "read_ns": 61_000, "read_bytes": 2_048_000,
                       "read_times": [[50_000, 100], [60_000, 390], [4_000_000, 10]],
                       "write_times": [[7_000, 2_005]], "written_bytes": 8_212_480, "cache": cache(4 << 20, 2_000_000)}),
            ),
            copy(
                1,
                "nvme",
                "nvme",
                json!({"state": "syncing", "behind_bytes": 10 << 20, "repaired": 1, "written_bytes": 8_192_000,
                       "write_times": [[11_000, 1_970], [900_000, 30]]}),
            ),
        ],
    );
    let shown = TopTables::of(&[before], &[now], 2.0).to_string();
    let wanted = "\
volume  state  reads/s  MB/s      p50      p99  writes/s  MB/s      p50      p99  sessions  journals
------  -----  -------  ----  -------  -------  --------  ----  -------  -------  --------  --------
vol-7   open       200   0.8  60.0 us  4000 us     1,000   4.1  12.0 us  12.0 us         0   5.0 MiB

copy     tier  state    reads/s  MB/s      p50      p99  writes/s  MB/s      p50     p99
-------  ----  -------  -------  ----  -------  -------  --------  ----  -------  ------
vol-7 0  disk  in-sync      200   0.8  60.0 us  4000 us     1,000   4.1   7.0 us  7.0 us
vol-7 1  nvme  syncing        0   0.0        -        -     1,000   4.1  11.0 us  900 us

tier  in sync  reads/s  MB/s      p50      p99  writes/s  MB/s      p50     p99  destaged    behind
----  -------  -------  ----  -------  -------  --------  ----  -------  ------  --------  --------
disk   1 of 1      200   0.8  60.0 us  4000 us         0   0.0        -       -       1.0         -
nvme   0 of 1        0   0.0        -        -     1,000   4.1  11.0 us  900 us       0.0  10.0 MiB
pmem        -        0   0.0        -        -     1,000   4.1   7.0 us  7.0 us       0.0         -

copy     of reads  read time  cache hits    dirty  destaged MB/s               behind  repaired
-------  --------  ---------  ----------  -------  -------------  -------------------  --------
vol-7 0   100.0 %    61.0 us     100.0 %  3.0 MiB            1.0                    -         0
vol-7 1     0.0 %          -           -        -              -  10.0 MiB, 10.5 MB/s         1
";
    assert_eq!(shown, wanted, "\n{shown}");
}

#[test]
fn no_line_is_wider_than_120_columns_with_long_names_and_large_figures() {
    let name = "department-of-radiology/archive-of-1998-and-before";
    let tier = "nvme-of-the-second-shelf";
    let times = json!([[999_900_000u64, 999_999u64]]);
    let of = |state: &str| {
        copy(
            2,
            tier,
            tier,
            json!({"state": state, "read_times": times, "write_times": times, "read_bytes": 99_999_000_000u64, "reads": 999_999,
                   "written_bytes": 99_999_000_000u64, "behind_bytes": 1_000u64 << 30, "read_ns": 999_900_000u64, "repaired": 999_999,
                   "cache": {"tier": tier, "bytes": 1, "hit_bytes": 1, "miss_bytes": 0, "dirty_bytes": 1_000u64 << 30,
                             "destaged_bytes": 99_999_000_000u64, "stalls": 0}}),
        )
    };
    let activity = Activity {
        writes: vec![(999_900_000, 999_999)],
        written_bytes: 99_999_000_000,
        journaled_bytes: 1_000 << 20,
        ..activity(&[(999_900_000, 999_999)], 99_999_000_000)
    };
    let mut now = report(name, activity.clone(), vec![of("in-sync"), of("missing"), of("unknown")]);
    now.state = crate::volumes::VolumeState::Superseded;
    let mut earlier = of("syncing");
    earlier["behind_bytes"] = json!(1_050u64 << 30);
    for key in ["read_times", "write_times", "read_bytes", "written_bytes", "reads"] {
        earlier[key] = if key.ends_with("times") { json!([]) } else { json!(0) };
    }
    earlier["cache"]["destaged_bytes"] = json!(0);
    let before = report(name, Activity::default(), vec![earlier.clone(), earlier.clone(), earlier]);
    let shown = TopTables::of(&[before], &[now], 1.0).to_string();
    for line in shown.lines() {
        assert!(line.chars().count() <= 120, "{} columns: {line}\n{shown}", line.chars().count());
    }
    assert!(shown.contains("depart..before") && shown.contains("nvme..helf"), "{shown}");
}

#[test]
fn a_name_that_is_too_long_loses_its_middle() {
    for (name, width, wanted) in [("vol-7", 5, "vol-7"), ("vol-77", 5, "vo..7"), ("abcdefgh", 6, "ab..gh")] {
        assert_eq!(fit(name, width), wanted);
    }
}
