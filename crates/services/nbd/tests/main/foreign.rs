//! Other servers: those that offer less, and those that misbehave.

use std::sync::Arc;
use std::time::{Duration, Instant};

use device::{Device, DeviceError, Durability, Extent};
use nbd::{ClientOptions, NbdDevice, NbdError, NbdUri};

use crate::client::{FLUSH, FUA, READ, STATUS, WRITE, ZEROES};
use crate::scripted::{CAN_FLUSH, CAN_FUA, CAN_ZERO, Got, HAS_FLAGS, Offer, Scripted, Twist, chunk, simple};
use crate::using::{BLOCK, all_of, open, quick, seed};

fn obey(_: usize, _: usize, _: &Got) -> Twist {
    Twist::Obey
}

/// Options for servers that never recover.
fn hasty(server: &Scripted) -> ClientOptions {
    ClientOptions {
        connect_timeout: Duration::from_secs(5),
        request_timeout: Duration::from_millis(300),
        reconnect_for: Duration::from_millis(700),
        ..quick(NbdUri::unix(&server.socket, "disk"))
    }
}

/// Commands and flags of requests.
fn commands(got: &[Got]) -> Vec<(u16, u16)> {
    got.iter().map(|got| (got.command, got.flags)).collect()
}

#[test]
fn a_server_gets_only_what_it_offered_and_the_content_is_right() {
    let offers = [
        ("all", Offer::default()),
        ("structured replies", Offer { structured: true, ..Offer::default() }),
        ("no block sizes", Offer { blocks: None, ..Offer::default() }),
        ("no GO", Offer { is_old: true, blocks: None, ..Offer::default() }),
        ("nothing", Offer { flags: HAS_FLAGS, ..Offer::default() }),
        ("flush alone", Offer { flags: HAS_FLAGS | CAN_FLUSH, ..Offer::default() }),
        ("FUA alone", Offer { flags: HAS_FLAGS | CAN_FUA | CAN_ZERO, ..Offer::default() }),
        ("blocks of 512", Offer { blocks: Some([512, 512, 4096]), ..Offer::default() }),
        ("blocks of 4096", Offer { blocks: Some([4096, 4096, 65536]), ..Offer::default() }),
        ("blocks of 16384", Offer { blocks: Some([16384, 16384, 32768]), ..Offer::default() }),
        (
            "large blocks, structured",
            Offer { blocks: Some([65536, 65536, 65536]), structured: true, ..Offer::default() },
        ),
        ("large blocks, no zeros", Offer { blocks: Some([65536, 65536, 1 << 20]), flags: 13, ..Offer::default() }),
    ];
    let seed = seed();
    for (name, offer) in offers {
        let server = Scripted::new(offer, obey);
        let device = open(&server.socket, "disk");
        let mut random = fastrand::Rng::with_seed(seed);
        let mut model = vec![0; offer.bytes as usize];
        let blocks = model.len() / BLOCK;
        for step in 0..200 {
            let first = random.usize(..blocks);
            let range = first * BLOCK..(first + random.usize(1..=(blocks - first).min(40))) * BLOCK;
            let (at, bytes) = (range.start as u64, range.len() as u64);
            let mut data = vec![random.u8(..); range.len()];
            match random.u8(..8) {
                0 => device.write_flush(at, &data).expect("write_flush"),
                1..=2 => device.write(at, &data).expect("write"),
                3 => {
                    device.write_zeroes(at, bytes, random.bool()).expect("zeros");
                    data.fill(0);
                }
                4 => {
                    device.flush().expect("flush");
                    continue;
                }
                5 => {
                    let result = device.discard(at, bytes);
                    if offer.flags & CAN_ZERO == 0 {
                        assert!(matches!(result, Err(DeviceError::Unsupported { .. })), "{name}: {result:?}");
                        continue;
                    }
                    result.expect("discard");
                    data.fill(0);
                }
                _ => {
                    device.read(at, &mut data).expect("read");
                    assert!(data == model[range], "{name}, SEED={seed}, step {step}");
                    continue;
                }
            }
            model[range].copy_from_slice(&data);
        }
        assert!(all_of(&*device) == model && server.memory() == model, "{name}, SEED={seed}: at the end");
        server.assert_content();
        let expected = if offer.flags == HAS_FLAGS { Durability::None } else { Durability::Emulated };
        assert_eq!(device.durability(), expected, "{name}");
    }
}

#[test]
fn writers_of_parts_of_one_large_block_do_not_lose_each_others_bytes() {
    let server = Scripted::new(Offer { blocks: Some([65536, 65536, 65536]), ..Offer::default() }, obey);
    let device = open(&server.socket, "disk");
    std::thread::scope(|scope| {
        for writer in 0..8u8 {
            let device = &device;
            scope.spawn(move || {
                for turn in 1..=25u8 {
                    for block in (writer..32).step_by(8) {
                        device.write(u64::from(block) * 4096, &[turn; BLOCK]).expect("write");
                    }
                }
            });
        }
    });
    assert!(all_of(&*device)[..32 * BLOCK].iter().all(|byte| *byte == 25));
    server.assert_content();
}

