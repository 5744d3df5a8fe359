//! Many threads use one journal: committers, a reader, and a thread that truncates. A view reads it from outside.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use device::faulty::{Fault, Rule};
use device::file::{FileOptions, FileShelf};
use device::{FaultyShelf, MemoryShelf, Operation, Shelf};
use journal::{Journal, JournalError, Lsn, Options, Preparation, View};

use crate::support::{MEDIA, all, payload, small};

const THREADS: usize = 12;

/// How long a thread may need to do what it does at once.
const PATIENCE: Duration = Duration::from_secs(60);

/// One committer: it commits records of different sizes, each with its number at the beginning.
fn commit_each(journal: &Journal, thread: usize, each: usize) {
    let mut last = Lsn::ZERO;
    for step in 0..each {
        // The largest record is larger than all buffers together. Its append writes blocks in between, and no other
        // record may come in between.
        let bytes = [10, 700, 3000, 90_000][(thread + step) % 4];
        let number = (thread * each + step) as u64;
        let (number, payload) = (number.to_le_bytes(), payload(number, bytes));
        let parts: &[&[u8]] = &[&number, &payload];
        let lsn = if step % 3 == 0 {
            journal.append_commit(thread as u8, parts).expect("appends and commits")
        } else {
            let lsn = journal.append(thread as u8, parts).expect("appends");
            journal.commit(lsn).expect("commits");
            lsn
        };
        assert!(lsn > last, "one thread's records are in order");
        last = lsn;
        assert!(journal.durable() > lsn);
    }
}

/// Counts a thread that has ended, also by a panic: threads that wait for it must not wait for ever.
struct Done<'a>(&'a AtomicUsize);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn number_of(record: &journal::Record) -> u64 {
    let number = u64::from_le_bytes(record.payload[..8].try_into().expect("eight bytes"));
    assert!(record.payload[8..] == payload(number, record.payload.len() - 8), "record {} is intact", record.lsn);
    number
}

/// Threads that append and commit, and one that reads along and truncates behind itself.
fn crowd(shelf: Arc<dyn Shelf>, options: Options, each: usize) {
    let (journal, _) = Journal::open(shelf.clone(), options.clone()).expect("opens");
    let done = AtomicUsize::new(0);
    let seen = std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (journal, done) = (&journal, &done);
            scope.spawn(move || {
                let _done = Done(done);
                commit_each(journal, thread, each);
            });
        }
        let mut reader = journal.read(journal.first());
        let mut seen = Vec::new();
        loop {
            let finished = done.load(Ordering::SeqCst) == THREADS;
            for record in reader.by_ref() {
                seen.push(record.expect("durable records are readable"));
                if seen.len() % 50 == 0 {
                    journal.truncate(seen[seen.len() - 1].lsn).expect("truncates");
                }
            }
            if finished {
                return seen;
            }
            journal.wait_appended(journal.durable(), std::time::Duration::from_millis(10));
        }
    });
    let mut numbers: Vec<u64> = seen.iter().map(number_of).collect();
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(0..(THREADS * each) as u64), "each record once");
    journal.close().expect("closes");
    let (journal, _) = Journal::open(shelf, options).expect("opens");
    let kept = all(&journal).expect("readable");
    assert!(kept[..] == seen[seen.len() - kept.len()..], "what was not truncated is still there");
}

#[test]
fn threads_that_commit_at_once_each_find_their_records_once_and_in_order() {
    let options = Options { preparation: Preparation::Background, ..small() };
    crowd(Arc::new(MemoryShelf::new()), options, 200);
}

#[test]
fn persistent_memory_serves_as_well_as_memory() {
    for medium in MEDIA {
        let options = Options { preparation: Preparation::Background, ..small() };
        crowd(medium.shelf(0), options, 12);
    }
}

#[test]
fn files_serve_as_well_as_memory() {
    let directory = tempfile::tempdir().expect("there is a temporary directory");
    let shelf = Arc::new(FileShelf::open(directory.path(), FileOptions::default()).expect("opens"));
    let options =
        Options { segment_bytes: 1 << 20, buffer_bytes: 64 << 10, preparation: Preparation::Background, ..small() };
    crowd(shelf, options, 60);
}

