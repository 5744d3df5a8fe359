//! The end of an export, and of the server.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nbd::{Export, NbdError};

use crate::client::{self, Client, DISCONNECT, FLUSH, PATIENCE, READ, WRITE, ZEROES};
use crate::rig::{BLOCK, Probe, Rig, memory, until, wait};

const SHUTDOWN: u32 = 108;
const UNKNOWN: u32 = 0x8000_0006;

#[test]
fn removing_an_export_answers_what_has_begun_and_refuses_what_comes_later() {
    let probe = Probe::new(1 << 20);
    let rig = Rig::new([Export::new("disk", Arc::clone(&probe) as _), Export::new("other", memory(4096))]);
    let mut sessions = rig.both("disk").map(|(_, client)| client);
    let mut idle = rig.simple("disk");
    let mut other = rig.simple("other");
    probe.hold();
    let cookies = sessions.each_mut().map(|client| client.begin(0, WRITE, 0, 4096, &[1; 4096]));
    probe.wait_for(2);
    std::thread::scope(|scope| {
        let removal = scope.spawn(|| wait(rig.server().remove("disk", PATIENCE)));
        assert_eq!(idle.until_end(), b"", "a session without requests is ended at once");
        for client in &mut sessions {
            for (command, length) in [(READ, 512), (FLUSH, 0), (WRITE, 700), (ZEROES, 512)] {
                let payload = vec![0; if command == WRITE { length as usize } else { 0 }];
                let reply = client.request(0, command, 0, length, &payload);
                assert_eq!(reply.error, SHUTDOWN, "command {command}");
            }
        }
        let mut late = Client::greeted(client::unix(&rig.unix), 3);
        assert_eq!(late.go("disk"), Err(UNKNOWN));
        assert!(!removal.is_finished(), "requests are in the device");
        probe.release();
        for (client, cookie) in sessions.iter_mut().zip(cookies) {
            let reply = client.reply();
            assert_eq!((reply.cookie, reply.error), (cookie, 0));
            assert_eq!(client.until_end(), b"");
        }
        removal.join().expect("no panic").expect("it is drained");
    });
    assert_eq!(other.read(0, 512), [0; 512], "another export goes on");
    assert!(matches!(wait(rig.server().remove("disk", PATIENCE)), Err(NbdError::NoExport { .. })));
    rig.server().add(Export::new("disk", memory(8192))).expect("the name is free again");
    assert_eq!(rig.simple("disk").read(0, 512), [0; 512]);
}

#[test]
fn a_session_that_does_not_end_is_cut_off_after_the_patience() {
    let probe = Probe::new(1 << 20);
    let patience = Duration::from_millis(200);
    for name in ["a payload that never ends", "replies that nobody takes"] {
        let rig = Rig::of(Arc::clone(&probe) as _);
        let mut client = rig.simple("disk");
        if name == "a payload that never ends" {
            client.begin(0, WRITE, 0, 100_000, &[1; 50_000]);
        } else {
            client.begin_reads(100);
        }
        until("it has begun", || rig.server().status()[0].reads + rig.server().status()[0].writes > 0);
        let start = Instant::now();
        wait(rig.server().remove("disk", patience)).expect("nothing of it is in the device");
        assert!((patience..4 * PATIENCE).contains(&start.elapsed()), "{name}: {:?}", start.elapsed());
        assert_eq!(rig.sessions(), 0, "{name}");
        client.until_end();
    }
}

#[test]
fn an_export_that_was_removed_is_busy_as_long_as_requests_of_it_are_in_the_device_however_often_it_is_asked() {
    let probe = Probe::new(1 << 20);
    let rig = Rig::of(Arc::clone(&probe) as _);
    let mut client = rig.simple("disk");
    probe.hold();
    client.begin(0, WRITE, 0, 4096, &[1; 4096]);
    probe.wait_for(1);
    let remove = || wait(rig.server().remove("disk", Duration::from_millis(50)));
    for _ in 0..2 {
        let removed = remove();
        assert!(matches!(removed, Err(NbdError::StillBusy { sessions: 1, .. })), "{removed:?}");
    }
    probe.release();
    until("it is gone", || matches!(remove(), Ok(()) | Err(NbdError::NoExport { .. })));
    assert!(matches!(remove(), Err(NbdError::NoExport { .. })));
}

#[test]
fn a_server_that_stops_answers_what_has_begun_and_leaves_no_socket() {
    let probe = Probe::new(1 << 20);
    let mut rig = Rig::of(Arc::clone(&probe) as _);
    let mut client = rig.structured("disk");
    probe.hold();
    let cookies: Vec<_> = (0..10).map(|at| client.begin(0, WRITE, at * BLOCK, 4096, &[1; 4096])).collect();
    probe.wait_for(10);
    let (unix, tcp) = (rig.unix.clone(), rig.tcp);
    std::thread::scope(|scope| {
        let stop = scope.spawn(|| wait(rig.stop(PATIENCE)));
        until("nobody is accepted", || std::net::TcpStream::connect(tcp).is_err());
        assert!(!stop.is_finished(), "requests are in the device");
        probe.release();
        let mut replied: Vec<_> = (0..10).map(|_| client.reply()).map(|reply| (reply.cookie, reply.error)).collect();
        replied.sort_unstable();
        assert_eq!(replied, cookies.iter().map(|cookie| (*cookie, 0)).collect::<Vec<_>>());
        assert_eq!(client.until_end(), b"");
        stop.join().expect("no panic").expect("it is drained");
    });
    assert!(unix.parent().is_some_and(std::path::Path::exists) && !unix.exists(), "the socket is removed");
}

#[test]
fn the_status_of_an_export_counts_what_was_requested() {
    let rig = Rig::of(Probe::new(1 << 20));
    for (_, mut client) in rig.both("disk") {
        client.write(0, &[1; 1000]);
        client.read(0, 300);
        client.request(0, ZEROES, 0, 4096, &[]);
        client.request(0, FLUSH, 0, 0, &[]);
        client.request(1, WRITE, 0, 10, &[1; 10]);
        client.refused();
        client.begin(0, DISCONNECT, 0, 0, &[]);
        assert_eq!(client.until_end(), b"");
    }
    until("no session", || rig.sessions() == 0);
    let status = &rig.server().status()[0];
    let counts = (status.reads, status.writes, status.flushes, status.read_bytes, status.written_bytes, status.errors);
    assert_eq!(counts, (2, 6, 4, 600, 2020, 2));
    assert_eq!((status.name.as_str(), status.epoch), ("disk", None));
}
