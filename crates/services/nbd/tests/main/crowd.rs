//! One client and all others: idle ones, ones that never read, ones that talk nonsense, ones that leave.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::client::{self, Client, DISCONNECT, FLUSH, PATIENCE, READ, WRITE, ZEROES};
use crate::rig::{BLOCK, Probe, Rig, memory, until};

/// Idle connections, where the limit of open files allows as many: each has a descriptor at the client and one at the server.
const IDLE: u64 = 2_000;

#[test]
fn among_2000_idle_connections_one_works() {
    // The soft limit is raised to the hard one first; half of it stays free for other tests of this process.
    let limit = node::Descriptors::raise().expect("descriptors").limit;
    let each = (IDLE / 2).min(limit / 8) as usize;
    if each < IDLE as usize / 2 {
        println!("the limit of open files is {limit}: {} idle connections", 2 * each);
    }
    let rig = Rig::of(memory(1 << 20));
    let open: Vec<_> = (0..each).map(|_| rig.simple("disk")).collect();
    let half: Vec<_> = (0..each).map(|_| Client::greeted(client::unix(&rig.unix), 3)).collect();
    assert_eq!(rig.sessions(), each);
    let mut client = rig.structured("disk");
    for at in 0..200 {
        assert_eq!(client.write(at * 100, &[at as u8; 100]), 0);
        assert_eq!(client.read(at * 100, 100), [at as u8; 100]);
    }
    // None of the idle ones was forgotten.
    for mut client in open {
        assert_eq!(client.read(100, 100), [1; 100]);
    }
    for mut client in half {
        client.go("disk").expect("opens");
    }
}

#[test]
fn a_client_that_never_reads_does_not_delay_another() {
    let rig = Rig::of(memory(4 << 20));
    // On each worker there is at least one.
    let mut silent: Vec<_> = (0..4).map(|_| rig.simple("disk")).collect();
    for client in &mut silent {
        client.begin_reads(500);
    }
    let mut others = [rig.simple("disk"), rig.structured("disk"), rig.structured("disk"), rig.simple("disk")];
    let start = Instant::now();
    for client in &mut others {
        (0..50).for_each(|at| assert_eq!(client.write(at * 1000, &[3; 1000]), 0));
        assert_eq!(client.read(0, 50_000), [3; 50_000]);
        assert_eq!(client.request(0, FLUSH, 0, 0, &[]).error, 0);
    }
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    // What they asked for is a gigabyte; the server did not read it ahead of them.
    let read = rig.server().status()[0].read_bytes;
    assert!(read < 4 * (64 << 20), "{read} bytes were read for clients that take none");
    for client in &mut silent {
        (0..20).for_each(|_| assert_eq!(client.reply().data.len(), 1 << 20));
    }
}

#[test]
fn garbage_after_negotiation_ends_only_its_own_session() {
    let probe = Probe::new(1 << 20);
    let rig = Rig::of(Arc::clone(&probe) as _);
    let mut good = rig.structured("disk");
    let wrong_magic = client::request(0, READ, 1, 0, 512).iter().map(|byte| byte ^ 0x80).collect();
    let off_by_one = [vec![0], client::request(0, WRITE, 1, 0, 512), vec![1; 512]].concat();
    let option = client::option(7, &client::named("disk", &[]));
    let cases: [(&str, Vec<u8>); 5] = [
        ("zeros", vec![0; 100_000]),
        ("wrong magic", wrong_magic),
        ("one byte too many", off_by_one),
        ("an option", option),
        ("a reply", [&0x6744_6698_u32.to_be_bytes()[..], &[0; 12]].concat()),
    ];
    for (name, bytes) in cases {
        for (kind, mut client) in rig.both("disk") {
            assert_eq!(client.write(0, b"before"), 0, "{name}, {kind}");
            probe.seen();
            client.try_send(&bytes);
            assert_eq!(client.until_end(), b"", "{name}, {kind}");
            assert_eq!(probe.seen(), [], "{name}, {kind}: nothing of it reaches the device");
            assert_eq!(good.read(0, 6), b"before", "{name}, {kind}");
        }
    }
    until("one session", || rig.sessions() == 1);
}

/// How a client leaves.
#[derive(Debug, Clone, Copy)]
enum Leave {
    Disconnect,
    Close,
    Garbage,
    HalfAWrite,
}

#[test]
fn requests_in_the_device_end_whole_when_their_client_leaves() {
    for leave in [Leave::Disconnect, Leave::Close, Leave::Garbage, Leave::HalfAWrite] {
        let probe = Probe::new(1 << 20);
        let rig = Rig::of(Arc::clone(&probe) as _);
        for kind in ["simple", "structured"] {
            let mut client = if kind == "simple" { rig.simple("disk") } else { rig.structured("disk") };
            probe.hold();
            for at in 0..32 {
                client.begin(0, WRITE, at * BLOCK, BLOCK as u32, &[9; BLOCK as usize]);
            }
            // The edges of this one are read first: it goes on after its client has left, and holds a lock.
            client.begin(0, WRITE, 40 * BLOCK + 1, 10, &[9; 10]);
            client.begin(0, READ, 0, 65_535, &[]);
            probe.wait_for(34);
            match leave {
                Leave::Disconnect => {
                    client.begin(0, DISCONNECT, 0, 0, &[]);
                }
                Leave::Garbage => client.send(&[1; 100]),
                Leave::HalfAWrite => {
                    client.begin(0, WRITE, 50 * BLOCK, 4096, &[9; 100]);
                }
                Leave::Close => {}
            }
            let kept = matches!(leave, Leave::Disconnect).then_some(client);
            let mut other = rig.structured("disk");
            assert_eq!(other.refused().error, 22, "{leave:?}, {kind}: another session goes on");
            assert_eq!(rig.sessions(), 2, "{leave:?}, {kind}: a session lasts as long as its requests");
            probe.release();
            if let Some(mut client) = kept {
                // Whoever says goodbye still gets the replies.
                (0..34).for_each(|_| assert_eq!(client.reply().error, 0));
                assert_eq!(client.until_end(), b"");
            }
            until("one session", || rig.sessions() == 1);
            assert_eq!(other.read(0, 32 * BLOCK as u32), [9; 32 * BLOCK as usize], "{leave:?}, {kind}");
            assert_eq!(other.read(40 * BLOCK, 12), [0, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 0], "{leave:?}, {kind}");
            assert_eq!(other.read(50 * BLOCK, 4096), [0; 4096], "{leave:?}, {kind}: half a write is none");
            assert_eq!(other.write(40 * BLOCK + 5, &[0; 5]), 0, "{leave:?}, {kind}: its locks are given back");
            assert_eq!(other.request(0, ZEROES, 0, 1 << 20, &[]).error, 0);
            other.begin(0, DISCONNECT, 0, 0, &[]);
            until("no session", || rig.sessions() == 0);
        }
    }
}

#[test]
fn a_payload_that_never_ends_keeps_no_block_from_others() {
    let rig = Rig::of(memory(1 << 20));
    let mut slow = rig.simple("disk");
    slow.begin(0, WRITE, 1, 100_000, &[5; 60_000]);
    let start = Instant::now();
    let mut other = rig.structured("disk");
    for at in [0, 4096, 50_001] {
        assert_eq!(other.write(at, &[6; 999]), 0);
        assert_eq!(other.read(at, 999), [6; 999]);
    }
    slow.send(&[5; 40_000]);
    assert_eq!(slow.reply().error, 0);
    assert_eq!(other.read(1, 100_000), [5; 100_000]);
    assert!(start.elapsed() < PATIENCE);
}
