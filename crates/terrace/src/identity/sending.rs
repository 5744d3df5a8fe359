//! Requests about roles to a running node.

use std::path::Path;

use anyhow::Context;
use node::control;
use node::identity::{IdentityRequest, REQUEST};
use serde::de::DeserializeOwned;

/// Sends a request to the node on a data directory.
pub(super) fn send<T: DeserializeOwned>(data: &Path, request: &IdentityRequest) -> anyhow::Result<T> {
    let line = format!("{REQUEST} {}", serde_json::to_string(request)?);
    serde_json::from_value(control::request(data, &line)?).context("the node's answer cannot be read by this release")
}
