//! Messages as rows of the store: the bytes of each tree, what a list finds by them, retention, and the check of all of it.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hl7::Piece;
use interop::fuzzing;
use interop::history::{Filter, OutputState};
use interop::record::search::SearchKeys;
use interop::record::{self, Delivery, DeliveryOutcome, Derivation, Head, MessageOrigin, Status, Switch, Writer};
use interop::rows::prune::{Pruner, Retention};
use interop::rows::{Ids, Reader, Rows, TREES, Wanted, check, object_key};
use node::Clock;
use node::trouble::Matter;
use store::{Direction, KEY_BYTES_MAX, Lsn, Options, Store, StoreError, VALUE_BYTES_MAX};

use crate::receiver::{Accepting, Down};
use crate::rig::{Rig, adt, keyed, until};

pub(crate) fn store() -> Store {
    Store::in_memory(Options { interpreter: Some(Arc::new(Rows)), ..Options::default() }).expect("memory")
}

pub(crate) fn append(store: &Store, kind: u8, payload: &[u8]) -> Lsn {
    let lsn = store.append(kind, payload.to_vec()).expect("there is room");
    store.commit(lsn).expect("it works");
    store.wait_visible(lsn).expect("it works");
    lsn
}

/// A message with an output as received, one with pieces, one whole.
pub(crate) fn message(id: &str, number: &str, received_us: i64) -> Vec<u8> {
    made_from(None, id, number, received_us)
}

/// The same, made from a stored one.
pub(crate) fn made_from(origin: Option<&MessageOrigin>, id: &str, number: &str, received_us: i64) -> Vec<u8> {
    let raw = Bytes::from(format!("MSH|^~\\&|A|B|||1||ADT^A01^ADT_A01|{id}|P|2.5\rPID|1||{number}~8^^^X\r"));
    let head = Head {
        status: Status::Routed,
        duplicate: false,
        origin,
        received_us,
        generation: 7,
        service: "in",
        charset: None,
        reason: "main: all",
    };
    let mut writer = Writer::new(&head, &raw);
    writer.pieces("one", "", raw.len(), [Piece::Original(0..raw.len())].into_iter());
    let changed = Bytes::from([b"MSH|^~\\&|Z", &raw[10..]].concat());
    let pieces = [Piece::Original(0..9), Piece::New(b"Z"), Piece::Original(10..raw.len())];
    writer.pieces("two", "t", changed.len(), pieces.into_iter());
    writer.whole("one", "u", |out| out.extend_from_slice(&changed));
    writer.finish().to_vec()
}

pub(crate) fn delivery(id: u64, output: u16, outcome: DeliveryOutcome) -> Delivery {
    let by = if outcome == DeliveryOutcome::SetAside { "ann".to_owned() } else { String::new() };
    Delivery { id, output, outcome, at_us: 1_700_000_000_000_002, detail: "AA".to_owned(), by }
}

pub(crate) fn deliver(store: &Store, id: u64) {
    let outcomes = [0, 1, 2].map(|output| delivery(id, output, DeliveryOutcome::Delivered));
    append(store, record::KIND_DELIVERIES, &record::encode_deliveries(&outcomes));
}

