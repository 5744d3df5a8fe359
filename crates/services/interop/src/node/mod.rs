//! A node: one store, one production, running. This is where the parts are put together.
//!
//! ```text
//! start:  lock the data directory -> open the store (recover) -> queues, and what waits in them
//!         -> listen everywhere -> lanes -> node.json says "ready"
//! stop:   no new connections or messages -> lanes end after the message they are at -> last commit -> node.json gone
//! ```
//!
//! Invariants:
//! 1. All addresses are bound before the first message is taken: a port in use stops the start, not half of it.
//! 2. When the journal fails the node fails: nothing is acknowledged any more and `failed` tells the process to end.
//! 3. A reload either takes effect whole or not at all, and drops no connection of a service that stays.

mod control;
mod reload;
mod status;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use ::node::{Admission, Descriptors};
use catalogue::Budget;
use device::{Durability, FileOptions, FileShelf, Shelf};
use store::{Opened, Places, Store};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::clock::Clock;
use crate::duplicates::{self, Window};
use crate::engine::{Bodies, Engine, Plan};
use crate::error::InteropError;
use crate::ledger::Ledger;
use crate::location::{self, Hold, Locations};
use crate::operation::{self, Surroundings};
use crate::production::{Files, Production};
use crate::queue::Queue;
use crate::recovery::{self, Found};
use crate::rows::prune::{Pruned, Pruner, Retention};
use crate::rows::{Reader, Rows};
use crate::service::{file::Watching, mllp::Listening};

pub use control::{answers, ask, ask_telling};
pub use status::{ModelStatus, PlaceStatus, Status, read_ready};

/// How often messages are looked at that need not be kept.
const UPKEEP: Duration = Duration::from_secs(5);

/// How long a stopping node waits for its lanes: a receiver that has a message in hand may answer; then it is cut off,
/// and gets that message again at the next start.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// Memory that unfinished frames of all services may take where nothing else is said: 16 messages of the usual bound.
pub const FRAME_BYTES: u64 = 256 << 20;

/// Where the production comes from.
#[derive(Debug, Clone)]
pub enum Origin {
    /// A folder.
    Folder(PathBuf),
    /// No folder: one service that stores what it gets.
    StoreOnly(std::net::SocketAddr),
}

/// How to run a node.
#[derive(Debug, Clone)]
pub struct Options {
    /// Its data directory; made when absent.
    pub data: PathBuf,
    /// Its production.
    pub origin: Origin,
    /// How outputs are stored.
    pub bodies: Bodies,
    /// How much is kept beyond what waits to be delivered. Default 16 GiB of messages, however old.
    pub retention: Retention,
    /// Options of the journal.
    pub journal: journal::Options,
    /// Options of the store; its journal's are those above, and its interpreter is the engine's.
    pub store: store::Options,
    /// The time of day.
    pub clock: Clock,
    /// Where relative folders of file services and file operations lie. Default: in the production folder.
    pub files: Files,
    /// Descriptors and memory that all services share. Default: what the process may have open, and [`FRAME_BYTES`].
    pub admission: Arc<Admission>,
}

/// What a structure of the store lies on, for status, logs and reports.
#[derive(Debug, Clone)]
pub struct MediumInUse {
    /// Name of its tier.
    pub tier: String,
    /// The medium and how it is used, in words.
    pub device: String,
    /// What a flush is worth there.
    pub durability: Durability,
    /// False where a timing model stands in for the medium.
    pub real: bool,
}

/// Far memory of the page cache, for status, logs and reports.
#[derive(Debug, Clone)]
pub struct FarInUse {
    /// What it lies on.
    pub medium: MediumInUse,
    /// What near and far memory are together: `memory-mode` or `dual` where a mode of that name placed them, `two-tier` where a
    /// setting did.
    pub cache_mode: &'static str,
}

/// A timing model that stands in for the medium of a tier.
#[derive(Debug, Clone)]
pub struct ModelInUse {
    /// Name of the tier.
    pub tier: String,
    /// The medium's name in the catalogue.
    pub medium: String,
    /// How many modules of it share the load.
    pub modules: u32,
    /// What passed through it, and how much of that ended late.
    pub budget: Arc<Budget>,
}

/// What the store's structures lie on.
#[derive(Debug, Clone)]
pub struct Media {
    /// The journal.
    pub journal: MediumInUse,
    /// The write image journal.
    pub images: MediumInUse,
    /// The pages.
    pub data: MediumInUse,
    /// Far memory, where the page cache has any.
    pub far: Option<FarInUse>,
    /// The timing models of the tiers that are used.
    pub models: Vec<ModelInUse>,
}

