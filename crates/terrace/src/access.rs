//! `[[access]]` of terrace.toml, which a reload of the node reads again.
//!
//! Invariant: rules that are in force end by settings that say so, and not because the file is gone or cannot be read.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use interop::InteropError;
use interop::running::{Renewed, RunningProduction};
use node::identity::{AccessRules, Guard};

use crate::config::{Config, FILE};

/// Has a reload of the node read the rules again, from the file that was named at its start.
pub fn renew_with(node: &RunningProduction, file: Option<&Path>) {
    let (guard, file) = (Arc::clone(node.guard()), file.map(Path::to_owned));
    node.on_reload(Box::new(move || -> Result<Renewed, InteropError> {
        let rules = read(&guard, file.as_ref()).map_err(|error| InteropError::Refused(format!("access: {error:#}")))?;
        let guard = Arc::clone(&guard);
        Ok(Box::new(move || {
            if *guard.access() == rules {
                return Vec::new();
            }
            let text = format!("access: {} rules are in force", rules.len());
            guard.set_access(rules);
            vec![text]
        }))
    }));
}

fn read(guard: &Guard, file: Option<&PathBuf>) -> anyhow::Result<AccessRules> {
    anyhow::ensure!(
        file.is_some() || Path::new(FILE).exists() || guard.access().is_empty(),
        "{FILE} is gone, and the rules in force were read from it"
    );
    Config::read(file.map(PathBuf::as_path))?.access()
}
