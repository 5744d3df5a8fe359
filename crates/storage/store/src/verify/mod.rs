//! Checks a whole store: every page and extent that is reachable from its trees must verify, be in use according to the
//! map, and be reached once; and the map must count nothing else.
//!
//! ```text
//!   superblock -> map pages                      pages in use according to the map
//!        |
//!        +-----> catalog -> trees -> pages, extents        reachable pages, each checked
//!
//!   reached twice      two owners of a page: the next change of one damages the other
//!   reached, not used  will be allocated again: the same, later
//!   used, not reached  lost space; stored data is not affected
//! ```
//!
//! *Offline* ([`offline`]) it reads a store that no process has open, with a committed batch over the data devices, and
//! changes nothing. *Online* ([`online`]) it reads the state of the last checkpoint while no other checkpoint begins.
//! Readers and writers continue, and the applier waits only if so much becomes dirty meanwhile that it must.
//!
//! Damage is part of the result, not an error. Pages below a damaged page are not reached, so unreached pages count as
//! lost only if nothing is damaged. The journal is not checked: [`journal::verify`] does that.

pub(crate) mod inspect;
pub(crate) mod reader;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use device::{AlignedBuffer, Shelf};
use encryption::Sealer;
use journal::Lsn;

use crate::StoreError;
use crate::checkpoint::open::{look, superblock_of};
use crate::images::Images;
use crate::images::decide::{Refusal, Verdict, decide};
use crate::images::format::{Headers, Mark, sum};
use crate::page::{Extent, PageId};
use crate::pages::Pages;
use crate::space::bitmap::Bitmap;
use crate::space::devices::DataDevices;
use crate::space::geometry::Geometry;
use crate::space::map;
use crate::space::poison::Poison;
use crate::space::superblock::{self, Superblock};
use crate::tree::{Report, Tree, Visited};
pub use reader::UncachedReader;

/// The number of faults that are described; further ones are only counted.
const TOLD_MAX: usize = 100;

/// The progress of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Pages checked.
    pub done: u64,
    /// Pages in use.
    pub total: u64,
}

/// Returns the trees of a store with their names, from the root of its catalog, which counts as one of them.
pub(crate) type Trees<'a> = &'a dyn Fn(&UncachedReader<'_>, PageId) -> Result<Vec<(String, Tree)>, StoreError>;

/// The result of a check. Its `Display` is the report of `terrace verify`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// The store's identity, drawn when it was created.
    pub identity: u64,
    /// Size of a page, bytes.
    pub page_bytes: u32,
    /// Data devices.
    pub devices: u32,
    /// Everything before this is in the pages.
    pub redo_lsn: Lsn,
    /// The checkpoint whose state was checked.
    pub checkpoint: u64,
    /// Images of a committed batch that opening will write in place.
    pub images: u32,
    /// Pages of all devices.
    pub pages: u64,
    /// Pages in use, including the store's own.
    pub used: u64,
    /// The report of each tree, by name.
    pub trees: Vec<(String, Report)>,
    /// Pages that are in use but unreachable: lost space. `None` if damage hides what is reachable.
    pub leaked: Option<u64>,
    /// Number of pages and extents that do not verify, are reached twice, or are reached but not in use; and of faults
    /// of trees.
    pub faults: u64,
    /// Descriptions of the first hundred faults.
    pub messages: Vec<String>,
}

impl Verified {
    /// Whether nothing is wrong; lost space counts as wrong, too.
    pub fn is_sound(&self) -> bool {
        self.faults == 0 && self.leaked == Some(0)
    }
}

