//! How long the medium itself takes, measured beside a load: small writes with a flush, in the folder of the node's data.
//!
//! ```text
//!   this thread   write 4 KiB, fdatasync | PAUSE | write, fdatasync | PAUSE | ...
//!                 <------- how late it is, beyond PAUSE: a time of the probe ------>
//! ```
//!
//! A shared disk keeps every writer waiting now and then, for a second or more, and a shared machine keeps a thread from
//! its processor. A node cannot acknowledge faster than that. The longest time of the probe says which part of a late
//! acknowledgement was not the node's.
//!
//! Invariants: the file is removed in the end; the probe adds less than 50 flushes a second.
//!
//! Not here: the raw speed of a medium (`terrace tier probe`).

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;

/// Between two flushes. Shorter than the stalls that matter, and long enough to leave the disk to the node.
const PAUSE: Duration = Duration::from_millis(20);
/// Bytes of a write: a page of the file system.
const BYTES: usize = 4096;

/// The file that is written.
pub(crate) struct MediumProbe {
    file: File,
    path: PathBuf,
}

impl MediumProbe {
    /// A probe in that folder.
    pub(crate) fn new(folder: &Path) -> anyhow::Result<MediumProbe> {
        let path = folder.join("medium-probe");
        let file = File::create(&path).with_context(|| format!("making {}", path.display()))?;
        let probe = MediumProbe { file, path };
        probe.flush()?;
        Ok(probe)
    }

    fn flush(&self) -> anyhow::Result<()> {
        self.file
            .write_all_at(&[0; BYTES], 0)
            .and_then(|()| self.file.sync_data())
            .with_context(|| format!("writing {}", self.path.display()))
    }

    /// Writes until `stop` is set; the longest time that one write took.
    pub(crate) fn watch(&self, stop: &AtomicBool) -> anyhow::Result<Duration> {
        let mut longest = Duration::ZERO;
        while !stop.load(Ordering::Relaxed) {
            let begun = Instant::now();
            self.flush()?;
            std::thread::sleep(PAUSE);
            longest = longest.max(begun.elapsed().saturating_sub(PAUSE));
        }
        Ok(longest)
    }
}

impl Drop for MediumProbe {
    fn drop(&mut self) {
        // The folder is removed after the run, or kept with it.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_measures_writes_and_leaves_no_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let probe = MediumProbe::new(folder.path()).expect("it can be written");
        let stop = AtomicBool::new(false);
        let longest = std::thread::scope(|scope| {
            let watching = scope.spawn(|| probe.watch(&stop));
            std::thread::sleep(PAUSE * 4);
            stop.store(true, Ordering::Relaxed);
            watching.join().expect("it does not panic").expect("it can be written")
        });
        assert!(longest > Duration::ZERO);
        drop(probe);
        assert_eq!(fs::read_dir(folder.path()).expect("it is there").count(), 0);
    }
}
