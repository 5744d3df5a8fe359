//! What can go wrong here, named by what the caller can do about it.

use std::io;

/// Errors of what services share.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The process may have too few descriptors: raise its limit.
    #[error(
        "this process may have {limit} descriptors (files and sockets) open, and a node needs {least} at least: raise the \
         limit (`ulimit -n`, or LimitNOFILE= of its systemd unit)"
    )]
    Descriptors {
        /// What holds.
        limit: u64,
        /// What is needed.
        least: u64,
    },
    /// The system does not say or set how many descriptors there may be: see the cause.
    #[error("the limit of descriptors cannot be read or raised: {0}")]
    Limit(#[from] io::Error),
    /// A text is no address and no network: correct it.
    #[error("`{text}` is no address and no network: {problem}; write 10.1.2.3, 10.1.0.0/16 or fd00::/8")]
    Network {
        /// The text.
        text: String,
        /// What is wrong with it.
        problem: String,
    },
}
