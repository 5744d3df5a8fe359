//! The page cache of a placement: which memory it is of, and how slow its far memory is.
//!
//! ```text
//! mode            near             far                                   policy
//! none, dram      the cache's tier -                                     managed
//! memory, dual    the cache's tier a modelled pmem tier                  direct-mapped, as the hardware's Memory Mode
//! (by key)        the cache's tier memory of a node, or a modelled tier  managed
//! ```
//!
//! Persistent memory that is there and shall be far memory is set up as such outside of this program: as Memory Mode, where
//! the machine shows all of it as memory, or as a memory node of the system, which a tier can name.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::bail;
use catalogue::placement::{Kind, Mode, Placement, Structure};
use catalogue::{ModelMemory, Timing};
use store::cache::{CacheOptions, Policy};

use super::{Modelled, tier_of};

/// All but the size of near memory and of pages.
pub(super) fn of(placement: &Placement, modelled: &BTreeMap<String, Modelled>) -> anyhow::Result<CacheOptions> {
    let node = |structure| match placement.seat(structure).map(|seat| &tier_of(placement, seat).kind) {
        Some(Kind::Memory { node }) => *node,
        _ => None,
    };
    let near_node = node(Structure::Cache);
    let Some(seat) = placement.seat(Structure::Far) else {
        return Ok(CacheOptions { near_node, ..CacheOptions::default() });
    };
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
        _ => CacheOptions::default().policy,
    };
    Ok(CacheOptions { near_node, far_bytes, far_node, policy, far_model, ..CacheOptions::default() })
}
