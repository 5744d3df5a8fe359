//! Files that a channel names: secrets and authorities. They are read where a reading may block.
//!
//! Invariants: only a regular file is read, and of it no more than was allowed; a reading that hangs, as on a file system whose server is gone,
//! holds up who waits for it and nobody else; a file is read once at a time, so that further tries take no further threads.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Semaphore;

/// Whose turn it is, by file, of those that are being read.
static TURNS: Mutex<BTreeMap<PathBuf, Arc<Semaphore>>> = Mutex::new(BTreeMap::new());

/// Reads a file in a thread where that may block, once those who read the same one are done. The caller bounds the time.
///
/// Errors: those of `read`.
pub(super) async fn reading<T: Send + 'static>(
    file: &Path,
    read: impl FnOnce(&Path) -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let turn = {
        let mut turns = TURNS.lock();
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        Arc::clone(turns.entry(file.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(1))))
    };
    let turn = turn.acquire_owned().await.map_err(|error| error.to_string())?;
    let file = file.to_owned();
    let done = tokio::task::spawn_blocking(move || {
        let found = read(&file);
        drop(turn);
        found
    });
    done.await.unwrap_or_else(|error| Err(error.to_string()))
}

/// The bytes of a regular file. It may block. Errors: it cannot be read, is none, or has more than `most` bytes.
pub(super) fn bytes_of(file: &Path, most: usize) -> Result<Vec<u8>, String> {
    let fault = |why: &dyn std::fmt::Display| format!("{}: {why}", file.display());
    let no_file = "it is no regular file";
    // Before it is opened: to open a pipe is to wait for who writes into it.
    if !fs::metadata(file).map_err(|error| fault(&error))?.is_file() {
        return Err(fault(&no_file));
    }
    let opened = File::open(file).map_err(|error| fault(&error))?;
    if !opened.metadata().map_err(|error| fault(&error))?.is_file() {
        return Err(fault(&no_file));
    }
    let mut bytes = Vec::new();
    opened.take(most as u64 + 1).read_to_end(&mut bytes).map_err(|error| fault(&error))?;
    match bytes.len() > most {
        true => Err(fault(&format_args!("it has more than {most} bytes"))),
        false => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn only_regular_files_of_a_bounded_size_are_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, pipe) = (folder.path().join("token"), folder.path().join("pipe"));
        fs::write(&file, "12345").expect("a file");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo is there");
        assert!(made.success());
        assert_eq!(bytes_of(&file, 5), Ok(b"12345".to_vec()));
        assert!(bytes_of(&file, 4).expect_err("too long").contains("more than 4 bytes"));
        for other in [&pipe, Path::new("/dev/zero"), folder.path()] {
            assert!(bytes_of(other, 5).expect_err("none").contains("no regular file"), "{}", other.display());
        }
        assert!(bytes_of(&folder.path().join("none"), 5).is_err());
    }

    #[tokio::test]
    async fn a_reading_that_hangs_holds_up_its_own_file_only_and_takes_one_thread() {
        let (hung, other) = (Path::new("/of-a-test/hung"), Path::new("/of-a-test/other"));
        let (go_on, waits) = mpsc::channel::<()>();
        let soon = Duration::from_millis(50);
        let first = tokio::time::timeout(soon, reading(hung, move |_| Ok(waits.recv().is_ok()))).await;
        assert!(first.is_err(), "it hangs");
        let (begun, begins) = mpsc::channel();
        let second = reading(hung, move |_| Ok(begun.send(()).is_ok()));
        assert!(tokio::time::timeout(soon, second).await.is_err(), "it waits for its turn");
        assert_eq!(begins.try_recv(), Err(mpsc::TryRecvError::Disconnected), "it was never begun");
        assert_eq!(reading(other, |_| Ok(7)).await, Ok(7));
        go_on.send(()).expect("the first one waits");
        assert_eq!(reading(hung, |_| Ok(8)).await, Ok(8));
    }
}
