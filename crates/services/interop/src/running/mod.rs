//! A production that runs on a node: one store, services, operations. This is where the parts are put together.
//!
//! ```text
//! start:  lock the data directory -> open the store (recover) -> queues, and what waits in them
//!         -> listen everywhere -> lanes -> node.json is written
//! stop:   no new connections or messages -> lanes end after the message they are at -> last commit -> node.json is removed
//! ```
//!
//! Invariants:
//! 1. All addresses are bound before the first message is taken: a port in use stops the start, not half of it.
//! 2. When the journal or the pages fail, or a thread that it needs panics, the node fails: messages are refused with the reason,
//!    nothing is delivered, `failed` and the status have the reason. Stored data can still be read; the process ends on request.
//! 3. A reload either takes effect whole or not at all, and drops no connection of a service that stays.
//!
//! The parts of a node that have nothing to do with HL7 (lock, places, control socket, clock) are in the crate `node`.

mod audited;
mod control_request;
mod generations;
mod housekeeping;
mod identity_sources;
mod operations;
mod operator_request;
mod queue_heads;
mod reload;
mod reprocess;
mod requests;
mod requirement;
mod resend;
mod service_verbs;
mod services;
mod status;
mod stored;
mod switch;
mod tail;
mod tail_lines;
mod todo;
mod transfer;
mod transfer_request;
mod verbs;
mod waiting;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use device::Shelf;
use hl7::mask::Masker;
use node::admission::FRAME_BYTES;
use node::identity::ldap::LdapSettings;
use node::identity::oidc::OidcSettings;
use node::identity::scram::Mock;
use node::identity::{AccessRules, DirectoryWatch, Guard};
use node::timekeeping::Timekeeping;
use node::trouble::{Trouble, VolumeTroubles};
use node::{
    Admission, Audit, AuditSettings, Clock, Descriptors, DirectoryLock, Locations, Media, MediumInUse, NodeError,
    NodeStore, RolePlaces,
};
use store::Places;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::access::AccessGate;
use crate::duplicates::{self, Window};
use crate::engine::{Bodies, Engine, Plan};
use crate::error::InteropError;
use crate::message_log::MessageLog;
use crate::operation::{self, Surroundings};
use crate::production::{Files, Production, Values};
use crate::queue::Queue;
use crate::record::Switch;
use crate::recovery;
use crate::rows::prune::{Pruned, Pruner, Retention};
use crate::rows::{Reader, interpreter};
use housekeeping::{Housekeeping, Pressure};
use operations::RunningOperations;
use requests::ControlRequests;
use service_verbs::ServiceVerbs;
use services::RunningServices;
use transfer::ImportTurns;

pub use audited::Audited;
pub use control_request::{CONTROL_EXAMPLES, ReadRequest, ServiceRequest};
pub use generations::{
    GenerationDifference, GenerationList, ON_DISK, PRODUCTION_REQUEST, ProductionRequest, WentBack, answer_reading,
};
pub use operator_request::{
    EditedRequest, ReprocessOutcome, ReprocessPage, ReprocessRequest, ReprocessResult, ReprocessSearch,
    SetAsideMessage, SetAsideRequest, StartRequest, TodoItem, TodoPage, TodoRequest,
};
pub use queue_heads::QueueHead;
pub use reload::{Renew, Renewed};
pub use requirement::{Needs, Requirement};
pub use status::{NodeStatus, ServiceStatus};
pub use tail_lines::{TAIL_BODY_BYTES_MAX, TailMessage, TailOutcome, TailPart, TailRequest};
pub use transfer_request::{ImportMessage, ImportOutcome, ImportPage, ImportRequest, ImportResult};
pub use waiting::{LaneReport, OperationReport, OperationStatus, WaitingOutput};

/// How long a stopping node waits for its lanes: a receiver that has a message in hand may answer; then it is cut off,
/// and gets that message again at the next start.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// Where the production comes from.
#[derive(Debug, Clone)]
pub enum Origin {
    /// A folder.
    Folder(PathBuf),
    /// No folder: one service that stores every message.
    StoreOnly(std::net::SocketAddr),
}

