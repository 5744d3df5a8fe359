//! [`OpenedPages`]: the pages of an opened store: they are whole, and they are the state at the redo LSN.
//!
//! ```text
//!   look        reads the headers of the write image journal and the superblock on the data devices; changes nothing
//!   decide      images::decide, a pure table
//!   create      images first, then pages under a temporary name, renamed when they are persistent
//!   restore     a committed batch is written in place
//!   compare     superblock against journal: identity and range of LSNs
//!   maps        read and checked
//! ```
//!
//! After a crash at any point in here, the next opening takes the same decision. If opening is refused, nothing was
//! changed, except that a batch may have been restored.

use std::sync::Arc;

use device::{AlignedBuffer, DeviceError, Shelf};
use encryption::Sealer;
use journal::Lsn;

use crate::StoreError;
use crate::checkpoint::writer::CheckpointWriter;
use crate::images::decide::{DataState, Refusal, Verdict, decide};
use crate::images::format::{Headers, Mark};
use crate::images::{Images, Restored};
use crate::page::PageId;
use crate::space::bitmap::Bitmap;
use crate::space::devices::{DataDevices, device_name};
use crate::space::geometry::Geometry;
use crate::space::poison::Poison;
use crate::space::superblock::{self, Superblock, Unreadable};
use crate::space::{Space, map};

/// Name of a data device that is being created; it counts once it has its final name.
const UNFINISHED: &str = "making-pages";

/// Sizes of devices; they take effect when the store, or the write image journal, is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Size of a page: a power of two, 4 to 64 KiB. Default 8 KiB.
    pub page_bytes: u32,
    /// Size of each data device: a power of two of pages, 64 or more. Default 256 MiB.
    pub data_device_bytes: u64,
    /// Size of each device of the write image journal, a multiple of 4 KiB, at least 64 KiB. Default 64 MiB.
    pub images_device_bytes: u64,
}

impl Default for Layout {
    fn default() -> Layout {
        Layout { page_bytes: 8192, data_device_bytes: 256 << 20, images_device_bytes: 64 << 20 }
    }
}

/// The facts about the journal with which a store is opened.
#[derive(Clone, Debug)]
pub(crate) struct JournalFacts {
    /// Its identity.
    pub(crate) identity: u32,
    /// Its oldest position.
    pub(crate) first: Lsn,
    /// Its end.
    pub(crate) end: Lsn,
    /// What encrypts it, and the pages.
    pub(crate) sealer: Option<Arc<Sealer>>,
}

/// An opened store's pages.
#[derive(Debug)]
pub(crate) struct OpenedPages {
    /// The data devices.
    pub(crate) data_devices: Arc<DataDevices>,
    /// Which pages are in use.
    pub(crate) space: Arc<Space>,
    /// Writes checkpoints.
    pub(crate) writer: CheckpointWriter,
    /// The content of page 0: redo LSN, roots.
    pub(crate) superblock: Superblock,
    /// What opening found and did.
    pub(crate) found: OpenFindings,
}

/// What opening found and did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OpenFindings {
    /// The store was created.
    pub(crate) is_new: bool,
    /// A committed batch was written in place.
    pub(crate) restored: Option<Restored>,
    /// A checkpoint had begun and was not committed; it has no effect.
    pub(crate) is_dropped: bool,
}

