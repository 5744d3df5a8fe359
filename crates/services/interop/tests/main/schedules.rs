//! Schedules of services and operations, orders that win over them, and operations that wait for the connection of another one; by a clock
//! that the test moves.

use std::fs;

use interop::production::Production;
use interop::running::OperationStatus;
use node::Clock;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::receiver::{Down, Receiver};
use crate::rig::{PATIENCE, Rig, Running, adt, until};
use crate::sender::Sender;

const HOUR: i64 = 3_600_000_000;

/// Monday, 2026-11-30, 00:00 of universal time.
const MONDAY: i64 = 1_795_996_800_000_000;

const WEEK: &str = "[schedule]\nopen = [\"Mon-Fri 08:00-20:00\"]\nzone = \"Europe/Zurich\"\n";

/// A moment at which clocks in Zurich show this hour of that Monday.
fn hour(hour: i64) -> i64 {
    MONDAY + (hour - 1) * HOUR
}

fn status(running: &Running, name: &str) -> OperationStatus {
    running.status().operations.into_iter().find(|found| found.name == name).expect("it is there")
}

async fn cause(running: &Running, name: &str, words: &str) -> OperationStatus {
    until(words, || Some(status(running, name)).filter(|found| found.cause.contains(words))).await
}

#[tokio::test(flavor = "multi_thread")]
async fn outside_its_schedule_an_operation_delivers_nothing_unless_it_was_started_also_across_a_restart() {
    let mut receiver = Receiver::start().await;
    let mut rig = Rig::to(receiver.address);
    rig.operation("out", receiver.address, WEEK);
    let clock = Clock::fixed(hour(6));
    rig.options.clock = clock.clone();
    let running = rig.start_on_files().await;
    running.sender().await.accepted(&adt("1")).await;
    let id = running.ids()[0];
    let words = "outside its schedule until Mon 08:00";
    let found = cause(&running, "out", words).await;
    assert!(found.closed && !found.suspended && found.waiting == 1, "{found:?}");
    let wait = rig.history().outline(id).expect("it is there").waits.remove(0);
    assert_eq!((wait.ahead, wait.cause.as_str()), (Some(0), words), "the trace says the same");
    let report = running.request("operation out").await.expect("it is there");
    assert_eq!(report["lanes"][0]["cause"], words);
    clock.set(hour(8));
    receiver.next_is("1").await.answer("AA");
    running.idle("out").await;
    assert_eq!(running.until_outcomes(1).await[0].at_us, hour(8), "not before");
    clock.set(hour(20));
    running.sender().await.accepted(&adt("2")).await;
    cause(&running, "out", "outside its schedule until Tue 08:00").await;
    // The connection is of no use meanwhile.
    receiver.closed(0).await;
    let started = |until_us: i64| format!("start {{\"operation\":\"out\",\"until_us\":{until_us}}}");
    let refused = running.request(&started(hour(20))).await.expect_err("it is over").to_string();
    assert!(refused.contains("is over"), "{refused}");
    let entries = running.node.audit().head().number;
    running.request(&started(hour(22))).await.expect("it has a schedule");
    assert_eq!(running.node.audit().head().number, entries + 1, "that it was started has an entry");
    receiver.next_is("2").await.answer("AA");
    running.idle("out").await;
    assert_eq!(status(&running, "out").started_until_us, Some(hour(22)));
    running.stop().await;
    let running = rig.start_on_files().await;
    running.sender().await.accepted(&adt("3")).await;
    receiver.next_is("3").await.answer("AA");
    running.idle("out").await;
    clock.set(hour(22));
    running.sender().await.accepted(&adt("4")).await;
    let found = cause(&running, "out", "outside its schedule until Tue 08:00").await;
    assert_eq!(found.started_until_us, None);
    // Suspending ends it as well, and resuming follows the schedule.
    running.request(&started(hour(24))).await.expect("it has a schedule");
    receiver.next_is("4").await.answer("AA");
    running.idle("out").await;
    running.request("suspend out").await.expect("it is there");
    running.request("resume out").await.expect("it is there");
    assert!(status(&running, "out").closed && status(&running, "out").started_until_us.is_none());
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_without_a_schedule_is_not_started_but_resumed() {
    let down = Down::new();
    let rig = Rig::to(down.address);
    let running = rig.start().await;
    let request = "start {\"operation\":\"out\",\"until_us\":4102444800000000}";
    let refused = running.request(request).await.expect_err("it has none").to_string();
    assert!(refused.contains("has no schedule") && refused.contains("terrace operation resume out"), "{refused}");
    running.stop().await;
}

/// Whether a connection ends without a byte.
async fn is_disconnected(stream: &mut TcpStream) -> bool {
    // A reset is an end as well.
    timeout(PATIENCE, stream.read(&mut [0])).await.expect("in time").unwrap_or(0) == 0
}

#[tokio::test(flavor = "multi_thread")]
async fn outside_its_schedule_a_service_disconnects_senders_before_they_send_and_refuses_no_message() {
    let mut receiver = Receiver::start().await;
    let mut rig = Rig::to(receiver.address);
    rig.service("in", WEEK);
    let clock = Clock::fixed(hour(6));
    rig.options.clock = clock.clone();
    let running = rig.start().await;
    let address = running.address("in");
    assert_eq!(running.status().services[0].closed, "outside its schedule until Mon 08:00");
    let mut early = TcpStream::connect(address).await.expect("the socket stays bound");
    assert!(is_disconnected(&mut early).await);
    let refused = || running.status().admission.doors.iter().find_map(|door| door.refused.get("schedule").copied());
    until("it is counted", || refused().filter(|times| *times == 1)).await;
    clock.set(hour(8));
    until("it is open", || running.status().services[0].closed.is_empty().then_some(())).await;
    // It is looked at every second: until then a sender is disconnected, and tries again.
    let mut sender = loop {
        let mut tried = Sender::connect(address).await;
        if tried.answer_of(&adt("1")).await.is_some_and(|answer| answer.short() == "AA 1") {
            break tried;
        }
    };
    receiver.next_is("1").await.answer("AA");
    let mut idle = TcpStream::connect(address).await.expect("it listens");
    sender.accepted(&adt("2")).await;
    receiver.next_is("2").await.answer("AA");
    clock.set(hour(20));
    assert!(is_disconnected(&mut idle).await, "one that is open is closed");
    assert_eq!((running.status().refused, running.status().stored), (0, 2));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn outside_its_schedule_a_service_leaves_files_where_they_are() {
    let mut rig = Rig::new();
    let folder = "every = \"1ms\"\nsettle = \"0s\"\n";
    rig.write("services/a.toml", &format!("kind = \"file\"\nfolder = \"a\"\n{folder}{WEEK}"));
    rig.write("services/b.toml", &format!("kind = \"file\"\nfolder = \"b\"\n{folder}"));
    rig.write("a/1.hl7", &adt("1")).write("b/2.hl7", &adt("2"));
    let clock = Clock::fixed(hour(6));
    rig.options.clock = clock.clone();
    let running = rig.start().await;
    let here = |file: &str| fs::exists(rig.folder().join(file)).expect("it can be seen");
    until("the other service takes its file", || here("b/done/2.hl7").then_some(())).await;
    assert!(here("a/1.hl7") && running.ids().len() == 1);
    clock.set(hour(8));
    until("it takes its file", || here("a/done/1.hl7").then_some(())).await;
    assert_eq!(running.ids().len(), 2);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_finishes_the_file_in_hand_when_its_schedule_closes_and_begins_no_other() {
    let mut receiver = Receiver::start().await;
    let mut rig = Rig::to(receiver.address);
    rig.operation("out", receiver.address, "[queue]\nmessages = 1\n");
    let folder = "rules = \"main\"\nevery = \"1ms\"\nsettle = \"0s\"\n";
    rig.write("services/a.toml", &format!("kind = \"file\"\nfolder = \"a\"\n{folder}{WEEK}"));
    rig.write("services/b.toml", &format!("kind = \"file\"\nfolder = \"b\"\n{folder}"));
    rig.write("a/1.hl7", &[adt("1"), adt("2"), adt("3")].concat()).write("a/2.hl7", &adt("4"));
    let clock = Clock::fixed(hour(8));
    rig.options.clock = clock.clone();
    let running = rig.start().await;
    // It is in the middle of the first file: there is room for one message.
    let first = receiver.next_is("1").await;
    clock.set(hour(20));
    first.answer("AA");
    receiver.next_is("2").await.answer("AA");
    receiver.next_is("3").await.answer("AA");
    let here = |file: &str| fs::exists(rig.folder().join(file)).expect("it can be seen");
    until("it has finished its file", || here("a/done/1.hl7").then_some(())).await;
    rig.write("b/5.hl7", &adt("5"));
    receiver.next_is("5").await.answer("AA");
    until("the other service takes its file", || here("b/done/5.hl7").then_some(())).await;
    assert!(here("a/2.hl7") && running.ids().len() == 4);
    clock.set(hour(24 + 8));
    receiver.next_is("4").await.answer("AA");
    running.idle("out").await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_at_an_operation_that_left_the_production_goes_out_also_where_what_it_required_left_too() {
    let down = Down::new();
    let mut receiver = Receiver::start().await;
    let rig = Rig::new();
    rig.service("in", "").write("rules/main.rules", "match first\nrule all { send to second }\n");
    rig.operation("first", down.address, "").operation("second", receiver.address, "requires = \"first\"\n");
    rig.operation("third", down.address, "");
    let running = rig.start().await;
    running.sender().await.accepted(&adt("1")).await;
    cause(&running, "second", "waits for operation first, which is not connected").await;
    rig.write("rules/main.rules", "match first\nrule all { send to third }\n");
    rig.remove("operations/first.toml").remove("operations/second.toml");
    running.request("reload").await.expect("it is right");
    receiver.next_is("1").await.answer("AA");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_delivers_only_while_the_one_that_it_requires_is_connected() {
    let down = Down::new();
    let mut receiver = Receiver::start().await;
    let rig = Rig::new();
    rig.service("in", "").write("rules/main.rules", "match first\nrule all {\n  send to first\n  send to second\n}\n");
    rig.operation("first", down.address, "").operation("second", receiver.address, "requires = \"first\"\n");
    let running = rig.start().await;
    running.sender().await.accepted(&adt("1")).await;
    let id = running.ids()[0];
    let words = format!("waits for operation first, which is not connected: no connection to {}", down.address);
    let found = cause(&running, "second", &words).await;
    assert_eq!((found.waits_for.as_deref(), found.waiting), (Some("first"), 1));
    let waits = rig.history().outline(id).expect("it is there").waits;
    assert!(waits.iter().any(|wait| wait.cause.starts_with(&words)), "{waits:?}");
    running.request("suspend first").await.expect("it is there");
    cause(&running, "second", "waits for operation first, which is suspended").await;
    running.request("resume first").await.expect("it is there");
    let first = down.up().accepting();
    first.received(1).await;
    receiver.next_is("1").await.answer("AA");
    running.idle("second").await;
    assert_eq!(status(&running, "second").waits_for, None);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_has_nothing_to_send_connects_for_the_one_that_waits_for_it() {
    let mut first = Receiver::start().await;
    let mut receiver = Receiver::start().await;
    let rig = Rig::new();
    rig.service("in", "").write("rules/main.rules", "match first\nrule all { send to second }\n");
    rig.operation("first", first.address, "").operation("second", receiver.address, "requires = \"first\"\n");
    let running = rig.start().await;
    running.sender().await.accepted(&adt("1")).await;
    receiver.next_is("1").await.answer("AA");
    running.idle("second").await;
    assert!(first.at_hand().is_none(), "it has connected, and sent nothing");
    running.stop().await;
    assert!(first.rest().await.is_empty());
}

#[test]
fn what_is_wrong_about_schedules_and_requirements_is_refused_with_file_and_line() {
    let dir = tempfile::tempdir().expect("a folder");
    let put = |path: &str, text: &str| {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().expect("below the folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    };
    let schedule = |open: &str, rest: &str| format!("[schedule]\nopen = [{open}]\n{rest}\n");
    put("services/in.toml", "kind = \"mllp\"\nlisten = \"127.0.0.1:0\"\n");
    put("operations/files.toml", "kind = \"file\"\nfolder = \"out\"\n");
    put("operations/b.toml", "kind = \"mllp\"\naddress = \"h:2\"\nrequires = \"c\"\n");
    put("operations/c.toml", "kind = \"mllp\"\naddress = \"h:3\"\n");
    let zone = "zone = \"Europe/Zurich\"";
    for (text, at, told) in [
        (schedule("\"Mon-Fri 07:00\"", zone), "operations/a.toml:4:9", "is no open time"),
        (schedule("\"Mon 07:00-08:00\", \"Mo 07:00-08:00\"", zone), "operations/a.toml:4", "`Mo` is no day"),
        (schedule("\"Mon 07:00-25:00\"", zone), "operations/a.toml:4", "`25:00` is no time of day"),
        (schedule("\"Mon 07:00-08:00\"", "zone = \"Zurich\""), "operations/a.toml:5", "`Zurich` is no time zone"),
        (schedule("\"Mon 07:00-08:00\"", ""), "operations/a.toml:3", "missing field `zone`"),
        (schedule("", zone), "operations/a.toml:3", "it would never be open"),
        (
            schedule("\"Mon 07:00-08:00\"", &format!("{zone}\nholidays = [\"2026-02-30\"]")),
            "operations/a.toml:6",
            "`2026-02-30` is no date",
        ),
        ("requires = \"d\"\n".to_owned(), "operations/a.toml:3", "there is no operations/d.toml"),
        (
            "requires = \"a\"\n".to_owned(),
            "operations/a.toml:3",
            "the operations wait for each other, and none would deliver: a -> a",
        ),
        (
            "requires = \"files\"\n".to_owned(),
            "operations/a.toml:3",
            "operation files writes files and has no connection",
        ),
        ("requires = 1\n".to_owned(), "operations/a.toml:3", "invalid type"),
    ] {
        put("operations/a.toml", &format!("kind = \"mllp\"\naddress = \"h:1\"\n{text}"));
        let error = Production::load(dir.path()).expect_err(&text).to_string();
        assert!(error.contains(at) && error.contains(told), "{text}: {error}");
    }
    put("operations/a.toml", "kind = \"mllp\"\naddress = \"h:1\"\nrequires = \"b\"\n");
    Production::load(dir.path()).unwrap_or_else(|error| panic!("a chain is none: {error}"));
    put("operations/c.toml", "kind = \"mllp\"\naddress = \"h:3\"\nrequires = \"a\"\n");
    let error = Production::load(dir.path()).expect_err("a ring").to_string();
    for told in ["a -> b -> c -> a", "operations/a.toml:3", "operations/b.toml:3", "operations/c.toml:3"] {
        assert!(error.contains(told), "{error}");
    }
}
