//! The exports of a server by name, and the memory that their sessions share.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use node::identity::RightsView;
use parking_lot::{Mutex, RwLock};

use super::export::{Export, ExportStatus, Served};
use super::pool::Budget;
use crate::error::NbdError;

/// See the module's text.
#[derive(Debug)]
pub(super) struct Registry {
    exports: RwLock<BTreeMap<String, Arc<Served>>>,
    /// Exports that were taken out and may have requests in the device, by name.
    leaving: Mutex<BTreeMap<String, Vec<Weak<Served>>>>,
    pub(super) budget: Arc<Budget>,
}

impl Registry {
    pub(super) fn new(memory: u64, patience: Duration) -> Registry {
        let budget = Arc::new(Budget::new(memory, patience));
        Registry { exports: RwLock::default(), leaving: Mutex::default(), budget }
    }

    pub(super) fn add(&self, export: Export) -> Result<(), NbdError> {
        let served = Arc::new(Served::new(export)?);
        let mut exports = self.exports.write();
        let name = served.facts.name.clone();
        if exports.contains_key(&name) {
            return Err(NbdError::AlreadyExported { name });
        }
        // A request of an owner before must not come after what the next one writes.
        let sessions = self.leaving(&name).iter().map(|served| served.status().sessions).sum();
        if sessions > 0 {
            return Err(NbdError::StillBusy { name, sessions });
        }
        exports.insert(name, served);
        Ok(())
    }

    /// The export for clients that name none: the only one that they may read.
    pub(super) fn only(&self, may_read: impl Fn(&str) -> bool) -> Option<Arc<Served>> {
        let exports = self.exports.read();
        let mut readable = exports.values().filter(|served| may_read(&served.facts.name));
        readable.next().filter(|_| readable.next().is_none()).cloned()
    }

    /// Puts changed rights in force for all open sessions.
    pub(super) fn revise(&self, view: &RightsView) {
        let leaving: Vec<_> = self.leaving.lock().values().flatten().filter_map(Weak::upgrade).collect();
        self.all().iter().chain(&leaving).for_each(|served| served.revise(view));
    }

    /// An export by its very name.
    pub(super) fn get(&self, name: &str) -> Option<Arc<Served>> {
        self.exports.read().get(name).cloned()
    }

    /// Takes an export out: nobody finds it any more. Returns it with those of its name that were taken out before and have sessions left.
    pub(super) fn take(&self, name: &str) -> Vec<Arc<Served>> {
        let mut exports = self.exports.write();
        let taken = exports.remove(name);
        if let Some(served) = &taken {
            self.leaving.lock().entry(name.to_owned()).or_default().push(Arc::downgrade(served));
        }
        // Sessions keep an export; one that is being taken out is kept by who waits for it.
        self.leaving(name)
    }

    /// Those of a name that were taken out and are in use.
    fn leaving(&self, name: &str) -> Vec<Arc<Served>> {
        self.leaving.lock().get(name).into_iter().flatten().filter_map(Weak::upgrade).collect()
    }

    /// Forgets those of a name that have no session left.
    pub(super) fn forget_left(&self, name: &str) {
        let mut leaving = self.leaving.lock();
        let Some(of_name) = leaving.get_mut(name) else { return };
        of_name.retain(|served| served.upgrade().is_some_and(|served| served.status().sessions > 0));
        if of_name.is_empty() {
            leaving.remove(name);
        }
    }

    pub(super) fn all(&self) -> Vec<Arc<Served>> {
        self.exports.read().values().cloned().collect()
    }

    /// The names of all exports, and of those that were taken out and may have sessions left.
    pub(super) fn names(&self) -> BTreeSet<String> {
        let exports = self.exports.read();
        exports.keys().cloned().chain(self.leaving.lock().keys().cloned()).collect()
    }

    pub(super) fn status(&self) -> Vec<ExportStatus> {
        self.all().iter().map(|served| served.status()).collect()
    }
}
