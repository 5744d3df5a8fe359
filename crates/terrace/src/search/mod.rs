//! Search in a node: the settings, and the service on a runtime of its own.
//!
//! ```text
//!   [search] of terrace.toml --> Settings --start--> Running: Indices over the node's store and a shelf of their own,
//!   [sql.users]              -----^                           their upkeep, and the HTTP server over the API
//! ```
//!
//! Requests run on threads of their own, apart from those that acknowledge messages. The service ends before the node closes its
//! store: what is not persisted of an index then, the next start makes from the documents.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use device::{FileOptions, FileShelf};
use interop::InteropError;
use interop::production::units::Bytes;
use interop::running::{Renewed, RunningProduction};
use node::{Renewal, TlsOptions};
use search::indices::{Indices, IndicesOptions, Upkeep};
use search::rest::{Api, Authenticate, HttpOptions, HttpServer};
use serde::Deserialize;

use crate::sql;

/// Threads that serve sockets: requests have threads of their own.
const WIRE_THREADS: usize = 2;

/// Folder of the index files below the data directory.
const FOLDER: &str = "search";

/// Below this an index's writer and the files of a search have no room beside each other.
const MEMORY_MIN: u64 = 128 << 20;

/// Memory of the service where nothing is set.
const MEMORY: u64 = 1 << 30;

/// Most indices of a node where nothing is set: each keeps threads and memory of a writer while it is written to.
const INDICES_MAX: usize = 200;

/// `[search]`: there is a service where the table is there.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Address to listen on. Default 127.0.0.1:9200. Beyond this machine TLS is a must.
    listen: Option<SocketAddr>,
    /// Requests from this machine need no user and password. Default no.
    #[serde(default)]
    trust: bool,
    /// Certificate, PEM. Default: no TLS.
    certificate: Option<PathBuf>,
    /// Its key, PEM.
    key: Option<PathBuf>,
    /// Refuse connections without TLS. Default: where it listens beyond this machine.
    tls_required: Option<bool>,
    /// Most connections at a time, 1 or more. Default 256.
    connections: Option<usize>,
    /// Most of them from one address (IPv4, or the first 64 bits of IPv6), 1 or more. Default: half of `connections`.
    connections_per_address: Option<usize>,
    /// Most bytes of a request's body. Default 100 MiB.
    body_max: Option<Bytes>,
    /// Memory of the service, at least 128 MiB. Default 1 GiB. A half is for the files of indices, a quarter for bodies of requests.
    memory: Option<Bytes>,
    /// Most indices, 1 or more. Default 200.
    indices: Option<usize>,
    /// The folder of the index files. Default: `search` in the data directory.
    folder: Option<PathBuf>,
}

/// Where the service finds what it needs.
#[derive(Debug)]
pub struct SearchOptions {
    http: HttpOptions,
    memory: u64,
    indices: usize,
    folder: PathBuf,
}

impl Settings {
    fn tls(&self, listen: SocketAddr) -> anyhow::Result<Option<TlsOptions>> {
        let tls = match (&self.certificate, &self.key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some(TlsOptions {
                certificate: certificate.clone(),
                key: key.clone(),
                required: self.tls_required.unwrap_or(!listen.ip().is_loopback()),
            }),
            _ => anyhow::bail!("search.certificate and search.key go together"),
        };
        anyhow::ensure!(
            tls.is_some() || self.tls_required != Some(true),
            "search.tls_required needs a certificate and a key"
        );
        Ok(tls)
    }

    /// The options of the service in a node with this data directory; its users are those of SQL. Errors: a setting that cannot
    /// work, by its name.
    pub fn options(&self, data: &Path, users: Option<&sql::Settings>) -> anyhow::Result<SearchOptions> {
        let defaults = HttpOptions::default();
        let listen = self.listen.unwrap_or(defaults.listen);
        let authenticate: Option<Authenticate> = users.map(sql::Settings::passwords).transpose()?.flatten();
        anyhow::ensure!(
            authenticate.is_some() || self.trust,
            "search needs a user: name one under [sql.users], or set `trust = true` under [search] if everyone on this machine may \
             read and change everything"
        );
        let memory = self.memory.map_or(MEMORY, |bytes| bytes.0);
        anyhow::ensure!(memory >= MEMORY_MIN, "search.memory is less than 128MiB");
        anyhow::ensure!(self.indices != Some(0), "search.indices is at least 1");
        anyhow::ensure!(
            self.connections != Some(0) && self.connections_per_address != Some(0),
            "search.connections and search.connections_per_address are at least 1"
        );
        let bodies_bytes = usize::try_from(memory / 4).unwrap_or(usize::MAX);
        let body_bytes_max = self.body_max.map_or(defaults.body_bytes_max.min(bodies_bytes), Bytes::as_usize);
        anyhow::ensure!(body_bytes_max > 0, "search.body_max is at least 1");
        anyhow::ensure!(
            body_bytes_max <= bodies_bytes,
            "search.body_max is more than a quarter of search.memory: the bodies of all requests have no more"
        );
        let http = HttpOptions {
            listen,
            authenticate,
            trust: self.trust,
            tls: self.tls(listen)?,
            connections_max: self.connections.unwrap_or(defaults.connections_max),
            connections_per_address: self.connections_per_address,
            body_bytes_max,
            bodies_bytes,
            ..defaults
        };
        http.check()?;
        Ok(SearchOptions {
            http,
            memory,
            indices: self.indices.unwrap_or(INDICES_MAX),
            folder: self.folder.clone().unwrap_or_else(|| data.join(FOLDER)),
        })
    }
}

