//! The file service: picks messages up from a folder.
//!
//! ```text
//! folder/NAME.hl7  --settled (look)--> read in pieces, split (input) --> engine.ingest each, a window at a time (pickup) --> durable
//!      --> renamed to done/NAME.hl7, or to error/NAME.hl7 where nothing readable, or a message over the bound, was in it
//! ```
//!
//! Invariants: a file is moved only after all of its messages are durable, and only as the version that was taken; memory is
//! bounded by a message and a window, not by the file. A crash before the file is moved picks it up again, from where the
//! last window ended that is recorded (`done/.NAME.taken`): at most one window is then ingested twice. A
//! production for which this is not acceptable uses `duplicates = "drop"`. Files are taken in the order of their names,
//! and messages in their order in the file: behind one that cannot be stored now (a full disk), none is, of this file or of
//! another; a file that cannot be read or moved holds up no other one. Outside the service's schedule none is begun, which
//! is looked at before each. A file that is still growing is not read (`settle`). Links are not followed: a link is moved
//! to the error folder. Each message is decided on by the plan in force when its turn comes. A panic on a file is that
//! file's: it is put aside, since it would panic again. Of several services that watch one folder, also of one that is on
//! its way out, one takes files at a time (turns).

mod hindrances;
mod input;
mod look;
mod pickup;
mod turns;

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use device::supervise::caught;
use tokio::sync::watch;

use crate::engine::Engine;
use crate::error::InteropError;
use crate::patience::{FOLDER_PATIENCE, no_answer, within};
use crate::plan::PlannedService;
use crate::production::{Service, settings};

use hindrances::Hindrances;
use look::{FilePlace, Folders, Look, MovedFiles, settled};
use pickup::{PickedUp, Pickup};
pub use turns::FolderTurns;

/// How often a service that is outside its schedule looks whether it is open.
const LOOK: Duration = Duration::from_secs(1);

/// Files that cannot be taken, and why.
type Failed = BTreeMap<OsString, String>;

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

    /// Stops behind the messages in hand.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }
}

/// Makes the folders.
///
/// # Errors
/// `File`; `Refused` where files could not be moved from the one to the others.
pub fn prepare(settings: &settings::FileService) -> Result<(), InteropError> {
    make_and_open(settings).map(drop)
}

/// As [`prepare`], for who cannot wait for a folder that hangs.
///
/// # Errors
/// As [`prepare`]; `File` where it has not answered in time.
pub async fn prepare_in_time(settings: &settings::FileService) -> Result<(), InteropError> {
    let (of, folder) = (settings.clone(), settings.folder.clone());
    within(FOLDER_PATIENCE, move || prepare(&of)).await.map_err(InteropError::file("use", folder))?
}

fn make_and_open(settings: &settings::FileService) -> Result<Folders, InteropError> {
    for folder in [Some(&settings.folder), settings.done.as_ref(), settings.error.as_ref()].into_iter().flatten() {
        fs::create_dir_all(folder).map_err(InteropError::file("make", folder))?;
    }
    Folders::open(settings)
}

/// Starts watching. `turns` are those of all services of the node.
pub fn watch(engine: Arc<Engine>, service: Arc<PlannedService>, turns: &Arc<FolderTurns>) -> Watching {
    let (stop, stopped) = watch::channel(false);
    let service = watch::Sender::new(service);
    let hindered = Arc::<Mutex<String>>::default();
    let message_log = Arc::clone(&engine.message_log);
    let watcher = Watcher {
        engine,
        current: service.subscribe(),
        stopped,
        turns: Arc::clone(turns),
        folder: PathBuf::new(),
        had_folders: false,
        seen: HashMap::new(),
        moved: MovedFiles::default(),
        hindrances: Hindrances::default(),
        told: Arc::clone(&hindered),
    };
    message_log.supervise("files", watcher.run());
    Watching { service, stop, hindered }
}

