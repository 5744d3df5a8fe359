//! Counts of memory: of values, of one search, and of all, with the turns of those that wait.

use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use super::*;

const MIB: u64 = 1 << 20;

/// Memory of a search of this role, which waits.
fn patient(all: &Arc<SearchMemory>, role: u32) -> MemoryUse {
    let patience = MemoryPatience::new(Arc::default(), None);
    MemoryUse::new(Some(Arc::clone(all)), u64::MAX).waiting(Some(RoleId(role)), patience)
}

/// The same, which does not wait: its time is over.
fn hasty(all: &Arc<SearchMemory>, role: u32) -> MemoryUse {
    let patience = MemoryPatience::new(Arc::default(), Some(Instant::now()));
    MemoryUse::new(Some(Arc::clone(all)), u64::MAX).waiting(Some(RoleId(role)), patience)
}

/// Until so many searches wait.
fn until_waiting(all: &SearchMemory, searches: usize) {
    let ends = Instant::now() + Duration::from_secs(10);
    while all.waiting() != searches {
        assert!(Instant::now() < ends, "{searches} should wait, and {} do", all.waiting());
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_value_counts_as_it_is_in_memory_and_not_as_it_is_written() {
    for (value, least, most) in [
        (json!(1), 24, 100),
        (json!("a".repeat(1_000)), 1_000, 1_200),
        (json!(vec![1; 1_000]), 24_000, 100_000),
        (json!({"value": 1.5}), 100, 400),
        (json!({"a": {"b": {"c": 1}}}), 300, 1_200),
    ] {
        let bytes = value_bytes(&value);
        assert!((least..most).contains(&bytes), "{bytes}: {value}");
    }
}

#[test]
fn a_search_has_no_more_than_it_may_nor_more_than_the_others_leave() {
    let all = SearchMemory::new(10 << 20);
    let one = MemoryUse::new(Some(Arc::clone(&all)), 6 << 20);
    one.take(5 << 20).expect("there is room");
    let error = one.take(2 << 20).expect_err("more than one may");
    assert_eq!((error.status, error.kind), (429, "circuit_breaking_exception"));
    let other = MemoryUse::new(Some(Arc::clone(&all)), 6 << 20);
    other.take(4 << 20).expect("there is room");
    assert_eq!(other.take(2 << 20).expect_err("more than is left").status, 429);
    assert!(!other.try_take(2 << 20) && other.used() == 4 << 20, "what is refused is not taken");
    other.give(4 << 20);
    drop((one, other));
    assert_eq!(all.left(), 10 << 20, "all is given back");
    MemoryUse::default().take(u64::MAX / 2).expect("no bound");
}

#[test]
fn who_finds_too_little_memory_waits_until_another_search_ends_and_has_no_more_than_there_is() {
    let all = SearchMemory::new(10 * MIB);
    let first = patient(&all, 1);
    first.take(8 * MIB).expect("there is room");
    thread::scope(|scope| {
        let second = scope.spawn(|| patient(&all, 2).take(8 * MIB));
        until_waiting(&all, 1);
        drop(first);
        second.join().expect("no panic").expect("it has its turn");
    });
    assert_eq!((all.left(), all.peak(), all.waiting()), (10 * MIB, 8 * MIB, 0));
    let error = patient(&all, 1).take(11 * MIB).expect_err("there is never so much");
    assert_eq!((error.status, error.kind), (429, "circuit_breaking_exception"));
}

#[test]
fn memory_goes_first_to_the_role_that_has_the_least_of_it() {
    let all = SearchMemory::new(10 * MIB);
    let (ann, carol) = (patient(&all, 1), patient(&all, 3));
    ann.take(5 * MIB).expect("there is room");
    carol.take(5 * MIB).expect("there is room");
    thread::scope(|scope| {
        let ann_too = scope.spawn(|| patient(&all, 1).take(2 * MIB));
        until_waiting(&all, 1);
        let bob = scope.spawn(|| {
            let bob = patient(&all, 2);
            bob.take(4 * MIB).map(|()| bob)
        });
        until_waiting(&all, 2);
        drop(carol);
        let bob = bob.join().expect("no panic").expect("he came later, and has nothing");
        assert_eq!((bob.used(), all.waiting(), all.left()), (4 * MIB, 1, MIB), "she waits for her own search");
        drop(ann);
        ann_too.join().expect("no panic").expect("there is room now");
    });
    assert_eq!(all.left(), 10 * MIB);
}

#[test]
fn a_role_has_three_quarters_of_the_memory_or_one_search_that_takes_more() {
    let all = SearchMemory::new(10 * MIB);
    let one = hasty(&all, 1);
    one.take(6 * MIB).expect("there is room");
    assert_eq!(hasty(&all, 1).take(2 * MIB).expect_err("more than the share").status, 429);
    hasty(&all, 1).take(MIB).expect("within the share");
    hasty(&all, 2).take(4 * MIB).expect("the rest is for others");
    one.take(4 * MIB).expect("alone it may have all");
    assert_eq!((all.left(), all.peak()), (0, 10 * MIB));
}

#[test]
fn where_all_wait_for_each_other_the_last_one_gives_up_at_once() {
    let all = SearchMemory::new(10 * MIB);
    let (one, other) = (patient(&all, 1), patient(&all, 2));
    one.take(5 * MIB).expect("there is room");
    other.take(5 * MIB).expect("there is room");
    thread::scope(|scope| {
        let one = scope.spawn(|| one.take(3 * MIB));
        until_waiting(&all, 1);
        let since = Instant::now();
        let error = other.take(3 * MIB).expect_err("nobody would give anything back");
        assert_eq!((error.status, error.kind), (429, "circuit_breaking_exception"));
        assert!(since.elapsed() < Duration::from_secs(5), "it did not wait for its time: {:?}", since.elapsed());
        drop(other);
        one.join().expect("no panic").expect("it goes on with what the other one had");
    });
    drop(one);
    assert_eq!(all.left(), 10 * MIB);
}

#[test]
fn a_search_that_waits_for_memory_ends_when_it_is_cancelled_and_what_it_holds_beside_is_given_back() {
    let all = SearchMemory::new(10 * MIB);
    let one = patient(&all, 1);
    let mut hold = one.hold(8 * MIB).expect("there is room");
    let cancelled = MemoryPatience::new(Arc::new(AtomicBool::new(true)), None);
    let other = MemoryUse::new(Some(Arc::clone(&all)), u64::MAX).waiting(Some(RoleId(2)), cancelled);
    assert_eq!(other.take(8 * MIB).expect_err("cancelled").kind, crate::error::CANCELLED);
    assert_eq!((one.most_held(), one.used()), (5 * MIB, 0), "it does not count as found");
    hold.keep(2 * MIB);
    assert_eq!(all.left(), 8 * MIB);
    drop(hold);
    assert_eq!(all.left(), 10 * MIB);
}

#[test]
fn a_source_takes_no_more_than_its_text_lets_expect() {
    let values = [
        json!({"a": vec![1; 9]}),
        json!({"a": {"b": {"c": [[], {}, "x,:"]}}}),
        json!({"n": (0..5000).collect::<Vec<_>>()}),
        Value::Object((0..3000).map(|nth| (format!("k{nth}"), json!("v"))).collect()),
    ];
    for value in values {
        let text = value.to_string();
        let Value::Object(object) = serde_json::from_str(&text).expect("JSON") else { panic!("an object") };
        assert!(text.len() + object_bytes(&object) <= source_bytes(text.as_bytes()) + 400, "{text:.60}");
    }
}

#[test]
fn who_waits_for_its_share_waits_on_while_a_search_of_its_role_waits_for_another_role() {
    let all = SearchMemory::new(10 * MIB);
    let (a, b, bob) = (patient(&all, 1), patient(&all, 1), patient(&all, 2));
    a.take(3 * MIB).expect("there is room");
    b.take(3 * MIB).expect("there is room");
    bob.take(4 * MIB).expect("there is room");
    thread::scope(|scope| {
        let first = scope.spawn(move || a.take(MIB));
        until_waiting(&all, 1);
        let second = scope.spawn(move || b.take(2 * MIB));
        until_waiting(&all, 2);
        drop(bob);
        first.join().expect("no panic").expect("bob has ended");
        second.join().expect("no panic").expect("and she has too");
    });
    assert_eq!(all.left(), 10 * MIB);
}

#[test]
fn the_parts_of_a_search_are_one_search_and_never_wait_for_each_other() {
    let all = SearchMemory::new(10 * MIB);
    let part_of = |whole: &MemoryUse, role| patient(&all, role).part_of(whole.number());
    let since = Instant::now();
    let whole = patient(&all, 1);
    whole.take(5 * MIB).expect("there is room");
    let part = part_of(&whole, 1);
    part.take(5 * MIB).expect("alone a search may have all");
    assert_eq!(part.take(MIB).expect_err("only it could give back").status, 429);
    drop(part);
    assert_eq!(all.left(), 5 * MIB, "the whole keeps its own");
    drop(whole);
    let (one, other) = (patient(&all, 1), patient(&all, 2));
    one.take(4 * MIB).expect("there is room");
    other.take(4 * MIB).expect("there is room");
    thread::scope(|scope| {
        let part = part_of(&one, 1);
        let first = scope.spawn(move || part.take(4 * MIB));
        until_waiting(&all, 1);
        let error = part_of(&other, 2).take(4 * MIB).expect_err("both wait for each other's whole");
        assert_eq!((error.status, error.kind), (429, "circuit_breaking_exception"));
        drop(other);
        first.join().expect("no panic").expect("it goes on");
    });
    assert!(since.elapsed() < Duration::from_secs(5), "nobody waited for its time: {:?}", since.elapsed());
    drop(one);
    assert_eq!((all.left(), all.waiting()), (10 * MIB, 0));
}
