//! [`SessionSettings`]: the settings of a session, and how the end of its transaction changes them.
//!
//! ```text
//!                 now          after COMMIT    after ROLLBACK
//!   SET           the value    the value       as when the transaction began
//!   SET LOCAL     the value    as before       as when the transaction began
//!   ROLLBACK TO   both as they were at the savepoint
//! ```

use std::sync::Arc;

use parking_lot::Mutex;

use super::settings::Settings;
use crate::SqlError;

/// The settings of one session.
#[derive(Debug)]
pub(crate) struct SessionSettings {
    now: Settings,
    /// The settings after a transaction that BEGIN began, or that several statements share; `None` if none is open.
    pending: Option<Pending>,
    /// Those in force when the running statement began, for functions in its plan.
    shown: Arc<Mutex<Settings>>,
}

/// The settings after the open transaction, by how it ends.
#[derive(Debug)]
struct Pending {
    rolled_back: Settings,
    committed: Settings,
    savepoints: Vec<SavedSettings>,
}

/// The settings at a savepoint: those in force then, and those after a commit.
#[derive(Debug)]
struct SavedSettings {
    name: String,
    now: Settings,
    committed: Settings,
}

impl Pending {
    fn last(&self, name: &str) -> Option<usize> {
        self.savepoints.iter().rposition(|saved| saved.name == name)
    }
}

impl SessionSettings {
    /// The settings at the begin of a session.
    pub(crate) fn new(settings: Settings) -> SessionSettings {
        SessionSettings { shown: Arc::new(Mutex::new(settings.clone())), now: settings, pending: None }
    }

    /// The settings in force.
    pub(crate) fn now(&self) -> &Settings {
        &self.now
    }

    /// The same, for settings that a client sends when it connects.
    pub(crate) fn now_mut(&mut self) -> &mut Settings {
        &mut self.now
    }

    /// Those in force when the running statement began.
    pub(crate) fn shown(&self) -> Arc<Mutex<Settings>> {
        self.shown.clone()
    }

    /// A statement begins.
    pub(crate) fn show(&self) {
        self.shown.lock().clone_from(&self.now);
    }

    /// Begins a transaction: a rollback restores the present settings.
    pub(crate) fn begin(&mut self) {
        if self.pending.is_none() {
            let (rolled_back, committed) = (self.now.clone(), self.now.clone());
            self.pending = Some(Pending { rolled_back, committed, savepoints: Vec::new() });
        }
    }

    /// Ends the transaction: the settings become those that this end leaves.
    pub(crate) fn end(&mut self, committed: bool) {
        if let Some(pending) = self.pending.take() {
            self.now = if committed { pending.committed } else { pending.rolled_back };
        }
    }

    /// SAVEPOINT.
    pub(crate) fn savepoint(&mut self, name: String) {
        if let Some(pending) = &mut self.pending {
            let (now, committed) = (self.now.clone(), pending.committed.clone());
            pending.savepoints.push(SavedSettings { name, now, committed });
        }
    }

    /// ROLLBACK TO SAVEPOINT: the savepoint stays, later ones are removed.
    pub(crate) fn rollback_to(&mut self, name: &str) {
        if let Some(pending) = &mut self.pending
            && let Some(at) = pending.last(name)
        {
            pending.savepoints.truncate(at + 1);
            let saved = &pending.savepoints[at];
            (self.now, pending.committed) = (saved.now.clone(), saved.committed.clone());
        }
    }

    /// RELEASE SAVEPOINT: it and later ones are removed, the settings stay.
    pub(crate) fn release(&mut self, name: &str) {
        if let Some(pending) = &mut self.pending
            && let Some(at) = pending.last(name)
        {
            pending.savepoints.truncate(at);
        }
    }

    /// Changes settings: permanently (a rollback undoes it), or until the transaction ends.
    pub(crate) fn change(
        &mut self,
        local: bool,
        change: impl Fn(&mut Settings) -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        // Outside a transaction PostgreSQL warns that nothing changes.
        let mut changed = self.now.clone();
        change(&mut changed)?;
        match (&mut self.pending, local) {
            (None, true) => return Ok(()),
            (Some(pending), false) => change(&mut pending.committed)?,
            _ => {}
        }
        self.now = changed;
        Ok(())
    }
}
