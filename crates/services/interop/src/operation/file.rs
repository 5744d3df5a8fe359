//! The file operation: one file a message, whole or not there.
//!
//! Written under a temporary name, flushed, renamed, and the folder flushed: a reader never sees half a message, and
//! after the answer the file survives a loss of power. The name is the message id and the number of the output, so that a
//! second delivery after a crash replaces the first instead of adding one. A file of that name with other content is
//! another node's or another journal's: it is not replaced, and the operation says so.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;

use bytes::Bytes;

use super::reply::Answer;
use crate::production::settings::FileOperation;

/// Writes the message in `frame`.
pub(super) async fn write(settings: &FileOperation, id: u64, output: u16, frame: &Bytes) -> Answer {
    let (settings, frame) = (settings.clone(), frame.clone());
    let name = format!("{id}-{output}");
    let written = tokio::task::spawn_blocking(move || durable(&settings, &name, &frame[1..frame.len() - 2])).await;
    match written {
        Ok(Ok(true)) => Answer::Written,
        Ok(Ok(false)) => Answer::Unreachable { reason: "a file of this name with other content is there".to_owned() },
        Ok(Err(error)) => Answer::Unreachable { reason: format!("the file cannot be written: {error}") },
        Err(_) => Answer::Unreachable { reason: "the node is stopping".to_owned() },
    }
}

/// Writes; `false` where another file has the name.
fn durable(settings: &FileOperation, name: &str, body: &[u8]) -> io::Result<bool> {
    make_folder(settings)?;
    let path = settings.folder.join(format!("{name}{}", settings.suffix));
    match fs::read(&path) {
        Ok(there) if there != body => return Ok(false),
        _ => {}
    }
    let temporary = settings.folder.join(format!(".{name}.part"));
    let mut file = File::create(&temporary)?;
    // Before there is anything in it.
    file.set_permissions(fs::Permissions::from_mode(settings.mode.0))?;
    file.write_all(body)?;
    file.sync_all()?;
    fs::rename(&temporary, &path)?;
    File::open(&settings.folder)?.sync_all()?;
    Ok(true)
}

/// Makes the folder where it is absent, for whoever may use its files.
fn make_folder(settings: &FileOperation) -> io::Result<()> {
    if settings.folder.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(&settings.folder)?;
    fs::set_permissions(&settings.folder, fs::Permissions::from_mode(settings.mode.of_folder()))
}
