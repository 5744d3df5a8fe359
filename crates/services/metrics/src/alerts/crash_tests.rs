//! The power fails at every moment: no message that was to go out is lost, and none that was taken goes out again.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::CrashShelf;

use super::book::{AlertBook, AlertEvent, AlertKey, AlertState, Silence};
use super::kept::{AlertChange, KeptAlerts};
use super::rules::AlertRules;
use crate::crash_bed::{after_each_crash, open};

const MINUTE: i64 = 60_000_000;

fn event(step: i64, book: &AlertBook) -> AlertEvent {
    let oldest = book.outgoing().keys().next().copied();
    let holds = |lanes: std::ops::Range<i64>| {
        let key = |lane: i64| AlertKey { rule: "old".to_owned(), subject: format!("lab{lane}") };
        AlertEvent::Looked(lanes.map(|lane| (key(lane), "waits".to_owned())).collect())
    };
    match step % 6 {
        0 => holds(0..2),
        1 | 4 => oldest.map_or(holds(0..3), |id| AlertEvent::Done(id, None)),
        2 => oldest.map_or(holds(1..3), |id| AlertEvent::Done(id, Some("no answer".to_owned()))),
        3 => holds(1..4),
        _ => AlertEvent::Silenced(Silence {
            number: 0,
            rule: None,
            subject: Some("lab9".to_owned()),
            until_us: (step + 4) * MINUTE,
            reason: "a test".to_owned(),
            by: "ann".to_owned(),
            at_us: step * MINUTE,
        }),
    }
}

#[test]
fn after_a_power_failure_at_any_point_no_message_is_lost_and_none_that_was_taken_goes_out_again() {
    let rules = AlertRules::read(
        "[channels.duty]\nwebhook = 'https://a/'\n[[alert]]\nname = 'old'\nwhen = 'queue_age > 5m'\nchannels = ['duty']\n",
    );
    let shelf = Arc::new(CrashShelf::new(35));
    let store = open(&shelf);
    let kept = KeptAlerts::of(store.clone());
    let mut book = AlertBook::new(Arc::new(rules.expect("rules")), AlertState::default(), BTreeMap::new());
    let mut states = vec![(AlertState::default(), BTreeMap::new())];
    let mut acknowledged = vec![shelf.operations()];
    for step in 0..40 {
        let event = event(step, &book);
        let actions = book.apply(event, step * MINUTE);
        let change = AlertChange::of(&actions, book.state());
        if change.is_empty() {
            continue;
        }
        kept.write(&change).expect("it is written");
        if step == 20 {
            store.checkpoint().expect("it is written");
        }
        states.push((book.state().clone(), book.outgoing().clone()));
        acknowledged.push(shelf.operations());
    }
    assert!(states.len() > 25, "{} changes are too few", states.len());
    after_each_crash(&shelf, &acknowledged, |store, least, image| {
        let found = KeptAlerts::of(store).state().expect("it is read");
        let at = states.iter().rposition(|state| *state == found);
        let at = at.unwrap_or_else(|| panic!("{image}: {found:?} is no state that there was"));
        assert!(at + 1 >= least, "{image}: state {at} is older than what was acknowledged, {least}");
    });
}
