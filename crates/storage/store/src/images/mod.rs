//! The write image journal, elsewhere called the double-write buffer: changed pages are written here, whole and
//! persistent, before any of them is overwritten on the data devices.
//!
//! ```text
//!   shelf      images-0000                                    images-0001 ...
//!
//!   bytes      | header | header | table | image | image | ... image | image | .... |
//!               0        4096     8192    next block             a batch continues in the next device
//!
//!   write        images, then the table                              flush
//!   commit       header: checkpoint, redo LSN, count, checksum       flush      from here on the batch is the state
//!   in place     every image at its page                             flush      (not here: the checkpoint does it)
//!   invalidate   header: the same, invalid                           flush      only then may the next batch overwrite this one
//! ```
//!
//! A drive may tear a page of 8 KiB between sectors, and no drive writes several pages atomically. Opening writes a
//! committed batch in place again, after every crash; a batch that is not committed has no effect. So the data devices
//! contain the state at some redo LSN, and redo from there does not depend on pages.
//!
//! Pages to which nothing durable refers (allocated since the last checkpoint began) do not pass through here: if one
//! is torn, it is a free page.
//!
//! **Why the commit mark has a flush of its own.** With one flush for images and mark, a committed batch that does not
//! verify could be the result of a crash before that flush; or it could be damage after it, when pages on the data
//! devices are half written. With a separate flush it is always damage; its millisecond is small against a checkpoint
//! of some seconds. **Why the header has two copies**: a single changed bit must not turn a committed batch into one
//! that was never committed. If a crash left the copies different, opening makes them equal ([`Images::even`]). **Why
//! invalidating is flushed**: otherwise the header could be found as committed again over images that the next batch
//! has overwritten.
//!
//! Batches are streamed, a mebibyte at a time; the table is written last. If the devices are too small for a batch,
//! more are created before its first byte is written. [`decide`] has the decision of opening.
//!
//! Invariants: one batch at a time; nothing of a batch is written before the previous one is persistently invalidated.

pub(crate) mod decide;
pub(crate) mod format;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use device::{AlignedBuffer, Device, DeviceError, Shelf};

use crate::StoreError;
use crate::page::PageId;
use crate::space::devices::DataDevices;
use crate::space::geometry::Geometry;
use crate::space::poison::Poison;
use crate::space::superblock::{self, Superblock};
use format::{
    BatchHeader, ENTRY_BYTES, HEADER_BYTES, Headers, Mark, TABLE, batch_bytes, entries, entry, images_at, sum,
};
use journal::Lsn;

/// Bytes per write.
const CHUNK_BYTES: usize = 1 << 20;

/// The write image journal of a store.
#[derive(Debug)]
pub(crate) struct Images {
    shelf: Arc<dyn Shelf>,
    devices: Vec<Arc<dyn Device>>,
    poison: Poison,
    /// The headers that opening found.
    headers: Headers,
    /// Whether both copies of the header are equal.
    is_even: bool,
}

/// A batch that is being written.
#[derive(Debug)]
pub(crate) struct Batch {
    header: BatchHeader,
    table: Vec<u8>,
    buffer: AlignedBuffer,
    /// Where the buffer will be written.
    at: u64,
}

/// The result of a restoration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Restored {
    /// Images written in place.
    pub(crate) pages: u32,
    /// Images that were damaged, but whose pages are right on the data devices.
    pub(crate) damaged: u32,
}

fn device_name(number: usize) -> String {
    format!("images-{number:04}")
}

