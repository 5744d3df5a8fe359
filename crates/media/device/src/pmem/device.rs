//! The device on persistent memory: its stores, write-backs and fences.
//!
//! ```text
//!   granularity   write                                                          flush
//!   line          >= 256 bytes: stores past the cache          then one fence    nothing is left to do
//!                 less:         stores, write back the lines   then one fence
//!                               (eADR: stores)
//!   page          stores                                                         sync the whole device
//! ```
//!
//! Invariants:
//! 1. With line granularity a write is persistent when it returns, because it fences itself. A fence covers only the
//!    thread that executes it, so a flush by another thread could not do it later; a flush has nothing left to do.
//! 2. Each write has one fence, even a large one: self-certifying records need no order inside a write.
//! 3. With page granularity a flush syncs the whole device: it covers the writes of every handle, and the kernel writes
//!    only the dirty pages. Syncs of a handle are serial, and none is tried after one that failed: the kernel reports a
//!    failure once, so a flush that had waited for the failed one would get success.
//! 4. eADR omits the write-back, never the fence: stores past the cache wait in buffers that no power protection
//!    covers.
//!
//! The device does not decide the granularity of a mapping; the shelf does.

use std::fmt;
use std::io;
use std::sync::{Mutex, PoisonError};

use super::lines::{Lines, Lost};
use crate::contract::assert_range_of;
use crate::file::failed;
use crate::poison::Poison;
use crate::{BLOCK_BYTES, Device, DeviceError, Durability, Operation, WORD_BYTES};

/// Stores of this length and more go past the cache. It is the unit in which 3D-XPoint modules access their medium, and
/// the threshold of libpmem2: cached stores are evicted in random order and take 4 times the bandwidth (`media.csv`:
/// sequential writes on one module 2.95 GB/s past the cache, 0.69 GB/s through it).
pub(crate) const PAST_CACHE_BYTES: usize = 256;

/// What a CPU and its power supply preserve when the power fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Domain {
    /// The memory controller's queues: lines must be written back (asynchronous DRAM refresh).
    Adr,
    /// Also the caches.
    Eadr,
    /// Not reported. Treated as [`Domain::Adr`].
    Unknown,
}

/// The unit in which a mapping can be made persistent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Granularity {
    /// Cache lines, by instructions.
    Line,
    /// Pages, by the file system.
    Page,
}

/// A device on lines.
pub(crate) struct PmemDevice<L> {
    name: String,
    lines: L,
    granularity: Granularity,
    domain: Domain,
    durability: Durability,
    /// `None` if it was opened read-only.
    writer: Option<Writer>,
}

/// The part that changes.
#[derive(Debug, Default)]
struct Writer {
    poison: Poison,
    /// Whether a sync has failed. Held during a sync (invariant 3).
    sync_failed: Mutex<bool>,
}

impl<L: Lines> PmemDevice<L> {
    pub(crate) fn new(
        name: &str,
        lines: L,
        (granularity, domain): (Granularity, Domain),
        durability: Durability,
        writable: bool,
    ) -> PmemDevice<L> {
        let writer = writable.then(Writer::default);
        PmemDevice { name: name.into(), lines, granularity, domain, durability, writer }
    }

    /// The lines below the device.
    pub(crate) fn lines(&self) -> &L {
        &self.lines
    }

    #[cold]
    fn lost(&self, lost: Lost) -> DeviceError {
        DeviceError::Lost { name: self.name.clone(), offset: lost.offset, bytes: lost.bytes }
    }

    fn change(
        &self,
        operation: Operation,
        change: impl FnOnce(&Writer) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        let Some(writer) = &self.writer else {
            return Err(DeviceError::ReadOnly { operation, name: self.name.clone() });
        };
        writer.poison.guard(&self.name, || change(writer))
    }

    /// Stores; with line granularity the data is persistent once the calling thread fences.
    fn put(&self, offset: u64, data: &[u8]) -> Result<(), Lost> {
        match self.granularity {
            Granularity::Page => self.lines.store(offset, data),
            Granularity::Line if data.len() >= PAST_CACHE_BYTES => self.lines.store_past_cache(offset, data),
            Granularity::Line => {
                self.lines.store(offset, data)?;
                match self.domain {
                    Domain::Eadr => Ok(()),
                    Domain::Adr | Domain::Unknown => self.lines.write_back(offset, data.len() as u64),
                }
            }
        }
    }

    fn fence(&self) {
        if self.granularity == Granularity::Line {
            self.lines.fence();
        }
    }

    fn sync(&self, writer: &Writer) -> Result<(), DeviceError> {
        // A single flag, which is consistent after any panic.
        let mut sync_failed = writer.sync_failed.lock().unwrap_or_else(PoisonError::into_inner);
        if *sync_failed {
            return Err(DeviceError::Poisoned { name: self.name.clone() });
        }
        let io = |source: io::Error| failed(Operation::Flush, &self.name, 0, source);
        let synced = self.lines.sync(0, self.len()).map_err(io);
        *sync_failed = synced.is_err();
        synced
    }
}

impl<L: Lines> fmt::Debug for PmemDevice<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PmemDevice {{ name: {:?}, {:?}, {:?} }}", self.name, self.granularity, self.domain)
    }
}

impl<L: Lines> Device for PmemDevice<L> {
    fn len(&self) -> u64 {
        self.lines.len()
    }

    fn block_bytes(&self) -> u32 {
        match self.granularity {
            Granularity::Line => WORD_BYTES as u32,
            Granularity::Page => BLOCK_BYTES as u32,
        }
    }

