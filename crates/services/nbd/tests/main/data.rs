//! Bytes: what is written is read, whatever the alignment; flushes reach the device; zeros, holes and block status.

use std::sync::Arc;

use device::IoKind;
use nbd::Export;
use nbd::server::Threaded;

use crate::client::{CACHE, FLUSH, FUA, NO_HOLE, ONE_EXTENT, READ, STATUS, TRIM, WRITE, ZEROES};
use crate::rig::{BLOCK, Probe, Rig, Seen, memory};

const BYTES: usize = 1 << 20;

#[test]
fn random_commands_leave_the_bytes_of_a_model() {
    for seed in 0..4 {
        let rig = Rig::of(Probe::new(BYTES as u64));
        for (kind, mut client) in rig.both("disk") {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut model = vec![0; BYTES];
            assert_eq!(client.request(0, ZEROES, 0, BYTES as u32, &[]).error, 0);
            for step in 0..150 {
                let offset = random.usize(..BYTES);
                let most = if random.bool() { 10_000 } else { 300_000 };
                let length = random.usize(1..=(BYTES - offset).min(most));
                let range = offset..offset + length;
                let flags = if random.bool() { FUA } else { 0 };
                let (command, payload) = match random.u8(..4) {
                    0 => (TRIM, vec![]),
                    1 => (ZEROES, vec![]),
                    2 => (WRITE, std::iter::repeat_with(|| random.u8(..)).take(length).collect()),
                    _ => (READ, vec![]),
                };
                let reply = client.request(flags, command, offset as u64, length as u32, &payload);
                let step = format!("seed {seed}, step {step}, {kind}: command {command} of {range:?}");
                assert_eq!(reply.error, 0, "{step}");
                let block = BLOCK as usize;
                match command {
                    TRIM if offset.next_multiple_of(block) < range.end / block * block => {
                        model[offset.next_multiple_of(block)..range.end / block * block].fill(0);
                    }
                    ZEROES => model[range].fill(0),
                    WRITE => model[range].copy_from_slice(&payload),
                    READ => assert!(reply.data == model[range], "{step}"),
                    _ => {}
                }
            }
            assert!(client.read(0, BYTES as u32) == model, "seed {seed}, {kind}");
        }
    }
}

#[test]
fn unaligned_writes_of_two_sessions_to_the_same_blocks_lose_nothing() {
    const SLOT: usize = 500;
    const WRITES: usize = 600;
    let device = Threaded::new(memory(BYTES as u64), 4).expect("threads");
    let rig = Rig::of(Arc::new(device));
    let sessions = [(1, rig.simple("disk")), (2, rig.structured("disk"))];
    std::thread::scope(|scope| {
        for (own, mut client) in sessions {
            scope.spawn(move || {
                // Slots take turns, so that every block belongs to both; some slots lie in two blocks.
                for at in (0..WRITES).filter(|at| at % 2 + 1 == own) {
                    client.begin(0, WRITE, (at * SLOT) as u64, SLOT as u32, &[own as u8; SLOT]);
                }
                (0..WRITES / 2).for_each(|_| assert_eq!(client.reply().error, 0));
            });
        }
    });
    let bytes = rig.simple("disk").read(0, (WRITES * SLOT) as u32);
    for (at, slot) in bytes.chunks(SLOT).enumerate() {
        assert!(slot.iter().all(|byte| usize::from(*byte) == at % 2 + 1), "slot {at} lost bytes of its write");
    }
}