impl Images {
    /// Opens the existing devices; `None` if there are none.
    ///
    /// Errors: [`StoreError::Corrupt`] if one is missing between others or has another size; [`StoreError::Device`].
    pub(crate) fn open(shelf: Arc<dyn Shelf>, poison: Poison, writable: bool) -> Result<Option<Images>, StoreError> {
        let names: Vec<String> = shelf.list()?.into_iter().filter(|name| name.starts_with("images-")).collect();
        let mut devices: Vec<Arc<dyn Device>> = Vec::new();
        for (number, name) in names.iter().enumerate() {
            if *name != device_name(number) {
                let why = format!("{} is missing, but {name} exists", device_name(number));
                return Err(StoreError::Corrupt(why.into()));
            }
            let device = if writable { shelf.open(name)? } else { shelf.open_read_only(name)? };
            if devices.first().is_some_and(|first| first.len() != device.len()) {
                let why = format!("{name} has {} bytes, {} another number", device.len(), device_name(0));
                return Err(StoreError::Corrupt(why.into()));
            }
            devices.push(device);
        }
        let Some(first) = devices.first() else { return Ok(None) };
        let mut copies = AlignedBuffer::zeroed(TABLE as usize);
        first.read(0, &mut copies)?;
        let headers = match Headers::decode(&copies) {
            Headers::Torn if first.atom_bytes() >= HEADER_BYTES as u32 => Headers::Damaged,
            found => found,
        };
        let is_even = copies[..TABLE as usize / 2] == copies[TABLE as usize / 2..];
        Ok(Some(Images { shelf, devices, poison, headers, is_even }))
    }

    /// Creates an empty one, of devices of `device_bytes` each.
    ///
    /// Errors: [`StoreError::Full`], [`StoreError::Device`].
    pub(crate) fn create(shelf: Arc<dyn Shelf>, poison: Poison, device_bytes: u64) -> Result<Images, StoreError> {
        let mut images = Images { shelf, devices: Vec::new(), poison, headers: Headers::Zeros, is_even: true };
        images.grow(device_bytes)?;
        Ok(images)
    }

    /// The headers that opening found.
    pub(crate) fn headers(&self) -> Headers {
        self.headers
    }

    /// Bytes of all devices.
    pub(crate) fn capacity(&self) -> u64 {
        self.devices.len() as u64 * self.device_bytes()
    }

    fn device_bytes(&self) -> u64 {
        self.devices[0].len()
    }

    fn grow(&mut self, bytes: u64) -> Result<(), StoreError> {
        let name = device_name(self.devices.len());
        let device = match self.shelf.create(&name, bytes) {
            // An earlier attempt returned an error but had taken effect.
            Err(DeviceError::AlreadyExists { .. }) => self.shelf.open(&name),
            other => other,
        };
        let device = self.poison.made(device)?;
        self.devices.push(device);
        Ok(())
    }

    /// Creates devices until a batch of `count` images fits.
    ///
    /// Errors: [`StoreError::Full`] (retry when there is space), [`StoreError::Device`]; some devices may have been
    /// created.
    pub(crate) fn reserve(&mut self, geometry: Geometry, count: u32) -> Result<(), StoreError> {
        while self.capacity() < batch_bytes(geometry.page_bytes, count) {
            self.grow(self.device_bytes())?;
        }
        Ok(())
    }

    /// The part of a range that lies in one device: the device, the offset in it, and the length.
    fn part(&self, at: u64, bytes: usize) -> (&Arc<dyn Device>, u64, usize) {
        let (device, offset) = ((at / self.device_bytes()) as usize, at % self.device_bytes());
        (&self.devices[device], offset, bytes.min((self.device_bytes() - offset) as usize))
    }

    fn write(&self, mut at: u64, mut bytes: &[u8]) -> Result<(), StoreError> {
        self.poison.check()?;
        while !bytes.is_empty() {
            let (device, offset, part) = self.part(at, bytes.len());
            device.write(offset, &bytes[..part]).map_err(|error| self.poison.set(&error))?;
            bytes = &bytes[part..];
            at += part as u64;
        }
        Ok(())
    }

    fn read(&self, mut at: u64, mut bytes: &mut [u8]) -> Result<(), StoreError> {
        while !bytes.is_empty() {
            let (device, offset, part) = self.part(at, bytes.len());
            let (head, rest) = bytes.split_at_mut(part);
            device.read(offset, head)?;
            bytes = rest;
            at += part as u64;
        }
        Ok(())
    }

