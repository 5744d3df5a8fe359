//! Takes one file: reads it a window at a time, has its messages ingested and waits until they are durable, and moves it.
//!
//! ```text
//! the version that had settled? --> window --> ingest, in order --> durable --> progress noted --> next window
//!                                                                                   \-- the last --> moved, if it is still that version
//! ```
//!
//! Invariants:
//! 1. Messages are stored in their order: behind one that cannot be stored now, none is.
//! 2. Progress is noted behind each window, the last one too: a file that cannot be moved is not taken again. (Where that of the last one
//!    cannot be noted either, moving the file is what counts.)
//! 3. A file is moved only as the version of which all was taken. One that was replaced or grew meanwhile stays, or is put back, and is
//!    taken as what it is now.
//! 4. When its service stops, it ends behind the messages in hand.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use hl7::batch::BatchEvent;
use tokio::sync::watch;

use super::hindrances::NAMED;
use super::input::{self, Input, Progress};
use super::look::{FilePlace, Folders, Look};
use crate::engine::{Engine, Ingested, Waits, count};
use crate::error::InteropError;
use crate::folder::{FileStamp, Folder};
use crate::plan::PlannedService;

const NO_MESSAGE: &str = "no HL7 message in the file";
const TOO_LARGE: &str = "a message over message_bytes, or of too many segments, in the file; the others were taken";
const BROKEN: &str = "it begins as UTF-16 and is none; what came before was taken";
const LINK: &str = "it is a symbolic link, and links are not followed";

/// How the taking of a file ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PickedUp {
    /// It was moved, or is gone.
    Whole,
    /// It is another version by now, which has to settle.
    Changed,
    /// A message could not be stored: it goes on there, and nothing is taken before.
    NotStored,
    /// How much of it is stored could not be noted, for this reason: nothing is taken before.
    NotNoted(String),
    /// The service has stopped.
    Stopped,
}

/// Whether a file was moved.
enum Moved {
    /// Under this name.
    As(OsString),
    /// Its name is that of another version, of the file of this number; or of none.
    Not(Option<u64>),
}

/// What was found in a file so far.
#[derive(Default)]
struct Taken {
    messages: u64,
    oversize: u64,
    /// Faults, of which the first ones have a line of the log each.
    faults: usize,
}

impl Taken {
    /// Counts a fault; whether it has a line.
    fn has_line(&mut self) -> bool {
        self.faults += 1;
        self.faults <= NAMED
    }
}

/// A file that is taken.
pub(super) struct Pickup<'p> {
    pub(super) engine: &'p Engine,
    pub(super) current: &'p watch::Receiver<Arc<PlannedService>>,
    pub(super) stopped: &'p watch::Receiver<bool>,
    pub(super) folders: &'p Arc<Folders>,
    pub(super) name: &'p OsStr,
}