impl Media {
    /// All on one.
    pub fn all(medium: &MediumInUse) -> Media {
        Media::of(medium.clone(), medium.clone(), medium.clone())
    }

    /// Each on its own, with neither far memory nor models.
    pub fn of(journal: MediumInUse, images: MediumInUse, data: MediumInUse) -> Media {
        Media { journal, images, data, far: None, models: Vec::new() }
    }
}

impl Options {
    /// Defaults for a data directory and a production.
    pub fn new(data: impl Into<PathBuf>, origin: Origin) -> Self {
        Self {
            data: data.into(),
            origin,
            bodies: Bodies::default(),
            retention: Retention { bytes: 16 << 30, age: None },
            // A message of the largest size with a few outputs, each stored whole, is one record.
            // The store reads and checks what it applies, so that opening need not do so before.
            journal: journal::Options {
                max_record_bytes: journal::RECORD_BYTES_LIMIT,
                check: journal::Check::Tail,
                ..journal::Options::default()
            },
            store: store::Options::default(),
            clock: Clock::system(),
            files: Files::default(),
            admission: Admission::new(Descriptors::current(), FRAME_BYTES),
        }
    }
}

/// A service that runs.
#[derive(Debug)]
enum Running {
    Mllp(Listening),
    File(Watching),
}

/// See the module's text.
#[derive(Debug)]
pub struct Node {
    options: Options,
    engine: Arc<Engine>,
    services: Mutex<BTreeMap<String, Running>>,
    lanes: Mutex<Vec<JoinHandle<()>>>,
    /// Queues of operations that a reload took away. They stay, with their lanes: a message that was on its way in when
    /// the operation went may yet come, and the operation may be back, when its queue must not be served twice.
    retired: Mutex<Vec<Arc<Queue>>>,
    homeless: Mutex<Found>,
    committers: Mutex<Vec<std::thread::JoinHandle<()>>>,
    stop: watch::Sender<bool>,
    /// One reload at a time.
    reloading: tokio::sync::Mutex<()>,
    opened: Opened,
    media: Media,
    /// None while a pass is under way.
    pruner: Mutex<Pruner>,
    /// None where the node was given its shelf, and its data directory is not noted.
    _hold: Option<Hold>,
}

