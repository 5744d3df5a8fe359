//! The audit: who did what, in one chain of entries in the store.
//!
//! ```text
//!   a port, before it does or shows something
//!      |  record(entry) -> ticket, wait: durable                refused: the caller must not do it
//!      v
//!   writing    one chain, bounded, in the journal (kind 4)      record   the bytes, and the hash that chains them
//!      |
//!      v       the store applies it
//!   rows       tree `node.audit`, one row an entry              retention   the oldest go, an anchor stays
//!      |
//!      v
//!   reading    pages by a filter, the whole chain -------------> chain    deleted, reordered, changed, put in, cut off?
//!      |
//!      v
//!   requests   over the control socket, or of a stopped node    export    JSON lines, syslog
//! ```
//!
//! What has an entry: a change has one that is durable before it begins, and a second one if it then fails; the read of a body
//! has one that is durable before its first byte leaves. One read is one body that leaves by one request, see [`Reads`].
//! Where no entry can be written, reads of bodies and administration are refused with the reason; taking and delivering
//! messages never asks. Refusals, logins and exports have only so many entries of each actor at each port, and
//! the last part of the place is kept for administrators: nobody fills it to keep them from ending that.
//!
//! What it does not do: it decides no right, and it cannot see who reads the files of a node directly.

pub mod chain;
pub mod entry;
pub mod export;
mod frequent;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod made_by;
pub mod pending;
pub mod reading;
pub mod record;
pub mod requests;
mod retention;
pub mod rows;
#[cfg(test)]
mod tests;
pub mod writing;

pub use chain::ChainReport;
pub use entry::{Actor, ActorKind, AuditEntry, AuditOrigin, AuditOutcome, Reads};
pub use made_by::EntryMarks;
pub use reading::{AuditFilter, AuditPage, AuditQuery, AuditReader, ShownEntry};
pub use record::{AuditHead, ChainedEntry, EntryHash, KIND_AUDIT};
pub use requests::{AuditPlace, AuditRequest};
pub use rows::AuditRows;
pub use writing::{Audit, AuditSettings, AuditTicket};

pub use crate::error::AuditRefused;
