//! Rewriting across ends of the node, its file, and what cannot be rewritten.

use std::sync::atomic::{AtomicUsize, Ordering};

use encryption::Sealer;
use journal::Options as JournalOptions;
use store::Options;

use super::*;
use crate::audit::{AuditRows, AuditSettings, KIND_AUDIT};
use crate::{Clock, Interpreters};

fn store(is_encrypted: bool) -> Store {
    let interpreter = Interpreters::of(vec![(&[KIND_AUDIT], Arc::new(AuditRows))]);
    let sealer = is_encrypted.then(|| Sealer::for_tests(1, 1, 0));
    let journal =
        JournalOptions { segment_bytes: 64 << 10, buffer_bytes: 16 << 10, sealer, ..JournalOptions::default() };
    let options = Options { interpreter: Some(Arc::new(interpreter)), journal, ..Options::default() };
    Store::in_memory(options).expect("there is memory")
}

fn start(data: &Path, store: &Store, files: Box<OtherFiles>) -> Arc<Rewriting> {
    let audit = Audit::open(store, AuditSettings::default(), Clock::fixed(9));
    let (rewriting, begun) = Rewriting::start(data, store, &audit, Clock::fixed(9), files);
    begun.expect("it begins");
    rewriting
}

/// Index files that never end until the node does.
fn endless() -> Box<OtherFiles> {
    Box::new(|_, on_bytes| {
        while on_bytes(1 << 20).is_continue() {}
        Ok(ControlFlow::Break(()))
    })
}

fn ended(rewriting: &Rewriting) -> RewriteStatus {
    loop {
        let status = rewriting.handle(RewriteRequest::Status).expect("it answers").expect("there is one");
        if status.state != RewriteState::Running {
            return status;
        }
        std::thread::yield_now();
    }
}

const START: RewriteRequest = RewriteRequest::Start { bytes_per_second: 1 << 30, drops_kept_journal: false };

#[test]
fn what_the_end_of_a_node_interrupts_goes_on_at_the_next_start_and_what_a_request_ends_does_not() {
    let (data, store) = (tempfile::tempdir().expect("a folder"), store(true));
    store.sealer().expect("it is encrypted").begin_data_key_for_tests(2, 2);
    let first = start(data.path(), &store, endless());
    assert_eq!(first.handle(RewriteRequest::Status).expect("it answers"), None);
    assert!(matches!(first.handle(RewriteRequest::Stop), Err(NodeError::Refused(_))));
    let slow = RewriteRequest::Start { bytes_per_second: 1, drops_kept_journal: false };
    assert!(matches!(first.handle(slow), Err(NodeError::Refused(_))));
    let begun = first.handle(START).expect("it begins").expect("there is one");
    assert_eq!((begun.state, begun.data_key), (RewriteState::Running, 2));
    first.end();
    assert_eq!(recorded(data.path()).expect("it reads").expect("it is there").state, RewriteState::Running);

    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let files: Box<OtherFiles> = Box::new(move |data_key, _| {
        assert_eq!(data_key, 2);
        counted.fetch_add(1, Ordering::Relaxed);
        Ok(ControlFlow::Continue(()))
    });
    let second = start(data.path(), &store, files);
    assert_eq!((ended(&second).state, calls.load(Ordering::Relaxed)), (RewriteState::Complete, 1));
    drop(second);
    let third = start(data.path(), &store, endless());
    assert_eq!(ended(&third).state, RewriteState::Complete, "it does not begin again");
    third.handle(START).expect("it begins");
    assert_eq!(third.handle(RewriteRequest::Stop).expect("it stops").expect("one").state, RewriteState::Stopped);
    drop(third);
    assert_eq!(ended(&start(data.path(), &store, endless())).state, RewriteState::Stopped);
}

#[test]
fn what_cannot_be_rewritten_is_told_with_the_reason_and_a_clear_store_refuses() {
    let (data, store) = (tempfile::tempdir().expect("a folder"), store(true));
    store.sealer().expect("it is encrypted").begin_data_key_for_tests(2, 2);
    let rewriting = start(data.path(), &store, Box::new(|_, _| Err("index i is red".to_owned())));
    rewriting.handle(START).expect("it begins");
    let status = ended(&rewriting);
    assert!(status.state == RewriteState::Failed && status.why.is_some_and(|why| why.contains("index i is red")));
    assert!(status.pages > 0, "all else was looked at");
    let clear = start(tempfile::tempdir().expect("a folder").path(), &self::store(false), endless());
    assert!(matches!(clear.handle(START), Err(NodeError::Refused(_))));
    std::fs::write(data.path().join(FILE), b"{}").expect("written");
    assert!(matches!(recorded(data.path()), Err(NodeError::Refused(_))));
}

