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
//! 2. When the journal or the pages fail, or a thread that it needs panics, the node fails: messages are refused with the reason,
//!    nothing is delivered, `failed` and the status say why. What can be read is read; the process ends when it is told to.
//! 3. A reload either takes effect whole or not at all, and drops no connection of a service that stays.

mod control;
mod keeping;
mod reload;
mod status;
mod timekeeping;
mod troubles;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
use crate::rows::prune::{Pruner, Retention};
use crate::rows::{Reader, Rows};
use crate::service::{file::Watching, mllp::Listening};
use crate::supervise::supervised;
use timekeeping::Timekeeping;
use troubles::Troubles;

pub use control::{answers, ask, ask_telling};
pub use reload::{Renew, Renewed};
pub use status::{ModelStatus, PlaceStatus, Status, read_ready};
pub use troubles::{Matter, Trouble};

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

/// What to do where a medium is full.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OnFull {
    /// Messages whose outputs are all done go before their retention ends, the oldest first; senders are refused meanwhile.
    #[default]
    Prune,
    /// Senders are refused until somebody makes room; nothing goes before its retention ends.
    Refuse,
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
    /// What to do where a medium is full. Default: prune.
    pub on_full: OnFull,
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
            on_full: OnFull::default(),
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
    /// Held while a pass is under way.
    pruner: Mutex<Pruner>,
    time: Mutex<Timekeeping>,
    troubles: Mutex<Troubles>,
    /// What else a reload renews.
    renewals: Mutex<Vec<Box<reload::Renew>>>,
    /// None where the node was given its shelf, and its data directory is not noted.
    _hold: Option<Hold>,
}

/// A lock that protects plain data: a panic elsewhere does not make it wrong.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("data", &self.options.data).finish_non_exhaustive()
    }
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
        warn_of_open(&options.data, locations);
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
        // One that cannot be read says nothing of the time, and is told by whoever reads messages.
        let newest = reader.by_time(None, None, store::Direction::Backward).next().ok().flatten();
        let newest_us = newest.map(|(at_us, ..)| at_us);
        let now = options.clock.reading();
        let mut time = Timekeeping::begin(Timekeeping::kept(&options.data), newest_us, &now);
        time.at(&now);
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
        time.save_or_say(&options.data);
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
            time: Mutex::new(time),
            troubles: Mutex::default(),
            renewals: Mutex::default(),
            _hold: hold,
        });
        node.start_lanes(&node.engine.plan().queues);
        node.start_services(listeners)?;
        control::listen(&node)?;
        node.look();
        supervised(&node.engine.ledger, "upkeep", Arc::clone(&node).upkeep());
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

    /// Tells when and why the node failed: it takes and sends nothing any more, and goes on answering what it is asked.
    pub fn failed(&self) -> watch::Receiver<Option<Arc<str>>> {
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
        lock(&self.time).save_or_say(&self.options.data);
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

/// Says which of the node's folders other users of the machine can look into; what it makes itself they cannot.
fn warn_of_open(data: &Path, locations: &Locations) {
    let elsewhere = [&locations.journal, &locations.images, &locations.data].map(|place| place.folder_in(data));
    let mut folders: Vec<PathBuf> =
        elsewhere.into_iter().flatten().filter(|folder| !folder.starts_with(data)).collect();
    folders.push(data.to_owned());
    for folder in folders {
        let open = location::open_to_others(&folder);
        if open > 0 {
            let next = format!("chmod -R go= {}", folder.display());
            tracing::warn!(folder = %folder.display(), open, next, "other users of this machine can look into stored messages");
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
