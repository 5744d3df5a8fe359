//! The page cache of a placement: which memory it is of, and how slow its far memory is.
//!
//! ```text
//! mode            near             far                                   policy
//! none, dram      the cache's tier -                                     managed
//! memory, dual    the cache's tier a modelled pmem tier                  direct-mapped, as the hardware's Memory Mode
//! (by key)        the cache's tier memory of a node, or a modelled tier  managed
//! ```
//!
//! Real persistent memory is set up as far memory outside of this program: as Memory Mode, where the machine shows all
//! of it as memory, or as a memory node of the system, which a tier can name.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::bail;
use catalogue::placement::{Kind, Mode, Placement, Structure};
use catalogue::{ModelMemory, Timing};
use device::{Durability, MemoryShelf};
use node::{FarInUse, MediumInUse, NodeError};
use store::cache::{CacheOptions, Policy};

use super::tier_of;
use super::tiers::{Modelled, TierShelves, measure};

/// All but the size of near memory and of pages.
pub(super) fn of(placement: &Placement, modelled: &BTreeMap<String, Modelled>) -> anyhow::Result<CacheOptions> {
    let node = |structure| match placement.seat(structure).map(|seat| &tier_of(placement, seat).kind) {
        Some(Kind::Memory { node }) => *node,
        _ => None,
    };
    let near_node = node(Structure::Cache);
    let near_name = match placement.seat(Structure::Cache) {
        Some(seat) => {
            format!("near memory of the page cache on tier {} (placement.cache_bytes or the tier's `bytes`)", seat.tier)
        }
        None => "the page cache (`cache`)".to_owned(),
    };
    let near = CacheOptions { near_node, near_name, ..CacheOptions::default() };
    let Some(seat) = placement.seat(Structure::Far) else { return Ok(near) };
    let tier = &seat.tier;
    let Some(far_bytes) = seat.bytes else {
        bail!("far memory on tier {tier} needs a size: set placement.far_bytes, or the tier's `bytes`");
    };
    let far_model = modelled.get(tier).map(|modelled| {
        let Modelled { model, budget, .. } = modelled;
        Arc::new(ModelMemory::new(model.clone(), Arc::clone(budget), Timing::Timed))
    });
    let far_node = node(Structure::Far);
    if far_model.is_none() && far_node.is_none() {
        bail!(
            "far memory on tier {tier} is persistent memory as it is, which this release does not map as far memory: give the \
             tier a `model`; or provision the modules as Memory Mode (then all of it is memory, and the cache's), or as a \
             memory node of the system, and name that with a tier of kind memory and its `node`"
        );
    }
    let policy = match placement.mode {
        Some(Mode::Memory | Mode::Dual) if far_model.is_some() => Policy::DirectMapped,
        _ => near.policy,
    };
    let far_name = format!("far memory of the page cache on tier {tier} (placement.far_bytes or the tier's `bytes`)");
    Ok(CacheOptions { far_bytes, far_node, policy, far_model, far_name, ..near })
}

/// The medium of far memory, if there is any: memory of this machine, of one node or any, and the model that slows it
/// down. The model is measured unless its tier was.
pub(super) fn far_in_use(placement: &Placement, tiers: &TierShelves) -> Result<Option<FarInUse>, NodeError> {
    let Some(seat) = placement.seat(Structure::Far) else { return Ok(None) };
    let tier = tier_of(placement, seat);
    let below = match tier.kind {
        Kind::Memory { node: Some(node) } => format!("memory of NUMA node {node}"),
        _ => "memory".to_owned(),
    };
    let cache_mode = match placement.mode {
        Some(Mode::Memory) => "memory-mode",
        Some(Mode::Dual) => "dual",
        _ => "two-tier",
    };
    let model = tiers.modelled().get(&tier.name);
    if let Some(model) = model
        && tiers.is_first(&tier.name)
    {
        let shelf = match tier.kind {
            Kind::Memory { node: Some(node) } => MemoryShelf::on_node(node)?,
            _ => MemoryShelf::new(),
        };
        measure(&tier.name, model, Arc::new(shelf))?;
    }
    let device = model.map_or(below.clone(), |model| model.in_words(&below));
    let medium = MediumInUse { tier: tier.name.clone(), device, durability: Durability::None, real: model.is_none() };
    Ok(Some(FarInUse { medium, cache_mode }))
}
