//! `terrace verify`, `backup` and `restore` with the real binary, while messages and SQL flow.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bench::postgres::Client;
use serde_json::Value;

use crate::node::{Bed, Node, until};

/// A new place. All have the same users: a node whose users were imported refuses others.
pub(crate) fn bed() -> Bed {
    let bed = Bed::new();
    configure(&bed, "", "");
    bed
}

/// Writes its settings, with more of SQL and more tables.
fn configure(bed: &Bed, sql: &str, tables: &str) {
    static VERIFIER: LazyLock<String> =
        LazyLock::new(|| sql::wire::Verifier::of("not asked for").expect("there is randomness").to_string());
    let verifier = VERIFIER.as_str();
    bed.configure(&format!(
        "[sql]\nlisten = \"127.0.0.1:0\"\ntrust = true\n{sql}[sql.users]\nann = \"{verifier}\"\n{tables}"
    ));
}

pub(crate) fn client(node: &Node<'_>) -> Client {
    Client::connect(node.sql(), "ann", Duration::from_secs(60)).expect("it is let in")
}

pub(crate) fn ids(node: &Node<'_>) -> Vec<u64> {
    let rows = client(node).query("SELECT id FROM t ORDER BY id").expect("it reads").rows;
    rows.into_iter().map(|row| row[0].as_deref().expect("an id").parse().expect("a number")).collect()
}

pub(crate) fn text(path: &Path) -> String {
    path.display().to_string()
}

/// Messages and rows one after the other until `stop`; how many rows there are.
pub(crate) fn flow(node: &Node<'_>, stop: &AtomicBool, from: u64) -> u64 {
    let mut sql = client(node);
    let mut id = from;
    while !stop.load(Ordering::Relaxed) {
        id += 1;
        sql.query(&format!("INSERT INTO t VALUES ({id}, '{}')", "x".repeat(id as usize % 3000))).expect("it is taken");
        if id.is_multiple_of(8) {
            node.send(&format!("M{id}"));
        }
    }
    id
}

#[test]
fn a_node_backs_itself_up_records_it_and_makes_none_twice_after_a_restart() {
    let bed = Bed::new();
    bed.configure("[backup]\nfolder = \"backups\"\nevery = \"1h\"\n");
    let run = |args: &[&str]| bed.run(&[args, &["--data"]].concat());
    let node = bed.start();
    until("a try without its folder is told", || !node.status()["backup"]["failed"].is_null());
    run(&["status"]).succeeds("last backup: none was made yet");
    node.stop();
    fs::create_dir(bed.path("backups")).expect("a folder");
    // A failed one is tried again a while later: a node without a record begins at once.
    fs::remove_dir_all(bed.data()).expect("it was made");
    let node = bed.start();
    node.send("M1");
    until("a backup is made", || !node.status()["backup"]["good"].is_null());
    let good = node.status()["backup"]["good"]["folder"].as_str().expect("a folder").to_owned();
    run(&["status"]).succeeds("its pages and journal were read back");
    run(&["audit", "list"]).succeeds("node.backup");
    bed.command_line(&["verify", &good]).succeeds("");
    node.kill();
    let node = bed.start();
    assert_eq!(node.status()["backup"]["good"]["folder"].as_str(), Some(good.as_str()));
    node.stop();
    let made = fs::read_dir(bed.path("backups"))
        .expect("it lists")
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    assert_eq!(made.filter(|name| name.starts_with("backup-")).count(), 1);
}

#[test]
fn a_backup_is_recorded_also_where_tables_have_taken_all_their_space() {
    let bed = bed();
    let node = bed.start();
    client(&node).query("CREATE TABLE t (id bigint PRIMARY KEY, body text)").expect("it is made");
    node.stop();
    fs::create_dir(bed.path("backups")).expect("a folder");
    configure(&bed, "space = \"1KiB\"\n", "[backup]\nfolder = \"backups\"\nevery = \"1h\"\n");
    let node = bed.start();
    until("a backup is made", || !node.status()["backup"]["good"].is_null());
    let refused = client(&node).query("INSERT INTO t VALUES (1, 'x')").expect_err("tables have no space");
    assert!(refused.to_string().contains("[sql] space"), "{refused}");
    assert!(node.status()["backup"]["failed"].is_null());
    node.stop();
}

