//! Serves one device over NBD, for tests with other clients and for measurements.
//!
//! ```text
//!   serve memory BYTES | file FOLDER BYTES   [unix PATH] [tcp ADDRESS] [workers N] [read-only] [fast-zero]
//!         [threads N] [limit-requests N] [limit-bytes N] [tls CERTIFICATE KEY [AUTHORITY OF CLIENTS]] [fill]
//! ```
//!
//! Without `threads` a file is served through the io_uring of its shelf, by no thread for each request. The export's name is `disk`. It prints `ready ADDRESS` and runs until its standard input ends.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::{Device, FileOptions, FileShelf, MemoryShelf, Shelf};
use nbd::server::{Limits, Threaded};
use nbd::{Export, NbdServer, ServerOptions, ServerTls};
use node::{Admission, Descriptors};

type Problem = Box<dyn std::error::Error>;

/// What the arguments say.
#[derive(Default)]
struct Setup {
    device: Option<Arc<dyn Device>>,
    unix: Option<PathBuf>,
    tcp: Option<String>,
    options: ServerOptions,
    read_only: bool,
    fast_zero: bool,
    fill: bool,
    threads: usize,
    limits: Limits,
}

fn main() -> Result<(), Problem> {
    let setup = setup()?;
    let mut device = setup.device.ok_or("name a device: memory BYTES, or file FOLDER BYTES")?;
    if setup.fill {
        fill(&*device)?;
    }
    if setup.threads > 0 {
        device = Arc::new(Threaded::new(device, setup.threads)?);
    }
    let admission = Admission::new(Descriptors::raise()?, 0);
    let server = NbdServer::start(setup.options, &admission, |why| eprintln!("{why}"))?;
    let export = Export {
        read_only: setup.read_only,
        fast_zero: setup.fast_zero,
        limits: setup.limits,
        description: "made by the example serve".to_owned(),
        ..Export::new("disk", device)
    };
    server.add(export)?;
    if let Some(path) = &setup.unix {
        server.listen_unix(path)?;
    }
    let bound = setup.tcp.map(|address| {
        server.listen_tcp(
            address
                .parse()
                .map_err(|_| nbd::NbdError::Address { address: address.clone(), problem: "no address".to_owned() })?,
        )
    });
    println!("ready {}", bound.transpose()?.map_or_else(String::new, |address| address.to_string()));
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

fn setup() -> Result<Setup, Problem> {
    let mut setup = Setup::default();
    let mut words = std::env::args().skip(1).peekable();
    while let Some(word) = words.next() {
        let mut next = || words.next().ok_or_else(|| format!("{word} needs a value"));
        match word.as_str() {
            "memory" => setup.device = Some(MemoryShelf::new().create("disk", next()?.parse()?)?),
            "file" => {
                let shelf = FileShelf::open(Path::new(&next()?), FileOptions::default())?;
                setup.device = Some(shelf.create("disk", next()?.parse()?)?);
            }
            "unix" => setup.unix = Some(next()?.into()),
            "tcp" => setup.tcp = Some(next()?),
            "workers" => setup.options.workers = next()?.parse()?,
            "threads" => setup.threads = next()?.parse()?,
            "limit-requests" => setup.limits.requests = Some(next()?.parse()?),
            "limit-bytes" => setup.limits.bytes = Some(next()?.parse()?),
            "read-only" => setup.read_only = true,
            "fast-zero" => setup.fast_zero = true,
            "fill" => setup.fill = true,
            "tls" => {
                let (certificate, key) = (next()?.into(), next()?.into());
                let client_authority = words.next_if(|word| word.contains('/')).map(PathBuf::from);
                setup.options.tls =
                    Some(ServerTls { certificate, key, client_authority, client_revocations: None, required: true });
            }
            other => return Err(format!("unknown word {other}").into()),
        }
    }
    Ok(setup)
}

/// Writes all of it, so that no read finds bytes that have no memory yet.
fn fill(device: &dyn Device) -> Result<(), Problem> {
    let bytes = vec![0xa5; 1 << 20];
    let mut at = 0;
    while at < device.len() {
        let count = (device.len() - at).min(bytes.len() as u64);
        device.write(at, &bytes[..count as usize])?;
        at += count;
    }
    Ok(())
}
