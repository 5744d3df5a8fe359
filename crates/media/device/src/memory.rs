//! Devices in DRAM: for tests, for the journal tier `memory`, and as the simplest implementation of the contract.
//!
//! ```text
//!   MemoryShelf::new        in memory of any node
//!   MemoryShelf::on_node    on one node of the machine, and no other: see node.rs
//! ```
//!
//! Nothing fails and nothing survives the process ([`Durability::None`]); a flush does nothing. The bytes are in one
//! allocation per device behind a reader-writer lock. So overlapping writes are whole, which is more than the contract
//! guarantees: use the crash shelf to test whether an engine relies on it.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use crate::contract::{assert_name, assert_range, assert_size};
use crate::file::failed;
use crate::{Device, DeviceError, Durability, Operation, Shelf};

mod node;

pub(crate) use self::node::NodeMemory;
pub use self::node::{Node, nodes};

/// Named devices in DRAM. Clones of its `Arc` share the devices.
#[derive(Default)]
pub struct MemoryShelf {
    devices: Mutex<BTreeMap<String, Arc<Bytes>>>,
    /// `None`: any node.
    node: Option<u32>,
}

type Bytes = RwLock<Place>;

/// The memory of a device.
enum Place {
    Anywhere(Vec<u8>),
    Node(NodeMemory),
}

impl Deref for Place {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Place::Anywhere(bytes) => bytes,
            Place::Node(bytes) => bytes,
        }
    }
}

impl DerefMut for Place {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Place::Anywhere(bytes) => bytes,
            Place::Node(bytes) => bytes,
        }
    }
}

impl MemoryShelf {
    /// An empty shelf.
    pub fn new() -> MemoryShelf {
        MemoryShelf::default()
    }

    /// An empty shelf whose devices are in the memory of one node of the machine, whichever CPU uses them; [`nodes`]
    /// lists them. [`Shelf::create`] returns [`DeviceError::Full`] if the node has not enough free memory.
    ///
    /// Errors: [`DeviceError::Io`]: there is no such node, or the kernel does not allow binding memory.
    pub fn on_node(node: u32) -> Result<MemoryShelf, DeviceError> {
        // Binding is tried once, so that a kernel that forbids it is detected here.
        NodeMemory::zeroed(node, 4096).map_err(|source| {
            let name = format!("memory of node {node}");
            DeviceError::Io { operation: Operation::Open, name, offset: 0, source }
        })?;
        Ok(MemoryShelf { node: Some(node), ..MemoryShelf::default() })
    }

    fn allocate(&self, name: &str, bytes: u64) -> Result<Place, DeviceError> {
        let full = || DeviceError::Full { name: name.into(), bytes };
        let wanted = usize::try_from(bytes).map_err(|_| full())?;
        let Some(node) = self.node else {
            // Tried first, since the macro aborts the process if the memory is not available.
            Vec::<u8>::new().try_reserve_exact(wanted).map_err(|_| full())?;
            return Ok(Place::Anywhere(vec![0; wanted]));
        };
        match NodeMemory::zeroed(node, wanted) {
            Ok(memory) => Ok(Place::Node(memory)),
            Err(error) if error.kind() == io::ErrorKind::OutOfMemory => Err(full()),
            Err(source) => Err(failed(Operation::Create, name, 0, source)),
        }
    }

    fn devices(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Bytes>>> {
        // A panic under this lock is an assertion of a caller's error, before anything changed.
        self.devices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, name: &str, writable: bool) -> Result<Arc<dyn Device>, DeviceError> {
        assert_name(name);
        let bytes = self.devices().get(name).cloned().ok_or_else(|| DeviceError::NotFound { name: name.into() })?;
        Ok(Arc::new(MemoryDevice { name: name.into(), bytes, writable }))
    }
}

impl fmt::Debug for MemoryShelf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MemoryShelf").field(&self.devices().keys()).finish()
    }
}

impl Shelf for MemoryShelf {
    fn create(&self, name: &str, bytes: u64) -> Result<Arc<dyn Device>, DeviceError> {
        assert_name(name);
        assert_size(bytes);
        let mut devices = self.devices();
        if devices.contains_key(name) {
            return Err(DeviceError::AlreadyExists { name: name.into() });
        }
        devices.insert(name.into(), Arc::new(RwLock::new(self.allocate(name, bytes)?)));
        drop(devices);
        self.find(name, true)
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        self.find(name, true)
    }

    fn open_read_only(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        self.find(name, false)
    }

    fn list(&self) -> Result<Vec<String>, DeviceError> {
        Ok(self.devices().keys().cloned().collect())
    }

    fn remove(&self, name: &str) -> Result<(), DeviceError> {
        assert_name(name);
        self.devices().remove(name).map(drop).ok_or_else(|| DeviceError::NotFound { name: name.into() })
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DeviceError> {
        assert_name(from);
        assert_name(to);
        let mut devices = self.devices();
        if devices.contains_key(to) {
            return Err(DeviceError::AlreadyExists { name: to.into() });
        }
        let device = devices.remove(from).ok_or_else(|| DeviceError::NotFound { name: from.into() })?;
        devices.insert(to.into(), device);
        Ok(())
    }
}

struct MemoryDevice {
    name: String,
    bytes: Arc<Bytes>,
    writable: bool,
}

impl MemoryDevice {
    fn change(&self, operation: Operation, change: impl FnOnce(&mut [u8])) -> Result<(), DeviceError> {
        if !self.writable {
            return Err(DeviceError::ReadOnly { operation, name: self.name.clone() });
        }
        change(&mut self.bytes.write().unwrap_or_else(PoisonError::into_inner));
        Ok(())
    }
}

impl fmt::Debug for MemoryDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryDevice").field("name", &self.name).field("writable", &self.writable).finish()
    }
}

impl Device for MemoryDevice {
    fn len(&self) -> u64 {
        self.bytes.read().unwrap_or_else(PoisonError::into_inner).len() as u64
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        assert_range(self.len(), offset, buffer.len() as u64);
        let start = offset as usize;
        let bytes = self.bytes.read().unwrap_or_else(PoisonError::into_inner);
        buffer.copy_from_slice(&bytes[start..start + buffer.len()]);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        assert_range(self.len(), offset, data.len() as u64);
        let start = offset as usize;
        self.change(Operation::Write, |bytes| bytes[start..start + data.len()].copy_from_slice(data))
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.change(Operation::Flush, |_| ())
    }

    fn discard(&self, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        assert_range(self.len(), offset, bytes);
        let range = offset as usize..(offset + bytes) as usize;
        self.change(Operation::Discard, |all| all[range].fill(0))
    }

    fn durability(&self) -> Durability {
        Durability::None
    }
}