    fn atom_bytes(&self) -> u32 {
        WORD_BYTES as u32
    }

    fn is_inline(&self) -> bool {
        self.granularity == Granularity::Line
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        assert_range_of(self.len(), self.block_bytes().into(), offset, buffer.len() as u64);
        self.lines.load(offset, buffer).map_err(|lost| self.lost(lost))
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        assert_range_of(self.len(), self.block_bytes().into(), offset, data.len() as u64);
        self.change(Operation::Write, |_| {
            self.put(offset, data).map_err(|lost| self.lost(lost))?;
            self.fence();
            Ok(())
        })
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.change(Operation::Flush, |writer| match self.granularity {
            Granularity::Line => Ok(()),
            Granularity::Page => self.sync(writer),
        })
    }

    fn deep_flush(&self) -> Result<(), DeviceError> {
        self.change(Operation::Flush, |writer| self.sync(writer))
    }

    fn write_flush(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.write(offset, data)?;
        match self.granularity {
            // Already persistent (invariant 1), and everything before it.
            Granularity::Line => Ok(()),
            Granularity::Page => self.flush(),
        }
    }

    fn discard(&self, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        const ZEROS: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];
        assert_range_of(self.len(), self.block_bytes().into(), offset, bytes);
        self.change(Operation::Discard, |_| {
            let mut at = offset;
            while at < offset + bytes {
                let piece = ZEROS.len().min((offset + bytes - at) as usize);
                self.put(at, &ZEROS[..piece]).map_err(|lost| self.lost(lost))?;
                at += piece as u64;
            }
            self.fence();
            Ok(())
        })
    }

    fn durability(&self) -> Durability {
        self.durability
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records its calls; its sync fails.
    #[derive(Debug, Default)]
    struct Asked {
        calls: Mutex<Vec<&'static str>>,
    }

    impl Asked {
        fn call(&self, name: &'static str) {
            self.calls.lock().expect("no panic").push(name);
        }
    }

    impl Lines for Asked {
        fn len(&self) -> u64 {
            1 << 20
        }

        fn load(&self, _: u64, _: &mut [u8]) -> Result<(), Lost> {
            Ok(())
        }

        fn store(&self, _: u64, _: &[u8]) -> Result<(), Lost> {
            self.call("store");
            Ok(())
        }

        fn store_past_cache(&self, _: u64, _: &[u8]) -> Result<(), Lost> {
            self.call("store past the cache");
            Ok(())
        }

        fn write_back(&self, _: u64, _: u64) -> Result<(), Lost> {
            self.call("write back");
            Ok(())
        }

        fn fence(&self) {
            self.call("fence");
        }

        fn sync(&self, _: u64, _: u64) -> io::Result<()> {
            self.call("sync");
            // Long enough for another thread to arrive and wait.
            std::thread::sleep(std::time::Duration::from_millis(20));
            Err(io::Error::from_raw_os_error(libc::EIO))
        }
    }

    fn device(granularity: Granularity, domain: Domain) -> PmemDevice<Asked> {
        PmemDevice::new("a", Asked::default(), (granularity, domain), Durability::Emulated, true)
    }

    #[test]
    fn a_write_is_one_fence_and_only_eadr_leaves_out_the_write_back() {
        let small: &[_] = &["store", "write back", "fence"];
        let large: &[_] = &["store past the cache", "fence"];
        let cases = [
            (Domain::Adr, 8, small),
            (Domain::Adr, 248, small),
            (Domain::Adr, 256, large),
            (Domain::Unknown, 8, small),
            (Domain::Unknown, 4096, large),
            (Domain::Eadr, 8, &["store", "fence"]),
            (Domain::Eadr, 248, &["store", "fence"]),
            (Domain::Eadr, 256, large),
        ];
        for (domain, bytes, expected) in cases {
            let device = device(Granularity::Line, domain);
            device.write_flush(0, &vec![0; bytes]).expect("write and flush");
            device.write(0, &vec![0; bytes]).expect("write");
            device.flush().expect("flush");
            let calls = device.lines().calls.lock().expect("no panic").clone();
            assert_eq!(calls, [expected, expected].concat(), "{domain:?}, {bytes} bytes");
        }
    }

    #[test]
    fn a_sync_that_fails_is_reported_once_and_poisons() {
        for granularity in [Granularity::Line, Granularity::Page] {
            let device = device(granularity, Domain::Adr);
            device.write(0, &[0; BLOCK_BYTES]).expect("write");
            let failed = match granularity {
                Granularity::Line => device.deep_flush(),
                Granularity::Page => device.flush(),
            };
            assert!(matches!(failed, Err(DeviceError::Io { operation: Operation::Flush, .. })), "{failed:?}");
            for later in [device.flush(), device.deep_flush(), device.write(0, &[]), device.discard(0, 0)] {
                assert!(matches!(later, Err(DeviceError::Poisoned { .. })), "{later:?}");
            }
        }
    }

    #[test]
    fn by_page_a_flush_that_waits_for_one_that_fails_fails_too() {
        let device = device(Granularity::Page, Domain::Adr);
        device.write(0, &[0; BLOCK_BYTES]).expect("write");
        std::thread::scope(|scope| {
            let first = scope.spawn(|| device.flush());
            // It is inside its sync, which takes a while.
            while device.lines().calls.lock().expect("no panic").len() < 2 {
                std::thread::yield_now();
            }
            assert!(device.flush().is_err(), "nothing was synced");
            assert!(first.join().expect("no panic").is_err());
        });
        assert_eq!(*device.lines().calls.lock().expect("no panic"), ["store", "sync"], "a failed sync is not repeated");
    }
}
