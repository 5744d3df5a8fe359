//! [`TransferAdmin`]: messages with their bodies as a file, and files of messages into a service.
//!
//! ```text
//!   page, API --Caller, order--> TransferAdmin --a request of the control socket for each page--> right, entry, masking --> ExportStream
//! ```
//!
//! What counts for an implementation of [`Admin`](crate::Admin) counts here.

use async_trait::async_trait;
use bytes::Bytes;
use node::identity::Caller;
use serde::Serialize;

use crate::admin_error::AdminError;
use crate::message_query::MessageQuery;

/// See the module's text.
#[async_trait]
pub trait TransferAdmin: Send + Sync + 'static {
    /// Begins a file of messages, oldest first. Needs `message-metadata`, `message-body` and, unless bodies are masked, `unmasked`, each
    /// on the service of a message; others are left out.
    async fn export(&self, caller: &Caller, order: &ExportOrder) -> Result<Box<dyn ExportStream>, AdminError>;

    /// Takes in the messages of a file. Needs `message-import` on the service.
    async fn import(&self, caller: &Caller, order: &ImportOrder) -> Result<ImportReport, AdminError>;
}

/// A file that is being made. Who drops it ends the work for it.
#[async_trait]
pub trait ExportStream: Send {
    /// The next bytes; none at its end. After an error the file is not whole.
    async fn next(&mut self) -> Result<Option<Bytes>, AdminError>;
}

/// What belongs to a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExportOrder {
    /// Which messages. Its place and limit count for nothing.
    pub query: MessageQuery,
    /// `terrace`, `hl7` or `batch`.
    pub format: String,
    /// Masked bodies, also for who may see them as they are.
    pub masked: bool,
}

/// What is to be imported, and how.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImportOrder {
    /// The service that takes the messages.
    pub service: String,
    /// With the times at which they were received where they come from.
    pub replay: bool,
    /// Only tell what would be done.
    pub dry_run: bool,
    /// Also masked bodies.
    pub allow_masked: bool,
    /// The file.
    pub file: Bytes,
}

/// What became of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ImportReport {
    /// Where its messages are from.
    pub source: String,
    /// Messages of the file.
    pub messages: u64,
    /// What became of each, in their order; fewer where the import ended early.
    pub results: Vec<ImportLine>,
    /// Parts of the file that are no messages, and why.
    pub left_out: Vec<String>,
    /// Why it ended early; the same import goes on from there.
    pub stopped: Option<String>,
}

/// What became of a message.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ImportLine {
    /// Its id at its source, or its number in the file.
    pub number: u64,
    /// Where in the file it begins.
    pub at: u64,
    /// `routed`, `dropped`, `unmatched`, `rejected`, `errored`, `again`, `duplicate` or `refused`.
    pub outcome: String,
    /// The message here.
    pub id: Option<u64>,
    /// Why it was not taken, or goes nowhere.
    pub reason: String,
}
