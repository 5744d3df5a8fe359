//! Requests about generations of the production: a running node answers; of a stopped one the store is read.

use std::path::Path;

use anyhow::Context;
use interop::generations::Generations;
use interop::running::{ProductionRequest, answer_reading};
use node::control;
use serde::de::DeserializeOwned;

/// Asks the node, or reads the store where none runs.
pub fn request<T: DeserializeOwned>(data: &Path, request: &ProductionRequest) -> anyhow::Result<T> {
    let answer = if control::is_running(data) {
        control::request(data, &request.line())?
    } else {
        let (store, _lock) = interop::history::open_stopped(data)?;
        // Who can read the files of a stopped node has the data.
        answer_reading(&Generations::of(store), (None, None), true, request)?
    };
    serde_json::from_value(answer).context("the answer cannot be read by this release")
}

/// The rules that decided about a message, as they stood in its generation; none where that is not known or not kept.
pub fn rule(data: &Path, generation: u32, service: &str, reason: &str) -> anyhow::Result<Option<String>> {
    let (service, reason) = (service.to_owned(), reason.to_owned());
    request(data, &ProductionRequest::Rule { generation, service, reason })
}