#[test]
fn commands_reach_the_device_as_whole_blocks_and_fua_as_a_flush() {
    use IoKind::{Discard, Flush, Read, Write, WriteFlush, WriteZeroes};
    const HOLE: IoKind = WriteZeroes { free: true };
    const SPACE: IoKind = WriteZeroes { free: false };
    type Case = (&'static str, u16, u16, u64, u32, &'static [Seen]);
    let cases: &[Case] = &[
        ("flush", 0, FLUSH, 0, 0, &[(Flush, 0, 0)]),
        ("flush with FUA", FUA, FLUSH, 0, 0, &[(Flush, 0, 0)]),
        ("write", 0, WRITE, 4096, 8192, &[(Write, 4096, 8192)]),
        ("write with FUA", FUA, WRITE, 4096, 8192, &[(WriteFlush, 4096, 8192)]),
        ("write inside a block", FUA, WRITE, 4097, 3, &[(Read, 4096, 4096), (WriteFlush, 4096, 4096)]),
        ("write from a block's start", 0, WRITE, 4096, 5000, &[(Read, 8192, 4096), (Write, 4096, 8192)]),
        ("write to a block's end", 0, WRITE, 100, 8092, &[(Read, 0, 4096), (Write, 0, 8192)]),
        ("write across", 0, WRITE, 100, 9000, &[(Read, 0, 4096), (Read, 8192, 4096), (Write, 0, 12288)]),
        ("read", 0, READ, 100, 5000, &[(Read, 0, 8192)]),
        ("read with FUA", FUA, READ, 0, 4096, &[(Read, 0, 4096)]),
        ("trim", 0, TRIM, 100, 12288, &[(Discard, 4096, 8192)]),
        ("trim with FUA", FUA, TRIM, 0, 4096, &[(Discard, 0, 4096), (Flush, 0, 0)]),
        ("trim of no whole block", 0, TRIM, 1, 5000, &[]),
        ("trim of no whole block with FUA", FUA, TRIM, 1, 5000, &[(Flush, 0, 0)]),
        ("zeros", 0, ZEROES, 0, 8192, &[(HOLE, 0, 8192)]),
        ("zeros with space", NO_HOLE, ZEROES, 0, 8192, &[(SPACE, 0, 8192)]),
        (
            "zeros across, with FUA",
            FUA,
            ZEROES,
            4000,
            8288,
            &[(Read, 0, 4096), (Write, 0, 4096), (HOLE, 4096, 8192), (Flush, 0, 0)],
        ),
        ("cache", 0, CACHE, 100, 5000, &[(Read, 0, 8192)]),
        (
            "zeros of 20 MiB",
            0,
            ZEROES,
            0,
            20 << 20,
            &[(HOLE, 0, 8 << 20), (HOLE, 8 << 20, 8 << 20), (HOLE, 16 << 20, 4 << 20)],
        ),
    ];
    let probe = Probe::new(32 << 20);
    let rig = Rig::of(Arc::clone(&probe) as _);
    for (kind, mut client) in rig.both("disk") {
        for (name, flags, command, offset, length, expected) in cases {
            let payload = vec![1; if *command == WRITE { *length as usize } else { 0 }];
            assert_eq!(client.request(*flags, *command, *offset, *length, &payload).error, 0, "{name}, {kind}");
            assert_eq!(probe.seen(), *expected, "{name}, {kind}");
        }
    }
}

#[test]
fn a_flush_is_not_answered_before_the_device_has_flushed() {
    let probe = Probe::new(BYTES as u64);
    let rig = Rig::of(Arc::clone(&probe) as _);
    let (mut client, mut other) = (rig.simple("disk"), rig.structured("disk"));
    for (flags, command) in [(0, FLUSH), (FUA, WRITE)] {
        probe.hold();
        let length = if command == WRITE { 4096 } else { 0 };
        let cookie = client.begin(flags, command, 0, length, &vec![1; length as usize]);
        probe.wait_for(1);
        // What needs no device is answered meanwhile, so an early answer would be there by now.
        assert_eq!(other.request(0, STATUS, 0, 512, &[]).error, 0);
        let wrong = client.refused();
        probe.release();
        let reply = client.reply();
        assert_eq!((wrong.error, reply.error, reply.cookie), (22, 0, cookie));
    }
}

#[test]
fn trimmed_and_zeroed_ranges_read_as_zeros_and_the_rest_does_not() {
    let rig = Rig::of(Probe::new(BYTES as u64));
    for (kind, mut client) in rig.both("disk") {
        for (command, flags) in [(TRIM, 0), (TRIM, FUA), (ZEROES, 0), (ZEROES, NO_HOLE), (ZEROES, FUA | NO_HOLE)] {
            assert_eq!(client.write(0, &[0xee; 40_000]), 0);
            assert_eq!(client.request(flags, command, 4096, 3 * 4096, &[]).error, 0);
            let bytes = client.read(0, 40_000);
            let is_as_expected = |(at, byte): (usize, &u8)| (4096..16384).contains(&at) == (*byte == 0);
            assert!(bytes.iter().enumerate().all(is_as_expected), "command {command}, flags {flags}, {kind}");
        }
    }
}

/// 128 KiB of bytes, 256 KiB of holes, then single blocks by turns.
fn pattern(rig: &Rig) {
    let mut client = rig.simple("disk");
    assert_eq!(client.write(0, &[1; 128 << 10]), 0);
    for block in 96..200 {
        if block % 2 == 0 {
            assert_eq!(client.write(block * BLOCK, &[2; BLOCK as usize]), 0);
        }
    }
}

