//! Which data key a page or an extent is sealed with on its device.

use device::AlignedBuffer;
use encryption::data_key_of;

use super::Cache;
use super::state::Flag;
use crate::StoreError;
use crate::page::PageId;

/// What is dirty, fresh or in a checkpoint is on its way to its device; what is freed is of no interest.
const MOVING: [Flag; 4] = [Flag::Dirty, Flag::Fresh, Flag::Checkpoint, Flag::Freed];

/// The number of the data key that a run is sealed with on its device, as its seal says; `None` if it was made or changed since the last
/// checkpoint, so that the place on the device has something else, or will have. Nothing is verified: without the applier's lock the run may
/// be another one by then.
///
/// Errors: [`StoreError::Device`], [`StoreError::Corrupt`].
pub(crate) fn stored_data_key(cache: &Cache, first: PageId, pages: u32) -> Result<Option<u32>, StoreError> {
    let is_moving = || {
        let state = cache.state(first);
        MOVING.iter().any(|flag| state.has(*flag))
    };
    if is_moving() {
        return Ok(None);
    }
    let last = PageId(first.0 + pages - 1);
    let mut page = AlignedBuffer::zeroed(cache.page_bytes);
    let read = cache.backing.read(last, &mut page);
    if is_moving() {
        return Ok(None);
    }
    read.map_err(|error| error.of_reading(last, 1))?;
    Ok(page.last_chunk().map(data_key_of))
}
