//! [`ProfileTap`]: what clients read and write of volumes, for whoever records a profile of the node.
//!
//! Volumes are opened before the store is, and some of them have the store's own data: the tap comes later, and volumes that the node itself uses
//! are not told of, since what the store reads of them is recorded as pages.

use std::sync::{Arc, OnceLock};

use device::BLOCK_BYTES;
use store::cache::tap::{AccessTap, Blocks, Use, VOLUMES, object_of};
use volume::AccessWatch;

/// See the module's text.
#[derive(Debug, Clone, Default)]
pub struct ProfileTap(Arc<OnceLock<Arc<AccessTap>>>);

impl ProfileTap {
    /// Passes on to this tap from now on; only the first one counts.
    pub fn pass_to(&self, tap: &Arc<AccessTap>) {
        // A host is started once.
        let _ = self.0.set(Arc::clone(tap));
    }

    /// The watch of a volume with this name.
    pub fn watch(&self, name: &str) -> Arc<dyn AccessWatch> {
        Arc::new(WatchedVolume { tap: self.clone(), object: object_of(name.as_bytes()) })
    }
}

#[derive(Debug)]
struct WatchedVolume {
    tap: ProfileTap,
    object: u64,
}

impl AccessWatch for WatchedVolume {
    fn accessed(&self, is_write: bool, offset: u64, bytes: u64) {
        let Some(tap) = self.tap.0.get() else { return };
        let block = BLOCK_BYTES as u64;
        let numbers = offset / block..(offset + bytes).div_ceil(block);
        let blocks = || Blocks { structure: VOLUMES, object: self.object, numbers, bytes: BLOCK_BYTES as u32 };
        tap.beside(blocks, if is_write { Use::Write } else { Use::Read });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use device::{Device, MemoryShelf};
    use volume::{NewVolume, Options, Place, Volume};

    use super::*;

    #[test]
    fn reads_and_writes_of_a_volume_are_told_in_its_blocks_once_there_is_a_tap() {
        let tap = Arc::new(AccessTap::new(8192));
        let of_node = ProfileTap::default();
        let places = [Place::on(Arc::new(MemoryShelf::new()))];
        let new = NewVolume { volume: [7; 16], bytes: 1 << 20, min_copies: None, is_thin: false };
        Volume::create(&places, &new, &Options::new(1)).expect("a volume");
        let options = Options { watch: Some(of_node.watch("data")), ..Options::new(2) };
        let volume = Volume::open(places.to_vec(), options).expect("opens");
        volume.write(0, &[1; 4096]).expect("writes");
        of_node.pass_to(&tap);
        volume.write(0, &[1; 4096]).expect("writes");
        tap.start(profile::hash::Salt::of_seed(1), u64::MAX);
        volume.write(8192, &[1; 8192]).expect("writes");
        volume.read(12_000, &mut [0; 600]).expect("reads");
        volume.discard(0, 4096).expect("discards");
        let drained = tap.drain();
        let counts = drained.counts[usize::from(VOLUMES)];
        assert_eq!((counts.writes, counts.write_bytes), (2, 8192));
        assert_eq!((counts.reads, counts.read_bytes), (2, 8192), "blocks as a whole; a discard is none of them");
        assert_eq!(drained.sampled[0].hash, drained.sampled[2].hash, "the same block");
    }
}
