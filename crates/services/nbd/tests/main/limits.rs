//! Limits of an export that change while clients use it.

use std::time::{Duration, Instant};

use nbd::server::Limits;
use nbd::{Export, NbdError};

use crate::client::{NO_HOLE, WRITE, ZEROES};
use crate::rig::{Rig, memory, until};

const PART: u64 = 512 << 10;

#[test]
fn a_changed_limit_holds_for_open_sessions_and_frees_those_that_wait_for_the_former_one() {
    let rig = Rig::new([Export::new("disk", memory(8 << 20))]);
    let limit = |bytes| rig.server().limit("disk", Limits { requests: None, bytes });
    let writes = || rig.server().status()[0].writes;
    let mut clients = [rig.structured("disk"), rig.simple("disk")];
    limit(Some(4 << 20)).expect("it is exported");
    let start = Instant::now();
    for at in 0..12 {
        assert_eq!(clients[at as usize % 2].write(at * PART, &[1; PART as usize]), 0);
    }
    // 6 MiB at 4 MiB/s, without what may be saved up and the debt of the last two.
    let took = start.elapsed();
    assert!((Duration::from_millis(700)..Duration::from_secs(8)).contains(&took), "{took:?}");
    // A session is charged after it has answered, and before it is counted: the last ones belong to the former limit.
    until("twelve writes are charged", || writes() == 12);
    limit(Some(1_000)).expect("it is exported");
    let [first, second] = &mut clients;
    assert_eq!(first.write(0, &[2; PART as usize]), 0, "a request larger than a second's worth passes");
    // A request that meets the end of a turn belongs to it: let that be over.
    until("the turn of the thirteenth write is over", || writes() == 13);
    let waiting = first.begin(0, WRITE, 0, 4096, &[3; 4096]);
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(writes(), 13, "what comes after it waits");
    limit(None).expect("it is exported");
    let start = Instant::now();
    assert_eq!((first.reply().cookie, second.write(PART, &[4; PART as usize])), (waiting, 0));
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    let nobody = rig.server().limit("none", Limits::default());
    assert!(matches!(nobody, Err(NbdError::NoExport { .. })));
}

#[test]
fn a_write_that_waits_for_its_limit_still_gets_its_payload() {
    let rig = Rig::new([Export::new("disk", memory(8 << 20))]);
    rig.server().limit("disk", Limits { requests: None, bytes: Some(1_000) }).expect("it is exported");
    let mut client = rig.simple("disk");
    let cookie = client.begin(0, WRITE, 0, PART as u32, &[]);
    until("the write is charged", || rig.server().status()[0].writes == 1);
    // The session waits now, for longer than a client does; the write has begun before that.
    client.send(&[7; PART as usize]);
    let reply = client.reply();
    assert_eq!((reply.cookie, reply.error), (cookie, 0));
}

#[test]
fn zeros_that_are_to_have_space_count_for_the_limit_and_those_that_may_be_holes_do_not() {
    let rig = Rig::new([Export::new("disk", memory(8 << 20))]);
    let limit = |bytes| rig.server().limit("disk", Limits { requests: None, bytes }).expect("it is exported");
    let writes = || rig.server().status()[0].writes;
    limit(Some(1_000));
    let mut client = rig.simple("disk");
    for flags in [0, 0, NO_HOLE] {
        let cookie = client.begin(flags, ZEROES, 0, PART as u32, &[]);
        let reply = client.reply();
        assert_eq!((reply.cookie, reply.error), (cookie, 0), "{flags}");
    }
    // A request that meets the end of a turn belongs to it: let that be over.
    until("the zeros are charged", || writes() == 3);
    let waiting = client.begin(0, WRITE, 0, 4096, &[3; 4096]);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(writes(), 3, "what comes after them waits");
    limit(None);
    assert_eq!(client.reply().cookie, waiting);
}
