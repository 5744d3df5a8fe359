//! A write-back cache under a copy of a volume: a fast shelf takes the writes of a slow one.
//!
//! ```text
//!   Place.data          CachedShelf        names, status                               mod.rs, names.rs
//!                           |
//!   data-0, tables-0 ..  CachedDevice      the contract of a device                    cached_device.rs
//!                           |
//!                        CachePool         reads, writes, flushes                      access.rs, pool.rs
//!              +------------+-----------------+
//!        CacheShard x n     |  destage.rs     |  populate.rs
//!        which page is      v                 v
//!        in which place   capacity shelf    cache shelf
//!        (shard.rs)       NVMe, HDD         persistent memory: "write-back"           format.rs
//! ```
//!
//! It lies below the mirror, as the storage bus cache of Storage Spaces Direct does: each copy has its own, and knows nothing of the
//! others. A write is in the cache when it returns, and durable there after a flush; a thread copies it to the capacity later. If the
//! cache device is lost, the writes that were not destaged are lost on this copy, and opening the capacity without them is refused:
//! the copy is replaced, and filled from the others.
//!
//! # What it promises
//!
//! 1. The contract of [`device::contract`], with blocks of 4096 bytes and the atom of the weaker of the two devices.
//! 2. After a crash at any moment, also of destaging, eviction and recovery, a block has what was last flushed, or something that was
//!    written later; never the bytes of another page or device, and never an older state of the capacity.
//! 3. A flush makes data and entries durable with two cache flushes, with one if no entry changed; on persistent memory by line with
//!    one fence for each page that became dirty, and none otherwise.
//! 4. The capacity names the cache that it needs. Opened without it, with another one or with an older state of it, it is refused.
//!
//! # What it remembers
//!
//! The medium names dirty blocks only. Clean pages, those that reads have put there too, are found until the cache is closed; after
//! that they come from the capacity again. So a clean page can never be older than the capacity.
//!
//! # What it leaves to others
//!
//! Blocks in the cache have no checksums: the volume above has one for each block, kept apart from it, and repairs what does not
//! match from another copy. Entries, headers and labels have their own; a damaged entry costs the dirty blocks of one page, which the
//! volume finds in the same way.
//!
//! It does not compress, does not deduplicate, does not share a cache between capacity shelves, and is not moved: a cache is lost
//! or empty ([`CachedShelf::destage_all`]) before its capacity gets another one.
//!
//! # What it costs
//!
//! `cargo run --release -p volume --example cache_cost`; 2026-11-25, Intel Xeon with 2 cores, Linux, busy with other work; nanoseconds for
//! one call of 4096 bytes that the cache has, the device of the cache by itself and through the cache:
//!
//! ```text
//!                                 memory            by line, emulated
//!                             bare   cached           bare   cached
//!   read                       479      789            539      673
//!   write of a dirty page      557      924            401      614
//!   the same, and a flush      604     1102            396      631
//!   write of a clean page,
//!   and a flush                642     1447            532     1311
//! ```
//!
//! Memory: about 250 bytes for each page, and 128 more if the cache device has blocks; for a cache of 100 GiB with pages of 16 KiB
//! 1.5 GiB. Larger pages take less.

mod access;
mod backing;
mod cached_device;
mod destage;
mod fills;
mod format;
mod names;
mod options;
mod page_bits;
mod pool;
mod populate;
mod progress;
mod recovery;
mod shard;

use std::fmt;
use std::sync::Arc;
use std::thread::JoinHandle;

use device::contract::is_name;
use device::{Device, DeviceError, Shelf, supervise};
use parking_lot::Mutex;

pub use format::{CACHE_VERSION, WRITE_BACK};
pub use names::CACHED_NAME_BYTES_MAX;
pub use options::{CacheOptions, CachePolicy, CacheStatus, PAGE_BYTES_MAX, PAGE_BYTES_MIN};

use crate::error::VolumeError;
use crate::options::Threads;
use backing::Backing;
use cached_device::CachedDevice;
use names::full_name;
use pool::CachePool;