/// A new place with the same settings, whose data are restored.
fn restored(backup: &str, more: &[&str]) -> Bed {
    let bed = bed();
    let to = text(&bed.data());
    let args = [&["restore", backup, "--to", &to], more].concat();
    bed.command_line(&args).succeeds("restored to");
    bed.command_line(&["verify", &to]).succeeds("every row reads");
    bed
}

#[test]
fn a_backup_made_while_messages_and_sql_flow_is_restored_to_its_end_and_to_moments_behind_it() {
    let bed = bed();
    let node = bed.start();
    client(&node).query("CREATE TABLE t (id bigint PRIMARY KEY, body text)").expect("it is made");
    node.send("M0");
    let (backup, stop) = (text(&bed.path("backup")), AtomicBool::new(false));
    let mut before = 0;
    let last = std::thread::scope(|scope| {
        let flowing = scope.spawn(|| flow(&node, &stop, 0));
        until("there is something to back up", || ids(&node).len() >= 40);
        before = ids(&node).len();
        bed.run(&["backup", &backup, "--data"]).succeeds("earliest moment");
        bed.run(&["verify"]).succeeds("a running node");
        stop.store(true, Ordering::Relaxed);
        flowing.join().expect("it flows")
    });
    bed.command_line(&["verify", &backup]).succeeds("a backup");
    let taken = bed.run(&["backup", &backup, "--data"]);
    taken.fails("choose an empty place");
    // A moment by position, and one by time: that of the last message.
    let position = node.status()["journal"]["durable"].to_string();
    client(&node).query("INSERT INTO t VALUES (-1, '')").expect("it is taken");
    node.send("LAST");
    let lines = bed.run(&["message", "list", "--json", "--last", "1", "--data"]).succeeds("LAST");
    let line: Value = serde_json::from_str(lines.trim()).expect("JSON");
    let received = jiff::Timestamp::from_microsecond(line["received_us"].as_i64().expect("a time")).expect("a time");
    let moment = received.to_zoned(jiff::tz::TimeZone::system()).datetime().to_string();
    client(&node).query("INSERT INTO t VALUES (-2, '')").expect("it is taken");
    node.stop();

    let by_itself = restored(&backup, &[]);
    let node = by_itself.start();
    let found = ids(&node);
    assert!(found.len() >= before && found.len() as u64 <= last, "{} of {before} to {last}", found.len());
    assert!(
        found.iter().zip(1..).all(|(id, expected)| *id == expected),
        "what came before a row is there, too: {found:?}"
    );
    assert_eq!(by_itself.stored()[0], "M0");
    // It is a node like any other.
    client(&node).query("INSERT INTO t VALUES (1000000, 'new')").expect("it is taken");
    node.send("NEW");
    node.stop();

    let kept = text(&bed.data());
    for (until, rows, message) in [(position.as_str(), last, "M0"), (moment.as_str(), last + 1, "LAST")] {
        let place = restored(&backup, &["--journal", &kept, "--until", until]);
        let node = place.start();
        assert_eq!(ids_and_negative(&node), rows, "until {until}");
        assert_eq!(place.stored().contains(&"LAST".to_owned()), message == "LAST", "until {until}");
        node.stop();
    }
    let whole = restored(&backup, &["--journal", &kept]);
    let node = whole.start();
    assert_eq!(ids_and_negative(&node), last + 2, "with the node's journal nothing is lost");
    node.kill();
}