/// Opens views while the journal is written and truncated. Each view returns a run of whole records, and never reports
/// damage.
#[test]
fn a_view_of_a_journal_that_is_being_written_never_sees_damage() {
    let shelf = Arc::new(MemoryShelf::new());
    let options = Options { preparation: Preparation::Background, ..small() };
    let (journal, _) = Journal::open(shelf.clone(), options).expect("opens");
    let done = AtomicUsize::new(0);
    let (mut views, mut records, mut tailed) = (0, 0, 0);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (journal, done) = (&journal, &done);
            scope.spawn(move || {
                let _done = Done(done);
                commit_each(journal, thread, 400);
            });
        }
        let following = View::open(shelf.clone()).expect("opens");
        while done.load(Ordering::SeqCst) < 3 {
            let durable = journal.durable();
            let view = View::open(shelf.clone()).expect("opens");
            assert!(view.end() >= durable, "a view sees what was durable before it was opened");
            assert_eq!(view.corruption(), None);
            views += 1;
            records += count(view.read(view.first()));
            let from = following.end();
            following.refresh().expect("looks again");
            assert_eq!(following.corruption(), None);
            tailed += count(following.read(from.max(following.first())));
            journal.truncate(durable).expect("truncates");
        }
    });
    println!("{views} views of {records} records, {tailed} followed");
    assert!(views > 3 && tailed > 0);
}

/// Reads to the end, or until the next record was truncated.
fn count(reader: journal::Reader) -> usize {
    let mut count = 0;
    for record in reader {
        match record {
            Ok(record) => {
                number_of(&record);
                count += 1;
            }
            Err(JournalError::Truncated { .. }) => break,
            Err(other) => panic!("{other}"),
        }
    }
    count
}

#[test]
fn a_log_of_many_segments_takes_few_file_descriptors() {
    let directory = tempfile::tempdir().expect("there is a temporary directory");
    let shelf: Arc<dyn Shelf> = Arc::new(FileShelf::open(directory.path(), FileOptions::default()).expect("opens"));
    let options = Options { segment_bytes: 16 << 10, ..small() };
    let (journal, _) = Journal::open(shelf.clone(), options.clone()).expect("opens");
    for number in 0..4 {
        let lsn = journal.append(1, &[&payload(number, 1 << 20)]).expect("appends");
        journal.commit(lsn).expect("commits");
    }
    // The count is of the whole process, with the files of other tests. A file that is being written needs up to five.
    let descriptors = || std::fs::read_dir("/proc/self/fd").expect("Linux has /proc").count();
    assert!(descriptors() < 200, "{} descriptors after writing", descriptors());
    let (journal, recovered) = {
        drop(journal);
        Journal::open(shelf, options).expect("opens")
    };
    assert!(recovered.segments > 250);
    assert_eq!(all(&journal).expect("readable").len(), 4);
    assert!(descriptors() < 200, "{} descriptors for {} segments", descriptors(), recovered.segments);
}

#[test]
fn records_become_durable_for_callers_that_do_not_wait_and_the_observer_is_called() {
    let (journal, _) = Journal::open(Arc::new(MemoryShelf::new()), small()).expect("opens");
    let (moved, moves) = mpsc::channel();
    journal.start_flusher(move || _ = moved.send(())).expect("there is room for a thread");
    for number in 0..200u64 {
        let lsn = journal.append(1, &[&number.to_le_bytes()]).expect("appends");
        journal.flush_soon();
        while journal.durable() <= lsn {
            moves.recv_timeout(PATIENCE).expect("durable moves, and is observed");
        }
    }
    let lsn = journal.append(1, &[b"committed by its own thread"]).expect("appends");
    while moves.try_recv().is_ok() {}
    journal.commit(lsn).expect("commits");
    assert!(moves.try_recv().is_ok(), "whichever thread writes");
    journal.close().expect("closes, and the thread ends");
}

#[test]
fn the_observer_learns_that_the_journal_has_failed() {
    let shelf = Arc::new(FaultyShelf::new(Arc::new(MemoryShelf::new())));
    let (journal, _) = Journal::open(shelf.clone(), small()).expect("opens");
    let (moved, moves) = mpsc::channel();
    journal.start_flusher(move || _ = moved.send(())).expect("there is room for a thread");
    shelf.inject(Rule::from(Operation::Flush, 1, Fault::Eio));
    let lsn = journal.append(1, &[b"lost"]).expect("appends");
    journal.flush_soon();
    moves.recv_timeout(PATIENCE).expect("it is observed");
    assert!(matches!(journal.check(), Err(JournalError::Poisoned { .. })));
    assert!(journal.durable() <= lsn);
    journal.flush_soon();
    drop(journal);
}