impl fmt::Display for Verified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Verified { identity, page_bytes, devices, redo_lsn, checkpoint, images, pages, used, .. } = self;
        writeln!(f, "store {identity:016x}: {devices} devices, pages of {page_bytes} bytes")?;
        writeln!(f, "state of checkpoint {checkpoint}: every record before lsn {redo_lsn}")?;
        if *images > 0 {
            writeln!(
                f,
                "{images} pages of it are in the write image journal and are written in place at the next opening"
            )?;
        }
        writeln!(f, "{used} of {pages} pages in use ({:.1} %)", 100.0 * *used as f64 / (*pages).max(1) as f64)?;
        let wide = self.trees.iter().map(|(name, _)| name.len()).max().unwrap_or(0).max(4);
        writeln!(
            f,
            "{:wide$} {:>12} {:>10} {:>10} {:>8} {:>14}",
            "tree", "keys", "pages", "extents", "height", "bytes"
        )?;
        for (name, report) in &self.trees {
            let (nodes, bytes) = (report.inners + report.leaves, report.inline_bytes + report.extent_bytes);
            let Report { cells, extents, height, .. } = report;
            writeln!(f, "{name:wide$} {cells:>12} {nodes:>10} {extents:>10} {height:>8} {bytes:>14}")?;
        }
        self.messages.iter().try_for_each(|message| writeln!(f, "{message}"))?;
        if self.faults > self.messages.len() as u64 {
            writeln!(f, "{} more", self.faults - self.messages.len() as u64)?;
        }
        match self.leaked {
            Some(leaked) if leaked > 0 => writeln!(f, "{leaked} pages are in use and nothing reaches them")?,
            None => writeln!(f, "pages that nothing reaches were not counted: damage hides what is reached")?,
            Some(_) => {}
        }
        match (self.is_sound(), self.faults) {
            (true, _) => writeln!(f, "sound"),
            (false, 0) => writeln!(f, "sound, but for lost space"),
            (false, _) => writeln!(f, "damaged: `terrace repair` shows what can be done; or restore a backup"),
        }
    }
}

/// Checks the store on two shelves that no process has open for writing. `progress` is called every few hundred pages.
///
/// Errors: [`StoreError::Corrupt`] if the store could not be opened either, and [`StoreError::Device`].
pub(crate) fn offline(
    data: Arc<dyn Shelf>,
    images: Arc<dyn Shelf>,
    sealer: Option<Arc<Sealer>>,
    trees: Trees<'_>,
    progress: &mut dyn FnMut(Progress),
) -> Result<Verified, StoreError> {
    let poison = Poison::default();
    let batches = Images::open(images, poison.clone(), false)?;
    let mut overlay = HashMap::new();
    let mut damaged = Vec::new();
    let mut geometry = None;
    match decide(look(&*data)?, batches.as_ref().map(Images::headers)) {
        Verdict::Refuse(refusal) => return Err(StoreError::Corrupt(refusal.text().into())),
        Verdict::Create => return Err(StoreError::Refused("there is no store in these places".into())),
        Verdict::Begin | Verdict::Nothing => {}
        Verdict::Mend => {
            let found = match batches.as_ref().map(|batches| (batches, batches.headers())) {
                Some((batches, Headers::Batch(header, _))) => batches.superblock(&header)?,
                _ => None,
            };
            let (superblock, image) = found.ok_or_else(|| StoreError::Corrupt(Refusal::Damaged.text().into()))?;
            geometry = Some(superblock.geometry);
            overlay.insert(superblock::PAGE, image);
            let text = "the superblock (page 0 in pages-0000) is damaged; the next opening restores it from the write image journal";
            damaged.push(text.into());
        }
        Verdict::Restore => {
            let batches = batches.ok_or_else(|| StoreError::Corrupt(Refusal::ImagesMissing.text().into()))?;
            let Headers::Batch(header, Mark::Committed) = batches.headers() else {
                return Err(StoreError::Corrupt(Refusal::ImagesMissing.text().into()));
            };
            geometry = Some(header.geometry);
            let has_table = batches.visit(&header, |page, expected, image| {
                if sum(image) == expected {
                    overlay.insert(page, image.to_vec());
                } else {
                    damaged.push(format!("page {page}: its image in the write image journal is damaged"));
                }
                Ok(())
            })?;
            if !has_table {
                damaged.push("the table of the write image journal is damaged".into());
            }
        }
    }
    let on_devices = superblock_of(&*data)?;
    let superblock = match overlay.get(&superblock::PAGE) {
        Some(image) => Superblock::decode(image),
        None => on_devices,
    };
    let superblock = superblock.map_err(|_| StoreError::Corrupt(Refusal::Damaged.text().into()))?;
    superblock.check_key(sealer.as_deref())?;
    let data_devices = DataDevices::open(data, geometry.unwrap_or(superblock.geometry), poison, false)?;
    let data_devices = data_devices.with_sealer(sealer);
    let mut walk = Walk::new(UncachedReader::new(&data_devices, overlay), superblock);
    damaged.into_iter().for_each(|what| walk.fault(what));
    walk.run(trees, progress)
}