    fn flush(&self, bytes: u64) -> Result<(), StoreError> {
        self.poison.check()?;
        let used = bytes.div_ceil(self.device_bytes()) as usize;
        self.devices[..used].iter().try_for_each(|device| device.flush().map_err(|error| self.poison.set(&error)))
    }

    /// Begins a batch, for which [`reserve`](Images::reserve) has made space.
    pub(crate) fn begin(&self, identity: u64, geometry: Geometry, checkpoint: u64, redo_lsn: Lsn, count: u32) -> Batch {
        assert!(self.capacity() >= batch_bytes(geometry.page_bytes, count), "room is reserved before a batch begins");
        let header = BatchHeader { identity, geometry, checkpoint, redo_lsn, count, table: 0 };
        Batch { header, table: Vec::new(), buffer: AlignedBuffer::new(), at: header.images() }
    }

    /// Adds one image; writes when enough are gathered.
    ///
    /// Errors: [`StoreError::Poisoned`].
    pub(crate) fn push(&self, batch: &mut Batch, page: PageId, image: &[u8]) -> Result<(), StoreError> {
        assert_eq!(image.len(), batch.header.geometry.page_bytes as usize, "an image is a page");
        batch.table.extend_from_slice(&entry(page, sum(image)));
        batch.buffer.extend_from_slice(image);
        if batch.buffer.len() >= CHUNK_BYTES { self.drain(batch) } else { Ok(()) }
    }

    fn drain(&self, batch: &mut Batch) -> Result<(), StoreError> {
        self.write(batch.at, &batch.buffer)?;
        batch.at += batch.buffer.len() as u64;
        batch.buffer.clear();
        Ok(())
    }

    /// Writes the rest and the table, and makes all of it persistent. The batch does not count before it is committed.
    ///
    /// Errors: [`StoreError::Poisoned`].
    pub(crate) fn seal(&self, mut batch: Batch) -> Result<BatchHeader, StoreError> {
        assert_eq!(batch.table.len(), batch.header.count as usize * ENTRY_BYTES, "as many images as were announced");
        self.drain(&mut batch)?;
        let header = BatchHeader { table: sum(&batch.table), ..batch.header };
        batch.buffer.extend_from_slice(&batch.table);
        batch.buffer.pad_to_block();
        self.write(TABLE, &batch.buffer)?;
        self.flush(header.bytes())?;
        Ok(header)
    }

    /// Commits or invalidates a sealed batch; persistent when it returns.
    ///
    /// Errors: [`StoreError::Poisoned`]; the next opening determines whether the mark is persistent.
    pub(crate) fn mark(&self, header: &BatchHeader, mark: Mark) -> Result<(), StoreError> {
        let mut copies = AlignedBuffer::new();
        copies.extend_from_slice(&header.encode(mark));
        self.write(0, &copies)?;
        self.flush(TABLE)
    }

    /// Makes both copies of the header equal to what opening found, if a crash left them different: the next mark may
    /// tear one of them, and the other must then not be that of an earlier batch.
    ///
    /// Errors: [`StoreError::Poisoned`].
    pub(crate) fn even(&self) -> Result<(), StoreError> {
        match self.headers {
            Headers::Batch(header, mark) if !self.is_even => self.mark(&header, mark),
            _ => Ok(()),
        }
    }

    /// The table of a batch, or `None` if it does not verify.
    fn table(&self, header: &BatchHeader) -> Result<Option<Vec<u8>>, StoreError> {
        if self.capacity() < header.bytes() {
            return Ok(None);
        }
        let bytes = header.count as usize * ENTRY_BYTES;
        let mut table = AlignedBuffer::zeroed(bytes.next_multiple_of(4096));
        self.read(TABLE, &mut table)?;
        table.truncate(bytes);
        Ok((sum(&table) == header.table).then(|| table.to_vec()))
    }

