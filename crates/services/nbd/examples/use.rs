//! Uses an export of any NBD server as a device, for tests with other servers.
//!
//! ```text
//!   use URI [epoch N] [authority FILE] [own CERTIFICATE KEY] [name NAME] [request-timeout MS] [reconnect-for MS] [retry-reads]
//!       info                  what the export is
//!       check SEED STEPS      random requests from four threads against a model of what was written, from the start of the export
//!       raise N               opens it under a higher epoch
//! ```
//!
//! It ends with an error at the first byte that is wrong.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use device::{Device, DeviceError};
use nbd::{ClientOptions, ClientTls, NbdDevice, NbdUri};

type Problem = Box<dyn std::error::Error + Send + Sync>;

/// Threads of a check, each with a part of the export of its own.
const THREADS: usize = 4;

/// The largest part of one thread.
const PART_BYTES: u64 = 4 << 20;

/// Attempts at a read that fails.
const ATTEMPTS: usize = 100;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Problem> {
    let mut words = std::env::args().skip(1);
    let mut next = |what: &str| words.next().ok_or_else(|| Problem::from(format!("{what} is missing")));
    let uri: NbdUri = next("the address")?.parse()?;
    let mut options = ClientOptions::new(uri);
    let mut tls = ClientTls { authority: "".into(), own: None, server_name: None };
    let mut attempts = 1;
    loop {
        match next("the command")?.as_str() {
            "epoch" => options.epoch = Some(next("the epoch")?.parse()?),
            "authority" => tls.authority = next("a file")?.into(),
            "own" => tls.own = Some((next("a file")?.into(), next("a file")?.into())),
            "name" => tls.server_name = Some(next("a name")?),
            "request-timeout" => options.request_timeout = Duration::from_millis(next("a time")?.parse()?),
            "reconnect-for" => options.reconnect_for = Duration::from_millis(next("a time")?.parse()?),
            "retry-reads" => attempts = ATTEMPTS,
            command => {
                if options.uri.tls {
                    options.tls = Some(tls);
                }
                let device = NbdDevice::connect(options)?;
                return match command {
                    "info" => info(&device),
                    "check" => check(&device, next("the seed")?.parse()?, next("the steps")?.parse()?, attempts),
                    "raise" => Ok(device.raise(next("the epoch")?.parse()?)?),
                    other => Err(format!("unknown word {other}").into()),
                };
            }
        }
    }
}

fn info(device: &NbdDevice) -> Result<(), Problem> {
    println!("{:?}", device.facts());
    println!("block {}, durability {}, fenced {}", device.block_bytes(), device.durability(), device.is_fenced());
    let extents = device.extents(0, device.len())?;
    let holes: u64 = extents.iter().filter(|extent| !extent.has_space).map(|extent| extent.bytes).sum();
    println!("{} extents, {holes} bytes without space", extents.len());
    Ok(())
}

fn check(device: &Arc<NbdDevice>, seed: u64, steps: usize, attempts: usize) -> Result<(), Problem> {
    let block = u64::from(device.block_bytes());
    let part = (device.len() / THREADS as u64).min(PART_BYTES) / block * block;
    let start = Instant::now();
    let threads: Vec<_> = (0..THREADS as u64)
        .map(|thread| {
            let device = Arc::clone(device);
            std::thread::spawn(move || {
                let random = fastrand::Rng::with_seed(seed + thread);
                let mut part = Part { device, start: thread * part, model: vec![0; part as usize], random, attempts };
                part.check(steps)
            })
        })
        .collect();
    for thread in threads {
        thread.join().map_err(|_| "a thread panicked")??;
    }
    println!("{steps} steps of {THREADS} threads in {:.2?}; {:?}", start.elapsed(), device.status());
    Ok(())
}

/// The part of one thread.
struct Part {
    device: Arc<NbdDevice>,
    start: u64,
    model: Vec<u8>,
    random: fastrand::Rng,
    attempts: usize,
}

impl Part {
    fn check(&mut self, steps: usize) -> Result<(), Problem> {
        let block = self.device.block_bytes() as usize;
        let blocks = self.model.len() / block;
        self.device.write_zeroes(self.start, self.model.len() as u64, true)?;
        for step in 0..steps {
            let first = self.random.usize(..blocks);
            let most = if self.random.u8(..16) == 0 { blocks } else { 16 };
            let range = first * block..(first + self.random.usize(1..=(blocks - first).min(most))) * block;
            let (at, bytes) = (self.start + range.start as u64, range.len() as u64);
            let mut data = vec![self.random.u8(..); range.len()];
            match self.random.u8(..12) {
                0 => self.device.flush()?,
                1 => {
                    self.device.write_flush(at, &data)?;
                    self.model[range].copy_from_slice(&data);
                }
                2 => {
                    self.device.write_zeroes(at, bytes, self.random.bool())?;
                    self.model[range].fill(0);
                }
                3..=6 => {
                    self.device.write(at, &data)?;
                    self.model[range].copy_from_slice(&data);
                }
                7 => {
                    let extents = self.device.extents(at, bytes)?;
                    let mut from = range.start;
                    for extent in extents {
                        let to = from + extent.bytes as usize;
                        if !extent.has_space && self.model[from..to].iter().any(|byte| *byte != 0) {
                            return Err(format!("step {step}: a hole at {from} has bytes").into());
                        }
                        from = to;
                    }
                }
                _ => {
                    self.read(at, &mut data)?;
                    if data != self.model[range] {
                        return Err(format!("step {step}: {bytes} bytes at {at} are wrong").into());
                    }
                }
            }
        }
        let mut all = vec![0; self.model.len()];
        self.read(self.start, &mut all)?;
        if all == self.model { Ok(()) } else { Err("at the end: bytes are wrong".into()) }
    }

    fn read(&self, at: u64, data: &mut [u8]) -> Result<(), DeviceError> {
        let mut result = self.device.read(at, data);
        for _ in 1..self.attempts {
            if result.is_err() {
                result = self.device.read(at, data);
            }
        }
        result
    }
}
