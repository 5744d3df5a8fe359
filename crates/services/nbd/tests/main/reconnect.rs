//! Connections that are lost: what was acknowledged stays, whatever the server lost, and a flush says the truth.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use device::{Device, DeviceError};
use nbd::{Export, NbdDevice, NbdUri};

use crate::rig::{Probe, Rig, memory, until};
use crate::using::{BLOCK, Restartable, Volatile, all_of, open, quick, seed};

fn export(inner: &Arc<Volatile>) -> Export {
    Export::new("disk", Arc::clone(inner) as _)
}

#[test]
fn what_a_server_lost_in_a_crash_is_sent_again_in_its_order() {
    let inner = Volatile::new(16 * BLOCK);
    let mut server = Restartable::new(export(&inner));
    let device = open(&server.socket, "disk");
    let block = |at: u64, byte: u8| device.write(at * BLOCK as u64, &[byte; BLOCK]).expect("write");
    block(0, 1);
    device.flush().expect("flush");
    block(1, 2);
    block(2, 3);
    block(1, 4);
    device.discard(0, BLOCK as u64).expect("discard");
    block(3, 5);
    block(0, 6);
    device.write(2 * BLOCK as u64, &[7; 3 * BLOCK]).expect("write");
    server.stop();
    inner.lose_all();
    assert_eq!(inner.persistent()[..2 * BLOCK], [[1; BLOCK], [0; BLOCK]].concat());
    server.start(export(&inner));
    let expected: Vec<u8> = [6, 4, 7, 7, 7].iter().flat_map(|byte| [*byte; BLOCK]).collect();
    assert!(all_of(&*device)[..5 * BLOCK] == expected, "a read sees every acknowledged write");
    device.flush().expect("flush");
    assert!(inner.persistent()[..5 * BLOCK] == expected, "and a flush makes all of them persistent");
    let status = device.status();
    assert_eq!((status.connected, status.reconnects, status.unflushed_bytes, status.in_flight), (true, 1, 0, 0));
    assert!(status.last_error.is_some() && status.poisoned.is_none() && status.latency > Duration::ZERO);
}

/// A server that crashes at any moment, under several writers: after each flush that succeeded, what it covers is persistent.
#[test]
fn however_often_the_server_crashes_a_flush_says_the_truth() {
    const WRITERS: usize = 3;
    const BLOCKS: usize = 24;
    let inner = Volatile::new(WRITERS * BLOCKS * BLOCK);
    let mut server = Restartable::new(export(&inner));
    let device = open(&server.socket, "disk");
    let done = AtomicBool::new(false);
    let seed = seed();
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (device, inner) = (&device, &inner);
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(seed + writer as u64);
                    let start = writer * BLOCKS;
                    let mut model = vec![0; BLOCKS * BLOCK];
                    for step in 0..400u32 {
                        let first = random.usize(..BLOCKS);
                        let range = first * BLOCK..(first + random.usize(1..=(BLOCKS - first).min(3))) * BLOCK;
                        let at = (start * BLOCK + range.start) as u64;
                        let data = vec![random.u8(..); range.len()];
                        match random.u8(..10) {
                            0 => {
                                device.flush().expect("flush");
                                let persistent = &inner.persistent()[start * BLOCK..][..BLOCKS * BLOCK];
                                assert!(*persistent == model, "SEED={seed}, step {step}: flush");
                            }
                            1 => {
                                device.write_flush(at, &data).expect("write_flush");
                                model[range].copy_from_slice(&data);
                                let persistent = &inner.persistent()[start * BLOCK..][..BLOCKS * BLOCK];
                                assert!(*persistent == model, "SEED={seed}, step {step}: write_flush");
                            }
                            2 => {
                                device.write_zeroes(at, data.len() as u64, random.bool()).expect("zeros");
                                model[range].fill(0);
                            }
                            3..=7 => {
                                device.write(at, &data).expect("write");
                                model[range].copy_from_slice(&data);
                            }
                            _ => {
                                let mut back = vec![0; range.len()];
                                device.read(at, &mut back).expect("read");
                                assert!(back == model[range], "SEED={seed}, step {step}: read");
                            }
                        }
                    }
                })
            })
            .collect();
        let done = &done;
        let crasher = scope.spawn(|| {
            let mut random = fastrand::Rng::with_seed(seed);
            while !done.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(random.u64(..20)));
                server.stop();
                inner.lose_power(&mut random);
                server.start(export(&inner));
            }
        });
        for writer in writers {
            let result = writer.join();
            done.store(true, Ordering::Relaxed);
            result.expect("the writer is content");
        }
        crasher.join().expect("no panic");
    });
    println!("{:?}", device.status());
}

