//! [`Engine`] and [`Session`]: statements in, rows and counts out. No sockets, no protocol.
//!
//! ```text
//!   text --parse--> Prepared --execute--> Answer::Rows       queries, SHOW
//!                                         Answer::Done       everything that only counts
//!                                         Answer::CopyIn     COPY .. FROM STDIN: the caller pushes batches
//!                                         Answer::CopyOut    COPY .. TO STDOUT: the caller formats batches
//! ```
//!
//! A session is one connection: it runs one statement at a time. Its rows are streams: they must be read to the end or
//! dropped before the next statement.

mod answer;
mod cancel;
mod prepared;
mod session;

use std::sync::Arc;

use store::Store;

pub use answer::{Answer, CopyFormat, CopyIn, CopyOut};
pub use cancel::Canceller;
pub use prepared::Prepared;
pub use session::{Session, SessionState};

use crate::table::ColumnForm;
use crate::{Relation, SqlError};

/// How an engine works, and what it shows besides its own tables.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Read-only tables from outside, by name: `schema.name`, or a name alone, which lies in schema `public`. No tables
    /// of these names can be made. Default none.
    pub relations: Vec<(String, Arc<dyn Relation>)>,
    /// Threads that one query may use. Default: one for each core.
    pub threads: usize,
    /// Memory that all queries together may take for sorting, grouping and joining, in bytes. Default 1 GiB.
    pub query_bytes: usize,
    /// What keeps rows in column form. Default none: all rows stay in row form.
    pub columns: Option<Arc<dyn ColumnForm>>,
}

impl Default for EngineOptions {
    fn default() -> EngineOptions {
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
        EngineOptions { relations: Vec::new(), threads, query_bytes: 1 << 30, columns: None }
    }
}

/// The SQL engine over one store; shared by all sessions.
#[derive(Debug)]
pub struct Engine {
    pub(crate) store: Store,
    pub(crate) options: EngineOptions,
}

impl Engine {
    /// An engine over a store. Tables are found in the store; an empty one has none.
    pub fn new(store: Store, options: EngineOptions) -> Result<Arc<Engine>, SqlError> {
        Ok(Arc::new(Engine { store, options }))
    }

    /// A connection of `user`, who is already authenticated.
    pub fn session(self: &Arc<Self>, user: &str) -> Session {
        Session::new(self.clone(), user)
    }

    /// The store beneath.
    pub fn store(&self) -> &Store {
        &self.store
    }
}