impl OpenedPages {
    /// Opens the pages on `data` with the write image journal on `images`, or creates both if neither exists.
    ///
    /// A new store begins at the journal's first record. That is refused if the journal was truncated, unless `adopt`
    /// is set: then the truncated records are not in the store.
    ///
    /// Errors: [`StoreError::Corrupt`]: what is damaged, missing or belongs to another store, and what to do.
    /// [`StoreError::Full`], [`StoreError::Device`], [`StoreError::Refused`] for sizes that no store can have.
    pub(crate) fn open(
        data: Arc<dyn Shelf>,
        images: Arc<dyn Shelf>,
        layout: Layout,
        journal: JournalFacts,
        adopt: bool,
        poison: &Poison,
    ) -> Result<OpenedPages, StoreError> {
        let mut found = OpenFindings::default();
        let mut batches = Images::open(images.clone(), poison.clone(), true)?;
        match decide(look(&*data)?, batches.as_ref().map(Images::headers)) {
            Verdict::Refuse(refusal) => return Err(StoreError::Corrupt(refusal.text().into())),
            Verdict::Nothing => {}
            Verdict::Begin => batches = Some(Images::create(images, poison.clone(), layout.images_device_bytes)?),
            Verdict::Create => {
                if journal.first > Lsn::ZERO && !adopt {
                    let why = format!(
                        "there are no pages, and the journal begins at {}: what lay before it would be lost; mount the \
                         medium of the pages, or restore a backup",
                        journal.first
                    );
                    return Err(StoreError::Corrupt(why.into()));
                }
                let geometry = Geometry::new(layout.page_bytes, layout.data_device_bytes)?;
                if batches.is_none() {
                    batches = Some(Images::create(images, poison.clone(), layout.images_device_bytes)?);
                }
                create(&*data, geometry, &journal)?;
                found.is_new = true;
            }
            Verdict::Restore => {}
            Verdict::Mend => mend(&data, batches.as_ref(), &journal, poison)?,
        }
        let batches = batches.ok_or_else(|| StoreError::Corrupt(Refusal::ImagesMissing.text().into()))?;
        batches.even()?;
        if let Headers::Batch(header, mark) = batches.headers() {
            if mark == Mark::Committed {
                let data_devices = DataDevices::open(data.clone(), header.geometry, poison.clone(), true)?;
                found.restored = Some(batches.restore(&header, &data_devices)?);
            } else {
                found.is_dropped = batches.is_overwritten(&header)?;
            }
        }
        let superblock = read_superblock(&*data)?;
        compare(&superblock, &journal)?;
        let data_devices = DataDevices::open(data, superblock.geometry, poison.clone(), true)?;
        let data_devices = Arc::new(data_devices.with_sealer(journal.sealer));
        let space = Arc::new(Space::open(data_devices.clone(), superblock.devices, superblock.checkpoint)?);
        let writer = CheckpointWriter::new(data_devices.clone(), space.clone(), batches, superblock, poison.clone());
        Ok(OpenedPages { data_devices, space, writer, superblock, found })
    }
}

/// Repairs the superblock in place from the last batch that was written in place.
///
/// Errors: [`StoreError::Corrupt`] if that batch no longer has it, or if it does not match the journal and the maps.
fn mend(
    data: &Arc<dyn Shelf>,
    batches: Option<&Images>,
    journal: &JournalFacts,
    poison: &Poison,
) -> Result<(), StoreError> {
    let refused = || StoreError::Corrupt(Refusal::Damaged.text().into());
    let header = batches.map(Images::headers);
    let (Some(images), Some(Headers::Batch(header, _))) = (batches, header) else { return Err(refused()) };
    let (superblock, image) = images.superblock(&header)?.ok_or_else(refused)?;
    compare(&superblock, journal)?;
    let data_devices = DataDevices::open(data.clone(), header.geometry, poison.clone(), true)?;
    if is_newer(&data_devices, &superblock)? {
        return Err(refused());
    }
    tracing::error!("the superblock was damaged; it is restored from the write image journal");
    let mut page = AlignedBuffer::new();
    page.extend_from_slice(&image);
    data_devices.write(superblock::PAGE, &page)?;
    data_devices.flush()
}

