//! Messages from files and into files.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::receiver::{Accepting, id_of};
use crate::rig::{ALL_TO_OUT, Rig, Running, adt, until};

pub(crate) const SERVICE: &str =
    "kind = \"file\"\nfolder = \"inbox\"\nrules = \"main\"\nevery = \"2ms\"\nsettle = \"0ms\"\n";

/// Names in a folder, without folders and notes of progress.
pub(crate) fn names(folder: &Path) -> BTreeSet<String> {
    let Ok(entries) = fs::read_dir(folder) else { return BTreeSet::new() };
    let files = entries.map(|entry| entry.expect("it can be read")).filter(|entry| entry.path().is_file());
    let names = files.map(|file| file.file_name().to_string_lossy().into_owned());
    names.filter(|name| !name.contains(".taken")).collect()
}

/// Puts a file into the inbox whole, as its writers should.
pub(crate) fn put(rig: &Rig, name: &str, text: &str) {
    rig.write("part", text);
    fs::rename(rig.folder().join("part"), rig.folder().join("inbox").join(name)).expect("it moves");
}

pub(crate) async fn arrives(folder: &Path, name: &str) {
    until(&format!("{name} arrives"), || names(folder).contains(name).then_some(())).await;
}

async fn start(settings: &str) -> (Rig, Running, Accepting) {
    let out = Accepting::start().await;
    let rig = Rig::to(out.address);
    rig.write("services/files.toml", &format!("{SERVICE}{settings}"));
    let running = rig.start().await;
    (rig, running, out)
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_taken_in_order_of_name_and_moved_when_durable() {
    let (rig, running, out) = start("").await;
    running.stop().await;
    let inbox = rig.folder().join("inbox");
    for name in ["b.hl7", "a.hl7", "c.hl7"] {
        put(&rig, name, &adt(name).replace('\r', "\n"));
    }
    put(&rig, "other.txt", "not ours");
    put(&rig, "empty.hl7", "");
    put(&rig, "unreadable.hl7", "PID|1\r");
    let running = rig.start().await;
    assert_eq!(out.received(3).await, ["a.hl7", "b.hl7", "c.hl7"]);
    let expected = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<BTreeSet<_>>();
    until("the inbox is empty", || (names(&inbox) == expected(&["other.txt"])).then_some(())).await;
    assert_eq!(names(&inbox.join("done")), expected(&["a.hl7", "b.hl7", "c.hl7"]));
    assert_eq!(names(&inbox.join("error")), expected(&["empty.hl7", "unreadable.hl7"]));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_file_is_split_and_its_wrong_counts_are_told() {
    let (rig, running, out) = start("").await;
    let log = crate::logs::listen();
    let batch =
        format!("FHS|^~\\&|A\rBHS|^~\\&|A\r{}{}BTS|3\rBHS|^~\\&|A\r{}BTS|1\rFTS|2\r", adt("1"), adt("2"), adt("3"));
    put(&rig, "wrong-count.hl7", &batch);
    assert_eq!(out.received(3).await, ["1", "2", "3"]);
    arrives(&rig.folder().join("inbox/done"), "wrong-count.hl7").await;
    let line = log.find(&["wrong-count.hl7"]).expect("the count is logged");
    assert!(line.contains('3') && line.contains('2'), "{line}");
    let stored: Vec<Vec<u8>> = running.stored().into_iter().map(|(_, stored)| stored.raw.to_vec()).collect();
    assert_eq!(stored, ["1", "2", "3"].map(|id| adt(id).into_bytes()), "without the batch around them");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_grows_is_left_alone_until_it_has_settled() {
    let out = Accepting::start().await;
    let rig = Rig::to(out.address);
    rig.write("services/files.toml", &SERVICE.replace("0ms", "300ms")).write("inbox/grows.hl7", "");
    let running = rig.start().await;
    let message = adt("1");
    let path = rig.folder().join("inbox/grows.hl7");
    // Each byte changes the file again; another file, whole from the start, says when a look has come in between.
    for end in 1..=message.len() {
        fs::write(&path, &message.as_bytes()[..end]).expect("it can be written");
        tokio::task::yield_now().await;
    }
    assert_eq!(out.received(1).await, ["1"]);
    assert_eq!(out.bodies(), [message.into_bytes()], "whole, not the part there was at a look");
    assert_eq!(running.stored().len(), 1);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_over_the_bound_is_refused_its_file_put_aside_and_all_others_are_taken() {
    let (rig, running, out) = start("[intake]\nmessage_bytes = \"8KiB\"\n").await;
    let log = crate::logs::listen();
    let large = format!("{}NTE|1||{}\r", adt("large"), "x".repeat(9_000));
    put(&rig, "1-large.hl7", &format!("{}{large}{}", adt("first"), adt("last")));
    put(&rig, "2-fits.hl7", &adt("fits"));
    assert_eq!(out.received(3).await, ["first", "last", "fits"]);
    let line = log.find(&["over message_bytes was refused"]).expect("it is logged");
    assert!(line.contains("1-large.hl7") && line.contains(&format!("at={}", adt("first").len())), "{line}");
    arrives(&rig.folder().join("inbox/done"), "2-fits.hl7").await;
    assert_eq!(names(&rig.folder().join("inbox/error")), BTreeSet::from(["1-large.hl7".to_owned()]));
    assert_eq!((running.stored().len(), running.status().oversize), (3, 1));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_file_goes_on_where_a_crash_left_it() {
    use std::os::unix::fs::MetadataExt;
    let (rig, running, out) = start("").await;
    running.stop().await;
    let messages: Vec<String> = (0..700).map(|n| adt(&format!("{n:03}"))).collect();
    put(&rig, "long.hl7", &messages.concat());
    let inbox = rig.folder().join("inbox");
    let meta = fs::metadata(inbox.join("long.hl7")).expect("it is there");
    let version = format!("{} {} {} {}", meta.size(), meta.mtime(), meta.mtime_nsec(), meta.ino());
    fs::write(inbox.join("done/.long.hl7.taken"), format!("512 {version}\n")).expect("a note");
    let running = rig.start().await;
    let received = out.received(188).await;
    let wanted: Vec<String> = (512..700).map(|n| format!("{n:03}")).collect();
    assert_eq!(received, wanted);
    arrives(&inbox.join("done"), "long.hl7").await;
    until("the note is gone", || (!inbox.join("done/.long.hl7.taken").exists()).then_some(())).await;
    assert_eq!(running.stored().len(), 188);
    // Another file of the name is another file.
    put(&rig, "long.hl7", &messages[..300].concat());
    arrives(&inbox.join("done"), "long.hl7.1").await;
    assert_eq!(running.stored().len(), 488);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_in_a_watched_folder_is_put_aside_and_not_followed() {
    let (rig, running, out) = start("").await;
    rig.write("secret.txt", &adt("secret"));
    let (secret, inbox) = (rig.folder().join("secret.txt"), rig.folder().join("inbox"));
    std::os::unix::fs::symlink(&secret, inbox.join("1.hl7")).expect("a link");
    put(&rig, "2.hl7", &adt("ours"));
    assert_eq!(out.received(1).await, ["ours"]);
    arrives(&inbox.join("done"), "2.hl7").await;
    let aside = inbox.join("error/1.hl7");
    until("the link is put aside", || fs::symlink_metadata(&aside).ok().filter(fs::Metadata::is_symlink)).await;
    assert!(secret.exists());
    assert_eq!(running.stored().len(), 1, "what it leads to was not read");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_in_utf_16_is_taken_as_utf_8() {
    let (rig, running, out) = start("").await;
    let name = "\u{5c71}\u{1F600}";
    let text = format!(
        "\u{feff}MSH|^~\\&|A|B|||2026||ADT^A01|1|P|2.5||||||UNICODE UTF-16\r\nPID|1||4||{name}\r\n\
         MSH|^~\\&|A|B|||2026||ADT^A01|2|P|2.5\r\nPID|1||4||{name}\r\n"
    );
    let wide: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    fs::write(rig.folder().join("part"), wide).expect("a file");
    fs::rename(rig.folder().join("part"), rig.folder().join("inbox/wide.hl7")).expect("it moves");
    assert_eq!(out.received(2).await, ["1", "2"]);
    for body in out.bodies() {
        let text = String::from_utf8(body).expect("UTF-8");
        assert!(text.contains(&format!("PID|1||4||{name}\r")) && text.contains("|UNICODE UTF-8\r"), "{text}");
    }
    arrives(&rig.folder().join("inbox/done"), "wide.hl7").await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_operation_writes_each_message_whole_under_its_id() {
    let rig = Rig::new();
    rig.service("in", "")
        .write("rules/main.rules", ALL_TO_OUT)
        .write("operations/out.toml", "kind = \"file\"\nfolder = \"archive\"\nsuffix = \".txt\"\n");
    let running = rig.start().await;
    let mut sender = running.sender().await;
    for id in ["1", "2", "3"] {
        sender.accepted(&adt(id)).await;
    }
    running.idle("out").await;
    let archive = rig.folder().join("archive");
    let stored = running.stored();
    assert_eq!(names(&archive), stored.iter().map(|(id, _)| format!("{id}-0.txt")).collect());
    for (id, stored) in &stored {
        assert_eq!(fs::read(archive.join(format!("{id}-0.txt"))).expect("it is there"), stored.raw);
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_outputs_of_one_message_to_one_folder_are_two_files() {
    let rig = Rig::new();
    rig.service("in", "")
        .write("rules/main.rules", "match first\nrule all { send to out using a; send to out using b }\n")
        .write("transforms/a.hl7t", "set MSH-10 = \"a\"\n")
        .write("transforms/b.hl7t", "set MSH-10 = \"b\"\n")
        .write("operations/out.toml", "kind = \"file\"\nfolder = \"archive\"\n");
    let running = rig.start().await;
    running.sender().await.accepted(&adt("1")).await;
    running.idle("out").await;
    let archive = rig.folder().join("archive");
    let ids: BTreeSet<String> =
        names(&archive).iter().map(|name| id_of(&fs::read(archive.join(name)).expect("it is there"))).collect();
    assert_eq!(ids, BTreeSet::from(["a".to_owned(), "b".to_owned()]));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_cannot_be_written_keeps_the_line_waiting_and_loses_nothing() {
    let rig = Rig::new();
    rig.service("in", "")
        .write("rules/main.rules", ALL_TO_OUT)
        .write("archive", "a file where the folder should be")
        .write(
            "operations/out.toml",
            "kind = \"file\"\nfolder = \"archive\"\n[retry]\nfirst = \"2ms\"\nmax = \"2ms\"\n",
        );
    let running = rig.start().await;
    let mut sender = running.sender().await;
    for id in ["1", "2"] {
        sender.accepted(&adt(id)).await;
    }
    until("it is tried again", || (running.status().operations[0].retried > 2).then_some(())).await;
    assert_eq!(running.waiting("out"), 2);
    rig.remove("archive");
    fs::create_dir(rig.folder().join("archive")).expect("a folder");
    running.idle("out").await;
    assert_eq!(names(&rig.folder().join("archive")).len(), 2);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_whose_folder_goes_away_waits_for_it_and_does_not_make_another_one() {
    let rig = Rig::new();
    rig.service("in", "").write("rules/main.rules", ALL_TO_OUT).write(
        "operations/out.toml",
        "kind = \"file\"\nfolder = \"share/archive\"\n[retry]\nfirst = \"2ms\"\nmax = \"2ms\"\n",
    );
    let running = rig.start().await;
    let mut sender = running.sender().await;
    sender.accepted(&adt("1")).await;
    running.idle("out").await;
    // As where a share is not mounted any more: its place is there, and empty.
    let (share, away) = (rig.folder().join("share"), rig.folder().join("away"));
    fs::rename(&share, &away).expect("it moves");
    fs::create_dir(&share).expect("a folder");
    sender.accepted(&adt("2")).await;
    until("it is tried again", || (running.status().operations[0].retried > 2).then_some(())).await;
    assert!(!share.join("archive").exists());
    fs::remove_dir(&share).expect("it is empty");
    fs::rename(&away, &share).expect("it moves");
    running.idle("out").await;
    assert_eq!(names(&share.join("archive")).len(), 2);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_somebody_else_is_never_replaced() {
    let rig = Rig::new();
    rig.service("in", "").write("rules/main.rules", ALL_TO_OUT).write(
        "operations/out.toml",
        "kind = \"file\"\nfolder = \"archive\"\n[retry]\nfirst = \"2ms\"\nmax = \"2ms\"\n",
    );
    let running = rig.start().await;
    running.request("suspend out").await.expect("it is there");
    running.sender().await.accepted(&adt("1")).await;
    let (id, _) = running.stored().remove(0);
    let name = format!("archive/{id}-0.hl7");
    rig.write(&name, "another's");
    running.request("resume out").await.expect("it is there");
    until("it is tried again", || (running.status().operations[0].retried > 2).then_some(())).await;
    assert_eq!(fs::read(rig.folder().join(&name)).expect("it is there"), b"another's");
    rig.remove(&name);
    running.idle("out").await;
    assert_eq!(fs::read(rig.folder().join(&name)).expect("it is there"), adt("1").into_bytes());
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_keeps_a_service_from_its_files_is_logged_once_shown_by_the_status_and_told_when_it_is_over() {
    let (rig, running, out) = start("").await;
    let log = crate::logs::listen();
    let inbox = rig.folder().join("inbox");
    let hindered = || running.status().services.iter().find(|one| one.name == "files").map(|one| one.hindered.clone());
    let says = async |words: &str| {
        until(words, || hindered().is_some_and(|now| now.starts_with(words)).then_some(())).await;
    };
    let looked = async || {
        put(&rig, "next.hl7", &adt("next"));
        until("it looks again", || (!inbox.join("next.hl7").exists()).then_some(())).await;
    };
    // The name is as long as one may be: there is none with a number for the second file of it.
    let name = format!("{}.hl7", "4711".repeat(62) + "abc");
    put(&rig, &name, &adt("1"));
    arrives(&inbox.join("done"), &name).await;
    put(&rig, &name, &adt("2"));
    says("1 file cannot be taken").await;
    for _ in 0..3 {
        looked().await;
    }
    let lines = log.count(&["a file cannot be taken", &name]);
    assert_eq!((lines, hindered().is_some_and(|now| now.contains("4711"))), (1, false));
    fs::remove_file(inbox.join("done").join(&name)).expect("it is there");
    arrives(&inbox.join("done"), &name).await;
    until("nothing hinders", || (hindered().as_deref() == Some("")).then_some(())).await;
    let over = log.count(&["all files can be taken again"]);
    assert_eq!(over - log.count(&["all files can be taken again", "pickups"]), 1);
    assert_eq!(out.received(5).await, ["1", "2", "next", "next", "next"], "and each was taken once");

    fs::rename(&inbox, rig.folder().join("away")).expect("it moves");
    says("its folder cannot be read").await;
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    // Another test has a service with a folder that cannot be read as well.
    assert_eq!(log.count(&["the folder cannot be read", &inbox.display().to_string()]), 1);
    fs::rename(rig.folder().join("away"), &inbox).expect("it moves");
    looked().await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_many_faults_has_a_few_lines_in_the_log() {
    let (rig, running, out) = start("").await;
    let log = crate::logs::listen();
    put(&rig, "many-faults.hl7", &format!("{}{}", adt("1"), "BTS|7\r".repeat(20_000)));
    arrives(&rig.folder().join("inbox/done"), "many-faults.hl7").await;
    assert_eq!(out.received(1).await, ["1"]);
    assert!((2..20).contains(&log.count(&["many-faults.hl7"])), "{}", log.count(&["many-faults.hl7"]));
    assert_eq!(log.count(&["many-faults.hl7", "more faults"]), 1);
    running.stop().await;
}
