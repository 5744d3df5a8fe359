//! `kill -9` of a real process. This test starts itself as a child that appends and commits to files, or to files
//! mapped as persistent memory. It kills the child at a random moment and checks that every acknowledged record is
//! there.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;

use device::Shelf;
use device::file::{FileOptions, FileShelf};
use device::pmem::{Absent, PmemOptions, PmemShelf};
use journal::{Journal, Lsn, Options, View, verify};

use crate::support::{payload, replay, seed, small};

const ROUNDS: usize = 20;

/// The medium of the child. The name of the test, by which the child is started, selects it.
#[derive(Clone, Copy, Debug)]
enum Medium {
    Files,
    /// Emulated persistent memory: a killed process loses none of its stores, on any mapping.
    Mapped,
}

impl Medium {
    fn test(self) -> &'static str {
        match self {
            Medium::Files => "kill::a_killed_process_leaves_every_record_that_it_acknowledged",
            Medium::Mapped => "kill::a_process_killed_while_its_threads_write_side_by_side_leaves_what_it_acknowledged",
        }
    }

    fn shelf(self, directory: &str) -> Arc<dyn Shelf> {
        let options = PmemOptions { absent: Absent::Emulate };
        match self {
            Medium::Files => Arc::new(FileShelf::open(directory.as_ref(), FileOptions::default()).expect("opens")),
            Medium::Mapped => Arc::new(PmemShelf::open(directory.as_ref(), options).expect("opens")),
        }
    }
}

fn options() -> Options {
    Options { segment_bytes: 256 << 10, buffer_bytes: 64 << 10, ..small() }
}

fn record(number: u64) -> Vec<u8> {
    [&number.to_le_bytes()[..], &payload(number, (number * 37 % 9000) as usize)].concat()
}

/// The child: several threads append without end. It prints `lsn number` of each record after it is durable.
fn child(medium: Medium, directory: &str) {
    let (journal, recovered) = Journal::open(medium.shelf(directory), options()).expect("opens");
    let start = recovered.records * 1000;
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let journal = &journal;
            scope.spawn(move || {
                let mut committer = journal.committer();
                for step in 0.. {
                    let number = start + step * 4 + thread;
                    let record = record(number);
                    let lsn = match medium {
                        Medium::Mapped => committer.append_commit(1, &[&record]).expect("appends and commits"),
                        Medium::Files => journal.append(1, &[&record]).expect("appends"),
                    };
                    journal.commit(lsn).expect("commits");
                    // One write call for each line: after a kill, a line is whole or missing.
                    let line = format!("{lsn} {number}\n");
                    if std::io::stdout().write_all(line.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
}

#[test]
fn a_killed_process_leaves_every_record_that_it_acknowledged() {
    kill_again_and_again(Medium::Files);
}

#[test]
fn a_process_killed_while_its_threads_write_side_by_side_leaves_what_it_acknowledged() {
    kill_again_and_again(Medium::Mapped);
}

fn kill_again_and_again(medium: Medium) {
    if let Ok(directory) = std::env::var("JOURNAL_KILL_CHILD") {
        return child(medium, &directory);
    }
    let seed = seed(11);
    let mut random = fastrand::Rng::with_seed(seed);
    let directory = tempfile::tempdir().expect("there is a temporary directory");
    let mut acknowledged: Vec<(Lsn, u64)> = Vec::new();
    let mut previous = 0;
    for round in 0..ROUNDS {
        let lines = random.usize(1..400);
        acknowledged.extend(kill_after(medium, directory.path(), lines));
        let view = FileShelf::open_read_only(directory.path()).map(Arc::new).expect("opens");
        let view = View::open(view).expect("opens");
        let records: Vec<_> = view.read(view.first()).collect::<Result<_, _>>().expect("readable");
        for (lsn, number) in &acknowledged {
            let found = records.binary_search_by_key(lsn, |record| record.lsn).ok().map(|index| &records[index]);
            let intact = found.is_some_and(|found| found.payload == record(*number));
            assert!(intact, "round {round}: {lsn} was acknowledged\n{}", replay(seed, medium.test()));
        }
        for found in &records {
            let number = u64::from_le_bytes(found.payload[..8].try_into().expect("eight bytes"));
            assert!(
                found.payload == record(number),
                "round {round}: {} is whole\n{}",
                found.lsn,
                replay(seed, medium.test())
            );
        }
        let verified = verify(&view).expect("reads");
        assert!(verified.is_sound(), "round {round}: {verified}\n{}", replay(seed, medium.test()));
        assert!(records.len() > previous);
        previous = records.len();
    }
    println!("{} acknowledged, {previous} found", acknowledged.len());
}

/// Runs a child, kills it after it has printed a given number of lines, and returns its whole output.
fn kill_after(medium: Medium, directory: &std::path::Path, lines: usize) -> Vec<(Lsn, u64)> {
    let mut child = Command::new(std::env::current_exe().expect("a test is a file"))
        .args([medium.test(), "--exact", "--nocapture", "--quiet"])
        .env("JOURNAL_KILL_CHILD", directory)
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut acknowledged = Vec::new();
    for line in BufReader::new(child.stdout.take().expect("is piped")).lines() {
        let line = line.expect("readable");
        // The test harness prints other lines too.
        let Some((Ok(lsn), Ok(number))) = line.split_once(' ').map(|(lsn, number)| (lsn.parse(), number.parse()))
        else {
            continue;
        };
        acknowledged.push((lsn, number));
        if acknowledged.len() == lines {
            // SIGKILL. The lines still in the pipe are read too: their records were acknowledged.
            child.kill().expect("is running");
        }
    }
    child.wait().expect("ends");
    assert!(acknowledged.len() >= lines, "the child ended by itself after {} lines", acknowledged.len());
    acknowledged
}
