//! Block volumes of a data directory: opened, kept open, exported over NBD, changed by requests.
//!
//! ```text
//!   requests --> host --> hosted --> places --> tiers, caches, exports of other nodes (remote)
//!                 |         |
//!                 |         +--> volume: Volume;  epochs: places of other nodes' copies
//!                 +--> descriptions (one file each);  serving: NBD server, in a node or by itself
//! ```
//!
//! `args` is the command line of `terrace volume`; the commands are in `volume_commands`, since they need the settings of a node, which
//! need those of this module.

mod args;
mod changes;
mod description;
mod disks;
mod epochs;
mod host;
mod hosted;
mod keys;
mod place_health;
mod places;
mod remote;
mod requests;
mod rights;
mod serving;
mod settings;
mod space;
mod watching;

use std::path::Path;

pub use args::{
    CreateArgs, ExportArgs, GrowArgs, LimitArgs, NameArgs, RekeyArgs, ReplaceArgs, TopArgs, VolumeCommand, VolumePlace,
};
pub use description::VolumeKind;
pub use host::VolumeHost;
pub use requests::{
    Activity, CacheReport, CopyReport, MadeReport, NewVolumeRequest, REQUEST, ScrubReport, VolumeReport, VolumeRequest,
    VolumeState,
};
pub use serving::{NodeVolumes, RunningVolumes, VolumeRequests};
pub use settings::VolumeSettings;

/// Draws a number that no other owner, volume or copy has.
fn draw_id() -> u128 {
    use std::hash::{BuildHasher, RandomState};
    use std::sync::atomic::{AtomicU64, Ordering};
    static DRAWN: AtomicU64 = AtomicU64::new(0);
    // The keys of a hash map come from the system's randomness; the count tells two of one process apart.
    let half = || u128::from(RandomState::new().hash_one(DRAWN.fetch_add(1, Ordering::Relaxed)));
    half() << 64 | half()
}

/// The names of the volumes of a data directory, readable or not.
pub fn names(data: &Path) -> Vec<String> {
    let all = description::Descriptions::of(data).read_all().unwrap_or_default();
    all.into_iter().map(|(name, _)| name).collect()
}