/// The reaction to a full medium.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OnFull {
    /// Messages whose outputs are all done are removed before their retention ends, the oldest first; senders are
    /// refused meanwhile.
    #[default]
    Prune,
    /// Senders are refused until an operator makes room; nothing goes before its retention ends.
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
    /// The reaction to a full medium. Default: prune.
    pub on_full: OnFull,
    /// How much of the audit is kept, and how much there may be.
    pub audit: AuditSettings,
    /// Which places of messages are masked for readers without a right to patient data. Default: those that identify a patient.
    pub masker: Arc<Masker>,
    /// Options of the journal.
    pub journal: journal::Options,
    /// Options of the store; its journal's are those above, and its interpreter is the engine's.
    pub store: store::Options,
    /// The time of day.
    pub clock: Clock,
    /// Where relative folders of file services and file operations lie. Default: in the production folder.
    pub files: Files,
    /// Values that take the places of names in the settings of the production. Default: none of this node.
    pub values: Values,
    /// Descriptors and memory that all services share. Default: the process's limit of open descriptors, and
    /// [`FRAME_BYTES`].
    pub admission: Arc<Admission>,
    /// Who may come in from where, for all ports. Default: no rules, and the settings of the ports decide.
    pub access: AccessRules,
    /// The directory that checks passwords of users who have none here. Default: none.
    pub ldap: Option<LdapSettings>,
    /// The provider that says who users are that come with a browser. Default: none.
    pub oidc: Option<OidcSettings>,
    /// Whether other services of the node start after it, until [`RunningProduction::services_started`]: meanwhile a request that
    /// nothing knows yet is answered with "try again". Default: no.
    pub services_follow: bool,
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
            audit: AuditSettings::default(),
            masker: Arc::default(),
            // A message of the largest size with a few outputs, each stored whole, is one record. The store reads and
            // checks the records that it applies, so opening need not check them before.
            journal: journal::Options {
                max_record_bytes: journal::RECORD_BYTES_LIMIT,
                check: journal::Check::Tail,
                ..journal::Options::default()
            },
            store: store::Options::default(),
            clock: Clock::system(),
            files: Files::default(),
            values: Values::default(),
            admission: Admission::new(Descriptors::current(), FRAME_BYTES),
            access: AccessRules::default(),
            ldap: None,
            oidc: None,
            services_follow: false,
        }
    }
}

/// See the module's text.
pub struct RunningProduction {
    options: Options,
    store: NodeStore,
    engine: Arc<Engine>,
    services: RunningServices,
    operations: Arc<RunningOperations>,
    housekeeping: Arc<Housekeeping>,
    audit: Arc<Audit>,
    guard: Arc<Guard>,
    hand_over: Mutex<Option<JoinHandle<()>>>,
    stop: watch::Sender<bool>,
    /// One reload at a time.
    reloading: tokio::sync::Mutex<()>,
    /// One request at a time makes messages under idempotency keys.
    reprocessing: tokio::sync::Mutex<()>,
    tails: RolePlaces,
    importing: ImportTurns,
    /// Other parts that a reload renews.
    renewals: Mutex<Vec<Box<Renew>>>,
    /// Requests to the control socket that other services answer.
    service_verbs: ServiceVerbs,
}

/// A lock that protects plain data: a panic elsewhere does not make it wrong.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl std::fmt::Debug for RunningProduction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunningProduction").field("data", &self.options.data).finish_non_exhaustive()
    }
}

impl RunningProduction {
    /// The media of the store's structures.
    pub fn media(&self) -> &Media {
        self.store.media()
    }

    /// Starts on files below the data directory.
    ///
    /// # Errors
    /// The production is wrong, an address is taken, the data directory is in use, what is stored is damaged or elsewhere.
    pub async fn start(options: Options) -> Result<Arc<Self>, InteropError> {
        let data = options.data.clone();
        Self::start_at(&Locations::home(), || node::opening::open_home(&data), options).await
    }