#[test]
fn a_write_that_is_flushed_is_sent_as_the_server_can_make_it_persistent() {
    for (flags, expected) in [
        (HAS_FLAGS, vec![(WRITE, 0)]),
        (HAS_FLAGS | CAN_FLUSH, vec![(WRITE, 0), (FLUSH, 0)]),
        (HAS_FLAGS | CAN_FUA, vec![(WRITE, FUA)]),
        (HAS_FLAGS | CAN_FLUSH | CAN_FUA, vec![(WRITE, FUA)]),
    ] {
        let server = Scripted::new(Offer { flags, ..Offer::default() }, obey);
        let device = open(&server.socket, "disk");
        server.got();
        device.write_flush(0, &[1; BLOCK]).expect("write_flush");
        assert_eq!(commands(&server.got()), expected, "{flags}");
        device.write(0, &[1; BLOCK]).expect("write");
        let is_fua_only = flags == HAS_FLAGS | CAN_FUA;
        assert_eq!(commands(&server.got()), [(WRITE, if is_fua_only { FUA } else { 0 })], "{flags}");
    }
}

#[test]
fn zeros_that_a_server_cannot_write_after_all_are_sent_as_bytes() {
    let twist = |_: usize, _: usize, got: &Got| if got.command == ZEROES { Twist::Fail(95) } else { Twist::Obey };
    let server = Scripted::new(Offer::default(), twist);
    let device = open(&server.socket, "disk");
    device.write(0, &[9; 4 * BLOCK]).expect("write");
    device.discard(4096, 8192).expect("discard");
    let expected = [9, 0, 0, 9].iter().flat_map(|byte| [*byte; BLOCK]).collect::<Vec<_>>();
    assert!(all_of(&*device)[..4 * BLOCK] == expected);
}

#[test]
fn extents_are_what_the_server_says_or_all_has_space() {
    let server = Scripted::new(Offer { structured: true, ..Offer::default() }, obey);
    let device = open(&server.socket, "disk");
    // The server describes half of each request, as a hole.
    let holes = [Extent { bytes: 1 << 20, has_space: false }];
    let extents = device.extents(0, 1 << 20).expect("extents");
    assert_eq!(extents[..], holes, "{:?}", commands(&server.got()));
    let silent = |_: usize, _: usize, got: &Got| match got.command {
        STATUS => Twist::Send(chunk(got.cookie, true, 0, &[])),
        _ => Twist::Obey,
    };
    let server = Scripted::new(Offer { structured: true, ..Offer::default() }, silent);
    let all = [Extent { bytes: 1 << 20, has_space: true }];
    assert_eq!(open(&server.socket, "disk").extents(0, 1 << 20).expect("extents"), all);
}

#[test]
fn an_export_that_cannot_be_a_device_is_refused() {
    for (offer, problem) in [
        (Offer { bytes: 0, ..Offer::default() }, "no bytes"),
        (Offer { bytes: 0, is_old: true, ..Offer::default() }, "size is 0"),
        (Offer { bytes: 1 << 63, ..Offer::default() }, "size is 9223372036854775808"),
        (Offer { blocks: Some([131_072, 131_072, 1 << 20]), ..Offer::default() }, "131072"),
        (Offer { blocks: Some([4096, 4096, 1 << 20]), bytes: 6144, ..Offer::default() }, "no multiple"),
        (Offer { blocks: Some([3, 4096, 1 << 20]), ..Offer::default() }, "make no sense"),
        (Offer { blocks: Some([4096, 4096, 512]), ..Offer::default() }, "make no sense"),
    ] {
        let server = Scripted::new(offer, obey);
        let error = NbdDevice::connect(hasty(&server)).expect_err(problem).to_string();
        assert!(error.contains(problem), "{problem}: {error}");
    }
    // As large as can be, and no memory is taken for it.
    let server = Scripted::new(Offer { bytes: (1 << 63) - 4096, ..Offer::default() }, obey);
    let device = open(&server.socket, "disk");
    assert_eq!((device.len(), device.block_bytes()), ((1 << 63) - 4096, 4096));
    // A size that is no multiple of 4,096: blocks are smaller.
    let server = Scripted::new(Offer { bytes: 10 * 512, blocks: Some([512, 512, 65536]), ..Offer::default() }, obey);
    let device = open(&server.socket, "disk");
    assert_eq!((device.len(), device.block_bytes()), (5120, 1024));
    let server = Scripted::new(Offer { bytes: 1001, blocks: None, ..Offer::default() }, obey);
    assert_eq!(open(&server.socket, "disk").block_bytes(), 1);
}

