//! What commands print, and how.

use std::io::{ErrorKind, Write};

use anyhow::Context;

/// Prints all of it; who reads may have gone.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other.context("writing the result"),
    }
}