/// A lock that protects plain data: a panic elsewhere does not make it wrong.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Node {
    /// What the store's structures lie on.
    pub fn media(&self) -> &Media {
        &self.media
    }

    /// Starts a node on files below its data directory.
    ///
    /// # Errors
    /// The production is wrong, an address is taken, the data directory is in use, what is stored is damaged or elsewhere.
    pub async fn start(options: Options) -> Result<Arc<Self>, InteropError> {
        let home = Locations::home();
        let open = |location: &location::Location| {
            let folder = location.folder_in(&options.data).expect("home is a folder");
            let shelf = FileShelf::open(&folder, FileOptions::default())?;
            let (device, durability) = (shelf.kind().to_string(), shelf.kind().durability);
            let medium = MediumInUse { tier: "home".to_owned(), device, durability, real: true };
            Ok::<_, InteropError>((Arc::new(shelf) as Arc<dyn Shelf>, medium))
        };
        let open = || {
            let ((journal, a), (images, b), (data, c)) = (open(&home.journal)?, open(&home.images)?, open(&home.data)?);
            Ok((Places { journal, images, data }, Media::of(a, b, c)))
        };
        Self::start_at(&home, open, options.clone()).await
    }

    /// Starts a node whose store lies at `locations`, which `open` opens. Nothing is opened or made before the production is
    /// checked and the locations noted in the data directory.
    ///
    /// # Errors
    /// As `start`, and what `open` answers.
    pub async fn start_at(
        locations: &Locations,
        open: impl FnOnce() -> Result<(Places, Media), InteropError>,
        options: Options,
    ) -> Result<Arc<Self>, InteropError> {
        let hold = Hold::take(&options.data)?;
        // The production is checked before what the node keeps is touched.
        let production = load(&options)?;
        location::claim(&options.data, locations)?;
        let (places, media) = open()?;
        let opened = open_store(places, &options)?;
        location::made(&options.data, locations)?;
        Self::run(opened, media, production, options, Some(hold)).await
    }

    /// Starts a node whose store lies on `shelf`, which `medium` describes; where that is is not noted, and nothing keeps a
    /// second node from its data directory.
    ///
    /// # Errors
    /// As `start`.
    pub async fn start_on(
        shelf: Arc<dyn Shelf>,
        medium: MediumInUse,
        production: Production,
        options: Options,
    ) -> Result<Arc<Self>, InteropError> {
        let places = Places { journal: Arc::clone(&shelf), images: Arc::clone(&shelf), data: shelf };
        let opened = open_store(places, &options)?;
        Self::run(opened, Media::all(&medium), production, options, None).await
    }

    async fn run(
        (store, opened): (Store, Opened),
        media: Media,
        production: Production,
        options: Options,
        hold: Option<Hold>,
    ) -> Result<Arc<Self>, InteropError> {
        let reader = Reader::new(&store);
        let mut window = Window::new(duplicates::CAPACITY);
        let mut found = recovery::read(&reader, &mut window, duplicates::CAPACITY)?;
        let queues: Vec<Arc<Queue>> = production
            .operations
            .iter()
            .map(|o| Arc::new(Queue::new(Arc::clone(o), found.suspended.contains(&o.name))))
            .collect();
        let plan = Plan { production: Arc::new(production), queues };
        let queued = recovery::requeue(&reader, &plan, &mut found)?;
        drop(reader);
        let (torn_bytes, records) = (opened.journal.torn_bytes, opened.records);
        tracing::info!(records, remembered = found.remembered, queued, torn_bytes, "store opened");
        for (operation, waiting) in &found.homeless {
            tracing::warn!(operation, waiting, "messages wait for an operation that the production does not have");
        }
        let pruner = Pruner::new(&store, options.retention)?;
        let ledger = Ledger::new(store);
        let bodies = options.bodies;
        let admission = Arc::clone(&options.admission);
        let engine = Engine::new(Arc::clone(&ledger), options.clock.clone(), plan, bodies, window, admission);
        let listeners = reload::bind_all(&engine.plan().production).await?;
        let node = Arc::new(Self {
            options,
            engine,
            services: Mutex::default(),
            lanes: Mutex::default(),
            retired: Mutex::default(),
            homeless: Mutex::new(found),
            committers: Mutex::new(ledger.start()),
            stop: watch::Sender::new(false),
            reloading: tokio::sync::Mutex::default(),
            opened,
            media,
            pruner: Mutex::new(pruner),
            _hold: hold,
        });
        node.start_lanes(&node.engine.plan().queues);
        node.start_services(listeners)?;
        control::listen(&node)?;
        tokio::spawn(Arc::clone(&node).upkeep());
        status::write_ready(&node);
        Ok(node)
    }

    /// The engine, for tests and embedders.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// The store that holds its messages, for other services of the same process.
    pub fn store(&self) -> &store::Store {
        self.engine.ledger.store()
    }

    /// Who may connect, for other services of the same process.
    pub fn admission(&self) -> &Arc<Admission> {
        &self.engine.admission
    }

    /// Connections that the node itself may open at one time: one for each lane.
    pub fn outgoing(&self) -> usize {
        self.queues().iter().map(|queue| queue.lanes().len()).sum()
    }

    /// The data directory.
    pub fn data(&self) -> &Path {
        &self.options.data
    }

    /// Tells when and why the store failed; the process should end then.
    pub fn failed(&self) -> watch::Receiver<Option<String>> {
        self.engine.ledger.failed()
    }

    /// Set when the node was asked to stop over its control socket.
    pub fn stopping(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }

    fn surroundings(&self) -> Surroundings {
        Surroundings {
            ledger: Arc::clone(&self.engine.ledger),
            clock: self.engine.clock.clone(),
            stop: self.stop.subscribe(),
        }
    }

    fn start_lanes(&self, queues: &[Arc<Queue>]) {
        let surroundings = self.surroundings();
        let mut lanes = lock(&self.lanes);
        lanes.retain(|lane| !lane.is_finished());
        for queue in queues {
            lanes.extend(operation::start(queue, &surroundings));
        }
    }

    /// All queues that may hold something.
    fn queues(&self) -> Vec<Arc<Queue>> {
        let mut queues = self.engine.plan().queues.clone();
        queues.extend(lock(&self.retired).iter().cloned());
        queues
    }

    /// Removes messages that need not be kept: now and then, and at once where the medium is full.
    async fn upkeep(self: Arc<Self>) {
        let mut stop = self.stop.subscribe();
        loop {
            let pressed = tokio::select! {
                () = tokio::time::sleep(UPKEEP) => false,
                () = self.engine.pressed.notified() => true,
                _ = stop.wait_for(|stop| *stop) => return,
            };
            if let Err(error) = self.prune(pressed).await {
                tracing::error!(%error, "messages beyond the retention could not be removed");
            }
        }
    }

    /// Removes the messages that the retention lets go and that are done; with `pressed`, all that are done. Nothing where
    /// that is under way already.
    ///
    /// # Errors
    /// The store's.
    pub async fn prune(self: &Arc<Self>, pressed: bool) -> Result<Pruned, InteropError> {
        let node = Arc::clone(self);
        let pass = move || {
            let mut pruner = match node.pruner.try_lock() {
                Ok(pruner) => pruner,
                // A pass panicked: what it had committed is done, the rest is done now.
                Err(TryLockError::Poisoned(pruner)) => pruner.into_inner(),
                Err(TryLockError::WouldBlock) => return Ok(Pruned::default()),
            };
            if pressed {
                tracing::warn!("there is no room: messages that are done are given up before their retention ends");
                node.make_room();
            }
            let taken = node.engine.ledger.taken();
            let pruned = pruner.pass(taken, node.engine.clock.now_us(), pressed, &|| *node.stop.borrow());
            drop(pruner);
            if pressed {
                node.make_room();
            }
            pruned
        };
        let pruned = tokio::task::spawn_blocking(pass).await.unwrap_or_else(|failed| {
            if failed.is_panic() {
                tracing::error!("removing old messages panicked; the next pass goes on where it was");
            }
            Err(InteropError::Stopping)
        })?;
        if pruned.messages > 0 {
            tracing::info!(messages = pruned.messages, held = pruned.held, "messages beyond the retention removed");
        }
        Ok(pruned)
    }

    /// Has the store write its pages, so that the journal behind them can be given back, and freed pages be used.
    fn make_room(&self) {
        if let Err(error) = self.engine.ledger.store().checkpoint() {
            tracing::warn!(%error, "no room could be made");
        }
    }

    /// Stops: no new connections or messages, what is on its way is acknowledged, lanes end, last commit.
    pub async fn stop(&self) {
        for (_, running) in std::mem::take(&mut *lock(&self.services)) {
            running.stop();
        }
        let mut connections = self.engine.connections.subscribe();
        if tokio::time::timeout(STOP_GRACE, connections.wait_for(|open| *open == 0)).await.is_err() {
            tracing::warn!("some senders did not take their answers in time; they will send again");
        }
        self.stop.send_replace(true);
        let lanes = std::mem::take(&mut *lock(&self.lanes));
        let aborts: Vec<_> = lanes.iter().map(JoinHandle::abort_handle).collect();
        let all = async {
            for lane in lanes {
                let _ = lane.await;
            }
        };
        if tokio::time::timeout(STOP_GRACE, all).await.is_err() {
            tracing::warn!("receivers did not answer in time; what they have in hand is sent again at the next start");
            aborts.iter().for_each(tokio::task::AbortHandle::abort);
        }
        self.engine.ledger.close();
        let committers = std::mem::take(&mut *lock(&self.committers));
        let store = self.engine.ledger.store().clone();
        let end = move || {
            committers.into_iter().for_each(|c| drop(c.join()));
            store.close()
        };
        match tokio::task::spawn_blocking(end).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(%error, "not everything is in the pages; the next start applies the journal")
            }
            Err(_) => tracing::error!("a thread panicked at the end"),
        }
        status::remove_ready(&self.options.data);
    }
}

impl Running {
    fn stop(&self) {
        match self {
            Self::Mllp(listening) => listening.stop(),
            Self::File(watching) => watching.stop(),
        }
    }
}

fn open_store(places: Places, options: &Options) -> Result<(Store, Opened), InteropError> {
    let options =
        store::Options { journal: options.journal.clone(), interpreter: Some(Arc::new(Rows)), ..options.store.clone() };
    Ok(Store::open(places, options)?)
}

fn load(options: &Options) -> Result<Production, InteropError> {
    let mut production = match &options.origin {
        Origin::Folder(folder) => Production::load(folder)?,
        Origin::StoreOnly(address) => Production::store_only(*address),
    };
    production.place_files(&options.files)?;
    Ok(production)
}
