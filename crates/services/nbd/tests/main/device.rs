//! The client as a device: the guarantees of the contract, over our own server.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use device::{
    AlignedBuffer, Device, DeviceError, DeviceShelf, Durability, Extent, IoKind, IoRequest, IoSink, MemoryShelf,
    Operation, Shelf,
};
use nbd::{Export, NbdDevice, NbdUri};

use crate::rig::{Probe, Rig, memory, until};
use crate::using::{BLOCK, Restartable, Volatile, all_of, open, quick, seed};

/// The device over each kind of connection.
fn on_each(rig: &Rig, check: impl Fn(&str, Arc<NbdDevice>)) {
    check("unix", open(&rig.unix, "disk"));
    let uri = NbdUri::tcp("127.0.0.1", rig.tcp.port(), "disk");
    check("TCP", NbdDevice::connect(quick(uri)).expect("opens"));
}

#[test]
fn it_agrees_with_a_flat_vector() {
    const BLOCKS: usize = 64;
    let rig = Rig::of(memory((BLOCKS * BLOCK) as u64));
    let mut random = fastrand::Rng::with_seed(seed());
    let mut model = vec![0; BLOCKS * BLOCK];
    let mut device = open(&rig.unix, "disk");
    for step in 0..600 {
        let first = random.usize(..BLOCKS);
        let range = first * BLOCK..(first + random.usize(..=BLOCKS - first)) * BLOCK;
        let (at, bytes) = (range.start as u64, range.len() as u64);
        let mut data = vec![0; range.len()];
        random.fill(&mut data);
        match random.u8(..14) {
            0..=2 => device.write(at, &data).expect("write"),
            3..=4 => device.write_flush(at, &data).expect("write_flush"),
            5 => device.flush().expect("flush"),
            6 => device.discard(at, bytes).expect("discard"),
            7 => device.write_zeroes(at, bytes, random.bool()).expect("write_zeroes"),
            8 => device = open(&rig.unix, "disk"),
            9 => {
                let extents = device.extents(at, bytes).expect("extents");
                assert_eq!(extents.iter().map(|extent| extent.bytes).sum::<u64>(), bytes, "step {step}");
            }
            _ => {
                device.read(at, &mut data).expect("read");
                assert!(data == model[range.clone()], "step {step}");
            }
        }
        // What was written is what the model has from now on.
        device.read(at, &mut data).expect("read");
        model[range].copy_from_slice(&data);
        if random.u8(..20) == 0 {
            assert!(all_of(&*device) == model, "step {step}");
        }
    }
}

#[test]
fn calls_reach_the_servers_device_as_what_they_are() {
    let probe = Probe::new(1 << 20);
    let rig = Rig::of(Arc::clone(&probe) as _);
    on_each(&rig, |kind, device| {
        assert_eq!(probe.seen(), [(IoKind::Flush, 0, 0)], "{kind}: opening flushes");
        assert_eq!((device.len(), device.block_bytes(), device.durability()), (1 << 20, 4096, Durability::Emulated));
        device.write_flush(4096, &[1; 4096]).expect("write_flush");
        assert_eq!(probe.seen(), [(IoKind::WriteFlush, 4096, 4096)], "{kind}: FUA where nothing else is unflushed");
        device.write(0, &[2; 4096]).expect("write");
        device.write_flush(4096, &[3; 4096]).expect("write_flush");
        let expected = [(IoKind::Write, 0, 4096), (IoKind::Write, 4096, 4096), (IoKind::Flush, 0, 0)];
        assert_eq!(probe.seen(), expected, "{kind}: FUA does not cover what came before");
        device.discard(0, 8192).expect("discard");
        device.write_zeroes(0, 8192, false).expect("zeros");
        let zeros = [true, false].map(|free| (IoKind::WriteZeroes { free }, 0, 8192));
        assert_eq!(probe.seen(), zeros, "{kind}");
        device.flush().expect("flush");
        assert_eq!(probe.seen(), [(IoKind::Flush, 0, 0)], "{kind}");
        device.write(65536, &[9; 65536]).expect("write");
        let extents = device.extents(0, 1 << 20).expect("extents");
        let expected = [(8192, true), (57344, false), (65536, true), (917_504, false)];
        assert_eq!(extents, expected.map(|(bytes, has_space)| Extent { bytes, has_space }), "{kind}");
        device.discard(0, 1 << 20).expect("discard");
        device.flush().expect("flush");
        probe.seen();
    });
}

