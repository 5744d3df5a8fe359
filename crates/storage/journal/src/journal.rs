//! [`Journal`]: opening, and the calls that its users make.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use device::{Shelf, supervise};

use crate::error::JournalError;
use crate::flusher;
use crate::format::{BLOCK_BYTES, CLOSE, OPEN};
use crate::inline::Committer;
use crate::lsn::{Lsn, Nonce};
use crate::options::{Check, GroupCommits, Options, Preparation, Record, Recovered, Stats};
use crate::pipeline::Pipeline;
use crate::reader::{Reader, read_one};
use crate::recovery::{Verdict, walk};
use crate::scan::Progress;
use crate::segment::{Access, Chain};
use crate::segment_pool::SegmentPool;
use crate::shared::Shared;

/// A durable, ordered log; shared by reference between threads.
///
/// Dropping it closes it: it commits appended records and writes a closing batch, as far as possible.
/// [`close`](Journal::close) reports whether that succeeded.
#[derive(Debug)]
pub struct Journal {
    shared: Arc<Shared>,
    /// The threads that prepare segments and flush.
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Held while the journal is being closed: a second caller waits for the first.
    closing: Mutex<()>,
}

impl Journal {
    /// Opens the journal on `shelf`, or creates one on an empty shelf, and recovers: finds the end of the log, drops a
    /// torn tail, begins a new epoch. When it returns, everything that can be read is persistent. If it crashes,
    /// running it again gives the same records.
    ///
    /// The caller must ensure that only one journal at a time is open on a shelf; a shelf of files refuses a second
    /// process.
    ///
    /// Errors: [`JournalError::Corrupt`] and [`JournalError::Version`] (nothing was changed), [`JournalError::Full`]
    /// (the log ends exactly with a segment and there is no space for another), [`JournalError::Options`],
    /// [`JournalError::Thread`], [`JournalError::Device`]; [`JournalError::Encrypted`], [`JournalError::Clear`] and [`JournalError::Key`] if
    /// the sealer is not the journal's.
    pub fn open(shelf: Arc<dyn Shelf>, options: Options) -> Result<(Journal, Recovered), JournalError> {
        options.check()?;
        let mut chain = Chain::load(&shelf, Access::Write)?;
        chain.check_key(options.sealer.as_deref())?;
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
        // Higher than any epoch on the medium: an epoch writes nothing before its opening batch is persistent. So for
        // each epoch that left anything, the walk found its opening batch, or the chain contains a segment that it
        // prepared.
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
        let pipeline = Pipeline::new(nonce, end, options.buffer_bytes as usize).encrypted(options.sealer.is_some());
        let shared = Arc::new(Shared::new(shelf, options, pool, chain, pipeline));
        shared.write_marker(OPEN)?;
        let (first, segments) = {
            let state = shared.lock();
            (state.chain.first(), state.chain.len())
        };
        let torn_bytes = ending.torn_bytes;
        let recovered = Recovered { first, end: shared.durable(), torn_bytes, segments, records: progress.records };
        let preparer = start_preparer(&shared)?;
        let threads = Mutex::new(preparer.into_iter().collect());
        Ok((Journal { shared, threads, closing: Mutex::default() }, recovered))
    }

    /// Appends a record of the caller's `kind` whose payload is the concatenated parts. LSN order is the order of
    /// calls.
    ///
    /// The record is copied and *not durable* yet: [`commit`](Journal::commit) makes it so. Blocks while all buffers
    /// are full, and then writes them if no other thread does.
    ///
    /// Errors, after each of which nothing was appended: [`JournalError::TooLarge`], [`JournalError::Full`] (retry
    /// later), [`JournalError::Device`] (the next segment could not be created; retry later),
    /// [`JournalError::Poisoned`], [`JournalError::Closed`].
    pub fn append(&self, kind: u8, parts: &[&[u8]]) -> Result<Lsn, JournalError> {
        self.shared.append(kind, parts)
    }

    /// Returns when the record at `lsn`, and every record before it, is persistent. With [`appended`](Journal::appended)
    /// as `lsn`: everything appended so far.
    ///
    /// One of the callers writes for all that wait; no timer is involved. A [flusher](Journal::start_flusher) is one of them.
    ///
    /// Errors: [`JournalError::Poisoned`]; it is then unknown whether the record will be found after reopening.
    pub fn commit(&self, lsn: Lsn) -> Result<(), JournalError> {
        self.shared.commit_record(lsn)
    }

