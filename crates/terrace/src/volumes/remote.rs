//! A copy on an export of another node, or of any other NBD server.
//!
//! ```text
//!   server with epochs (a place of another node)         any other server
//!
//!   look    name        read-only: superblock            name     read and write
//!   own     name@TERM   read and write, others are cut   unfenced: never opens a volume alone
//!                 \                                     /
//!                  DeviceShelf on the export: journal, blocks, checksums, superblock of the copy
//! ```
//!
//! A volume reads the superblocks of its copies, computes the next term from them, and raises it: from then on the export is open under
//! that term, and a former owner is refused by the server, also after a crash of it.
//!
//! Invariant: before a term is raised nothing is written to an export with epochs.

use std::fmt;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::ensure;
use device::{Device, DeviceError, DeviceShelf, Operation, Shelf};
use nbd::client::ClientOptions;
use nbd::{NbdDevice, NbdError};
use volume::Fence;

/// How long the copy waits for its server before it counts as failed: less than the volume's own time for a copy (5 s), so that the
/// reason is this server's.
const REQUEST_TIME: Duration = Duration::from_secs(4);

/// Who this process is to servers. A copy that was given up and is opened again has another connection under the same term; what the
/// former one has sent, and a network or a server has held up, must not arrive behind it: the server ends that one first.
static CLIENT: LazyLock<u64> = LazyLock::new(|| super::draw_id() as u64 | 1);

/// Bytes of the copy's device that a volume of `bytes` needs at least: its blocks, a sum for each, twice the window of its journal, and
/// the directory of the shelf.
pub fn bytes_needed(bytes: u64) -> u64 {
    bytes + bytes / 512 + 2 * super::description::window_bytes(bytes) + (16 << 20)
}

/// See the module's text.
pub struct RemoteShelf {
    client: ClientOptions,
    has_epochs: bool,
    state: Mutex<RemoteState>,
}

struct RemoteState {
    /// `None` while a term is raised, and after that failed.
    device: Option<Arc<NbdDevice>>,
    /// `None`: the export contains no shelf.
    shelf: Option<Arc<DeviceShelf>>,
    is_owned: bool,
}

fn at(client: &ClientOptions, epoch: Option<u64>) -> ClientOptions {
    ClientOptions { epoch, ..client.clone() }
}

impl RemoteShelf {
    /// Connects to an export to read it, or, if its server has no epochs, to use it.
    ///
    /// # Errors
    /// The server cannot be reached, or refuses; what the export contains is damaged.
    pub fn connect(client: ClientOptions) -> anyhow::Result<RemoteShelf> {
        let client = ClientOptions {
            client: Some(*CLIENT),
            connect_timeout: REQUEST_TIME,
            request_timeout: REQUEST_TIME,
            reconnect_for: REQUEST_TIME,
            ..client
        };
        let has_epochs = match NbdDevice::connect(at(&client, Some(0))) {
            Ok(device) => device.is_fenced(),
            Err(NbdError::Superseded { .. }) => true,
            // A server without epochs knows no such name.
            Err(NbdError::Refused { .. }) => false,
            Err(error) => return Err(error.into()),
        };
        let device = NbdDevice::connect(at(&client, None))?;
        let name = client.uri.to_string();
        let below: Arc<dyn Device> = device.clone();
        let shelf = match (DeviceShelf::is_on(&below)?, has_epochs) {
            (false, _) => None,
            (true, true) => Some(DeviceShelf::open_read_only(&name, below)?),
            (true, false) => Some(DeviceShelf::open(&name, below)?),
        };
        let state = RemoteState { device: Some(device), shelf: shelf.map(Arc::new), is_owned: !has_epochs };
        Ok(RemoteShelf { client, has_epochs, state: Mutex::new(state) })
    }

    /// Whether the export can take a new copy of a volume of `bytes`; changes nothing.
    ///
    /// # Errors
    /// It is too small, or contains a shelf already.
    pub fn check_new(&self, bytes: u64) -> anyhow::Result<()> {
        let state = self.state();
        ensure!(
            state.shelf.is_none(),
            "{} contains something already: if it is not needed any more, make the export anew",
            self.client.uri
        );
        let needed = bytes_needed(bytes);
        let found = state.device.as_ref().map_or(0, |device| device.len());
        ensure!(found >= needed, "{} has {found} bytes, and a copy of this volume needs {needed}", self.client.uri);
        Ok(())
    }

