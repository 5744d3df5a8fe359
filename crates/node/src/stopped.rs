//! Opens the store of a stopped node without changing it: recovery writes to a layer of memory.
//!
//! The interpreter of the services' records is a parameter: recovery applies the journal with it.

use std::path::Path;
use std::sync::Arc;

use ::encryption::Sealer;
use device::{DeviceError, FileShelf, MemoryShelf, OverlayShelf, Shelf};
use journal::{Check, Preparation, RECORD_BYTES_LIMIT};
use store::{Interpreter, Options, Places, Store};

use crate::encryption;
use crate::error::NodeError;
use crate::location::{self, Location, Locations};
use crate::lock::DirectoryLock;

/// Page cache of a look: enough for the inner pages of many gigabytes, and no burden beside another node.
const CACHE_BYTES: u64 = 64 << 20;

/// Opens the store of the node whose data directory is `data`, while no node runs there. The changes of recovery and
/// later work stays in memory; the directory is locked as long as the lock lives, unless it may only be read.
///
/// # Errors
/// There is none, it lies in memory, or it cannot be read; `Device` with `Busy` where another process has it.
pub fn open_stopped(
    data: &Path,
    interpreter: Arc<dyn Interpreter>,
) -> Result<(Store, Option<DirectoryLock>), NodeError> {
    let locations = location::locations(data)?;
    let lock = DirectoryLock::acquire_to_read(data)?;
    Ok((open_at(data, &locations, interpreter)?, lock))
}

/// Opens the store that lies at `locations`, relative to the folder `data`, over a layer of memory.
///
/// # Errors
/// It cannot be read, or recovery is refused.
pub fn open_at(data: &Path, locations: &Locations, interpreter: Arc<dyn Interpreter>) -> Result<Store, NodeError> {
    open_places(places_over(data, locations)?, interpreter, false, encryption::to_look(data)?)
}

/// Opens a store to be repaired; `sealer` is that of its data directory.
///
/// # Errors
/// As opening it.
pub fn open_to_repair(
    places: Places,
    interpreter: Arc<dyn Interpreter>,
    sealer: Option<Arc<Sealer>>,
) -> Result<Store, NodeError> {
    open_places(places, interpreter, true, sealer)
}

/// Opens a store itself, to write a little.
///
/// # Errors
/// As opening it.
pub(crate) fn open_to_write(
    places: Places,
    interpreter: Arc<dyn Interpreter>,
    sealer: Option<Arc<Sealer>>,
) -> Result<Store, NodeError> {
    open_places(places, interpreter, false, sealer)
}

/// The places of a stopped node under a layer of memory.
///
/// # Errors
/// They cannot be read.
pub fn places_over(data: &Path, locations: &Locations) -> Result<Places, NodeError> {
    let shelf = |location: &Location| -> Result<Arc<dyn Shelf>, NodeError> {
        let below = shelf_to_read(data, location)?;
        Ok(if location.folder.is_none() { below } else { Arc::new(OverlayShelf::new(below)?) })
    };
    Ok(Places { journal: shelf(&locations.journal)?, images: shelf(&locations.images)?, data: shelf(&locations.data)? })
}

/// The shelf at a location, to be read; an empty one where nothing lies there.
///
/// # Errors
/// It cannot be read.
pub(crate) fn shelf_to_read(data: &Path, location: &Location) -> Result<Arc<dyn Shelf>, NodeError> {
    let Some(folder) = location.folder_in(data) else { return Ok(Arc::new(MemoryShelf::new())) };
    // Devices of a persistent-memory tier are files, and are read as such.
    match FileShelf::open_read_only(&folder) {
        Ok(shelf) => Ok(Arc::new(shelf)),
        // A node of a release without pages has none; the journal makes them.
        Err(DeviceError::NotFound { .. }) => Ok(Arc::new(MemoryShelf::new())),
        Err(error) => Err(error.into()),
    }
}

fn open_places(
    places: Places,
    interpreter: Arc<dyn Interpreter>,
    repair: bool,
    sealer: Option<Arc<Sealer>>,
) -> Result<Store, NodeError> {
    let journal = journal::Options {
        max_record_bytes: RECORD_BYTES_LIMIT,
        check: Check::Tail,
        preparation: Preparation::Inline,
        sealer,
        ..journal::Options::default()
    };
    let options = Options {
        cache_bytes: CACHE_BYTES,
        journal,
        interpreter: Some(interpreter),
        // Nothing is written that need not be.
        background: false,
        repair,
        ..Options::default()
    };
    Ok(Store::open(places, options)?.0)
}
