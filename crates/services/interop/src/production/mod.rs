//! A production: the folder of text files that says what the engine does.
//!
//! ```text
//! production.toml            optional: name and description
//! services/NAME.toml         where messages come from            (settings::Service)
//! rules/NAME.rules           which operations they go to         (lang::Rules)
//! transforms/NAME.hl7t       how they are changed on the way     (lang::Transforms)
//! tables/NAME.csv            lookup tables, key,value a line     (lang::Tables)
//! operations/NAME.toml       where they go                       (settings::Operation)
//! ```
//!
//! A file's stem is its name, so that a diff in git shows what changed and a rename is a rename. `load` reads all of it,
//! checks all of it, and tells every fault it found with file, line and column; a production that loads can be started,
//! but for what only the running machine knows (a port in use, a receiver that is down).
//!
//! Invariant: a loaded production is immutable. A reload makes a new one and the node swaps them.

mod load;
pub mod settings;
mod tls;
pub mod units;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::rustls;

use crate::error::InteropError;
use crate::lang::{Rules, Transforms};

/// A service, ready to start.
#[derive(Debug)]
pub struct Service {
    /// Its name.
    pub name: String,
    /// Its settings.
    pub settings: settings::Service,
    /// Its rules.
    pub rules: Option<Arc<Rules>>,
    /// TLS, for an MLLP service that asks for it.
    pub tls: Option<Arc<rustls::ServerConfig>>,
}

/// An operation, ready to start.
#[derive(Debug)]
pub struct Operation {
    /// Its name.
    pub name: String,
    /// Its settings.
    pub settings: settings::Operation,
    /// The path whose value keeps order, where it is by key.
    pub key: Option<hl7::Path>,
    /// TLS, for an MLLP operation that asks for it.
    pub tls: Option<Tls>,
}

/// TLS of an operation.
#[derive(Debug, Clone)]
pub struct Tls {
    /// Authorities and our own certificate.
    pub config: Arc<rustls::ClientConfig>,
    /// Name the receiver's certificate must carry.
    pub server_name: rustls::pki_types::ServerName<'static>,
}

/// A production, checked and compiled.
#[derive(Debug)]
pub struct Production {
    /// From `production.toml`, or the folder's name.
    pub name: String,
    /// The folder.
    pub folder: PathBuf,
    /// Services by name.
    pub services: BTreeMap<String, Arc<Service>>,
    /// Operations in order of name; rules refer to them by position.
    pub operations: Vec<Arc<Operation>>,
    /// All transforms.
    pub transforms: Arc<Transforms>,
    /// Things that are allowed but look like a mistake, for `terrace production check`.
    pub warnings: Vec<String>,
}

impl Production {
    /// Reads and checks a folder.
    ///
    /// # Errors
    /// `Production` with every fault found; `File` where the folder or a file cannot be read.
    pub fn load(folder: &Path) -> Result<Self, InteropError> {
        load::load(folder)
    }

    /// A production with one MLLP service on `address` that stores what it gets: what `terrace serve` runs where there
    /// is no folder.
    pub fn store_only(address: std::net::SocketAddr) -> Self {
        load::store_only(address)
    }

    /// The operation called `name`.
    ///
    /// # Errors
    /// `NoSuch`, listing what there is.
    pub fn operation(&self, name: &str) -> Result<&Arc<Operation>, InteropError> {
        self.operations.iter().find(|operation| operation.name == name).ok_or_else(|| InteropError::NoSuch {
            what: "operation",
            name: name.to_owned(),
            known: self.operations.iter().map(|o| o.name.as_str()).collect::<Vec<_>>().join(", "),
        })
    }
}
