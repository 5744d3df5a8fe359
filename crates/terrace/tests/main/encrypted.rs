//! An encrypted data directory with the real binary: what is on the disk, what is refused and what the refusal says, backups, and new keys,
//! also while messages and rows flow.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bench::postgres::Client;

use crate::maintenance::{bed, client, flow, ids, text};
use crate::node::{Bed, Node, until};

/// A patient whose name is nowhere else.
const PATIENT: &str = "QUIXANDRIA";

fn admission(id: &str) -> String {
    format!("MSH|^~\\&|HIS|NORTH|HUB|X|20260101120000||ADT^A01|{id}|P|2.5\rPID|1||1||{PATIENT}^ANN\r")
}

/// Writes a key; the text that says where it is.
fn key_file(bed: &Bed, name: &str, byte: u8) -> String {
    let path = bed.path(name);
    fs::write(&path, format!("{byte:02x}").repeat(32)).expect("a file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("it is ours");
    format!("file:{}", path.display())
}

/// A place whose data directory is encrypted with a key of its own.
pub(crate) fn encrypted() -> Bed {
    let bed = bed();
    bed.set_key(Some(&key_file(&bed, "key", 7)));
    bed.run(&["encryption", "init", "--data"]).succeeds("is made: its data key is wrapped with key");
    bed
}

/// Files at and below a folder in which the patient's name can be read.
fn in_clear(folder: &Path) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("it lists") {
            let path = entry.expect("it lists").path();
            let kind = fs::symlink_metadata(&path).expect("it is there").file_type();
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() {
                let bytes = fs::read(&path).expect("it reads");
                let starts = bytes.iter().enumerate().filter(|(_, byte)| **byte == PATIENT.as_bytes()[0]);
                if starts.into_iter().any(|(at, _)| bytes[at..].starts_with(PATIENT.as_bytes())) {
                    found.push(path);
                }
            }
        }
    }
    found
}

/// Messages, a table of rows, and one of row groups.
fn fill(node: &Node<'_>) {
    for id in 0..20 {
        node.send_bytes(&admission(&format!("M{id}")));
    }
    let mut sql = client(node);
    for statement in [
        "CREATE TABLE t (id bigint PRIMARY KEY, body text)".to_owned(),
        format!("INSERT INTO t SELECT g, '{PATIENT} ' || g FROM generate_series(1, 500) s(g)"),
        "CREATE TABLE large (id bigint PRIMARY KEY, body text)".to_owned(),
        // So many rows go to row groups at once.
        format!("INSERT INTO large SELECT g, '{PATIENT} ' || g FROM generate_series(1, 130000) s(g)"),
    ] {
        sql.query(&statement).expect("it is taken");
    }
}

fn count(node: &Node<'_>, sql: &str) -> String {
    let rows = client(node).query(sql).expect("it reads").rows;
    rows[0][0].clone().expect("a count")
}

fn has_all(bed: &Bed, node: &Node<'_>) {
    assert_eq!(count(node, &format!("SELECT count(*) FROM t WHERE body LIKE '{PATIENT}%'")), "500");
    assert_eq!(count(node, &format!("SELECT count(*) FROM large WHERE body LIKE '{PATIENT}%'")), "130000");
    assert_eq!(bed.stored().len(), 20);
}

#[test]
fn messages_and_rows_of_an_encrypted_node_survive_a_kill_and_are_in_no_file_in_clear() {
    let clear = bed();
    let node = clear.start();
    node.send_bytes(&admission("M"));
    node.kill();
    assert!(!in_clear(&clear.data()).is_empty(), "what is looked for would be found");

    let bed = encrypted();
    let node = bed.start();
    fill(&node);
    has_all(&bed, &node);
    node.kill();
    assert_eq!(in_clear(&bed.data()), Vec::<PathBuf>::new());
    let node = bed.start();
    has_all(&bed, &node);
    // Sorted in less memory than it takes: spilled.
    let sorted =
        "SELECT count(*) FROM (SELECT body, row_number() OVER (ORDER BY body || repeat('x', 1000)) n FROM large) q";
    assert_eq!(count(&node, sorted), "130000");
    node.stop();
    assert_eq!(in_clear(&bed.data()), Vec::<PathBuf>::new());
    bed.run(&["verify"]).succeeds("every row reads");
    let log = bed.log();
    assert!(log.contains("the data directory is encrypted") && !log.contains(PATIENT), "{log}");
}

