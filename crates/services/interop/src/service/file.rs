//! The file service: picks messages up from a folder.
//!
//! ```text
//! folder/NAME.hl7  --settled--> read in pieces, split (input) --> engine.take each, a window at a time --> durable
//!      --> renamed to done/NAME.hl7, or to error/NAME.hl7 where nothing readable, or a message over the bound, was in it
//! ```
//!
//! Invariants: a file is moved only after all of its messages are durable; memory is bounded by a message and a window, not by
//! the file. A crash before the file is moved picks it up again, from where the last window ended that was noted
//! (`done/.NAME.taken`): what is taken twice then is one window at most, all of a file of one window. A production that cannot bear that
//! uses `duplicates = "drop"`. A file that has to be tried again (a full disk, a folder that cannot be written) is taken on
//! with the messages that are not stored yet. Files are taken in order of name. One that is still growing is left alone
//! (`settle`). Links are not followed: one is put aside.

mod input;

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use hl7::batch::BatchEvent;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::engine::{Engine, Taken, Waits, count};
use crate::error::InteropError;
use crate::folder::{Folder, Stamp};
use crate::production::{Service, settings};
use crate::supervise::supervised;
use input::Input;

/// A folder being watched.
#[derive(Debug)]
pub struct Watching {
    service: watch::Sender<Arc<Service>>,
    stop: watch::Sender<bool>,
}

impl Watching {
    /// Puts another version of the service in force.
    pub fn replace(&self, service: Arc<Service>) {
        self.service.send_replace(service);
    }

    /// Stops after the file in hand.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }
}

/// Makes the folders.
///
/// # Errors
/// `File`.
pub fn prepare(settings: &settings::FileService) -> Result<(), InteropError> {
    for folder in [Some(&settings.folder), settings.done.as_ref(), settings.error.as_ref()].into_iter().flatten() {
        fs::create_dir_all(folder).map_err(InteropError::file("make", folder))?;
    }
    Ok(())
}

/// Starts watching.
pub fn watch(engine: Arc<Engine>, service: Arc<Service>) -> Watching {
    let (stop, mut stopped) = watch::channel(false);
    let service = watch::Sender::new(service);
    let mut current = service.subscribe();
    let ledger = Arc::clone(&engine.ledger);
    supervised(&ledger, "files", async move {
        let mut seen = HashMap::new();
        loop {
            if engine.ledger.has_failed() {
                // Nothing of a file could be stored: they stay where they are.
                let _ = stopped.wait_for(|stop| *stop).await;
                return;
            }
            device::supervise::rehearse("files");
            let service = Arc::clone(&current.borrow_and_update());
            let settings = settings_of(&service).clone();
            let (folder, mut looks) = (settings.clone(), std::mem::take(&mut seen));
            let looked = tokio::task::spawn_blocking(move || (settled(&folder, &mut looks), looks)).await;
            // It ends with the runtime, or by a panic, which is one of this task.
            let (files, looks) = match looked {
                Ok(looked) => looked,
                Err(ended) if ended.is_panic() => std::panic::resume_unwind(ended.into_panic()),
                Err(_) => return,
            };
            seen = looks;
            match files {
                Ok((folders, files)) => {
                    let folders = Arc::new(folders);
                    for name in files {
                        if *stopped.borrow() {
                            return;
                        }
                        let Some(look) = seen.get_mut(&name) else { continue };
                        let file = Pickup { engine: &engine, service: &service, folders: &folders, name: &name };
                        if let Err(error) = file.pick_up(look).await {
                            tracing::error!(service = service.name, %error, "a file could not be taken; trying again");
                        }
                    }
                }
                Err(error) => tracing::error!(service = service.name, %error, "the folder cannot be read"),
            }
            tokio::select! {
                () = tokio::time::sleep(settings.every.0) => {}
                _ = current.changed() => {}
                _ = stopped.wait_for(|stop| *stop) => return,
            }
        }
    });
    Watching { service, stop }
}

fn settings_of(service: &Service) -> &settings::FileService {
    match &service.settings {
        settings::Service::File(file) => file,
        settings::Service::Mllp(_) => unreachable!("a watched folder belongs to a file service"),
    }
}

/// The folders of a service, open.
#[derive(Debug)]
struct Folders {
    inbox: Folder,
    done: Folder,
    error: Folder,
}

impl Folders {
    fn open(settings: &settings::FileService) -> Result<Folders, InteropError> {
        let open = |folder: &Path| Folder::open(folder).map_err(InteropError::file("open", folder));
        let filled = |folder: &'_ Option<std::path::PathBuf>| folder.clone().expect("loading a production fills it in");
        Ok(Folders {
            inbox: open(&settings.folder)?,
            done: open(&filled(&settings.done))?,
            error: open(&filled(&settings.error))?,
        })
    }
}

/// A version of a file, since when it has been the same, and how much of it is stored.
#[derive(Debug)]
struct Look {
    stamp: Stamp,
    since: Instant,
    /// Messages stored, from the first on without a gap; none as long as nobody has looked what was noted before.
    stored: Option<u64>,
    /// Numbers of those stored behind the first gap, should the file have to be tried again.
    beyond: BTreeSet<u64>,
}

impl Look {
    fn new(stamp: Stamp) -> Self {
        Self { stamp, since: Instant::now(), stored: None, beyond: BTreeSet::new() }
    }

    fn is_stored(&self, number: u64) -> bool {
        number < self.stored.unwrap_or(0) || self.beyond.contains(&number)
    }

    fn store(&mut self, number: u64) {
        self.beyond.insert(number);
        let mut stored = self.stored.unwrap_or(0);
        while self.beyond.remove(&stored) {
            stored += 1;
        }
        self.stored = Some(stored);
    }
}

