//! Replaces `search` in a program that is built without that feature.
//!
//! `[search]` in terrace.toml is refused with the way to build it. Indices that another program has made in the same store stay as
//! they are, and are not read.

use std::collections::BTreeSet;
use std::path::Path;

use interop::running::RunningProduction;
use node::rewriting::OtherFiles;
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use store::{SpaceLimit, Store};

use crate::assemble::SearchShelves;

pub use AbsentSearch as RunningSearch;
pub use AbsentSearch as SearchSettings;

/// None: this program does not know index files. Errors: the store has some.
pub fn data_keys_in_use(store: &Store) -> anyhow::Result<BTreeSet<u32>> {
    let trees = store.snapshot().trees()?;
    anyhow::ensure!(
        !trees.iter().any(|(name, _)| name.starts_with("search.")),
        "there are search indices here, and this program was built without search: use one that has it"
    );
    Ok(BTreeSet::new())
}

/// `[search]`, which is always refused, and the service, which never runs.
#[derive(Debug)]
pub enum AbsentSearch {}

impl<'de> Deserialize<'de> for AbsentSearch {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<AbsentSearch, D::Error> {
        Err(D::Error::custom(
            "this program was built without search: build it with `cargo build --release`, without --no-default-features",
        ))
    }
}

impl AbsentSearch {
    /// Never called.
    pub fn options(&self) -> anyhow::Result<()> {
        match *self {}
    }

    /// Never called.
    pub fn reserve(&self) -> SpaceLimit {
        match *self {}
    }

    /// Never called.
    pub fn indices(&self, _: &Path) -> anyhow::Result<()> {
        match *self {}
    }

    /// Never called.
    pub fn has_folder(&self) -> bool {
        match *self {}
    }

    /// Never called.
    pub fn start(&self, _: &RunningProduction, _: SearchShelves) -> anyhow::Result<AbsentSearch> {
        match *self {}
    }

    /// Never called.
    pub fn lent(&self) -> Option<std::sync::Arc<dyn web_console::SearchSource>> {
        match *self {}
    }

    /// Never called.
    pub fn source(&self) -> Box<node_metrics::Source> {
        match *self {}
    }

    /// Never called.
    pub fn rewrites(&self) -> Option<Box<OtherFiles>> {
        match *self {}
    }

    /// Never called.
    pub async fn stop(self) {
        match self {}
    }
}
