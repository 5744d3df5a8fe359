//! Extents: runs of pages in one frame, written once and read without copying. Those of an encrypted store are in clear here.

use bytes::Bytes;
use device::AlignedBuffer;
use encryption::SEAL_BYTES;

use super::far::Hint;
use super::state::{Flag, Place};
use super::{Cache, other_kind};
use crate::StoreError;
use crate::page::encrypted::{open_extent, seal_bytes, seal_extent};
use crate::page::{EXTENT_BYTES_MAX, Extent, PageId};

/// The name of an extent in messages.
const EXTENT: &str = "an extent of that length now";

impl Cache {
    pub(super) fn create_run(&self, bytes: &[u8]) -> Result<Extent, StoreError> {
        let sealer = self.backing.sealer();
        let stored = bytes.len() + seal_bytes(sealer);
        let possible = !bytes.is_empty() && stored <= EXTENT_BYTES_MAX;
        assert!(possible, "an extent has 1 to {EXTENT_BYTES_MAX} bytes, not {stored}");
        let pages = stored.div_ceil(self.page_bytes) as u32;
        let first = self.space.allocate(pages)?;
        let mut frame = match self.in_time(|| self.frame(&self.main, pages)) {
            Ok(frame) => frame,
            Err(error) => {
                self.space.free(first, pages);
                return Err(error);
            }
        };
        frame[..bytes.len()].copy_from_slice(bytes);
        frame[bytes.len()..].fill(0);
        let extent = match sealer {
            None => Extent::of(first, &frame[..stored]),
            Some(sealer) => {
                // The checksum is that of what is stored; in memory the value stays readable, and keeps its seal.
                let mut image = AlignedBuffer::from(&frame[..pages as usize * self.page_bytes]);
                seal_extent(sealer, first, &mut image);
                let seal = image.len() - SEAL_BYTES;
                frame[seal..image.len()].copy_from_slice(&image[seal..]);
                Extent::of(first, &image[..stored])
            }
        };
        self.publish(first, pages, &frame, true);
        Ok(extent)
    }

    /// As [`read_extent`](crate::pages::Pages::read_extent), with a hint about the reader's use.
    pub fn read_extent_with(&self, extent: Extent, hint: Hint) -> Result<Bytes, StoreError> {
        let (first, bytes) = (extent.first, extent.bytes as usize);
        if extent.bytes == 0 || bytes > EXTENT_BYTES_MAX {
            return Err(other_kind(first, EXTENT));
        }
        let stored = self.read_run(first, bytes, hint, |buffer| {
            let pages = extent.pages(self.page_bytes);
            self.backing.read(first, buffer).map_err(|error| error.of_reading(first, pages))?;
            extent.check(&buffer[..bytes])?;
            open_extent(self.backing.sealer(), first, buffer).map_err(|error| self.at_place(first, error))
        })?;
        let content = bytes.checked_sub(seal_bytes(self.backing.sealer())).ok_or_else(|| other_kind(first, EXTENT))?;
        Ok(stored.slice(..content))
    }

    /// Returns the bytes of a run without headers; if it is not in memory, `fill` reads and verifies it.
    pub(super) fn read_run(
        &self,
        first: PageId,
        bytes: usize,
        hint: Hint,
        fill: impl Fn(&mut [u8]) -> Result<(), StoreError>,
    ) -> Result<Bytes, StoreError> {
        let pages = bytes.div_ceil(self.page_bytes) as u32;
        let mut may_promote = hint == Hint::Point;
        loop {
            let state = self.state(first);
            let Some(tier) = self.tier(first, state, EXTENT)? else {
                // The word gets its extent flag when the extent is first read; for a page that was never in memory the
                // flag is unknown.
                let frame = match self.load(first, state, pages, hint, &fill) {
                    Ok(Some(frame)) => frame,
                    Err(StoreError::Full(_)) => match self.read_past(first, state, pages, &fill)? {
                        Some(copy) => return Ok(Bytes::from_owner(Copied(copy)).slice(..bytes)),
                        None => continue,
                    },
                    Ok(None) => continue,
                    Err(error) => return Err(error),
                };
                let _ = self.change(first, |now| Some(now.with(Flag::Extent)));
                return Ok(Bytes::from_owner(self.main.arena.pin(&frame.downgrade(), bytes)));
            };
            if !(state.has(Flag::Extent) && state.pages() == pages) {
                // A first reader may be about to find out what it is: wait for its latch.
                drop(tier.arena.shared(state.frame()));
                if self.state(first) == state {
                    return Err(other_kind(first, EXTENT));
                }
                continue;
            }
            if may_promote && tier.place == Place::Far {
                may_promote = false;
                if self.promote.wins() && self.promote(first, state) {
                    continue;
                }
            }
            let Some(frame) = tier.arena.shared(state.frame()) else { continue };
            let now = self.state(first);
            if now.is_where(state) && now.has(Flag::Extent) {
                self.used(tier, first, now, hint);
                return Ok(Bytes::from_owner(tier.arena.pin(&frame, bytes)));
            }
        }
    }
}

/// Bytes outside the cache.
struct Copied(AlignedBuffer);

impl AsRef<[u8]> for Copied {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}