/// The folders, and the names in the inbox that have stayed the same long enough, in order.
fn settled(
    settings: &settings::FileService,
    seen: &mut HashMap<OsString, Look>,
) -> Result<(Folders, Vec<OsString>), InteropError> {
    let folders = Folders::open(settings)?;
    let read = |error| InteropError::file("read", &settings.folder)(error);
    let mut ready = Vec::new();
    let mut present = HashSet::new();
    for name in folders.inbox.names().map_err(read)? {
        if !name.as_bytes().ends_with(settings.suffix.as_bytes()) {
            continue;
        }
        let Some(stamp) = folders.inbox.look(&name).map_err(read)?.filter(|stamp| stamp.is_file || stamp.is_link)
        else {
            continue;
        };
        let look = seen.entry(name.clone()).or_insert_with(|| Look::new(stamp));
        if look.stamp != stamp {
            *look = Look::new(stamp);
        }
        if look.since.elapsed() >= settings.settle.0 {
            ready.push(name.clone());
        }
        present.insert(name);
    }
    seen.retain(|name, _| present.contains(name));
    Ok((folders, ready))
}

/// A file that is taken.
struct Pickup<'p> {
    engine: &'p Engine,
    service: &'p Arc<Service>,
    folders: &'p Arc<Folders>,
    name: &'p OsStr,
}

impl Pickup<'_> {
    /// Takes the messages of the file that are not stored yet, and moves it.
    async fn pick_up(&self, look: &mut Look) -> Result<(), InteropError> {
        let service = &self.service.name;
        let file = Path::new(self.name).display();
        if look.stamp.is_link {
            return self.put_aside("it is a symbolic link, and links are not followed");
        }
        let bound = self.service.settings.intake().message_bytes.as_usize();
        let (folders, name, noted) = (Arc::clone(self.folders), self.name.to_owned(), look.stored.is_none());
        let open = move || -> std::io::Result<_> {
            let input = Input::open(&folders.inbox, &name, bound)?;
            let stored = if noted { input::noted(&folders.done, &name, &input.stamp()) } else { 0 };
            Ok((input, stored))
        };
        let (mut input, stored) = self.blocking(open).await?;
        if noted {
            look.stored = Some(stored);
        }
        let (mut messages, mut refused) = (0, 0);
        loop {
            let (read, events) = self.blocking(move || input.window()).await?;
            input = read;
            let mut taken = Vec::new();
            for event in events {
                match event {
                    BatchEvent::Problem(problem) => tracing::warn!(service, %file, "{problem}"),
                    BatchEvent::Oversize { at, bytes } => {
                        count(&self.engine.counters.oversize);
                        refused += 1;
                        tracing::warn!(service, %file, at, bytes, "a message over message_bytes was refused; the others are taken");
                    }
                    BatchEvent::Message { bytes, .. } => {
                        if !look.is_stored(messages) {
                            let message = match hl7::batch::with_segment_ends(&bytes) {
                                Cow::Borrowed(_) => bytes.into(),
                                Cow::Owned(converted) => converted.into(),
                            };
                            taken.push((messages, self.engine.take(self.service, message, &Waits::default()).await));
                        }
                        messages += 1;
                    }
                }
            }
            if !self.settle(taken, look).await? {
                // A full disk, most often: the rest of the file is tried again.
                tracing::warn!(service, %file, "not all of it could be stored; the file stays");
                return Ok(());
            }
            if input.is_broken() {
                return self.put_aside("it begins as UTF-16 and is none; what came before was taken");
            }
            if input.has_ended() {
                break;
            }
            let (folders, name, stamp, stored) =
                (Arc::clone(self.folders), self.name.to_owned(), input.stamp(), look.stored.unwrap_or(0));
            self.blocking(move || input::note(&folders.done, &name, &stamp, stored)).await?;
        }
        match (messages, refused) {
            (0, 0) => self.put_aside("no HL7 message in the file"),
            (_, 0) => self.move_to(&self.folders.done),
            _ => self.put_aside("a message over message_bytes in the file; the others were taken"),
        }
    }

    /// Waits for messages to be durable; false where not all could be stored.
    async fn settle(&self, taken: Vec<(u64, Taken)>, look: &mut Look) -> Result<bool, InteropError> {
        let mut all = true;
        for (number, taken) in taken {
            match taken {
                Taken::Now { accepted: false, .. } => {
                    all = false;
                    continue;
                }
                Taken::Now { .. } => {}
                Taken::Closed => return Err(InteropError::Stopping),
                Taken::Stored { durable, raw, .. } => {
                    if durable.await.is_err() {
                        match self.engine.lost(self.service, &raw) {
                            Taken::Now { .. } => {
                                all = false;
                                continue;
                            }
                            Taken::Closed | Taken::Stored { .. } => return Err(InteropError::Stopping),
                        }
                    }
                }
            }
            look.store(number);
        }
        Ok(all)
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
    ) -> Result<T, InteropError> {
        let done = tokio::task::spawn_blocking(work).await.map_err(|_| InteropError::Stopping)?;
        done.map_err(InteropError::file("read", Path::new(self.name)))
    }

    /// Moves a file that was not taken as a whole out of the way.
    fn put_aside(&self, reason: &str) -> Result<(), InteropError> {
        self.move_to(&self.folders.error)?;
        let file = Path::new(self.name).display();
        tracing::warn!(service = self.service.name, %file, "moved to the error folder: {reason}");
        Ok(())
    }

    fn move_to(&self, folder: &Folder) -> Result<(), InteropError> {
        let moved = self.folders.inbox.move_to(self.name, folder);
        moved.map_err(InteropError::file("move", Path::new(self.name)))?;
        input::forget(&self.folders.done, self.name);
        Ok(())
    }
}
