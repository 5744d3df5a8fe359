//! A write linked to its flush, submitted to the kernel in one call through io_uring.
//!
//! ```text
//!   submission queue   [ WRITE, IO_LINK ][ FSYNC, DATASYNC ]      one io_uring_enter, waits for both
//!   completion queue   [ WRITE: bytes   ][ FSYNC: 0        ]
//! ```
//!
//! The link makes the kernel start the flush only after the whole write has completed. A short or failed write cancels
//! the flush (`ECANCELED`), and the caller of this module continues by other means. There is no polling thread: the
//! thread that holds a ring's slot submits two entries and waits for two completions.
//!
//! Invariant: no function here returns or unwinds while the kernel may still read the caller's bytes.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use io_uring::{IoUring, opcode, squeue, types};

use super::slots::Slots;

/// Space for one write and one flush.
const ENTRIES: u32 = 2;

const WRITE: u64 = 0;
const FLUSH: u64 = 1;

/// Most bytes one submission writes: Linux moves at most 2^31 - 4096 (`MAX_RW_COUNT`), the rest is a short write.
const BYTES_MAX: usize = 1 << 30;

/// A few rings; a ring is absent after the kernel refused to serve it, and created again at the next use.
#[derive(Debug)]
pub(crate) struct Rings {
    rings: Slots<Option<Ring>>,
}

/// The results of the two requests: bytes written, and the flush.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) write: io::Result<usize>,
    pub(crate) flush: io::Result<()>,
}

impl Rings {
    /// Errors: the kernel has no io_uring (`ENOSYS`) or forbids it (`EPERM`).
    pub(crate) fn new() -> io::Result<Rings> {
        Ok(Rings { rings: Slots::new(|| Ring::new().map(Some))? })
    }

    /// Writes and flushes as one submission. The outer error means that the kernel did not serve the ring.
    pub(crate) fn write_flush(&self, file: &File, offset: u64, data: &[u8]) -> io::Result<Outcome> {
        let mut slot = self.rings.acquire();
        // Taken out while in use: after a panic or an error below the slot is empty, and never contains a ring in an
        // unknown state.
        let mut ring = match slot.take() {
            Some(ring) => ring,
            None => Ring::new()?,
        };
        let outcome = ring.write_flush(file, offset, data)?;
        *slot = Some(ring);
        Ok(outcome)
    }
}

struct Ring(IoUring);

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ring")
    }
}

impl Ring {
    fn new() -> io::Result<Ring> {
        Ok(Ring(IoUring::new(ENTRIES)?))
    }

    fn write_flush(&mut self, file: &File, offset: u64, data: &[u8]) -> io::Result<Outcome> {
        let fd = types::Fd(file.as_raw_fd());
        let bytes = data.len().min(BYTES_MAX) as u32;
        let write = opcode::Write::new(fd, data.as_ptr(), bytes).offset(offset).build();
        let write = write.user_data(WRITE).flags(squeue::Flags::IO_LINK);
        let flush = opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build().user_data(FLUSH);
        // SAFETY: `data` and `file` are borrowed until this function returns, and it does not return, nor unwind, before
        // `complete` has seen the completion of every entry that the kernel took: the bytes stay where they are for as
        // long as the kernel may read them.
        unsafe { self.0.submission().push_multiple(&[write, flush]) }
            .expect("the queue holds two entries and is empty between calls");
        self.complete()
    }

    /// Submits what is queued and waits for the completions of both entries.
    fn complete(&mut self) -> io::Result<Outcome> {
        let mut results: [Option<i32>; 2] = [None, None];
        let mut refused = None;
        loop {
            for entry in self.0.completion() {
                if let Some(result) = results.get_mut(entry.user_data() as usize) {
                    *result = Some(entry.result());
                }
            }
            if let [Some(write), Some(flush)] = results {
                return Ok(Outcome { write: count(write), flush: count(flush).map(drop) });
            }
            let arrived = results.iter().flatten().count();
            let queued = self.0.submission().len();
            if let Some(error) = refused.take() {
                // The kernel never touches an entry that it did not take; every entry that it took must complete before
                // this returns.
                if arrived + queued == results.len() {
                    return Err(error);
                }
                refused = Some(error);
                std::thread::yield_now();
                continue;
            }
            match self.0.submit_and_wait(results.len() - arrived) {
                Ok(_) => {}
                Err(error) => match error.raw_os_error() {
                    // Interrupted while waiting, or short of memory for a moment: nothing is lost, call again.
                    Some(libc::EINTR | libc::EAGAIN | libc::EBUSY) => {}
                    _ => refused = Some(error),
                },
            }
        }
    }
}

/// A completion's result: a count, or a negated error number.
fn count(result: i32) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    /// Returns rings; if the kernel has no usable io_uring, prints that and returns `None`.
    fn rings() -> Option<Rings> {
        Rings::new().inspect_err(|why| println!("skipped: io_uring cannot be used here ({why})")).ok()
    }

    fn error_number<T: std::fmt::Debug>(result: io::Result<T>) -> Option<i32> {
        result.expect_err("an error").raw_os_error()
    }

    #[test]
    fn a_failed_write_cancels_its_flush_and_the_ring_serves_the_next() {
        let Some(rings) = rings() else { return };
        let home = tempfile::tempdir().expect("temporary directory");
        let path = home.path().join("a");
        let file = File::create_new(&path).expect("create");
        let read_only = File::open(&path).expect("open");
        for turn in 1..=10 {
            let Outcome { write, flush } = rings.write_flush(&read_only, 0, &[0; 8192]).expect("served");
            assert_eq!(error_number(write), Some(libc::EBADF));
            assert_eq!(error_number(flush), Some(libc::ECANCELED));
            let Outcome { write, flush } = rings.write_flush(&file, 4096, &[turn; 8192]).expect("served");
            assert_eq!(write.expect("written"), 8192);
            flush.expect("flushed");
            let mut back = [0; 8192];
            read_only.read_exact_at(&mut back, 4096).expect("read");
            assert_eq!(back, [turn; 8192]);
        }
    }

    #[test]
    fn a_short_write_cancels_its_flush() {
        let Some(rings) = rings() else { return };
        // The only way to a short write without privileges: across the largest offset that the file system allows,
        // which on ext4 with 4 KiB blocks is 2^44 - 4096 bytes.
        let file = tempfile::tempfile().expect("temporary file");
        let limit = (1 << 44) - 4096;
        let Outcome { write, flush } = rings.write_flush(&file, limit - 4096, &[1; 8192]).expect("served");
        match write.expect("written") {
            4096 => assert_eq!(error_number(flush), Some(libc::ECANCELED)),
            whole => {
                println!("skipped: this file system wrote all {whole} bytes");
                flush.expect("flushed");
            }
        }
    }
}
