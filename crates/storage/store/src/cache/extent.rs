//! Extents: runs of pages in one frame, written once and read without copying.

use bytes::Bytes;

use super::state::{Flag, State};
use super::{Cache, other_kind};
use crate::StoreError;
use crate::page::{EXTENT_BYTES_MAX, Extent};

/// What an extent is called in messages.
const EXTENT: &str = "extent of that length now";

impl Cache {
    pub(super) fn create_run(&self, bytes: &[u8]) -> Result<Extent, StoreError> {
        let possible = (1..=EXTENT_BYTES_MAX).contains(&bytes.len());
        assert!(possible, "an extent has 1 to {EXTENT_BYTES_MAX} bytes, not {}", bytes.len());
        let pages = bytes.len().div_ceil(self.page_bytes) as u32;
        let first = self.space.allocate(pages)?;
        let mut frame = match self.frame(&self.near, pages) {
            Ok(frame) => frame,
            Err(error) => {
                self.space.free(first, pages);
                return Err(error);
            }
        };
        frame[..bytes.len()].copy_from_slice(bytes);
        frame[bytes.len()..].fill(0);
        self.publish(first, pages, &frame, true);
        Ok(Extent::of(first, bytes))
    }

    pub(super) fn read_run(&self, extent: Extent) -> Result<Bytes, StoreError> {
        let (first, bytes) = (extent.first, extent.bytes as usize);
        if extent.bytes == 0 || bytes > EXTENT_BYTES_MAX {
            return Err(other_kind(first, EXTENT));
        }
        let pages = extent.pages(self.page_bytes);
        loop {
            let state = self.state(first);
            let frame = match self.tier(first, state, EXTENT)? {
                None => {
                    // It says that it is an extent from its first reading on; a page that was never in memory says nothing.
                    let loaded = self.load(first, state, pages, |read| extent.check(&read[..bytes]))?;
                    let Some(frame) = loaded else { continue };
                    let _ = self.change(first, |now| Some(now.with(Flag::Extent)));
                    frame.downgrade()
                }
                Some(tier) => {
                    let Some(frame) = tier.arena.shared(state.frame()) else { continue };
                    frame
                }
            };
            let now = self.state(first);
            if now.frame() != frame.number() || self.tier(first, now, EXTENT)?.is_none() {
                continue;
            }
            if !fits(now, pages) {
                return Err(other_kind(first, EXTENT));
            }
            self.seen(first, now);
            return Ok(Bytes::from_owner(self.near.arena.lease(&frame, bytes)));
        }
    }
}

/// Whether a page in memory can be that extent.
fn fits(state: State, pages: u32) -> bool {
    state.has(Flag::Extent) && state.pages() == pages
}
