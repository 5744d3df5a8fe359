//! A node: one journal, one production, running. This is where the parts are put together.
//!
//! ```text
//! start:  lock the data directory -> open the journal (recover) -> queues, and what waits in them
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
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use device::{Durability, FileOptions, FileShelf, Shelf};
use journal::{Journal, Lsn, Recovered};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::clock::Clock;
use crate::duplicates::{self, Window};
use crate::engine::{Bodies, Engine, Plan};
use crate::error::InteropError;
use crate::ledger::Ledger;
use crate::location::{self, Hold, Location};
use crate::operation::{self, Surroundings};
use crate::production::units::Bytes;
use crate::production::{Files, Production};
use crate::queue::Queue;
use crate::record::Switch;
use crate::recovery::{self, Found};
use crate::service::{file::Watching, mllp::Listening};

pub use control::ask;
pub use status::{Status, read_ready};

/// How often the journal is looked at for segments that need not be kept.
const UPKEEP: Duration = Duration::from_secs(5);

/// How long a stopping node waits for its lanes: a receiver that has a message in hand may answer; then it is cut off,
/// and gets that message again at the next start.
const STOP_GRACE: Duration = Duration::from_secs(5);

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
    /// Journal kept at least, beyond what waits to be delivered. Default 16 GiB.
    pub retention: Bytes,
    /// Options of the journal.
    pub journal: journal::Options,
    /// The time of day.
    pub clock: Clock,
    /// Where relative folders of file services and file operations lie. Default: in the production folder.
    pub files: Files,
}

/// What the journal lies on, for status, logs and reports.
#[derive(Debug, Clone)]
pub struct JournalMedium {
    /// Name of its tier.
    pub tier: String,
    /// The medium and how it is used, in words.
    pub device: String,
    /// What a flush is worth there.
    pub durability: Durability,
    /// False where a timing model stands in for the medium.
    pub real: bool,
}

