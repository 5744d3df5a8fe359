//! The exports of a server by name, and the memory that their sessions share.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::RwLock;

use super::export::{Export, ExportStatus, Served};
use super::pool::Budget;
use crate::error::NbdError;

/// See the module's text.
#[derive(Debug)]
pub(super) struct Registry {
    exports: RwLock<BTreeMap<String, Arc<Served>>>,
    pub(super) budget: Arc<Budget>,
}

impl Registry {
    pub(super) fn new(memory: u64) -> Registry {
        Registry { exports: RwLock::default(), budget: Arc::new(Budget::new(memory)) }
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
