//! Memory that all sessions share: what one client holds and does not use, others get.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nbd::server::Limits;
use nbd::{Export, ServerOptions};

use crate::client::{CACHE, Client, FUA, READ, WRITE};
use crate::rig::{Probe, Rig, memory, until};

const MIB: u32 = 1 << 20;

/// A server with memory for two of the largest requests.
fn rig(stall: Duration, names: &[&str]) -> Rig {
    let exports = names.iter().map(|name| Export::new(name, memory(64 << 20)));
    Rig::with(ServerOptions { workers: 2, memory: 64 << 20, stall, ..ServerOptions::default() }, exports)
}

/// How a client holds memory.
#[derive(Debug, Clone, Copy)]
enum Hold {
    /// It sends a part of a write, and then nothing.
    Write,
    /// A byte of the rest now and then.
    WriteInDrops,
    /// It takes no replies.
    Replies,
    /// It takes none, and says goodbye.
    RepliesAndGoodbye,
}

/// Holds as much memory as one session can get.
fn hold(client: &mut Client, how: Hold) {
    match how {
        Hold::Write | Hold::WriteInDrops => {
            client.begin(0, WRITE, 0, 32 * MIB, &[7; 100]);
        }
        Hold::Replies | Hold::RepliesAndGoodbye => {
            client.begin(0, READ, 0, 32 * MIB, &[]);
        }
    }
    if matches!(how, Hold::RepliesAndGoodbye) {
        client.begin(0, crate::client::DISCONNECT, 0, 0, &[]);
    }
}

/// Sends a byte of each write now and then, until it is over. The server ends one of them meanwhile.
fn drip(mut holders: Vec<Client>, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        for client in &mut holders {
            client.try_send(&[7]);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn who_holds_memory_and_does_nothing_for_it_loses_it_to_who_waits() {
    for how in [Hold::Write, Hold::WriteInDrops, Hold::Replies, Hold::RepliesAndGoodbye] {
        let rig = rig(Duration::from_millis(200), &["disk"]);
        let begun = || rig.server().status()[0].reads + rig.server().status()[0].writes;
        let mut holders: Vec<Client> = (0..2).map(|_| rig.simple("disk")).collect();
        for (number, client) in holders.iter_mut().enumerate() {
            hold(client, how);
            until("the memory is taken", || begun() == number as u64 + 1);
        }
        let is_over = Arc::new(AtomicBool::new(false));
        let (holders, drops) = match how {
            Hold::WriteInDrops => {
                let is_over = Arc::clone(&is_over);
                (Vec::new(), Some(std::thread::spawn(move || drip(holders, &is_over))))
            }
            _ => (holders, None),
        };
        let mut other = rig.structured("disk");
        assert_eq!(other.read(0, 2 * MIB), vec![0; 2 << 20], "{how:?}");
        // A client with enough of it for its small requests was never in anybody's way.
        assert_eq!(other.write(5, &[1; 5000]), 0, "{how:?}");
        is_over.store(true, Ordering::Relaxed);
        drops.into_iter().for_each(|drops| drops.join().expect("it sends as long as it can"));
        drop((other, holders));
    }
}

#[test]
fn a_session_that_waits_for_its_limit_stands_in_nobodys_way() {
    let rig = rig(Duration::from_secs(60), &["disk", "slow"]);
    rig.server().limit("slow", Limits { requests: Some(1), bytes: None }).expect("it is exported");
    let begun = |at: usize| rig.server().status()[at].reads + rig.server().status()[at].writes;
    let mut holders: Vec<Client> = (0..2).map(|_| rig.simple("disk")).collect();
    for (number, client) in holders.iter_mut().enumerate() {
        hold(client, Hold::Write);
        until("the memory is taken", || begun(0) == number as u64 + 1);
    }
    // In one turn: requests that are charged for a minute, and one that waits for memory.
    let mut slow = rig.simple("slow");
    let small: Vec<u8> = (0..60).flat_map(|cookie| crate::client::request(0, READ, cookie, 0, 512)).collect();
    slow.send(&[small, crate::client::request(0, READ, 99, 0, 2 * MIB)].concat());
    until("the small ones have begun", || begun(1) == 60);
    let mut other = rig.simple("disk");
    let cookie = other.begin(0, READ, 0, 2 * MIB, &[]);
    assert_eq!(rig.structured("disk").refused().error, 22);
    holders[0].send(&vec![7; (32 << 20) - 100]);
    assert_eq!(holders[0].reply().error, 0);
    assert_eq!(other.reply().cookie, cookie);
    assert_eq!(begun(1), 60, "the slow one waits still");
}

#[test]
fn reads_that_look_for_holes_first_stay_within_the_memory_of_a_session() {
    let probe = Probe::new(4 << 20);
    let rig = Rig::of(Arc::clone(&probe) as _);
    let mut client = rig.structured("disk");
    assert_eq!(client.write(0, &vec![5; 1 << 20]), 0);
    probe.hold();
    client.begin_reads(200);
    // With the list of extents of each, 16 MiB are enough for fifteen.
    probe.wait_for(15);
    assert_eq!(rig.structured("disk").refused().error, 22);
    probe.wait_for(15);
    probe.release();
    (0..200).for_each(|_| assert_eq!(client.reply().data.len(), 1 << 20));
}

#[test]
fn what_is_cached_takes_memory_of_all_and_counts_for_the_limit() {
    let probe = Probe::new(4 << 20);
    let options = ServerOptions { workers: 2, memory: 4 << 20, ..ServerOptions::default() };
    let rig = Rig::with(options, [Export::new("disk", Arc::clone(&probe) as _)]);
    probe.hold();
    let mut clients: Vec<Client> = (0..8).map(|_| rig.simple("disk")).collect();
    for client in &mut clients {
        client.begin(0, CACHE, 0, MIB, &[]);
    }
    probe.wait_for(4);
    assert_eq!(rig.structured("disk").refused().error, 22);
    probe.wait_for(4);
    probe.release();
    clients.iter_mut().for_each(|client| assert_eq!(client.reply().error, 0));
    let [first, ..] = &mut clients[..] else { panic!("there are eight") };
    rig.server().limit("disk", Limits { requests: None, bytes: Some(1_000) }).expect("it is exported");
    assert_eq!(first.request(FUA, CACHE, 0, MIB, &[]).error, 0);
    // A request that meets the end of a turn belongs to it: let that be over. What has the flag is counted.
    until("the turn is over", || rig.server().status()[0].flushes == 1);
    let waiting = first.begin(0, WRITE, 0, 4096, &[3; 4096]);
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(rig.server().status()[0].writes, 0, "what comes after it waits");
    rig.server().limit("disk", Limits::default()).expect("it is exported");
    assert_eq!(first.reply().cookie, waiting);
}

#[test]
fn writes_of_parts_of_one_block_wait_in_a_bounded_number_and_all_are_done() {
    let rig = Rig::of(Probe::new(1 << 20) as _);
    let mut clients: Vec<Client> = (0..8).map(|_| rig.simple("disk")).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        let write = |at: u64| {
            let request = crate::client::request(0, WRITE, at, number as u64 * 512 + at % 500, 12);
            [request, vec![number as u8 + 1; 12]].concat()
        };
        client.send(&(0..1000).flat_map(write).collect::<Vec<u8>>());
    }
    for client in &mut clients {
        (0..1000).for_each(|_| assert_eq!(client.reply().error, 0));
    }
    let block = clients[0].read(0, 4096);
    for (number, part) in block.chunks(512).enumerate() {
        assert!(part[..511].iter().all(|byte| *byte == number as u8 + 1), "what one client wrote is whole");
    }
}
