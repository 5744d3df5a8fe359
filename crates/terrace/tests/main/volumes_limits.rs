//! Limits of what clients of a volume get: changed while they use it, and durable.

use std::thread;
use std::time::{Duration, Instant};

use device::{AlignedBuffer, Device};
use nbd::NbdDevice;

use crate::volumes::{bed, client_of, create, read, report, volume, write};

const PART: usize = 256 << 10;

/// Writes so many parts, at the beginning in turns; returns how long that took.
fn write_parts(device: &NbdDevice, parts: u64) -> Duration {
    let (bytes, start) = (AlignedBuffer::zeroed(PART), Instant::now());
    for at in 0..parts {
        device.write_flush(at % 8 * PART as u64, &bytes).expect("it is written");
    }
    start.elapsed()
}

#[test]
fn a_limit_of_bytes_that_is_set_while_a_client_writes_holds_at_once_and_after_a_restart_until_it_is_taken_away() {
    let bed = bed();
    create(&bed, "v", &["--iops", "100000"]);
    volume(&bed, &["limit", "v", "--iops", "none"]);
    let node = bed.start();
    volume(&bed, &["export", "v"]);
    let device = client_of(&bed, "v");
    write_parts(&device, 8);
    let said = volume(&bed, &["limit", "v", "--bandwidth", "1MiB"]);
    assert!(said.contains("clients of volume v get 1.0 MiB/s, all together"), "{said}");
    // 3 MiB at 1 MiB/s: without a tenth that may be saved up, and without the wait behind the last part.
    let took = write_parts(&device, 12);
    assert!((Duration::from_millis(2_500)..Duration::from_secs(20)).contains(&took), "{took:?}");
    drop(device);
    node.stop();
    let node = bed.start();
    assert_eq!((&report(&bed, "v")["bytes_per_second"], &report(&bed, "v")["iops"]), (&(1 << 20).into(), &().into()));
    let device = client_of(&bed, "v");
    let took = write_parts(&device, 8);
    assert!(took > Duration::from_millis(1_500), "{took:?}");
    // A client that waits behind a limit of a kilobyte is let go at once.
    volume(&bed, &["limit", "v", "--bandwidth", "1KiB"]);
    let took = thread::scope(|scope| {
        let waiting = scope.spawn(|| write_parts(&device, 8));
        thread::sleep(Duration::from_millis(500));
        assert!(!waiting.is_finished(), "it waits");
        volume(&bed, &["limit", "v", "--bandwidth", "none", "--iops", "0"]);
        waiting.join().expect("no panic")
    });
    assert!(took < Duration::from_secs(20), "{took:?}");
    assert_eq!((&report(&bed, "v")["bytes_per_second"], read(&device, 0)), (&().into(), 0));
    assert!(write(&device, 0, 1));
    bed.command_line(&["volume", "limit", "v"]).fails("--iops");
    bed.command_line(&["volume", "limit", "none", "--iops", "1"]).fails("there is no volume none");
    node.stop();
}
