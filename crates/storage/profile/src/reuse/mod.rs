//! How soon what was used is used again, and what a cache of any size would miss because of it.
//!
//! ```text
//!   accesses -> StackDistances   the exact distance of each access          memory: every key
//!            -> Shards           of a sample of the keys, scaled up         memory: so many keys
//!                   |
//!               Histogram        distances by size
//!                   |
//!              MissRatioCurve    misses / accesses of an LRU cache, by its size
//! ```
//!
//! The *distance* of an access is the size of the smallest LRU cache in which it is a hit: the bytes of all keys that were used since
//! the same key was used before, with its own (Mattson et al., "Evaluation techniques for storage hierarchies", 1970). An access to a
//! key that was never used before has none: it is a miss in every cache.
//!
//! Everything here is pure. Keys are numbers; whoever samples passes in well-mixed hashes.

mod curve;
mod distances;
mod histogram;
mod shards;

pub use curve::{MissRatioCurve, ReuseCounts, mean_absolute_error};
pub use distances::StackDistances;
pub(crate) use histogram::BUCKET_BYTES;
pub use histogram::{BUCKETS, Histogram};
pub use shards::{KEYS_DEFAULT, Sampled, Shards};

#[cfg(test)]
mod tests;
