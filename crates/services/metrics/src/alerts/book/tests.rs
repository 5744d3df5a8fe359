//! Events minute by minute, and any sequence of them.

use super::*;

const MINUTE: i64 = 60_000_000;

fn book() -> AlertBook {
    let rules = AlertRules::read(
        "[channels.duty]\nwebhook = 'https://a/'\n[channels.chief]\nwebhook = 'https://b/'\n[[alert]]\nname = 'old'\nwhen = \
         'queue_age > 5m'\nfor = '2m'\nchannels = ['duty']\nescalate = { after = '30m', channels = ['chief'] }\n",
    );
    AlertBook::new(Arc::new(rules.expect("rules")), AlertState::default(), BTreeMap::new())
}

fn key() -> AlertKey {
    AlertKey { rule: "old".to_owned(), subject: "lab".to_owned() }
}

/// Whom it tells what at a minute; they take it at once.
fn look(book: &mut AlertBook, minute: i64, holds: bool) -> Vec<String> {
    let found = holds.then(|| (key(), "waits".to_owned())).into_iter().collect();
    let actions = book.apply(AlertEvent::Looked(found), minute * MINUTE);
    taken(book, &actions, minute);
    sent(&actions)
}

fn taken(book: &mut AlertBook, actions: &[AlertAction], minute: i64) {
    for action in actions {
        if let AlertAction::Tell(outgoing) = action {
            let id = outgoing.notice.id;
            let done = book.apply(AlertEvent::Done(id, None), minute * MINUTE);
            assert_eq!(done, [AlertAction::Drop(id)]);
        }
    }
}

fn sent(actions: &[AlertAction]) -> Vec<String> {
    let line = |action: &AlertAction| match action {
        AlertAction::Tell(Outgoing { channel, notice }) => Some(format!("{channel} {:?}", notice.kind)),
        AlertAction::Drop(_) | AlertAction::Note(_) | AlertAction::Save => None,
    };
    actions.iter().filter_map(line).collect()
}

fn silence(until_minute: i64) -> AlertEvent {
    AlertEvent::Silenced(Silence {
        number: 0,
        rule: Some("old".to_owned()),
        subject: None,
        until_us: until_minute * MINUTE,
        reason: "work on the line".to_owned(),
        by: "ann".to_owned(),
        at_us: 0,
    })
}

#[test]
fn one_message_when_it_begins_and_one_when_it_is_over_however_often_it_is_looked_at() {
    let mut book = book();
    let mut all = Vec::new();
    for minute in 0..20 {
        all.extend(look(&mut book, minute, (1..15).contains(&minute)).into_iter().map(|line| (minute, line)));
    }
    assert_eq!(all, [(3, "duty On".to_owned()), (15, "duty Off".to_owned())]);
    // What holds for too short is never told.
    assert!((20..22).all(|minute| look(&mut book, minute, true).is_empty()) && look(&mut book, 22, false).is_empty());
}

#[test]
fn one_that_lasts_is_escalated_once_and_all_who_were_told_hear_of_its_end() {
    let mut book = book();
    let mut all = Vec::new();
    for minute in 0..60 {
        all.extend(look(&mut book, minute, minute < 50).into_iter().map(|line| (minute, line)));
    }
    let expected = [(2, "duty On"), (32, "chief Escalated"), (50, "duty Off"), (50, "chief Off")];
    assert_eq!(all, expected.map(|(minute, line)| (minute, line.to_owned())));
}

#[test]
fn what_is_silenced_is_told_when_the_silence_is_over_if_it_still_holds() {
    let mut book = book();
    assert!(sent(&book.apply(silence(10), 0)).is_empty());
    let all: Vec<_> = (0..12).flat_map(|minute| look(&mut book, minute, true)).collect();
    assert_eq!(all, ["duty On"]);
    assert!(book.state().silences.is_empty(), "it is over");
    // Who was told hears of the end, silenced or not.
    let number = book.state().last_silence + 1;
    book.apply(silence(100), 12 * MINUTE);
    assert_eq!(look(&mut book, 13, false), ["duty Off"]);
    book.apply(AlertEvent::Unsilenced(number), 14 * MINUTE);
    assert!(book.state().silences.is_empty());
}

