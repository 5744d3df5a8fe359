//! A durable, ordered log with group commit.

#![forbid(unsafe_code)]

mod append;
pub mod error;
pub mod format;
pub mod inspect;
mod journal;
mod lsn;
mod options;
mod pipeline;
mod reader;
pub mod recovery;
mod scan;
mod segment;
mod shared;
mod upkeep;
mod view;
mod window;

pub use error::{Corruption, Damage, JournalError, Proof};
pub use inspect::{Inspect, Verified, inspect, verify};
pub use journal::Journal;
pub use lsn::{Lsn, Nonce};
pub use options::{BUFFERS, Options, Preparation, RECORD_BYTES_LIMIT, Record, Recovered, Stats};
pub use reader::Reader;
pub use view::View;
