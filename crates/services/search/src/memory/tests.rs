//! Counts of memory: of values, of one search, and of all, with the turns of those that wait.

use serde_json::json;

use super::*;

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