/// Replies that no server may send, to the first read.
fn nonsense(got: &Got) -> Vec<(&'static str, Vec<u8>)> {
    let (cookie, offset) = (got.cookie, got.offset);
    let data = |at: u64, bytes: usize| [&at.to_be_bytes()[..], &vec![1; bytes]].concat();
    let hole = |at: u64, bytes: u32| [&at.to_be_bytes()[..], &bytes.to_be_bytes()].concat();
    let status = [7u32, 4096, 0].iter().flat_map(|number| number.to_be_bytes()).collect::<Vec<_>>();
    vec![
        ("garbage", vec![0xa5; 4096]),
        ("another protocol", b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()),
        ("a reply to no request", simple(cookie + 1000, 0)),
        ("the same reply twice", [simple(cookie, 5), simple(cookie, 5)].concat()),
        ("bytes before the range", chunk(cookie, true, 1, &data(offset.wrapping_sub(512), 4096))),
        ("bytes behind the range", chunk(cookie, true, 1, &data(offset + 1, 4096))),
        ("bytes near the largest number", chunk(cookie, true, 1, &data(u64::MAX - 10, 4096))),
        ("more bytes than requested", chunk(cookie, false, 1, &data(offset, 4097))),
        (
            "all bytes twice",
            [chunk(cookie, false, 1, &data(offset, 4096)), chunk(cookie, true, 1, &data(offset, 4096))].concat(),
        ),
        ("too few bytes", chunk(cookie, true, 1, &data(offset, 512))),
        ("no bytes", chunk(cookie, true, 0, &[])),
        ("an empty chunk of data", chunk(cookie, false, 1, &offset.to_be_bytes())),
        ("a hole outside", chunk(cookie, true, 2, &hole(offset, 8192))),
        ("a hole of nothing", chunk(cookie, true, 2, &hole(offset, 0))),
        ("extents of a read", chunk(cookie, true, 5, &status)),
        ("an unknown kind", chunk(cookie, true, 77, &[0; 12])),
        ("a chunk that is too long", [&chunk(cookie, false, 0x8001, &[])[..16], &u32::MAX.to_be_bytes()].concat()),
        ("nothing, without end", chunk(cookie, false, 0, &[]).repeat(1000)),
        ("errors without end", chunk(cookie, false, 0x8001, &[0, 0, 0, 5, 0, 0]).repeat(100_000)),
        ("half a reply, then the end", chunk(cookie, true, 1, &data(offset, 4096))[..1000].to_vec()),
    ]
}

#[test]
fn replies_that_make_no_sense_end_the_connection_and_the_read_succeeds_on_the_next_one() {
    let count = nonsense(&Got { flags: 0, command: 0, cookie: 1, offset: 4096, length: 4096 }).len();
    for structured in [true, false] {
        for case in 0..count {
            let twist = move |connection: usize, _: usize, got: &Got| match (connection, got.command) {
                (0, READ) => Twist::Send(nonsense(got).swap_remove(case).1),
                _ => Twist::Obey,
            };
            let server = Scripted::new(Offer { structured, ..Offer::default() }, twist);
            let mut options = hasty(&server);
            options.reconnect_for = Duration::from_secs(8);
            let device = NbdDevice::connect(options).expect("opens");
            device.write(4096, &[7; BLOCK]).expect("write");
            let name = nonsense(&server.got()[0])[case].0;
            let mut back = [0; BLOCK];
            let result = device.read(4096, &mut back);
            match name {
                // The first of the two is a proper one.
                "the same reply twice" => assert!(result.is_err() || back == [7; BLOCK], "{name}"),
                _ => {
                    result.unwrap_or_else(|error| panic!("{name}: {error}"));
                    assert_eq!(back, [7; BLOCK], "{name}, structured: {structured}");
                }
            }
            device.flush().unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(device.status().reconnects >= 1, "{name}: {:?}", device.status());
        }
    }
}

#[test]
fn a_server_that_is_silent_is_left_and_the_request_is_made_of_the_next_connection() {
    let twist = |connection: usize, _: usize, got: &Got| match (connection, got.command) {
        (0 | 1, WRITE) => Twist::Ignore,
        _ => Twist::Obey,
    };
    let server = Scripted::new(Offer::default(), twist);
    let mut options = hasty(&server);
    options.reconnect_for = Duration::from_secs(8);
    let device = NbdDevice::connect(options).expect("opens");
    device.write(0, &[5; BLOCK]).expect("write");
    assert_eq!(server.memory()[..BLOCK], [5; BLOCK]);
    let status = device.status();
    assert!(status.reconnects >= 2, "{status:?}");
    assert!(status.last_error.is_some_and(|error| error.contains("does not answer")));
}

