//! The one place that puts a node together: tiers become shelves, each structure gets its own.
//!
//! ```text
//! terrace.toml --config--> Plan (options, placement, models)
//!                            |  start
//!                            v
//!   claim the journal's place (DATA/placement.json) -> open its tier -> slow it down, if a model is set -> RunningProduction
//!
//!   journal, images, pages: their seats, or DATA/journal, DATA/images, DATA/pages; the cache: near memory, and a modelled tier
//!   as far memory
//!
//!   tiers             a tier as a shelf: its medium, and its model
//! ```
//!
//! Invariants: every setting is used or refused, never ignored; a modelled tier is named as such in the log, in the
//! status and in every report.
//!
//! It deliberately decides no places. `catalogue::placement` does that, without access to the machine.

mod cache;
mod modules;
mod own_exports;
mod pages;
mod sizes;
mod tiers;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use catalogue::Medium;
use catalogue::placement::{ActsAs, Because, Kind, MediumFacts, Needs, Placement, Seat, Settings, Structure, Tier};
use catalogue::provision::Machine;
use device::Shelf;
use interop::production::Files;
use interop::production::units::Bytes;
use interop::running::{Options, RunningProduction};
use node::{Location, Locations, Media, MediumInUse, NodeError};
use store::Places;
use tiers::{Modelled, open_file};

pub use own_exports::OwnExports;
pub use tiers::{TierShelves, VolumeSource};

/// Journal segments beyond what may wait to be written to the pages: the one that is written, the one prepared behind it, and
/// the one that still holds the first byte of that.
const SEGMENTS_BEYOND: u64 = 3;

/// How a node is run and where its parts lie, checked and not started.
#[derive(Debug)]
pub struct Plan {
    options: Options,
    placement: Placement,
    tiers: TierShelves,
}

/// Sizes of memory as terrace.toml has them at its top level, in bytes.
#[derive(Debug, Default)]
pub struct MemorySizes {
    /// The page cache.
    pub cache: Option<u64>,
    /// Old versions.
    pub versions: Option<u64>,
}

impl MemorySizes {
    /// The store's options with these sizes; `placed` is what placement gives the page cache.
    fn apply(self, store: store::Options, placed: Option<u64>) -> anyhow::Result<store::Options> {
        if let (Some(cache), Some(placed)) = (self.cache, placed) {
            anyhow::ensure!(
                cache == placed,
                "cache = \"{}\" has no effect: placement gives the page cache {}; leave one of them out",
                Bytes(cache),
                Bytes(placed)
            );
        }
        let cache_bytes = placed.or(self.cache).unwrap_or(store.cache_bytes);
        let store = store.with_cache(cache_bytes);
        Ok(store::Options { versions_bytes: self.versions.unwrap_or(store.versions_bytes), ..store })
    }
}

impl Plan {
    /// Checks where everything shall lie; `media` is a folder of media descriptions of one's own.
    pub fn of(
        mut options: Options,
        settings: &Settings,
        memory: MemorySizes,
        media: Option<&Path>,
    ) -> anyhow::Result<Plan> {
        let mut known = catalogue::media().to_vec();
        if let Some(folder) = media {
            known.extend(Medium::read_folder(folder).context("the media of one's own")?);
        }
        let needs = Needs {
            home: options.data.clone(),
            journal_bytes: journal_limit(&options).saturating_add(SEGMENTS_BEYOND * options.journal.segment_bytes),
        };
        let facts = |name: &str| Medium::find_in(&known, name).map(|m| facts_of(&m)).map_err(|e| e.to_string());
        let placement = Placement::of(settings, &needs, &facts)?;
        let mut modelled = BTreeMap::new();
        for tier in placement.tiers.iter() {
            if let Some(wanted) = &tier.model {
                let medium = Medium::find_in(&known, &wanted.medium)?;
                modelled.insert(tier.name.clone(), Modelled::of(medium, wanted.modules)?);
            }
        }
        options.store.cache = cache::of(&placement, &modelled)?;
        options.store = memory.apply(options.store, placement.seat(Structure::Cache).and_then(|seat| seat.bytes))?;
        sizes::check(&options)?;
        options.files = Files {
            all: placement.seat(Structure::Files).and_then(|seat| seat.folder.clone()),
            named: placement.files_of().clone(),
        };
        let tiers = TierShelves::new(placement.tiers.clone(), modelled);
        Ok(Plan { options, placement, tiers })
    }

    /// The node's options.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The tiers, for what lies on them besides the node's own structures.
    pub fn tiers(&self) -> &TierShelves {
        &self.tiers
    }

