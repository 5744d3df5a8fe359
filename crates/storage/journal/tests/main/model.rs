//! Random sequences of all public operations, compared with a vector.

use std::sync::Arc;

use device::Shelf;
use journal::{Check, Journal, JournalError, Lsn, Options, Preparation, Record, verify};

use crate::support::{all, clear_and_encrypted, payload, replay, seed, shelves, small, view};

/// The expected content of the journal.
#[derive(Default)]
struct Model {
    records: Vec<Record>,
    /// Records before this index may be gone.
    truncated: usize,
    /// Records before this index must survive a kill.
    committed: usize,
}

impl Model {
    /// Whether `found` are the records before index `upto`, without some of the truncated ones.
    fn compare(&self, found: &[Record], upto: usize) -> Result<(), String> {
        let gone = upto.checked_sub(found.len()).ok_or("more records than were appended")?;
        if gone > self.truncated {
            return Err(format!("{gone} records are gone, {} were truncated", self.truncated));
        }
        if self.records[gone..upto] != *found { Err("other records than were appended".into()) } else { Ok(()) }
    }

    /// The number of records that begin before a position.
    fn before(&self, lsn: Lsn) -> usize {
        self.records.partition_point(|record| record.lsn < lsn)
    }
}

/// A random life of a journal and of its model.
struct Run {
    random: fastrand::Rng,
    shelf: Arc<dyn Shelf>,
    options: Options,
    model: Model,
    /// `None` only while it is being reopened.
    journal: Option<Journal>,
}

impl Run {
    fn new(seed: u64) -> Result<Run, String> {
        let mut random = fastrand::Rng::with_seed(seed);
        let shelf = shelves().swap_remove(random.usize(..5));
        let mut run = Run { random, shelf, options: small(), model: Model::default(), journal: None };
        run.open()?;
        Ok(run)
    }

    /// Opens with random sizes: each size may differ from opening to opening.
    fn open(&mut self) -> Result<(), String> {
        let random = &mut self.random;
        self.options = Options {
            segment_bytes: [16 << 10, 32 << 10, 128 << 10][random.usize(..3)],
            buffer_bytes: [8 << 10, 12 << 10, 64 << 10][random.usize(..3)],
            preparation: if random.bool() { Preparation::Inline } else { Preparation::Background },
            check: if random.bool() { Check::Everything } else { Check::Tail },
            ..small()
        };
        let opened = Journal::open(self.shelf.clone(), self.options.clone());
        self.journal = Some(opened.map_err(|error| error.to_string())?.0);
        Ok(())
    }

    fn journal(&self) -> &Journal {
        self.journal.as_ref().expect("it is open between the steps")
    }

    fn step(&mut self, step: u8) -> Result<(), String> {
        match self.random.u32(..100) {
            0..=59 => self.append(step),
            60..=79 => self.commit(),
            80..=86 => self.truncate(),
            87..=92 => {
                let found = all(self.journal()).map_err(|error| error.to_string())?;
                self.model.compare(&found, self.model.before(self.journal().durable()))
            }
            93..=95 => match self.model.records.get(self.random.usize(..=self.model.records.len())) {
                Some(record) => check_read_at(self.journal(), record, &self.model),
                None => Ok(()),
            },
            _ => self.reopen(),
        }
    }

    fn append(&mut self, kind: u8) -> Result<(), String> {
        let bytes = match self.random.u32(..10) {
            0 => self.random.usize(..60_000),
            1..=3 => self.random.usize(..5_000),
            _ => self.random.usize(..300),
        };
        let record = payload(self.random.u64(..), bytes);
        let (left, right) = record.split_at(self.random.usize(..=bytes));
        let at_once = self.random.u8(..4) == 0;
        let parts: &[&[u8]] = &[left, right];
        let lsn = if at_once { self.journal().append_commit(kind, parts) } else { self.journal().append(kind, parts) };
        let lsn = lsn.map_err(|error| error.to_string())?;
        self.model.records.push(Record { lsn, kind, payload: record });
        if at_once {
            self.model.committed = self.model.before(self.journal().durable());
            if self.model.committed < self.model.records.len() {
                return Err("append_commit returned before its record was durable".into());
            }
        }
        Ok(())
    }

    fn commit(&mut self) -> Result<(), String> {
        let upto = self.random.usize(..=self.model.records.len());
        let lsn = self.model.records.get(upto).map_or(self.journal().appended(), |record| record.lsn);
        self.journal().commit(lsn).map_err(|error| error.to_string())?;
        self.model.committed = self.model.before(self.journal().durable());
        if self.model.committed < upto { Err("commit returned before its record was durable".into()) } else { Ok(()) }
    }

    fn truncate(&mut self) -> Result<(), String> {
        let upto = self.random.usize(..=self.model.committed);
        let lsn = self.model.records.get(upto).map_or(self.journal().durable(), |record| record.lsn);
        self.model.truncated = self.model.truncated.max(upto);
        self.journal().truncate(lsn).map_err(|error| error.to_string())
    }

    fn reopen(&mut self) -> Result<(), String> {
        let journal = self.journal.take().expect("it is open between the steps");
        // A preparing thread would outlive a journal that is forgotten and not dropped. A kill would end it.
        if self.options.preparation == Preparation::Background || self.random.bool() {
            journal.close().map_err(|error| error.to_string())?;
            self.model.committed = self.model.records.len();
        } else {
            // The state after a kill: the buffers are gone.
            std::mem::forget(journal);
        }
        self.open()?;
        let found = all(self.journal()).map_err(|error| error.to_string())?;
        let model = &mut self.model;
        let survived = found.last().map_or(0, |last| model.before(last.lsn) + 1);
        if survived.max(model.truncated) < model.committed {
            return Err(format!("{} were committed, {survived} found", model.committed));
        }
        model.records.truncate(survived.max(model.committed));
        model.committed = model.records.len();
        model.compare(&found, model.committed).map_err(|why| format!("reopened: {why}"))
    }

    fn finish(mut self) -> Result<(), String> {
        let journal = self.journal.take().expect("it is open between the steps");
        journal.close().map_err(|error| error.to_string())?;
        let view = view(self.shelf).map_err(|error| error.to_string())?;
        let found: Vec<Record> =
            view.read(view.first()).collect::<Result<_, _>>().map_err(|error| error.to_string())?;
        self.model.compare(&found, self.model.records.len())?;
        let verified = verify(&view).map_err(|error| error.to_string())?;
        if verified.is_sound() { Ok(()) } else { Err(verified.to_string()) }
    }
}

fn sequence(seed: u64) -> Result<(), String> {
    let mut run = Run::new(seed)?;
    for step in 0..run.random.u8(20..200) {
        run.step(step).map_err(|why| format!("step {step}: {why}"))?;
    }
    run.finish()
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
    clear_and_encrypted(|| {
        let base = seed(7);
        for round in 0..400 {
            let seed = base + round * 1000;
            if let Err(why) = sequence(seed) {
                panic!("{why}\n{}", replay(seed, "model::random_use_gives_what_a_vector_would_give"));
            }
        }
    });
}