fn ids_and_negative(node: &Node<'_>) -> u64 {
    let rows = client(node).query("SELECT count(*) FROM t").expect("it reads").rows;
    rows[0][0].as_deref().expect("a count").parse().expect("a number")
}

fn flip(file: &Path, at: u64) {
    let file = File::options().read(true).write(true).open(file).expect("it opens");
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("it reads");
    file.write_all_at(&[byte[0] ^ 0x10], at).expect("it writes");
}

#[test]
fn a_damaged_backup_and_a_damaged_node_are_told_with_the_place_and_nothing_is_made_of_them() {
    let bed = bed();
    let node = bed.start();
    client(&node).query("CREATE TABLE t (id bigint PRIMARY KEY, body text)").expect("it is made");
    for id in 0..20 {
        node.send(&format!("M{id}"));
    }
    node.stop();
    let (backup, to) = (bed.path("backup"), bed.path("new"));
    // Relative to where the command runs.
    bed.run(&["backup", "backup", "--data"]).succeeds("a stopped node");
    let json = bed.command_line(&["verify", "backup", "--json"]).succeeds("");
    let found: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!((&found["sound"], &found["what"]), (&true.into(), &"a backup".into()));
    assert_eq!(found["rows"]["messages"], 20);

    // The allocation map follows the superblock; a page of a tree follows the map.
    for page in [1, 3] {
        flip(&backup.join("pages-0000"), page * 8192 + 100);
        bed.command_line(&["verify", &text(&backup)]).finds("pages-0000 at");
        let refused = bed.command_line(&["restore", &text(&backup), "--to", &text(&to)]);
        refused.finds("pages-0000 at");
        assert!(!to.exists(), "nothing is made of it");
        flip(&backup.join("pages-0000"), page * 8192 + 100);
    }
    fs::rename(backup.join("backup"), bed.path("manifest")).expect("it moves");
    bed.command_line(&["restore", &text(&backup), "--to", &text(&to)]).fails("not finished");
    fs::rename(bed.path("manifest"), backup.join("backup")).expect("it moves");
    bed.command_line(&["restore", &text(&bed.data()), "--to", &text(&to)]).fails("no backup");
    bed.command_line(&["restore", &text(&backup), "--to", &text(&bed.data())]).fails("restore to a new folder");
    bed.command_line(&["restore", &text(&backup), "--to", &text(&to), "--until", "1"]).fails("before the backup");
    bed.command_line(&["restore", &text(&backup), "--to", &text(&to)]).succeeds("restored to");

    flip(&bed.data().join("pages/pages-0000"), 3 * 8192 + 100);
    bed.command_line(&["verify", &text(&bed.data())]).finds("pages-0000 at");
    bed.command_line(&["verify", &text(&bed.path("nowhere"))]).fails("no node keeps its data in");
}

/// Changes the first page of the data devices that holds a text; whether there was one.
pub(crate) fn damage(bed: &Bed, text: &str) -> bool {
    const PAGE: usize = 8192;
    let mut devices: Vec<_> = fs::read_dir(bed.data().join("pages"))
        .expect("it lists")
        .map(|entry| entry.expect("it lists").path())
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("pages-")))
        .collect();
    devices.sort();
    for device in devices {
        let bytes = fs::read(&device).expect("it reads");
        let holds = |page: &&[u8]| page.windows(text.len()).any(|part| part == text.as_bytes());
        if let Some(at) = bytes.chunks_exact(PAGE).position(|page| holds(&page)) {
            let place = (at * PAGE + 4000) as u64;
            let file = File::options().write(true).open(&device).expect("it opens");
            file.write_all_at(&[bytes[place as usize] ^ 1], place).expect("it writes");
            return true;
        }
    }
    false
}

