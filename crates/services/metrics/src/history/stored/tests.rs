//! Rings that are filled over a simulated time, also across restarts and clocks that jump.

use store::Options;

use super::*;

const SECOND: i64 = 1_000_000;
const DAY: i64 = 86_400 * SECOND;
/// 2026-01-01T00:00:00Z, where an interval of each ring begins.
const BEGIN: i64 = 20_454 * DAY;

fn store() -> Store {
    Store::in_memory(Options::default()).expect("memory")
}

fn value(value: f64) -> Vec<(String, f64)> {
    vec![("intake".to_owned(), value)]
}

fn points(history: &HistoryStore, range: HistoryRange, now_us: i64) -> Vec<HistoryPoint> {
    history.points("intake", range, now_us).expect("it can be read").expect("it is known")
}

fn rows(history: &HistoryStore, ring: usize) -> usize {
    let snapshot = history.store.snapshot();
    let tree = snapshot.tree(TREE).expect("it can be read").expect("it is there");
    let mut rows = rows_between(&snapshot, tree, ring, (0, i64::MAX));
    let mut count = 0;
    while rows.next_key().expect("it can be read").is_some() {
        count += 1;
    }
    count
}

#[test]
fn each_range_has_its_points_with_the_interval_that_is_not_over_yet() {
    let history = HistoryStore::open(store()).expect("it opens");
    assert_eq!(history.points("intake", HistoryRange::Hour, BEGIN).expect("nothing is there"), None);
    // Two hours and some, by 10 s: the value is the number of the minute, with one peak.
    let ticks = 2 * 360 + 3;
    for tick in 0..ticks {
        let peak = if tick == 100 { 1e6 } else { 0.0 };
        history.write(&value((tick / 6) as f64 + peak), BEGIN + tick * 10 * SECOND).expect("it is written");
    }
    let now = BEGIN + (ticks - 1) * 10 * SECOND;
    let hour = points(&history, HistoryRange::Hour, now);
    assert_eq!(hour.last().map(|point| (point.at_us, point.mean)), Some((now, 120.0)));
    assert_eq!((rows(&history, 0), rows(&history, 1), rows(&history, 2), rows(&history, 3)), (360, 120, 8, 2));
    let day = points(&history, HistoryRange::Day, now);
    assert_eq!(day.len(), 121, "120 minutes, and one that is not over");
    assert_eq!((day[7].mean, day[7].at_us, day[120].mean), (7.0, BEGIN + 420 * SECOND, 120.0));
    assert_eq!((day[16].least, day[16].most), (16.0, 1_000_016.0), "a peak of ten seconds is seen");
    let week = points(&history, HistoryRange::Week, now);
    assert_eq!((week.len(), week[1].most, week[8].mean), (9, 1_000_016.0, 120.0));
    let year = points(&history, HistoryRange::Year, now);
    assert_eq!((year.len(), year[0].at_us, year[0].least, year[0].most), (1, BEGIN, 0.0, 1_000_016.0));
    assert_eq!(history.series().iter().map(|series| &series.name[..]).collect::<Vec<_>>(), ["intake"]);
}

#[test]
fn what_a_node_did_before_it_was_away_is_rolled_up_when_it_is_back() {
    let store = store();
    let history = HistoryStore::open(store.clone()).expect("it opens");
    for tick in 0..50 {
        history.write(&value(5.0), BEGIN + tick * 10 * SECOND).expect("it is written");
    }
    drop(history);
    // It was away for three days.
    let history = HistoryStore::open(store).expect("it opens");
    let now = BEGIN + 3 * DAY + 500 * SECOND;
    history.write(&value(7.0), now).expect("it is written");
    let year = points(&history, HistoryRange::Year, now);
    assert_eq!(
        year.iter().map(|point| (point.at_us, point.mean)).collect::<Vec<_>>(),
        [(BEGIN, 5.0), (BEGIN + 3 * DAY, 7.0)]
    );
    // Old rows go with those that come.
    for tick in 1..20 {
        history.write(&value(7.0), now + tick * 10 * SECOND).expect("it is written");
    }
    assert_eq!(rows(&history, 0), 20);
    let week = points(&history, HistoryRange::Week, now);
    assert_eq!((week.len(), week[0].mean), (2, 5.0));
}