    /// Makes an empty shelf of the export, for a new copy of a volume of `bytes`; the server's epoch is 0, or has been raised to `term`.
    ///
    /// # Errors
    /// The export is too small, contains a shelf already, or cannot be written.
    pub fn format(&self, bytes: u64, term: u64) -> anyhow::Result<()> {
        self.check_new(bytes)?;
        let mut state = self.state();
        let device = state.device.take();
        let device = match device.filter(|_| !self.has_epochs) {
            Some(device) => device,
            None => self.owned(term)?,
        };
        state.device = Some(Arc::clone(&device));
        let below: Arc<dyn Device> = device;
        let name = self.client.uri.to_string();
        DeviceShelf::format(&name, &below)?;
        state.shelf = Some(Arc::new(DeviceShelf::open(&name, below)?));
        state.is_owned = true;
        Ok(())
    }

    /// Whether nothing keeps an older owner from writing there.
    pub fn is_unfenced(&self) -> bool {
        !self.has_epochs
    }

    /// What it is, in words.
    pub fn describe(&self) -> String {
        let fenced = if self.has_epochs { "fenced by its epoch" } else { "unfenced" };
        format!("NBD export, {fenced}, emulated")
    }

    fn state(&self) -> MutexGuard<'_, RemoteState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn owned(&self, term: u64) -> anyhow::Result<Arc<NbdDevice>> {
        let device = NbdDevice::connect(at(&self.client, Some(term)))?;
        ensure!(device.is_fenced(), "{} did not confirm its epoch", self.client.uri);
        Ok(device)
    }

    fn shelf(&self) -> Result<Arc<DeviceShelf>, DeviceError> {
        self.state().shelf.clone().ok_or_else(|| DeviceError::NoShelf { name: self.client.uri.to_string() })
    }

    /// Opened to write only once it is owned: before, a volume reads its superblock.
    fn open_part(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        let shelf = self.shelf()?;
        if self.state().is_owned { shelf.open(name) } else { shelf.open_read_only(name) }
    }
}

impl Fence for RemoteShelf {
    fn raise(&self, term: u64) -> Result<(), DeviceError> {
        if !self.has_epochs {
            return Ok(());
        }
        let failed = |why: String| DeviceError::Io {
            operation: Operation::Open,
            name: self.client.uri.to_string(),
            offset: 0,
            source: std::io::Error::other(why),
        };
        let mut state = self.state();
        // The connection that only read ends here; the server would cut it.
        (state.device, state.shelf) = (None, None);
        let device = self.owned(term).map_err(|error| failed(format!("{error:#}")))?;
        let below: Arc<dyn Device> = device.clone();
        let shelf = DeviceShelf::open(&self.client.uri.to_string(), below)?;
        *state = RemoteState { device: Some(device), shelf: Some(Arc::new(shelf)), is_owned: true };
        Ok(())
    }
}

impl fmt::Debug for RemoteShelf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteShelf")
            .field("uri", &self.client.uri.to_string())
            .field("has_epochs", &self.has_epochs)
            .finish_non_exhaustive()
    }
}

impl Shelf for RemoteShelf {
    fn create(&self, name: &str, bytes: u64) -> Result<Arc<dyn Device>, DeviceError> {
        self.shelf()?.create(name, bytes)
    }

    fn create_unwritten(&self, name: &str, bytes: u64) -> Result<Arc<dyn Device>, DeviceError> {
        self.shelf()?.create_unwritten(name, bytes)
    }

    fn free_bytes(&self) -> Result<Option<u64>, DeviceError> {
        self.shelf()?.free_bytes()
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        self.open_part(name)
    }

    fn open_read_only(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        self.shelf()?.open_read_only(name)
    }

    fn list(&self) -> Result<Vec<String>, DeviceError> {
        self.shelf()?.list()
    }

    fn remove(&self, name: &str) -> Result<(), DeviceError> {
        self.shelf()?.remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DeviceError> {
        self.shelf()?.rename(from, to)
    }
}