#[test]
fn block_status_names_holes_and_sums_up_to_the_length_asked_for() {
    let rig = Rig::of(Probe::new(BYTES as u64));
    pattern(&rig);
    let mut client = rig.structured("disk");
    let hole = 3;
    type Case = (u64, u32, &'static [(u32, u32)]);
    let exact: &[Case] = &[
        (0, 4096, &[(4096, 0)]),
        (1, 1, &[(1, 0)]),
        (0, 512 << 10, &[(128 << 10, 0), (256 << 10, 3)]),
        ((128 << 10) - 10, 20, &[(10, 0), (10, 3)]),
        (200 * BLOCK + 7, 9, &[(9, 3)]),
    ];
    for (offset, length, expected) in exact {
        let reply = client.request(0, STATUS, *offset, *length, &[]);
        let [(1, list)] = &reply.status[..] else { panic!("one context: {reply:?}") };
        assert_eq!(list[..expected.len()], **expected, "{offset}+{length}");
    }
    for (offset, length) in [(0, BYTES as u32), (5, 900_001), (96 * BLOCK, 4096 * 50), (BYTES as u64 - 1, 1)] {
        let reply = client.request(0, STATUS, offset, length, &[]);
        let list = &reply.status[0].1;
        assert_eq!(list.iter().map(|(bytes, _)| bytes).sum::<u32>(), length, "{offset}+{length}");
        assert!(list.windows(2).all(|two| two[0].1 != two[1].1), "neighbours differ");
        let one = client.request(ONE_EXTENT, STATUS, offset, length, &[]);
        assert_eq!(one.status, [(1, vec![list[0]])]);
        // Each hole is zeros, and nothing else is.
        let (bytes, mut at) = (client.read(offset, length), 0);
        for (count, status) in list {
            let zeros = bytes[at..at + *count as usize].iter().all(|byte| *byte == 0);
            assert_eq!(zeros, *status == hole, "{at} of {offset}+{length}");
            at += *count as usize;
        }
    }
}

#[test]
fn holes_of_64_kib_come_without_bytes_unless_one_piece_is_wanted() {
    let sparse = Export::new("disk", Probe::new(BYTES as u64));
    let rig = Rig::new([sparse.clone(), Export { name: "full".to_owned(), sparse: false, ..sparse }]);
    pattern(&rig);
    let cases = [
        ("disk", 0, 0, BYTES as u32, (256 << 10) + BYTES - 199 * BLOCK as usize),
        ("disk", 4, 0, BYTES as u32, 0),
        ("disk", 0, 300_001, 65_536, 65_536),
        ("disk", 0, 300_001, 65_535, 0),
        ("disk", 0, 131_071, 65_538, 65_537),
        ("full", 0, 0, BYTES as u32, 0),
    ];
    let whole = rig.simple("disk").read(0, BYTES as u32);
    for (export, flags, offset, length, holes) in cases {
        let reply = rig.structured(export).request(flags, READ, offset, length, &[]);
        assert!(reply.data == whole[offset as usize..offset as usize + length as usize], "{offset}+{length}");
        assert_eq!(reply.hole_bytes, holes, "{export}, {flags}: {offset}+{length}");
    }
}

#[test]
fn all_of_64_reads_at_a_time_are_answered_in_the_order_in_which_the_device_ends_them() {
    let probe = Probe::new(BYTES as u64);
    let rig = Rig::of(Arc::clone(&probe) as _);
    for (kind, mut client) in rig.both("disk") {
        for at in 0..64 {
            assert_eq!(client.write(at * BLOCK, &[at as u8; BLOCK as usize]), 0);
        }
        probe.hold();
        let cookies: Vec<_> = (0..64).map(|at| client.begin(0, READ, at * BLOCK + 1, 4095, &[])).collect();
        probe.wait_for(64);
        probe.release();
        for at in (0..64).rev() {
            let reply = client.reply();
            assert_eq!((reply.cookie, reply.error), (cookies[at], 0), "{kind}");
            assert_eq!(reply.data, [at as u8; 4095], "{kind}");
        }
    }
}

#[test]
fn writes_in_many_small_pieces_and_many_requests_in_one_piece_are_the_same() {
    let rig = Rig::of(Probe::new(BYTES as u64));
    let mut client = rig.structured("disk");
    let bytes: Vec<u8> = (0..70_000u32).map(|at| (at % 251) as u8).collect();
    let whole = [crate::client::request(0, WRITE, 1, 77, bytes.len() as u32), bytes.clone()].concat();
    // Cuts inside the head, at its end, and inside the payload before and behind what is received directly.
    for cuts in [&[1, 27][..], &[28], &[29, 4000, 50_000], &[69_999]] {
        let mut at = 0;
        for cut in cuts.iter().copied().chain([whole.len()]) {
            client.send(&whole[at..cut]);
            at = cut;
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        assert_eq!(client.reply().error, 0);
        assert!(client.read(77, bytes.len() as u32) == bytes, "cut at {cuts:?}");
        assert_eq!(client.write(0, &[0; 80_000]), 0);
    }
    let many: Vec<u8> = (0..500u64)
        .flat_map(|at| [crate::client::request(0, WRITE, at, at * 100, 100), vec![at as u8; 100]].concat())
        .collect();
    client.send(&many);
    let mut cookies: Vec<_> = (0..500).map(|_| client.reply()).inspect(|reply| assert_eq!(reply.error, 0)).collect();
    cookies.sort_by_key(|reply| reply.cookie);
    assert!(cookies.iter().map(|reply| reply.cookie).eq(0..500));
    let bytes = client.read(0, 50_000);
    assert!(bytes.chunks(100).enumerate().all(|(at, part)| part == [at as u8; 100]));
}
