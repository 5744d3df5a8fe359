//! The file service: picks messages up from a folder.
//!
//! ```text
//! folder/NAME.hl7  --settled--> read in pieces, split (input) --> engine.ingest each, a window at a time --> durable
//!      --> renamed to done/NAME.hl7, or to error/NAME.hl7 where nothing readable, or a message over the bound, was in it
//! ```
//!
//! Invariants: a file is moved only after all of its messages are durable; memory is bounded by a message and a window,
//! not by the file. A crash before the file is moved picks it up again, from where the last window ended that is
//! recorded (`done/.NAME.taken`): at most one window is then ingested twice, or all of a file of one window. A
//! production for which this is not acceptable uses `duplicates = "drop"`. A file that has to be tried again (a full
//! disk, a folder that cannot be written) continues with the messages that are not stored yet. Files are taken in the
//! order of their names. Outside the service's schedule none is begun, which is looked at before each. A file that is
//! still growing is not read (`settle`). Links are not followed: a link is moved to the error folder. Each message is
//! decided on by the plan in force when its turn comes. A panic on a file is that file's: it is put aside, since it
//! would panic again.

mod hindrances;
mod input;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use device::supervise::caught;
use hl7::batch::BatchEvent;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::engine::{Engine, Ingested, Waits, count};
use crate::error::InteropError;
use crate::folder::{FileStamp, Folder};
use crate::plan::PlannedService;
use crate::production::{Service, settings};

use hindrances::{Hindrances, NAMED};
use input::Input;

/// How often a service that is outside its schedule looks whether it is open.
const LOOK: Duration = Duration::from_secs(1);

/// A folder being watched.
#[derive(Debug)]
pub struct Watching {
    service: watch::Sender<Arc<PlannedService>>,
    stop: watch::Sender<bool>,
    hindered: Arc<Mutex<String>>,
}

impl Watching {
    /// Puts another version of the service in force.
    pub fn replace(&self, service: Arc<PlannedService>) {
        self.service.send_replace(service);
    }