fn dump(store: &Store) -> String {
    let mut out = String::new();
    let snapshot = store.snapshot();
    for (name, tree) in TREES.iter().zip(store.interpreted()) {
        writeln!(out, "{name}").expect("a text grows");
        let all = (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
        let mut cursor = snapshot.scan(*tree, all.0, all.1, Direction::Forward);
        while let Some((key, value)) = cursor.next().expect("it reads") {
            writeln!(out, "  {} = {}", key.escape_ascii(), value.escape_ascii()).expect("a text grows");
        }
    }
    out
}

#[test]
fn a_record_whose_rows_the_store_would_not_take_is_refused_before_it_is_appended() {
    let journal = journal::Options { max_record_bytes: journal::RECORD_BYTES_LIMIT, ..journal::Options::default() };
    let options = Options { journal, interpreter: Some(Arc::new(Rows)), ..Options::default() };
    let store = Store::in_memory(options).expect("memory");
    let begin = store.appended();
    let refused = |kind, payload: &[u8]| match store.append(kind, payload.to_vec()) {
        Err(StoreError::Refused(why)) => why.to_string(),
        other => panic!("kind {kind}, {} bytes: {other:?}", payload.len()),
    };
    let switch =
        |operation: String| Switch { operation, suspended: true, until_us: None, at_us: 3, reason: String::new() };
    let whole = [
        (record::KIND_MESSAGE, message("C1", "7", 1)),
        (record::KIND_DELIVERIES, record::encode_deliveries(&[delivery(1, 0, DeliveryOutcome::Delivered)])),
        (record::KIND_OPERATION, record::encode_switch(&switch("one".to_owned()))),
    ];
    for (kind, payload) in &whole {
        (0..payload.len()).for_each(|cut| assert!(!refused(*kind, &payload[..cut]).is_empty()));
    }
    refused(9, b"nobody's");
    // The engine writes no such name: it cuts them shorter.
    let name = vec![b'o'; KEY_BYTES_MAX + 1];
    let length = (name.len() as u16).to_le_bytes();
    refused(record::KIND_OPERATION, &[&[1; 9][..], &length, &name, &[0, 0]].concat());
    let (small, large) = (Bytes::from_static(b"MSH|^~\\&|A"), Bytes::from(vec![b'x'; VALUE_BYTES_MAX]));
    for (raw, body) in [(&large, None), (&small, Some(&large))] {
        let (service, reason) = ("in", "main: all");
        let head = Head {
            status: Status::Routed,
            duplicate: false,
            origin: None,
            received_us: 1,
            generation: 7,
            service,
            charset: None,
            reason,
        };
        let mut writer = Writer::new(&head, raw);
        if let Some(body) = body {
            writer.whole("one", "", |out| out.extend_from_slice(body));
        }
        let why = refused(record::KIND_MESSAGE, &writer.finish());
        assert!(why.contains("has at most 67108864 bytes"), "{why}");
    }
    assert_eq!(store.appended(), begin, "nothing was appended");
    for (kind, payload) in &whole {
        append(&store, *kind, payload);
    }
}

#[test]
fn the_keys_and_values_of_each_tree_are_those_of_version_1() {
    let store = store();
    let id = append(&store, record::KIND_MESSAGE, &message("C1", "7", 1_700_000_000_000_001));
    let outcomes = [delivery(id.0, 0, DeliveryOutcome::Delivered), delivery(id.0, 2, DeliveryOutcome::Failed)];
    append(&store, record::KIND_DELIVERIES, &record::encode_deliveries(&outcomes));
    let origin = MessageOrigin { id: id.0, derivation: Derivation::Reprocessed, key: "k1".to_owned() };
    let again = append(&store, record::KIND_MESSAGE, &made_from(Some(&origin), "C1", "7", 1_700_000_000_000_009));
    let aside = [delivery(again.0, 1, DeliveryOutcome::SetAside)];
    append(&store, record::KIND_DELIVERIES, &record::encode_deliveries(&aside));
    let reason = "by ann".to_owned();
    let switch = Switch { operation: "one".to_owned(), suspended: true, until_us: None, at_us: 3, reason };
    append(&store, record::KIND_OPERATION, &record::encode_switch(&switch));
    let found = dump(&store);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/rows.txt");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, &found).expect("the golden directory is there");
    }
    let expected = std::fs::read_to_string(path).unwrap_or_default();
    assert_eq!(found, expected, "if that is meant, it needs another version: UPDATE=1 cargo test -p interop rows");
}

#[test]
fn a_message_reads_back_from_its_rows_as_from_its_record() {
    let store = store();
    let payload = message("C1", "7", 5);
    let id = append(&store, record::KIND_MESSAGE, &payload).0;
    let reader = Reader::new(&store);
    assert_eq!(reader.message(id).expect("it is there"), record::decode_message(&payload.into()).expect("ours"));
    assert_eq!(reader.pending().expect("it reads").remove(&id).expect("it waits").len(), 3);
    deliver(&store, id);
    let reader = Reader::new(&store);
    assert!(reader.pending().expect("it reads").is_empty());
    assert_eq!(reader.outcomes(id).expect("they read").len(), 3);
    let report = check::check(&reader).expect("it reads");
    assert_eq!((report.messages, report.outputs, report.waiting, report.wrong), (1, 3, 0, 0), "{report:?}");
    assert_eq!(report.entries, 1 + 1 + 2 + 1 + 3, "time, control, two numbers, type, service and two operations");
}

