//! [`Isolation`]: what a transaction sees of others.

use crate::SqlError;

/// Which snapshot the statements of a transaction read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Isolation {
    /// Each its own.
    ReadCommitted,
    /// All that of the transaction's begin.
    RepeatableRead,
}

impl Isolation {
    /// The error for the level that does not exist here. SQLSTATE 0A000.
    pub(crate) fn serializable() -> SqlError {
        SqlError::unsupported("isolation level SERIALIZABLE")
            .with_hint("REPEATABLE READ gives snapshot isolation; write skew is possible.")
    }

    /// The level as PostgreSQL writes it.
    pub(crate) fn shown(self) -> &'static str {
        match self {
            Isolation::ReadCommitted => "read committed",
            Isolation::RepeatableRead => "repeatable read",
        }
    }
}