    /// What it cannot take, and why, in words; empty where it takes all.
    pub fn hindered(&self) -> String {
        self.hindered.lock().unwrap_or_else(PoisonError::into_inner).clone()
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
pub fn watch(engine: Arc<Engine>, service: Arc<PlannedService>) -> Watching {
    let (stop, mut stopped) = watch::channel(false);
    let service = watch::Sender::new(service);
    let mut current = service.subscribe();
    let message_log = Arc::clone(&engine.message_log);
    let hindered = Arc::<Mutex<String>>::default();
    let told = Arc::clone(&hindered);
    message_log.supervise("files", async move {
        let (mut seen, mut hindrances) = (HashMap::new(), Hindrances::default());
        loop {
            if engine.message_log.has_failed() {
                // Nothing of a file could be stored: they stay where they are.
                let _ = stopped.wait_for(|stop| *stop).await;
                return;
            }
            device::supervise::rehearse("files");
            let service = Arc::clone(&current.borrow_and_update());
            let settings = settings_of(&service).clone();
            if !is_open(&settings, &engine) {
                // Files stay where they are, and are looked at anew when it opens.
                seen.clear();
                tokio::select! {
                    () = tokio::time::sleep(LOOK) => {}
                    _ = current.changed() => {}
                    _ = stopped.wait_for(|stop| *stop) => return,
                }
                continue;
            }
            let (folder, mut looks) = (settings.clone(), std::mem::take(&mut seen));
            let looked = tokio::task::spawn_blocking(move || (settled(&folder, &mut looks), looks)).await;
            // It ends with the runtime, or by a panic, which is one of this task.
            let (files, looks) = match looked {
                Ok(looked) => looked,
                Err(ended) if ended.is_panic() => std::panic::resume_unwind(ended.into_panic()),
                Err(_) => return,
            };
            seen = looks;
            let found = match files {
                Ok((folders, files)) => {
                    let open = || !*stopped.borrow() && is_open(&settings, &engine);
                    Ok(take_all(&engine, &current, (folders, files), &mut seen, open).await)
                }
                Err(error) => Err(error),
            };
            if *stopped.borrow() {
                return;
            }
            hindrances.looked(&service.name, found);
            *told.lock().unwrap_or_else(PoisonError::into_inner) = hindrances.words();
            tokio::select! {
                () = tokio::time::sleep(settings.every.0) => {}
                _ = current.changed() => {}
                _ = stopped.wait_for(|stop| *stop) => return,
            }
        }
    });
    Watching { service, stop, hindered }
}

/// Takes files in order, as long as the service is open; those that could not be taken, and why.
async fn take_all(
    engine: &Engine,
    current: &watch::Receiver<Arc<PlannedService>>,
    (folders, files): (Folders, Vec<OsString>),
    seen: &mut HashMap<OsString, Look>,
    is_open: impl Fn() -> bool,
) -> BTreeMap<OsString, String> {
    let folders = Arc::new(folders);
    let mut failed = BTreeMap::new();
    for name in files {
        if !is_open() {
            // The others wait until it opens again.
            break;
        }
        let Some(look) = seen.get_mut(&name) else { continue };
        let file = Pickup { engine, current, folders: &folders, name: &name };
        let picked_up = match caught(file.pick_up(look)).await {
            Ok(picked_up) => picked_up,
            Err(panic) => {
                let (service, file_name) = (&current.borrow().name.clone(), Path::new(&name).display());
                tracing::error!(service, file = %file_name, panic, "a programming error stopped the taking of a file: please report it");
                file.put_aside("what was behind the programming error was not taken")
            }
        };
        if let Err(error) = picked_up {
            failed.insert(name, error.to_string());
        }
    }
    failed
}

/// Whether files are begun now.
fn is_open(settings: &settings::FileService, engine: &Engine) -> bool {
    settings.schedule.as_ref().is_none_or(|schedule| schedule.is_open(engine.clock.now_us()))
}

fn settings_of(service: &Service) -> &settings::FileService {
    match &service.settings {
        settings::ServiceSettings::File(file) => file,
        settings::ServiceSettings::Mllp(_) => unreachable!("a watched folder belongs to a file service"),
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
    stamp: FileStamp,
    since: Instant,
    /// Messages stored, from the first on without a gap; none until the progress file was read.
    stored: Option<u64>,
    /// Numbers of those stored behind the first gap, should the file have to be tried again.
    beyond: BTreeSet<u64>,
    /// Messages among these that were refused for good, for their size.
    too_large: u64,
}

impl Look {
    fn new(stamp: FileStamp) -> Self {
        Self { stamp, since: Instant::now(), stored: None, beyond: BTreeSet::new(), too_large: 0 }
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
struct Pickup<'p> {
    engine: &'p Engine,
    current: &'p watch::Receiver<Arc<PlannedService>>,
    folders: &'p Arc<Folders>,
    name: &'p OsStr,
}

impl Pickup<'_> {
    /// The service as it is now, with its plan.
    fn service(&self) -> Arc<PlannedService> {
        Arc::clone(&self.current.borrow())
    }

    /// Takes the messages of the file that are not stored yet, and moves it.
    async fn pick_up(&self, look: &mut Look) -> Result<(), InteropError> {
        device::supervise::rehearse("file");
        if look.stamp.is_link {
            return self.put_aside("it is a symbolic link, and links are not followed");
        }
        let service = self.service();
        let bound = service.settings.intake().message_bytes.as_usize();
        let (folders, name, resumes) = (Arc::clone(self.folders), self.name.to_owned(), look.stored.is_none());
        let open = move || -> std::io::Result<_> {
            let input = Input::open(&folders.inbox, &name, bound)?;
            let stored = if resumes { input::read_progress(&folders.done, &name, &input.stamp()) } else { 0 };
            Ok((input, stored))
        };
        let (mut input, stored) = self.blocking(open).await?;
        if resumes {
            look.stored = Some(stored);
        }
        let mut taken = Taken::default();
        loop {
            let (read, events) = self.blocking(move || input.window()).await?;
            input = read;
            if !self.take_window(events, look, &mut taken).await? {
                // The rest of the file is tried again.
                let text = "not all of it could be stored, most often for a full disk";
                return Err(InteropError::Refused(text.to_owned()));
            }
            if input.is_broken() {
                return self.put_aside("it begins as UTF-16 and is none; what came before was taken");
            }
            if input.has_ended() {
                break;
            }
            let (folders, name, stamp, stored) =
                (Arc::clone(self.folders), self.name.to_owned(), input.stamp(), look.stored.unwrap_or(0));
            self.blocking(move || input::write_progress(&folders.done, &name, &stamp, stored)).await?;
        }
        if taken.faults > NAMED {
            let (service, file) = (&service.name, Path::new(self.name).display());
            tracing::warn!(service, %file, more = taken.faults - NAMED, "the file has more faults");
        }
        match (taken.messages, taken.oversize + look.too_large) {
            (0, 0) => self.put_aside("no HL7 message in the file"),
            (_, 0) => self.move_to(&self.folders.done),
            _ => self
                .put_aside("a message over message_bytes, or of too many segments, in the file; the others were taken"),
        }
    }

    /// Takes the messages of a window of the file; false where not all of them could be stored.
    async fn take_window(
        &self,
        events: Vec<BatchEvent>,
        look: &mut Look,
        taken: &mut Taken,
    ) -> Result<bool, InteropError> {
        let current = self.service();
        let (service, file) = (&current.name, Path::new(self.name).display());
        let mut ingested = Vec::new();
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
                    if !look.is_stored(taken.messages) {
                        let message = match hl7::batch::with_segment_ends(&bytes) {
                            Cow::Borrowed(_) => bytes.into(),
                            Cow::Owned(converted) => converted.into(),
                        };
                        let done = self.engine.ingest(&self.service(), message, &Waits::default()).await;
                        ingested.push((taken.messages, done));
                    }
                    taken.messages += 1;
                }
            }
        }
        self.settle(ingested, look).await
    }

