//! Search in a node: the settings, and the service on a runtime of its own.
//!
//! ```text
//!   [search] of terrace.toml --> SearchSettings --start--> RunningSearch: HttpServer over the Api over Indices, with their Upkeep
//!   the node's users and rights --> Guard                                                                |
//!                                                   documents in the node's store, files of indices in a folder or on a tier
//! ```
//!
//! Requests run on threads of their own, apart from those that serve sockets of messages. The service ends before the node closes
//! its store; what is not persisted of an index then, the next start makes from the documents.

mod lending;
mod message_feed;
mod message_search;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ::search::directory::ReservedShelf;
use ::search::indices::{Indices, IndicesOptions, Upkeep, rewrite_files};
use ::search::rest::{Api, HttpOptions, HttpServer, RestHandler, Unavailable};
use anyhow::Context;
use device::{FileOptions, FileShelf, Shelf};
use interop::production::units::Bytes;
use interop::running::RunningProduction;
use node::rewriting::OtherFiles;
use serde::Deserialize;

use message_search::MessageSearch;
use store::{SpaceLimit, Store};

use crate::assemble::SearchShelves;
use crate::listeners::{self, TlsKeys};
use crate::messages::search::REQUEST;

/// The numbers of the data keys that index files are encrypted with. Errors: the store's, or a file that cannot be read as one.
pub fn data_keys_in_use(store: &Store) -> anyhow::Result<BTreeSet<u32>> {
    Ok(::search::index::data_keys_in_use(store)?)
}

/// Threads that serve sockets: requests have threads of their own.
const HTTP_THREADS: usize = 2;

/// Stack of a thread that runs requests: queries nest.
const STACK_BYTES: usize = 8 << 20;

/// The memory of search where nothing is set.
const MEMORY_BYTES: usize = 1 << 30;

/// Below this a writer and a body have no room beside each other.
const MEMORY_MIN: usize = 64 << 20;

/// Of the memory of search, what bodies of requests may take.
const BODIES_OF: usize = 4;

/// Of the memory of search, what the open files of indices may take.
const FILES_OF: usize = 2;

/// Of the memory of search, what the writer of one index may take; the library takes no less than 15 MB.
const WRITER_OF: usize = 32;
const WRITER_BYTES: std::ops::RangeInclusive<usize> = 16 << 20..=256 << 20;

/// Room that documents leave to messages where nothing is set: half of what the journal may take by default.
const RESERVE_BYTES: u64 = 512 << 20;

/// Most indices where nothing is set: each keeps threads and memory of a writer while it is written to.
const INDICES_MAX: usize = 200;

/// How long the indices may take to end: persisting is a flush of what a half minute wrote, and a merge that runs ends first.
const END_MAX: Duration = Duration::from_secs(60);

/// Folder of the index files below the data directory.
const FOLDER: &str = "search";

/// `[search]`: there is a service where the table is there.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SearchSettings {
    /// Address to listen on. Default 127.0.0.1:9200. Beyond this machine TLS and a user are a must.
    listen: Option<SocketAddr>,
    /// Requests from this machine need no password. Default no.
    #[serde(default)]
    trust: bool,
    /// The role of requests that `trust` lets in. Default: the node's own, an administrator.
    trusted: Option<String>,
    /// Certificate, PEM. Default: no TLS.
    certificate: Option<PathBuf>,
    /// Its key, PEM.
    key: Option<PathBuf>,
    /// Authorities of clients, PEM: each client inside TLS has to show a certificate of one of them. Default: clients show none.
    client_authority: Option<PathBuf>,
    /// Revocation lists of these authorities, PEM. Default: none.
    client_revocations: Option<PathBuf>,
    /// Refuse connections without TLS. Default: where it listens beyond this machine.
    tls_required: Option<bool>,
    /// Most connections at a time, 1 or more. Default 256.
    connections: Option<usize>,
    /// Most of them from one address (IPv4, or the first 64 bits of IPv6), 1 or more. Default: half of `connections`.
    connections_per_address: Option<usize>,
    /// Most bytes of a request's body, compressed or not, at most a quarter of `memory`. Default 100 MiB, or that quarter.
    body_max: Option<Bytes>,
    /// Memory of search, at least 64 MiB. Default 1 GiB. A quarter of it is for bodies of requests, a half for the files of indices.
    memory: Option<Bytes>,
    /// How much of the medium of the pages documents leave free for messages (429), and index files of theirs. Default 512 MiB.
    reserve: Option<Bytes>,
    /// Most indices, 1 or more. Default 200.
    indices: Option<usize>,
    /// The folder of the index files. Default: `search` in the data directory.
    folder: Option<PathBuf>,
    /// Messages can be searched. Default yes.
    messages: Option<bool>,
    /// More fields of messages, by the paths of their values.
    #[serde(default)]
    index: BTreeMap<String, String>,
}

