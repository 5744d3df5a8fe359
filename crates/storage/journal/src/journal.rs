//! [`Journal`]: opening, and the calls that its users make.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use device::{Shelf, supervise};

use crate::error::JournalError;
use crate::format::{BLOCK_BYTES, CLOSE, OPEN};
use crate::inline::Committer;
use crate::lsn::{Lsn, Nonce};
use crate::options::{Check, Options, Preparation, Record, Recovered, Stats};
use crate::pipeline::Pipeline;
use crate::reader::{Reader, read_one};
use crate::recovery::{Verdict, walk};
use crate::scan::Progress;
use crate::segment::{Access, Chain};
use crate::segment_pool::SegmentPool;
use crate::shared::Shared;

/// A durable, ordered log; shared by reference between threads.
///
/// Dropping it closes it: what was appended is committed, and a closing batch is written, as far as that works;
/// [`close`](Journal::close) says whether it did.
#[derive(Debug)]
pub struct Journal {
    shared: Arc<Shared>,
    preparer: Mutex<Option<JoinHandle<()>>>,
    /// Held while it is closed: who comes second waits for the first.
    closing: Mutex<()>,
}

impl Journal {
    /// Opens the journal on `shelf`, or makes one on an empty shelf, and recovers: finds the end of the log, drops a
    /// torn tail, begins a new epoch. When it returns, everything that can be read is persistent. Running it again
    /// after a crash inside it gives the same records.
    ///
    /// The caller sees to it that one journal at a time is open on a shelf; a shelf of files refuses a second process.
    ///
    /// Errors: [`JournalError::Corrupt`] and [`JournalError::Version`] (nothing was changed), [`JournalError::Full`]
    /// (the log ends exactly with a segment and there is no space for another), [`JournalError::Options`],
    /// [`JournalError::Thread`], [`JournalError::Device`].
    pub fn open(shelf: Arc<dyn Shelf>, options: Options) -> Result<(Journal, Recovered), JournalError> {
        options.check()?;
        let mut chain = Chain::load(&shelf, Access::Write)?;
        let mut pool = SegmentPool::load(&*shelf)?;
        let identity = match chain.front() {
            Some(segment) => segment.header.nonce.identity,
            None => new_identity(&options),
        };
        let start = match options.check {
            Check::Everything => chain.first(),
            Check::Tail => chain.tail(),
        };
        let ending = walk(&chain, Progress::new(start, identity), &mut |_, _, _| ())?;
        if let Some(corruption) = ending.corruption {
            return Err(corruption.into());
        }
        assert!(matches!(ending.verdict, Verdict::End | Verdict::Torn));
        let progress = ending.progress;
        // Higher than that of anything on the medium: an epoch writes nothing before its opening batch is persistent,
        // so whatever an epoch left behind, its opening batch was found, or a segment it prepared.
        let prepared = chain.iter().map(|segment| segment.header.nonce.epoch).max().unwrap_or(0);
        let epoch = progress.nonce.epoch.max(prepared).checked_add(1).expect("2^32 openings are not reached");
        let nonce = Nonce { identity, epoch };
        let mut end = progress.position;
        if end == chain.end() {
            let made = pool.prepare(&*shelf, &options, end, nonce, end)?;
            chain.push(&shelf, made.installed);
            end = end.plus(BLOCK_BYTES);
        }
        chain.iter().filter(|segment| segment.end() <= progress.position).for_each(|segment| segment.finish());
        let pipeline = Pipeline::new(nonce, end, options.buffer_bytes as usize);
        let shared = Arc::new(Shared::new(shelf, options, pool, chain, pipeline));
        shared.write_marker(OPEN)?;
        let (first, segments) = {
            let state = shared.lock();
            (state.chain.first(), state.chain.len())
        };
        let torn_bytes = ending.torn_bytes;
        let recovered = Recovered { first, end: shared.durable(), torn_bytes, segments, records: progress.records };
        let preparer = start_preparer(&shared)?;
        Ok((Journal { shared, preparer: Mutex::new(preparer), closing: Mutex::default() }, recovered))
    }

