//! Single requests on the loop device: what the path costs, and whether the delays come out as they should.
//!
//! 4 KiB at random places, one after the other, past the page cache (`O_DIRECT`). A flush is measured alone, after a write.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Instant;

use anyhow::Context;
use device::AlignedBuffer;
use rustix::fs::OFlags;
use workload::interrupt;

use crate::delay::PathCost;

/// Requests of each kind; with a slow medium a second in all.
const REQUESTS: usize = 300;
/// Requests before them, which are not counted.
const WARM: usize = 30;
/// Places of the requests.
const PLACES: u64 = 4096;
const BLOCK: usize = 4096;

/// Medians of the three kinds, nanoseconds.
pub type Probed = PathCost;

/// Measures a block device, and overwrites its first 16 MiB.
///
/// # Errors
/// Those of the device, and the user's request to end.
pub fn probe(path: &Path) -> anyhow::Result<Probed> {
    let failed = || format!("measuring {}", path.display());
    let flags = OFlags::DIRECT.bits() as i32;
    let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path).with_context(failed)?;
    let mut buffer = AlignedBuffer::zeroed(BLOCK);
    let mut random = fastrand::Rng::with_seed(1);
    let mut place = || random.u64(..PLACES) * BLOCK as u64;
    let write_ns = median(|| file.write_all_at(&buffer, place())).with_context(failed)?;
    let flush_ns = median_of_flushes(&file, &buffer, &mut place).with_context(failed)?;
    let read_ns = median(|| file.read_exact_at(&mut buffer, place())).with_context(failed)?;
    Ok(Probed { read_ns, write_ns, flush_ns })
}

fn median(mut request: impl FnMut() -> std::io::Result<()>) -> anyhow::Result<f64> {
    let mut times = Vec::with_capacity(REQUESTS);
    for at in 0..WARM + REQUESTS {
        interrupt::check()?;
        let started = Instant::now();
        request()?;
        if at >= WARM {
            times.push(started.elapsed().as_nanos() as f64);
        }
    }
    Ok(middle(times))
}

fn median_of_flushes(file: &File, buffer: &[u8], place: &mut impl FnMut() -> u64) -> anyhow::Result<f64> {
    let mut times = Vec::with_capacity(REQUESTS);
    for at in 0..WARM + REQUESTS {
        interrupt::check()?;
        file.write_all_at(buffer, place())?;
        let started = Instant::now();
        file.sync_data()?;
        if at >= WARM {
            times.push(started.elapsed().as_nanos() as f64);
        }
    }
    Ok(middle(times))
}

/// The median.
pub fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        count if count % 2 == 1 => values[count / 2],
        count => (values[count / 2 - 1] + values[count / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_the_median() {
        for (values, expected) in [(vec![], 0.0), (vec![3.0, 1.0, 2.0], 2.0), (vec![4.0, 1.0, 2.0, 3.0], 2.5)] {
            assert_eq!(middle(values), expected);
        }
    }

    #[test]
    fn a_file_can_be_measured_as_a_block_device_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("disk");
        File::create(&path).and_then(|file| file.set_len(PLACES * BLOCK as u64)).expect("a file");
        match probe(&path) {
            Ok(probed) => assert!(probed.read_ns > 0.0 && probed.write_ns > 0.0 && probed.flush_ns > 0.0),
            Err(error) => assert!(format!("{error:#}").contains("Invalid argument"), "no direct I/O here: {error:#}"),
        }
    }
}