/// A shelf whose devices lie on a capacity shelf and are cached on another one. The head comment of this module has its guarantees.
///
/// Names have at most [`CACHED_NAME_BYTES_MAX`] bytes. The capacity shelf contains the devices under other names, and
/// [`WRITE_BACK`], its label.
pub struct CachedShelf {
    capacity: Arc<dyn Shelf>,
    pool: Arc<CachePool>,
    /// Changes of names are serial.
    changing: Mutex<()>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl CachedShelf {
    /// Makes a cache of [`CacheOptions::cache_bytes`], all of them reserved, for an empty capacity shelf, and opens it. A creation
    /// that a crash interrupted is repeated with the same identity.
    ///
    /// Errors: [`VolumeError::Options`]; [`DeviceError::AlreadyExists`] if either shelf has a cache or a label already; and those of
    /// the shelves.
    pub fn create(
        capacity: Arc<dyn Shelf>,
        cache: Arc<dyn Shelf>,
        options: &CacheOptions,
    ) -> Result<CachedShelf, VolumeError> {
        recovery::create(&*capacity, &*cache, options)?;
        CachedShelf::open(capacity, cache, options)
    }

    /// Opens a capacity with its cache; identity and sizes are those that were recorded when it was created. Everything that its
    /// devices show is persistent when it returns.
    ///
    /// Errors: [`DeviceError::NoShelf`] if the capacity never had a cache, [`DeviceError::WrongCache`] if this is not its cache or
    /// an older state of it, [`VolumeError::Format`] and [`VolumeError::Version`] if a header cannot be understood,
    /// [`VolumeError::Thread`], and those of the shelves.
    pub fn open(
        capacity: Arc<dyn Shelf>,
        cache: Arc<dyn Shelf>,
        options: &CacheOptions,
    ) -> Result<CachedShelf, VolumeError> {
        let pool = Arc::new(recovery::open(&*capacity, &*cache, options)?);
        let shelf = CachedShelf { capacity, pool, changing: Mutex::new(()), threads: Mutex::default() };
        if options.threads == Threads::Background {
            shelf.start("cache-destage", |pool| pool.run_destaging())?;
            if options.policy == CachePolicy::ReadWrite {
                shelf.start("cache-populate", populate::run)?;
            }
            // There may be more to destage than is wanted.
            shelf.pool.destaging.wake();
        }
        Ok(shelf)
    }

    fn start(&self, name: &str, work: impl FnOnce(&CachePool) + Send + 'static) -> Result<(), VolumeError> {
        let (pool, failed) = (self.pool.clone(), self.pool.clone());
        let panicked = move |why: &str| {
            tracing::error!(why, "a write-back cache takes no more changes");
            failed.end(why);
        };
        let thread = supervise::thread(name, move || work(&pool), panicked).map_err(VolumeError::Thread)?;
        self.threads.lock().push(thread);
        Ok(())
    }

    /// What the cache contains and has done.
    pub fn status(&self) -> CacheStatus {
        self.pool.status()
    }

    /// Destages one round of pages, with or without need; returns how many, and at least 1 if it made places free otherwise. For
    /// simulations.
    ///
    /// Errors: those of the devices. A failure of a capacity device poisons that device, one of the cache all of them.
    pub fn destage_step(&self) -> Result<u64, DeviceError> {
        self.pool.destage_round()
    }

    /// Destages until no page is dirty: the capacity then has everything.
    ///
    /// Errors: as for [`destage_step`](CachedShelf::destage_step); [`DeviceError::Poisoned`] if pages are left that cannot be
    /// destaged.
    pub fn destage_all(&self) -> Result<(), DeviceError> {
        self.pool.destage_all()
    }

    /// Ends the service: what is complete is made persistent, in the cache, and the threads end. Devices refuse changes afterwards.
    /// Dropping the shelf ends only the threads.
    ///
    /// Errors: those of a flush.
    pub fn close(&self) -> Result<(), DeviceError> {
        self.stop();
        let persisted = self.pool.persist();
        self.pool.end("the cache is closed");
        persisted
    }

    fn stop(&self) {
        self.pool.destaging.stop();
        populate::stop(&self.pool);
        for thread in self.threads.lock().drain(..) {
            // A panic has been reported by then.
            let _ = thread.join();
        }
    }

    fn assert_name(name: &str) {
        assert!(is_name(name) && name.len() <= CACHED_NAME_BYTES_MAX, "not a name of a cached device: {name:?}");
    }

    fn number_of(&self, name: &str) -> Result<u32, DeviceError> {
        let found = self.pool.names.lock().by_name.get(name).copied();
        found.ok_or_else(|| DeviceError::NotFound { name: name.into() })
    }

    fn check(&self) -> Result<(), DeviceError> {
        if self.pool.is_poisoned() { Err(DeviceError::Poisoned { name: WRITE_BACK.into() }) } else { Ok(()) }
    }

    fn make(
        &self,
        name: &str,
        make: impl FnOnce(&str) -> Result<Arc<dyn Device>, DeviceError>,
    ) -> Result<Arc<dyn Device>, DeviceError> {
        CachedShelf::assert_name(name);
        let _serial = self.changing.lock();
        self.check()?;
        if self.number_of(name).is_ok() {
            return Err(DeviceError::AlreadyExists { name: name.into() });
        }
        let number = self.pool.names.lock().next();
        let device = make(&full_name(number, name)).map_err(|error| error.named(name))?;
        let backing = Backing::new(number, name, device);
        let mut names = self.pool.names.lock();
        names.by_name.insert(name.into(), number);
        let record = names.devices.entry(number).or_default();
        (record.backing, record.handles) = (Some(backing.clone()), 1);
        drop(names);
        Ok(CachedDevice::handle(&self.pool, backing, true))
    }

    fn handle(&self, name: &str, is_writable: bool) -> Result<Arc<dyn Device>, DeviceError> {
        CachedShelf::assert_name(name);
        let _serial = self.changing.lock();
        let number = self.number_of(name)?;
        let open = self.pool.names.lock().backing(number);
        let backing = match open {
            // A device that failed is opened anew: its dirty pages are in the cache.
            Some(backing) if !is_writable || self.pool.check(&backing).is_ok() => backing,
            _ => {
                let full = full_name(number, name);
                let opened = match is_writable {
                    true => self.capacity.open(&full),
                    false => self.capacity.open_read_only(&full),
                };
                Backing::new(number, name, opened.map_err(|error| error.named(name))?)
            }
        };
        if is_writable {
            self.check()?;
            // Also what an earlier handle has written and not flushed.
            self.pool.flush(&backing)?;
        }
        let mut names = self.pool.names.lock();
        let record = names.devices.entry(number).or_default();
        record.handles += 1;
        if is_writable {
            record.backing = Some(backing.clone());
        }
        drop(names);
        Ok(CachedDevice::handle(&self.pool, backing, is_writable))
    }
}

impl Drop for CachedShelf {
    fn drop(&mut self) {
        self.stop();
    }
}

impl fmt::Debug for CachedShelf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachedShelf").field("capacity", &self.capacity).field("pool", &self.pool).finish()
    }
}