    /// Appends a record of the caller's `kind` whose payload is the parts, joined. LSN order is the order of calls.
    ///
    /// The record is copied and *not durable* yet: [`commit`](Journal::commit) it. Blocks while all buffers are full,
    /// and then writes them if nobody else does.
    ///
    /// Errors, after each of which nothing was appended: [`JournalError::TooLarge`], [`JournalError::Full`] (again
    /// later), [`JournalError::Device`] (the next segment could not be made; again later), [`JournalError::Poisoned`],
    /// [`JournalError::Closed`].
    pub fn append(&self, kind: u8, parts: &[&[u8]]) -> Result<Lsn, JournalError> {
        self.shared.append(kind, parts)
    }

    /// Returns when the record at `lsn`, and every record before it, is persistent. With [`appended`](Journal::appended)
    /// as `lsn`: everything appended so far.
    ///
    /// One of the callers writes for all that wait; no timer, no thread of the journal's is involved.
    ///
    /// Errors: [`JournalError::Poisoned`]; whether the record will be found after reopening is then unknown.
    pub fn commit(&self, lsn: Lsn) -> Result<(), JournalError> {
        self.shared.commit_record(lsn)
    }

    /// [`append`](Journal::append), then [`commit`](Journal::commit) of that record. Who does it often keeps a
    /// [`committer`](Journal::committer).
    ///
    /// Errors: those of both. After [`JournalError::Poisoned`] it is unknown whether the record will be found.
    pub fn append_commit(&self, kind: u8, parts: &[&[u8]]) -> Result<Lsn, JournalError> {
        self.committer().append_commit(kind, parts)
    }

    /// A thread's own way to append and commit in one step; cheapest on persistent memory, where threads with a committer
    /// each write side by side.
    pub fn committer(&self) -> Committer<'_> {
        Committer::new(&self.shared)
    }

    /// The end of the last complete record (exclusive), or a later position where the next one will come behind.
    pub fn appended(&self) -> Lsn {
        self.shared.lock().pipeline.appended()
    }

    /// Every record that starts before this is persistent. Never behind [`appended`](Journal::appended); equal to it
    /// when everything is persistent.
    pub fn durable(&self) -> Lsn {
        self.shared.durable()
    }

    /// The oldest position: reading from here yields the oldest record there is.
    pub fn first(&self) -> Lsn {
        self.shared.lock().chain.first()
    }

    /// Waits until a record ends behind `after`, or for `timeout`, or until the journal is poisoned; answers
    /// [`appended`](Journal::appended). A thread that commits for others sleeps here, then commits what it is told.
    pub fn wait_appended(&self, after: Lsn, timeout: Duration) -> Lsn {
        let shared = &self.shared;
        let mut state = shared.lock();
        if state.pipeline.record_end() <= after && state.check().is_ok() {
            state.append_waiters += 1;
            let idle = |state: &mut crate::shared::State| state.pipeline.record_end() <= after && state.check().is_ok();
            let waited = shared.appended.wait_timeout_while(state, timeout, idle);
            state = waited.expect("no thread panicked inside the journal").0;
            state.append_waiters -= 1;
        }
        state.pipeline.appended()
    }

    /// The durable records from `from` on: a record's LSN, [`first`](Journal::first), or a past value of
    /// [`durable`](Journal::durable). The reader ends at what is durable when it gets there, and goes on after more has
    /// become so.
    pub fn read(&self, from: Lsn) -> Reader {
        Reader::new(self.shared.clone(), from)
    }

    /// The record at `lsn`.
    ///
    /// Errors: [`JournalError::Truncated`], [`JournalError::BeyondEnd`], [`JournalError::NoRecord`],
    /// [`JournalError::Corrupt`], [`JournalError::Device`].
    pub fn read_at(&self, lsn: Lsn) -> Result<Record, JournalError> {
        read_one(self.shared.clone(), lsn)
    }

    /// Gives up the records before `before`, as far as they fill whole segments: those are kept to be used again, up to
    /// [`Options::spare_segments`], or removed. Persistent when it returns. Records at or behind `before` stay.
    ///
    /// Errors: [`JournalError::Device`]; some segments may have been freed, the journal goes on. [`JournalError::Closed`].
    pub fn truncate(&self, before: Lsn) -> Result<(), JournalError> {
        self.shared.truncate(before)
    }

    /// Whether a commit is a matter of instructions (the journal lies on persistent memory): whoever appends may as well
    /// commit at once, instead of handing that to a thread that commits for others.
    pub fn is_inline(&self) -> bool {
        self.shared.inline
    }

    /// Drawn when the journal was made: tells it from every other, so that whoever keeps positions of it can check whose they are.
    pub fn identity(&self) -> u32 {
        self.shared.lock().pipeline.nonce().identity
    }

    /// What was done since opening.
    pub fn stats(&self) -> Stats {
        self.shared.lock().stats
    }

    /// Whether the next segment waits for a file descriptor; the log says when that begins and ends. Records are taken until
    /// the segment is full that is being written, and refused with [`JournalError::NoDescriptors`] from then on.
    pub fn lacks_descriptor(&self) -> bool {
        self.shared.lock().lacks_descriptor
    }

    /// Makes sure that a record of `bytes` could be appended, without appending one: that there is room for it in segments that
    /// are ready.
    ///
    /// Errors: as [`append`](Journal::append).
    pub fn make_room(&self, bytes: u64) -> Result<(), JournalError> {
        self.shared.make_room(bytes)
    }

    /// Commits what was appended and closes the epoch, so that damage to its last batch can be told from a torn tail. When
    /// it returns the shelf may be opened anew, whoever still holds this journal: it writes nothing more, takes nothing more,
    /// and reads what there is. Again: nothing happens.
    ///
    /// Errors: [`JournalError::Poisoned`].
    pub fn close(&self) -> Result<(), JournalError> {
        let _closing = self.closing.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.shared.stop_appends() {
            return self.shared.lock().check();
        }
        self.stop_preparer();
        self.shared.finish_upkeep();
        let state = self.shared.lock();
        let appended = state.pipeline.appended();
        self.shared.commit_before(state, appended)?;
        self.shared.write_marker(CLOSE)
    }

    fn stop_preparer(&self) {
        let preparer = self.preparer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = preparer {
            self.shared.stop();
            // If it panicked, the journal was poisoned by that, and says so at the next use.
            let _ = thread.join();
        }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        if std::thread::panicking() || self.shared.is_failed() {
            return self.stop_preparer();
        }
        // Nobody is left to be told: the next opening finds out. `close` is for those who want to know.
        let _ = self.close();
    }
}

