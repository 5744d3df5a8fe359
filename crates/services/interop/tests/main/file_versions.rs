//! Files that change, cannot be stored or moved, or have two services at them, while they are taken: each message once, in its order.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::faulty::{Fault, Rule};
use device::{FaultyShelf, MemoryShelf, Operation};
use interop::running::OnFull;
use journal::Preparation;

use crate::files::{SERVICE, arrives, names, put};
use crate::receiver::{Accepting, Receiver};
use crate::rig::{Rig, Running, adt, until};

/// A node that takes one message at a time, since there is room for one.
async fn slow(extra: &str) -> (Rig, Running, Receiver) {
    let receiver = Receiver::start().await;
    let rig = Rig::to(receiver.address);
    rig.operation("out", receiver.address, "[queue]\nmessages = 1\n")
        .write("services/files.toml", &format!("{SERVICE}{extra}"));
    let running = rig.start().await;
    (rig, running, receiver)
}

async fn answer(receiver: &mut Receiver, ids: &[&str]) {
    for id in ids {
        receiver.next_is(id).await.answer("AA");
    }
}

/// What hinders the service `pickups`: lines of the log about `files` are counted by another test.
fn hindered(running: &Running) -> String {
    let services = running.status().services;
    services.iter().find(|one| one.name == "pickups").map(|one| one.hindered.clone()).expect("it runs")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_replaced_or_grows_while_it_is_taken_is_taken_as_it_is_then_and_not_moved_before() {
    for (grows, then) in [(false, &["4"][..]), (true, &["1", "2", "3", "4"])] {
        let (rig, running, mut receiver) = slow("").await;
        let log = crate::logs::listen();
        let name = format!("changes-{grows}.hl7");
        put(&rig, &name, &["1", "2", "3"].map(adt).concat());
        let first = receiver.next_is("1").await;
        let (inbox, text) = (rig.folder().join("inbox"), then.iter().map(|id| adt(id)).collect::<String>());
        if grows {
            let mut file = fs::OpenOptions::new().append(true).open(inbox.join(&name)).expect("it is there");
            file.write_all(adt("4").as_bytes()).expect("there is room");
        } else {
            put(&rig, &name, &text);
        }
        first.answer("AA");
        answer(&mut receiver, &["2", "3"]).await;
        answer(&mut receiver, then).await;
        arrives(&inbox.join("done"), &name).await;
        assert_eq!(fs::read_to_string(inbox.join("done").join(&name)).expect("it is there"), text);
        let told = if grows { "was written to while it was taken" } else { "another file of the name came in" };
        assert_eq!(log.count(&[&name, told]), 1, "{told}");
        running.stop().await;
        assert_eq!(receiver.rest().await, [""; 0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_changes_between_the_look_and_its_turn_has_to_settle_again() {
    let (rig, running, mut receiver) = slow("").await;
    running.stop().await;
    for (name, ids) in [("a.hl7", &["1", "2"][..]), ("b.hl7", &["b"]), ("c.hl7", &["3"])] {
        put(&rig, name, &ids.iter().map(|id| adt(id)).collect::<String>());
    }
    let running = rig.start().await;
    let first = receiver.next_is("1").await;
    // Its producer writes it anew, in place, and is half done when its turn comes.
    let whole = [adt("4"), adt("5")].concat();
    let written = |text: &str| fs::write(rig.folder().join("inbox/b.hl7"), text).expect("a file");
    written(&whole[..whole.len() - 40]);
    rig.write("services/files.toml", &SERVICE.replace("0ms", "1h"));
    running.request("reload").await.expect("it is right");
    first.answer("AA");
    answer(&mut receiver, &["2", "3"]).await;
    arrives(&rig.folder().join("inbox/done"), "c.hl7").await;
    assert!(rig.folder().join("inbox/b.hl7").exists());
    written(&whole);
    rig.write("services/files.toml", SERVICE);
    running.request("reload").await.expect("it is right");
    answer(&mut receiver, &["4", "5"]).await;
    arrives(&rig.folder().join("inbox/done"), "b.hl7").await;
    running.stop().await;
    assert_eq!(receiver.rest().await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_written_to_after_it_was_moved_is_told() {
    let out = Accepting::start().await;
    let rig = Rig::to(out.address);
    rig.write("services/files.toml", SERVICE).write("part", &adt("1"));
    let running = rig.start().await;
    let log = crate::logs::listen();
    let mut producer = fs::OpenOptions::new().append(true).open(rig.folder().join("part")).expect("it is there");
    fs::rename(rig.folder().join("part"), rig.folder().join("inbox/stalls.hl7")).expect("it moves");
    arrives(&rig.folder().join("inbox/done"), "stalls.hl7").await;
    producer.write_all(adt("2").as_bytes()).expect("there is room");
    until("it is told", || log.find(&["stalls.hl7", "after it was taken and moved"])).await;
    assert_eq!(out.received(1).await, ["1"]);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn behind_a_message_of_a_file_for_which_there_is_no_room_none_is_taken_before_it() {
    let out = Accepting::start().await;
    let shelf = Arc::new(FaultyShelf::new(Arc::new(MemoryShelf::new())));
    let mut rig = Rig::on(shelf.clone());
    rig.options.journal.segment_bytes = 64 << 10;
    rig.options.journal.buffer_bytes = 16 << 10;
    rig.options.journal.preparation = Preparation::Inline;
    rig.options.on_full = OnFull::Refuse;
    rig.usual(out.address).write("services/pickups.toml", SERVICE);
    let running = rig.start().await;
    shelf.inject(Rule::from(Operation::Create, 3, Fault::NoSpace));
    // Where a long one has no room, a short one has.
    let message =
        |n: usize| format!("{}NTE|1||{}\r", adt(&n.to_string()), "x".repeat(if n % 3 == 2 { 9_000 } else { 1 }));
    put(&rig, "a.hl7", &(0..600).map(message).collect::<String>());
    put(&rig, "b.hl7", &adt("600"));
    until("the disk is full", || {
        (hindered(&running) == "1 file cannot be taken; the log names it, and why").then_some(())
    })
    .await;
    // It is tried some times, and others are looked at.
    let refused = running.status().full;
    until("it is tried again", || (running.status().full > refused + 3).then_some(())).await;
    shelf.heal();
    let wanted: Vec<String> = (0..=600).map(|n| n.to_string()).collect();
    assert_eq!(out.received(601).await, wanted, "in their order");
    arrives(&rig.folder().join("inbox/done"), "b.hl7").await;
    assert_eq!(running.stored().len(), 601, "each once");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_was_taken_and_cannot_be_moved_is_not_taken_again_by_the_next_start() {
    let out = Accepting::start().await;
    let rig = Rig::to(out.address);
    rig.write("services/pickups.toml", SERVICE);
    let running = rig.start().await;
    // As long as a name may be: there is none with a number for the second file of it.
    let name = format!("{}.hl7", "n".repeat(251));
    let done = rig.folder().join("inbox/done");
    put(&rig, &name, &adt("1"));
    arrives(&done, &name).await;
    put(&rig, &name, &adt("2"));
    let mut running = running;
    for _ in 0..3 {
        until("it cannot be moved", || hindered(&running).starts_with("1 file").then_some(())).await;
        assert_eq!(running.stored().len(), 2);
        running.stop().await;
        running = rig.start().await;
    }
    fs::remove_file(done.join(&name)).expect("it is there");
    arrives(&done, &name).await;
    assert_eq!(running.stored().len(), 2, "each once");
    assert_eq!(out.received(2).await, ["1", "2"]);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn folders_on_several_file_systems_keep_the_service_from_its_files_and_no_node_from_starting() {
    let rig = Rig::new();
    let device = |path: &Path| fs::metadata(path).map(|found| found.dev()).ok();
    let here = device(&rig.folder());
    let places = ["/dev/shm", "/run", "/tmp", "/var/tmp", "."].map(PathBuf::from);
    let other = places.into_iter().find(|place| device(place).is_some_and(|found| Some(found) != here));
    let other = tempfile::tempdir_in(other.expect("there are two file systems")).expect("a folder");
    let there = other.path().join("there");
    rig.service("in", "").write("rules/main.rules", "match first\nrule all { drop \"no\" }\n");
    for key in ["done", "error"] {
        rig.write("services/pickups.toml", &format!("{SERVICE}{key} = \"{}\"\n", there.display()));
        let running = rig.start().await;
        until("it says why", || hindered(&running).contains("is on another file system than").then_some(())).await;
        let refused = running.request("reload").await.expect_err("no file could be moved").to_string();
        assert!(refused.contains("is on another file system than"), "{refused}");
        running.stop().await;
    }
    rig.write("services/pickups.toml", SERVICE);
    rig.start().await.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_is_renamed_in_the_middle_of_a_file_goes_on_there_under_its_new_name() {
    let (rig, running, mut receiver) = slow("").await;
    put(&rig, "a.hl7", &["1", "2", "3", "4"].map(adt).concat());
    let first = receiver.next_is("1").await;
    rig.remove("services/files.toml").write("services/renamed.toml", SERVICE);
    running.request("reload").await.expect("it is right");
    first.answer("AA");
    answer(&mut receiver, &["2", "3", "4"]).await;
    arrives(&rig.folder().join("inbox/done"), "a.hl7").await;
    running.idle("out").await;
    let by: Vec<String> = running.stored().into_iter().map(|(_, stored)| stored.service).collect();
    assert_eq!(by, ["files", "renamed", "renamed", "renamed"]);
    running.stop().await;
    assert_eq!(receiver.rest().await, [""; 0], "each once");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_services_at_one_folder_by_two_paths_take_each_file_once() {
    let out = Accepting::start().await;
    let rig = Rig::to(out.address);
    fs::create_dir(rig.folder().join("inbox")).expect("a folder");
    std::os::unix::fs::symlink("inbox", rig.folder().join("alias")).expect("a link");
    rig.write("services/one.toml", SERVICE).write("services/two.toml", &SERVICE.replace("inbox", "alias"));
    let running = rig.start().await;
    for n in 0..50 {
        put(&rig, &format!("{n}.hl7"), &adt(&n.to_string()));
    }
    until("all are taken", || (names(&rig.folder().join("inbox/done")).len() == 50).then_some(())).await;
    let ids: Vec<String> = (0..50).map(|n| n.to_string()).collect();
    assert_eq!(out.received(50).await.into_iter().collect::<BTreeSet<_>>(), ids.into_iter().collect());
    assert_eq!(running.stored().len(), 50);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_a_reload_gives_another_folder_finds_it_made() {
    let out = Accepting::start().await;
    let rig = Rig::to(out.address);
    rig.write("services/files.toml", SERVICE);
    let running = rig.start().await;
    rig.write("services/files.toml", &SERVICE.replace("inbox", "other"));
    running.request("reload").await.expect("it is right");
    rig.write("part", &adt("1"));
    fs::rename(rig.folder().join("part"), rig.folder().join("other/1.hl7")).expect("the folder is there");
    assert_eq!(out.received(1).await, ["1"]);
    arrives(&rig.folder().join("other/done"), "1.hl7").await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_a_larger_bound_lets_in_is_not_taken_for_one_that_is_stored() {
    let out = Accepting::start().await;
    let rig = Rig::to(out.address);
    rig.write("services/files.toml", SERVICE);
    rig.start().await.stop().await;
    let large = format!("{}NTE|1||{}\r", adt("large"), "x".repeat(9_000));
    put(&rig, "a.hl7", &[adt("first"), large, adt("last")].concat());
    let inbox = rig.folder().join("inbox");
    let meta = fs::metadata(inbox.join("a.hl7")).expect("it is there");
    let version = format!("{} {} {} {}", meta.size(), meta.mtime(), meta.mtime_nsec(), meta.ino());
    // A crash, where the bound was 8 KiB.
    fs::write(inbox.join("done/.a.hl7.taken"), format!("2 {version} 8192 0\n")).expect("a note");
    let running = rig.start().await;
    assert_eq!(out.received(3).await, ["first", "large", "last"]);
    arrives(&inbox.join("done"), "a.hl7").await;
    running.stop().await;
}