/// Where the indices lie and what they may use.
#[derive(Debug)]
pub struct IndexSettings {
    folder: PathBuf,
    files_bytes: usize,
    writer_bytes: usize,
    indices_max: usize,
    messages: bool,
    message_fields: BTreeMap<String, String>,
    /// Space that new index files leave free.
    reserve_bytes: u64,
}

impl SearchSettings {
    /// Memory of search, in bytes.
    fn memory_bytes(&self) -> usize {
        self.memory.map_or(MEMORY_BYTES, Bytes::as_usize)
    }

    /// Space that documents leave to messages.
    pub fn reserve(&self) -> SpaceLimit {
        let bytes = self.reserve.map_or(RESERVE_BYTES, |bytes| bytes.0);
        SpaceLimit { bytes, setting: "[search] reserve" }
    }

    /// The options of the indices in a node with this data directory. Errors: a setting that cannot work, by its name.
    pub fn indices(&self, data: &Path) -> anyhow::Result<IndexSettings> {
        anyhow::ensure!(self.indices != Some(0), "search.indices is at least 1: otherwise nothing could be written");
        let messages = self.messages.unwrap_or(true);
        anyhow::ensure!(
            messages || self.index.is_empty(),
            "search.index has fields of messages, and search.messages is off"
        );
        message_feed::check(&self.index)?;
        let memory = self.memory_bytes();
        Ok(IndexSettings {
            folder: self.folder.clone().unwrap_or_else(|| data.join(FOLDER)),
            files_bytes: memory / FILES_OF,
            writer_bytes: (memory / WRITER_OF).clamp(*WRITER_BYTES.start(), *WRITER_BYTES.end()),
            indices_max: self.indices.unwrap_or(INDICES_MAX),
            messages,
            message_fields: self.index.clone(),
            reserve_bytes: self.reserve().bytes,
        })
    }

    /// The options of the server. Errors: a setting that cannot work, by its name.
    pub fn options(&self) -> anyhow::Result<HttpOptions> {
        let defaults = HttpOptions::default();
        let listen = self.listen.unwrap_or(defaults.listen);
        let keys = TlsKeys {
            certificate: self.certificate.as_deref(),
            key: self.key.as_deref(),
            client_authority: self.client_authority.as_deref(),
            client_revocations: self.client_revocations.as_deref(),
            tls_required: self.tls_required,
        };
        let tls = listeners::tls("search", keys, listen)?;
        let has_places = self.connections != Some(0) && self.connections_per_address != Some(0);
        anyhow::ensure!(
            has_places,
            "search.connections and search.connections_per_address are at least 1: otherwise nobody could connect"
        );
        let memory = self.memory_bytes();
        anyhow::ensure!(memory >= MEMORY_MIN, "search.memory is less than 64MiB");
        let bodies_bytes = memory / BODIES_OF;
        let body_bytes_max = self.body_max.map_or(defaults.body_bytes_max.min(bodies_bytes), Bytes::as_usize);
        anyhow::ensure!(body_bytes_max > 0, "search.body_max is at least 1B: otherwise nothing could be written");
        anyhow::ensure!(body_bytes_max <= bodies_bytes, "search.body_max is more than a quarter of search.memory");
        let is_here = listen.ip().is_loopback();
        anyhow::ensure!(
            is_here || tls.as_ref().is_some_and(|tls| tls.required),
            "search.listen = \"{listen}\" is beyond this machine: set search.certificate and search.key, and require TLS"
        );
        anyhow::ensure!(
            self.trust || self.trusted.is_none(),
            "search.trusted has no effect without `trust = true`: leave it out"
        );
        Ok(HttpOptions {
            listen,
            trust: self.trust,
            trusted: self.trusted.clone(),
            tls,
            connections_max: self.connections.unwrap_or(defaults.connections_max),
            connections_per_address: self.connections_per_address,
            body_bytes_max,
            bodies_bytes,
            ..defaults
        })
    }