#[test]
fn a_wrong_or_missing_key_and_an_envelope_of_other_data_are_refused_with_what_to_do() {
    let bed = encrypted();
    let right = key_file(&bed, "key", 7);
    bed.run(&["encryption", "init", "--data"]).fails("is encrypted already");
    let node = bed.start();
    node.send_bytes(&admission("M1"));
    node.stop();
    bed.run(&["encryption", "init", "--data"]).fails("is encrypted already");

    bed.set_key(None);
    bed.refuses("is encrypted: set TERRACE_KEY to where its key-encryption key is");
    bed.run(&["verify"]).fails("set TERRACE_KEY");
    bed.run(&["message", "list", "--data"]).fails("set TERRACE_KEY");
    bed.run(&["encryption", "status", "--data"]).succeeds("wrapped with key");
    bed.set_key(Some(&key_file(&bed, "other", 8)));
    bed.refuses("give the right key-encryption key");
    bed.run(&["verify"]).fails("give the right key-encryption key");
    bed.set_key(Some("file:/nonexistent/key"));
    bed.refuses("the key-encryption key cannot be had from file /nonexistent/key");
    bed.set_key(Some("kmip:host"));
    bed.refuses("write file:PATH, env:NAME or command:PROGRAM ARGUMENTS");
    fs::set_permissions(bed.path("key"), fs::Permissions::from_mode(0o644)).expect("it is ours");
    bed.set_key(Some(&right));
    bed.refuses("chmod 600 it");
    fs::set_permissions(bed.path("key"), fs::Permissions::from_mode(0o600)).expect("it is ours");

    // The envelope of other data, with the same key-encryption key.
    let (other, envelope) = (encrypted(), bed.data().join("encryption.envelope"));
    let own = fs::read(&envelope).expect("it is there");
    fs::copy(other.data().join("encryption.envelope"), &envelope).expect("it is copied");
    bed.refuses("the envelope belongs to other data");
    fs::write(&envelope, &own[..own.len() - 1]).expect("it is written");
    bed.refuses("restore the envelope from a copy");
    fs::remove_file(&envelope).expect("it is there");
    bed.refuses("`terrace encryption init` makes a new directory so");
    bed.set_key(None);
    bed.refuses("is encrypted: give the key-encryption key");
    fs::write(&envelope, &own).expect("it is written");
    bed.set_key(Some(&right));
    let node = bed.start();
    assert_eq!(bed.stored(), ["M1"]);
    node.stop();

    let clear = self::bed();
    clear.set_key(Some(&key_file(&clear, "key", 7)));
    clear.refuses("`terrace encryption init` makes a new directory so; to use one in clear, leave TERRACE_KEY out");
    clear.run(&["encryption", "rotate-data-key", "--data"]).fails("is missing");
}

