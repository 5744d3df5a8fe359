//! [`WriteGuard`]: whether a large piece of a profile may be written: there is room for it, and nobody has ended it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::ProfileError;

/// See the head comment of this file.
#[derive(Clone, Debug, Default)]
pub struct WriteGuard {
    /// What stays free on the file system of the folder, bytes; 0: nobody looks.
    pub spare_bytes: u64,
    /// Where it is looked.
    pub folder: PathBuf,
    /// Set by whoever wants long writes to end.
    pub stop: Arc<AtomicBool>,
}

impl WriteGuard {
    /// Errors: `NoRoom`: so many bytes more would leave less free than they should.
    pub(crate) fn check_room(&self, bytes: u64) -> Result<(), ProfileError> {
        if self.spare_bytes == 0 {
            return Ok(());
        }
        let free = device::free_bytes(&self.folder)?;
        let needed = self.spare_bytes.saturating_add(bytes);
        if free < needed {
            let (free, needed) = (free >> 20, needed.div_ceil(1 << 20));
            let why =
                format!("there is no room: {free} MiB are free, {needed} MiB are needed with what has to stay free");
            return Err(ProfileError::NoRoom(why));
        }
        Ok(())
    }

    /// Errors: `Ended`: somebody has ended it.
    pub(crate) fn check_stop(&self) -> Result<(), ProfileError> {
        match self.stop.load(Ordering::Relaxed) {
            true => Err(ProfileError::Ended),
            false => Ok(()),
        }
    }
}