#[test]
fn a_clock_that_was_ahead_leaves_no_rows_and_the_rings_never_grow_beyond_their_bound() {
    let history = HistoryStore::open(store()).expect("it opens");
    for tick in 0..40 {
        history.write(&value(1.0), BEGIN + 1_000 * DAY + tick * 10 * SECOND).expect("it is written");
    }
    for tick in 0..400 {
        history.write(&value(2.0), BEGIN + tick * 10 * SECOND).expect("it is written");
    }
    assert_eq!((rows(&history, 0), rows(&history, 1)), (360, 66));
    let now = BEGIN + 3_990 * SECOND;
    assert!(points(&history, HistoryRange::Day, now).iter().all(|point| point.mean == 2.0));
    // Days, for years.
    for day in 1..900 {
        history.write(&value(3.0), BEGIN + day * DAY).expect("it is written");
    }
    assert!(rows(&history, 4) <= 400, "{}", rows(&history, 4));
}

#[test]
fn several_series_have_the_points_that_each_of_them_has_and_those_that_are_not_there_are_left_out() {
    let history = HistoryStore::open(store()).expect("it opens");
    for tick in 0..400_i32 {
        let values = [("a", tick), ("b", 2 * tick), ("c", 3 * tick)];
        let values: Vec<_> = values.iter().map(|(name, value)| ((*name).to_owned(), f64::from(*value))).collect();
        history.write(&values, BEGIN + i64::from(tick) * 10 * SECOND).expect("it is written");
    }
    let asked = ["c", "none", "a"].map(str::to_owned);
    for range in [HistoryRange::Hour, HistoryRange::Day] {
        let now_us = BEGIN + 400 * 10 * SECOND;
        let found = history.points_of(&asked, range, now_us).expect("it can be read");
        let alone = |name: &str| history.points(name, range, now_us).expect("it can be read").expect("it is known");
        assert_eq!(found, [("c".to_owned(), alone("c")), ("a".to_owned(), alone("a"))]);
    }
}

#[test]
fn names_are_bounded_and_the_numbers_of_forgotten_ones_are_not_used_again() {
    let store = store();
    let history = HistoryStore::open(store.clone()).expect("it opens");
    for part in 0..12 {
        let values: Vec<_> = (0..100).map(|n| (format!("waiting.o{}", part * 100 + n), f64::from(n))).collect();
        history.write(&values, BEGIN + i64::from(part) * 10 * SECOND).expect("it is written");
    }
    let names = history.series();
    assert_eq!(names.len(), NAMES_MAX);
    assert!(names.iter().all(|series| series.name != "waiting.o7"));
    history.write(&[("waiting.o7".to_owned(), 42.0), ("x".repeat(300), 1.0)], BEGIN + 200 * SECOND).expect("written");
    let again = HistoryStore::open(store).expect("it opens");
    assert_eq!(again.series(), history.series());
    let of_seven = again.points("waiting.o7", HistoryRange::Hour, BEGIN + 200 * SECOND).expect("read").expect("known");
    assert_eq!(of_seven.iter().map(|point| point.mean).collect::<Vec<_>>(), [42.0], "not what it had before");
}

#[test]
fn after_a_power_failure_at_any_point_every_row_that_was_acknowledged_is_there_and_counts_in_the_coarser_rings() {
    let shelf = std::sync::Arc::new(device::CrashShelf::new(36));
    let store = crate::crash_bed::open(&shelf);
    let history = HistoryStore::open(store.clone()).expect("it opens");
    let at = |tick: i64| BEGIN + tick * 20 * SECOND;
    let mut acknowledged = vec![shelf.operations()];
    for tick in 0..36 {
        history.write(&value(tick as f64), at(tick)).expect("it is written");
        if tick == 17 {
            store.checkpoint().expect("it is written");
        }
        acknowledged.push(shelf.operations());
    }
    crate::crash_bed::after_each_crash(&shelf, &acknowledged, |store, least, image| {
        let history = HistoryStore::open(store).expect("it opens");
        let now = at(36);
        let Some(hour) = history.points("intake", HistoryRange::Hour, now).expect("it is read") else {
            assert!(least <= 1, "{image}: there is nothing, and {least} rows were acknowledged");
            return;
        };
        let expected: Vec<(i64, f32)> = (0..hour.len() as i64).map(|tick| (at(tick), tick as f32)).collect();
        let found: Vec<(i64, f32)> = hour.iter().map(|point| (point.at_us, point.mean)).collect();
        assert_eq!(found, expected, "{image}");
        assert!(hour.len() + 1 >= least, "{image}: {} rows, and {least} were acknowledged", hour.len());
        let day = points(&history, HistoryRange::Day, now);
        let most = day.iter().map(|point| point.most).fold(f32::NEG_INFINITY, f32::max);
        assert_eq!((day.len(), most), (hour.len().div_ceil(3), hour.len() as f32 - 1.0), "{image}");
    });
}
