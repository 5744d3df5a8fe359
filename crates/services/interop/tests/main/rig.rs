//! A production folder that a test writes, and the node that runs it.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use device::{Durability, FileOptions, FileShelf, MemoryShelf, Shelf};
use interop::production::Production;
use interop::record::{Delivery, Stored};
use interop::rows::Reader;
use interop::running::{NodeStatus, Options, Origin, RunningProduction};
use interop::{InteropError, history};
use node::admission::FRAME_BYTES;
use node::identity::{Action, Caller, IdentityChange, LOCAL_NAME, ObjectPattern, Privileges};
use node::{Admission, Descriptors, MediumInUse, control, location};
use tempfile::TempDir;
use tokio::time::Instant;

use crate::sender::Sender;

/// How long a state may take to come about: far beyond what a loaded machine needs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Looks again and again until `probe` finds something; the one place where a test waits for a state.
pub(crate) async fn until<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(Instant::now() < deadline, "it did not come to pass: {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// An admission with this control id.
pub(crate) fn adt(id: &str) -> String {
    keyed(id, "1")
}

/// An admission of the patient `key`.
pub(crate) fn keyed(id: &str, key: &str) -> String {
    format!(
        "MSH|^~\\&|HIS|NORTH|HUB|X|20260101120000||ADT^A01^ADT_A01|{id}|P|2.5\rEVN|A01|20260101\r\
         PID|1||{key}||SAMPLE^ANN\rPV1|1|I|ICU^1\r"
    )
}

/// Rules that send everything to the operation `out`.
pub(crate) const ALL_TO_OUT: &str = "match first\nrule all { send to out }\n";

/// Where a node's production and data lie.
pub(crate) struct Rig {
    dir: TempDir,
    shelf: Arc<dyn Shelf>,
    pub(crate) options: Options,
}

impl Rig {
    /// With a journal in memory.
    pub(crate) fn new() -> Rig {
        Rig::on(Arc::new(MemoryShelf::new()))
    }

    /// With a journal on `shelf`.
    pub(crate) fn on(shelf: Arc<dyn Shelf>) -> Rig {
        let dir = tempfile::tempdir().expect("a directory for the test");
        fs::create_dir_all(dir.path().join("production")).expect("a folder");
        fs::create_dir_all(dir.path().join("data")).expect("a folder");
        let mut options = Options::new(dir.path().join("data"), Origin::Folder(dir.path().join("production")));
        options.journal.segment_bytes = 1 << 20;
        options.journal.buffer_bytes = 64 << 10;
        // As small as a store can be: crash tests copy all of it for each image.
        options.store.cache_bytes = 8 << 20;
        options.store.data_device_bytes = 512 << 10;
        options.store.images_device_bytes = 64 << 10;
        Rig { dir, shelf, options }
    }

    /// The usual: the service `in` takes everything, the rules send it to `out` at `receiver`.
    pub(crate) fn to(receiver: SocketAddr) -> Rig {
        let rig = Rig::new();
        rig.usual(receiver);
        rig
    }

    /// Writes the production of `to`.
    pub(crate) fn usual(&self, receiver: SocketAddr) -> &Self {
        self.service("in", "").write("rules/main.rules", ALL_TO_OUT).operation("out", receiver, "")
    }

    pub(crate) fn folder(&self) -> PathBuf {
        self.dir.path().join("production")
    }

    pub(crate) fn data(&self) -> &Path {
        &self.options.data
    }

    pub(crate) fn write(&self, path: &str, text: &str) -> &Self {
        let path = self.folder().join(path);
        fs::create_dir_all(path.parent().expect("a file is in a folder")).expect("a folder");
        fs::write(path, text).expect("a file of the production");
        self
    }

    pub(crate) fn remove(&self, path: &str) -> &Self {
        fs::remove_file(self.folder().join(path)).expect("it was written before");
        self
    }

    /// An MLLP service on a free port, with the rules `main`; `extra` goes on with its file.
    pub(crate) fn service(&self, name: &str, extra: &str) -> &Self {
        let head = "kind = \"mllp\"\nlisten = \"127.0.0.1:0\"\nrules = \"main\"\n";
        self.write(&format!("services/{name}.toml"), &format!("{head}{extra}"))
    }

    /// An MLLP operation; `extra` goes on with its file. Pauses are short where it does not set them.
    pub(crate) fn operation(&self, name: &str, address: SocketAddr, extra: &str) -> &Self {
        let retry = if extra.contains("[retry]") { "" } else { "[retry]\nfirst = \"5ms\"\nmax = \"20ms\"\n" };
        let text = format!("kind = \"mllp\"\naddress = \"{address}\"\n{extra}\n{retry}");
        self.write(&format!("operations/{name}.toml"), &text)
    }

    /// Starts the node.
    pub(crate) async fn start(&self) -> Running {
        self.try_start().await.expect("the node starts")
    }

    pub(crate) async fn try_start(&self) -> Result<Running, InteropError> {
        self.start_on(Arc::clone(&self.shelf)).await
    }

    /// Starts the node on another shelf.
    pub(crate) async fn start_on(&self, shelf: Arc<dyn Shelf>) -> Result<Running, InteropError> {
        let production = Production::load(&self.folder())?;
        let held = Arc::clone(&shelf);
        // One of them goes with the node.
        let free = Arc::strong_count(&held) - 1;
        let (tier, device) = ("test".to_owned(), "a test's".to_owned());
        let medium = MediumInUse { tier, device, durability: Durability::None, real: true };
        let node = RunningProduction::start_on(shelf, medium, production, self.fresh()).await?;
        Ok(Running { node, shelf: Some((held, free)) })
    }

    /// Starts the node on files below its data directory, as the program does.
    pub(crate) async fn start_on_files(&self) -> Running {
        Running { node: RunningProduction::start(self.fresh()).await.expect("the node starts"), shelf: None }
    }

    /// The same, and who runs the node may read bodies.
    pub(crate) async fn start_with_bodies(&self) -> Running {
        let running = self.start_on_files().await;
        running.grant_bodies().await;
        running
    }

    /// The options, without a connection yet: each start represents another process.
    fn fresh(&self) -> Options {
        Options { admission: Admission::new(Descriptors::current(), FRAME_BYTES), ..self.options.clone() }
    }

    /// The stored messages, with or without a node running on the files.
    pub(crate) fn history(&self) -> history::History {
        history::History::open(self.data()).expect("it can be read")
    }
}

/// A node that runs.
pub(crate) struct Running {
    pub(crate) node: Arc<RunningProduction>,
    /// The shelf, and how many hold it at most while no journal does.
    shelf: Option<(Arc<dyn Shelf>, usize)>,
}

impl Running {
    pub(crate) fn status(&self) -> NodeStatus {
        self.node.status()
    }

    /// Where a service listens.
    pub(crate) fn address(&self, service: &str) -> SocketAddr {
        let services = self.status().services;
        let found = services.iter().find(|s| s.name == service).expect("a service of this name runs");
        found.at.parse().expect("an address")
    }

    /// A connection to the service `in`.
    pub(crate) async fn sender(&self) -> Sender {
        Sender::connect(self.address("in")).await
    }

    /// Messages accepted for an operation and not done.
    pub(crate) fn waiting(&self, operation: &str) -> usize {
        self.status().operations.iter().find(|o| o.name == operation).map_or(0, |o| o.waiting)
    }

    pub(crate) fn is_suspended(&self, operation: &str) -> bool {
        self.status().operations.iter().any(|o| o.name == operation && o.suspended)
    }

    /// Waits until an operation has nothing more to do.
    pub(crate) async fn idle(&self, operation: &str) {
        until("the operation has nothing more to do", || (self.waiting(operation) == 0).then_some(())).await;
    }

    /// The messages stored and visible now, all acknowledged ones included.
    pub(crate) fn reader(&self) -> Reader {
        let message_log = &self.node.engine().message_log;
        message_log.wait_visible().expect("the store goes on");
        Reader::new(message_log.store())
    }

    /// Ids of the messages stored, oldest first.
    pub(crate) fn ids(&self) -> Vec<u64> {
        let reader = self.reader();
        let mut cursor = reader.by_time(None, None, store::Direction::Forward);
        let mut ids = Vec::new();
        while let Some((_, id, _)) = cursor.next().expect("it reads") {
            ids.push(id);
        }
        ids.sort_unstable();
        ids
    }

    /// The messages stored, oldest first.
    pub(crate) fn stored(&self) -> Vec<(u64, Stored)> {
        let ids = self.ids();
        let reader = self.reader();
        ids.into_iter().map(|id| (id, reader.message(id).expect("a message of ours"))).collect()
    }

    /// The outcomes known, in order of time.
    pub(crate) fn outcomes(&self) -> Vec<Delivery> {
        let ids = self.ids();
        let reader = self.reader();
        let mut outcomes: Vec<Delivery> =
            ids.into_iter().flat_map(|id| reader.outcomes(id).expect("outcomes of ours")).collect();
        outcomes.sort_by_key(|outcome| outcome.at_us);
        outcomes
    }

    /// Waits until so many outcomes are known.
    pub(crate) async fn until_outcomes(&self, count: usize) -> Vec<Delivery> {
        until("so many outcomes are known", || Some(self.outcomes()).filter(|outcomes| outcomes.len() >= count)).await
    }

    /// Sends a request over the control socket.
    pub(crate) async fn request(&self, request: &str) -> Result<serde_json::Value, InteropError> {
        let (data, request) = (self.node.data().to_owned(), request.to_owned());
        tokio::task::spawn_blocking(move || control::request(&data, &request))
            .await
            .expect("it does not panic")
            .map_err(InteropError::from)
    }

    /// Grants the right to read bodies to the node's own role, which has it no more than others at first.
    pub(crate) async fn grant_bodies(&self) {
        let guard = Arc::clone(self.node.guard());
        let privileges = Privileges {
            actions: vec![Action::MessageBody, Action::Unmasked],
            object: ObjectPattern::parse("service *").expect("it is one"),
            columns: Vec::new(),
            grantee: LOCAL_NAME.to_owned(),
        };
        let grant = move || guard.change(&Caller::node(), &[IdentityChange::Grant { privileges, grant_option: false }]);
        tokio::task::spawn_blocking(grant).await.expect("it does not panic").expect("the node may");
    }

    /// Stops the node and waits until its journal is closed, so that another can open it.
    pub(crate) async fn stop(self) {
        self.node.stop().await;
        let Running { node, shelf } = self;
        let data = node.data().to_owned();
        drop(node);
        match shelf {
            Some((shelf, free)) => {
                until("the journal is closed", || (Arc::strong_count(&shelf) <= free).then_some(())).await;
            }
            None => {
                let open = || FileShelf::open(&data.join(location::JOURNAL), FileOptions::default());
                drop(until("the journal is closed", || open().ok()).await);
            }
        }
    }
}
