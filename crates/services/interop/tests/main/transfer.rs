//! Messages leave as a file and come in from one: page by page, once each, also where the power fails in the middle.

use std::collections::BTreeSet;
use std::io::Cursor;
use std::sync::Arc;

use device::{CrashShelf, Shelf};
use interop::history::{ExportPage, ExportRequest, Filter};
use interop::record::Derivation;
use interop::rows::{check, object_key};
use interop::running::{ImportMessage, ImportOutcome, ImportPage, ImportRequest};
use interop::transfer::{ExportFormat, ExportWriter, ImportReader, TransferHead};
use node::identity::Action;
use serde_json::json;

use crate::crash::{images_of, open, seed};
use crate::receiver::{Accepting, Down};
use crate::rig::{Rig, Running, adt, keyed, until};
use crate::rights;
use crate::sender::Sender;

async fn export(running: &Running, request: &ExportRequest) -> Result<ExportPage, String> {
    let answer = running.request(&format!("export {}", json!(request))).await.map_err(|error| error.to_string())?;
    Ok(serde_json::from_value(answer).expect("it is one"))
}

pub(crate) async fn import(running: &Running, request: &ImportRequest) -> Result<ImportPage, String> {
    let answer = running.request(&format!("import {}", json!(request))).await.map_err(|error| error.to_string())?;
    Ok(serde_json::from_value(answer).expect("it is one"))
}

/// All pages of an export as a file, each of `limit` messages.
async fn file(running: &Running, limit: usize, format: ExportFormat) -> (Vec<u8>, usize) {
    let mut request = ExportRequest { limit, ..ExportRequest::default() };
    let (mut pages, mut writer) = (0, None);
    loop {
        let page = export(running, &request).await.expect("a page");
        pages += 1;
        let writer = writer.get_or_insert_with(|| {
            let head = TransferHead { source: page.source.clone(), ..TransferHead::default() };
            ExportWriter::begin(format, Vec::new(), &head, "20260101").expect("memory")
        });
        for one in &page.messages {
            writer.message(&one.message, &one.body().expect("bytes")).expect("memory");
        }
        (request.after, request.upto) = (page.next, Some(page.upto));
        if page.next.is_none() {
            break;
        }
    }
    (writer.expect("a page").end().expect("memory"), pages)
}

/// The messages of a file, as a request to import them.
fn request_of(file: Vec<u8>, service: &str) -> ImportRequest {
    let (mut reader, _) = ImportReader::open(Cursor::new(file)).expect("it is whole");
    let mut request = ImportRequest { service: service.to_owned(), ..ImportRequest::default() };
    while let Some(item) = reader.next().expect("it was read") {
        let (number, source, charset) = (item.number, item.source, item.charset);
        let message = ImportMessage { number, source, charset, ..ImportMessage::default() };
        request.messages.push(ImportMessage { received_us: item.received_us, ..message }.with_body(&item.body));
    }
    request
}

