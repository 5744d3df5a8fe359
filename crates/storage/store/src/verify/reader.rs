//! [`UncachedReader`]: the pages of one state, read without a cache, so that the content of the devices is what is
//! checked.
//!
//! ```text
//!   page in a committed batch?  -- yes --> its image        (a store that was not closed, before it is opened again)
//!          | no
//!          v
//!   data devices              verified: a page by its checksum, an extent by its cell's
//! ```
//!
//! It implements [`Pages`] for reading; calls that would change something are refused.

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::AtomicU64;

use bytes::Bytes;
use device::AlignedBuffer;

use crate::StoreError;
use crate::page::{self, Extent, Kind, PageId};
use crate::pages::Pages;
use crate::space::devices::DataDevices;

/// The pages of one state, read only.
#[derive(Debug)]
pub struct UncachedReader<'a> {
    data_devices: &'a DataDevices,
    images: HashMap<PageId, Vec<u8>>,
}

/// A page that was read.
#[derive(Debug)]
pub struct Copied(AlignedBuffer);

impl Deref for Copied {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for Copied {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl AsRef<[u8]> for Copied {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

fn read_only<T>() -> Result<T, StoreError> {
    Err(StoreError::Refused("these pages are read only".into()))
}

impl<'a> UncachedReader<'a> {
    /// The pages of the data devices, except those for which `images` has another image.
    pub(crate) fn new(data_devices: &'a DataDevices, images: HashMap<PageId, Vec<u8>>) -> UncachedReader<'a> {
        UncachedReader { data_devices, images }
    }

    /// The number of pages in `images`.
    pub(crate) fn images(&self) -> usize {
        self.images.len()
    }

    /// The devices.
    pub(crate) fn data_devices(&self) -> &DataDevices {
        self.data_devices
    }

    /// Bytes of a page on its device.
    pub(crate) fn whole_page_bytes(&self) -> usize {
        self.data_devices.geometry().page_bytes as usize
    }

    /// Reads a page without verifying it. Errors: [`StoreError::Device`], [`StoreError::Corrupt`] if there is none.
    pub(crate) fn raw(&self, page: PageId, buffer: &mut [u8]) -> Result<(), StoreError> {
        match self.images.get(&page) {
            Some(image) => buffer.copy_from_slice(image),
            None => self.data_devices.read(page, buffer).map_err(|error| error.of_reading(page, 1))?,
        }
        Ok(())
    }

    fn checked(&self, page: PageId, is_one: fn(Kind) -> bool) -> Result<Copied, StoreError> {
        let mut bytes = AlignedBuffer::zeroed(self.whole_page_bytes());
        self.raw(page, &mut bytes)?;
        let place = crate::cache::BackingStore::place(self.data_devices, page);
        if let Err(error) = page::encrypted::open_with(self.data_devices.sealer(), page, &mut bytes) {
            return Err(StoreError::Corrupt(format!("{place}: {error}").into()));
        }
        match page::kind(&bytes) {
            Some(kind) if is_one(kind) => {
                bytes.truncate(self.page_bytes());
                Ok(Copied(bytes))
            }
            kind => Err(StoreError::Corrupt(format!("{place} is of another kind: {kind:?}").into())),
        }
    }
}

impl Pages for UncachedReader<'_> {
    type Read<'a>
        = Copied
    where
        Self: 'a;
    type Write<'a>
        = Copied
    where
        Self: 'a;

    fn page_bytes(&self) -> usize {
        self.whole_page_bytes() - page::encrypted::seal_bytes(self.data_devices.sealer())
    }

    fn read(&self, page: PageId) -> Result<Copied, StoreError> {
        self.checked(page, |kind| kind != Kind::Inner)
    }

    fn write(&self, _page: PageId) -> Result<Copied, StoreError> {
        read_only()
    }

    fn create_leaf(&self) -> Result<(PageId, Copied), StoreError> {
        read_only()
    }

    fn create_inner(&self, _image: &[u8]) -> Result<PageId, StoreError> {
        read_only()
    }

    fn inner<R>(&self, page: PageId, mut probe: impl FnMut(&[AtomicU64]) -> R) -> Result<R, StoreError> {
        let bytes = self.checked(page, |kind| kind == Kind::Inner)?;
        let words = bytes.as_chunks::<8>().0.iter().map(|word| AtomicU64::new(u64::from_le_bytes(*word)));
        Ok(probe(&words.collect::<Vec<_>>()))
    }

    fn replace_inner(&self, _page: PageId, _image: &[u8]) -> Result<(), StoreError> {
        read_only()
    }

    fn free(&self, _page: PageId) {}

    fn extent_bytes_max(&self) -> usize {
        self.data_devices.extent_bytes_max()
    }

    fn create_extent(&self, _bytes: &[u8]) -> Result<Extent, StoreError> {
        read_only()
    }

    fn read_extent(&self, extent: Extent) -> Result<Bytes, StoreError> {
        let geometry = self.data_devices.geometry();
        let pages = extent.pages(self.whole_page_bytes());
        let (device, place) = geometry.place(extent.first);
        if u64::from(place) + u64::from(pages) > u64::from(geometry.device_pages) {
            let why = format!("the extent at page {} leaves device {device}", extent.first);
            return Err(StoreError::Corrupt(why.into()));
        }
        let mut bytes = AlignedBuffer::zeroed(pages as usize * self.whole_page_bytes());
        // Extents never change, so no batch contains one.
        self.data_devices.read(extent.first, &mut bytes).map_err(|error| error.of_reading(extent.first, pages))?;
        let (stored, sealer) = (extent.bytes as usize, self.data_devices.sealer());
        extent.check(&bytes[..stored])?;
        page::encrypted::open_extent(sealer, extent.first, &mut bytes)?;
        let content = stored.checked_sub(page::encrypted::seal_bytes(sealer)).ok_or_else(|| {
            StoreError::Corrupt(format!("the extent at page {} is shorter than a seal", extent.first).into())
        })?;
        bytes.truncate(content);
        Ok(Bytes::from_owner(Copied(bytes)))
    }

    fn free_extent(&self, _extent: Extent) {}
}
