//! With programs and files of the test as channels.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{OnceLock, Weak};
use std::time::Instant;

use super::*;

fn until(what: &str, probe: impl Fn() -> bool) {
    let began = Instant::now();
    while !probe() {
        assert!(began.elapsed() < Duration::from_secs(120), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn an_alert_goes_out_by_a_program_once_and_is_kept_over_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("told");
    let text = format!(
        "every = '1s'\n[channels.file]\ncommand = ['/bin/sh', '-c', 'cat >> \"{0}\"; echo >> \"{0}\"']\n[[alert]]\nname = 'still'\nwhen = \
         'suspended'\nchannels = ['file']\n",
        file.display()
    );
    let rules = AlertRules::read(&text).expect("rules");
    let store = Store::in_memory(store::Options::default()).expect("memory");
    let stands = Arc::new(AtomicBool::new(true));
    let told = || std::fs::read_to_string(&file).unwrap_or_default();
    let start = || {
        let (stands, place) = (Arc::clone(&stands), Arc::new(OnceLock::<Weak<AlertKeeper>>::new()));
        let own = Arc::clone(&place);
        let source: Box<crate::Source> = Box::new(move |samples: &mut Samples| {
            samples.flag(table::OPERATION_SUSPENDED, &["lab"], stands.load(Ordering::Relaxed));
            // As a node has it: the keeper's own figures are among those that it looks at.
            if let Some(keeper) = own.get().and_then(Weak::upgrade) {
                keeper.collect(samples);
            }
        });
        let snapshots = Snapshots::new(vec![source]);
        let keeper = AlertKeeper::start(rules.clone(), store.clone(), Clock::system(), snapshots, "n1".to_owned());
        let keeper = keeper.expect("it starts");
        place.set(Arc::downgrade(&keeper)).expect("it is the first");
        keeper
    };
    let keeper = start();
    until("it is told", || told().contains("\"kind\":\"on\"") && keeper.waiting().is_empty());
    keeper.stop();
    let keeper = start();
    let state = keeper.state();
    assert_eq!(state.firing.values().map(|firing| firing.told.len()).sum::<usize>(), 1);
    stands.store(false, Ordering::Relaxed);
    until("its end is told", || told().contains("\"kind\":\"off\""));
    keeper.stop();
    assert_eq!(told().lines().count(), 2, "{}", told());
    let whats: Vec<String> = keeper.history(9).expect("kept").into_iter().map(|note| note.what).collect();
    assert_eq!(whats, ["off", "on"]);
    let mut samples = Samples::default();
    keeper.collect(&mut samples);
    assert_eq!(samples.value("terrace_alerts_firing", &["still"]), Some(0.0));
}

#[test]
fn a_channel_that_hangs_holds_up_no_other_and_its_message_goes_out_after_the_next_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, late) = (folder.path().join("told"), folder.path().join("late"));
    let text = |hangs: &str| {
        let line = |file: &std::path::Path| format!("cat >> \"{0}\"; echo >> \"{0}\"", file.display());
        let text = format!(
            "every = '1s'\n[channels.good]\ncommand = ['/bin/sh', '-c', '{}']\n[channels.bad]\ntimeout = '60s'\ncommand = ['/bin/sh', \
             '-c', '{hangs}{}']\n[[alert]]\nname = 'still'\nwhen = 'suspended'\nchannels = ['bad', 'good']\n",
            line(&file),
            line(&late),
        );
        AlertRules::read(&text).expect("rules")
    };
    let store = Store::in_memory(store::Options::default()).expect("memory");
    let stands = Arc::new(AtomicBool::new(true));
    let start = |rules: AlertRules| {
        let stands = Arc::clone(&stands);
        let source: Box<crate::Source> = Box::new(move |samples: &mut Samples| {
            samples.flag(table::OPERATION_SUSPENDED, &["lab"], stands.load(Ordering::Relaxed));
        });
        let snapshots = Snapshots::new(vec![source]);
        AlertKeeper::start(rules, store.clone(), Clock::system(), snapshots, "n1".to_owned()).expect("it starts")
    };
    let read = |file: &std::path::Path| std::fs::read_to_string(file).unwrap_or_default();
    let keeper = start(text("sleep 50; exit 1; "));
    until("the good one is told of the begin", || read(&file).lines().count() == 1);
    stands.store(false, Ordering::Relaxed);
    until("and of the end", || read(&file).lines().count() == 2);
    until("the good one waits for nothing", || keeper.waiting() == [("bad".to_owned(), 2)].into());
    keeper.stop();
    let keeper = start(text(""));
    until("both are told", || read(&late).lines().count() == 2);
    until("nothing waits", || keeper.waiting().is_empty());
    keeper.stop();
    assert_eq!(read(&file).lines().count(), 2, "the good one is told nothing twice");
    let kinds: Vec<bool> = read(&late).lines().map(|line| line.contains("\"kind\":\"on\"")).collect();
    assert_eq!(kinds, [true, false], "in their order");
}