impl Options {
    /// Defaults for a data directory and a production.
    pub fn new(data: impl Into<PathBuf>, origin: Origin) -> Self {
        Self {
            data: data.into(),
            origin,
            bodies: Bodies::default(),
            retention: Bytes(16 << 30),
            // A message of the largest size with a few outputs, each stored whole, is one record.
            // Recovery reads and checks every record itself, so that opening need not do so before.
            journal: journal::Options {
                max_record_bytes: journal::RECORD_BYTES_LIMIT,
                check: journal::Check::Tail,
                ..journal::Options::default()
            },
            clock: Clock::system(),
            files: Files::default(),
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
    recovered: Recovered,
    medium: JournalMedium,
    /// None where the node was given its shelf, and its data directory is not noted.
    _hold: Option<Hold>,
}

/// A lock that protects plain data: a panic elsewhere does not make it wrong.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Node {
    /// Starts a node on files below its data directory.
    ///
    /// # Errors
    /// The production is wrong, an address is taken, the data directory is in use, the journal is damaged or elsewhere.
    pub async fn start(options: Options) -> Result<Arc<Self>, InteropError> {
        let home = Location::home();
        let folder = home.folder_in(&options.data).expect("home is a folder");
        let open = move || {
            let shelf = FileShelf::open(&folder, FileOptions::default())?;
            let (device, durability) = (shelf.kind().to_string(), shelf.kind().durability);
            let medium = JournalMedium { tier: "home".to_owned(), device, durability, real: true };
            Ok((Arc::new(shelf) as Arc<dyn Shelf>, medium))
        };
        Self::start_at(&home, open, options).await
    }

    /// Starts a node whose journal lies at `location`, which `open` opens. Nothing is opened or made before the production
    /// is checked and the location noted in the data directory.
    ///
    /// # Errors
    /// As `start`, and what `open` answers.
    pub async fn start_at(
        location: &Location,
        open: impl FnOnce() -> Result<(Arc<dyn Shelf>, JournalMedium), InteropError>,
        options: Options,
    ) -> Result<Arc<Self>, InteropError> {
        let hold = Hold::take(&options.data)?;
        // The production is checked before what the node keeps is touched.
        let production = load(&options)?;
        location::claim(&options.data, location)?;
        let (shelf, medium) = open()?;
        let opened = Journal::open(shelf, options.journal.clone())?;
        location::made(&options.data, location)?;
        Self::run(opened, medium, production, options, Some(hold)).await
    }

    /// Starts a node whose journal lies on `shelf`, which `medium` describes; where that is is not noted, and nothing keeps a
    /// second node from its data directory.
    ///
    /// # Errors
    /// As `start`.
    pub async fn start_on(
        shelf: Arc<dyn Shelf>,
        medium: JournalMedium,
        production: Production,
        options: Options,
    ) -> Result<Arc<Self>, InteropError> {
        let opened = Journal::open(shelf, options.journal.clone())?;
        Self::run(opened, medium, production, options, None).await
    }

    async fn run(
        (journal, recovered): (Journal, Recovered),
        medium: JournalMedium,
        production: Production,
        options: Options,
        hold: Option<Hold>,
    ) -> Result<Arc<Self>, InteropError> {
        let mut window = Window::new(duplicates::CAPACITY);
        let mut found = recovery::read(&journal, recovered.first, &mut window)?;
        let queues: Vec<Arc<Queue>> = production
            .operations
            .iter()
            .map(|o| Arc::new(Queue::new(Arc::clone(o), found.suspended.contains(&o.name))))
            .collect();
        let plan = Plan { production: Arc::new(production), queues };
        let queued = recovery::requeue(&journal, &plan, &mut found)?;
        tracing::info!(messages = found.messages, queued, torn_bytes = recovered.torn_bytes, "journal read");
        for (operation, waiting) in &found.homeless {
            tracing::warn!(operation, waiting, "messages wait for an operation that the production does not have");
        }
        let ledger = Ledger::new(journal);
        let bodies = options.bodies;
        let engine = Engine::new(Arc::clone(&ledger), options.clock.clone(), plan, bodies, window);
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
            recovered,
            medium,
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

    /// The data directory.
    pub fn data(&self) -> &Path {
        &self.options.data
    }

    /// Tells when and why the journal failed; the process should end then.
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

    /// Gives back journal segments that need not be kept: now and then, and at once where the medium is full.
    async fn upkeep(self: Arc<Self>) {
        let mut stop = self.stop.subscribe();
        loop {
            let pressed = tokio::select! {
                () = tokio::time::sleep(UPKEEP) => false,
                () = self.engine.pressed.notified() => true,
                _ = stop.wait_for(|stop| *stop) => return,
            };
            // A reload moves queues and what waits in them: not while they are looked through.
            let _still = self.reloading.lock().await;
            let node = Arc::clone(&self);
            let done = tokio::task::spawn_blocking(move || node.truncate(pressed)).await;
            if let Ok(Err(error)) = done {
                tracing::error!(%error, "old journal segments could not be given back");
            }
        }
    }

    /// Gives back what lies before the retention and before all that waits; with `pressed`, retention does not count.
    fn truncate(&self, pressed: bool) -> Result<(), InteropError> {
        // Read first: whatever comes to the queues later lies behind it.
        let end = self.engine.ledger.handed_over();
        let waiting = self.queues().iter().filter_map(|queue| queue.oldest()).min();
        let homeless = lock(&self.homeless).oldest();
        let keep = end.0.saturating_sub(if pressed { 0 } else { self.options.retention.0 });
        let before = [Some(keep), waiting, homeless].into_iter().flatten().min().unwrap_or(0);
        let journal = self.engine.ledger.journal();
        if before < journal.first().0 + self.options.journal.segment_bytes {
            return Ok(());
        }
        if pressed {
            tracing::warn!("the disk is full: messages that are done are given up before their retention ends");
        }
        let kept = self.write_suspensions();
        journal.truncate(Lsn(before))?;
        if !kept && !self.write_suspensions() {
            tracing::warn!("suspensions could not be kept; a restart ends those whose record was given back");
        }
        Ok(())
    }

    /// Writes anew which operations are suspended, before the records that say so are given back; on a full disk that
    /// is `false`, and there is room for it only after.
    fn write_suspensions(&self) -> bool {
        let mut kept = true;
        for queue in self.queues() {
            if !queue.orders().borrow().suspended {
                continue;
            }
            let at_us = self.engine.clock.now_us();
            let reason = "still suspended".to_owned();
            let switch = Switch { operation: queue.name.clone(), suspended: true, at_us, reason };
            match self.engine.ledger.switch(&switch) {
                // Lost only if the journal fails, and then nothing is given back either.
                Ok(durable) => drop(durable.blocking_recv()),
                Err(_) => kept = false,
            }
        }
        kept
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
        let joined = tokio::task::spawn_blocking(move || committers.into_iter().for_each(|c| drop(c.join()))).await;
        if joined.is_err() {
            tracing::error!("a committing thread panicked");
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

fn load(options: &Options) -> Result<Production, InteropError> {
    let mut production = match &options.origin {
        Origin::Folder(folder) => Production::load(folder)?,
        Origin::StoreOnly(address) => Production::store_only(*address),
    };
    production.place_files(&options.files)?;
    Ok(production)
}
