//! Random sequences of everything a user can do, against a vector; and threads that do it at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use device::file::{FileOptions, FileShelf};
use device::{MemoryShelf, Shelf};
use journal::{Journal, JournalError, Lsn, Options, Preparation, Record, View, verify};

use crate::support::{all, payload, replay, seed, small};

/// What the journal should hold.
#[derive(Default)]
struct Model {
    records: Vec<Record>,
    /// Those before this index may be gone.
    truncated: usize,
    /// Those before this index must survive a kill.
    committed: usize,
}

impl Model {
    /// Whether `found` are the records before index `upto`, less some of those that were truncated.
    fn compare(&self, found: &[Record], upto: usize) -> Result<(), String> {
        let gone = upto.checked_sub(found.len()).ok_or("more records than were appended")?;
        if gone > self.truncated {
            return Err(format!("{gone} records are gone, {} were truncated", self.truncated));
        }
        if self.records[gone..upto] != *found { Err("other records than were appended".into()) } else { Ok(()) }
    }

    /// How many records start before a position.
    fn before(&self, lsn: Lsn) -> usize {
        self.records.partition_point(|record| record.lsn < lsn)
    }
}

fn sequence(seed: u64) -> Result<(), String> {
    let mut random = fastrand::Rng::with_seed(seed);
    let shelf = Arc::new(MemoryShelf::new());
    let options = Options {
        segment_bytes: [16 << 10, 32 << 10, 128 << 10][random.usize(..3)],
        buffer_bytes: [8 << 10, 12 << 10, 64 << 10][random.usize(..3)],
        preparation: if random.bool() { Preparation::Inline } else { Preparation::Background },
        ..small()
    };
    let open = || Journal::open(shelf.clone(), options.clone()).map_err(|error| error.to_string());
    let mut model = Model::default();
    let (mut journal, _) = open()?;
    for step in 0..random.usize(20..200) {
        match random.u32(..100) {
            0..=59 => {
                let bytes = match random.u32(..10) {
                    0 => random.usize(..60_000),
                    1..=3 => random.usize(..5_000),
                    _ => random.usize(..300),
                };
                let record = payload(random.u64(..), bytes);
                let (left, right) = record.split_at(random.usize(..=bytes));
                let lsn = journal.append(step as u8, &[left, right]).map_err(|error| error.to_string())?;
                model.records.push(Record { lsn, kind: step as u8, payload: record });
            }
            60..=79 => {
                let upto = random.usize(..=model.records.len());
                let lsn = model.records.get(upto).map_or(journal.appended(), |record| record.lsn);
                journal.commit(lsn).map_err(|error| error.to_string())?;
                model.committed = model.before(journal.durable());
                if model.committed < upto {
                    return Err(format!("step {step}: commit returned before its record was durable"));
                }
            }
            80..=86 => {
                let upto = random.usize(..=model.committed);
                let lsn = model.records.get(upto).map_or(journal.durable(), |record| record.lsn);
                journal.truncate(lsn).map_err(|error| error.to_string())?;
                model.truncated = model.truncated.max(upto);
            }
            87..=92 => {
                let found = all(&journal).map_err(|error| format!("step {step}: {error}"))?;
                let upto = model.before(journal.durable());
                model.compare(&found, upto).map_err(|why| format!("step {step}: {why}"))?;
            }
            93..=95 => {
                if let Some(record) = model.records.get(random.usize(..=model.records.len())) {
                    check_read_at(&journal, record, &model).map_err(|why| format!("step {step}: {why}"))?;
                }
            }
            _ => {
                // A preparing thread would outlive a journal that is only forgotten; a kill ends it.
                if options.preparation == Preparation::Background || random.bool() {
                    journal.close().map_err(|error| error.to_string())?;
                    model.committed = model.records.len();
                } else {
                    // As a killed process leaves it: the buffers are gone.
                    std::mem::forget(journal);
                }
                journal = open()?.0;
                let found = all(&journal).map_err(|error| format!("step {step}: {error}"))?;
                let survived = found.last().map_or(0, |last| model.before(last.lsn) + 1);
                if survived.max(model.truncated) < model.committed {
                    return Err(format!("step {step}: {} were committed, {survived} found", model.committed));
                }
                model.records.truncate(survived.max(model.committed));
                model.compare(&found, model.records.len()).map_err(|why| format!("step {step}, reopened: {why}"))?;
                model.committed = model.records.len();
            }
        }
    }
    journal.close().map_err(|error| error.to_string())?;
    let view = View::open(shelf).map_err(|error| error.to_string())?;
    let found: Vec<Record> = view.read(view.first()).collect::<Result<_, _>>().map_err(|error| error.to_string())?;
    model.compare(&found, model.records.len())?;
    let verified = verify(&view).map_err(|error| error.to_string())?;
    if verified.is_sound() { Ok(()) } else { Err(verified.to_string()) }
}