    /// Calls `visit` with each page of a batch, the expected checksum of its image, and the image; returns `false` if
    /// the table does not verify.
    ///
    /// Errors: [`StoreError::Device`], those of `visit`.
    pub(crate) fn visit(
        &self,
        header: &BatchHeader,
        mut visit: impl FnMut(PageId, u32, &[u8]) -> Result<(), StoreError>,
    ) -> Result<bool, StoreError> {
        let Some(table) = self.table(header)? else { return Ok(false) };
        let page_bytes = header.geometry.page_bytes as usize;
        let per_chunk = CHUNK_BYTES / page_bytes;
        let mut at = images_at(header.count);
        for chunk in table.chunks(per_chunk * ENTRY_BYTES) {
            let mut buffer = AlignedBuffer::zeroed(chunk.len() / ENTRY_BYTES * page_bytes);
            self.read(at, &mut buffer)?;
            at += buffer.len() as u64;
            for ((page, expected), image) in entries(chunk).zip(buffer.chunks_exact(page_bytes)) {
                visit(page, expected, image)?;
            }
        }
        Ok(true)
    }

    /// Writes a committed batch in place, makes that persistent, and invalidates the batch. Repeating it changes
    /// nothing.
    ///
    /// Errors: [`StoreError::Corrupt`], with the pages, if images are damaged and the data devices do not contain them
    /// either; the others have been restored. [`StoreError::Device`], [`StoreError::Poisoned`].
    pub(crate) fn restore(&self, header: &BatchHeader, data_devices: &DataDevices) -> Result<Restored, StoreError> {
        let mut restored = Restored::default();
        let mut lost = Vec::new();
        let mut on_devices = AlignedBuffer::zeroed(header.geometry.page_bytes as usize);
        let has_table = self.visit(header, |page, expected, image| {
            if sum(image) == expected {
                restored.pages += 1;
                return data_devices.write(page, image);
            }
            data_devices.read(page, &mut on_devices)?;
            restored.damaged += 1;
            if sum(&on_devices) != expected {
                lost.push(page.0);
            }
            Ok(())
        })?;
        data_devices.flush()?;
        if !has_table || !lost.is_empty() {
            let what = if has_table { format!("pages {lost:?}") } else { "its table of pages".into() };
            let why = format!(
                "the write image journal was committed at checkpoint {} and is damaged: {what}; restore a backup",
                header.checkpoint
            );
            return Err(StoreError::Corrupt(why.into()));
        }
        self.mark(header, Mark::Invalid)?;
        Ok(restored)
    }

    /// The superblock of a batch, if its image is whole. Errors: [`StoreError::Device`].
    pub(crate) fn superblock(&self, header: &BatchHeader) -> Result<Option<(Superblock, Vec<u8>)>, StoreError> {
        let mut found = None;
        self.visit(header, |page, expected, image| {
            if page == superblock::PAGE && sum(image) == expected {
                found = Superblock::decode(image).ok().map(|superblock| (superblock, image.to_vec()));
            }
            Ok(())
        })?;
        Ok(found.filter(|(superblock, _)| {
            (superblock.identity, superblock.checkpoint) == (header.identity, header.checkpoint)
        }))
    }

    /// Whether an invalid batch was partly overwritten: a checkpoint had begun that was never committed.
    ///
    /// Errors: [`StoreError::Device`].
    pub(crate) fn is_overwritten(&self, header: &BatchHeader) -> Result<bool, StoreError> {
        let Some(table) = self.table(header)? else { return Ok(true) };
        let Some((_, expected)) = entries(&table).next() else { return Ok(false) };
        let mut image = AlignedBuffer::zeroed(header.geometry.page_bytes as usize);
        self.read(header.images(), &mut image)?;
        Ok(sum(&image) != expected)
    }
}

impl fmt::Display for BatchHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BatchHeader { identity, geometry, checkpoint, redo_lsn, count, table } = self;
        write!(
            f,
            "store {identity:016x} checkpoint {checkpoint} applied {redo_lsn} page_bytes {} device_pages {} images {count} table {table:08x}",
            geometry.page_bytes, geometry.device_pages
        )
    }
}