#[test]
fn a_restart_tells_nothing_again_and_a_rule_that_is_gone_ends() {
    let mut book = book();
    let all: Vec<_> = (0..5).flat_map(|minute| look(&mut book, minute, true)).collect();
    assert_eq!(all, ["duty On"]);
    let kept = serde_json::to_string(book.state()).expect("JSON");
    let mut again =
        AlertBook::new(Arc::clone(&book.rules), serde_json::from_str(&kept).expect("the same"), BTreeMap::new());
    assert_eq!(again.state(), book.state());
    assert!(look(&mut again, 6, true).is_empty());
    let nothing = book.apply(AlertEvent::Looked([(key(), "waits".to_owned())].into()), 5 * MINUTE);
    assert!(nothing.is_empty(), "nothing is written where nothing has changed: {nothing:?}");
    again.replace(Arc::default());
    assert_eq!(look(&mut again, 7, false), ["duty Off"]);
}

#[test]
fn through_any_sequence_who_was_told_of_a_begin_is_told_of_one_end() {
    for seed in 0..200 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut book, mut open) = (book(), BTreeMap::<String, i32>::new());
        for minute in 0..300 {
            let event = match random.u8(0..20) {
                0 => silence(minute + i64::from(random.u8(1..40))),
                1 => AlertEvent::Unsilenced(random.u64(0..=book.state().last_silence)),
                _ => {
                    let holds = random.u8(0..12) > 0;
                    AlertEvent::Looked(holds.then(|| (key(), "waits".to_owned())).into_iter().collect())
                }
            };
            let actions = book.apply(event, minute * MINUTE);
            taken(&mut book, &actions, minute);
            for action in actions {
                let AlertAction::Tell(Outgoing { channel, notice }) = action else { continue };
                let count = open.entry(channel).or_default();
                *count += if notice.kind == NoticeKind::Off { -1 } else { 1 };
                assert!((0..=1).contains(count), "seed {seed}, minute {minute}: {notice:?}");
            }
        }
        look(&mut book, 301, false);
        assert!(book.state().firing.is_empty(), "seed {seed}");
    }
}

#[test]
fn an_escalation_for_which_there_is_no_room_is_told_once_there_is_and_only_once() {
    let mut book = book();
    let holds: BTreeMap<_, _> = [(key(), "waits".to_owned())].into();
    let minute =
        |book: &mut AlertBook, minute: i64| sent(&book.apply(AlertEvent::Looked(holds.clone()), minute * MINUTE));
    minute(&mut book, 0);
    assert_eq!(minute(&mut book, 2), ["duty On"]);
    for id in 1_000..1_000 + WAITING_MAX as u64 {
        let mut outgoing = book.outgoing.values().next().expect("one waits").clone();
        (outgoing.channel, outgoing.notice.id) = ("chief".to_owned(), id);
        book.outgoing.insert(id, outgoing);
    }
    assert!(minute(&mut book, 33).is_empty() && !book.state().firing[&key()].is_escalated);
    book.apply(AlertEvent::Done(1_000, None), 34 * MINUTE);
    assert_eq!(minute(&mut book, 35), ["chief Escalated"]);
    assert!(minute(&mut book, 36).is_empty() && book.state().firing[&key()].is_escalated);
}

#[test]
fn a_channel_that_takes_nothing_holds_a_bounded_number_of_messages_and_hears_of_the_rest_once_it_does() {
    let mut book = book();
    let subject = |n: usize| AlertKey { rule: "old".to_owned(), subject: format!("lab{n}") };
    let holds: BTreeMap<_, _> = (0..80).map(|n| (subject(n), "waits".to_owned())).collect();
    book.apply(AlertEvent::Looked(holds.clone()), 0);
    book.apply(AlertEvent::Looked(holds.clone()), 3 * MINUTE);
    assert_eq!(book.outgoing().len(), WAITING_MAX);
    let ids: Vec<u64> = book.outgoing().keys().copied().collect();
    ids.iter().for_each(|id| _ = book.apply(AlertEvent::Done(*id, None), 4 * MINUTE));
    let more = sent(&book.apply(AlertEvent::Looked(holds), 5 * MINUTE));
    assert_eq!(more, vec!["duty On".to_owned(); 80 - WAITING_MAX]);
    // Given up, it is noted; its end is told all the same.
    let id = *book.outgoing().keys().next().expect("one waits");
    let noted = book.apply(AlertEvent::Done(id, Some("no answer".to_owned())), 6 * MINUTE);
    let AlertAction::Note(note) = &noted[1] else { panic!("{noted:?}") };
    assert_eq!((&note.what[..], &note.text[..]), ("not told", "duty: no answer"));
    let over = book.apply(AlertEvent::Looked(BTreeMap::new()), 7 * MINUTE);
    let missed = over.iter().filter(|action| matches!(action, AlertAction::Note(note) if note.what == "not told"));
    assert_eq!(sent(&over).len() + missed.count(), 80);
}