impl SearchOptions {
    /// Opens the indices over the node's store and starts the service.
    pub fn start(self, node: &RunningProduction) -> anyhow::Result<Running> {
        let SearchOptions { http, memory, indices, folder } = self;
        let shelf = FileShelf::open(&folder, FileOptions::default())
            .with_context(|| format!("search cannot use {}", folder.display()))?;
        let indices = Indices::open(IndicesOptions {
            store: node.store().clone(),
            shelf: Arc::new(shelf),
            file_bytes: memory / 2,
            // The library takes no less than 15 MB.
            writer_bytes: usize::try_from(memory / 32).unwrap_or(usize::MAX).clamp(16 << 20, 256 << 20),
            indices_max: indices,
        })
        .context("the indices of search cannot be opened")?;
        let upkeep = Upkeep::start(Arc::clone(&indices)).context("search cannot start")?;
        let api = Arc::new(Api::new(indices, "terrace"));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(WIRE_THREADS)
            .thread_name("search")
            .enable_all()
            .build()
            .context("the runtime of search cannot start")?;
        let http = HttpOptions { admission: Arc::clone(node.admission()), ..http };
        // From another runtime's thread: spawned there, and waited for here.
        let (answer, started) = std::sync::mpsc::channel();
        runtime.spawn(async move { answer.send(HttpServer::start(api, http).await) });
        match started.recv().context("search cannot start").and_then(|server| Ok(server?)) {
            Ok(server) => {
                tracing::info!(address = %server.address(), "search");
                renew_with(node, server.renewal());
                Ok(Running { server, upkeep, runtime })
            }
            Err(error) => {
                // A runtime must not be dropped on a thread of another one.
                runtime.shutdown_background();
                Err(error)
            }
        }
    }
}

/// Has a reload of the node read the service's certificate again.
fn renew_with(node: &RunningProduction, renewal: Renewal) {
    if !renewal.is_needed() {
        return;
    }
    node.on_reload(Box::new(move || -> Result<Renewed, InteropError> {
        let read = renewal.read().map_err(|error| InteropError::Refused(format!("search: {error}")))?;
        let renewed: Renewed = Box::new(move || {
            read();
            vec!["search: certificate and key were read again".to_owned()]
        });
        Ok(renewed)
    }));
}

/// The service, until it is stopped.
#[derive(Debug)]
pub struct Running {
    server: HttpServer,
    upkeep: Upkeep,
    runtime: tokio::runtime::Runtime,
}

impl Running {
    /// Ends all connections, and persists the indices.
    pub async fn stop(self) {
        self.server.stop().await;
        let upkeep = self.upkeep;
        // Persisting takes a moment: not on a thread of the runtime. It only fails if the thread panicked.
        let _ = tokio::task::spawn_blocking(move || upkeep.stop()).await;
        self.runtime.shutdown_background();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_would_let_nobody_or_anybody_in_are_refused() {
        for (text, refused) in [
            ("trust = true", None),
            ("", Some("needs a user")),
            ("trust = true\ncertificate = 'c.pem'", Some("go together")),
            ("trust = true\ntls_required = true", Some("needs a certificate")),
            ("trust = true\nconnections = 0", Some("at least 1")),
            ("trust = true\nmemory = '1MiB'", Some("less than 128MiB")),
            ("trust = true\nbody_max = '1GiB'", Some("more than a quarter")),
            ("trust = true\nlisten = '0.0.0.0:9200'", Some("beyond this machine")),
            ("trust = true\nindices = 0", Some("at least 1")),
        ] {
            let settings: Settings = toml::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
            match (settings.options(Path::new("data"), None), refused) {
                (Ok(_), None) => {}
                (Err(error), Some(why)) => assert!(format!("{error:#}").contains(why), "{error:#}: {text}"),
                (answer, _) => panic!("{answer:?}: {text}"),
            }
        }
    }
}
