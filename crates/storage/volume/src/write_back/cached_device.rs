//! [`CachedDevice`]: one device of the capacity, seen through the cache.
//!
//! The contract is that of [`device::contract`]. Blocks have 4096 bytes. The atom is the smaller one of the cache's and the
//! capacity's: 8 bytes where the cache is persistent memory. A handle that refuses changes because the *capacity* failed is opened
//! again through the shelf; if the *cache* failed, the cache itself has to be opened again.

use std::fmt;
use std::sync::Arc;

use device::{Device, DeviceError, Durability, Extent, IoKind, IoRequest, IoSink, Operation};

use super::access::{Erase, Misses};
use super::backing::Backing;
use super::options::CachePolicy;
use super::pool::{BLOCK, CachePool};
use super::populate;

/// A handle of a user.
pub(super) struct CachedDevice {
    pool: Arc<CachePool>,
    backing: Arc<Backing>,
    is_writable: bool,
}

impl CachedDevice {
    /// A handle; its device has been counted by the caller ([`super::names::DeviceRecord::handles`]).
    pub(super) fn handle(pool: &Arc<CachePool>, backing: Arc<Backing>, is_writable: bool) -> Arc<dyn Device> {
        Arc::new(CachedDevice { pool: pool.clone(), backing, is_writable })
    }

    #[inline]
    fn check(&self, operation: Operation) -> Result<(), DeviceError> {
        match self.is_writable {
            true => Ok(()),
            false => Err(DeviceError::ReadOnly { operation, name: self.backing.name.clone() }),
        }
    }

    #[inline]
    fn assert_range(&self, offset: u64, bytes: u64) {
        let len = self.backing.capacity.len();
        assert!(offset & (BLOCK - 1) == 0, "offset {offset} is not a multiple of {BLOCK}");
        assert!(bytes & (BLOCK - 1) == 0, "length {bytes} is not a multiple of {BLOCK}");
        assert!(
            offset <= len && bytes <= len - offset,
            "range {offset}+{bytes} does not lie inside the device, which has {len} bytes"
        );
    }
}

impl Drop for CachedDevice {
    fn drop(&mut self) {
        let number = self.backing.number;
        let mut names = self.pool.names.lock();
        let Some(record) = names.devices.get_mut(&number) else {
            return;
        };
        record.handles -= 1;
        if record.handles == 0 && record.is_removed {
            names.devices.remove(&number);
            drop(names);
            self.pool.drop_device(number);
        }
    }
}

impl fmt::Debug for CachedDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CachedDevice { backing, is_writable, .. } = self;
        f.debug_struct("CachedDevice").field("name", &backing.name).field("is_writable", is_writable).finish()
    }
}

impl Device for CachedDevice {
    fn len(&self) -> u64 {
        self.backing.capacity.len()
    }

    fn atom_bytes(&self) -> u32 {
        self.backing.capacity.atom_bytes().min(self.pool.cache.atom_bytes())
    }

    /// Only if the capacity is, too: a read that misses, and a write that finds no place, wait for it.
    fn is_inline(&self) -> bool {
        self.pool.cache.is_inline() && self.backing.capacity.is_inline()
    }

    fn deep_flush(&self) -> Result<(), DeviceError> {
        self.flush()?;
        let named = |error: DeviceError| error.named(&self.backing.name);
        self.pool.cache.deep_flush().map_err(|error| self.pool.poison(None, named(error)))?;
        let flushed = self.backing.capacity.deep_flush();
        flushed.map_err(|error| self.pool.poison(Some(&self.backing), named(error)))
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.assert_range(offset, buffer.len() as u64);
        self.pool.read(&self.backing, offset, buffer)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.assert_range(offset, data.len() as u64);
        self.check(Operation::Write)?;
        self.pool.write(&self.backing, offset, data)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.check(Operation::Flush)?;
        self.pool.flush(&self.backing)
    }

    fn discard(&self, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        self.assert_range(offset, bytes);
        self.check(Operation::Discard)?;
        self.pool.erase(&self.backing, offset, bytes, Erase::Discard)
    }

    fn write_zeroes(&self, offset: u64, bytes: u64, free: bool) -> Result<(), DeviceError> {
        self.assert_range(offset, bytes);
        self.check(Operation::Write)?;
        if free {
            match self.pool.erase(&self.backing, offset, bytes, Erase::Discard) {
                Err(DeviceError::Unsupported { .. }) => {}
                other => return other,
            }
        }
        self.pool.erase(&self.backing, offset, bytes, Erase::Zeros)
    }

    fn extents(&self, offset: u64, bytes: u64) -> Result<Vec<Extent>, DeviceError> {
        self.assert_range(offset, bytes);
        self.pool.extents(&self.backing, offset, bytes)
    }

    /// Reads of which the cache has nothing are handed to the capacity together; all else is done on the calling thread.
    fn submit(&self, batch: &mut Vec<IoRequest>, sink: &Arc<dyn IoSink>) {
        let mut missed = Vec::new();
        let mut noted = Vec::new();
        for mut request in batch.drain(..) {
            if request.kind == IoKind::Read {
                self.assert_range(request.offset, request.buffer.len() as u64);
                let misses = self.pool.look_for_misses(&self.backing, request.offset, request.buffer.len() as u64);
                if let Some(misses) = misses {
                    if self.pool.options.policy == CachePolicy::ReadWrite {
                        noted.push((request.token, misses));
                        request.token = noted.len() as u64 - 1;
                    }
                    missed.push(request);
                    continue;
                }
            }
            let result = request.perform(self);
            sink.complete(request, result);
        }
        if missed.is_empty() {
            return;
        }
        if self.pool.options.policy == CachePolicy::WriteOnly {
            return self.backing.capacity.submit(&mut missed, sink);
        }
        let noted = noted.into_iter().map(|(token, misses)| parking_lot::Mutex::new(Some((token, misses)))).collect();
        let filling: Arc<dyn IoSink> = Arc::new(FillingSink { pool: self.pool.clone(), sink: sink.clone(), noted });
        self.backing.capacity.submit(&mut missed, &filling);
    }

    fn durability(&self) -> Durability {
        match (self.pool.cache.durability(), self.backing.capacity.durability()) {
            (Durability::None, _) | (_, Durability::None) => Durability::None,
            (Durability::Emulated, _) | (_, Durability::Emulated) => Durability::Emulated,
            _ => Durability::PowerFailSafe,
        }
    }
}

/// Puts what reads have found into the cache, and gives the requests back with their own tokens.
struct FillingSink {
    pool: Arc<CachePool>,
    sink: Arc<dyn IoSink>,
    /// For each request its token and what it missed; its own token is the index.
    noted: Vec<parking_lot::Mutex<Option<(u64, Misses)>>>,
}

impl IoSink for FillingSink {
    fn complete(&self, mut request: IoRequest, result: Result<(), DeviceError>) {
        if let Some((token, misses)) = self.noted[request.token as usize].lock().take() {
            request.token = token;
            match &result {
                Ok(()) => populate::take(&self.pool, misses.fills, request.offset, &request.buffer),
                Err(_) => populate::cancel(&self.pool, misses.fills),
            }
        }
        self.sink.complete(request, result);
    }
}