impl Pickup<'_> {
    /// The service as it is now, with its plan.
    fn service(&self) -> Arc<PlannedService> {
        Arc::clone(&self.current.borrow())
    }

    /// Takes the messages of the file that are not stored yet, and moves it.
    pub(super) async fn pick_up(&self, look: &mut Look) -> Result<PickedUp, InteropError> {
        device::supervise::rehearse("file");
        if look.stamp.is_link {
            return self.finish(look, FilePlace::Error(LINK));
        }
        if let Some(goes) = look.goes {
            return self.finish(look, goes);
        }
        let Some(mut input) = self.open(look).await? else { return Ok(PickedUp::Changed) };
        let mut taken = Taken::default();
        loop {
            let (read, events) = self.blocking(move || input.window()).await?;
            input = read;
            if input.is_changed() {
                return Ok(self.changed(look, Some(look.stamp.number)));
            }
            let ended = self.take_window(events, look, &mut taken).await?;
            let noted = self.note(look).await;
            if ended == Some(PickedUp::NotStored) {
                // For which reason there may be no room for the note either.
                return Ok(PickedUp::NotStored);
            }
            if let Err(error) = noted
                && (!input.has_ended() || ended.is_some())
            {
                return Ok(PickedUp::NotNoted(error.to_string()));
            }
            if let Some(ended) = ended {
                return Ok(ended);
            }
            if input.is_broken() {
                return self.finish(look, FilePlace::Error(BROKEN));
            }
            if input.has_ended() {
                break;
            }
            if *self.stopped.borrow() {
                return Ok(PickedUp::Stopped);
            }
        }
        if taken.faults > NAMED {
            let (service, file) = (self.service(), Path::new(self.name).display());
            tracing::warn!(service = service.name, %file, more = taken.faults - NAMED, "the file has more faults");
        }
        let goes = match (taken.messages, taken.oversize + look.too_large) {
            (0, 0) => FilePlace::Error(NO_MESSAGE),
            (_, 0) => FilePlace::Done,
            _ => FilePlace::Error(TOO_LARGE),
        };
        self.finish(look, goes)
    }

    /// Opens the version that had settled, and finds out how much of it is stored; none where it is another one by now.
    async fn open(&self, look: &mut Look) -> Result<Option<Input>, InteropError> {
        let bound = self.service().settings.intake().message_bytes.as_usize();
        if look.bound != bound {
            // Which messages are counted depends on it.
            (look.bound, look.stored, look.too_large) = (bound, None, 0);
        }
        let (folders, name, stamp) = (Arc::clone(self.folders), self.name.to_owned(), look.stamp);
        let resumes = look.stored.is_none();
        let open = move || -> io::Result<_> {
            let input = match Input::open(&folders.inbox, &name, bound) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                input => input?,
            };
            if input.stamp() != stamp {
                return Ok(None);
            }
            let progress = if resumes { input::read_progress(&folders.done, &name, &stamp, bound) } else { None };
            Ok(Some((input, progress)))
        };
        let Some((input, progress)) = self.blocking(open).await? else {
            // Should it be as it was at the next look, it has not been the same since.
            *look = Look::new(look.stamp);
            return Ok(None);
        };
        if resumes {
            let Progress { stored, too_large } = progress.unwrap_or_default();
            (look.stored, look.too_large) = (Some(stored), too_large);
        }
        Ok(Some(input))
    }

    /// Takes the messages of a window of the file; how the file ends with it, if it does.
    async fn take_window(
        &self,
        events: Vec<BatchEvent>,
        look: &mut Look,
        taken: &mut Taken,
    ) -> Result<Option<PickedUp>, InteropError> {
        let current = self.service();
        let (service, file) = (&current.name, Path::new(self.name).display());
        let (mut ingested, mut ended, mut stopped) = (Vec::new(), None, self.stopped.clone());
        for event in events {
            match event {
                BatchEvent::Problem(problem) if taken.has_line() => tracing::warn!(service, %file, "{problem}"),
                BatchEvent::Problem(_) => {}
                BatchEvent::Oversize { at, bytes } => {
                    count(&self.engine.counters.oversize);
                    count(&current.figures.oversize);
                    taken.oversize += 1;
                    if taken.has_line() {
                        tracing::warn!(service, %file, at, bytes, "a message over message_bytes was refused; the others are taken");
                    }
                }
                BatchEvent::Message { bytes, .. } => {
                    taken.messages += 1;
                    if taken.messages <= look.stored.unwrap_or(0) {
                        continue;
                    }
                    let message: Bytes = match hl7::batch::with_segment_ends(&bytes) {
                        Cow::Borrowed(_) => bytes.into(),
                        Cow::Owned(converted) => converted.into(),
                    };
                    let (service, waits) = (self.service(), Waits::default());
                    let done = tokio::select! {
                        biased;
                        done = self.engine.ingest(&service, message, &waits) => done,
                        // It waits for room, and is not stored.
                        _ = stopped.wait_for(|stop| *stop) => {
                            ended = Some(PickedUp::Stopped);
                            break;
                        }
                    };
                    if matches!(done, Ingested::Now { accepted: false, lasts: false, .. }) {
                        ended = Some(PickedUp::NotStored);
                        break;
                    }
                    ingested.push(done);
                }
            }
        }
        if self.settle(ingested, look).await? { Ok(ended) } else { Ok(Some(PickedUp::NotStored)) }
    }

    /// Waits for messages to be durable, in their order; false at the first that is not.
    async fn settle(&self, ingested: Vec<Ingested>, look: &mut Look) -> Result<bool, InteropError> {
        for ingested in ingested {
            match ingested {
                Ingested::Now { accepted: false, lasts, .. } => {
                    if !lasts {
                        return Ok(false);
                    }
                    look.too_large += 1;
                }
                Ingested::Now { .. } => {}
                Ingested::Closed => return Err(InteropError::Stopping),
                Ingested::Stored { durable, raw, .. } => {
                    if durable.await.is_err() {
                        return match self.engine.lost(&self.service(), &raw) {
                            Ingested::Now { .. } => Ok(false),
                            Ingested::Closed | Ingested::Stored { .. } => Err(InteropError::Stopping),
                        };
                    }
                }
            }
            look.stored = Some(look.stored.unwrap_or(0) + 1);
        }
        Ok(true)
    }

    /// Notes how much of the file is stored.
    async fn note(&self, look: &Look) -> Result<(), InteropError> {
        let (folders, name, stamp, bound) = (Arc::clone(self.folders), self.name.to_owned(), look.stamp, look.bound);
        let progress = Progress { stored: look.stored.unwrap_or(0), too_large: look.too_large };
        self.blocking(move || input::write_progress(&folders.done, &name, (&stamp, bound), progress)).await
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> Result<T, InteropError> {
        let done = match tokio::task::spawn_blocking(work).await {
            Ok(done) => done,
            Err(ended) if ended.is_panic() => std::panic::resume_unwind(ended.into_panic()),
            Err(_) => return Err(InteropError::Stopping),
        };
        done.map_err(InteropError::file("read", Path::new(self.name)))
    }

    /// Moves a file of which all was taken that can be; if that fails, the next look tries it again.
    pub(super) fn finish(&self, look: &mut Look, goes: FilePlace) -> Result<PickedUp, InteropError> {
        look.goes = Some(goes);
        let folder = match goes {
            FilePlace::Done => &self.folders.done,
            FilePlace::Error(_) => &self.folders.error,
        };
        let moved = self.move_to(folder, &look.stamp).map_err(InteropError::file("move", Path::new(self.name)))?;
        match moved {
            Moved::As(name) => look.moved = Some(name),
            Moved::Not(other) => return Ok(self.changed(look, other)),
        }
        if let FilePlace::Error(reason) = goes {
            let file = Path::new(self.name).display();
            tracing::warn!(service = self.service().name, %file, "moved to the error folder: {reason}");
        }
        Ok(PickedUp::Whole)
    }

    /// Moves the file, if it is this version.
    fn move_to(&self, folder: &Folder, stamp: &FileStamp) -> io::Result<Moved> {
        let inbox = &self.folders.inbox;
        let found = inbox.look(self.name)?;
        if found != Some(*stamp) {
            return Ok(Moved::Not(found.map(|found| found.number)));
        }
        let to = inbox.move_to(self.name, folder)?;
        let found = folder.look(&to)?;
        if found == Some(*stamp) || found.is_none() {
            input::forget(&self.folders.done, self.name);
            return Ok(Moved::As(to));
        }
        // It was replaced, or written to, between the two.
        if let Err(error) = folder.move_back(&to, inbox, self.name) {
            let (service, file) = (self.service(), Path::new(&to).display());
            tracing::error!(service = service.name, %file, %error, "a file that was not taken was moved, since it came in just then: put it into the watched folder again");
        }
        Ok(Moved::Not(found.map(|found| found.number)))
    }

    /// It is another version by now: the log says so, where messages of the one before were taken.
    fn changed(&self, look: &mut Look, number: Option<u64>) -> PickedUp {
        let (taken, is_same_file) = (look.stored.unwrap_or(0), number == Some(look.stamp.number));
        let (service, file) = (self.service(), Path::new(self.name).display());
        let service = &service.name;
        match number {
            None => tracing::warn!(service, %file, taken, "the file went away while it was taken"),
            Some(_) if is_same_file => {
                tracing::error!(service, %file, taken, "the file was written to while it was taken: it is taken from its beginning, as it is then");
            }
            Some(_) => {
                tracing::info!(service, %file, taken, "another file of the name came in meanwhile, and is taken next");
            }
        }
        *look = Look::new(look.stamp);
        PickedUp::Changed
    }
}
