//! What tests of the client use: a server that can be stopped and started again at one address, and a device that loses what was not
//! flushed when its machine loses power.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use device::{BLOCK_BYTES, Device, DeviceError, Durability};
use nbd::{ClientOptions, Export, NbdDevice, NbdServer, NbdUri, ServerOptions};
use node::{Admission, Descriptors};
use parking_lot::Mutex;
use tempfile::TempDir;

use crate::rig::wait;

pub(crate) const BLOCK: usize = BLOCK_BYTES;

/// The seed of a test: drawn, or given by the variable SEED.
pub(crate) fn seed() -> u64 {
    let given = std::env::var("SEED").ok().map(|seed| seed.parse().expect("a number"));
    let seed = given.unwrap_or_else(|| u64::from(std::process::id()));
    println!("SEED={seed}");
    seed
}

/// Options with short times.
pub(crate) fn quick(uri: NbdUri) -> ClientOptions {
    ClientOptions { connect_timeout: Duration::from_secs(5), ..ClientOptions::new(uri) }
}

/// Opens an export over a unix socket.
pub(crate) fn open(socket: &Path, name: &str) -> Arc<NbdDevice> {
    NbdDevice::connect(quick(NbdUri::unix(socket, name))).expect("the export opens")
}

/// All of a device.
pub(crate) fn all_of(device: &dyn Device) -> Vec<u8> {
    let mut bytes = vec![0xee; device.len() as usize];
    device.read(0, &mut bytes).expect("read");
    bytes
}

/// A server at one unix socket, with one export, that can be stopped and started again.
pub(crate) struct Restartable {
    pub(crate) socket: PathBuf,
    server: Option<NbdServer>,
    _folder: TempDir,
}

impl Restartable {
    pub(crate) fn new(export: Export) -> Restartable {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("nbd.sock");
        let mut server = Restartable { socket, server: None, _folder: folder };
        server.start(export);
        server
    }

    pub(crate) fn start(&mut self, export: Export) {
        let admission = Admission::new(Descriptors::raise().expect("descriptors"), 0);
        let options = ServerOptions { workers: 2, ..ServerOptions::default() };
        let server = NbdServer::start(options, &admission, |why| panic!("{why}")).expect("starts");
        server.add(export).expect("a new name");
        server.listen_unix(&self.socket).expect("listens");
        self.server = Some(server);
    }

    /// Cuts all sessions.
    pub(crate) fn stop(&mut self) {
        wait(self.server.take().expect("it runs").stop(Duration::ZERO)).expect("ends");
    }

    pub(crate) fn sessions(&self) -> usize {
        self.server.iter().flat_map(NbdServer::status).map(|status| status.sessions).sum()
    }
}

/// A device in memory that loses, when power fails, what was not made persistent. A write that is flushed by itself makes only its own
/// bytes persistent, as FUA of a strict medium does.
#[derive(Debug)]
pub(crate) struct Volatile {
    state: Mutex<(Vec<u8>, Vec<u8>)>,
    pub(crate) flushes: AtomicU64,
}

impl Volatile {
    pub(crate) fn new(bytes: usize) -> Arc<Volatile> {
        Arc::new(Volatile { state: Mutex::new((vec![0; bytes], vec![0; bytes])), flushes: AtomicU64::new(0) })
    }

    /// Loses each block that is not persistent with a probability of one half.
    pub(crate) fn lose_power(&self, random: &mut fastrand::Rng) {
        let mut state = self.state.lock();
        let (seen, persistent) = &mut *state;
        for (seen, persistent) in seen.chunks_mut(BLOCK).zip(persistent.chunks_mut(BLOCK)) {
            if random.bool() { seen.copy_from_slice(persistent) } else { persistent.copy_from_slice(seen) }
        }
    }

    /// Loses all that is not persistent.
    pub(crate) fn lose_all(&self) {
        let mut state = self.state.lock();
        let (seen, persistent) = &mut *state;
        seen.copy_from_slice(persistent);
    }

    pub(crate) fn persistent(&self) -> Vec<u8> {
        self.state.lock().1.clone()
    }
}

impl Device for Volatile {
    fn len(&self) -> u64 {
        self.state.lock().0.len() as u64
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        let at = offset as usize;
        buffer.copy_from_slice(&self.state.lock().0[at..at + buffer.len()]);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        let at = offset as usize;
        self.state.lock().0[at..at + data.len()].copy_from_slice(data);
        Ok(())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.flushes.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state.lock();
        let (seen, persistent) = &mut *state;
        persistent.copy_from_slice(seen);
        Ok(())
    }

    fn write_flush(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.write(offset, data)?;
        let at = offset as usize;
        self.state.lock().1[at..at + data.len()].copy_from_slice(data);
        Ok(())
    }

    fn discard(&self, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        self.write(offset, &vec![0; bytes as usize])
    }

    fn durability(&self) -> Durability {
        Durability::Emulated
    }
}