#[test]
fn messages_read_in_a_walk_are_those_that_are_looked_up_and_what_is_missing_ends_it() {
    let store = store();
    let mut ids = Vec::new();
    for n in 0..300_i64 {
        let id = append(&store, record::KIND_MESSAGE, &message(&format!("C{n}"), "7", n)).0;
        match n % 3 {
            0 => deliver(&store, id),
            1 => {
                let failed = record::encode_deliveries(&[delivery(id, 1, DeliveryOutcome::Failed)]);
                append(&store, record::KIND_DELIVERIES, &failed);
            }
            _ => {}
        }
        ids.push(id);
    }
    let reader = Reader::new(&store);
    let walked = |reader: &Reader, wanted| {
        let mut walk = reader.walk(Ids::ALL, wanted);
        let mut all = Vec::new();
        while let Some(message) = walk.next()? {
            all.push(message);
        }
        Ok::<_, interop::InteropError>(all)
    };
    for (outputs, outcomes) in [(false, false), (true, false), (false, true), (true, true)] {
        let wanted = Wanted { outputs, outcomes };
        let all = walked(&reader, wanted).expect("it reads");
        assert_eq!(all.len(), ids.len());
        for (id, found) in ids.iter().zip(all) {
            let read = reader.read(*id, wanted).expect("it reads").expect("it is there");
            assert_eq!((found.id, &found.stored, &found.outcomes), (*id, &read.stored, &read.outcomes));
            assert_eq!(found.stored.outputs.len(), if outputs { 3 } else { 0 });
        }
    }
    // An output, and a message whose outputs are left.
    let tree = store.interpreted()[0];
    for (object, seen_without_outputs) in [(2, ids.len()), (0, ids.len() - 1)] {
        let mut transaction = store.begin();
        transaction.delete(tree, &object_key(ids[7], object)).expect("a change");
        transaction.commit().expect("it works");
        let reader = Reader::new(&store);
        let error = walked(&reader, Wanted { outputs: true, outcomes: true }).expect_err("it is not passed over");
        assert!(error.to_string().contains(&ids[7].to_string()), "{error}");
        assert_eq!(walked(&reader, Wanted::default()).expect("it reads").len(), seen_without_outputs);
    }
}