/// The task of a service.
struct Watcher {
    engine: Arc<Engine>,
    current: watch::Receiver<Arc<PlannedService>>,
    stopped: watch::Receiver<bool>,
    turns: Arc<FolderTurns>,
    /// What is known of the files of this folder.
    folder: PathBuf,
    /// Its folders were there once; until then they are made at each look, and from then on by a reload only.
    had_folders: bool,
    seen: HashMap<OsString, Look>,
    moved: MovedFiles,
    hindrances: Hindrances,
    told: Arc<Mutex<String>>,
}

impl Watcher {
    async fn run(mut self) {
        loop {
            if self.engine.message_log.has_failed() {
                // Nothing of a file could be stored: they stay where they are.
                let _ = self.stopped.wait_for(|stop| *stop).await;
                return;
            }
            device::supervise::rehearse("files");
            let service = Arc::clone(&self.current.borrow_and_update());
            let settings = settings_of(&service).clone();
            let mut pause = LOOK;
            if is_open(&settings, &self.engine) {
                let Some(found) = self.pass(&settings).await else { return };
                if *self.stopped.borrow() {
                    return;
                }
                self.hindrances.looked(&service.name, found);
                *self.told.lock().unwrap_or_else(PoisonError::into_inner) = self.hindrances.words();
                pause = settings.every.0;
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                _ = self.current.changed() => {}
                _ = self.stopped.wait_for(|stop| *stop) => return,
            }
        }
    }

    /// Looks at the folder and takes what has settled; none where it has stopped before that.
    async fn pass(&mut self, settings: &settings::FileService) -> Option<Result<Failed, InteropError>> {
        if self.folder != settings.folder {
            self.seen.clear();
            self.moved = MovedFiles::default();
            self.folder.clone_from(&settings.folder);
        }
        let (of, had_folders) = (settings.clone(), self.had_folders);
        let open = move || if had_folders { Folders::open(&of) } else { make_and_open(&of) };
        let folders = match self.answered(blocking(open), settings).await? {
            Ok(Ok(folders)) => folders,
            Ok(Err(error)) | Err(error) => return Some(Err(error)),
        };
        self.had_folders = true;
        let _turn = tokio::select! {
            turn = self.turns.take(folders.id) => turn,
            _ = self.stopped.wait_for(|stop| *stop) => return None,
        };
        let (of, mut seen) = (settings.clone(), std::mem::take(&mut self.seen));
        let mut moved = std::mem::take(&mut self.moved);
        let looked = move || {
            let (found, grown) = (settled(&folders, &of, &mut seen), moved.grown(&folders));
            (found, folders, seen, (moved, grown))
        };
        let (found, folders, seen, (moved, grown)) = match self.answered(blocking(looked), settings).await? {
            Ok(looked) => looked,
            Err(error) => return Some(Err(error)),
        };
        (self.seen, self.moved) = (seen, moved);
        for file in grown {
            let (service, file) = (self.current.borrow().name.clone(), Path::new(&file).display().to_string());
            tracing::error!(
                service,
                file,
                "a file was written to after it was taken and moved: what was written is not taken; let `settle` be longer"
            );
        }
        match found {
            Ok(files) => Some(Ok(self.take_all(settings, &Arc::new(folders), files).await)),
            Err(error) => Some(Err(error)),
        }
    }

    /// Waits for work in the folders; none where it has stopped before that. Where they hang, the log and the status say so meanwhile, and a
    /// reload that names other folders ends the waiting.
    async fn answered<T>(
        &mut self,
        work: impl Future<Output = Option<T>>,
        of: &settings::FileService,
    ) -> Option<Result<T, InteropError>> {
        let mut work = std::pin::pin!(work);
        let silent = || InteropError::file("open", &of.folder)(no_answer(FOLDER_PATIENCE));
        tokio::select! {
            done = &mut work => return done.map(Ok),
            () = tokio::time::sleep(FOLDER_PATIENCE) => {}
            _ = self.stopped.wait_for(|stop| *stop) => return None,
        }
        let name = self.current.borrow().name.clone();
        self.hindrances.looked(&name, Err(silent()));
        *self.told.lock().unwrap_or_else(PoisonError::into_inner) = self.hindrances.words();
        loop {
            tokio::select! {
                done = &mut work => return done.map(Ok),
                _ = self.stopped.wait_for(|stop| *stop) => return None,
                Ok(()) = self.current.changed() => {
                    let service = Arc::clone(&self.current.borrow());
                    let new = settings_of(&service);
                    if (&new.folder, &new.done, &new.error) != (&of.folder, &of.done, &of.error) {
                        // The next look, at once, is at these.
                        self.current.mark_changed();
                        return Some(Err(silent()));
                    }
                }
            }
        }
    }

