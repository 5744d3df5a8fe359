//! Counters of the cache, striped so that threads do not all write to the same place.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Number of stripes over which threads are spread.
pub(super) const STRIPES: usize = 16;

/// Counters of a cache since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheMetrics {
    /// Reads and changes of pages and extents that were found in near memory. With a direct map: those for which no
    /// page had to be fetched from far memory.
    pub near_hits: u64,
    /// The same, in far memory.
    pub far_hits: u64,
    /// Reads of inner pages that were in memory.
    pub inner_hits: u64,
    /// Reads and changes that had to read from a device.
    pub misses: u64,
    /// Misses of pages that had left memory recently.
    pub ghost_hits: u64,
    /// Bytes read from devices.
    pub read_bytes: u64,
    /// Pages and extents that went from far to near memory.
    pub promotions: u64,
    /// Pages and extents that went from near to far memory.
    pub demotions: u64,
    /// Pages and extents that left memory.
    pub evictions: u64,
    /// Evicted fresh pages that were written in place first.
    pub early_writes: u64,
    /// Bytes written in place by early write-backs.
    pub early_write_bytes: u64,
    /// Pages that moved to another frame of the same memory, so that a slab could be used for frames of another size.
    pub relocations: u64,
    /// Pre-images that were saved because pages of the checkpoint were changed or freed.
    pub pre_images: u64,
    /// Pages that a direct map fetched from far memory.
    pub direct_fetches: u64,
    /// Pages that a direct map wrote back to far memory.
    pub direct_write_backs: u64,
    /// Hits of blocks of external files.
    pub external_hits: u64,
    /// Misses of blocks of external files.
    pub external_misses: u64,
}

impl CacheMetrics {
    /// The share of reads and changes that were found in memory; 1 if there were none.
    pub fn hit_ratio(&self) -> f64 {
        let hits = self.near_hits + self.far_hits + self.inner_hits;
        if hits + self.misses == 0 { 1.0 } else { hits as f64 / (hits + self.misses) as f64 }
    }
}

/// The counters.
#[derive(Clone, Copy, Debug)]
pub(super) enum Count {
    NearHit,
    FarHit,
    InnerHit,
    Miss,
    GhostHit,
    ReadBytes,
    Promotion,
    Demotion,
    Eviction,
    EarlyWrite,
    EarlyWriteBytes,
    Relocation,
    PreImage,
    DirectFetch,
    DirectWriteBack,
    ExternalHit,
    ExternalMiss,
}

const COUNTS: usize = Count::ExternalMiss as usize + 1;

/// One thread's share, aligned to two cache lines (adjacent lines are fetched in pairs on Intel 64).
#[derive(Default)]
#[repr(align(128))]
struct Stripe([AtomicU64; COUNTS]);

/// The stripe of the calling thread.
pub(super) fn own_stripe() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static OWN: Cell<usize> = Cell::new(NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES));
    OWN.get()
}

/// All counts.
#[derive(Default)]
pub(super) struct Counters {
    stripes: [Stripe; STRIPES],
}

impl Counters {
    pub(super) fn add(&self, count: Count, number: u64) {
        self.stripes[own_stripe()].0[count as usize].fetch_add(number, Ordering::Relaxed);
    }

    pub(super) fn metrics(&self) -> CacheMetrics {
        let sum =
            |count: Count| self.stripes.iter().map(|stripe| stripe.0[count as usize].load(Ordering::Relaxed)).sum();
        CacheMetrics {
            near_hits: sum(Count::NearHit),
            far_hits: sum(Count::FarHit),
            inner_hits: sum(Count::InnerHit),
            misses: sum(Count::Miss),
            ghost_hits: sum(Count::GhostHit),
            read_bytes: sum(Count::ReadBytes),
            promotions: sum(Count::Promotion),
            demotions: sum(Count::Demotion),
            evictions: sum(Count::Eviction),
            early_writes: sum(Count::EarlyWrite),
            early_write_bytes: sum(Count::EarlyWriteBytes),
            relocations: sum(Count::Relocation),
            pre_images: sum(Count::PreImage),
            direct_fetches: sum(Count::DirectFetch),
            direct_write_backs: sum(Count::DirectWriteBack),
            external_hits: sum(Count::ExternalHit),
            external_misses: sum(Count::ExternalMiss),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_threads_count_adds_up() {
        let counters = Counters::default();
        std::thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| {
                    counters.add(Count::NearHit, 3);
                    counters.add(Count::DirectWriteBack, 1);
                });
            }
        });
        counters.add(Count::Miss, 20);
        let metrics = counters.metrics();
        assert_eq!((metrics.near_hits, metrics.misses, metrics.direct_write_backs), (60, 20, 20));
        assert_eq!(metrics.hit_ratio(), 0.75);
        assert_eq!(CacheMetrics::default().hit_ratio(), 1.0);
    }
}