impl Shared {
    pub(crate) fn commit_record(&self, lsn: Lsn) -> Result<(), JournalError> {
        if self.durable() > lsn {
            return Ok(());
        }
        let state = self.lock();
        let appended = state.pipeline.appended();
        // A record at lsn is durable when durable() lies behind its start; where none is yet, what is before it counts.
        let target = if lsn < appended { lsn.plus(1) } else { appended };
        self.commit_before(state, target)
    }

    /// Writes a batch without records. A closing batch for which the segment has no block left is left out: it would
    /// only make damage easier to recognise.
    fn write_marker(&self, flag: u8) -> Result<(), JournalError> {
        let mut state = self.lock();
        state.check()?;
        if state.pipeline.is_between_batches() {
            if flag == CLOSE && state.pipeline.next() == state.tail.end() {
                return Ok(());
            }
            let opened = state.open_batch(self);
            assert!(opened, "nothing is in flight and there is a block");
        }
        state.pipeline.mark(flag);
        state.pipeline.seal();
        let write = state.pipeline.take().expect("a sealed batch waits and nothing is in flight");
        let state = self.write(state, write);
        state.check()
    }
}

fn start_preparer(shared: &Arc<Shared>) -> Result<Option<JoinHandle<()>>, JournalError> {
    if shared.options.preparation == Preparation::Inline {
        return Ok(None);
    }
    let work = {
        let shared = shared.clone();
        move || shared.prepare_when_asked()
    };
    // It has failed the journal by then.
    let panicked = |why: &str| tracing::error!(why, "the journal has failed");
    let spawned = supervise::thread("journal-prepare", work, panicked);
    spawned.map(Some).map_err(JournalError::Thread)
}

/// Drawn from the randomness that the standard library seeds its hash tables with.
fn new_identity(options: &Options) -> u32 {
    use std::hash::{BuildHasher, Hasher};
    if options.identity != 0 {
        return options.identity;
    }
    let drawn = std::hash::RandomState::new().build_hasher().finish();
    ((drawn >> 32) as u32 ^ drawn as u32).max(1)
}