#[test]
fn a_device_that_is_dropped_ends_its_session() {
    let rig = Rig::of(memory(1 << 20));
    let device = open(&rig.unix, "disk");
    assert_eq!(rig.sessions(), 1);
    assert!(device.status().connected);
    drop(device);
    until("the session ends", || rig.sessions() == 0);
}

#[test]
fn a_shelf_on_the_device_holds_named_devices() {
    let rig = Rig::of(memory(64 << 20));
    let device: Arc<dyn Device> = open(&rig.unix, "disk");
    DeviceShelf::format("far", &device).expect("format");
    let shelf = DeviceShelf::open("far", device).expect("open");
    for name in ["b", "a"] {
        let part = shelf.create(name, (1 << 20) + 5 * BLOCK as u64).expect("create");
        assert!(all_of(&*part).iter().all(|byte| *byte == 0));
        part.write_flush(0, &[name.as_bytes()[0]; BLOCK]).expect("write");
    }
    assert!(matches!(shelf.create("a", 4096), Err(DeviceError::AlreadyExists { .. })));
    shelf.rename("a", "c").expect("rename");
    drop(shelf);
    let shelf = DeviceShelf::open("far", open(&rig.unix, "disk")).expect("open again");
    assert_eq!(shelf.list().expect("list"), ["b", "c"]);
    let mut bytes = [0; BLOCK];
    shelf.open("c").expect("open").read(0, &mut bytes).expect("read");
    assert_eq!(bytes, [b'a'; BLOCK]);
    shelf.remove("b").expect("remove");
    assert!(matches!(shelf.open("b"), Err(DeviceError::NotFound { .. })));
}

#[test]
fn many_threads_write_and_flush_and_every_write_arrives() {
    const THREADS: u64 = 7;
    const TURNS: u8 = 30;
    let rig = Rig::of(memory(2 * THREADS * BLOCK as u64));
    on_each(&rig, |kind, device| {
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let device = &device;
                scope.spawn(move || {
                    let (at, mut back) = (2 * thread * BLOCK as u64, vec![0; 2 * BLOCK]);
                    for turn in 1..=TURNS {
                        let data = vec![turn; 2 * BLOCK];
                        match turn % 3 {
                            0 => device.write(at, &data).and_then(|()| device.flush()).expect("write, flush"),
                            _ => device.write_flush(at, &data).expect("write_flush"),
                        }
                        device.read(at, &mut back).expect("read");
                        assert!(back == data);
                    }
                });
            }
        });
        assert!(all_of(&*device).iter().all(|byte| *byte == TURNS), "{kind}");
    });
}

#[test]
fn what_no_caller_may_ask_panics_and_empty_transfers_are_allowed() {
    let rig = Rig::of(memory(2 * BLOCK as u64));
    let device = open(&rig.unix, "disk");
    let block = [0; BLOCK];
    let calls: [(&str, &dyn Fn()); 5] = [
        ("an offset inside a block", &|| drop(device.write(2048, &block))),
        ("half a block", &|| drop(device.write_flush(0, &block[..2048]))),
        ("a read past the end", &|| drop(device.read(2 * BLOCK as u64, &mut [0; BLOCK]))),
        ("an offset near the largest number", &|| drop(device.write(u64::MAX - 4095, &block))),
        ("a discard past the end", &|| drop(device.discard(0, 3 * BLOCK as u64))),
    ];
    for (what, call) in calls {
        assert!(catch_unwind(AssertUnwindSafe(call)).is_err(), "{what} did not panic");
    }
    for at in [0, 2 * BLOCK as u64] {
        device.read(at, &mut []).expect("read");
        device.write(at, &[]).expect("write");
        device.write_flush(at, &[]).expect("write_flush");
        device.discard(at, 0).expect("discard");
        assert_eq!(device.extents(at, 0).expect("extents"), []);
    }
    device.write_flush(0, &block).expect("the device is as good as before");
}