    /// Whether it sets the folder of the index files.
    pub fn has_folder(&self) -> bool {
        self.folder.is_some()
    }

    /// Starts the service over the node's store. Index files lie on `placed`, or in the folder of these settings. If the indices cannot
    /// be used, the node goes on, and searches are answered with the reason.
    pub fn start(&self, node: &RunningProduction, placed: SearchShelves) -> anyhow::Result<RunningSearch> {
        if self.trust {
            let role = self.trusted.as_deref().unwrap_or("the node itself, an administrator");
            tracing::warn!(
                role,
                "[search] trust: whoever can connect from this machine is this role, without a password"
            );
        }
        let store = node.store().clone();
        let options = HttpOptions {
            admission: Arc::clone(node.admission()),
            guard: Some(Arc::clone(node.guard())),
            audit: Some(Arc::clone(node.audit())),
            failed: Arc::new(move |why| store.fail(&format_args!("the listener of search ended: {why}"))),
            ..self.options()?
        };
        let (handler, work): (Arc<dyn RestHandler>, _) = match self.indices(node.data())?.open(node, placed) {
            Ok(indices) => {
                let (api, upkeep) = self.work(node, indices)?;
                (Arc::<Api>::clone(&api), Some((api, upkeep)))
            }
            Err(error) => (without_indices(node, &error), None),
        };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(HTTP_THREADS)
            .thread_name("search")
            .thread_stack_size(STACK_BYTES)
            .enable_all()
            .build()
            .context("the runtime of search cannot start")?;
        // From another runtime's thread: spawned there, and waited for here.
        let (answer, started) = std::sync::mpsc::channel();
        runtime.spawn(async move { answer.send(HttpServer::start(handler, options).await) });
        match started.recv().context("search cannot start").and_then(|server| Ok(server?)) {
            Ok(server) => {
                tracing::info!(address = %server.address(), "search");
                listeners::renew_with(node, server.renewal(), "search");
                Ok(RunningSearch { server, work, runtime })
            }
            Err(error) => {
                // A runtime must not be dropped on a thread of another one.
                runtime.shutdown_background();
                Err(error)
            }
        }
    }

    /// What works on the indices: the API, and their upkeep.
    fn work(&self, node: &RunningProduction, indices: Arc<Indices>) -> anyhow::Result<(Arc<Api>, Upkeep)> {
        let searching = Arc::new(MessageSearch {
            indices: Arc::downgrade(&indices),
            store: node.store().clone(),
            guard: Arc::clone(node.guard()),
            fields: message_feed::field_names(&self.index),
            running: Arc::default(),
        });
        node.serve_requests(REQUEST, false, Box::new(move |query| searching.read(query)));
        let upkeep = Upkeep::start(Arc::clone(&indices)).context("search cannot start")?;
        let api = Api::new(indices, Arc::clone(node.guard()), "terrace").with_audit(Arc::clone(node.audit()));
        Ok((Arc::new(api), upkeep))
    }
}

/// The indices cannot be used. Messages do not depend on them: the node goes on, and every search is answered with the reason.
fn without_indices(node: &RunningProduction, error: &anyhow::Error) -> Arc<dyn RestHandler> {
    let reason = format!("{error:#}");
    node.goes_on_without("search", reason.clone());
    let why = reason.clone();
    node.serve_requests(REQUEST, false, Box::new(move |_| Err(format!("search does not work on this node: {why}"))));
    Arc::new(Unavailable { reason })
}

