//! Places of copies: from the name of a tier, or the address of an export, to the shelves that a copy lies on.
//!
//! ```text
//!   tier "nvme", volume "vol-7", copy 0   -->   NVME/volumes/vol-7/0-<8 hex digits>            blocks, sums, superblock
//!   tier "pmem" for its journal           -->   PMEM/volumes/vol-7/0-<8 hex digits>-journal
//!   tier "pmem" for a cache               -->   PMEM/volumes/vol-7/0-<8 hex digits>-cache      in front of the blocks
//!   nbd://host/name                       -->   everything of the copy on the export           remote
//! ```
//!
//! The digits are drawn anew for each copy that is made, so a copy that replaces another one never meets its files.
//!
//! Invariant: opening does not make a folder that is not there. A medium that is not mounted is a missing copy, and nothing is written
//! below its mount point.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use anyhow::{Context, bail, ensure};
use catalogue::placement::{HOME, Kind, Tier};
use device::Shelf;
use node::MediumInUse;
use volume::Place;
use volume::write_back::{CacheOptions, CachePolicy, CachedShelf};

use super::description::{CacheDescription, CopyDescription, PlaceDescription, file_name};
use super::disks;
use super::remote::RemoteShelf;
use super::requests::WantedCopy;
use crate::assemble::TierShelves;

/// Folder of a tier, below which volumes lie.
const FOLDER: &str = "volumes";

/// The opened shelves of a copy.
#[derive(Debug)]
pub struct OpenedPlace {
    /// For the volume.
    pub place: Place,
    /// The medium of its blocks, in words.
    pub medium: String,
    /// False if a model slows one of its media down.
    pub real: bool,
    /// Its cache, as long as the copy holds it.
    pub cache: Option<Weak<CachedShelf>>,
    /// The disks of this machine on which a part of it lies.
    pub disks: BTreeSet<String>,
}

/// What a new copy is made for.
#[derive(Debug, Clone, Copy)]
pub struct NewCopy {
    /// Size of the volume, bytes.
    pub bytes: u64,
    /// The term of its owner.
    pub term: u64,
}

/// The places of new copies that are wanted. Nothing is made.
///
/// # Errors
/// An unknown tier, one that cannot hold a copy, or one medium for two copies unless `share_tiers`.
pub fn choose(
    tiers: &TierShelves,
    name: &str,
    wanted: &[WantedCopy],
    share_tiers: bool,
) -> anyhow::Result<Vec<CopyDescription>> {
    for (index, copy) in wanted.iter().enumerate() {
        ensure!(
            (share_tiers && !copy.is_export()) || !wanted[..index].iter().any(|other| other.tier == copy.tier),
            "two copies would lie on {}: what breaks one breaks both. Name another tier, or allow it with --share-tiers",
            copy.tier
        );
    }
    wanted.iter().enumerate().map(|(number, wanted)| choose_one(tiers, name, number as u8, wanted)).collect()
}

/// The place of one new copy.
///
/// # Errors
/// As [`choose`].
pub fn choose_one(tiers: &TierShelves, name: &str, number: u8, wanted: &WantedCopy) -> anyhow::Result<CopyDescription> {
    if wanted.is_export() {
        // Before anything is made: whether it could be reached at all.
        tiers.client_of(&wanted.tier)?;
        let place = PlaceDescription::Export { uri: wanted.tier.clone() };
        return Ok(CopyDescription { place, journal: None, cache: None });
    }
    let drawn = super::draw_id() as u32;
    let at = |tier: &str, suffix: &str| -> anyhow::Result<PlaceDescription> {
        let found = find(tiers, tier)?;
        let folder = volumes_folder(found)?.join(file_name(name)).join(format!("{number}-{drawn:08x}{suffix}"));
        let folder = std::path::absolute(&folder).unwrap_or(folder);
        Ok(PlaceDescription::Tier { tier: tier.to_owned(), folder })
    };
    let cache = match &wanted.cache {
        None => None,
        Some(cache) => Some(CacheDescription {
            place: at(&cache.tier, "-cache")?,
            bytes: cache.bytes,
            page_bytes: cache.page_bytes.unwrap_or_else(|| u64::from(CacheOptions::new([0; 16], 0).page_bytes)),
            caches_reads: cache.caches_reads,
        }),
    };
    // A journal is written once and hardly read: in front of it a cache would only cost.
    let of_cache = wanted.cache.as_ref().map(|cache| &cache.tier);
    let journal = wanted.journal.as_ref().or(of_cache).filter(|journal| **journal != wanted.tier || cache.is_some());
    let journal = journal.map(|journal| at(journal, "-journal")).transpose()?;
    Ok(CopyDescription { place: at(&wanted.tier, "")?, journal, cache })
}