fn outcomes(page: &ImportPage) -> Vec<&'static str> {
    page.results.iter().map(|result| result.outcome.name()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_goes_page_by_page_oldest_first_without_what_comes_meanwhile() {
    let out = Accepting::start().await;
    let rig = Rig::to(out.address);
    let running = rig.start().await;
    running.grant_bodies().await;
    let mut sender = running.sender().await;
    for n in 0..7 {
        sender.exchange(&keyed(&format!("m{n}"), if n % 2 == 0 { "4711" } else { "1" })).await;
    }
    let ids = running.ids();
    for filter in [Filter::default(), Filter { service: Some("in".to_owned()), ..Filter::default() }] {
        let mut request = ExportRequest { filter, limit: 3, ..ExportRequest::default() };
        let (mut found, mut pages) = (Vec::new(), 0);
        loop {
            let page = export(&running, &request).await.expect("a page");
            found.extend(page.messages.iter().map(|one| one.message.id));
            sender.exchange(&adt(&format!("later{pages}"))).await;
            pages += 1;
            (request.after, request.upto) = (page.next, Some(page.upto));
            if page.next.is_none() {
                break;
            }
        }
        let first = found.len().min(ids.len());
        assert_eq!(found[..first], ids[..], "oldest first, and each once");
        assert!(found.len() <= running.ids().len() - pages, "none of those that came meanwhile");
    }
    let of = |filter| ExportRequest { filter, ..ExportRequest::default() };
    let page =
        export(&running, &of(Filter { mrn: Some("4711".to_owned()), ..Filter::default() })).await.expect("a page");
    let found: Vec<&str> = page.messages.iter().map(|one| one.message.control_id.as_str()).collect();
    assert_eq!(found, ["m0", "m2", "m4", "m6"]);
    assert_eq!(page.messages[0].body().expect("bytes"), keyed("m0", "4711"), "as received");
    let some = ExportRequest { ids: vec![ids[2], ids[1], ids[2], 3], ..ExportRequest::default() };
    let page = export(&running, &some).await.expect("a page");
    assert_eq!(page.messages.iter().map(|one| one.message.id).collect::<Vec<_>>(), [ids[1], ids[2]]);
    assert_eq!(page.absent, [3]);
    let masked = ExportRequest { ids: vec![ids[0]], masked: true, ..ExportRequest::default() };
    let page = export(&running, &masked).await.expect("a page");
    assert!(page.masked && !page.messages[0].body.contains("SAMPLE") && page.messages[0].body.contains("m0"));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_exported_is_imported_once_goes_out_and_names_its_source() {
    let (there, here) = (Accepting::start().await, Accepting::start().await);
    let (from, to) = (Rig::to(there.address), Rig::to(here.address));
    let source = from.start().await;
    source.grant_bodies().await;
    let mut sender = source.sender().await;
    for n in 0..5 {
        sender.exchange(&adt(&format!("m{n}"))).await;
    }
    let ids = source.ids();
    let (bytes, pages) = file(&source, 2, ExportFormat::Terrace).await;
    assert_eq!(pages, 3);
    let (plain, _) = file(&source, 0, ExportFormat::Batch).await;
    let received = source.stored()[0].1.received_us;
    source.stop().await;

    let running = to.start_on_files().await;
    let request = request_of(bytes, "in");
    let page = import(&running, &ImportRequest { dry_run: true, ..request.clone() }).await.expect("a page");
    assert_eq!(outcomes(&page), ["routed"; 5]);
    assert_eq!((running.ids().len(), here.ids().len()), (0, 0), "a dry run does nothing");
    let page = import(&running, &ImportRequest { replay: true, ..request.clone() }).await.expect("a page");
    assert_eq!((outcomes(&page), page.stopped), (vec!["routed"; 5], None));
    let made: Vec<u64> = page.results.iter().map(|result| result.id.expect("it is stored")).collect();
    assert_eq!(here.received(5).await, ["m0", "m1", "m2", "m3", "m4"], "in their order");
    for _ in 0..2 {
        let again = import(&running, &request).await.expect("a page");
        assert_eq!(outcomes(&again), ["again"; 5]);
        assert_eq!(again.results.iter().filter_map(|result| result.id).collect::<Vec<_>>(), made);
    }
    let trace = to.history().outline(made[0]).expect("it is there");
    let origin = trace.stored.origin.expect("it has one");
    assert_eq!((origin.id, origin.derivation, origin.stored()), (ids[0], Derivation::Imported, None));
    assert!(origin.key.starts_with("node-"), "{}", origin.key);
    assert_eq!(trace.stored.received_us, received, "with its time, as was asked for");
    let line = &to.history().list(&Filter { last: 1, ..Filter::default() }).expect("it lists")[0];
    assert!(line.imported && line.resent_from.is_none());
    // A message of this node that has the number of one elsewhere is not taken for its origin.
    assert_eq!(running.reader().derived_from(ids[0], 9).expect("it reads"), []);
    assert_eq!(to.history().count().expect("it counts").inbound, 5);
    running.idle("out").await;
    running.stop().await;
    // Also after a restart; and a file of HL7 is another source.
    let running = to.start_on_files().await;
    let again = import(&running, &request).await.expect("a page");
    assert_eq!(outcomes(&again), ["again"; 5]);
    let plain = request_of(plain, "in");
    for expected in ["routed", "again"] {
        assert_eq!(outcomes(&import(&running, &plain).await.expect("a page")), [expected; 5]);
    }
    let twice = ImportRequest { messages: vec![keyed_message(9), keyed_message(9)], ..plain.clone() };
    assert_eq!(outcomes(&import(&running, &twice).await.expect("a page")), ["routed", "again"]);
    assert_eq!(check::check(&running.reader()).expect("it reads").wrong, 0);
    let audit = serde_json::to_string(&running.request(r#"audit {"verb":"read","query":{}}"#).await.expect("entries"));
    let audit = audit.expect("JSON");
    assert!(audit.contains("message.import") && !audit.contains("SAMPLE"), "who, what, and nothing of a message");
    running.stop().await;
}

fn keyed_message(number: u64) -> ImportMessage {
    let message = ImportMessage { number, source: "file-x".to_owned(), ..ImportMessage::default() };
    message.with_body(adt(&format!("x{number}")).as_bytes())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_taken_is_refused_with_the_reason_and_back_pressure_ends_a_page() {
    let out = Down::new();
    let rig = Rig::new();
    rig.service("in", "[intake]\nduplicates = \"drop\"\nmessage_bytes = \"4 KiB\"\n")
        .write("rules/main.rules", "match first\nrule all { send to out using t }\n")
        .write("transforms/t.hl7t", "if PID-3.1 = \"13\" { fail \"not this one\" }\n")
        .operation("out", out.address, "[queue]\nmessages = 2\n");
    let running = rig.start().await;
    let message = |number: u64, body: &str| {
        let message = ImportMessage { number, source: "file-y".to_owned(), ..ImportMessage::default() };
        message.with_body(body.as_bytes())
    };
    let of = |messages: Vec<ImportMessage>| ImportRequest { service: "in".to_owned(), messages, ..Default::default() };
    let latin = ImportMessage { charset: Some("8859/1".to_owned()), ..message(4, "") };
    let latin = latin.with_body(
        &adt("l")
            .replace("ANN", "M?LLER")
            .into_bytes()
            .iter()
            .map(|b| if *b == b'?' { 0xfc } else { *b })
            .collect::<Vec<u8>>(),
    );
    let page = import(
        &running,
        &of(vec![
            message(1, "no message"),
            message(2, &keyed("m2", "13")),
            message(3, &adt(&"x".repeat(5_000))),
            latin,
            message(5, &adt("m5")),
            message(6, &adt("m5")),
        ]),
    )
    .await
    .expect("a page");
    assert_eq!(outcomes(&page), ["rejected", "errored", "refused", "refused", "routed", "duplicate"]);
    assert!(page.results[1].reason.contains("not this one"), "{:?}", page.results[1]);
    assert!(page.results[2].reason.contains("4KiB"), "{:?}", page.results[2]);
    assert!(page.results[3].reason.contains("8859/1"), "{:?}", page.results[3]);
    assert_eq!(page.results.iter().filter(|result| result.id.is_some()).count(), 3);
    let error = import(&running, &ImportRequest { service: "elsewhere".to_owned(), ..of(vec![message(9, "")]) }).await;
    assert!(error.expect_err("there is none").contains("elsewhere"));
    // The receiver is down, and its queue takes two.
    let many: Vec<ImportMessage> = (10..20).map(|n| message(n, &adt(&format!("m{n}")))).collect();
    let page = import(&running, &of(many)).await.expect("a page");
    assert!(page.results.len() < 3 && page.stopped.is_some(), "{page:?}");
    assert!(page.results.iter().all(|result| result.outcome == ImportOutcome::Routed));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_service_has_a_message_once_and_what_is_shown_of_its_source_says_nothing_of_its_body() {
    let out = Accepting::start().await;
    let mut rig = Rig::to(out.address);
    rig.options.retention.age = Some(std::time::Duration::from_secs(3_600));
    rig.service("other", "");
    let running = rig.start().await;
    running.grant_bodies().await;
    let message =
        ImportMessage { number: 7, source: "node-0000002a 0123456789abcdef".to_owned(), ..Default::default() };
    let message = message.with_body(adt("m7").as_bytes());
    let of = |service: &str| ImportRequest {
        service: service.to_owned(),
        messages: vec![message.clone()],
        ..ImportRequest::default()
    };
    // A file that was tried in one service is not taken for one that another has.
    for (service, expected) in [("other", "routed"), ("in", "routed"), ("other", "again"), ("in", "again")] {
        let page = import(&running, &of(service)).await.expect("a page");
        assert_eq!(outcomes(&page), [expected], "{service}");
        let id = page.results[0].id.expect("it is stored");
        assert_eq!(running.reader().message(id).expect("it is there").service, service);
    }
    for masked in [false, true] {
        let page = export(&running, &ExportRequest { masked, ..ExportRequest::default() }).await.expect("a page");
        let keys: Vec<&str> =
            page.messages.iter().filter_map(|one| Some(one.message.origin.as_ref()?.key.as_str())).collect();
        assert_eq!(keys, ["node-0000002a"; 2]);
    }
    let id = running.ids()[0];
    for request in [format!("message {id} metadata"), format!("message {id}")] {
        let answer = running.request(&request).await.expect("it is there").to_string();
        assert!(answer.contains("node-0000002a") && !answer.contains("0123456789abcdef"), "{answer}");
    }
    // With a time that retention removes at once it would not be known any more that it was imported.
    let old = ImportMessage { number: 8, received_us: Some(1), ..message.clone() };
    let replay = ImportRequest { replay: true, messages: vec![old.clone()], ..of("in") };
    let page = import(&running, &replay).await.expect("a page");
    assert_eq!(outcomes(&page), ["refused"]);
    assert!(page.results[0].reason.contains("[messages] age"), "{page:?}");
    let now = ImportRequest { replay: false, ..replay };
    assert_eq!(outcomes(&import(&running, &now).await.expect("a page")), ["routed"]);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_waits_for_room_ends_the_page_that_repeats_it_and_holds_up_no_other_service() {
    let (out, elsewhere) = (Down::new(), Accepting::start().await);
    let rig = Rig::new();
    rig.service("in", "[intake]\nduplicates = \"drop\"\n")
        .write("rules/main.rules", "match first\nrule all { send to out }\n")
        .operation("out", out.address, "[queue]\nmessages = 1\n")
        .write("services/other.toml", "kind = \"mllp\"\nlisten = \"127.0.0.1:0\"\nrules = \"other\"\n")
        .write("rules/other.rules", "match first\nrule all { send to elsewhere }\n")
        .operation("elsewhere", elsewhere.address, "");
    let running = rig.start().await;
    let mut sender = Sender::connect(running.address("in")).await;
    sender.accepted(&adt("m0")).await;
    // Its receiver is down: this one waits for as long as its sender does.
    sender.send(&adt("m1")).await;
    until("it has come", || (running.status().duplicates == 0 && running.waiting("out") == 1).then_some(())).await;
    let of = |service: &str, number: u64, body: &str| {
        let message = ImportMessage { number, source: "file-w".to_owned(), ..ImportMessage::default() };
        ImportRequest {
            service: service.to_owned(),
            messages: vec![message.with_body(body.as_bytes())],
            ..ImportRequest::default()
        }
    };
    let (repeats, m1) = (of("in", 1, &adt("m1")), adt("m1"));
    let mut others = 0;
    let page = {
        let mut stuck = std::pin::pin!(import(&running, &repeats));
        let end = tokio::time::Instant::now() + std::time::Duration::from_secs(60);
        loop {
            assert!(tokio::time::Instant::now() < end, "the page waits for the sender of {m1}");
            let other = of("other", others, &adt(&format!("o{others}")));
            tokio::select! {
                page = &mut stuck => break page.expect("a page"),
                other = import(&running, &other) => assert_eq!(outcomes(&other.expect("a page")), ["routed"]),
            }
            others += 1;
        }
    };
    assert!(page.results.is_empty() && page.stopped.is_some(), "{page:?}");
    assert!(others > 5, "{others} pages of another service went on meanwhile");
    drop(sender);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_waited_for_another_one_is_taken_by_the_service_as_it_is_when_its_turn_comes() {
    let (out, rig) = (Down::new(), Rig::new());
    rig.service("in", "").write("rules/main.rules", "match first\nrule all { send to out }\n").operation(
        "out",
        out.address,
        "[queue]\nmessages = 1\n",
    );
    let running = rig.start().await;
    let of = |number: u64, body: String| {
        let message = ImportMessage { number, source: "file-t".to_owned(), ..ImportMessage::default() };
        message.with_body(body.as_bytes())
    };
    let page = |messages| ImportRequest { service: "in".to_owned(), messages, ..ImportRequest::default() };
    let first = page(vec![of(1, adt("m1")), of(2, adt("m2"))]);
    let second = page(vec![of(3, format!("{}NTE|1||{}\r", adt("m3"), "x".repeat(9_000)))]);
    let behind = async {
        until("the first message of the first page has the queue", || (running.waiting("out") == 1).then_some(()))
            .await;
        rig.service("in", "[intake]\nmessage_bytes = \"4KiB\"\n");
        tokio::join!(import(&running, &second), running.request("reload"))
    };
    let (first, (second, reloaded)) = tokio::join!(import(&running, &first), behind);
    reloaded.expect("it is right");
    let first = first.expect("a page");
    assert!(first.stopped.is_some() && outcomes(&first) == ["routed"], "{first:?}");
    let second = second.expect("a page");
    assert!(second.stopped.is_none() && outcomes(&second) == ["refused"], "{second:?}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_damaged_here_counts_as_imported_and_the_rest_of_its_file_goes_on() {
    let out = Accepting::start().await;
    let rig = Rig::to(out.address);
    rig.service("other", "");
    let running = rig.start().await;
    let of = |service: &str, numbers: std::ops::Range<u64>| ImportRequest {
        service: service.to_owned(),
        messages: numbers.map(keyed_message).collect(),
        ..ImportRequest::default()
    };
    assert_eq!(outcomes(&import(&running, &of("in", 0..3)).await.expect("a page")), ["routed"; 3]);
    running.idle("out").await;
    let id = running.reader().imported_as(1, "file-x", "in").expect("it reads").expect("it is there");
    let reader = running.reader();
    let mut transaction = reader.snapshot().store().begin();
    transaction.put(reader.trees().messages, &object_key(id, 0), b"no row").expect("a change");
    transaction.commit().expect("a change");
    drop(reader);
    assert!(running.reader().inbound(id).is_err(), "it cannot be read");
    let page = import(&running, &of("in", 0..5)).await.expect("a page");
    assert_eq!(outcomes(&page), ["again", "again", "again", "routed", "routed"]);
    assert_eq!(page.results[1].id, Some(id));
    // Another service has none of them.
    assert_eq!(outcomes(&import(&running, &of("other", 0..2)).await.expect("a page")), ["routed"; 2]);
    // An export names it to who sees all services, and counts it for who sees some: it may be theirs.
    let ben = rights::user(&running, "ben").await;
    running.grant_bodies().await;
    for action in [Action::MessageMetadata, Action::MessageBody, Action::Unmasked] {
        rights::grant(&running, action, "service other", "ben").await;
    }
    for (who, named, unreadable, whole) in [(String::new(), vec![id], 0, 6), (format!("as {ben} "), vec![], 1, 2)] {
        let request = format!("{who}export {}", json!(ExportRequest::default()));
        let page: ExportPage = serde_json::from_value(running.request(&request).await.expect("a page")).expect("one");
        assert_eq!(page.damaged.iter().map(|(id, _)| *id).collect::<Vec<_>>(), named);
        assert_eq!((page.unreadable, page.messages.len()), (unreadable, whole));
    }
    running.stop().await;
}

/// Messages of the import whose power fails.
const LOAD: u64 = 12;

#[tokio::test(flavor = "multi_thread")]
async fn after_a_crash_at_any_point_of_an_import_the_same_import_stores_each_message_once() {
    let shelf = Arc::new(CrashShelf::new(seed()));
    let out = Accepting::start().await;
    let rig_on = |shelf: Arc<dyn Shelf>| {
        let mut rig = Rig::on(shelf);
        rig.options.journal.segment_bytes = 32 << 10;
        rig.options.journal.buffer_bytes = 8 << 10;
        rig.options.journal.preparation = journal::Preparation::Inline;
        rig.usual(out.address);
        rig
    };
    let message = |number: u64| {
        let message = ImportMessage { number, source: "file-z".to_owned(), ..ImportMessage::default() };
        message.with_body(adt(&format!("m{number}")).as_bytes())
    };
    let of = |numbers: std::ops::Range<u64>| ImportRequest {
        service: "in".to_owned(),
        messages: numbers.map(message).collect(),
        ..ImportRequest::default()
    };
    let rig = rig_on(Arc::clone(&shelf) as Arc<dyn Shelf>);
    let running = rig.start().await;
    let (first, mut told) = (shelf.operations(), Vec::new());
    for n in (0..LOAD).step_by(3) {
        let page = import(&running, &of(n..n + 3)).await.expect("a page");
        assert_eq!(outcomes(&page), ["routed"; 3]);
        told.push((shelf.operations(), n + 3));
    }
    running.idle("out").await;
    running.stop().await;
    let mut random = fastrand::Rng::with_seed(seed() ^ 0x1a9);
    let end = shelf.operations();
    let mut points: Vec<usize> = told.iter().flat_map(|(at, _)| [at - 1, *at]).collect();
    points.extend((0..12).map(|_| random.usize(first..=end)));
    let all =
        points.iter().flat_map(|point| images_of(&shelf, *point, &mut random).into_iter().map(|image| (*point, image)));
    let (mut looked_at, mut partly) = (0, 0);
    for (point, image) in all.collect::<Vec<_>>() {
        let stored: BTreeSet<u64> = {
            let reader = open(&image).unwrap_or_else(|error| panic!("{image}: {error}"));
            assert_eq!(check::check(&reader).expect("it reads").wrong, 0, "{image}");
            (0..LOAD).filter(|n| reader.imported_as(*n, "file-z", "in").expect("it reads").is_some()).collect()
        };
        let promised = told.iter().filter(|(operations, _)| *operations <= point).map(|(_, n)| *n).max().unwrap_or(0);
        assert!((0..promised).all(|n| stored.contains(&n)), "{image}: what was said to be stored is: {stored:?}");
        partly += usize::from(!stored.is_empty() && (stored.len() as u64) < LOAD);
        looked_at += 1;
        if looked_at % 6 != 0 {
            continue;
        }
        let rig = rig_on(Arc::new(image.shelf()));
        let running = rig.start().await;
        for n in (0..LOAD).step_by(3) {
            let page = import(&running, &of(n..n + 3)).await.unwrap_or_else(|error| panic!("{image}: {error}"));
            let expected = (n..n + 3).map(|n| if stored.contains(&n) { "again" } else { "routed" });
            assert_eq!(outcomes(&page), expected.collect::<Vec<_>>(), "{image}");
        }
        assert_eq!(running.ids().len() as u64, LOAD, "{image}: each once");
        running.stop().await;
    }
    assert!(looked_at > 20 && partly > 0, "{looked_at} images, {partly} in the middle");
}
