//! The file service: picks messages up from a folder.
//!
//! ```text
//! folder/NAME.hl7  --settled--> read, split (a batch or one message) --> engine.take each --> all durable
//!      --> renamed to done/NAME.hl7, or to error/NAME.hl7 where nothing readable, or a message over the bound, was in it
//! ```
//!
//! Invariants: a file is moved only after all of its messages are durable; a crash between the two picks it up again,
//! so a production that cannot bear that uses `duplicates = "drop"`. A file that has to be tried again (a full disk, a
//! folder that cannot be written) is taken on with the messages that are not stored yet. Files are taken in order of
//! name. One that is still growing is left alone (`settle`).

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::engine::{Engine, Taken, Waits, count};
use crate::error::InteropError;
use crate::production::{Service, settings};
use crate::supervise::supervised;

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
                Ok(files) => {
                    for file in files {
                        if *stopped.borrow() {
                            return;
                        }
                        let Some(look) = seen.get_mut(&file) else { continue };
                        if let Err(error) = pick_up(&engine, &service, &settings, &file, &mut look.stored).await {
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

/// Size and time of change of a file, and since when they have been the same.
#[derive(Debug)]
struct Look {
    size: u64,
    changed: Option<SystemTime>,
    since: Instant,
    /// Where the messages begin that are stored, should the file have to be tried again.
    stored: HashSet<usize>,
}

impl Look {
    fn new(size: u64, changed: Option<SystemTime>) -> Self {
        Self { size, changed, since: Instant::now(), stored: HashSet::new() }
    }
}

/// Files that have stayed the same long enough, in order of name.
fn settled(settings: &settings::FileService, seen: &mut HashMap<PathBuf, Look>) -> Result<Vec<PathBuf>, InteropError> {
    let folder = &settings.folder;
    let mut ready = Vec::new();
    let mut present = HashSet::new();
    for entry in fs::read_dir(folder).map_err(InteropError::file("read", folder))? {
        let path = entry.map_err(InteropError::file("read", folder))?.path();
        let Ok(meta) = fs::metadata(&path) else { continue };
        if !meta.is_file() || !path.to_string_lossy().ends_with(&settings.suffix) {
            continue;
        }
        let (size, changed) = (meta.len(), meta.modified().ok());
        let look = seen.entry(path.clone()).or_insert_with(|| Look::new(size, changed));
        if (look.size, look.changed) != (size, changed) {
            *look = Look::new(size, changed);
        }
        if look.since.elapsed() >= settings.settle.0 {
            ready.push(path.clone());
        }
        present.insert(path);
    }
    seen.retain(|path, _| present.contains(path));
    ready.sort();
    Ok(ready)
}

/// Takes the messages of one file and moves it.
async fn pick_up(
    engine: &Engine,
    service: &Arc<Service>,
    settings: &settings::FileService,
    file: &Path,
    stored: &mut HashSet<usize>,
) -> Result<(), InteropError> {
    let path = file.to_owned();
    let raw = tokio::task::spawn_blocking(move || fs::read(&path)).await.map_err(|_| InteropError::Stopping)?;
    let raw = Bytes::from(raw.map_err(InteropError::file("read", file))?);
    let batch = hl7::batch::split(&raw);
    for problem in &batch.problems {
        tracing::warn!(service = service.name, file = %file.display(), "{problem}");
    }
    let bound = service.settings.intake().message_bytes;
    let messages = &batch.messages;
    if messages.is_empty() {
        return put_aside(service, settings, file, "no HL7 message in the file");
    }
    if messages.iter().any(|range| range.len() > bound.as_usize()) {
        count(&engine.counters.oversize);
        return put_aside(service, settings, file, "a message over message_bytes in the file; none of it was taken");
    }
    let mut taken = Vec::new();
    for range in messages.iter().filter(|range| !stored.contains(&range.start)) {
        let message = match hl7::batch::with_segment_ends(&raw[range.clone()]) {
            Cow::Borrowed(_) => raw.slice(range.clone()),
            Cow::Owned(converted) => converted.into(),
        };
        taken.push((range.start, engine.take(service, message, &Waits::default()).await));
    }
    for (start, taken) in taken {
        match taken {
            Taken::Now { accepted: false, .. } => continue,
            Taken::Now { .. } => {}
            Taken::Closed => return Err(InteropError::Stopping),
            Taken::Stored { durable, raw, .. } => {
                if durable.await.is_err() {
                    match engine.lost(service, &raw) {
                        Taken::Now { .. } => continue,
                        Taken::Closed | Taken::Stored { .. } => return Err(InteropError::Stopping),
                    }
                }
            }
        }
        stored.insert(start);
    }
    if stored.len() < messages.len() {
        // A full disk, most often: the rest of the file is tried again.
        tracing::warn!(service = service.name, file = %file.display(), "not all of it could be stored; the file stays");
        return Ok(());
    }
    rename(file, settings.done.as_deref())
}

/// Moves a file of which nothing can be taken out of the way.
fn put_aside(
    service: &Service,
    settings: &settings::FileService,
    file: &Path,
    reason: &str,
) -> Result<(), InteropError> {
    rename(file, settings.error.as_deref())?;
    tracing::warn!(service = service.name, file = %file.display(), "moved to the error folder: {reason}");
    Ok(())
}

/// Moves a file; a name that is taken there gets a number.
fn rename(file: &Path, folder: Option<&Path>) -> Result<(), InteropError> {
    let folder = folder.expect("loading a production fills it in");
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let mut to = folder.join(&*name);
    let mut number = 1;
    while to.exists() {
        to = folder.join(format!("{name}.{number}"));
        number += 1;
    }
    fs::rename(file, &to).map_err(InteropError::file("move", file))
}