#[test]
fn a_channel_can_be_tried_and_says_why_it_takes_nothing() {
    let text = "[channels.good]\ncommand = ['/bin/true']\n[channels.bad]\ncommand = ['/bin/false']\n";
    let store = Store::in_memory(store::Options::default()).expect("memory");
    let rules = AlertRules::read(text).expect("rules");
    let keeper = AlertKeeper::start(rules, store, Clock::system(), Snapshots::new(Vec::new()), "n1".to_owned());
    let keeper = keeper.expect("it starts");
    assert_eq!(keeper.test("good"), Ok(()));
    assert!(keeper.test("bad").expect_err("it fails").contains("/bin/false"));
    assert!(keeper.test("none").expect_err("not there").contains("no channel `none`"));
    let silence = |reason: &str| Silence {
        number: 0,
        rule: None,
        subject: None,
        until_us: i64::MAX,
        reason: reason.to_owned(),
        by: "ann".to_owned(),
        at_us: 1,
    };
    for number in 1..=100 {
        assert_eq!(keeper.silence(silence("x")), Ok(number));
    }
    assert!(keeper.silence(silence("one more")).expect_err("too many").contains("too many"));
    assert_eq!((keeper.unsilence(5), keeper.unsilence(5)), (Ok(true), Ok(false)));
    keeper.stop();
}

/// A keeper whose one operation stands still.
fn suspended(rules: &str, store: &Store, clock: Clock) -> Arc<AlertKeeper> {
    let source: Box<crate::Source> =
        Box::new(|samples: &mut Samples| samples.flag(table::OPERATION_SUSPENDED, &["lab"], true));
    let rules = AlertRules::read(rules).expect("rules");
    AlertKeeper::start(rules, store.clone(), clock, Snapshots::new(vec![source]), "n1".to_owned()).expect("it starts")
}

#[test]
fn a_secret_in_a_file_that_nobody_writes_holds_up_no_other_channel_nor_the_stop() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, pipe) = (folder.path().join("told"), folder.path().join("pipe"));
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo is there").success());
    let rules = format!(
        "every = '1s'\n[channels.bad]\nwebhook = 'http://127.0.0.1:9/'\ntoken_file = '{}'\n[channels.good]\ncommand = ['/bin/sh', '-c', 'cat > \
         \"{}\"']\n[[alert]]\nname = 'still'\nwhen = 'suspended'\nchannels = ['bad', 'good']\n",
        pipe.display(),
        file.display()
    );
    let store = Store::in_memory(store::Options::default()).expect("memory");
    let keeper = suspended(&rules, &store, Clock::system());
    until("the good one is told", || keeper.waiting() == [("bad".to_owned(), 1)].into() && file.exists());
    assert!(keeper.test("bad").expect_err("it is no file").contains("no regular file"));
    keeper.stop();
}

#[test]
fn a_message_that_its_channel_refuses_is_given_up_after_an_hour_and_one_without_an_answer_is_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("tries");
    let rules = |answer: &str| {
        format!(
            "every = '1s'\n[channels.duty]\ncommand = ['/bin/sh', '-c', 'echo >> \"{}\"; {answer}']\n[[alert]]\nname = 'still'\nwhen = \
             'suspended'\nchannels = ['duty']\n",
            file.display()
        )
    };
    let tries = || std::fs::read_to_string(&file).unwrap_or_default().lines().count();
    let store = Store::in_memory(store::Options::default()).expect("memory");
    let began_us = 1_000_000_000_000;
    for (answer, minutes, gives_up) in [("exit 3", 0, false), ("kill -9 $$", 61, false), ("exit 3", 62, true)] {
        let (before, clock) = (tries(), Clock::fixed(began_us + minutes * 60_000_000));
        let keeper = suspended(&rules(answer), &store, clock);
        until("it is tried", || tries() > before);
        if gives_up {
            until("it is given up", || keeper.waiting().is_empty());
        }
        assert_eq!(keeper.waiting().is_empty(), gives_up, "{answer} after {minutes} minutes");
        keeper.stop();
        let is_noted = keeper.history(9).expect("kept").iter().any(|note| note.what == "not told");
        assert_eq!(is_noted, gives_up, "{answer} after {minutes} minutes");
    }
}

#[test]
fn what_waits_to_begin_does_not_begin_outside_of_its_hours_and_what_is_on_stays_on() {
    // 1970-01-12, a Monday, at 13:46:40 UTC.
    let (begin_us, hour_us) = (1_000_000_000_000, 3_600_000_000);
    let text = |lasts: &str| {
        format!(
            "[channels.none]\ncommand = ['/bin/true']\n[[alert]]\nname = 'still'\nwhen = 'suspended'\nfor = '{lasts}'\nchannels = \
             ['none']\nschedule = {{ hours = '13-14', zone = 'UTC' }}\n"
        )
    };
    for (lasts, is_on) in [("1m", true), ("1h", false)] {
        let store = Store::in_memory(store::Options::default()).expect("memory");
        let clock = Clock::fixed(begin_us);
        let keeper = suspended(&text(lasts), &store, clock.clone());
        for at_us in [begin_us, begin_us + hour_us / 30, begin_us + 2 * hour_us] {
            clock.set(at_us);
            keeper.shared.look();
        }
        let state = keeper.state();
        assert_eq!(state.firing.values().any(|firing| firing.began_us.is_some()), is_on, "{lasts}: {state:?}");
        assert_eq!(state.firing.is_empty(), !is_on, "{lasts}: {state:?}");
        keeper.stop();
    }
}