#[test]
fn one_that_has_failed_keeps_its_place_and_goes_on_there_unless_all_of_the_store_is_done() {
    let (data, store) = (tempfile::tempdir().expect("a folder"), store(true));
    store.sealer().expect("it is encrypted").begin_data_key_for_tests(2, 2);
    let rewriting = start(data.path(), &store, Box::new(|_, _| Err("index i is red".to_owned())));
    let place = RewritePlace { data_key: 2, tree: 1001, key: b"k".to_vec(), pages: 7 };
    let shown = || rewriting.shared.lock().record.clone().expect("there is one").place;
    rewriting.handle(START).expect("it begins");
    assert_eq!(ended(&rewriting).state, RewriteState::Failed);
    assert_eq!(shown(), None, "the store was done: the next one begins anew");
    for state in [RewriteState::Failed, RewriteState::Stopped, RewriteState::Complete] {
        rewriting.shared.lock().record.as_mut().expect("there is one").place = Some(place.clone());
        rewriting.shared.ended(state, Some("a page is damaged".to_owned()));
        let kept = (state != RewriteState::Complete).then(|| place.clone());
        assert_eq!(shown(), kept, "{state:?}");
        let file = read(data.path()).expect("it reads").expect("it is there");
        assert_eq!(file.place.is_some(), kept.is_some(), "{state:?}");
        let again = start(data.path(), &store, endless());
        let record = again.shared.lock().record.clone().expect("there is one");
        assert_eq!(record.place, kept);
        again.handle(START).expect("it begins");
        assert_eq!(again.shared.options().from, kept, "{state:?}: where it begins");
        again.handle(RewriteRequest::Stop).expect("it stops");
    }
}

#[test]
fn the_first_reason_to_end_counts_and_another_rate_ends_the_pause_of_the_one_before() {
    let (data, store) = (tempfile::tempdir().expect("a folder"), store(true));
    store.sealer().expect("it is encrypted").begin_data_key_for_tests(2, 2);
    // At the least rate it would be two hours.
    let once: Box<OtherFiles> = Box::new(|_, on_bytes| Ok(on_bytes(1 << 30)));
    let rewriting = start(data.path(), &store, once);
    let slow = RewriteRequest::Start { bytes_per_second: BYTES_PER_SECOND_MIN, drops_kept_journal: false };
    rewriting.handle(slow).expect("it begins");
    while rewriting.handle(RewriteRequest::Status).expect("it answers").expect("there is one").file_bytes == 0 {
        std::thread::yield_now();
    }
    rewriting
        .handle(RewriteRequest::Start { bytes_per_second: 1 << 40, drops_kept_journal: false })
        .expect("it is changed");
    assert_eq!(ended(&rewriting).state, RewriteState::Complete);
    drop(rewriting);

    let rewriting = start(data.path(), &store, endless());
    for (first, then, state) in
        [(End::Node, End::Request, RewriteState::Running), (End::Request, End::Node, RewriteState::Stopped)]
    {
        rewriting.handle(START).expect("it begins");
        rewriting.shared.lock().end = Some(first);
        rewriting.join(then);
        let status = rewriting.handle(RewriteRequest::Status).expect("it answers").expect("there is one");
        assert_eq!(status.state, state, "{first:?}, then {then:?}");
        // As the next start does.
        rewriting.shared.lock().end = None;
        if state == RewriteState::Running {
            rewriting.begin().expect("it goes on");
        }
    }
    rewriting.end();
    assert!(matches!(rewriting.handle(START), Err(NodeError::Stopping)), "nothing begins any more");
}

#[test]
fn the_key_of_a_place_is_not_in_the_file_and_one_of_another_store_is_not_taken() {
    let sealer = Sealer::for_tests(1, 1, 0);
    let place = RewritePlace { data_key: 1, tree: 1001, key: b"QUIXANDRIA".to_vec(), pages: 7 };
    let sealed = SealedPlace::of(&place, &sealer);
    assert!(!sealed.key.windows(4).any(|part| part == b"QUIX"));
    assert_eq!(sealed.clone().open(&sealer), Some(place));
    assert_eq!(sealed.open(&Sealer::for_tests(2, 1, 0)), None);
}
