//! [`View`]: reads a journal without owning it, even while another process writes it.

use std::sync::{Arc, Mutex, MutexGuard};

use device::{DeviceError, Shelf};
use encryption::Sealer;

use crate::error::{Corruption, JournalError};
use crate::lsn::Lsn;
use crate::options::Record;
use crate::reader::{Reader, Source, read_one};
use crate::recovery::{Ending, Verdict, Visit, walk};
use crate::scan::Progress;
use crate::segment::{Access, Chain, Segment};

/// A journal opened for reading. It changes nothing on the shelf.
///
/// It ends at the last whole batch that existed when it was opened or [refreshed](View::refresh). If another process is
/// writing, a batch that is only partly written ends the view without an error. The last records of such a journal may
/// not be acknowledged yet, and a power failure may still remove them.
#[derive(Debug)]
pub struct View {
    seen: Arc<Seen>,
}

#[derive(Debug)]
struct Seen {
    shelf: Arc<dyn Shelf>,
    state: Mutex<State>,
    sealer: Option<Arc<Sealer>>,
}

#[derive(Debug)]
struct State {
    chain: Chain,
    ending: Ending,
}

/// How often opening starts again because segments were truncated meanwhile. A writer truncates once per segment
/// filled, which takes far longer than listing a shelf.
const ATTEMPTS: u32 = 16;

impl View {
    /// Opens the journal on the shelf; an empty shelf is an empty log. Reads the last segments to find the end.
    ///
    /// Damage does not prevent opening. Damage near the end ends the view, and [`corruption`](View::corruption) returns
    /// it. Earlier damage is an error of the reader that reaches it, and is found by [`crate::verify`].
    ///
    /// Errors: [`JournalError::Corrupt`] for a damaged segment header or a missing segment, [`JournalError::Version`],
    /// [`JournalError::Device`].
    ///
    /// Records of an encrypted journal cannot be read: that needs [`open_with`](View::open_with). All that checksums tell is there.
    pub fn open(shelf: Arc<dyn Shelf>) -> Result<View, JournalError> {
        View::open_with(shelf, None)
    }

    /// As [`open`](View::open), with what decrypts the records of an encrypted journal.
    ///
    /// Errors: as there; with a sealer also [`JournalError::Clear`] and [`JournalError::Key`].
    pub fn open_with(shelf: Arc<dyn Shelf>, sealer: Option<Arc<Sealer>>) -> Result<View, JournalError> {
        let (chain, ending) = look(&shelf, None)?;
        if sealer.is_some() {
            chain.check_key(sealer.as_deref())?;
        }
        let state = Mutex::new(State { chain, ending });
        Ok(View { seen: Arc::new(Seen { shelf, state, sealer }) })
    }

    /// Continues from the end that was found last. Returns the new end.
    ///
    /// Errors: those of [`open`](View::open).
    pub fn refresh(&self) -> Result<Lsn, JournalError> {
        let from = self.seen.lock().ending.progress;
        let (chain, ending) = look(&self.seen.shelf, Some(from))?;
        *self.seen.lock() = State { chain, ending };
        Ok(self.end())
    }

    /// The journal's identity, see [`crate::Journal::identity`]; `None` for an empty log.
    pub fn identity(&self) -> Option<u32> {
        self.seen.lock().chain.front().map(|segment| segment.header.nonce.identity)
    }

    /// The oldest position of the log.
    pub fn first(&self) -> Lsn {
        self.seen.first()
    }

    /// The end of the last whole batch.
    pub fn end(&self) -> Lsn {
        self.seen.limit()
    }

    /// Bytes at the end that a recovery would drop. If the journal is being written, these may be in flight.
    pub fn torn_bytes(&self) -> u64 {
        self.seen.lock().ending.torn_bytes
    }

    /// The damage because of which the journal would not open, if any was found: near the end by opening, anywhere by
    /// [`crate::inspect()`] and [`crate::verify`].
    pub fn corruption(&self) -> Option<Corruption> {
        self.seen.lock().ending.corruption.clone()
    }