/// Ends what flows, also if the test fails meanwhile.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn both_keys_change_while_messages_and_rows_flow_and_a_backup_of_it_is_verified_and_restored() {
    let bed = encrypted();
    let node = bed.start();
    client(&node).query("CREATE TABLE t (id bigint PRIMARY KEY, body text)").expect("it is made");
    let second = key_file(&bed, "second", 9);
    let (backup, stop) = (text(&bed.path("backup")), AtomicBool::new(false));
    let old_backup = text(&bed.path("old"));
    bed.run(&["backup", &old_backup, "--data"]).succeeds("earliest moment");
    let last = std::thread::scope(|scope| {
        let flowing = scope.spawn(|| flow(&node, &stop, 0));
        let ends = Stop(&stop);
        let more = |rows: usize| {
            let before = ids(&node).len();
            until("rows flow", || ids(&node).len() >= before + rows);
        };
        more(20);
        bed.run(&["encryption", "rotate-data-key", "--data"]).succeeds("the node encrypts with data key 2 from now on");
        more(20);
        let rotate = ["encryption", "rotate-key-encryption-key", "--new", &second, "--data"];
        bed.run(&rotate).succeeds("TERRACE_KEY has to name that place at the next start");
        more(20);
        // The node asks the provider that it was told of.
        bed.run(&["encryption", "rotate-data-key", "--data"]).succeeds("data key 3 from now on");
        more(20);
        bed.run(&["backup", &backup, "--data"]).succeeds("earliest moment");
        more(5);
        drop(ends);
        flowing.join().expect("it flows")
    });
    node.send_bytes(&admission("LAST"));
    let entries = bed.run(&["audit", "list", "--json", "--last", "0", "--data"]).succeeds("encryption.rotate-data-key");
    assert!(entries.contains("encryption.rotate-key-encryption-key") && entries.contains("second"), "{entries}");
    assert!(!entries.contains(&"09".repeat(32)), "no key is recorded");
    bed.run(&["encryption", "retire-data-key", "1", "--data"]).fails("a node runs there");
    node.kill();

    bed.refuses("give the right key-encryption key");
    bed.set_key(Some(&second));
    let node = bed.start();
    assert_eq!(ids(&node).len() as u64, last);
    assert!(bed.stored().contains(&"LAST".to_owned()));
    node.stop();
    assert_eq!(in_clear(&bed.data()), Vec::<PathBuf>::new());
    assert_eq!(in_clear(Path::new(&backup)), Vec::<PathBuf>::new());
    bed.run(&["verify"]).succeeds("every row reads");
    bed.run(&["encryption", "retire-data-key", "3", "--data"]).fails("data key 3 is needed");
    bed.run(&["encryption", "retire-data-key", "1", "--data"]).fails("data key 1 is needed");

    bed.command_line(&["verify", &backup]).succeeds("a backup");
    bed.command_line(&["verify", &old_backup]).fails("give the right key-encryption key");
    bed.set_key(None);
    bed.command_line(&["verify", &backup]).fails("set TERRACE_KEY");
    let to = self::bed();
    let folder = text(&to.data());
    to.command_line(&["restore", &backup, "--to", &folder]).fails("set TERRACE_KEY");
    to.set_key(Some(&second));
    to.command_line(&["restore", &backup, "--to", &folder]).succeeds("restored to");
    assert_eq!(in_clear(&to.data()), Vec::<PathBuf>::new());
    let node = to.start();
    assert!(ids(&node).len() >= 80);
    node.send_bytes(&admission("NEW"));
    node.stop();
    to.set_key(Some(&key_file(&bed, "key", 7)));
    to.command_line(&["verify", &old_backup]).succeeds("a backup");
}

#[test]
fn a_data_key_that_nothing_needs_is_retired_and_the_node_goes_on_without_it() {
    let bed = encrypted();
    let new = key_file(&bed, "second", 9);
    bed.run(&["encryption", "rotate-data-key", "--data"]).succeeds("data key 2 is used from the next start on");
    bed.run(&["encryption", "rotate-key-encryption-key", "--new", &new, "--data"]).succeeds("from file");
    bed.set_key(Some(&new));
    let node = bed.start();
    node.send_bytes(&admission("M1"));
    node.stop();
    let shown = bed.run(&["encryption", "status", "--in-use", "--data"]).succeeds("in use");
    let used: Vec<&str> = shown.lines().filter_map(|line| line.split_whitespace().last()).collect();
    assert_eq!(used[used.len() - 2..], ["no", "yes"], "{shown}");
    bed.run(&["encryption", "retire-data-key", "2", "--data"]).fails("data key 2 is needed");
    bed.run(&["encryption", "retire-data-key", "7", "--data"]).fails("has no data key 7");
    bed.run(&["encryption", "retire-data-key", "1", "--data"]).succeeds("data key 1 is removed");
    bed.run(&["verify"]).succeeds("every row reads");
    let node = bed.start();
    assert_eq!(bed.stored(), ["M1"]);
    // What was done while no node ran is in the audit since the starts after it.
    let entries = bed.run(&["audit", "list", "--json", "--last", "0", "--data"]).succeeds("");
    let of = |action: &str| entries.lines().filter(|line| line.contains(&format!("\"{action}\""))).count();
    for action in ["rotate-data-key", "rotate-key-encryption-key", "retire-data-key"] {
        assert_eq!(of(&format!("encryption.{action}")), 1, "{entries}");
    }
    assert!(entries.contains("noted_us") && !bed.data().join("audit.pending").exists(), "{entries}");
    node.send_bytes(&admission("M2"));
    node.stop();
}

/// The first data key of an envelope as it is wrapped there; see the picture in `encryption::envelope`.
fn first_wrapped_key(bed: &Bed) -> Vec<u8> {
    let envelope = fs::read(bed.data().join("encryption.envelope")).expect("it is there");
    envelope[60..92].to_vec()
}

fn lies_in(path: &Path, part: &[u8]) -> bool {
    fs::read(path).is_ok_and(|bytes| bytes.windows(part.len()).any(|window| window == part))
}