#[test]
fn a_server_that_never_serves_a_request_makes_the_device_fail_in_bounded_time() {
    type Script = fn(usize, usize, &Got) -> Twist;
    let scripts: [(&str, Script); 4] = [
        ("silent", |connection, number, _| if connection + number == 0 { Twist::Obey } else { Twist::Ignore }),
        ("ends", |connection, number, _| if connection + number == 0 { Twist::Obey } else { Twist::Close }),
        ("shuts down", |connection, number, _| if connection + number == 0 { Twist::Obey } else { Twist::Fail(108) }),
        ("serves others", |_, _, got| if got.command == WRITE { Twist::Ignore } else { Twist::Obey }),
    ];
    for (name, script) in scripts {
        let server = Scripted::new(Offer::default(), script);
        let device = NbdDevice::connect(hasty(&server)).expect("opens");
        let start = Instant::now();
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| while device.read(0, &mut [0; BLOCK]).is_ok() {});
            let result = device.write(0, &[1; BLOCK]);
            assert!(matches!(result, Err(DeviceError::Io { .. })), "{name}: {result:?}");
            reader.join().expect("no panic");
        });
        assert!(start.elapsed() < Duration::from_secs(20), "{name}");
        assert!(matches!(device.flush(), Err(DeviceError::Poisoned { .. })), "{name}");
    }
}

#[test]
fn errors_of_a_server_have_the_kinds_of_a_device() {
    type Check = fn(&DeviceError) -> bool;
    let is_code = |error: &DeviceError, code: i32| matches!(error, DeviceError::Io { source, .. } if source.raw_os_error() == Some(code));
    let cases: [(u32, u16, Check); 6] = [
        (28, WRITE, |error| matches!(error, DeviceError::Full { bytes: 4096, .. })),
        (1, WRITE, |error| matches!(error, DeviceError::ReadOnly { .. })),
        (5, WRITE, |error| matches!(error, DeviceError::Io { .. })),
        (12, READ, |error| matches!(error, DeviceError::Io { .. })),
        (22, FLUSH, |error| matches!(error, DeviceError::Io { operation: device::Operation::Flush, .. })),
        (4_000_000_000, READ, |error| error.to_string().contains("error 4000000000")),
    ];
    for structured in [false, true] {
        for (number, command, is_expected) in cases {
            let twist = move |_: usize, request: usize, got: &Got| match got.command {
                asked if asked == command && request > 0 => Twist::Fail(number),
                _ => Twist::Obey,
            };
            let server = Scripted::new(Offer { structured, ..Offer::default() }, twist);
            let device = open(&server.socket, "disk");
            let error = match command {
                WRITE => device.write(0, &[1; BLOCK]),
                READ => device.read(0, &mut [0; BLOCK]),
                _ => device.flush(),
            };
            let error = error.expect_err("the server refuses");
            assert!(is_expected(&error), "{number}: {error:?}");
            assert!(number != 12 || is_code(&error, 12), "{error:?}");
        }
    }
}

#[test]
fn a_copy_that_the_server_refuses_ends_the_device() {
    let twist = |connection: usize, number: usize, got: &Got| match (connection, number, got.command) {
        (0, 2, _) => Twist::Close,
        (1, _, WRITE) => Twist::Fail(28),
        _ => Twist::Obey,
    };
    let server = Scripted::new(Offer::default(), twist);
    let device = open(&server.socket, "disk");
    device.write(0, &[1; BLOCK]).expect("write");
    assert!(device.flush().is_err(), "what was acknowledged cannot be made persistent");
    let why = device.status().poisoned.expect("it is poisoned");
    assert!(why.contains("could not be sent again"), "{why}");
    assert!(device.read(0, &mut [0; BLOCK]).is_err());
}

#[test]
fn nobody_there_and_no_such_export_are_errors_of_the_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let nobody = NbdDevice::connect(quick(NbdUri::unix(&folder.path().join("none"), "disk")));
    assert!(matches!(nobody, Err(NbdError::Connect { .. })));
    let rig = crate::rig::Rig::of(crate::rig::memory(4096));
    let wrong = NbdDevice::connect(quick(NbdUri::unix(&rig.unix, "other")));
    assert!(matches!(wrong, Err(NbdError::Refused { .. })), "{wrong:?}");
    // It accepts, and says nothing.
    let silent = std::os::unix::net::UnixListener::bind(folder.path().join("silent")).expect("listens");
    let mut options = quick(NbdUri::unix(&folder.path().join("silent"), "disk"));
    options.connect_timeout = Duration::from_millis(200);
    assert!(matches!(NbdDevice::connect(options), Err(NbdError::Connect { .. })));
    drop(silent);
    let _: Arc<NbdDevice> = open(&rig.unix, "disk");
}