    /// Starts on a store that lies at `locations`, whose shelves `open` opens. Nothing is opened or made before the production is
    /// checked and the locations are recorded in the data directory.
    ///
    /// # Errors
    /// As `start`, and the errors of `open`.
    pub async fn start_at(
        locations: &Locations,
        open: impl FnOnce() -> Result<(Places, Media), NodeError>,
        options: Options,
    ) -> Result<Arc<Self>, InteropError> {
        let lock = DirectoryLock::acquire_to_serve(&options.data)?;
        // The production is checked before what the node keeps is touched.
        let production = load(&options)?;
        let store = NodeStore::open(lock, locations, open, store_options(&options))?;
        Self::run(store, production, options).await
    }

    /// Starts on a store that lies on `shelf`, which `medium` describes. Where that is is not recorded, and no lock keeps a second
    /// node from the data directory.
    ///
    /// # Errors
    /// As `start`.
    pub async fn start_on(
        shelf: Arc<dyn Shelf>,
        medium: MediumInUse,
        production: Production,
        options: Options,
    ) -> Result<Arc<Self>, InteropError> {
        let store = NodeStore::open_on(shelf, &medium, store_options(&options))?;
        Self::run(store, production, options).await
    }

    async fn run(store: NodeStore, production: Production, options: Options) -> Result<Arc<Self>, InteropError> {
        reload::keep_at_start(store.store(), &production, &options);
        let reader = Reader::new(store.store());
        let mut window = Window::new(duplicates::CAPACITY);
        let mut found = recovery::read(&reader, &mut window, duplicates::CAPACITY)?;
        let queues: Vec<Arc<Queue>> = production.operations.iter().map(|operation| found.queue(operation)).collect();
        let plan = Plan { production: Arc::new(production), queues };
        let queued = recovery::requeue(&reader, &plan, &mut found)?;
        let time = begin_time(&reader, &options);
        drop(reader);
        let (records, torn_bytes) = (store.records(), store.torn_bytes());
        tracing::info!(records, remembered = found.remembered, queued, torn_bytes, "store opened");
        for (operation, waiting) in &found.homeless {
            tracing::warn!(operation, waiting, "messages wait for an operation that the production does not have");
        }
        let pruner = Pruner::new(store.store(), options.retention)?;
        let audit = Audit::open(store.store(), options.audit, options.clock.clone());
        take_up_notes(&options.data, &audit);
        let mock = Mock::kept(&options.data).map_err(NodeError::from)?;
        let guard = Guard::open(store.store().clone(), options.clock.clone(), mock).map_err(NodeError::from)?;
        let message_log = MessageLog::new(store.store().clone());
        let admission = Arc::clone(&options.admission);
        let engine =
            Engine::new(Arc::clone(&message_log), options.clock.clone(), plan, options.bodies, window, admission);
        guard.set_access(options.access.clone());
        identity_sources::use_sources(&guard, &options, &audit)?;
        // Nobody has set it: the engine is new.
        let _ = engine.access.set(AccessGate { guard: Arc::clone(&guard), audit: Arc::clone(&audit) });
        let bound = services::bind_all(&engine.plan().production).await?;
        operation::make_folders(&engine.plan().production).await;
        let operations = Arc::new(RunningOperations::new(&engine, found));
        let stop = watch::Sender::new(false);
        let housekeeping =
            Housekeeping::new(&engine, &operations, &options, (pruner, time, &audit, &guard), stop.subscribe());
        housekeeping.save_time();
        let service_verbs = ServiceVerbs::new(options.services_follow);
        let running = Arc::new(Self {
            options,
            store,
            engine,
            services: RunningServices::default(),
            operations,
            housekeeping,
            audit,
            guard,
            hand_over: Mutex::new(Some(message_log.start()?)),
            stop,
            reloading: tokio::sync::Mutex::default(),
            reprocessing: tokio::sync::Mutex::default(),
            tails: tail::places(),
            importing: ImportTurns::default(),
            renewals: Mutex::default(),
            service_verbs,
        });
        running.operations.start_lanes(&running.engine.plan().queues, &running.surroundings());
        running.services.start(&running.engine, bound)?;
        running.listen_for_requests()?;
        running.housekeeping.detect_troubles();
        running.watch_time();
        message_log.supervise("housekeeping", Arc::clone(&running.housekeeping).run());
        running.write_ready();
        Ok(running)
    }