/// Whether a page of the allocation map belongs to a later state than the superblock.
pub(crate) fn is_newer(data_devices: &DataDevices, superblock: &Superblock) -> Result<bool, StoreError> {
    let geometry = superblock.geometry;
    let mut page = AlignedBuffer::zeroed(geometry.page_bytes as usize);
    for id in (0..superblock.devices.min(data_devices.count()))
        .flat_map(|device| (0..geometry.maps()).map(move |nth| geometry.map_page(device, nth)))
    {
        match data_devices.read(id, &mut page).map_err(|error| error.of_reading(id, 1)) {
            Err(StoreError::Corrupt(_)) => continue,
            read => read?,
        }
        let is_whole = crate::page::check(id, &page).is_ok();
        if is_whole && crate::page::PageHeader::of(&page).is_some_and(|header| header.lsn > superblock.redo_lsn.0) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Reads the state of the superblock, which may be missing or damaged.
pub(crate) fn look(data: &dyn Shelf) -> Result<DataState, StoreError> {
    let names = data.list()?;
    if !names.iter().any(|name| *name == device_name(0)) {
        // Other devices without the first are not a store.
        return match names.iter().find(|name| name.starts_with("pages-")) {
            Some(name) => {
                let why = format!("{name} exists but {} is missing: restore a backup", device_name(0));
                Err(StoreError::Corrupt(why.into()))
            }
            None => Ok(DataState::Absent),
        };
    }
    match superblock_of(data)? {
        Ok(Superblock { identity, checkpoint, is_clean, .. }) => {
            Ok(DataState::Readable { identity, checkpoint, is_clean })
        }
        Err(Unreadable::Damaged) => Ok(DataState::Unreadable),
        Err(Unreadable::Version(version)) => {
            let why = format!("the store has version {version} of its format, this program reads versions 1 and 2");
            Err(StoreError::Corrupt(why.into()))
        }
    }
}

/// Returns the superblock, or why it cannot be read. Errors: [`StoreError::Device`].
pub(crate) fn superblock_of(data: &dyn Shelf) -> Result<Result<Superblock, Unreadable>, StoreError> {
    let device = data.open_read_only(&device_name(0))?;
    let mut block = AlignedBuffer::zeroed(superblock::PROBE_BYTES);
    match device.read(0, &mut block).map_err(|error| StoreError::from(error).of_reading(superblock::PAGE, 1)) {
        Err(StoreError::Corrupt(_)) => return Ok(Err(Unreadable::Damaged)),
        read => read?,
    }
    let Some(geometry) = Superblock::geometry(&block) else { return Ok(Err(Unreadable::Damaged)) };
    if geometry.device_bytes() != device.len() {
        return Ok(Err(Unreadable::Damaged));
    }
    let mut page = AlignedBuffer::zeroed(geometry.page_bytes as usize);
    device.read(0, &mut page)?;
    Ok(Superblock::decode(&page))
}

fn read_superblock(data: &dyn Shelf) -> Result<Superblock, StoreError> {
    superblock_of(data)?.map_err(|_| StoreError::Corrupt(Refusal::Damaged.text().into()))
}

/// Checks that pages and journal belong together.
fn compare(superblock: &Superblock, journal: &JournalFacts) -> Result<(), StoreError> {
    superblock.check_key(journal.sealer.as_deref())?;
    let Superblock { redo_lsn, journal: identity, .. } = *superblock;
    let why = if identity != journal.identity {
        format!("the pages belong to journal {identity:08x}, this is journal {:08x}", journal.identity)
    } else if redo_lsn > journal.end {
        format!("the pages are at {redo_lsn}, the journal ends at {}: its newest segments are missing", journal.end)
    } else if redo_lsn < journal.first {
        format!("the pages are at {redo_lsn}, the journal begins at {}: segments in between are missing", journal.first)
    } else {
        return Ok(());
    };
    Err(StoreError::Corrupt(format!("{why}; mount the right medium, or restore a backup").into()))
}

/// Creates the first data device: superblock and maps are persistent before it has its name.
fn create(data: &dyn Shelf, geometry: Geometry, journal: &JournalFacts) -> Result<(), StoreError> {
    match data.remove(UNFINISHED) {
        // Left by a creation that a crash interrupted.
        Ok(()) | Err(DeviceError::NotFound { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let device = data.create_unwritten(UNFINISHED, geometry.device_bytes()).map_err(|error| match error {
        DeviceError::Full { .. } => StoreError::Full(error.to_string().into()),
        other => other.into(),
    })?;
    let superblock = Superblock {
        geometry,
        devices: 1,
        identity: new_identity(),
        journal: journal.identity,
        catalog: PageId(0),
        next_tree: 1,
        is_clean: false,
        redo_lsn: journal.first,
        checkpoint: 0,
        micros: 0,
        encrypted: journal.sealer.as_ref().map(|sealer| sealer.mark()),
    };
    let mut bitmap = Bitmap::new(geometry.device_pages);
    bitmap.take(0, geometry.reserved(0));
    let maps = (0..geometry.maps()).map(|nth| map::encode(geometry, 0, nth, &bitmap, journal.first.0));
    for (page, image) in std::iter::once((superblock::PAGE, superblock.encode())).chain(maps) {
        device.write(geometry.offset(page), &image)?;
    }
    device.flush()?;
    Ok(data.rename(UNFINISHED, &device_name(0))?)
}

/// Drawn from the random seed that the standard library uses for its hash tables.
fn new_identity() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::hash::RandomState::new().build_hasher().finish().max(1)
}