    /// The records from `from` on, up to [`end`](View::end); as [`crate::Journal::read`].
    pub fn read(&self, from: Lsn) -> Reader {
        Reader::new(self.seen.clone(), from)
    }

    /// The record at `lsn`; as [`crate::Journal::read_at`].
    ///
    /// Errors: as there.
    pub fn read_at(&self, lsn: Lsn) -> Result<Record, JournalError> {
        read_one(self.seen.clone(), lsn)
    }

    /// The segments, in order.
    pub(crate) fn segments(&self) -> Vec<Arc<Segment>> {
        self.seen.lock().chain.iter().cloned().collect()
    }

    /// Where the last segment begins whose beginning is known to be persistent; see [`Chain::tail`].
    pub(crate) fn tail(&self) -> Lsn {
        self.seen.lock().chain.tail()
    }

    /// Walks the log again, over the segments that were opened. Errors: [`JournalError::Truncated`] if they have
    /// changed meanwhile, because apparent damage may then not be real.
    pub(crate) fn walk(&self, visit: Visit<'_>) -> Result<Ending, JournalError> {
        self.walk_from(Lsn::ZERO, visit)
    }

    /// The same from the segment on that contains what is before `from`: earlier ones may be truncated meanwhile.
    pub(crate) fn walk_from(&self, from: Lsn, visit: Visit<'_>) -> Result<Ending, JournalError> {
        let (chain, identity) = {
            let state = self.seen.lock();
            (state.chain.clone(), state.ending.progress.nonce.identity)
        };
        let holds = chain.iter().rev().find(|segment| segment.header.base < from);
        let start = holds.map_or(chain.first(), |segment| segment.header.base);
        let ending = walk(&chain, Progress::new(start, identity), visit)?;
        let lsn = ending.progress.position;
        if ending.verdict == Verdict::Corrupt && self.seen.is_truncated(lsn)? {
            return Err(JournalError::Truncated { lsn, first: load(&self.seen.shelf)?.first() });
        }
        if let Some(corruption) = &ending.corruption {
            self.seen.lock().ending.corruption.get_or_insert(corruption.clone());
        }
        Ok(ending)
    }
}

impl Seen {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while a view is exchanged")
    }
}

impl Source for Seen {
    fn first(&self) -> Lsn {
        self.lock().chain.first()
    }

    fn limit(&self) -> Lsn {
        self.lock().ending.progress.position
    }

    fn segment(&self, lsn: Lsn) -> Option<Arc<Segment>> {
        self.lock().chain.find(lsn).cloned()
    }

    fn sealer(&self) -> Option<&Sealer> {
        self.sealer.as_deref()
    }

    fn is_truncated(&self, lsn: Lsn) -> Result<bool, JournalError> {
        let chain = load(&self.shelf)?;
        Ok(lsn < chain.first())
    }
}

/// Loads the chain; retries if a segment disappears between listing and opening.
fn load(shelf: &Arc<dyn Shelf>) -> Result<Chain, JournalError> {
    let mut attempt = 1;
    loop {
        match Chain::load(shelf, Access::Read) {
            Err(JournalError::Device(DeviceError::NotFound { .. })) if attempt < ATTEMPTS => attempt += 1,
            other => return other,
        }
    }
}

/// Loads the chain and walks its tail; retries if its front was truncated meanwhile, which looks like damage.
fn look(shelf: &Arc<dyn Shelf>, from: Option<Progress>) -> Result<(Chain, Ending), JournalError> {
    let mut attempt = 1;
    loop {
        let chain = load(shelf)?;
        let identity = chain.front().map_or(0, |segment| segment.header.nonce.identity);
        let start = Progress::new(chain.tail(), identity);
        let from = from.filter(|progress| progress.position >= chain.first() && progress.nonce.identity == identity);
        let ending = walk(&chain, from.unwrap_or(start), &mut |_, _, _| ())?;
        if ending.verdict != Verdict::Corrupt || attempt == ATTEMPTS || load(shelf)?.first() == chain.first() {
            return Ok((chain, ending));
        }
        attempt += 1;
    }
}