impl Shelf for CachedShelf {
    fn create(&self, name: &str, bytes: u64) -> Result<Arc<dyn Device>, DeviceError> {
        self.make(name, |full| self.capacity.create(full, bytes))
    }

    fn create_unwritten(&self, name: &str, bytes: u64) -> Result<Arc<dyn Device>, DeviceError> {
        self.make(name, |full| self.capacity.create_unwritten(full, bytes))
    }

    fn free_bytes(&self) -> Result<Option<u64>, DeviceError> {
        self.capacity.free_bytes()
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        self.handle(name, true)
    }

    fn open_read_only(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        self.handle(name, false)
    }

    fn list(&self) -> Result<Vec<String>, DeviceError> {
        Ok(self.pool.names.lock().by_name.keys().cloned().collect())
    }

    fn remove(&self, name: &str) -> Result<(), DeviceError> {
        CachedShelf::assert_name(name);
        let _serial = self.changing.lock();
        self.check()?;
        let number = self.number_of(name)?;
        self.capacity.remove(&full_name(number, name)).map_err(|error| error.named(name))?;
        let mut names = self.pool.names.lock();
        names.by_name.remove(name);
        let record = names.devices.entry(number).or_default();
        record.is_removed = true;
        // A handle outlives its name, and so do the pages.
        if record.handles == 0 {
            names.devices.remove(&number);
            drop(names);
            self.pool.drop_device(number);
        }
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DeviceError> {
        CachedShelf::assert_name(from);
        CachedShelf::assert_name(to);
        let _serial = self.changing.lock();
        self.check()?;
        let number = self.number_of(from)?;
        if self.number_of(to).is_ok() {
            return Err(DeviceError::AlreadyExists { name: to.into() });
        }
        let renamed = self.capacity.rename(&full_name(number, from), &full_name(number, to));
        renamed.map_err(|error| error.named(from))?;
        let mut names = self.pool.names.lock();
        names.by_name.remove(from);
        names.by_name.insert(to.into(), number);
        Ok(())
    }
}
