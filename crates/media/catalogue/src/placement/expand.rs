//! Expands the mode to a tier for each structure; a key below `[placement]` overrides it. Kinds and volatility are
//! checked here.

use std::collections::BTreeMap;

use super::tier::{ActsAs, Tier, Tiers};
use super::{Because, HOME, Mode, PlacementError, Seat, Settings, Structure};

/// The kind of tier on which a mode places a structure; this is the module's table. `None`: the mode does not have the
/// structure.
fn wanted(mode: Mode, structure: Structure) -> Option<ActsAs> {
    match (structure, mode) {
        (Structure::Cache, _) => Some(ActsAs::Memory),
        (Structure::Far, Mode::Memory | Mode::Dual) => Some(ActsAs::Pmem),
        (Structure::Far, Mode::Dram | Mode::AppDirect) => None,
        (Structure::Journal, Mode::AppDirect | Mode::Dual) => Some(ActsAs::Pmem),
        (Structure::WriteImageJournal, Mode::Dual) => Some(ActsAs::Pmem),
        (Structure::Journal | Structure::WriteImageJournal | Structure::Data, _) => Some(ActsAs::Drive),
        (Structure::Files | Structure::Search | Structure::SearchCapacity, _) => None,
    }
}

/// A seat for every structure that the settings place; the journal always has one. Sizes are set later.
pub(super) fn seats(settings: &Settings, tiers: &Tiers) -> Result<BTreeMap<Structure, Seat>, PlacementError> {
    let mut seats = BTreeMap::new();
    for structure in Structure::ALL {
        let key = structure.key();
        let (tier, because) = match (settings.placement.tier_of(structure), settings.mode) {
            (Some(named), _) => (tiers.named(key, named)?, Because::Setting),
            (None, Some(mode)) => match wanted(mode, structure) {
                Some(acts_as) => (choose(settings, tiers, mode, structure, acts_as)?, Because::Mode),
                None => continue,
            },
            (None, None) if structure == Structure::Journal => (tiers.named(key, HOME)?, Because::Default),
            (None, None) => continue,
        };
        check_kind(structure, tier)?;
        if tier.is_volatile() && survives(structure) && !settings.placement.allow_volatile {
            return Err(PlacementError::Volatile { structure, tier: tier.name.clone() });
        }
        let folder = tier.folder_of(structure);
        seats.insert(structure, Seat { structure, tier: tier.name.clone(), folder, bytes: None, because });
    }
    let tier_of = |structure: Structure| seats.get(&structure).map(|seat: &Seat| seat.tier.as_str());
    if let Some(far) = tier_of(Structure::Far)
        && tier_of(Structure::Cache).is_none_or(|near| near == far)
    {
        return Err(PlacementError::FarWithoutNear);
    }
    Ok(seats)
}

/// Returns the single tier of the kind that the mode needs; home is the drive if no other one is declared.
fn choose<'a>(
    settings: &Settings,
    tiers: &'a Tiers,
    mode: Mode,
    structure: Structure,
    acts_as: ActsAs,
) -> Result<&'a Tier, PlacementError> {
    // A tier that a key names as far memory is not also near memory.
    let far = settings.placement.far.as_deref();
    let all = tiers.iter().filter(|tier| tier.acts_as == acts_as);
    let candidates: Vec<&Tier> =
        all.filter(|tier| tier.name != HOME && !(structure == Structure::Cache && far == Some(&tier.name))).collect();
    match candidates.as_slice() {
        [one] => Ok(one),
        [] if acts_as == ActsAs::Drive => tiers.named(structure.key(), HOME),
        [] => {
            let wanted = acts_as.describe();
            Err(PlacementError::NoTier { mode, structure, wanted, key: structure.key() })
        }
        several => {
            let candidates = several.iter().map(|tier| tier.name.as_str()).collect::<Vec<_>>().join(", ");
            Err(PlacementError::SeveralTiers { mode, structure, candidates, key: structure.key() })
        }
    }
}

/// Checks that a structure can be on a tier.
fn check_kind(structure: Structure, tier: &Tier) -> Result<(), PlacementError> {
    let needs = match structure {
        Structure::Cache if tier.acts_as != ActsAs::Memory => "memory, which a cache is made of",
        Structure::Cache if tier.model.is_some() => {
            "memory as it is, a tier without `model`: near memory is never slowed down; far memory is"
        }
        Structure::Far if tier.acts_as == ActsAs::Drive => {
            "byte-addressable memory: pmem, or memory of another NUMA node"
        }
        Structure::Files if tier.folder_of(structure).is_none() => "a folder: a pmem or file tier",
        _ => return Ok(()),
    };
    Err(PlacementError::WrongKind { structure, tier: tier.name.clone(), needs })
}

/// Whether it must survive a crash: cache and far memory are refilled, and index files are made again.
fn survives(structure: Structure) -> bool {
    !matches!(structure, Structure::Cache | Structure::Far | Structure::Search | Structure::SearchCapacity)
}