/// Checks the state of the last checkpoint of an open store; called between checkpoints, while none may begin.
///
/// Errors: [`StoreError::Device`], and those of `trees` that are not damage.
pub(crate) fn online(
    data_devices: &DataDevices,
    superblock: &Superblock,
    trees: Trees<'_>,
    progress: &mut dyn FnMut(Progress),
) -> Result<Verified, StoreError> {
    Walk::new(UncachedReader::new(data_devices, HashMap::new()), *superblock).run(trees, progress)
}

/// Returns the pages of the last checkpoint's state that are in use but unreachable. Called as [`online`].
///
/// Errors: those of [`online`]; [`StoreError::Corrupt`] if a part of the trees cannot be walked, because reachability
/// is then unknown.
pub(crate) fn unreached(
    data_devices: &DataDevices,
    superblock: &Superblock,
    trees: Trees<'_>,
) -> Result<Vec<PageId>, StoreError> {
    let mut walk = Walk::new(UncachedReader::new(data_devices, HashMap::new()), *superblock);
    walk.read_maps()?;
    for (name, tree) in trees(&walk.still, walk.superblock.catalog)? {
        let mut visited = Vec::new();
        let report = tree.check(&walk.still, |found| visited.push(found))?;
        if report.faults > report.holes {
            let why = report.messages.first().cloned().unwrap_or_default();
            return Err(StoreError::Corrupt(format!("tree {name}: {why}").into()));
        }
        for found in visited {
            match found {
                Visited::Inner(page) | Visited::Leaf(page) => walk.reach(&name, page, 1),
                Visited::Extent(extent) => {
                    let pages = extent.pages(walk.still.whole_page_bytes());
                    walk.reach(&name, extent.first, pages);
                }
            }
        }
    }
    let mut pages = Vec::new();
    for (device, (used, consistent_lsn)) in (0..).zip(walk.used.iter().zip(&walk.consistent_lsn)) {
        let is_lost = |page: &u32| used.is_used(*page, 1) && !consistent_lsn.is_used(*page, 1);
        pages.extend((0..used.pages()).filter(is_lost).map(|page| walk.geometry.page(device, page)));
    }
    Ok(pages)
}

/// A check in progress.
struct Walk<'a> {
    still: UncachedReader<'a>,
    superblock: Superblock,
    geometry: Geometry,
    used: Vec<Bitmap>,
    consistent_lsn: Vec<Bitmap>,
    found: Verified,
}