    /// The keys of tiers that are set for the files of search indices.
    pub fn placed_search(&self) -> Vec<&'static str> {
        let structures = [Structure::Search, Structure::SearchCapacity].into_iter();
        structures.filter(|structure| self.placement.seat(*structure).is_some()).map(Structure::key).collect()
    }

    /// Starts the node.
    pub async fn start(self) -> anyhow::Result<Assembled> {
        let Plan { options, placement, tiers } = self;
        let seats = Seats::of(&placement)?;
        let locations = seats.locations(&placement);
        let mut search = SearchShelves::default();
        let open = || {
            let (places, media, shelf) = seats.open(&placement, &options.data, &tiers)?;
            search = shelf;
            Ok((places, media))
        };
        let folders = folders_of(&placement);
        let node = RunningProduction::start_at(&locations, open, options.clone()).await?;
        log_placement(&placement, node.media());
        let slots = Machine::read(Path::new("/")).ok().and_then(|machine| machine.slots);
        for (tier, Modelled { medium, model, .. }) in tiers.modelled() {
            if let Some(doubt) = modules::doubt(tier, medium, model.modules(), slots) {
                tracing::warn!("{doubt}");
            }
        }
        Ok(Assembled { node, tiers, search, folders })
    }
}

/// Where the files of search indices lie, as far as tiers are set for them.
#[derive(Clone, Debug, Default)]
#[cfg_attr(not(feature = "search"), expect(dead_code, reason = "a program without search opens no index"))]
pub struct SearchShelves {
    /// All of them, or the small ones.
    pub files: Option<Arc<dyn Shelf>>,
    /// The large ones.
    pub capacity: Option<Arc<dyn Shelf>>,
    /// Why one of these tiers cannot be used. Without one of them indices would look damaged: then none is opened.
    pub failure: Option<String>,
}

/// A running node, with its media.
#[derive(Debug)]
pub struct Assembled {
    /// The node.
    pub node: Arc<RunningProduction>,
    /// Where the files of search indices lie.
    pub search: SearchShelves,
    tiers: TierShelves,
    folders: Vec<(String, PathBuf)>,
}

impl Assembled {
    /// The tiers, with what was done to their media.
    pub fn tiers(&self) -> &TierShelves {
        &self.tiers
    }

    /// The folders where structures lie on tiers, by name of the tier.
    pub fn folders(&self) -> &[(String, PathBuf)] {
        &self.folders
    }

    /// Stops the node, and logs the accesses through modelled tiers and how many of them ended later than in the model.
    pub async fn stop(&self) {
        self.node.stop().await;
        for (tier, modelled) in self.tiers.modelled() {
            let traffic = modelled.budget.traffic();
            let (accesses, late) = (traffic.accesses, traffic.late);
            let (read, written, late_us) = (traffic.read, traffic.written, traffic.late_ns as u64 / 1000);
            tracing::info!(tier, accesses, read, written, late, late_us, "modelled traffic");
        }
    }
}

/// The maximum size of the journal: the records whose pages are not yet written, and those kept behind them.
fn journal_limit(options: &Options) -> u64 {
    let limit = options.store.checkpoints.unwrap_or_default().journal_bytes_max;
    limit.saturating_add(options.store.keep_journal_bytes)
}

/// One folder of each tier that has structures in folders.
fn folders_of(placement: &Placement) -> Vec<(String, PathBuf)> {
    let mut folders = BTreeMap::new();
    for seat in placement.seats() {
        if let Some(folder) = &seat.folder {
            folders.entry(seat.tier.clone()).or_insert_with(|| folder.clone());
        }
    }
    folders.remove(catalogue::placement::HOME);
    folders.into_iter().collect()
}

fn tier_of<'a>(placement: &'a Placement, seat: &Seat) -> &'a Tier {
    placement.tiers.get(&seat.tier).expect("a seat's tier is one of the placement's")
}

/// The properties of a medium that placement needs. A module of memory labelled 128 GB has 128 GiB of cells; a drive's
/// label counts in powers of ten.
fn facts_of(medium: &Medium) -> MediumFacts {
    let (acts_as, gb) = match medium.kind {
        catalogue::MediumKind::Memory => (ActsAs::Memory, (1u64 << 30) as f64),
        catalogue::MediumKind::Pmem => (ActsAs::Pmem, (1u64 << 30) as f64),
        catalogue::MediumKind::Drive | catalogue::MediumKind::San => (ActsAs::Drive, 1e9),
    };
    let bytes = (medium.capacity_gb * gb) as u64;
    MediumFacts { acts_as, capacity: (bytes > 0).then_some(bytes), modules: medium.modules }
}

/// What is opened: the places of the store, what they and other structures lie on, and the shelf of index files.
type Opened = (Places, Media, SearchShelves);

/// Where the three structures of the store lie: their seats, or below the data directory; and the seat of index files.
struct Seats<'p> {
    journal: &'p Seat,
    images: Option<&'p Seat>,
    data: Option<&'p Seat>,
    search: Option<&'p Seat>,
    search_capacity: Option<&'p Seat>,
}

