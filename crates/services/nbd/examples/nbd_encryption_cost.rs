//! What encryption of a volume costs over NBD, in turns with a volume in clear and with the cipher alone:
//!
//! ```text
//!   cargo run --release -p nbd --example nbd_encryption_cost -- [--mib N] [--milliseconds N] [--rounds R] [--depth N]
//! ```
//!
//! Server and client are in this process, on a unix socket; two volumes of two copies in memory, one in clear and one encrypted. Each
//! round measures, one after the other, reads and writes at random places of both, `depth` requests in progress, and one pass of AES-256-GCM
//! over as many blocks of 4 KiB. What counts is the processor time of the process for each request, with the kernel's for it: elapsed time is
//! that of the scheduler mostly. The last column is what is demanded to be 1.2 at most: what encryption adds, in passes of the
//! cipher. The median of the rounds counts; a step of processor time is 10 ms, so give it some hundred milliseconds.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use device::{AlignedBuffer, BLOCK_BYTES, Device, DeviceError, IoKind, IoRequest, IoSink, MemoryShelf};
use encryption::{SEAL_BYTES, Sealer};
use nbd::{ClientOptions, Export, NbdDevice, NbdServer, ServerOptions};
use node::{Admission, Descriptors};
use parking_lot::Mutex;
use volume::encryption::{Secret, VolumeKeys};
use volume::{NewVolume, Options, Place, Volume};

type Problem = Box<dyn std::error::Error>;

/// What the arguments say.
struct Setup {
    mib: u64,
    time: Duration,
    rounds: u32,
    depth: u64,
}

/// Where requests come back.
struct Returned(Mutex<Sender<IoRequest>>);

impl IoSink for Returned {
    fn complete(&self, request: IoRequest, result: Result<(), DeviceError>) {
        result.expect("it is done");
        // Nobody waits for the last ones.
        let _ = self.0.lock().send(request);
    }
}

fn volume(bytes: u64, keys: Option<Arc<VolumeKeys>>) -> Result<Arc<Volume>, Problem> {
    let places: Vec<Place> = (0..2).map(|_| Place::on(Arc::new(MemoryShelf::new()))).collect();
    let options = Options { scrub_interval: None, keys, ..Options::new(1) };
    let new = NewVolume { volume: *b"volume of a run!", bytes, min_copies: None, is_thin: false };
    Volume::create(&places, &new, &options)?;
    let volume = Volume::open(places, options)?;
    let mut buffer = AlignedBuffer::zeroed(1 << 20);
    let mut random = fastrand::Rng::with_seed(1);
    for at in (0..bytes).step_by(1 << 20) {
        random.fill(&mut buffer);
        volume.write(at, &buffer)?;
    }
    volume.checkpoint()?;
    Ok(Arc::new(volume))
}

/// User and system time of this process, in steps of a hundredth of a second.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name of the program, in parentheses, may contain spaces.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks = fields.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok());
    Duration::from_millis(ticks.sum::<u64>() * 10)
}

/// Processor time of a request, nanoseconds.
fn requests(device: &NbdDevice, bytes: usize, is_read: bool, setup: &Setup, random: &mut fastrand::Rng) -> f64 {
    let (sender, receiver) = channel();
    let sink: Arc<dyn IoSink> = Arc::new(Returned(Mutex::new(sender)));
    let count = device.len() / bytes as u64;
    let mut again = |buffer: AlignedBuffer| {
        let at = random.u64(..count) * bytes as u64;
        let request = if is_read { IoRequest::read(at, buffer, 0) } else { IoRequest::write(at, buffer, 0) };
        device.submit(&mut vec![request], &sink);
    };
    (0..setup.depth).for_each(|_| again(AlignedBuffer::zeroed(bytes)));
    let (began, processor, mut done) = (Instant::now(), processor_time(), 0_u64);
    while began.elapsed() < setup.time {
        let request = receiver.recv().expect("requests are in progress");
        debug_assert!(matches!(request.kind, IoKind::Read | IoKind::Write));
        done += 1;
        again(request.buffer);
    }
    let used = processor_time() - processor;
    (0..setup.depth).for_each(|_| drop(receiver.recv()));
    used.as_nanos() as f64 / done as f64
}