impl<'a> Walk<'a> {
    fn new(still: UncachedReader<'a>, superblock: Superblock) -> Walk<'a> {
        let geometry = superblock.geometry;
        let empty = || (0..superblock.devices).map(|_| Bitmap::new(geometry.device_pages)).collect();
        let found = Verified {
            identity: superblock.identity,
            page_bytes: geometry.page_bytes,
            devices: superblock.devices,
            redo_lsn: superblock.redo_lsn,
            checkpoint: superblock.checkpoint,
            images: still.images() as u32,
            pages: u64::from(superblock.devices) * u64::from(geometry.device_pages),
            used: 0,
            trees: Vec::new(),
            leaked: None,
            faults: 0,
            messages: Vec::new(),
        };
        Walk { still, superblock, geometry, used: empty(), consistent_lsn: empty(), found }
    }

    fn fault(&mut self, what: String) {
        self.found.faults += 1;
        if self.found.messages.len() < TOLD_MAX {
            self.found.messages.push(what);
        }
    }

    fn run(mut self, trees: Trees<'_>, progress: &mut dyn FnMut(Progress)) -> Result<Verified, StoreError> {
        if self.superblock.devices > self.still.data_devices().count() {
            let (there, said) = (self.still.data_devices().count(), self.superblock.devices);
            self.fault(format!("{there} data devices exist, the superblock counts {said}"));
            return Ok(self.found);
        }
        self.read_maps()?;
        self.found.used = self.used.iter().map(|map| u64::from(map.used())).sum();
        if self.superblock.catalog.0 != 0 {
            match trees(&self.still, self.superblock.catalog) {
                Ok(trees) => trees.into_iter().try_for_each(|(name, tree)| self.tree(name, tree, progress))?,
                Err(StoreError::Corrupt(why)) => self.fault(format!("the catalog: {why}")),
                Err(other) => return Err(other),
            }
        }
        self.compare();
        Ok(self.found)
    }

    fn read_maps(&mut self) -> Result<(), StoreError> {
        let mut page = AlignedBuffer::zeroed(self.geometry.page_bytes as usize);
        for device in 0..self.superblock.devices {
            for nth in 0..self.geometry.maps() {
                let id = self.geometry.map_page(device, nth);
                let read = match self.still.raw(id, &mut page) {
                    Err(StoreError::Corrupt(_)) => false,
                    read => read.map(|()| true)?,
                };
                if !read || !map::decode(self.geometry, device, nth, &page, &mut self.used[device as usize]) {
                    let place = crate::cache::BackingStore::place(self.still.data_devices(), id);
                    self.fault(format!("{place} is not a page of the allocation map"));
                }
            }
            self.consistent_lsn[device as usize].take(0, self.geometry.reserved(device));
        }
        Ok(())
    }

    fn tree(&mut self, name: String, tree: Tree, progress: &mut dyn FnMut(Progress)) -> Result<(), StoreError> {
        // The visited parts are collected first and checked afterwards, because the walk borrows the pages.
        let mut visited = Vec::new();
        let report = tree.check(&self.still, |found| visited.push(found))?;
        for message in &report.messages {
            self.fault(format!("tree {name}: {message}"));
        }
        self.found.faults += report.faults - report.messages.len() as u64;
        for (number, found) in visited.into_iter().enumerate() {
            match found {
                Visited::Inner(page) | Visited::Leaf(page) => self.reach(&name, page, 1),
                Visited::Extent(extent) => self.extent(&name, extent)?,
            }
            if number % 256 == 0 {
                self.report(progress);
            }
        }
        self.found.trees.push((name, report));
        self.report(progress);
        Ok(())
    }

    fn report(&self, progress: &mut dyn FnMut(Progress)) {
        let done = self.consistent_lsn.iter().map(|map| u64::from(map.used())).sum();
        progress(Progress { done, total: self.found.used });
    }

    fn extent(&mut self, name: &str, extent: Extent) -> Result<(), StoreError> {
        match self.still.read_extent(extent) {
            Ok(_) => {}
            Err(StoreError::Corrupt(why)) => self.fault(format!("tree {name}: {why}")),
            Err(other) => return Err(other),
        }
        self.reach(name, extent.first, extent.pages(self.still.whole_page_bytes()));
        Ok(())
    }

    fn reach(&mut self, name: &str, first: PageId, pages: u32) {
        let (device, place) = self.geometry.place(first);
        if device >= self.superblock.devices || place + pages > self.geometry.device_pages {
            return self.fault(format!("tree {name}: page {first} lies outside"));
        }
        for page in place..place + pages {
            let id = self.geometry.page(device, page);
            if !self.used[device as usize].is_used(page, 1) {
                self.fault(format!("tree {name}: page {id} is not in use by the allocation map"));
            }
            if self.consistent_lsn[device as usize].is_used(page, 1) {
                self.fault(format!("tree {name}: page {id} has a second owner"));
            } else {
                self.consistent_lsn[device as usize].take(page, 1);
            }
        }
    }

    fn compare(&mut self) {
        let not_used: Vec<PageId> = (0..self.superblock.devices)
            .filter(|device| !self.used[*device as usize].is_used(0, self.geometry.reserved(*device)))
            .map(|device| self.geometry.page(device, 0))
            .collect();
        for page in not_used {
            self.fault(format!("page {page} is reserved for the store, but is free in the allocation map"));
        }
        if self.found.faults > 0 {
            return;
        }
        let mut leaked = 0;
        for (used, consistent_lsn) in self.used.iter().zip(&self.consistent_lsn) {
            leaked +=
                (0..used.pages()).filter(|page| used.is_used(*page, 1) && !consistent_lsn.is_used(*page, 1)).count();
        }
        self.found.leaked = Some(leaked as u64);
    }
}
