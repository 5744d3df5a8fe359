//! `kill -9` of a real process. This test starts itself as a child that commits from several threads while checkpoints
//! run. It kills the child at a random moment, opens its store, and checks that every acknowledged commit is there.

use std::io::{BufRead, BufReader, Write};
use std::ops::Bound;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use device::Shelf;
use device::file::{FileOptions, FileShelf};
use store::{CheckpointOptions, Direction, Options, Places, Store, StoreError};

use crate::support::{replay, seed, small, verified};

const TEST: &str = "kill::a_killed_process_leaves_every_transaction_that_it_acknowledged_and_no_half_of_one";
const ROUNDS: usize = 12;
const THREADS: u64 = 4;
/// The keys that one transaction writes, all with the same value.
const KEYS: u64 = 5;

fn places(root: &Path) -> Places {
    let shelf = |name: &str| {
        std::fs::create_dir_all(root.join(name)).expect("a temporary folder takes folders");
        Arc::new(FileShelf::open(&root.join(name), FileOptions::default()).expect("opens")) as Arc<dyn Shelf>
    };
    Places { journal: shelf("journal"), images: shelf("images"), data: shelf("data") }
}

fn options() -> Options {
    let checkpoints = CheckpointOptions {
        interval: Duration::from_millis(50),
        dirty_bytes: 1 << 20,
        dirty_bytes_max: 2 << 20,
        ..CheckpointOptions::default()
    };
    let sizes = Options { data_device_bytes: 4 << 20, images_device_bytes: 1 << 20, ..small() };
    // Small enough that some transactions spill.
    Options { background: true, checkpoints: Some(checkpoints), transaction_bytes: 4 << 10, ..sizes }
}

/// The child: each thread sets its keys to the next number, again and again, and prints the number after its commit.
fn child(root: &str) {
    let (store, _) = Store::open(places(root.as_ref()), options()).expect("opens");
    let mut transaction = store.begin();
    let tree = match transaction.tree("t").expect("reads") {
        Some(tree) => tree,
        None => {
            let tree = transaction.create_tree("t").expect("new");
            transaction.commit().expect("commits");
            tree
        }
    };
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let store = &store;
            scope.spawn(move || {
                let first = format!("{thread}.0");
                let before = store.snapshot().get(tree, first.as_bytes()).expect("reads");
                let start = before.map_or(0, |value| number(&value));
                for next in start + 1.. {
                    let mut transaction = store.begin();
                    let value = format!("{next:08}{}", "x".repeat((next % 13 * 200) as usize));
                    for key in 0..KEYS {
                        transaction.put(tree, format!("{thread}.{key}").as_bytes(), value.as_bytes()).expect("fits");
                    }
                    match transaction.commit() {
                        Ok(_) => writeln!(std::io::stdout(), "done {thread} {next}").expect("the parent reads"),
                        Err(StoreError::Conflict) => panic!("nobody else writes these keys"),
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
    });
}

fn number(value: &[u8]) -> u64 {
    std::str::from_utf8(&value[..8]).expect("text").parse().expect("a number")
}

/// Starts the child, lets it run for a moment, and kills it. Returns the last number that each thread acknowledged.
fn run_and_kill(root: &Path, time: Duration) -> [u64; THREADS as usize] {
    let program = std::env::current_exe().expect("this test has a path");
    let mut child = Command::new(program)
        .args([TEST, "--exact", "--nocapture"])
        .env("STORE_KILL_CHILD", root)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("starts");
    let output = child.stdout.take().expect("is piped");
    let reader = std::thread::spawn(move || {
        let mut acknowledged = [0; THREADS as usize];
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            let words: Vec<&str> = line.split(' ').collect();
            if let ["done", thread, number] = words[..] {
                let (Ok(thread), Ok(number)) = (thread.parse::<usize>(), number.parse()) else { continue };
                acknowledged[thread] = number;
            }
        }
        acknowledged
    });
    std::thread::sleep(time);
    child.kill().expect("it runs until it is killed");
    child.wait().expect("it was started");
    reader.join().expect("reads to the end")
}

#[test]
fn a_killed_process_leaves_every_transaction_that_it_acknowledged_and_no_half_of_one() {
    if let Ok(root) = std::env::var("STORE_KILL_CHILD") {
        return child(&root);
    }
    let seed = seed(11);
    let mut random = fastrand::Rng::with_seed(seed);
    let folder = tempfile::tempdir().expect("there is room");
    let mut total = 0;
    for round in 0..ROUNDS {
        let acknowledged = run_and_kill(folder.path(), Duration::from_millis(random.u64(100..500)));
        let told = format!("round {round}; {}", replay(seed, TEST));
        match verified(&places(folder.path())) {
            Ok(verified) => assert!(verified.is_sound(), "{verified}; {told}"),
            // The child was killed before it created the store.
            Err(StoreError::Refused(_)) if round == 0 => {}
            Err(error) => panic!("{error}; {told}"),
        }
        let (store, _) = Store::open(places(folder.path()), options()).expect("opens");
        let snapshot = store.snapshot();
        let Some(tree) = snapshot.tree("t").expect("reads") else {
            assert_eq!(acknowledged, [0; THREADS as usize], "{told}");
            continue;
        };
        let mut cursor = snapshot.scan(tree, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
        let mut found = [[None; KEYS as usize]; THREADS as usize];
        while let Some((key, value)) = cursor.next().expect("reads") {
            let (thread, key) = (key[0] - b'0', key[2] - b'0');
            found[thread as usize][key as usize] = Some(number(&value));
        }
        for (keys, acknowledged) in found.iter().zip(acknowledged) {
            assert!(keys.iter().all(|value| *value == keys[0]), "half a transaction: {found:?}; {told}");
            assert!(keys[0].unwrap_or(0) >= acknowledged, "{acknowledged} is missing: {found:?}; {told}");
        }
        total += acknowledged.iter().sum::<u64>();
        if round % 3 == 2 {
            store.close().expect("closes");
        }
    }
    assert!(total > 100, "only {total} transactions: too few to mean anything");
}
