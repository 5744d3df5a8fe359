//! Puts a changed production in force while messages are processed.
//!
//! A reload compares by name. A service that keeps its address keeps its socket and connections and uses the new rules
//! from its next message on; one whose address or kind changed listens anew. An operation that stays keeps its queue
//! and takes the new settings with its next message (its key and lanes are fixed until a restart, since moving
//! messages between lanes would break their order); one that went away keeps sending what it has, with its old
//! settings, and then ends.

use std::sync::Arc;

use super::{RunningProduction, load, lock};
use crate::error::InteropError;

/// Reads again what another service of the process has of its own, and returns how to put it in force, which cannot fail.
pub type Renew = dyn Fn() -> Result<Renewed, InteropError> + Send + Sync;

/// Puts the loaded production in force; returns the changes, for display.
pub type Renewed = Box<dyn FnOnce() -> Vec<String> + Send>;

impl RunningProduction {
    /// From now on a reload calls `renew` too: before anything is changed, and whole or not at all.
    pub fn on_reload(&self, renew: Box<Renew>) {
        lock(&self.renewals).push(renew);
    }

    /// Reads the production folder again and puts it in force; returns the changes, for display.
    ///
    /// # Errors
    /// The production is wrong or an address is taken: the old one stays in force, whole.
    pub async fn reload(&self) -> Result<Vec<String>, InteropError> {
        let _one = self.reloading.lock().await;
        let mut production = load(&self.options)?;
        production.keep_figures(&self.engine.plan().production);
        let production = Arc::new(production);
        let mut changes = Vec::new();
        // Everything that can fail comes first.
        let bound = self.services.bind_new(&production).await?;
        let renewed = lock(&self.renewals).iter().map(|renew| renew()).collect::<Result<Vec<_>, _>>()?;
        let (plan, fresh) = self.operations.plan_for(&production, &mut changes);
        // Before a newer message can be put in front of them.
        self.operations.adopt_homeless(&plan)?;
        self.engine.replace_plan(plan);
        self.operations.start_lanes(&fresh, &self.surroundings());
        self.services.swap(&self.engine, &production, bound, &mut changes)?;
        changes.extend(renewed.into_iter().flat_map(|renewed| renewed()));
        self.write_ready();
        tracing::info!(changes = changes.len(), "production reloaded");
        Ok(changes)
    }
}
