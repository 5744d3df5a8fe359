//! Puts a changed production in force while messages are processed.
//!
//! A reload compares by name. A service that keeps its address keeps its socket and connections and uses the new rules
//! from its next message on; one whose address or kind changed listens anew. An operation that stays keeps its queue
//! and takes the new settings with its next message (its key and lanes are fixed until a restart, since moving
//! messages between lanes would break their order); one that went away keeps sending what it has, with its old
//! settings, and then ends.

use std::sync::Arc;

use store::Store;

use super::generations::generations_of;
use super::{Options, Origin, RunningProduction, load, lock};
use crate::error::InteropError;
use crate::generations::{Generation, GenerationContent, Generations, LoadCause, LoadKind};
use crate::operation;
use crate::production::Production;

/// Files of a production that changed, each with a word for what happened to it.
type FileChanges = Vec<(String, &'static str)>;

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
        self.reload_by("the node's own program".to_owned(), None).await
    }

    /// The same for who requests it; only a folder with the files of `shown`, a hash that a difference told, where there is one.
    pub(super) async fn reload_by(&self, by: String, shown: Option<&str>) -> Result<Vec<String>, InteropError> {
        let _one = self.reloading.lock().await;
        let production = load(&self.options)?;
        if shown.is_some_and(|shown| shown != GenerationContent::of(&production).hash()) {
            let text = "the production folder was changed since it was looked at, and is not loaded: look at what differs again";
            return Err(InteropError::Refused(text.to_owned()));
        }
        self.put_in_force(production, LoadCause { by, kind: LoadKind::Reload }).await
    }

    /// Puts a production in force that was just loaded, while no other is. Its generation is durable before.
    pub(super) async fn put_in_force(
        &self,
        mut production: Production,
        cause: LoadCause,
    ) -> Result<Vec<String>, InteropError> {
        production.keep_figures(&self.engine.plan().production);
        let (production, mut changes) = (Arc::new(production), Vec::new());
        // Everything that can fail comes first.
        let bound = self.services.bind_new(&production).await?;
        let renewed = lock(&self.renewals).iter().map(|renew| renew()).collect::<Result<Vec<_>, _>>()?;
        let (operations, of) = (Arc::clone(&self.operations), Arc::clone(&production));
        let homeless = tokio::task::spawn_blocking(move || operations.read_homeless(&of)).await;
        let homeless = homeless.unwrap_or(Err(InteropError::Stopping))?;
        let kept = self.keep(&production, cause).await?;
        operation::make_folders(&production).await;
        let (plan, fresh) = self.operations.plan_for(&production, &mut changes);
        // Before a newer message can be put in front of them.
        self.operations.adopt_homeless(homeless, &plan);
        self.engine.replace_plan(plan);
        self.operations.start_lanes(&fresh, &self.surroundings());
        self.services.swap(&self.engine, bound, &mut changes)?;
        changes.extend(renewed.into_iter().flat_map(|renewed| renewed()));
        changes.extend(kept);
        self.write_ready();
        tracing::info!(generation = production.generation(), changes = changes.len(), "production reloaded");
        Ok(changes)
    }

    /// Keeps a production as a generation, if it is another one than the last; returns what changed in its files, for display, as far as
    /// the parts that run do not say it themselves.
    async fn keep(&self, production: &Arc<Production>, cause: LoadCause) -> Result<Vec<String>, InteropError> {
        if matches!(self.options.origin, Origin::StoreOnly(_)) {
            return Ok(Vec::new());
        }
        let (generations, content) = (generations_of(self), GenerationContent::of(production));
        let before = self.engine.plan().production.generation();
        let now_us = self.engine.clock.now_us();
        let work = move || -> Result<(u32, FileChanges), InteropError> {
            let last = generations.get(before)?;
            let changes = last.map(|last| content.changes_since(&last)).unwrap_or_default();
            Ok((generations.keep(&content, &cause, now_us)?.number, changes))
        };
        let (number, changes) = tokio::task::spawn_blocking(work).await.unwrap_or(Err(InteropError::Stopping))?;
        production.set_generation(number);
        let says_itself = |path: &str, what: &str| {
            path.starts_with("operations/") || (path.starts_with("services/") && what != "changed")
        };
        let shown = changes.into_iter().filter(|(path, what)| !says_itself(path, what));
        let mut shown: Vec<String> = shown.map(|(path, what)| format!("{path} {what}")).collect();
        if number != before {
            shown.push(format!("this is generation {number}; `terrace production diff {before} {number}` shows it"));
        }
        Ok(shown)
    }
}

/// Keeps the production that a node starts with. A full medium keeps no node from starting: then it has no number, and messages do not
/// say which generation decided.
pub(super) fn keep_at_start(store: &Store, production: &Production, options: &Options) {
    if matches!(options.origin, Origin::StoreOnly(_)) {
        return;
    }
    let (generations, content) = (Generations::of(store.clone()), GenerationContent::of(production));
    let last = generations.newest().ok().flatten();
    match generations.keep(&content, &LoadCause::start(), options.clock.now_us()) {
        Ok(kept) => {
            production.set_generation(kept.number);
            if let Some(Generation { number, how: LoadKind::Back(to), .. }) =
                last.filter(|last| last.number != kept.number)
            {
                tracing::warn!(
                    "the production folder is loaded: generation {number}, which went back to {to}, is not in force any more"
                );
            }
        }
        Err(error) => tracing::error!(%error, "the production is in force, and is not kept as a generation"),
    }
}
