//! Opening what a stopped node has left, without changing it: recovery writes to a layer of memory. And reading what a running
//! one answered.

use std::path::Path;
use std::sync::Arc;

use device::{DeviceError, FileShelf, MemoryShelf, OverlayShelf, Shelf};
use journal::{Check, Preparation, RECORD_BYTES_LIMIT};
use serde_json::Value;
use store::{Options, Places, Store};

use crate::error::InteropError;
use crate::location::{self, Hold, Location, Locations};
use crate::rows::Rows;

/// Page cache of a look: enough for the inner pages of many gigabytes, and no burden beside another node.
const CACHE_BYTES: u64 = 64 << 20;

/// Opens the store of the node whose data directory is `data`, while none runs there. What recovery and later work write
/// stays in memory; the directory is held as long as the answer lives, unless it may only be read.
///
/// # Errors
/// There is none, it lies in memory, or it cannot be read; `Device` with `Busy` where somebody has it.
pub fn open_stopped(data: &Path) -> Result<(Store, Option<Hold>), InteropError> {
    let places = location::locations(data)?;
    let hold = hold(data)?;
    Ok((open_at(data, &places)?, hold))
}

/// Holds the data directory, unless it may only be read.
///
/// # Errors
/// `Device` with `Busy` where somebody has it.
pub(crate) fn hold(data: &Path) -> Result<Option<Hold>, InteropError> {
    match Hold::take(data) {
        Ok(hold) => Ok(Some(hold)),
        Err(InteropError::File { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens the store that lies at `places`, relative to the folder `data`, over a layer of memory.
///
/// # Errors
/// It cannot be read, or recovery is refused.
pub(crate) fn open_at(data: &Path, places: &Locations) -> Result<Store, InteropError> {
    open_places(places_over(data, places)?, false)
}

/// Opens a store to be repaired.
///
/// # Errors
/// As opening it.
pub(crate) fn open_to_repair(places: Places) -> Result<Store, InteropError> {
    open_places(places, true)
}

/// The places of a stopped node under a layer of memory.
///
/// # Errors
/// They cannot be read.
pub(crate) fn places_over(data: &Path, places: &Locations) -> Result<Places, InteropError> {
    let shelf = |location: &Location| -> Result<Arc<dyn Shelf>, InteropError> {
        let Some(folder) = location.folder_in(data) else { return Ok(Arc::new(MemoryShelf::new())) };
        // Devices of a persistent-memory tier are files, and are read as such.
        let below: Arc<dyn Shelf> = match FileShelf::open_read_only(&folder) {
            Ok(shelf) => Arc::new(shelf),
            // A node of a release without pages has none; the journal makes them.
            Err(DeviceError::NotFound { .. }) => Arc::new(MemoryShelf::new()),
            Err(error) => return Err(error.into()),
        };
        Ok(Arc::new(OverlayShelf::new(below)?))
    };
    Ok(Places { journal: shelf(&places.journal)?, images: shelf(&places.images)?, data: shelf(&places.data)? })
}

fn open_places(places: Places, repair: bool) -> Result<Store, InteropError> {
    let journal = journal::Options {
        max_record_bytes: RECORD_BYTES_LIMIT,
        check: Check::Tail,
        preparation: Preparation::Inline,
        ..journal::Options::default()
    };
    let options = Options {
        cache_bytes: CACHE_BYTES,
        journal,
        interpreter: Some(Arc::new(Rows)),
        // Nothing is written that need not be.
        background: false,
        repair,
        ..Options::default()
    };
    Ok(Store::open(places, options)?.0)
}

/// What a running node answered, as what it is.
pub(crate) fn read<T: serde::de::DeserializeOwned>(answer: Value) -> Result<T, InteropError> {
    serde_json::from_value(answer)
        .map_err(|_| InteropError::NodeRefused("what this release cannot read; is it of the same release?".to_owned()))
}