/// Whether a copy of a thin volume can lie there.
///
/// # Errors
/// Its medium cannot give space back, or what is acknowledged could find none.
pub fn check_thin(tiers: &TierShelves, copy: &CopyDescription) -> anyhow::Result<()> {
    ensure!(
        copy.cache.is_none(),
        "a copy of a thin volume has no cache: what lies in the cache only could find no space on the medium behind it. Leave the cache \
         or --thin away"
    );
    let PlaceDescription::Tier { tier, .. } = &copy.place else {
        bail!("a copy on an export takes all of it and cannot be thin: make the volume without --thin");
    };
    ensure!(
        matches!(find(tiers, tier)?.kind, Kind::File { .. }),
        "tier {tier} is not of kind file: a mapped file without space would end the process when its medium is full. Name another tier, \
         or leave --thin away"
    );
    Ok(())
}

/// What was wanted of a copy that lies there, for another one in its stead.
///
/// # Errors
/// It lies on an export, which cannot be made anew from here.
pub fn wanted_again(copy: &CopyDescription) -> anyhow::Result<WantedCopy> {
    let PlaceDescription::Tier { tier, .. } = &copy.place else {
        bail!("the copy lies on {}: name another place with --copy", copy.place.text());
    };
    let cache = copy.cache.as_ref().map(|cache| super::requests::WantedCache {
        tier: cache.place.tier().to_owned(),
        bytes: cache.bytes,
        page_bytes: Some(cache.page_bytes),
        caches_reads: cache.caches_reads,
    });
    let journal = copy.journal.as_ref().map(|journal| journal.tier().to_owned());
    Ok(WantedCopy { tier: tier.clone(), journal, cache })
}

fn find<'t>(tiers: &'t TierShelves, name: &str) -> anyhow::Result<&'t Tier> {
    tiers.get(name).with_context(|| format!("there is no tier {name}; terrace.toml has: {}", tiers.names()))
}

fn volumes_folder(tier: &Tier) -> anyhow::Result<PathBuf> {
    match &tier.kind {
        Kind::Memory { .. } => bail!(
            "tier {} is memory, which does not survive the process: a copy of a volume lies on a tier of kind file or pmem (a folder \
             below /dev/shm is memory that survives the process)",
            tier.name
        ),
        Kind::Nbd { uri } => {
            bail!("tier {} is an export, of which a copy takes all: name it itself, as --copy '{uri}'", tier.name)
        }
        Kind::Volume { volume } => {
            bail!("tier {} is the volume {volume}: a volume does not lie on another one", tier.name)
        }
        Kind::Pmem { folder, .. } | Kind::File { folder } => Ok(folder.join(FOLDER)),
    }
}

/// Opens the shelves of a copy, or makes them for a new one.
///
/// # Errors
/// The tier is gone from the settings or lies elsewhere now, the folder is not there, the medium cannot be opened, the server of an
/// export cannot be reached.
pub fn open(tiers: &TierShelves, copy: &CopyDescription, new: Option<NewCopy>) -> anyhow::Result<OpenedPlace> {
    let (tier, folder) = match &copy.place {
        PlaceDescription::Export { uri } => return open_export(tiers, uri, new),
        PlaceDescription::Tier { tier, folder } => (tier, folder),
    };
    let (mut data, medium) = open_shelf(tiers, tier, folder, new.is_some())?;
    let (mut words, mut real) = (medium.device.clone(), medium.real);
    let mut held = None;
    if let Some(cache) = &copy.cache {
        let (below, of_cache) = open_part(tiers, &cache.place, new.is_some())?;
        let opened = Arc::new(open_cache(data, below, cache, new.is_some())?);
        held = Some(Arc::downgrade(&opened));
        words = format!("{words}; cached on {}", of_cache.device);
        real &= of_cache.real;
        data = opened;
    }
    let place = match &copy.journal {
        None => Place::on(data),
        Some(journal) => {
            let (journal, of_journal) = open_part(tiers, journal, new.is_some())?;
            words = format!("{words}; journal on {}", of_journal.device);
            real &= of_journal.real;
            Place { journal, ..Place::on(data) }
        }
    };
    Ok(OpenedPlace { place, medium: words, real, cache: held, disks: disks_of(copy) })
}

/// The disks of this machine on which a part of a copy lies: it is lost with any of them.
pub fn disks_of(copy: &CopyDescription) -> BTreeSet<String> {
    let parts = [Some(&copy.place), copy.journal.as_ref(), copy.cache.as_ref().map(|cache| &cache.place)];
    let folders = parts.into_iter().flatten().filter_map(|part| match part {
        PlaceDescription::Tier { folder, .. } => Some(folder),
        PlaceDescription::Export { .. } => None,
    });
    folders.flat_map(|folder| disks::below(folder)).collect()
}

