//! Places of copies: from the name of a tier to the shelves that a copy lies on.
//!
//! ```text
//!   tier "nvme", volume "vol-7", copy 0   -->   NVME/volumes/vol-7/0-<8 hex digits>            blocks, sums, superblock
//!   tier "pmem" for its journal           -->   PMEM/volumes/vol-7/0-<8 hex digits>-journal
//! ```
//!
//! The digits are drawn anew for each copy that is made, so a copy that replaces another one never meets its files.
//!
//! Invariant: opening does not make a folder that is not there. A medium that is not mounted is a missing copy, and nothing is written
//! below its mount point.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use catalogue::placement::{HOME, Kind, Tier};
use device::Shelf;
use node::MediumInUse;
use volume::Place;

use super::description::{CopyDescription, PlaceDescription, file_name};
use super::requests::WantedCopy;
use crate::assemble::TierShelves;

/// Folder of a tier, below which volumes lie.
const FOLDER: &str = "volumes";

/// The opened shelves of a copy.
#[derive(Debug)]
pub struct OpenedPlace {
    /// For the volume.
    pub place: Place,
    /// The medium of its blocks.
    pub medium: MediumInUse,
}

/// The places of new copies, on the tiers that are wanted. Nothing is made.
///
/// # Errors
/// An unknown tier, one that cannot hold a copy, or one tier for two copies unless `share_tiers`.
pub fn choose(
    tiers: &TierShelves,
    name: &str,
    wanted: &[WantedCopy],
    share_tiers: bool,
) -> anyhow::Result<Vec<CopyDescription>> {
    for (index, copy) in wanted.iter().enumerate() {
        ensure!(
            share_tiers || !wanted[..index].iter().any(|other| other.tier == copy.tier),
            "two copies would lie on tier {}: what breaks one breaks both. Name another tier, or allow it with --share-tiers",
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
    let drawn = super::draw_id() as u32;
    let at = |tier: &str, suffix: &str| -> anyhow::Result<PlaceDescription> {
        let found = find(tiers, tier)?;
        let folder = volumes_folder(found)?.join(file_name(name)).join(format!("{number}-{drawn:08x}{suffix}"));
        let folder = std::path::absolute(&folder).unwrap_or(folder);
        Ok(PlaceDescription { tier: tier.to_owned(), folder })
    };
    let journal = wanted.journal.as_ref().filter(|journal| **journal != wanted.tier);
    Ok(CopyDescription {
        place: at(&wanted.tier, "")?,
        journal: journal.map(|journal| at(journal, "-journal")).transpose()?,
    })
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
        Kind::Pmem { folder, .. } | Kind::File { folder } => Ok(folder.join(FOLDER)),
    }
}

/// Opens the shelves of a copy.
///
/// # Errors
/// The tier is gone from the settings or lies elsewhere now, the folder is not there, or the medium cannot be opened.
pub fn open(tiers: &TierShelves, copy: &CopyDescription) -> anyhow::Result<OpenedPlace> {
    let (data, medium) = open_shelf(tiers, &copy.place, false)?;
    let place = match &copy.journal {
        None => Place::on(data),
        Some(journal) => Place { journal: open_shelf(tiers, journal, false)?.0, ..Place::on(data) },
    };
    Ok(OpenedPlace { place, medium })
}

/// Makes the folders of a new copy and opens its shelves.
///
/// # Errors
/// As [`open`], but for folders that are not there.
pub fn make(tiers: &TierShelves, copy: &CopyDescription) -> anyhow::Result<OpenedPlace> {
    for place in [Some(&copy.place), copy.journal.as_ref()].into_iter().flatten() {
        open_shelf(tiers, place, true)?;
    }
    open(tiers, copy)
}

fn open_shelf(
    tiers: &TierShelves,
    place: &PlaceDescription,
    is_new: bool,
) -> anyhow::Result<(Arc<dyn Shelf>, MediumInUse)> {
    let tier = find(tiers, &place.tier)?;
    let below = volumes_folder(tier)?;
    let below = std::path::absolute(&below).unwrap_or(below);
    ensure!(
        place.folder.starts_with(&below) || tier.name == HOME,
        "tier {} is {} now, and this copy lies in {}: put the old path back into terrace.toml, or replace the copy",
        tier.name,
        below.display(),
        place.folder.display()
    );
    if is_new {
        device::os::make_directory(&place.folder).with_context(|| format!("cannot make {}", place.folder.display()))?;
    }
    ensure!(place.folder.is_dir(), "{} is not there: is its medium mounted?", place.folder.display());
    tiers.open(tier, Some(&place.folder)).with_context(|| format!("tier {}", tier.name))
}

/// Removes the folders of a copy whose devices were removed, and those above them that are empty then.
///
/// # Errors
/// A folder cannot be removed.
pub fn remove_folders(copy: &CopyDescription) -> anyhow::Result<()> {
    for place in [copy.journal.as_ref(), Some(&copy.place)].into_iter().flatten() {
        match std::fs::remove_dir_all(&place.folder) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            removed => removed.with_context(|| format!("cannot remove {}", place.folder.display()))?,
        }
        // The volume's folder, where this was its last copy there; otherwise it is not empty, and stays.
        if let Some(of_volume) = place.folder.parent() {
            let _ = std::fs::remove_dir(of_volume);
        }
    }
    Ok(())
}

/// Whether a copy's medium is there: its tier's folder.
pub fn is_reachable(copy: &CopyDescription) -> bool {
    copy.place.folder.is_dir()
}