    /// Waits for messages to be durable; false where not all could be stored that can be, which those that are too large cannot.
    async fn settle(&self, ingested: Vec<(u64, Ingested)>, look: &mut Look) -> Result<bool, InteropError> {
        let mut all = true;
        for (number, ingested) in ingested {
            match ingested {
                Ingested::Now { accepted: false, lasts: true, .. } => look.too_large += 1,
                Ingested::Now { accepted: false, .. } => {
                    all = false;
                    continue;
                }
                Ingested::Now { .. } => {}
                Ingested::Closed => return Err(InteropError::Stopping),
                Ingested::Stored { durable, raw, .. } => {
                    if durable.await.is_err() {
                        match self.engine.lost(&self.service(), &raw) {
                            Ingested::Now { .. } => {
                                all = false;
                                continue;
                            }
                            Ingested::Closed | Ingested::Stored { .. } => return Err(InteropError::Stopping),
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
        let done = match tokio::task::spawn_blocking(work).await {
            Ok(done) => done,
            Err(ended) if ended.is_panic() => std::panic::resume_unwind(ended.into_panic()),
            Err(_) => return Err(InteropError::Stopping),
        };
        done.map_err(InteropError::file("read", Path::new(self.name)))
    }

    /// Moves a file that was not taken as a whole out of the way.
    fn put_aside(&self, reason: &str) -> Result<(), InteropError> {
        self.move_to(&self.folders.error)?;
        let file = Path::new(self.name).display();
        tracing::warn!(service = self.service().name, %file, "moved to the error folder: {reason}");
        Ok(())
    }

    fn move_to(&self, folder: &Folder) -> Result<(), InteropError> {
        let moved = self.folders.inbox.move_to(self.name, folder);
        moved.map_err(InteropError::file("move", Path::new(self.name)))?;
        input::forget(&self.folders.done, self.name);
        Ok(())
    }
}
