//! [`Ground`]: what a store stands on once it is opened: pages that are whole and are the state at X.
//!
//! ```text
//!   look        headers of the write image journal, superblock at home                    changes nothing
//!   decide      images::decide, a pure table
//!   create      images, then pages under another name, renamed when they are persistent
//!   restore     a flagged batch goes home
//!   compare     superblock against journal: whose, from where to where
//!   maps        read, checked
//! ```
//!
//! A crash anywhere in here leaves what a second opening decides alike. Nothing is changed where opening is refused, but for a
//! batch that was restored.

use std::sync::Arc;

use device::{AlignedBuffer, DeviceError, Shelf};
use journal::Lsn;

use crate::StoreError;
use crate::cycle::write::Writer;
use crate::images::decide::{Home, Refusal, Verdict, decide};
use crate::images::format::{Headers, Mark};
use crate::images::{Images, Restored};
use crate::page::PageId;
use crate::space::bitmap::Bitmap;
use crate::space::freeze::Freeze;
use crate::space::geometry::Geometry;
use crate::space::home::{Devices, device_name};
use crate::space::superblock::{self, Superblock, Unreadable};
use crate::space::{Space, map};

/// A data device that is being made; it counts once it has its name.
const UNFINISHED: &str = "making-pages";

/// Sizes of devices; they count when the store, or the write image journal, is made.
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

/// The journal that a store is opened with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JournalFacts {
    /// Whose it is.
    pub(crate) identity: u32,
    /// Its oldest position.
    pub(crate) first: Lsn,
    /// Its end.
    pub(crate) end: Lsn,
}

/// An opened store's pages.
#[derive(Debug)]
pub(crate) struct Ground {
    /// The devices.
    pub(crate) home: Arc<Devices>,
    /// Which pages are in use.
    pub(crate) space: Arc<Space>,
    /// Writes cycles.
    pub(crate) writer: Writer,
    /// What page 0 says: X, roots.
    pub(crate) superblock: Superblock,
    /// What happened.
    pub(crate) found: Found,
}

/// What opening found and did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// The store was made.
    pub(crate) is_new: bool,
    /// A flagged batch was written home.
    pub(crate) restored: Option<Restored>,
    /// A cycle had begun and was not flagged; it never happened.
    pub(crate) is_dropped: bool,
}

impl Ground {
    /// Opens the pages on `data` with the write image journal on `images`, or makes both where neither is there.
    ///
    /// A new store begins at the journal's first record; that is refused where the journal was truncated already, unless
    /// `adopt`: then what was truncated is not in the store.
    ///
    /// Errors: [`StoreError::Corrupt`]: what is damaged, missing or of another store, and what to do.
    /// [`StoreError::Full`], [`StoreError::Device`], [`StoreError::Refused`] for sizes that no store has.
    pub(crate) fn open(
        data: Arc<dyn Shelf>,
        images: Arc<dyn Shelf>,
        layout: Layout,
        journal: JournalFacts,
        adopt: bool,
        freeze: &Freeze,
    ) -> Result<Ground, StoreError> {
        let mut found = Found::default();
        let mut batches = Images::open(images.clone(), freeze.clone(), true)?;
        match decide(look(&*data)?, batches.as_ref().map(Images::headers)) {
            Verdict::Refuse(refusal) => return Err(StoreError::Corrupt(refusal.text().into())),
            Verdict::Nothing => {}
            Verdict::Begin => batches = Some(Images::create(images, freeze.clone(), layout.images_device_bytes)?),
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
                    batches = Some(Images::create(images, freeze.clone(), layout.images_device_bytes)?);
                }
                create(&*data, geometry, journal)?;
                found.is_new = true;
            }
            Verdict::Restore => {}
            Verdict::Mend => mend(&data, batches.as_ref(), journal, freeze)?,
        }
        let batches = batches.ok_or_else(|| StoreError::Corrupt(Refusal::ImagesMissing.text().into()))?;
        batches.even()?;
        if let Headers::Batch(header, mark) = batches.headers() {
            if mark == Mark::Flagged {
                let home = Devices::open(data.clone(), header.geometry, freeze.clone(), true)?;
                found.restored = Some(batches.restore(&header, &home)?);
            } else {
                found.is_dropped = batches.is_overwritten(&header)?;
            }
        }
        let superblock = read_superblock(&*data)?;
        compare(&superblock, journal)?;
        let home = Arc::new(Devices::open(data, superblock.geometry, freeze.clone(), true)?);
        let space = Arc::new(Space::open(home.clone(), superblock.devices, superblock.cycle)?);
        let writer = Writer::new(home.clone(), space.clone(), batches, superblock, freeze.clone());
        Ok(Ground { home, space, writer, superblock, found })
    }
}

