//! Replaces `sql` in a program that is built without that feature: an interface engine alone, built in a few minutes.
//!
//! `[sql]` in terrace.toml and the commands of SQL are refused with the way to build them. Messages, backups and checks
//! are the same; tables that another program has made in the same store stay as they are, and are not read.

use std::path::Path;
use std::process::ExitCode;

use interop::running::RunningProduction;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use store::{Loss, SpaceLimits, Store, StoreError};

/// Why, and what to do.
const WITHOUT: &str =
    "this program was built without SQL: build it with `cargo build --release`, without --no-default-features";

pub use AbsentSql as Running;
pub use AbsentSql as Settings;

/// `[sql]`, which is always refused, and the service, which never runs.
#[derive(Debug)]
pub enum AbsentSql {}

impl<'de> Deserialize<'de> for AbsentSql {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<AbsentSql, D::Error> {
        Err(D::Error::custom(WITHOUT))
    }
}

impl AbsentSql {
    /// Never called.
    pub fn bounds(&self) -> SpaceLimits {
        match *self {}
    }

    /// Never called.
    pub fn transaction_bytes(&self) -> usize {
        match *self {}
    }

    /// Never called.
    pub fn options(&self, _: &Path) -> anyhow::Result<()> {
        match *self {}
    }

    /// Never called.
    pub async fn import(&self, _: &RunningProduction) -> anyhow::Result<()> {
        match *self {}
    }

    /// Never called.
    pub fn start(&self, _: &RunningProduction) -> anyhow::Result<AbsentSql> {
        match *self {}
    }

    /// Never called.
    pub fn lent(&self) -> std::sync::Arc<dyn web_console::SqlSource> {
        match *self {}
    }

    /// Never called.
    pub fn source(&self) -> Box<node_metrics::Source> {
        match *self {}
    }

    /// Never called.
    pub async fn stop(self) {
        match self {}
    }
}

/// The result of one table.
#[derive(Debug, Serialize)]
pub struct TableReport {
    /// Its name, with its schema.
    pub name: String,
    /// Rows that were read.
    pub rows: u64,
    /// Why not all of them could be.
    pub problem: Option<String>,
}

/// Reads no table.
pub fn read_tables(_: Store) -> anyhow::Result<Option<Vec<TableReport>>> {
    Ok(None)
}

/// Gives up lost rows of tables: that is refused.
pub fn give_up(_: &Store, losses: &[Loss]) -> Result<Vec<String>, StoreError> {
    let of_tables = |loss: &&Loss| ["sql.", "columns."].iter().any(|trees| loss.name.starts_with(trees));
    match losses.iter().find(of_tables) {
        None => Ok(Vec::new()),
        Some(loss) => Err(StoreError::Refused(format!("{loss}: rows of SQL tables are lost, and {WITHOUT}").into())),
    }
}

/// `terrace sql verifier`.
pub fn verifier() -> anyhow::Result<ExitCode> {
    anyhow::bail!(WITHOUT)
}