impl<'p> Seats<'p> {
    fn of(placement: &'p Placement) -> anyhow::Result<Seats<'p>> {
        let journal = placement.journal();
        let volatile = |seat: &Seat| tier_of(placement, seat).is_volatile();
        let of = |structure| match placement.seat(structure) {
            Some(seat) => Some(seat),
            // Pages that outlive their journal would be of no use: they go with it.
            None if volatile(journal) => Some(journal),
            None => None,
        };
        let (images, data) = (of(Structure::WriteImageJournal), of(Structure::Data));
        for (name, seat) in [("write_image_journal", images), ("data", data)] {
            let kept = seat.is_none_or(|seat| !volatile(seat));
            anyhow::ensure!(
                kept != volatile(journal),
                "placement.journal and placement.{name} must both lie on memory, or neither: after a crash one would not fit the other"
            );
        }
        let (search, search_capacity) = (placement.seat(Structure::Search), placement.seat(Structure::SearchCapacity));
        Ok(Seats { journal, images, data, search, search_capacity })
    }

    fn locations(&self, placement: &Placement) -> Locations {
        let of = |seat: Option<&Seat>, home: Location| match seat {
            Some(seat) => location(seat, tier_of(placement, seat), home),
            None => home,
        };
        let home = Locations::home();
        Locations {
            journal: of(Some(self.journal), home.journal),
            images: of(self.images, home.images),
            data: of(self.data, home.data),
        }
    }

    /// Opens all of them; a modelled tier is measured once.
    fn open(&self, placement: &Placement, data: &Path, tiers: &TierShelves) -> Result<Opened, NodeError> {
        let of = |seat: Option<&Seat>, home: Location, structure: Structure| match seat {
            Some(seat) => open_seat(tiers, placement, (seat, structure)),
            None => {
                let folder = home.folder_in(data).expect("home is a folder");
                let (shelf, device, durability) = open_file(&folder)?;
                let shelf = tiers.measured(&home.tier, structure, shelf);
                Ok((shelf, MediumInUse { tier: home.tier, device, durability, real: true }))
            }
        };
        let home = Locations::home();
        let (journal, journal_medium) = of(Some(self.journal), home.journal, Structure::Journal)?;
        let (images, images_medium) = of(self.images, home.images, Structure::WriteImageJournal)?;
        let (data, data_medium) = of(self.data, home.data, Structure::Data)?;
        let mut failure = None;
        // The node does not depend on them: it starts without search.
        let mut placed = |seat: Option<&Seat>| match seat
            .map(|seat| open_seat(tiers, placement, (seat, seat.structure)))
            .transpose()
        {
            Ok(opened) => opened.unzip(),
            Err(error) => {
                failure = Some(error.to_string());
                (None, None)
            }
        };
        let (files, search) = placed(self.search);
        let (capacity, search_capacity) = placed(self.search_capacity);
        let far = cache::far_in_use(placement, tiers)?;
        let models = tiers.models_in_use();
        let placed = Media::of(journal_medium, images_medium, data_medium);
        let media = Media { far, search, search_capacity, models, ..placed };
        Ok((Places { journal, images, data }, media, SearchShelves { files, capacity, failure }))
    }
}

fn open_seat(
    tiers: &TierShelves,
    placement: &Placement,
    (seat, structure): (&Seat, Structure),
) -> Result<(Arc<dyn Shelf>, MediumInUse), NodeError> {
    let part = seat.structure.folder().unwrap_or_else(|| seat.structure.key());
    let (shelf, medium) = tiers.open(tier_of(placement, seat), seat.folder.as_deref(), part)?;
    // What goes with the journal has its seat, and figures of its own.
    Ok((tiers.measured(&seat.tier, structure, shelf), medium))
}

/// How the placement file records where a structure lies; `home` where it lies there.
fn location(seat: &Seat, tier: &Tier, home: Location) -> Location {
    if tier.name == catalogue::placement::HOME {
        return home;
    }
    let folder = seat.folder.as_ref().map(|folder| std::path::absolute(folder).unwrap_or_else(|_| folder.clone()));
    Location { tier: tier.name.clone(), kind: tier.kind.name().to_owned(), folder }
}

/// Logs the place and the durability of each structure, and whether its medium is real.
fn log_placement(placement: &Placement, media: &Media) {
    if let Some(mode) = placement.mode {
        tracing::info!(%mode, "placement");
    }
    for seat in placement.seats() {
        let at = match (&seat.folder, &tier_of(placement, seat).kind) {
            (Some(folder), _) => folder.display().to_string(),
            (None, Kind::Nbd { uri }) => uri.clone(),
            (None, Kind::Volume { volume }) => format!("volume {volume}"),
            (None, _) => "memory".to_owned(),
        };
        let because = match seat.because {
            Because::Setting => "setting",
            Because::Mode => "mode",
            Because::Default => "default",
        };
        let (structure, tier) = (seat.structure, &seat.tier);
        let in_use = match structure {
            Structure::Journal => Some(&media.journal),
            Structure::WriteImageJournal => Some(&media.images),
            Structure::Data => Some(&media.data),
            Structure::Far => media.far.as_ref().map(|far| &far.medium),
            Structure::Search => media.search.as_ref(),
            Structure::SearchCapacity => media.search_capacity.as_ref(),
            // Neither is ever slowed down: near memory has no model, and files are written past the model of their tier.
            Structure::Cache | Structure::Files => None,
        };
        match in_use {
            Some(MediumInUse { device, durability, real, .. }) => {
                let medium = if *real { "real" } else { "modelled" };
                tracing::info!(%structure, tier, at, because, %durability, medium, device, "placed");
            }
            None => tracing::info!(%structure, tier, at, because, medium = "real", "placed"),
        }
    }
}
