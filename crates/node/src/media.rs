//! The media of the structures of a node's store, for status, logs and reports.
//!
//! Plain data: `catalogue::placement` decides the places, and the program that starts the node opens them.

use std::sync::Arc;

use catalogue::Budget;
use device::Durability;

/// The medium of a structure of the store, for status, logs and reports.
#[derive(Debug, Clone)]
pub struct MediumInUse {
    /// Name of its tier.
    pub tier: String,
    /// The medium and how it is used, in words.
    pub device: String,
    /// The durability of a flush there.
    pub durability: Durability,
    /// False if the medium is a timing model.
    pub real: bool,
}

/// Far memory of the page cache, for status, logs and reports.
#[derive(Debug, Clone)]
pub struct FarInUse {
    /// Its medium.
    pub medium: MediumInUse,
    /// The name of near and far memory together: `memory-mode` or `dual` where a mode of that name placed them,
    /// `two-tier` where a setting did.
    pub cache_mode: &'static str,
}

/// A timing model of a tier.
#[derive(Debug, Clone)]
pub struct ModelInUse {
    /// Name of the tier.
    pub tier: String,
    /// The medium's name in the catalogue.
    pub medium: String,
    /// How many modules of it share the load.
    pub modules: u32,
    /// The accesses through it, and how many of them ended late.
    pub budget: Arc<Budget>,
}

/// The media of the store's structures.
#[derive(Debug, Clone)]
pub struct Media {
    /// The journal.
    pub journal: MediumInUse,
    /// The write image journal.
    pub images: MediumInUse,
    /// The pages.
    pub data: MediumInUse,
    /// Far memory, where the page cache has any.
    pub far: Option<FarInUse>,
    /// The files of search indices, where they are placed on a tier.
    pub search: Option<MediumInUse>,
    /// Their large files, where these are placed on another tier.
    pub search_capacity: Option<MediumInUse>,
    /// The timing models of the tiers that are used.
    pub models: Vec<ModelInUse>,
}

impl Media {
    /// All on one.
    pub fn all(medium: &MediumInUse) -> Media {
        Media::of(medium.clone(), medium.clone(), medium.clone())
    }

    /// Each on its own, with neither far memory nor models.
    pub fn of(journal: MediumInUse, images: MediumInUse, data: MediumInUse) -> Media {
        Media { journal, images, data, far: None, search: None, search_capacity: None, models: Vec::new() }
    }
}
