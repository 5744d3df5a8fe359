//! The file operation: one file a message, whole or not there.
//!
//! Written under a temporary name, flushed, renamed, and the folder flushed: a reader never sees half a message, and
//! after the answer the file survives a loss of power. The name is the message id, so that a second delivery after a
//! crash replaces the first instead of adding one.

use std::fs::{self, File};
use std::io::{self, Write};

use bytes::Bytes;

use super::reply::Answer;
use crate::production::settings::FileOperation;

/// Writes the message in `frame`.
pub(super) async fn write(settings: &FileOperation, id: u64, frame: &Bytes) -> Answer {
    let (settings, frame) = (settings.clone(), frame.clone());
    let written = tokio::task::spawn_blocking(move || durable(&settings, id, &frame[1..frame.len() - 2])).await;
    match written {
        Ok(Ok(())) => Answer::Written,
        Ok(Err(error)) => Answer::Unreachable { reason: format!("the file cannot be written: {error}") },
        Err(_) => Answer::Unreachable { reason: "the node is stopping".to_owned() },
    }
}

fn durable(settings: &FileOperation, id: u64, body: &[u8]) -> io::Result<()> {
    fs::create_dir_all(&settings.folder)?;
    let name = settings.folder.join(format!("{id}{}", settings.suffix));
    let temporary = settings.folder.join(format!(".{id}.part"));
    let mut file = File::create(&temporary)?;
    file.write_all(body)?;
    file.sync_all()?;
    fs::rename(&temporary, &name)?;
    File::open(&settings.folder)?.sync_all()
}