/// Writes the superblock home, as the last batch that went there has it.
///
/// Errors: [`StoreError::Corrupt`] where that has it no more, or it does not fit the journal and the maps.
fn mend(
    data: &Arc<dyn Shelf>,
    batches: Option<&Images>,
    journal: JournalFacts,
    freeze: &Freeze,
) -> Result<(), StoreError> {
    let refused = || StoreError::Corrupt(Refusal::Damaged.text().into());
    let header = batches.map(Images::headers);
    let (Some(images), Some(Headers::Batch(header, _))) = (batches, header) else { return Err(refused()) };
    let (superblock, image) = images.superblock(&header)?.ok_or_else(refused)?;
    compare(&superblock, journal)?;
    let home = Devices::open(data.clone(), header.geometry, freeze.clone(), true)?;
    if is_newer(&home, &superblock)? {
        return Err(refused());
    }
    tracing::error!("the superblock was damaged; it is written anew, as the write image journal has it");
    let mut page = AlignedBuffer::new();
    page.extend_from_slice(&image);
    home.write(superblock::PAGE, &page)?;
    home.flush()
}

/// Whether a page of the allocation map is of a later state than the superblock.
pub(crate) fn is_newer(home: &Devices, superblock: &Superblock) -> Result<bool, StoreError> {
    let geometry = superblock.geometry;
    let mut page = AlignedBuffer::zeroed(geometry.page_bytes as usize);
    for id in (0..superblock.devices.min(home.count()))
        .flat_map(|device| (0..geometry.maps()).map(move |nth| geometry.map_page(device, nth)))
    {
        match home.read(id, &mut page).map_err(|error| error.of_reading(id, 1)) {
            Err(StoreError::Corrupt(_)) => continue,
            read => read?,
        }
        let is_whole = crate::page::check(id, &page).is_ok();
        if is_whole && crate::page::Header::of(&page).is_some_and(|header| header.lsn > superblock.applied.0) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What the superblock says, without believing that it is there.
pub(crate) fn look(data: &dyn Shelf) -> Result<Home, StoreError> {
    let names = data.list()?;
    if !names.iter().any(|name| *name == device_name(0)) {
        // Others without the first are no store.
        return match names.iter().find(|name| name.starts_with("pages-")) {
            Some(name) => {
                let why = format!("{name} is there and {} is missing: restore a backup", device_name(0));
                Err(StoreError::Corrupt(why.into()))
            }
            None => Ok(Home::Absent),
        };
    }
    match superblock_of(data)? {
        Ok(Superblock { identity, cycle, is_clean, .. }) => Ok(Home::Readable { identity, cycle, is_clean }),
        Err(Unreadable::Damaged) => Ok(Home::Unreadable),
        Err(Unreadable::Version(version)) => {
            let why = format!("the store has version {version} of its format, this is version {}", superblock::VERSION);
            Err(StoreError::Corrupt(why.into()))
        }
    }
}

/// The superblock, or why it is none. Errors: [`StoreError::Device`].
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

/// Whether pages and journal belong together.
fn compare(superblock: &Superblock, journal: JournalFacts) -> Result<(), StoreError> {
    let Superblock { applied, journal: identity, .. } = *superblock;
    let why = if identity != journal.identity {
        format!("the pages belong to journal {identity:08x}, this is journal {:08x}", journal.identity)
    } else if applied > journal.end {
        format!("the pages are at {applied}, the journal ends at {}: its newest segments are missing", journal.end)
    } else if applied < journal.first {
        format!("the pages are at {applied}, the journal begins at {}: segments in between are missing", journal.first)
    } else {
        return Ok(());
    };
    Err(StoreError::Corrupt(format!("{why}; mount the right medium, or restore a backup").into()))
}

/// Makes the first data device: superblock and maps are persistent before it has its name.
fn create(data: &dyn Shelf, geometry: Geometry, journal: JournalFacts) -> Result<(), StoreError> {
    match data.remove(UNFINISHED) {
        // Left by a creation that a crash ended.
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
        applied: journal.first,
        cycle: 0,
        micros: 0,
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

/// Drawn from the randomness that the standard library seeds its hash tables with.
fn new_identity() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::hash::RandomState::new().build_hasher().finish().max(1)
}