fn open_cache(
    capacity: Arc<dyn Shelf>,
    below: Arc<dyn Shelf>,
    cache: &CacheDescription,
    is_new: bool,
) -> anyhow::Result<CachedShelf> {
    let page_bytes = u32::try_from(cache.page_bytes).context("a page of a cache is 1 MiB at most")?;
    let policy = if cache.caches_reads { CachePolicy::ReadWrite } else { CachePolicy::WriteOnly };
    let defaults = CacheOptions::new(super::draw_id().to_be_bytes(), cache.bytes);
    let options = CacheOptions { page_bytes, policy, ..defaults };
    let opened = match is_new {
        true => CachedShelf::create(capacity, below, &options),
        false => CachedShelf::open(capacity, below, &options),
    };
    opened.with_context(|| format!("the cache of the copy in {}", cache.place.text()))
}

fn open_export(tiers: &TierShelves, uri: &str, new: Option<NewCopy>) -> anyhow::Result<OpenedPlace> {
    let shelf = Arc::new(RemoteShelf::connect(tiers.client_of(uri)?)?);
    if let Some(new) = new {
        shelf.format(new.bytes, new.term)?;
    }
    let (medium, is_unfenced) = (shelf.describe(), shelf.is_unfenced());
    let data: Arc<dyn Shelf> = shelf.clone();
    let place = Place { fence: Some(shelf), is_unfenced, ..Place::on(data) };
    Ok(OpenedPlace { place, medium, real: true, cache: None, disks: BTreeSet::new() })
}

/// Whether a new copy of a volume of `bytes` can lie there, as far as that is known without a change: an export that has been made a copy
/// is not taken a second time, so all are asked before the first is written.
///
/// # Errors
/// The server of an export cannot be reached; the export is too small, or contains something.
pub fn check_new(tiers: &TierShelves, copy: &CopyDescription, bytes: u64) -> anyhow::Result<()> {
    match &copy.place {
        PlaceDescription::Export { uri } => RemoteShelf::connect(tiers.client_of(uri)?)?.check_new(bytes),
        PlaceDescription::Tier { .. } => Ok(()),
    }
}

fn open_part(
    tiers: &TierShelves,
    place: &PlaceDescription,
    is_new: bool,
) -> anyhow::Result<(Arc<dyn Shelf>, MediumInUse)> {
    match place {
        PlaceDescription::Tier { tier, folder } => open_shelf(tiers, tier, folder, is_new),
        PlaceDescription::Export { uri } => bail!("{uri}: an export holds a whole copy"),
    }
}

fn open_shelf(
    tiers: &TierShelves,
    tier: &str,
    folder: &Path,
    is_new: bool,
) -> anyhow::Result<(Arc<dyn Shelf>, MediumInUse)> {
    let tier = find(tiers, tier)?;
    let below = volumes_folder(tier)?;
    let below = std::path::absolute(&below).unwrap_or(below);
    ensure!(
        folder.starts_with(&below) || tier.name == HOME,
        "tier {} is {} now, and this copy lies in {}: put the old path back into terrace.toml, or replace the copy",
        tier.name,
        below.display(),
        folder.display()
    );
    if is_new {
        device::os::make_directory(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    ensure!(folder.is_dir(), "{} is not there: is its medium mounted?", folder.display());
    tiers.open(tier, Some(folder), FOLDER).with_context(|| format!("tier {}", tier.name))
}

/// Removes what lies at the place of a copy: its superblock first, so that what a crash leaves behind is no copy; then its folders, and
/// those above them that are empty then. What cannot be reached stays as it is.
///
/// # Errors
/// Something that can be reached cannot be removed.
pub fn clear(tiers: &TierShelves, copy: &CopyDescription) -> anyhow::Result<()> {
    if let Ok(opened) = open(tiers, copy, None) {
        match &copy.place {
            PlaceDescription::Tier { .. } => volume::Volume::delete(&[opened.place])?,
            // Its epoch belongs to the last owner, and it is made anew on its own node.
            PlaceDescription::Export { uri } => {
                tracing::warn!(uri, "the export still contains a copy; make it anew before it is used again")
            }
        }
    }
    remove_folders(copy)
}

/// Removes the folders of a copy, and those above them that are empty then.
///
/// # Errors
/// A folder cannot be removed.
pub fn remove_folders(copy: &CopyDescription) -> anyhow::Result<()> {
    for place in [copy.journal.as_ref(), copy.cache.as_ref().map(|cache| &cache.place), Some(&copy.place)] {
        let Some(PlaceDescription::Tier { folder, .. }) = place else { continue };
        // A description that was changed by hand removes nothing else.
        let above = folder.parent().and_then(Path::parent).and_then(Path::file_name);
        ensure!(
            above.is_some_and(|name| name == FOLDER),
            "{} is no place of a copy: it is not removed",
            folder.display()
        );
        match std::fs::remove_dir_all(folder) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            removed => removed.with_context(|| format!("cannot remove {}", folder.display()))?,
        }
        // The volume's folder, where this was its last copy there; otherwise it is not empty, and stays.
        if let Some(of_volume) = folder.parent() {
            let _ = std::fs::remove_dir(of_volume);
        }
    }
    Ok(())
}
