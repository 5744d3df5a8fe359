//! [`SealedSpillFiles`]: files of spilled rows that are encrypted, for a store that is.
//!
//! ```text
//!   FOLDER/datafusion-sealed-RANDOM/NUMBER     mode 0600, removed with the last reference to it
//!     chunk 0 | chunk 1 | ..                   bytes of the body u32 | body, encrypted, 64 KiB at most | tag 16
//! ```
//!
//! The key is one of this process ([`ScratchKey`]) and never stored: nobody reads what a crash leaves, and the next start removes it. A
//! chunk is bound to its file and its number. How many there are is known in memory only, so a file that was cut at the end of a chunk
//! is noticed too: no row is lost silently. A chunk is written when it is full, and when the writer is flushed: rows that threads exchange
//! are read while the file grows.
//!
//! DataFusion leaves the limit of all files to who makes them; it is kept here, with DataFusion's own words, by which
//! [`SqlError`] knows it.
//!
//! Invariant: no chunk number of a file is sealed twice; a file of which a write failed takes no more.

use std::collections::hash_map::RandomState;
use std::fs::{DirBuilder, File, OpenOptions};
use std::hash::{BuildHasher, Hasher};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use datafusion::error::{DataFusionError, Result as DfResult};
use datafusion::execution::{SpillFile, SpillWriter, TempFileFactory};
use encryption::{SCRATCH_TAG_BYTES, ScratchKey, SystemRandomness};
use futures::{Stream, stream};
use parking_lot::Mutex;

use crate::{ErrorFields, SqlError};

/// The prefix of the folders that DataFusion creates, and of those of encrypted files; other folders are left alone.
pub(crate) const PREFIX: &str = "datafusion-";

/// The error if a folder cannot be spilled to.
pub(crate) fn unusable(folder: &Path) -> impl Fn(io::Error) -> SqlError {
    move |error| {
        let text = format!("{}: rows cannot be spilled to this folder: {error}", folder.display());
        SqlError::Engine(Box::new(ErrorFields::new("58030", text)))
    }
}

/// Most bytes of rows in a chunk.
const BODY_BYTES: usize = 64 << 10;
/// Bytes ahead of the body.
const HEAD_BYTES: usize = 4;
/// Longest chunk.
const CHUNK_BYTES: usize = HEAD_BYTES + BODY_BYTES + SCRATCH_TAG_BYTES;

/// Makes the files of one engine.
pub(crate) struct SealedSpillFiles(Arc<Shared>);

struct Shared {
    key: ScratchKey,
    folder: PathBuf,
    /// Of all files.
    bytes_max: u64,
    bytes: AtomicU64,
}

impl Drop for Shared {
    fn drop(&mut self) {
        // What cannot be removed now is removed at the next start.
        let _ = std::fs::remove_dir(&self.folder);
    }
}

impl SealedSpillFiles {
    /// Those in a folder of their own below `folder`, which take so many bytes together. Errors: 58030 if it cannot be made, or there are
    /// no random bytes.
    pub(crate) fn new(folder: &Path, bytes_max: u64) -> Result<SealedSpillFiles, SqlError> {
        let failed = unusable(folder);
        let key = ScratchKey::random(&SystemRandomness::default()).map_err(|error| failed(io::Error::other(error)))?;
        let folder = folder.join(format!("{PREFIX}sealed-{:016x}", RandomState::new().build_hasher().finish()));
        DirBuilder::new().mode(0o700).create(&folder).map_err(failed)?;
        Ok(SealedSpillFiles(Arc::new(Shared { key, folder, bytes_max, bytes: AtomicU64::new(0) })))
    }
}

impl TempFileFactory for SealedSpillFiles {
    fn create_temp_file(&self, _description: &str) -> DfResult<Arc<dyn SpillFile>> {
        let number = self.0.key.next_file();
        let path = self.0.folder.join(number.to_string());
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path);
        let open = OpenFile {
            shared: Arc::clone(&self.0),
            number,
            path,
            file: file.map_err(DataFusionError::IoError)?,
            written: Mutex::default(),
        };
        Ok(Arc::new(SealedSpillFile(Arc::new(open))))
    }
}

/// How far a file is written.
#[derive(Clone, Copy, Debug, Default)]
struct Written {
    chunks: u32,
    bytes: u64,
    /// A write failed: its chunk was sealed, and what is at its place is unknown.
    has_failed: bool,
}