#[test]
fn a_read_only_export_reads_and_refuses_to_change() {
    let inner = memory(1 << 20);
    inner.write(0, &[3; BLOCK]).expect("write");
    let rig = Rig::new([Export { read_only: true, ..Export::new("disk", inner) }]);
    on_each(&rig, |kind, device| {
        let refusals = [
            device.write(0, &[4; BLOCK]),
            device.write_flush(0, &[4; BLOCK]),
            device.flush(),
            device.discard(0, 4096),
            device.write_zeroes(0, 4096, false),
        ];
        for refusal in refusals {
            assert!(matches!(refusal, Err(DeviceError::ReadOnly { .. })), "{kind}: {refusal:?}");
        }
        assert_eq!(all_of(&*device)[..BLOCK], [3; BLOCK], "{kind}");
    });
}

/// Passes requests to a test.
struct Collect(Sender<(IoRequest, Result<(), DeviceError>)>);

impl IoSink for Collect {
    fn complete(&self, request: IoRequest, result: Result<(), DeviceError>) {
        self.0.send((request, result)).expect("the test waits");
    }
}

#[test]
fn a_batch_is_on_the_wire_at_once_and_comes_back_whole() {
    let probe = Probe::new(1 << 20);
    let rig = Rig::of(Arc::clone(&probe) as _);
    let device = open(&rig.unix, "disk");
    let (tell, told) = channel();
    let sink: Arc<dyn IoSink> = Arc::new(Collect(tell));
    probe.hold();
    let block = |byte: u8| AlignedBuffer::from(&[byte; BLOCK][..]);
    let mut batch: Vec<_> = (0..8).map(|at| IoRequest::write(at * 4096, block(at as u8 + 1), at)).collect();
    batch.push(IoRequest::write_flush(32768, block(9), 8));
    batch.push(IoRequest::discard(65536, 4096, 9));
    batch.push(IoRequest::flush(10));
    batch.push(IoRequest::write(0, AlignedBuffer::new(), 11));
    device.submit(&mut batch, &sink);
    assert!(batch.is_empty());
    probe.wait_for(11);
    assert_eq!(told.recv().expect("a request").0.token, 11, "what is empty is complete at once");
    probe.release();
    let mut tokens: Vec<_> = (0..11)
        .map(|_| {
            let (request, result) = told.recv_timeout(Duration::from_secs(8)).expect("a request");
            result.expect("it succeeds");
            assert!(request.kind != IoKind::Write || request.buffer[..] == [request.token as u8 + 1; BLOCK]);
            request.token
        })
        .collect();
    tokens.sort_unstable();
    assert_eq!(tokens, (0..11).collect::<Vec<_>>());
    let mut batch: Vec<_> = (0..9).map(|at| IoRequest::read(at * 4096, AlignedBuffer::zeroed(BLOCK), at)).collect();
    device.submit(&mut batch, &sink);
    for _ in 0..9 {
        let (request, result) = told.recv_timeout(Duration::from_secs(8)).expect("a request");
        result.expect("it succeeds");
        assert_eq!(request.buffer[..], [request.token as u8 + 1; BLOCK]);
    }
    // What is still on its way when the device is dropped is completed too.
    probe.hold();
    device.submit(&mut vec![IoRequest::flush(1)], &sink);
    probe.wait_for(1);
    drop(device);
    probe.release();
    assert!(told.recv_timeout(Duration::from_secs(8)).expect("a request").1.is_ok());
    until("the session ends", || rig.sessions() == 0);
}

/// A sink that panics.
struct Bomb;

impl IoSink for Bomb {
    fn complete(&self, _: IoRequest, _: Result<(), DeviceError>) {
        panic!("a sink of the test panics");
    }
}