/// Processor time of one pass of the cipher over a request, nanoseconds.
fn pass(bytes: usize, is_read: bool, time: Duration) -> f64 {
    let sealer = Sealer::for_tests(1, 1, 1);
    let mut buffer = AlignedBuffer::zeroed(bytes);
    let mut seals = vec![[0; SEAL_BYTES]; bytes / BLOCK_BYTES];
    let mut again = |opens: bool| {
        let (began, processor, mut calls) = (Instant::now(), processor_time(), 0_u32);
        while began.elapsed() < time {
            for (block, seal) in buffer.chunks_exact_mut(BLOCK_BYTES).zip(&mut seals) {
                *seal = sealer.seal_apart(b"place", block);
            }
            if opens {
                for (block, seal) in buffer.chunks_exact_mut(BLOCK_BYTES).zip(&seals) {
                    sealer.open_apart(b"place", block, seal).expect("it was sealed so");
                }
            }
            calls += 1;
        }
        (processor_time() - processor).as_nanos() as f64 / f64::from(calls)
    };
    // Opening needs sealed bytes: both are measured, and the half of it that is meant is taken.
    let seal = again(false);
    if is_read { again(true) - seal } else { seal }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn measure(devices: &[Arc<NbdDevice>; 2], bytes: usize, is_read: bool, setup: &Setup) {
    let mut random = fastrand::Rng::with_seed(bytes as u64);
    let mut found: [Vec<f64>; 3] = Default::default();
    for _ in 0..setup.rounds {
        for (device, found) in devices.iter().zip(&mut found) {
            found.push(requests(device, bytes, is_read, setup, &mut random));
        }
        found[2].push(pass(bytes, is_read, setup.time));
    }
    let [clear, encrypted, pass] = found.map(median);
    println!(
        "{:<6} {:>7} {:>12.2} {:>12.2} {:>12.2} {:>8.2}",
        if is_read { "read" } else { "write" },
        bytes,
        clear / 1000.0,
        encrypted / 1000.0,
        pass / 1000.0,
        (encrypted - clear) / pass
    );
}

fn run(setup: &Setup) -> Result<(), Problem> {
    let folder = tempfile::tempdir()?;
    let socket = folder.path().join("nbd");
    let admission = Admission::new(Descriptors::raise()?, 0);
    let server = NbdServer::start(ServerOptions::default(), &admission, |why| eprintln!("{why}"))?;
    let keys = VolumeKeys::new(vec![(1, Secret::new([1; 32]))]);
    server.add(Export::new("clear", volume(setup.mib << 20, None)?))?;
    server.add(Export::new("encrypted", volume(setup.mib << 20, keys)?))?;
    server.listen_unix(&socket)?;
    let client = |name: &str| -> Result<Arc<NbdDevice>, Problem> {
        let uri = format!("nbd+unix:///{name}?socket={}", socket.display());
        Ok(NbdDevice::connect(ClientOptions::new(uri.parse()?))?)
    };
    let devices = [client("clear")?, client("encrypted")?];
    println!(
        "{} MiB, two copies in memory, NBD over a unix socket, {} requests in progress, medians of {} rounds; microseconds of processor \
         time for each request",
        setup.mib, setup.depth, setup.rounds
    );
    println!("{:<6} {:>7} {:>12} {:>12} {:>12} {:>8}", "", "bytes", "clear", "encrypted", "cipher", "added");
    for bytes in [BLOCK_BYTES, 16 * BLOCK_BYTES, 64 * BLOCK_BYTES] {
        measure(&devices, bytes, true, setup);
        measure(&devices, bytes, false, setup);
    }
    println!("added: what encryption adds, in passes of the cipher over the request ({BLOCK_BYTES} bytes at a time)");
    Ok(())
}

fn main() -> ExitCode {
    let mut setup = Setup { mib: 256, time: Duration::from_millis(1000), rounds: 7, depth: 16 };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match (argument.as_str(), arguments.next().and_then(|value| value.parse::<u64>().ok())) {
            ("--mib", Some(value)) => setup.mib = value.max(1),
            ("--milliseconds", Some(value)) => setup.time = Duration::from_millis(value.max(100)),
            ("--rounds", Some(value)) => setup.rounds = value.clamp(1, 1000) as u32,
            ("--depth", Some(value)) => setup.depth = value.clamp(1, 256),
            _ => {
                eprintln!("nbd_encryption_cost [--mib N] [--milliseconds N] [--rounds R] [--depth N]");
                return ExitCode::from(2);
            }
        }
    }
    match run(&setup) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}
