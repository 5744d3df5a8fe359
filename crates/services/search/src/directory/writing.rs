//! [`ShelfWriter`]: a file while it is written, extent by extent, on the shelf that its size asks for.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use store::cache::tap::{Use, object_of};
use tantivy::directory::{AntiCallToken, TerminatingWrite};

use super::extents::{EXTENT_BYTES, ExtentPool, FileExtents, FileTier};
use super::{Inner, Stored};

/// A file being written; it is there once it is terminated.
pub(super) struct ShelfWriter {
    path: PathBuf,
    /// Its number in profiles.
    object: u64,
    inner: Arc<Inner>,
    file: FileExtents,
    /// The bytes of the last extent that is not full.
    buffer: Vec<u8>,
}

impl ShelfWriter {
    /// Errors: there is no random number for a file that will be sealed.
    pub(super) fn new(path: &Path, inner: &Arc<Inner>) -> io::Result<ShelfWriter> {
        let seals = inner.sealing.as_ref().map(|sealing| sealing.begin(path)).transpose().map_err(io::Error::other)?;
        let file = FileExtents { seals, ..FileExtents::default() };
        let object = object_of(path.as_os_str().as_encoded_bytes());
        Ok(ShelfWriter { path: path.to_owned(), object, inner: Arc::clone(inner), file, buffer: Vec::new() })
    }

    /// Writes what is in the buffer.
    fn append(&mut self) -> io::Result<()> {
        let inner = Arc::clone(&self.inner);
        let is_large = self.file.len + self.buffer.len() > inner.large_bytes;
        if let (FileTier::Fast, true, Some(capacity)) = (self.file.tier, is_large, &inner.capacity) {
            self.move_to(capacity)?;
        }
        let Some(pool) = inner.pool(self.file.tier) else {
            return Err(io::Error::other("there is no tier of large files"));
        };
        let at = self.file.extents.len();
        pool.append(&mut self.file, &mut self.buffer)?;
        inner.pass_on(self.object, (at, at + 1), Use::Make);
        Ok(())
    }

    /// Moves what was written so far.
    fn move_to(&mut self, capacity: &ExtentPool) -> io::Result<()> {
        let mut moved = self.file.begun_again(FileTier::Capacity);
        let len = self.file.len;
        let copied = (0..len).step_by(EXTENT_BYTES).try_for_each(|at| {
            let mut bytes = self.inner.fast.read(&self.file, at..(at + EXTENT_BYTES).min(len))?;
            capacity.append(&mut moved, &mut bytes)
        });
        // What is given up is free at once: no table names it.
        let given_up = if copied.is_ok() { std::mem::replace(&mut self.file, moved) } else { moved };
        self.inner.give_up(&given_up);
        copied
    }
}

impl Write for ShelfWriter {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let taken = data.len().min(EXTENT_BYTES - self.buffer.len());
        self.buffer.extend_from_slice(&data[..taken]);
        if self.buffer.len() == EXTENT_BYTES {
            self.append()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl TerminatingWrite for ShelfWriter {
    fn terminate_ref(&mut self, _: AntiCallToken) -> io::Result<()> {
        if !self.buffer.is_empty() {
            self.append()?;
        }
        // What could still be written would be sealed too.
        let next = self.file.begun_again(FileTier::Fast);
        let file = std::mem::replace(&mut self.file, next);
        self.inner.files.lock().insert(std::mem::take(&mut self.path), Stored::Extents(Arc::new(file)));
        Ok(())
    }
}

impl Drop for ShelfWriter {
    fn drop(&mut self) {
        // Given up before its end: nothing names these extents.
        self.inner.give_up(&self.file);
    }
}