fn check_read_at(journal: &Journal, record: &Record, model: &Model) -> Result<(), String> {
    let truncated = model.records[..model.truncated].iter().any(|gone| gone.lsn == record.lsn);
    match journal.read_at(record.lsn) {
        Ok(found) if found == *record => Ok(()),
        Err(JournalError::Truncated { .. }) if truncated => Ok(()),
        Err(JournalError::BeyondEnd { .. }) if record.lsn >= journal.durable() => Ok(()),
        other => Err(format!("reading {} answered {other:?}", record.lsn)),
    }
}

#[test]
fn random_use_gives_what_a_vector_would_give() {
    let base = seed(7);
    for round in 0..400 {
        let seed = base + round * 1000;
        if let Err(why) = sequence(seed) {
            panic!("{why}\n{}", replay(seed, "model::random_use_gives_what_a_vector_would_give"));
        }
    }
}

/// Threads that append and commit, one that reads along, one that truncates behind the reader.
fn crowd(shelf: Arc<dyn Shelf>, options: Options, each: usize) {
    const THREADS: usize = 12;
    let (journal, _) = Journal::open(shelf.clone(), options.clone()).expect("opens");
    let done = AtomicUsize::new(0);
    let seen = std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (journal, done) = (&journal, &done);
            scope.spawn(move || {
                let mut last = Lsn::ZERO;
                for number in 0..each {
                    let bytes = [10, 700, 3000, 20_000][(thread + number) % 4];
                    let number = (thread * each + number) as u64;
                    let record = [&number.to_le_bytes()[..], &payload(number, bytes)].concat();
                    let lsn = journal.append(thread as u8, &[&record]).expect("appends");
                    assert!(lsn > last, "one thread's records are in order");
                    last = lsn;
                    journal.commit(lsn).expect("commits");
                    assert!(journal.durable() > lsn);
                }
                done.fetch_add(1, Ordering::SeqCst);
            });
        }
        let reader = scope.spawn(|| {
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
        reader.join().expect("the reader did not panic")
    });
    assert_eq!(seen.len(), THREADS * each);
    let mut numbers: Vec<u64> = Vec::new();
    for record in &seen {
        let number = u64::from_le_bytes(record.payload[..8].try_into().expect("eight bytes"));
        assert!(record.payload[8..] == payload(number, record.payload.len() - 8), "record {} is intact", record.lsn);
        assert_eq!(u64::from(record.kind), number / each as u64);
        numbers.push(number);
    }
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
fn files_serve_as_well_as_memory() {
    let directory = tempfile::tempdir().expect("there is a temporary directory");
    let shelf = Arc::new(FileShelf::open(directory.path(), FileOptions::default()).expect("opens"));
    let options =
        Options { segment_bytes: 1 << 20, buffer_bytes: 64 << 10, preparation: Preparation::Background, ..small() };
    crowd(shelf, options, 60);
}
