//! Messages on their way to another node: the file of an export, and what an import reads.
//!
//! ```text
//!   stored messages --pages--> ExportWriter --> terrace (checksums, metadata) | hl7 | batch
//!   a file: terrace, or HL7 as others write it --verified whole--> ImportReader --> messages with the number and the source of each
//! ```
//!
//! The format is in `format`. What is stored and sent is elsewhere: pages of an export in `history::export`, the requests of both in
//! `running::transfer`.
//!
//! Invariants: a body is the bytes as received, or masked where the head says so; a file that is cut or damaged is found out before a
//! message of it is taken; memory is bounded by the longest message.

mod format;
mod plain;
mod reader;
mod writer;

use serde::{Deserialize, Serialize};

use crate::record::{MessageOrigin, OutputState, Status};

#[cfg(feature = "fuzzing")]
pub(crate) use format::sealed;
pub use format::{TransferFile, TransferWriter};
pub use reader::{CheckedImport, ImportItem, ImportReader, line_of};
pub use writer::{ExportFormat, ExportWriter};

/// What the header of a file of HL7 says, FHS-10, where its bodies are masked.
pub(crate) const MASKED: &str = "masked";

/// Longest body that a file may have; services take 63 MiB at most.
pub const BODY_BYTES_MAX: usize = 64 << 20;

/// The head of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransferHead {
    /// Where the messages are from: `node-` and the number of the store.
    pub source: String,
    /// When the file was begun, microseconds since 1970.
    pub made_us: i64,
    /// Whether the bodies are masked, and so not as received.
    pub masked: bool,
    /// What was asked for, in the words of the export.
    #[serde(default)]
    pub filter: String,
    /// The release that wrote it.
    #[serde(default)]
    pub release: String,
}

/// What a file says of a message beside its body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransferMessage {
    /// Its id at its source.
    pub id: u64,
    /// The service that took it there.
    pub service: String,
    /// When, microseconds since 1970.
    pub received_us: i64,
    /// MSH-9 as received.
    #[serde(default)]
    pub kind: String,
    /// MSH-10.
    #[serde(default)]
    pub control_id: String,
    /// The charset of the body where MSH-18 declares none, by the settings of the service; none: UTF-8.
    #[serde(default)]
    pub charset: Option<String>,
    /// The decision.
    pub status: Status,
    /// Why.
    #[serde(default)]
    pub reason: String,
    /// Seen before.
    #[serde(default)]
    pub duplicate: bool,
    /// The generation of the production that decided; 0: not known.
    #[serde(default)]
    pub generation: u32,
    /// What it was made from there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<MessageOrigin>,
    /// Its outputs, in the order of the rules; without their bodies.
    #[serde(default)]
    pub outputs: Vec<TransferOutput>,
}

/// An output of a message, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransferOutput {
    /// The operation.
    pub operation: String,
    /// Its state when the file was made.
    pub state: OutputState,
    /// When it ended, microseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_us: Option<i64>,
    /// Reply code or reason.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

/// The end of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransferEnd {
    /// How many messages.
    pub messages: u64,
    /// Bytes of all bodies.
    pub body_bytes: u64,
    /// SHA-256 of all bytes before this record, in hexadecimal.
    pub sha256: String,
    /// Messages that could not be read where the file was made, and may belong to it.
    #[serde(default, skip_serializing_if = "is_none")]
    pub unreadable: u64,
}

fn is_none(count: &u64) -> bool {
    *count == 0
}

/// Something of a file that is not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// Where in the file, as far as it is known.
    pub at: Option<u64>,
    /// Why.
    pub why: String,
}

/// The name of a store as a source of messages.
pub fn source_of(store: &store::Store) -> String {
    format!("node-{:08x}", store.identity())
}

/// Bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
