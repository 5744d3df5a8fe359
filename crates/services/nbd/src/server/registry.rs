//! The exports of a server by name, and the memory that their sessions share.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock};

use super::export::{Export, ExportStatus, Served};
use super::pool::Budget;
use crate::error::NbdError;

/// See the module's text.
#[derive(Debug)]
pub(super) struct Registry {
    exports: RwLock<BTreeMap<String, Arc<Served>>>,
    /// Exports that were taken out while requests of theirs were in the device, by name.
    leaving: Mutex<BTreeMap<String, Vec<Weak<Served>>>>,
    pub(super) budget: Arc<Budget>,
}

impl Registry {
    pub(super) fn new(memory: u64) -> Registry {
        Registry { exports: RwLock::default(), leaving: Mutex::default(), budget: Arc::new(Budget::new(memory)) }
    }

    pub(super) fn add(&self, export: Export) -> Result<(), NbdError> {
        let served = Arc::new(Served::new(export)?);
        let mut exports = self.exports.write();
        let name = served.facts.name.clone();
        if exports.contains_key(&name) {
            return Err(NbdError::AlreadyExported { name });
        }
        exports.insert(name, served);
        Ok(())
    }

    /// An export by its name; the only one there is also without a name, as clients that were given none expect.
    pub(super) fn find(&self, name: &str) -> Option<Arc<Served>> {
        let exports = self.exports.read();
        let only = || exports.values().next().filter(|_| name.is_empty() && exports.len() == 1);
        exports.get(name).or_else(only).cloned()
    }

    /// An export by its very name.
    pub(super) fn get(&self, name: &str) -> Option<Arc<Served>> {
        self.exports.read().get(name).cloned()
    }

    pub(super) fn take(&self, name: &str) -> Option<Arc<Served>> {
        self.exports.write().remove(name)
    }

    /// Remembers one that was taken out, as long as sessions of it are left.
    pub(super) fn leaves(&self, served: &Arc<Served>) {
        self.leaving.lock().entry(served.facts.name.clone()).or_default().push(Arc::downgrade(served));
    }

    /// Those of a name that were taken out and may have sessions left; they are not remembered any more.
    pub(super) fn take_leaving(&self, name: &str) -> Vec<Arc<Served>> {
        let leaving = self.leaving.lock().remove(name).unwrap_or_default();
        leaving.iter().filter_map(Weak::upgrade).collect()
    }

    pub(super) fn all(&self) -> Vec<Arc<Served>> {
        self.exports.read().values().cloned().collect()
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.exports.read().keys().cloned().collect()
    }

    pub(super) fn status(&self) -> Vec<ExportStatus> {
        self.all().iter().map(|served| served.status()).collect()
    }
}
