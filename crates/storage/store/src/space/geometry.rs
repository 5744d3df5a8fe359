//! [`Geometry`]: the place of a page. Pure arithmetic.
//!
//! ```text
//!   device 0   | 0 superblock | map | ... | pages                         pages-0000
//!   device 1   | map | ... | pages                                        pages-0001
//!
//!   page p lies in device p / device_pages, at byte p % device_pages * page_bytes
//!   each device begins with its own map: one bit per page, in as many map pages as that needs
//! ```
//!
//! Because the places are fixed, no table of the map's places is needed, which could be lost too. All devices of a
//! store have the same size, a power of two of pages, so that runs that are aligned in a device are aligned in the
//! store.

use crate::StoreError;
use crate::page::{FIRST_EXTERNAL, HEADER_BYTES, PageId, is_page_bytes};

/// Largest run that [`crate::space::Space::allocate`] returns, in bytes.
pub(crate) const RUN_BYTES_MAX: u32 = 1 << 20;

/// Sizes that never change once a store is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    /// Bytes of a page: a power of two, 4 to 64 KiB.
    pub(crate) page_bytes: u32,
    /// Pages of a device: a power of two.
    pub(crate) device_pages: u32,
}

impl Geometry {
    /// Errors: [`StoreError::Refused`] for sizes that no store can have.
    pub(crate) fn new(page_bytes: u32, device_bytes: u64) -> Result<Geometry, StoreError> {
        let geometry = Geometry { page_bytes, device_pages: (device_bytes / u64::from(page_bytes.max(1))) as u32 };
        if !geometry.is_sound() || geometry.device_bytes() != device_bytes {
            let why = format!(
                "pages of {page_bytes} bytes in devices of {device_bytes}: a page has 4096 to 65536 bytes, a device 64 \
                 pages or more, both a power of two"
            );
            return Err(StoreError::Refused(why.into()));
        }
        Ok(geometry)
    }

    /// Whether a store can have these sizes; used to check what was read from a medium.
    pub(crate) fn is_sound(self) -> bool {
        is_page_bytes(self.page_bytes as usize)
            && (64..=1 << 30).contains(&self.device_pages)
            && self.device_pages.is_power_of_two()
    }

    /// Bytes of a device.
    pub(crate) fn device_bytes(self) -> u64 {
        u64::from(self.device_pages) * u64::from(self.page_bytes)
    }

    /// Largest number of devices that page numbers can address; numbers from [`FIRST_EXTERNAL`] on belong to files that
    /// are not the store's.
    pub(crate) fn devices_max(self) -> u32 {
        FIRST_EXTERNAL / self.device_pages
    }

    /// The device of a page, and the page's place in it.
    pub(crate) fn place(self, page: PageId) -> (u32, u32) {
        (page.0 / self.device_pages, page.0 % self.device_pages)
    }

    /// The page at a place.
    pub(crate) fn page(self, device: u32, place: u32) -> PageId {
        PageId(device * self.device_pages + place)
    }

    /// Byte offset of a page in its device.
    pub(crate) fn offset(self, page: PageId) -> u64 {
        u64::from(self.place(page).1) * u64::from(self.page_bytes)
    }

    /// The number of words, of 64 pages each, in one map page.
    pub(crate) fn map_words(self) -> usize {
        (self.page_bytes as usize - HEADER_BYTES) / 8
    }

    /// Map pages of each device.
    pub(crate) fn maps(self) -> u32 {
        (self.device_pages / 64).div_ceil(self.map_words() as u32)
    }

    /// The `nth` map page of a device.
    pub(crate) fn map_page(self, device: u32, nth: u32) -> PageId {
        self.page(device, u32::from(device == 0) + nth)
    }

    /// Pages at the beginning of a device that are reserved for the store.
    pub(crate) fn reserved(self, device: u32) -> u32 {
        u32::from(device == 0) + self.maps()
    }

    /// Largest number of pages of a run.
    pub(crate) fn run_pages_max(self) -> u32 {
        (RUN_BYTES_MAX / self.page_bytes).min(self.device_pages / 2)
    }

    /// Largest size of a run, and so of an extent, bytes.
    pub(crate) fn run_bytes_max(self) -> usize {
        (self.run_pages_max() * self.page_bytes) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_no_store_has_are_refused() {
        for (page, device) in
            [(4095, 1 << 20), (2048, 1 << 20), (131_072, 1 << 30), (8192, 8192 * 32), (8192, 12 << 20), (0, 1)]
        {
            assert!(matches!(Geometry::new(page, device), Err(StoreError::Refused(_))), "{page} {device}");
        }
    }

    #[test]
    fn every_page_has_one_place_and_the_map_holds_a_bit_for_each() {
        for page_bytes in [4096, 8192, 16_384, 65_536] {
            for device_pages in [64, 1024, 32_768, 1 << 18] {
                let geometry = Geometry::new(page_bytes, u64::from(page_bytes) * device_pages).expect("sound");
                assert!(geometry.maps() as usize * geometry.map_words() * 64 >= device_pages as usize);
                assert!(u64::from(geometry.reserved(0)) < device_pages, "room is left");
                for device in [0, 1, geometry.devices_max() - 1] {
                    let page = geometry.page(device, 17);
                    assert_eq!(geometry.place(page), (device, 17));
                    assert_eq!(geometry.offset(page), 17 * u64::from(page_bytes));
                }
                assert_eq!(geometry.map_page(0, 0), PageId(1), "behind the superblock");
                assert_eq!(geometry.map_page(1, 0), geometry.page(1, 0));
            }
        }
    }
}