#[test]
fn a_damaged_page_of_a_table_is_told_everywhere_stops_nothing_else_and_is_repaired() {
    let bed = bed();
    let node = bed.start();
    client(&node).query("CREATE TABLE t (id bigint PRIMARY KEY, body text)").expect("it is made");
    for id in 0..300 {
        client(&node)
            .query(&format!("INSERT INTO t VALUES ({id}, 'row {id} {}')", "x".repeat(500)))
            .expect("it is taken");
    }
    (0..20).for_each(|at| node.send(&format!("M{at}")));
    node.stop();
    assert!(damage(&bed, "row 150 xxx"), "there is such a page");

    let node = bed.start();
    let why = client(&node).query("SELECT sum(length(body)) FROM t").expect_err("it is damaged").to_string();
    assert!(why.contains("damaged") && why.contains("tree sql.rows") && why.contains("keys from"), "{why}");
    assert!(client(&node).query("SELECT body FROM t WHERE id = 150").is_err());
    let row = client(&node).query("SELECT id FROM t WHERE id = 3").expect("another page").rows;
    assert_eq!(row[0][0].as_deref(), Some("3"));
    client(&node).query("INSERT INTO t VALUES (1000, 'new')").expect("it is taken");
    client(&node).query("DELETE FROM t WHERE id = 7").expect("it is taken");
    node.send("NEW");
    let told = bed.run(&["status", "--data"]).finds("damaged: tree sql.rows");
    assert!(told.contains("terrace repair"), "{told}");
    let told = bed.run(&["status", "--json", "--data"]).finds("\"quarantined\"");
    let told: Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!(told["quarantined"].as_array().map(Vec::len), Some(1), "{told}");
    assert!(bed.log().contains("damaged and set aside"), "{}", bed.log());
    bed.run(&["verify"]).finds("damaged: ");
    node.stop();

    let shown = bed.run(&["repair"]).finds("would be given up: rows of table public.t");
    assert!(shown.contains("nothing was changed"), "{shown}");
    bed.run(&["verify"]).finds("damaged: ");
    bed.run(&["repair", "--apply"]).succeeds("given up: rows of table public.t");
    bed.run(&["verify"]).succeeds("every row reads");
    bed.run(&["repair"]).succeeds("nothing is damaged");
    let node = bed.start();
    let found = ids(&node);
    assert!(found.len() > 280 && found.len() < 301 && !found.contains(&150) && found.contains(&1000), "{found:?}");
    node.send("AFTER");
    assert_eq!(bed.stored().len(), 22);
    node.stop();
}

#[test]
fn a_damaged_row_group_is_told_and_given_up_by_name_and_other_tables_go_on() {
    let bed = bed();
    let node = bed.start();
    for table in ["t", "u"] {
        client(&node).query(&format!("CREATE TABLE {table} (id bigint PRIMARY KEY, body text)")).expect("it is made");
        // So many rows go to row groups at once.
        let rows: String = (0..125_000).map(|id| format!("{id}\t{table} row {id} {}\n", id * 7919 % 10_007)).collect();
        client(&node).copy_in(&format!("COPY {table} FROM STDIN"), rows.as_bytes()).expect("it is loaded");
    }
    node.stop();
    assert!(damage(&bed, "t row 150 "), "there is such a page");
    let node = bed.start();
    let sum = |table: &str| client(&node).query(&format!("SELECT sum(length(body)) FROM {table}"));
    let why = sum("t").expect_err("it is damaged").to_string();
    assert!(why.contains("damaged") && why.contains("tree columns."), "{why}");
    sum("u").expect("another table");
    client(&node).query("INSERT INTO t VALUES (1000000, 'new')").expect("it is taken");
    node.send("NEW");
    node.stop();
    bed.run(&["repair"]).finds("would be given up: row group");
    bed.run(&["repair", "--apply"]).succeeds("of table public.t, with all its rows");
    bed.run(&["verify"]).succeeds("every row reads");
    let node = bed.start();
    let found = ids(&node);
    assert!(found.contains(&1_000_000) && !found.contains(&150), "{} rows", found.len());
    node.stop();
}