#[test]
fn requests_wait_for_a_server_that_comes_back_and_fail_if_it_does_not() {
    let inner = Volatile::new(16 * BLOCK);
    let mut server = Restartable::new(export(&inner));
    let mut options = quick(NbdUri::unix(&server.socket, "disk"));
    options.reconnect_for = Duration::from_secs(4);
    let device = NbdDevice::connect(options).expect("opens");
    device.write(0, &[1; BLOCK]).expect("write");
    server.stop();
    until("the loss is noticed", || !device.status().connected);
    // Without requests that wait there is no hurry.
    std::thread::sleep(Duration::from_millis(4200));
    assert_eq!(device.status().poisoned, None);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| device.write(4096, &[2; BLOCK]));
        std::thread::sleep(Duration::from_millis(200));
        assert!(!waits.is_finished());
        server.start(export(&inner));
        waits.join().expect("no panic").expect("it was only late");
    });
    assert_eq!(all_of(&*device)[..2 * BLOCK], [[1; BLOCK], [2; BLOCK]].concat());
    server.stop();
    until("the loss is noticed", || !device.status().connected);
    let error = device.write(0, &[3; BLOCK]).expect_err("nobody is there");
    assert!(error.to_string().contains("waited too long"), "{error}");
    server.start(export(&inner));
    assert!(matches!(device.flush(), Err(DeviceError::Poisoned { .. })));
    assert!(matches!(device.read(0, &mut [0; BLOCK]), Err(DeviceError::Io { .. })), "what it would read may be old");
    assert!(device.status().poisoned.is_some_and(|why| why.contains("waited too long")));
}

#[test]
fn an_export_that_is_another_one_after_a_reconnection_ends_the_device() {
    let first = || Export::new("disk", memory(1 << 20));
    type Case = (&'static str, fn() -> Export, Option<&'static str>);
    let cases: [Case; 4] = [
        ("smaller", || Export::new("disk", memory(1 << 19)), Some("shrunk from 1048576 to 524288")),
        ("read-only", || Export { read_only: true, ..Export::new("disk", memory(1 << 20)) }, Some("read-only")),
        ("larger", || Export::new("disk", memory(2 << 20)), None),
        ("the same", || Export::new("disk", memory(1 << 20)), None),
    ];
    for (name, then, expected) in cases {
        let mut server = Restartable::new(first());
        let device = open(&server.socket, "disk");
        device.write(0, &[1; BLOCK]).expect("write");
        server.stop();
        server.start(then());
        let (result, status) = (device.write(0, &[2; BLOCK]), device.status());
        match expected {
            None => assert!(result.is_ok() && device.len() == 1 << 20, "{name}: {result:?}"),
            Some(text) => {
                assert!(result.is_err(), "{name}");
                assert!(status.poisoned.as_ref().is_some_and(|why| why.contains(text)), "{name}: {status:?}");
                assert!(matches!(device.flush(), Err(DeviceError::Poisoned { .. })), "{name}");
            }
        }
    }
}

/// A request of a connection that was given up must not reach the device after one of the next connection.
#[test]
fn an_old_request_that_is_still_in_the_servers_device_comes_before_every_newer_one() {
    let probe = Probe::new(1 << 20);
    let rig = Rig::of(Arc::clone(&probe) as _);
    let mut options = quick(NbdUri::unix(&rig.unix, "disk"));
    options.request_timeout = Duration::from_millis(200);
    let device = NbdDevice::connect(options).expect("opens");
    probe.seen();
    probe.hold();
    std::thread::scope(|scope| {
        let old = scope.spawn(|| device.write(0, &[1; BLOCK]));
        probe.wait_for(1);
        until("the connection is given up", || device.status().last_error.is_some());
        // Another client is not concerned.
        let other = crate::client::Client::open(crate::client::unix(&rig.unix), "disk", None);
        std::thread::sleep(Duration::from_millis(300));
        assert!(!old.is_finished() && !device.status().connected, "the server waits for its device");
        probe.release();
        old.join().expect("no panic").expect("write");
        device.write(0, &[2; BLOCK]).expect("write");
        drop(other);
    });
    assert!(probe.seen().len() >= 3, "the old request, the same again, and the newer one");
    assert_eq!(all_of(&*device)[..BLOCK], [2; BLOCK]);
}

#[test]
fn a_device_that_is_poisoned_is_not_connected_again() {
    use device::faulty::{Fault, FaultyShelf, Rule};
    use device::{MemoryShelf, Operation, Shelf};
    let shelf = FaultyShelf::new(Arc::new(MemoryShelf::new()));
    let inner = shelf.create("disk", 1 << 20).expect("memory");
    let mut server = Restartable::new(Export::new("disk", Arc::clone(&inner)));
    let device = open(&server.socket, "disk");
    device.write(0, &[1; BLOCK]).expect("write");
    shelf.inject(Rule::nth(Operation::Flush, 1, Fault::Eio));
    assert!(matches!(device.flush(), Err(DeviceError::Io { .. })));
    server.stop();
    server.start(Export::new("disk", shelf.open("disk").expect("open")));
    // A server that succeeds now knows nothing of what it lost before.
    assert!(matches!(device.flush(), Err(DeviceError::Poisoned { .. })));
    assert!(device.read(0, &mut [0; BLOCK]).is_err());
    assert_eq!(device.status().reconnects, 0);
}