    /// Takes files in order, as long as the service is open; those that could not be taken, and why.
    async fn take_all(
        &mut self,
        settings: &settings::FileService,
        folders: &Arc<Folders>,
        files: Vec<OsString>,
    ) -> Failed {
        let mut failed = BTreeMap::new();
        for name in files {
            if *self.stopped.borrow() || !is_open(settings, &self.engine) {
                // The others wait until it opens again.
                break;
            }
            let Some(look) = self.seen.get_mut(&name) else { continue };
            let (engine, current, stopped) = (&*self.engine, &self.current, &self.stopped);
            let file = Pickup { engine, current, stopped, folders, name: &name };
            let picked_up = match caught(file.pick_up(look)).await {
                Ok(picked_up) => picked_up,
                Err(panic) => {
                    let (service, file_name) = (Arc::clone(&current.borrow()), Path::new(&name).display());
                    tracing::error!(
                        service = service.name, file = %file_name, panic, "a programming error stopped the taking of a file: please report it"
                    );
                    file.finish(
                        look,
                        FilePlace::Error("a programming error stopped its taking; what is behind it was not taken"),
                    )
                }
            };
            let is_last = ends_the_look(&picked_up);
            match picked_up {
                Ok(PickedUp::Whole | PickedUp::Changed) => self.moved.push(look),
                Ok(PickedUp::NotStored) => {
                    drop(failed.insert(name, "not all of it could be stored, most often for a full disk".to_owned()));
                }
                Ok(PickedUp::NotNoted(reason)) => drop(failed.insert(name, reason)),
                Ok(PickedUp::Stopped) | Err(InteropError::Stopping) => {}
                Err(error) => drop(failed.insert(name, error.to_string())),
            }
            if is_last {
                break;
            }
        }
        failed
    }
}

/// Whether no file is taken behind one whose taking ended so: what stopped it would stop them, or they would be stored before the rest of
/// it. One that cannot be read, however much of it is stored, or moved holds up no other one.
fn ends_the_look(picked_up: &Result<PickedUp, InteropError>) -> bool {
    match picked_up {
        Ok(PickedUp::NotStored | PickedUp::NotNoted(_) | PickedUp::Stopped) | Err(InteropError::Stopping) => true,
        Ok(PickedUp::Whole | PickedUp::Changed) | Err(_) => false,
    }
}

/// Done on a thread that may wait; none where the runtime ends. Its panic is one of the caller.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => Some(done),
        Err(ended) if ended.is_panic() => std::panic::resume_unwind(ended.into_panic()),
        Err(_) => None,
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_read_holds_up_no_other_one_and_one_that_cannot_be_stored_does() {
        let unread = InteropError::file("read", "a.hl7")(std::io::Error::other("a bad block"));
        for (picked_up, ends) in [
            (Ok(PickedUp::Whole), false),
            (Ok(PickedUp::Changed), false),
            (Err(unread), false),
            (Ok(PickedUp::NotStored), true),
            (Ok(PickedUp::NotNoted("no room".to_owned())), true),
            (Ok(PickedUp::Stopped), true),
            (Err(InteropError::Stopping), true),
        ] {
            assert_eq!(ends_the_look(&picked_up), ends, "{picked_up:?}");
        }
    }
}