    /// Starts a thread that makes records durable for callers of [`flush_soon`](Journal::flush_soon). `observer` is called
    /// whenever [`durable`](Journal::durable) has moved by a write of any thread, and when the journal has failed. It must
    /// only wake a thread or a task: it may be called under the journal's lock. On a journal that
    /// [is inline](Journal::is_inline), threads that commit move `durable` without calling it.
    ///
    /// Call this once at most; the thread ends when the journal is closed. Errors: [`JournalError::Thread`].
    pub fn start_flusher(&self, observer: impl Fn() + Send + Sync + 'static) -> Result<(), JournalError> {
        let flusher = flusher::start(&self.shared, Box::new(observer))?;
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(flusher);
        Ok(())
    }

    /// Requests that everything appended so far becomes durable, without waiting for it: the flusher's observer is called
    /// then. Needs a [flusher](Journal::start_flusher).
    pub fn flush_soon(&self) {
        flusher::flush_soon(&self.shared);
    }

    /// Whether the journal works. Errors: [`JournalError::Poisoned`].
    pub fn check(&self) -> Result<(), JournalError> {
        self.shared.lock().check()
    }

    /// [`append`](Journal::append), then [`commit`](Journal::commit) of that record. A thread that does this often
    /// should keep a [`committer`](Journal::committer).
    ///
    /// Errors: those of both. After [`JournalError::Poisoned`] it is unknown whether the record will be found.
    pub fn append_commit(&self, kind: u8, parts: &[&[u8]]) -> Result<Lsn, JournalError> {
        self.committer().append_commit(kind, parts)
    }