    fn listen_for_requests(self: &Arc<Self>) -> Result<(), InteropError> {
        let message_log = Arc::clone(&self.engine.message_log);
        let fail = move |why: &str| message_log.fail(&why);
        let requests = ControlRequests::of(self);
        Ok(node::control::listen(self.data(), self.admission(), self.stop.subscribe(), requests, fail)?)
    }

    /// Rights begin and end with time: a task that no longer sees that is a failure of the node.
    fn watch_time(&self) {
        // The task ends up to a tick after the node: it must not keep the store open.
        let message_log = Arc::downgrade(&self.engine.message_log);
        let fail = move |why: &str| {
            if let Some(message_log) = message_log.upgrade() {
                message_log.fail(&why);
            }
        };
        self.guard.watch_time(fail.clone());
        // A user that the directory removed keeps its sessions without it.
        if let Some(watch) = DirectoryWatch::of(&self.guard) {
            watch.start(fail);
        }
    }

    /// The present status of the node.
    pub fn status(&self) -> NodeStatus {
        status::status(self)
    }

    fn write_ready(&self) {
        node::status::write_ready(self.data(), &self.status());
    }

    /// The engine, for tests and embedders.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// The store that holds its messages, for other services of the same process.
    pub fn store(&self) -> &store::Store {
        self.store.store()
    }

    /// Masks messages for readers without a right to patient data.
    pub fn masker(&self) -> &Arc<Masker> {
        &self.options.masker
    }

    /// The audit: what another service of the same process shows or changes has an entry there first.
    pub fn audit(&self) -> &Arc<Audit> {
        &self.audit
    }

    /// Roles and rights: every port of the node logs its callers in here, and asks here what they may.
    pub fn guard(&self) -> &Arc<Guard> {
        &self.guard
    }

    /// Admission of connections, for other services of the same process.
    pub fn admission(&self) -> &Arc<Admission> {
        &self.engine.admission
    }

    /// Reports that another service of the same process cannot work: it is a trouble until the next start.
    pub fn goes_on_without(&self, service: &'static str, reason: String) {
        self.housekeeping.goes_on_without(service, reason);
    }

    /// Connections that the node itself may open at one time: one for each lane.
    pub fn outgoing(&self) -> usize {
        self.operations.queues().iter().map(|queue| queue.lanes().len()).sum()
    }

    /// The queues of all operations, also of those that a reload took away.
    pub fn queues(&self) -> Vec<Arc<Queue>> {
        self.operations.queues()
    }

    /// Waiting outputs by operation that the production does not have.
    pub fn homeless(&self) -> std::collections::BTreeMap<String, u64> {
        self.operations.homeless()
    }

    /// The options that its store was opened with.
    pub fn store_options(&self) -> &store::Options {
        self.store.options()
    }

    /// What keeps the node from its work, the worst first; detected now.
    pub fn troubles(&self) -> Vec<Trouble> {
        self.housekeeping.detect_troubles()
    }

    /// From now on requests that begin with `word` are those that `read` reads. One `at_once` has nothing to do with stored
    /// messages, and is answered also while the store cannot be read.
    pub fn serve_requests(&self, word: &'static str, at_once: bool, read: Box<ReadRequest>) {
        self.service_verbs.add(word, at_once, read);
    }

    /// Every service that was to follow has started.
    pub fn services_started(&self) {
        self.service_verbs.all_started();
    }

    /// The values of the node that its production is compiled with.
    pub fn values(&self) -> &Values {
        &self.options.values
    }

    /// The heads of all queues that may hold something, with at most `most` messages of each.
    pub fn queue_heads(&self, most: usize) -> Vec<QueueHead> {
        queue_heads::heads(&self.operations.queues(), most)
    }