/// Rows one after the other until the node is killed; the last that was acknowledged.
fn load(address: SocketAddr, acknowledged: &AtomicU64) {
    let mut sql = Client::connect(address, "ann", Duration::from_secs(60)).expect("it is let in");
    for id in 1_u64.. {
        let insert = format!("INSERT INTO loaded VALUES ({id}, '{}')", "y".repeat(id as usize * 97 % 9000));
        if sql.query(&insert).is_err() {
            return;
        }
        acknowledged.store(id, Ordering::Release);
    }
}

#[test]
fn what_an_old_key_encrypted_is_written_anew_under_load_across_a_kill_and_the_old_key_is_erased() {
    let bed = encrypted();
    let old = first_wrapped_key(&bed);
    bed.run(&["encryption", "rewrite", "--data"]).fails("start it with `terrace serve`");
    let node = bed.start();
    fill(&node);
    client(&node).query("CREATE TABLE loaded (id bigint PRIMARY KEY, body text)").expect("it is made");
    bed.run(&["encryption", "rewrite", "--stop", "--data"]).fails("nothing is being rewritten");
    bed.run(&["encryption", "rotate-data-key", "--data"]).succeeds("data key 2 from now on");
    bed.run(&["encryption", "rewrite", "--rate", "1KiB", "--data"]).fails("the rate is at least");
    // So slow that it does not end here.
    bed.run(&["encryption", "rewrite", "--rate", "256KiB", "--detach", "--data"]).succeeds("in the background");
    let (address, acknowledged) = (node.sql(), AtomicU64::new(0));
    let status = || bed.run(&["encryption", "status", "--data"]).printed();
    std::thread::scope(|scope| {
        scope.spawn(|| load(address, &acknowledged));
        until("rows flow and pages are looked at", || {
            acknowledged.load(Ordering::Acquire) > 30 && !status().contains(": 0 of 0 pages")
        });
        let shown = status();
        assert!(shown.contains("rewriting with data key 2") && shown.contains("goes on"), "{shown}");
        node.kill();
    });
    let last = acknowledged.load(Ordering::Acquire);
    assert!(status().contains("goes on"), "at the next start: {}", status());
    bed.run(&["encryption", "retire-data-key", "1", "--data"]).fails("terrace encryption rewrite");

    let node = bed.start();
    assert!(
        count(&node, "SELECT count(*) FROM loaded").parse::<u64>().expect("a number") >= last,
        "{last} acknowledged"
    );
    assert!(status().contains("goes on"), "{}", status());
    bed.run(&["encryption", "rewrite", "--stop", "--data"]).succeeds("was stopped");
    let backup = text(&bed.path("backup"));
    bed.run(&["backup", &backup, "--data"]).succeeds("earliest moment");
    let args = ["encryption", "rewrite", "--rate", "1GiB", "--drop-kept-journal", "--data"];
    bed.run(&args).succeeds("is complete");
    has_all(&bed, &node);
    let entries = bed.run(&["audit", "list", "--json", "--last", "0", "--data"]).succeeds("encryption.rewrite");
    assert!(entries.contains("encryption.rewrite-stop") && entries.contains("encryption.rewrite-end"), "{entries}");
    node.stop();

    let shown = bed.run(&["encryption", "status", "--in-use", "--data"]).succeeds("is complete");
    let is_used = |number: &str| {
        let row = shown.lines().find(|line| line.split_whitespace().next() == Some(number));
        row.and_then(|line| line.split_whitespace().last())
    };
    assert_eq!((is_used("1"), is_used("2")), (Some("no"), Some("yes")), "{shown}");
    let envelope = bed.data().join("encryption.envelope");
    assert!(lies_in(&envelope, &old), "what is looked for would be found");
    bed.run(&["encryption", "retire-data-key", "1", "--data"]).succeeds("data key 1 is removed");
    for file in fs::read_dir(bed.data()).expect("it lists") {
        let path = file.expect("it lists").path();
        assert!(!lies_in(&path, &old), "{} has the old key", path.display());
    }
    bed.run(&["verify"]).succeeds("every row reads");
    let node = bed.start();
    has_all(&bed, &node);
    assert!(count(&node, "SELECT count(*) FROM loaded").parse::<u64>().expect("a number") >= last);
    assert_eq!(in_clear(&bed.data()), Vec::<PathBuf>::new());
    node.stop();
    // A backup of before has the key in an envelope of its own: it still gives back what a repair needs.
    bed.run(&["repair", "--backup", &backup]).succeeds("the journal does not go on where the backup ends");
}