#[test]
fn a_panic_of_the_clients_thread_completes_every_request_with_an_error() {
    let probe = Probe::new(1 << 20);
    let rig = Rig::of(Arc::clone(&probe) as _);
    let device = open(&rig.unix, "disk");
    let (tell, told) = channel();
    probe.hold();
    let bomb: Arc<dyn IoSink> = Arc::new(Bomb);
    device.submit(&mut vec![IoRequest::flush(0)], &bomb);
    let sink: Arc<dyn IoSink> = Arc::new(Collect(tell));
    let mut batch: Vec<_> = (0..4).map(|at| IoRequest::write(at * 4096, AlignedBuffer::zeroed(BLOCK), at)).collect();
    device.submit(&mut batch, &sink);
    probe.wait_for(5);
    // What was held back is done in the opposite order: the flush comes last.
    probe.release();
    let results: Vec<_> = (0..4).map(|_| told.recv_timeout(Duration::from_secs(8)).expect("a request").1).collect();
    assert_eq!(results.len(), 4);
    until("the panic is known", || device.status().poisoned.is_some_and(|why| why.contains("panics")));
    assert!(device.write(0, &[1; BLOCK]).is_err() && device.read(0, &mut [0; BLOCK]).is_err());
    assert!(matches!(device.raise(5), Err(nbd::NbdError::Ended)));
}

#[test]
fn an_error_of_the_server_is_the_error_of_its_request_and_a_failed_change_poisons() {
    use device::faulty::{Fault, FaultyShelf, Rule};
    type Call = fn(&NbdDevice) -> Result<(), DeviceError>;
    let is_io: fn(&DeviceError) -> bool = |error| matches!(error, DeviceError::Io { .. });
    let is_full: fn(&DeviceError) -> bool = |error| matches!(error, DeviceError::Full { .. });
    type Case = (&'static str, Operation, Fault, Call, fn(&DeviceError) -> bool);
    let cases: &[Case] = &[
        ("read", Operation::Read, Fault::Eio, |device| device.read(0, &mut [0; BLOCK]), is_io),
        ("write", Operation::Write, Fault::Eio, |device| device.write(0, &[1; BLOCK]), is_io),
        ("no space", Operation::Write, Fault::NoSpace, |device| device.write(0, &[1; BLOCK]), is_full),
        ("flush", Operation::Flush, Fault::Eio, |device| device.flush(), is_io),
        ("write_flush", Operation::Flush, Fault::Eio, |device| device.write_flush(0, &[1; BLOCK]), is_io),
        ("discard", Operation::Discard, Fault::Eio, |device| device.discard(0, 4096), is_io),
    ];
    for (name, operation, fault, call, is_expected) in cases {
        let shelf = FaultyShelf::new(Arc::new(MemoryShelf::new()));
        let rig = Rig::of(shelf.create("disk", 1 << 20).expect("memory"));
        let device = open(&rig.unix, "disk");
        device.write(8192, &[7; BLOCK]).expect("write");
        shelf.inject(Rule::nth(*operation, 1, *fault));
        let error = call(&device).expect_err(name);
        assert!(is_expected(&error), "{name}: {error:?}");
        let is_read = *operation == Operation::Read;
        for after in [device.write(0, &[1; BLOCK]), device.flush(), device.discard(0, 4096)] {
            assert_eq!(after.is_ok(), is_read, "{name}: {after:?}");
            assert!(is_read || matches!(after, Err(DeviceError::Poisoned { .. })), "{name}: {after:?}");
        }
        assert_eq!(device.status().poisoned.is_none(), is_read, "{name}");
        let mut back = [0; BLOCK];
        device.read(8192, &mut back).expect("reads go on");
        assert_eq!(back, [7; BLOCK], "{name}");
    }
}

#[test]
fn the_client_flushes_by_itself_before_copies_take_more_memory_than_allowed() {
    let inner = Volatile::new(4 << 20);
    let server = Restartable::new(Export::new("disk", Arc::clone(&inner) as _));
    let mut options = quick(NbdUri::unix(&server.socket, "disk"));
    options.unflushed_bytes = 64 << 10;
    let device = NbdDevice::connect(options).expect("opens");
    let flushes = || inner.flushes.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(flushes(), 1, "opening flushes");
    for turn in 0..200u64 {
        device.write(turn * 4096, &[turn as u8; BLOCK]).expect("write");
        assert!(device.status().unflushed_bytes <= 64 << 10);
    }
    assert!((10..=30).contains(&flushes()), "{} flushes", flushes());
    // A write that is larger than all copies together is made persistent instead.
    device.write(0, &vec![9; 1 << 20]).expect("write");
    assert!(inner.persistent()[..1 << 20].iter().all(|byte| *byte == 9));
    assert_eq!(server.sessions(), 1);
}
