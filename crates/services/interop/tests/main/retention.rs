//! What retention removes, what is given up for room, and what stays.

use std::time::Duration;

use interop::record::{self, DeliveryOutcome, Derivation, MessageOrigin};
use interop::rows::prune::{Pruned, Pruner, Retention};
use interop::rows::{Reader, check};
use interop::todo::{TodoChange, TodoNote};
use store::Store;

use crate::rows::{append, deliver, delivery, made_from, message, store};

#[test]
fn retention_removes_what_was_noted_about_a_message_with_it() {
    let store = store();
    let ids = [1, 2].map(|n| append(&store, record::KIND_MESSAGE, &message("C1", "7", n)).0);
    deliver(&store, ids[0]);
    for id in ids {
        TodoNote::change(&store, id, &TodoChange::Take, "ann", 1).expect("it works");
    }
    let mut pruner = Pruner::new(&store, Retention { bytes: 1, age: None }).expect("it reads");
    let removed = pruner.pass((ids[1], 1 << 20), 100, Some(1), &|| false).expect("it works").messages;
    let owners = ids.map(|id| TodoNote::read(&store.snapshot(), id).expect("it reads").owner);
    assert_eq!((removed, owners), (1, [None, Some("ann".to_owned())]));
}

#[test]
fn retention_removes_whole_messages_with_all_their_entries_and_none_that_waits() {
    let store = store();
    let retention = Retention { bytes: 10_000, age: None };
    let mut pruner = Pruner::new(&store, retention).expect("it reads");
    let (mut taken, mut ids) = (0, Vec::new());
    for n in 0..200 {
        let payload = message(&format!("C{n}"), &n.to_string(), n);
        taken += payload.len() as u64;
        let id = append(&store, record::KIND_MESSAGE, &payload).0;
        if n != 3 {
            deliver(&store, id);
        }
        ids.push(id);
        pruner.pass((id, taken), n, None, &|| false).expect("it works");
    }
    let each = taken / 200;
    let left = |store: &Store| -> Vec<u64> {
        let reader = Reader::new(store);
        ids.iter().copied().filter(|id| reader.inbound(*id).expect("it reads").is_some()).collect()
    };
    let kept = left(&store);
    assert_eq!(kept[0], ids[3], "it waits");
    let bytes = (kept.len() as u64 - 1) * each;
    assert!((10_000..12_000).contains(&bytes), "{bytes} bytes are kept of a retention of 10,000");
    assert_eq!(kept[1..], ids[ids.len() - (kept.len() - 1)..], "the newest");
    let report = check::check(&Reader::new(&store)).expect("it reads");
    assert_eq!((report.messages, report.waiting, report.wrong), (kept.len() as u64, 3, 0), "{report:?}");
    // A start counts on from the newest mark.
    let mut pruner = Pruner::new(&store, retention).expect("it reads");
    pruner.pass((0, 0), 200, None, &|| false).expect("it works");
    assert_eq!(left(&store), kept, "nothing came, nothing goes");
    deliver(&store, ids[3]);
    pruner.pass((0, 0), 200, Some(1), &|| false).expect("it works");
    assert_eq!(left(&store), Vec::<u64>::new(), "without room all that is done goes");
    assert_eq!(check::check(&Reader::new(&store)).expect("it reads"), check::Report::default());
}

#[test]
fn what_is_given_up_for_room_is_done_the_oldest_first_and_no_more_than_is_wanted() {
    let store = store();
    let mut newest = 0;
    let ids: Vec<u64> = (0..20)
        .map(|n| {
            newest = append(&store, record::KIND_MESSAGE, &message(&format!("C{n}"), "7", n)).0;
            newest
        })
        .collect();
    let outcome = |id, output, outcome| {
        append(&store, record::KIND_DELIVERIES, &record::encode_deliveries(&[delivery(id, output, outcome)]));
    };
    for id in &ids {
        deliver(&store, *id);
    }
    // The last outcome of an output counts: two need somebody, and of a third something was made since.
    for (n, last) in [(0, DeliveryOutcome::Failed), (3, DeliveryOutcome::SetAside), (5, DeliveryOutcome::Failed)] {
        outcome(ids[n], 0, last);
    }
    let origin = MessageOrigin { id: ids[5], derivation: Derivation::Resent, key: String::new() };
    let resent = append(&store, record::KIND_MESSAGE, &made_from(Some(&origin), "C5", "7", 30)).0;
    let left = || -> Vec<u64> {
        let reader = Reader::new(&store);
        ids.iter().copied().filter(|id| reader.inbound(*id).expect("it reads").is_some()).collect()
    };
    let mut pruner = Pruner::new(&store, Retention { bytes: u64::MAX, age: None }).expect("it reads");
    let rounds = std::cell::Cell::new(0);
    let mut pass = |rounds_max: u32| {
        let enough = || rounds.replace(rounds.get() + 1) >= rounds_max;
        rounds.set(0);
        pruner.pass((resent, 1), 100, Some(1), &enough).expect("it works")
    };
    assert_eq!((pass(0).messages, left()), (0, ids.clone()), "there is room already");
    assert_eq!(pass(4).messages, 4, "one for each look whether it is enough");
    assert_eq!(left(), [&ids[..1], &ids[3..4], &ids[6..]].concat());
    assert_eq!(pass(u32::MAX).held, 1, "the one that waits; those before were looked at");
    assert_eq!(left(), [ids[0], ids[3]]);
    assert_eq!(check::check(&Reader::new(&store)).expect("it reads").wrong, 0);
    // For their age they go as others do.
    let age = Retention { bytes: u64::MAX, age: Some(Duration::from_micros(1)) };
    Pruner::new(&store, age).expect("it reads").pass((resent, 1), 100, None, &|| false).expect("it works");
    assert_eq!(left(), Vec::<u64>::new());
}

#[test]
fn retention_by_age_removes_what_is_older() {
    let store = store();
    let day = 86_400_000_000i64;
    let retention = Retention { bytes: u64::MAX, age: Some(Duration::from_secs(3 * 86_400)) };
    let mut pruner = Pruner::new(&store, retention).expect("it reads");
    let mut newest = 0;
    for n in 0..10 {
        newest = append(&store, record::KIND_MESSAGE, &message(&format!("C{n}"), "7", n * day)).0;
        deliver(&store, newest);
    }
    let pruned = pruner.pass((newest, 1), 10 * day, None, &|| false).expect("it works");
    assert_eq!(pruned.messages, 7, "days 0 to 6; day 7 is just as old as allowed");
    // Imported with the times at which they were received elsewhere: too old, behind young ones.
    for n in 0..3 {
        newest = append(&store, record::KIND_MESSAGE, &message(&format!("I{n}"), "7", n * day)).0;
        if n > 0 {
            deliver(&store, newest);
        }
    }
    let removed = |pruned: Pruned| pruned.messages;
    let passes = (0..60).map(|_| removed(pruner.pass((newest, 1), 10 * day, None, &|| false).expect("it works")));
    assert_eq!(passes.sum::<u64>(), 2, "all but the one that waits");
    assert_eq!(check::check(&Reader::new(&store)).expect("it reads").messages, 4);
}