    /// Returns a handle of one thread to append and commit in one step. It is cheapest on persistent memory, where
    /// threads that each have a committer write in parallel.
    pub fn committer(&self) -> Committer<'_> {
        Committer::new(&self.shared)
    }

    /// The end of the last complete record (exclusive), or a later position if the next record will be placed after it.
    pub fn appended(&self) -> Lsn {
        self.shared.lock().pipeline.appended()
    }

    /// Every record that starts before this is persistent. Never greater than [`appended`](Journal::appended); equal to
    /// it when everything is persistent.
    pub fn durable(&self) -> Lsn {
        self.shared.durable()
    }

    /// The oldest position: reading from here yields the oldest record there is.
    pub fn first(&self) -> Lsn {
        self.shared.lock().chain.first()
    }

    /// The numbers of the data keys that the headers of its segments name: those that what is in the segments may be encrypted with.
    /// Empty for a clear journal.
    pub fn data_keys(&self) -> BTreeSet<u32> {
        let state = self.shared.lock();
        state.chain.iter().filter_map(|segment| segment.header.encrypted).map(|mark| mark.id).collect()
    }

    /// The number of the data key that the header of the segment names where the next record goes; `None` for a clear journal.
    pub fn tail_data_key(&self) -> Option<u32> {
        self.shared.lock().tail.header.encrypted.map(|mark| mark.id)
    }

    /// Waits until a record ends after `after`, until `timeout`, or until the journal is poisoned; returns
    /// [`appended`](Journal::appended). A thread that commits for others waits here, then commits up to the returned
    /// position.
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

    /// Returns a reader of the durable records from `from` on: the LSN of a record, [`first`](Journal::first), or an
    /// earlier value of [`durable`](Journal::durable). The reader ends at the current durable end, and continues when
    /// more has become durable.
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

    /// Removes the records before `before`, as far as they fill whole segments. Up to [`Options::spare_segments`]
    /// segments are kept for reuse, the others are deleted. Persistent when it returns. Records at or after `before`
    /// stay.
    ///
    /// Errors: [`JournalError::Device`]; some segments may have been freed, the journal goes on. [`JournalError::Closed`].
    pub fn truncate(&self, before: Lsn) -> Result<(), JournalError> {
        self.shared.truncate(before)
    }

    /// Whether truncation up to there would remove a segment.
    pub fn frees(&self, before: Lsn) -> bool {
        self.shared.frees(before)
    }

    /// Whether a commit takes only instructions (the journal is on persistent memory): a thread that appends may then
    /// commit at once, instead of leaving that to a thread that commits for others.
    pub fn is_inline(&self) -> bool {
        self.shared.inline
    }

    /// The bytes of which a commit takes whole multiples, of the segment that is written now.
    pub fn unit_bytes(&self) -> u32 {
        self.shared.lock().tail.header.unit
    }

    /// A random number that was drawn when the journal was created. It distinguishes the journal from every other one:
    /// code that stores positions of a journal can verify that they belong to this journal.
    pub fn identity(&self) -> u32 {
        self.shared.lock().pipeline.nonce().identity
    }

    /// Counters since opening.
    pub fn stats(&self) -> Stats {
        self.shared.lock().stats
    }

    /// How large records were, and how many shared a flush, since this was called first: only then it is counted.
    pub fn group_commits(&self) -> GroupCommits {
        self.shared.lock().group_commits.get_or_insert_default().as_ref().clone()
    }

    /// Whether the next segment waits for a file descriptor; a log line reports the begin and the end. Records are
    /// accepted until the current segment is full, and refused with [`JournalError::NoDescriptors`] from then on.
    pub fn lacks_descriptor(&self) -> bool {
        self.shared.lock().lacks_descriptor
    }

    /// Ensures that a record of `bytes` can be appended, without appending one: prepares segments until there is room.
    ///
    /// Errors: as [`append`](Journal::append).
    pub fn make_room(&self, bytes: u64) -> Result<(), JournalError> {
        self.shared.make_room(bytes)
    }

    /// Makes spare segments until there are `count`, at most [`Options::spare_segments`], so that the log can grow by so many
    /// segments also if the shelf is full by then; truncation keeps as many. Spares of another size than
    /// [`Options::segment_bytes`] are removed. Persistent when it returns.
    ///
    /// Errors: the shelf has no room for them, or fails; those that were made stay.
    pub fn reserve_segments(&self, count: usize) -> Result<(), JournalError> {
        self.shared.reserve_segments(count.min(self.shared.options.spare_segments))
    }

    /// Commits appended records and closes the epoch, so that damage to its last batch can be distinguished from a torn
    /// tail. When it returns the shelf may be opened again, even if other references to this journal exist: it writes
    /// nothing more, refuses new records, and still reads existing ones. A second call does nothing.
    ///
    /// Errors: [`JournalError::Poisoned`].
    pub fn close(&self) -> Result<(), JournalError> {
        let _closing = self.closing.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.shared.stop_appends() {
            return self.shared.lock().check();
        }
        self.stop_threads();
        self.shared.finish_upkeep();
        let state = self.shared.lock();
        let appended = state.pipeline.appended();
        self.shared.commit_before(state, appended)?;
        self.shared.write_marker(CLOSE)
    }

    fn stop_threads(&self) {
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        if !threads.is_empty() {
            self.shared.stop();
        }
        for thread in threads {
            // If it panicked, that has poisoned the journal, and the next call reports it.
            let _ = thread.join();
        }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        if std::thread::panicking() || self.shared.is_failed() {
            return self.stop_threads();
        }
        // Drop cannot report an error; the next opening detects it. Callers that need the result call `close`.
        let _ = self.close();
    }
}

fn start_preparer(shared: &Arc<Shared>) -> Result<Option<JoinHandle<()>>, JournalError> {
    if shared.options.preparation == Preparation::Inline {
        return Ok(None);
    }
    let work = {
        let shared = shared.clone();
        move || shared.prepare_on_request()
    };
    // The panic has failed the journal by then.
    let panicked = |why: &str| tracing::error!(why, "the journal has failed");
    let spawned = supervise::thread("journal-prepare", work, panicked);
    spawned.map(Some).map_err(JournalError::Thread)
}

/// Drawn from the random seed that the standard library uses for its hash tables.
fn new_identity(options: &Options) -> u32 {
    use std::hash::{BuildHasher, Hasher};
    if options.identity != 0 {
        return options.identity;
    }
    let drawn = std::hash::RandomState::new().build_hasher().finish();
    ((drawn >> 32) as u32 ^ drawn as u32).max(1)
}
