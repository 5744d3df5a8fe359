//! Writing anew the files of an index that older data keys have encrypted: extent by extent, to other places, with the names that they
//! have. What a file was is there until nobody reads it any more and the table in the store has the new one.

use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use encryption::data_key_of;
use store::StoreError;

use super::extents::{EXTENT_BYTES, FileExtents};
use super::{ShelfDirectory, Stored};

/// Told how many bytes were read or written since; ends the work.
pub type OnBytes<'a> = &'a mut dyn FnMut(u64) -> ControlFlow<()>;

fn is_old(file: &FileExtents, data_key: u32) -> bool {
    file.seals.as_ref().is_some_and(|seals| seals.seals().iter().any(|seal| data_key_of(seal) != data_key))
}

impl ShelfDirectory {
    /// Writes files anew of which something is encrypted with another data key than this newest one; how many, or that the caller ended
    /// it. They are found after a crash once they are [persisted](ShelfDirectory::persist). Searches and merges go on.
    ///
    /// Errors: those of the shelf; a file that cannot be read, which counts as damage of the index.
    pub fn rewrite(&self, data_key: u32, on_bytes: OnBytes<'_>) -> Result<ControlFlow<(), usize>, StoreError> {
        let old: Vec<PathBuf> = {
            let files = self.inner.files.lock();
            let old = files.iter().filter(|(_, file)| matches!(file, Stored::Extents(file) if is_old(file, data_key)));
            old.map(|(path, _)| path.clone()).collect()
        };
        let mut count = 0;
        for path in old {
            // A merge may have removed it.
            let Some(Stored::Extents(file)) = self.inner.files.lock().get(&path).cloned() else { continue };
            let mut new = file.begun_again(file.tier);
            let copied = self.copy(&path, &file, &mut new, on_bytes);
            if !matches!(copied, Ok(ControlFlow::Continue(()))) {
                self.inner.give_up(&new);
                return copied.map(|_| ControlFlow::Break(()));
            }
            count += usize::from(self.replace(&path, file, new));
        }
        Ok(ControlFlow::Continue(count))
    }

    fn copy(
        &self,
        path: &Path,
        file: &FileExtents,
        new: &mut FileExtents,
        on_bytes: OnBytes<'_>,
    ) -> Result<ControlFlow<()>, StoreError> {
        let failed = |error: io::Error| StoreError::Refused(format!("{}: {error}", path.display()).into());
        let none = || StoreError::Refused("there is no tier of large files".into());
        let pool = self.inner.pool(file.tier).ok_or_else(none)?;
        for at in (0..file.len).step_by(EXTENT_BYTES) {
            let read = self.inner.read(file, at..(at + EXTENT_BYTES).min(file.len)).map_err(failed);
            let mut bytes = read.inspect_err(|error| {
                self.inner.damage.lock().get_or_insert_with(|| error.to_string().into());
            })?;
            pool.append(new, &mut bytes).map_err(failed)?;
            if on_bytes(2 * EXTENT_BYTES as u64).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Puts a file in the place of the one that it is a copy of, if that is still there.
    fn replace(&self, path: &Path, old: Arc<FileExtents>, new: FileExtents) -> bool {
        let mut files = self.inner.files.lock();
        match files.get_mut(path) {
            Some(Stored::Extents(now)) if Arc::ptr_eq(now, &old) => {
                *now = Arc::new(new);
                self.inner.open.lock().remove(path);
                self.inner.remove(old);
                true
            }
            _ => {
                drop(files);
                self.inner.give_up(&new);
                false
            }
        }
    }
}