    /// The last word on each operation that was ever suspended: since when, and why.
    ///
    /// # Errors
    /// The store's.
    pub fn switches(&self) -> Result<Vec<Switch>, InteropError> {
        Reader::new(self.store()).switches()
    }

    /// From now on `troubles` is asked every few seconds for what prevents volumes from doing all of their work.
    pub fn watch_troubles(&self, troubles: Box<VolumeTroubles>) {
        self.housekeeping.watch_troubles(troubles);
    }

    /// The data directory.
    pub fn data(&self) -> &Path {
        &self.options.data
    }

    /// When and why the node failed: it takes and sends nothing any more, and goes on handling requests.
    pub fn failed(&self) -> watch::Receiver<Option<Arc<str>>> {
        self.engine.message_log.failed()
    }

    /// Set when a request over the control socket stops the node.
    pub fn stopping(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }

    /// Removes the messages that the retention lets go and that are done, now; `all`: all that a full medium could make go, by the
    /// settings.
    ///
    /// # Errors
    /// The store's.
    pub async fn prune(&self, all: bool) -> Result<Pruned, InteropError> {
        self.housekeeping.prune(if all { Pressure::All } else { Pressure::Retention }).await
    }

    fn surroundings(&self) -> Surroundings {
        Surroundings {
            message_log: Arc::clone(&self.engine.message_log),
            engine: Arc::clone(&self.engine),
            clock: self.engine.clock.clone(),
            stop: self.stop.subscribe(),
        }
    }

    /// Stops: no new connections or messages; messages in progress are acknowledged; lanes end; last commit.
    pub async fn stop(&self) {
        self.services.stop();
        let mut connections = self.engine.connections.subscribe();
        if tokio::time::timeout(STOP_GRACE, connections.wait_for(|open| *open == 0)).await.is_err() {
            tracing::warn!("some senders did not take their answers in time; they will send again");
        }
        self.stop.send_replace(true);
        let lanes = self.operations.take_lanes();
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
        self.engine.message_log.close();
        let hand_over = lock(&self.hand_over).take();
        if let Some(hand_over) = hand_over {
            // Its panic has failed the node, and is in the log.
            let _ = hand_over.await;
        }
        let store = self.engine.message_log.store().clone();
        match tokio::task::spawn_blocking(move || store.close()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(%error, "not everything is in the pages; the next start applies the journal")
            }
            Err(_) => tracing::error!("a thread panicked at the end"),
        }
        self.housekeeping.save_time();
        node::status::remove_ready(self.data());
    }
}

/// The clock's time, as far as it can be trusted at the start.
/// Enters what commands did while the node was stopped into the audit.
fn take_up_notes(data: &Path, audit: &Arc<Audit>) {
    match node::audit::pending::take_up(data, audit) {
        Ok(0) => {}
        Ok(entered) => tracing::info!(entered, "what commands did while the node was stopped is in the audit now"),
        Err(error) => {
            tracing::error!(%error, "what commands did while the node was stopped is not in the audit yet")
        }
    }
}

fn begin_time(reader: &Reader, options: &Options) -> Timekeeping {
    // A message that cannot be read gives no time; reading it is an error of its own.
    let newest = reader.by_time(None, None, store::Direction::Backward).next().ok().flatten();
    let newest_us = newest.map(|(at_us, ..)| at_us);
    let now = options.clock.reading();
    let mut time = Timekeeping::begin(Timekeeping::kept(&options.data), newest_us, &now);
    time.at(&now);
    time
}

fn store_options(options: &Options) -> store::Options {
    store::Options { journal: options.journal.clone(), interpreter: Some(interpreter()), ..options.store.clone() }
}

fn load(options: &Options) -> Result<Production, InteropError> {
    let mut production = match &options.origin {
        Origin::Folder(folder) => Production::load_with(folder, &options.values)?,
        Origin::StoreOnly(address) => Production::store_only(*address),
    };
    put_in_place(&mut production, options)?;
    Ok(production)
}

/// Moves the folders of a production that was just loaded to where the node has them.
fn put_in_place(production: &mut Production, options: &Options) -> Result<(), InteropError> {
    production.place_files(&options.files)
}
