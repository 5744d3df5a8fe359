//! Replaces `search` in a program that is built without that feature. `[search]` in terrace.toml is refused with the way to build
//! it; indices that another program has made in the same store stay as they are, and are not read.

use std::path::Path;

use interop::running::RunningProduction;
use serde::de::Error;
use serde::{Deserialize, Deserializer};

use crate::sql;

/// Why, and what to do.
const WITHOUT: &str =
    "this program was built without search: build it with `cargo build --release`, without --no-default-features";

/// `[search]`, which is always refused.
#[derive(Debug)]
pub enum Settings {}

impl<'de> Deserialize<'de> for Settings {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Settings, D::Error> {
        Err(D::Error::custom(WITHOUT))
    }
}

impl Settings {
    /// Never called.
    pub fn options(&self, _: &Path, _: Option<&sql::Settings>) -> anyhow::Result<Running> {
        match *self {}
    }
}

/// The service, which never runs.
#[derive(Debug)]
pub enum Running {}

impl Running {
    /// Never called.
    pub fn start(self, _: &RunningProduction) -> anyhow::Result<Running> {
        match self {}
    }

    /// Never called.
    pub async fn stop(self) {
        match self {}
    }
}