impl IndexSettings {
    fn open(&self, node: &RunningProduction, placed: SearchShelves) -> anyhow::Result<Arc<Indices>> {
        if let Some(failure) = placed.failure {
            anyhow::bail!("search cannot use its tier: {failure}");
        }
        let reserved =
            |shelf: Arc<dyn Shelf>| Arc::new(ReservedShelf::new(shelf, self.reserve_bytes)) as Arc<dyn Shelf>;
        let shelf: Arc<dyn Shelf> = match placed.files {
            Some(shelf) => shelf,
            None => Arc::new(
                FileShelf::open(&self.folder, FileOptions::default())
                    .with_context(|| format!("search cannot use {}", self.folder.display()))?,
            ),
        };
        let feeds = self.messages.then(|| message_feed::index(node.store(), &self.message_fields));
        let feeds = feeds.into_iter().collect();
        let options = IndicesOptions {
            store: node.store().clone(),
            shelf: reserved(shelf),
            capacity: placed.capacity.map(reserved),
            file_bytes: self.files_bytes as u64,
            writer_bytes: self.writer_bytes,
            indices_max: self.indices_max,
            feeds,
            reserved: vec![message_feed::INDEX.to_owned()],
        };
        Indices::open(options).context("the indices of search cannot be opened")
    }
}

/// The service, until it is stopped.
#[derive(Debug)]
pub struct RunningSearch {
    server: HttpServer,
    /// None where the indices cannot be used.
    work: Option<(Arc<Api>, Upkeep)>,
    runtime: tokio::runtime::Runtime,
}

impl RunningSearch {
    /// Where its figures come from.
    pub fn source(&self) -> Box<node_metrics::Source> {
        crate::metrics::search(Arc::clone(self.server.figures()))
    }

    /// What the console is lent; none where the indices cannot be used.
    pub fn lent(&self) -> Option<Arc<dyn web_console::SearchSource>> {
        let (api, _) = self.work.as_ref()?;
        Some(Arc::new(lending::LentSearch::new(Arc::clone(api), self.runtime.handle().clone())))
    }

    /// What writes anew the files of its indices that older data keys have encrypted; none where the indices cannot be used.
    pub fn rewrites(&self) -> Option<Box<OtherFiles>> {
        let indices = Arc::downgrade(self.work.as_ref()?.1.indices());
        Some(Box::new(move |data_key, on_bytes| {
            let indices = indices.upgrade().ok_or("search has ended")?;
            rewrite_files(&indices, data_key, on_bytes).map_err(|error| error.reason)
        }))
    }

    /// Ends all connections; requests under way may end for a while, then they are cancelled, and so are those that nobody waits
    /// for. Then the indices are persisted.
    pub async fn stop(self) {
        self.server.stop().await;
        let Some((api, upkeep)) = self.work else { return self.runtime.shutdown_background() };
        let (sender, ended) = tokio::sync::oneshot::channel();
        let work = move || {
            api.end();
            upkeep.stop();
            // Nobody may wait any more.
            let _ = sender.send(());
        };
        // A thread that no runtime waits for: an index that is stuck, or that merges for long, does not keep the node from ending.
        let panicked = |why: &str| tracing::error!(why, "the indices of search were not persisted");
        let started = device::supervise::thread("search end", work, panicked);
        if started.is_err() || tokio::time::timeout(END_MAX, ended).await.is_err() {
            tracing::error!(
                "the indices of search did not end in time; the next start makes the rest from the documents"
            );
        }
        self.runtime.shutdown_background();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_would_let_passwords_be_read_or_have_no_effect_are_refused() {
        let tls = "certificate = 'c.pem'\nkey = 'c.key'";
        for (text, refused) in [
            ("".to_owned(), None),
            ("trust = true".to_owned(), None),
            ("trusted = 'ann'".to_owned(), Some("has no effect")),
            ("listen = '0.0.0.0:9200'".to_owned(), Some("require TLS")),
            (format!("listen = '0.0.0.0:9200'\n{tls}"), None),
            (format!("listen = '0.0.0.0:9200'\ntls_required = false\n{tls}"), Some("require TLS")),
        ] {
            let settings: SearchSettings = toml::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
            match (settings.options(), refused) {
                (Ok(_), None) => {}
                (Err(error), Some(why)) => assert!(error.to_string().contains(why), "{error:#}: {text}"),
                (answer, _) => panic!("{answer:?}: {text}"),
            }
        }
    }

    #[test]
    fn the_largest_body_fits_into_the_memory_of_bodies() {
        let settings: SearchSettings = toml::from_str("trust = true\nmemory = '64MiB'").expect("settings");
        let options = settings.options().expect("they can work");
        assert_eq!((options.body_bytes_max, options.bodies_bytes), (16 << 20, 16 << 20));
    }
}