struct OpenFile {
    shared: Arc<Shared>,
    number: u64,
    path: PathBuf,
    file: File,
    written: Mutex<Written>,
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.shared.bytes.fetch_sub(self.written.get_mut().bytes, Ordering::Relaxed);
        // What cannot be removed now is removed at the next start.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl OpenFile {
    /// Seals and appends a chunk: its head, to be filled in, and its body. Empties it.
    fn append(&self, chunk: &mut Vec<u8>) -> io::Result<()> {
        let mut written = self.written.lock();
        let number = written.chunks.checked_add(1).map(|next| next - 1);
        let number = number.filter(|_| !written.has_failed).ok_or_else(|| {
            io::Error::other("a spill file takes no more, because an earlier write to it failed, or it has 2^32 chunks")
        })?;
        let bytes = (chunk.len() + SCRATCH_TAG_BYTES) as u64;
        let all = self.shared.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if all > self.shared.bytes_max {
            self.shared.bytes.fetch_sub(bytes, Ordering::Relaxed);
            let max = self.shared.bytes_max;
            let text = format!("the used disk space during the spilling process exceeds {max} bytes");
            return Err(io::Error::other(text));
        }
        written.bytes += bytes;
        written.has_failed = true;
        let (head, body) = chunk.split_at_mut(HEAD_BYTES);
        // A body is shorter than 4 GiB.
        head.copy_from_slice(&(body.len() as u32).to_le_bytes());
        let tag = self.shared.key.seal((self.number, number), body);
        chunk.extend_from_slice(&tag);
        self.file.write_all_at(chunk, written.bytes - bytes)?;
        *written = Written { chunks: number + 1, has_failed: false, ..*written };
        chunk.clear();
        Ok(())
    }

    /// The error if a chunk is not what was written.
    fn damaged(&self, chunk: u32, why: &dyn std::fmt::Display) -> DataFusionError {
        let text = format!(
            "rows that were spilled to {} cannot be read back: chunk {chunk}: {why}; run the statement again, and check the medium",
            self.path.display()
        );
        DataFusionError::External(Box::new(SqlError::Engine(Box::new(ErrorFields::new("XX001", text)))))
    }

    /// Reads the chunk of this number, which begins at `at`: its body, and where the next one begins.
    fn read(&self, chunk: u32, at: u64) -> DfResult<(Bytes, u64)> {
        let mut bytes = vec![0; CHUNK_BYTES];
        let mut read = 0;
        while read < bytes.len() {
            match self.file.read_at(&mut bytes[read..], at + read as u64) {
                Ok(0) => break,
                Ok(more) => read += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(DataFusionError::IoError(error)),
            }
        }
        bytes.truncate(read);
        let head = bytes.first_chunk::<HEAD_BYTES>().ok_or_else(|| self.damaged(chunk, &"the file ends before it"))?;
        let end = HEAD_BYTES + u32::from_le_bytes(*head) as usize + SCRATCH_TAG_BYTES;
        if end > bytes.len() {
            return Err(self.damaged(chunk, &"the file ends in it, or its length was changed"));
        }
        let sealed = &mut bytes[HEAD_BYTES..end];
        let body = self.shared.key.open((self.number, chunk), sealed).map_err(|fault| self.damaged(chunk, &fault))?;
        let body = HEAD_BYTES..HEAD_BYTES + body.len();
        Ok((Bytes::from(bytes).slice(body), at + end as u64))
    }
}

/// A file, as DataFusion sees it.
struct SealedSpillFile(Arc<OpenFile>);

impl SpillFile for SealedSpillFile {
    fn size(&self) -> Option<u64> {
        Some(self.0.written.lock().bytes)
    }

    fn read_stream(&self) -> DfResult<Pin<Box<dyn Stream<Item = DfResult<Bytes>> + Send>>> {
        let next = |(file, chunk, at): (Arc<OpenFile>, u32, u64)| async move {
            if chunk >= file.written.lock().chunks {
                return Ok(None);
            }
            let read = move || file.read(chunk, at).map(|(body, end)| Some((body, (file, chunk + 1, end))));
            let read = tokio::task::spawn_blocking(read).await;
            read.map_err(|error| DataFusionError::ExecutionJoin(Box::new(error)))?
        };
        Ok(Box::pin(stream::try_unfold((Arc::clone(&self.0), 0, 0), next)))
    }

    fn open_writer(&self) -> DfResult<Box<dyn SpillWriter>> {
        Ok(Box::new(SealedWriter { file: Arc::clone(&self.0), chunk: Vec::with_capacity(CHUNK_BYTES) }))
    }
}

/// Collects a chunk.
struct SealedWriter {
    file: Arc<OpenFile>,
    /// Room for the head, and the body so far; nothing if there is none.
    chunk: Vec<u8>,
}

impl Write for SealedWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.chunk.is_empty() {
            self.chunk.resize(HEAD_BYTES, 0);
        }
        let taken = bytes.len().min(HEAD_BYTES + BODY_BYTES - self.chunk.len());
        self.chunk.extend_from_slice(&bytes[..taken]);
        if self.chunk.len() == HEAD_BYTES + BODY_BYTES {
            self.file.append(&mut self.chunk)?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.chunk.len() > HEAD_BYTES {
            true => self.file.append(&mut self.chunk),
            false => Ok(()),
        }
    }
}

impl SpillWriter for SealedWriter {
    fn finish(&mut self) -> DfResult<()> {
        self.flush().map_err(DataFusionError::IoError)
    }
}

#[cfg(test)]
mod tests;
