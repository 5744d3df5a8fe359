//! What the store's page cache would have found of a profile's accesses, at any size: miniature simulation (Waldspurger et al., "Cache
//! modeling and optimization using miniature simulations", ATC 2017).
//!
//! ```text
//!   sampled stream, a part R of all keys  ->  a cache with a part R of the memory  ->  its ratios are those of the whole
//! ```
//!
//! [`PageCacheModel`] decides as `store::cache` does: CLOCK with usage counts and a ghost list, demotion to and promotion from far memory,
//! and the direct map of Memory Mode. The integration test drives the real page cache with the same accesses and compares.
//!
//! Not here: changed pages that a checkpoint has to write first stay in memory longer; scans that say so take a ring's share only; inner pages
//! have memory of their own. Slabs are not divided: an extent takes its frame's bytes anywhere.

mod page_cache;
mod tier;

use std::io::Read;

pub use page_cache::{CacheMemory, CacheShape, Found, PageCacheModel};

use crate::PlanError;
use crate::profile::ProfileReader;

/// Where accesses were served, as parts of all of them, 0 to 1; they add up to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Served {
    /// In near memory.
    pub near: f64,
    /// In far memory.
    pub far: f64,
    /// From a device: the miss ratio.
    pub device: f64,
}

/// Simulates caches of these shapes over the whole stream of a profile.
///
/// The accesses of the sample are fewer or more than its part of all accesses, because the few keys that are used most are in it or not:
/// the difference counts as found in near memory, as with SHARDS_adj.
///
/// # Errors
/// Those of reading the profile; a shape that cannot be.
pub fn simulate<R: Read>(profile: &mut ProfileReader<R>, shapes: &[CacheShape]) -> Result<Vec<Served>, PlanError> {
    let summary = profile.summary().clone();
    let rate = summary.stream_rate;
    let accesses = summary.cached().reuse.accesses;
    let has_pages = summary.origin.keys == "page";
    let mut models = Vec::new();
    for shape in shapes {
        models.push(PageCacheModel::new(shape, rate, has_pages).map_err(PlanError::Refused)?);
    }
    let mut found = vec![[0u64; 3]; shapes.len()];
    while let Some(entries) = profile.next_chunk()? {
        for entry in entries.into_iter().filter(|entry| !summary.is_beside(entry.structure)) {
            for (model, found) in models.iter_mut().zip(&mut found) {
                let place = model.access(entry.hash, entry.bytes);
                // A page that was made takes memory from then on, but nothing was looked for.
                if !entry.is_new {
                    found[place as usize] += 1;
                }
            }
        }
    }
    let expected = accesses as f64 * rate;
    let served = found.iter().map(|[near, far, device]| {
        let sampled = (near + far + device) as f64;
        // A sample with more than its part has too many hits of its most used keys.
        let near = (*near as f64 + expected - sampled).max(0.0);
        let all = (near + (far + device) as f64).max(1.0);
        Served { near: near / all, far: *far as f64 / all, device: *device as f64 / all }
    });
    Ok(served.collect())
}