#[test]
fn a_check_finds_what_is_missing_and_what_is_left_over() {
    for (tree, name) in TREES.iter().enumerate().filter(|(_, name)| !["hl7.operations", "hl7.marks"].contains(name)) {
        let store = store();
        let id = append(&store, record::KIND_MESSAGE, &message("C1", "7", 5)).0;
        append(
            &store,
            record::KIND_DELIVERIES,
            &record::encode_deliveries(&[delivery(id, 0, DeliveryOutcome::Failed)]),
        );
        assert_eq!(check::check(&Reader::new(&store)).expect("it reads").wrong, 0);
        let tree = store.interpreted()[tree];
        let mut transaction = store.begin();
        let all = (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
        let (key, _) = transaction.scan(tree, all.0, all.1, Direction::Forward).next().expect("it reads").expect("one");
        transaction.delete(tree, &key).expect("a change");
        transaction.commit().expect("it works");
        let gone = check::check(&Reader::new(&store)).expect("it reads").wrong;
        assert!(gone > 0, "an entry of {name} is gone");
        let mut transaction = store.begin();
        transaction.put(tree, &[&key[..key.len() - 9], &[0xee; 9]].concat(), b"").expect("a change");
        transaction.commit().expect("it works");
        assert!(check::check(&Reader::new(&store)).expect("it reads").wrong > gone, "{name} has one too many");
    }
}

#[test]
fn what_was_made_from_a_message_is_found_by_it_and_its_entry_goes_with_the_new_one() {
    let store = store();
    let first = append(&store, record::KIND_MESSAGE, &message("C1", "7", 5)).0;
    let made = |derivation, key: &str| {
        let origin = MessageOrigin { id: first, derivation, key: key.to_owned() };
        let id = append(&store, record::KIND_MESSAGE, &made_from(Some(&origin), "C1", "7", 6)).0;
        deliver(&store, id);
        id
    };
    let (resent, under, other) = (
        made(Derivation::Resent, ""),
        made(Derivation::Reprocessed, "key"),
        made(Derivation::Reprocessed, "key of another"),
    );
    let reader = Reader::new(&store);
    let ids = |reader: &Reader, max| -> Vec<u64> {
        reader.derived_from(first, max).expect("it reads").iter().map(|link| link.id).collect()
    };
    assert_eq!((ids(&reader, 9), ids(&reader, 1)), (vec![resent, under, other], vec![other]));
    assert_eq!(reader.derived_from(resent, 9).expect("it reads"), []);
    for (key, expected) in [("key", Some(under)), ("key of another", Some(other)), ("ke", None), ("key of", None)] {
        assert_eq!(reader.derived_under(first, key).expect("it reads"), expected, "{key}");
    }
    assert_eq!(check::check(&reader).expect("it reads").wrong, 0);
    // The first one waits and stays; the others are done and go, with their entries.
    let retention = Retention { bytes: 1, age: None };
    let mut pruner = Pruner::new(&store, retention).expect("it reads");
    let removed = pruner.pass((other, 1 << 20), 100, Some(1), &|| false).expect("it works").messages;
    let reader = Reader::new(&store);
    assert_eq!((removed, ids(&reader, 9)), (3, vec![]));
    assert_eq!(check::check(&reader).expect("it reads").wrong, 0);
}

#[test]
fn outputs_that_were_set_aside_are_found_and_a_check_finds_what_is_missing_of_them() {
    let store = store();
    let id = append(&store, record::KIND_MESSAGE, &message("C1", "7", 5)).0;
    let outcomes = record::encode_deliveries(&[delivery(id, 1, DeliveryOutcome::SetAside)]);
    append(&store, record::KIND_DELIVERIES, &outcomes);
    let reader = Reader::new(&store);
    let outcome = reader.outcomes(id).expect("it reads").remove(0);
    assert_eq!((outcome.outcome, outcome.by.as_str()), (DeliveryOutcome::SetAside, "ann"));
    assert_eq!(reader.with_set_aside_output(Direction::Forward).next().expect("it reads"), Some(id));
    assert_eq!(reader.with_failed_output(Direction::Forward).next().expect("it reads"), None);
    assert_eq!(reader.pending().expect("it reads")[&id].len(), 2);
    assert_eq!(check::check(&reader).expect("it reads").wrong, 0);
    let tree = reader.trees().by_state;
    let mut transaction = store.begin();
    transaction.delete(tree, &[&[253][..], &id.to_be_bytes()].concat()).expect("a change");
    transaction.commit().expect("it works");
    assert_eq!(check::check(&Reader::new(&store)).expect("it reads").wrong, 1);
}

#[test]
fn a_check_finds_search_keys_that_are_not_those_of_the_bytes() {
    let raw = b"MSH|^~\\&|A|B|||1||ADT^A01|C1|P|2.5\r";
    let (status, received_us) = (Status::Dropped, 5);
    let head = Head {
        status,
        duplicate: false,
        origin: None,
        received_us,
        generation: 7,
        service: "in",
        charset: None,
        reason: "",
    };
    let wrong_of = |keyed_by: &[u8]| {
        let store = store();
        let keys = SearchKeys::read("in", keyed_by, None);
        append(&store, record::KIND_MESSAGE, &Writer::with_keys(&head, raw, &keys).finish());
        check::check(&Reader::new(&store)).expect("it reads").wrong
    };
    assert_eq!(wrong_of(raw), 0);
    assert_eq!(wrong_of(b"MSH|^~\\&|A|B|||1||ADT^A01|C2|P|2.5\r"), 1);
    assert_eq!(wrong_of(b"no message"), 1);
}

#[test]
fn any_bytes_as_a_row_are_refused_or_read_never_a_panic() {
    let seed = std::env::var("SEED").map_or(7, |seed| seed.parse().expect("SEED is a number"));
    let mut random = fastrand::Rng::with_seed(seed);
    let whole = message("C1", "7", 5);
    for end in 0..whole.len() {
        fuzzing::row(&whole[..end]);
        fuzzing::row(&whole[end..]);
    }
    for _ in 0..20_000 {
        let mut bytes = whole.clone();
        for _ in 0..random.usize(1..6) {
            let at = random.usize(..bytes.len());
            bytes[at] = random.u8(..);
        }
        fuzzing::row(&bytes[..random.usize(..=whole.len())]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_finds_messages_by_every_key_on_a_running_and_on_a_stopped_node() {
    let (out, down) = (Accepting::start().await, Down::new());
    let rig = Rig::new();
    rig.service("in", "")
        .service("other", "")
        .write(
            "rules/main.rules",
            "match first\nrule slow when MSH-9.2 = \"A02\" { send to slow }\n\
             rule none when MSH-9.2 = \"A03\" { drop \"not wanted\" }\nrule all { send to out }\n",
        )
        .operation("out", out.address, "")
        .operation("slow", down.address, "");
    let running = rig.start_with_bodies().await;
    let mut sender = running.sender().await;
    for n in 0..6 {
        sender.accepted(&keyed(&format!("C{n}"), &format!("{}", n % 2))).await;
    }
    sender.accepted(&keyed("C6", "1~77^^^X").replace("A01", "A02")).await;
    sender.accepted(&keyed("C7", "9").replace("A01", "A03")).await;
    crate::sender::Sender::connect(running.address("other")).await.accepted(&keyed("C0", "5")).await;
    running.until_outcomes(7).await;
    let filter = Filter::default;
    let text = |text: &str| Some(text.to_owned());
    let cases: Vec<(Filter, &[&str])> = vec![
        (filter(), &["C0", "C1", "C2", "C3", "C4", "C5", "C6", "C7", "C0"]),
        (Filter { last: 2, ..filter() }, &["C7", "C0"]),
        (Filter { control_id: text("C0"), ..filter() }, &["C0", "C0"]),
        (Filter { control_id: text("C0"), service: text("other"), ..filter() }, &["C0"]),
        (Filter { control_id: text("C"), ..filter() }, &[]),
        (Filter { mrn: text("1"), ..filter() }, &["C1", "C3", "C5", "C6"]),
        (Filter { mrn: text("1"), last: 2, ..filter() }, &["C5", "C6"]),
        (Filter { mrn: text("77"), ..filter() }, &["C6"]),
        (Filter { kind: text("ADT^A02"), ..filter() }, &["C6"]),
        (Filter { kind: text("ADT"), last: 3, ..filter() }, &["C6", "C7", "C0"]),
        (Filter { kind: text("AD"), ..filter() }, &[]),
        (Filter { interface: text("slow"), ..filter() }, &["C6"]),
        (Filter { interface: text("other"), ..filter() }, &["C0"]),
        (Filter { service: text("slow"), ..filter() }, &[]),
        (Filter { output: Some(OutputState::Waiting), ..filter() }, &["C6"]),
        (Filter { output: Some(OutputState::Failed), ..filter() }, &[]),
        (Filter { status: Some(Status::Rejected), ..filter() }, &[]),
        (Filter { status: Some(Status::Dropped), ..filter() }, &["C7"]),
        (Filter { status: Some(Status::Dropped), mrn: text("9"), last: 1, ..filter() }, &["C7"]),
        (Filter { status: Some(Status::Routed), last: 1, ..filter() }, &["C0"]),
        (Filter { wanted: vec![("PID-3.1".to_owned(), "5".to_owned())], ..filter() }, &["C0"]),
        (Filter { until_us: Some(0), ..filter() }, &[]),
    ];
    let ids = |filter: &Filter| -> Vec<String> {
        rig.history().list(filter).expect("it lists").into_iter().map(|line| line.control_id).collect()
    };
    let look = || {
        for (filter, expected) in &cases {
            assert_eq!(ids(filter), *expected, "{filter:?}");
        }
        let lines = rig.history().list(&filter()).expect("it lists");
        let between = Filter { since_us: Some(lines[2].received_us), until_us: Some(lines[4].received_us), ..filter() };
        assert!(ids(&between).contains(&"C2".to_owned()) && !ids(&between).contains(&"C6".to_owned()));
        let trace = rig.history().trace(lines[1].id).expect("it is there");
        assert_eq!((&trace.stored.raw[..], trace.deliveries.len()), (keyed("C1", "1").as_bytes(), 1));
        let counts = rig.history().count().expect("it counts");
        assert_eq!((counts.inbound, counts.outputs, counts.delivered, counts.objects), (9, 8, 7, 17));
        assert_eq!(rig.history().check().expect("it reads").wrong, 0);
    };
    look();
    running.stop().await;
    let folder = rig.data().to_owned();
    let before = crate::files_below(&folder);
    look();
    assert_eq!(crate::files_below(&folder), before, "a look changes nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_data_directory_of_a_journal_alone_is_taken_over() {
    let down = Down::new();
    let rig = Rig::to(down.address);
    let running = rig.start_on_files().await;
    running.sender().await.accepted(&keyed("1", "7")).await;
    running.stop().await;
    // As a release without pages left it.
    for folder in ["images", "pages"] {
        let folder = rig.data().join(folder);
        if folder.exists() {
            std::fs::remove_dir_all(folder).expect("they were made");
        }
    }
    assert_eq!(rig.history().count().expect("it counts").inbound, 1);
    let out = down.up().accepting();
    let running = rig.start_on_files().await;
    assert_eq!(out.received(1).await, ["1"]);
    running.sender().await.accepted(&keyed("2", "7")).await;
    running.idle("out").await;
    assert_eq!(running.stored().len(), 2);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_under_constant_load_with_a_small_retention_stops_growing() {
    let out = Accepting::start().await;
    let mut rig = Rig::to(out.address);
    rig.options.retention.bytes = 64 << 10;
    rig.options.journal.segment_bytes = 64 << 10;
    rig.options.journal.buffer_bytes = 16 << 10;
    let running = rig.start().await;
    let mut sender = running.sender().await;
    let store = running.node.engine().message_log.store().clone();
    let (mut pages, mut journal) = (Vec::new(), Vec::new());
    for round in 0..12 {
        for n in 0..60 {
            let long = "x".repeat(2_000);
            sender.accepted(&format!("{}NTE|1||{long}\r", keyed(&format!("{round}-{n}"), &n.to_string()))).await;
        }
        until("all outcomes are known", || running.reader().pending().expect("it reads").is_empty().then_some(()))
            .await;
        running.node.prune(false).await.expect("it works");
        // The next may use space that one frees.
        store.checkpoint().expect("it works");
        store.checkpoint().expect("it works");
        pages.push(store.metrics().pages_used);
        journal.push(store.journal().durable().0 - store.journal().first().0);
    }
    let most = |sizes: &[u64]| sizes.iter().copied().max().unwrap_or_default();
    assert!(most(&pages[8..]) <= most(&pages[4..8]) + 4, "pages in use: {pages:?}");
    assert!(most(&journal) <= 8 * (64 << 10), "journal kept: {journal:?}");
    let report = check::check(&running.reader()).expect("it reads");
    assert!(report.wrong == 0 && report.messages < 120, "{report:?}");
    drop(store);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_jumps_a_year_ahead_removes_nothing_by_age_until_it_is_confirmed_also_across_restarts() {
    const DAY: i64 = 86_400_000_000;
    let out = Accepting::start().await;
    let mut rig = Rig::to(out.address);
    rig.options.retention = Retention { bytes: u64::MAX, age: Some(Duration::from_secs(3 * 86_400)) };
    rig.options.clock = Clock::fixed(1_000 * DAY);
    let clock = rig.options.clock.clone();
    let doubts = |running: &crate::rig::Running| {
        let troubles = running.status().troubles;
        troubles.iter().map(|trouble| trouble.matter).collect::<Vec<_>>() == [Matter::Clock]
    };
    let running = rig.start().await;
    let mut sender = running.sender().await;
    for n in 0..5 {
        sender.accepted(&adt(&n.to_string())).await;
    }
    running.idle("out").await;
    running.until_outcomes(5).await;
    clock.jump(1_365 * DAY);
    assert_eq!(running.node.prune(false).await.expect("it works").messages, 0, "the clock is not believed");
    assert!(doubts(&running));
    sender.accepted(&adt("after")).await;
    running.until_outcomes(6).await;
    running.stop().await;
    let running = rig.start().await;
    assert!(doubts(&running), "neither after a restart, though a message has that time");
    assert_eq!(running.node.prune(false).await.expect("it works").messages, 0);
    clock.set(clock.now_us() + 4 * DAY);
    assert_eq!(running.node.prune(false).await.expect("it works").messages, 5, "time that has passed counts");
    clock.jump(1_004 * DAY);
    running.node.prune(false).await.expect("it works");
    assert!(running.status().troubles.is_empty(), "the clock was set right");
    clock.jump(2_000 * DAY);
    assert_eq!(running.node.prune(false).await.expect("it works").messages, 0);
    running.request("confirm-clock").await.expect("it is taken");
    assert!(!doubts(&running), "somebody says that it is right");
    assert_eq!(running.node.prune(false).await.expect("it works").messages, 1);
    running.stop().await;
}
