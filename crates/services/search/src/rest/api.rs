//! [`Api`]: what every request has: the indices of a node, and what clients hold open.

use std::sync::Arc;
use std::time::Instant;

use super::contexts::Contexts;
use super::message::{RestRequest, RestResponse};
use super::tasks::Tasks;
use crate::error::SearchError;
use crate::indices::{Indices, ResolveOptions, Resolved};

/// What a request ends in.
pub(super) type Answer = Result<RestResponse, SearchError>;

/// The API over the indices of a node.
#[derive(Debug)]
pub struct Api {
    pub(super) indices: Arc<Indices>,
    pub(super) started: Instant,
    /// The name of the node, shown to clients.
    pub(super) node: String,
    pub(super) contexts: Contexts,
    pub(super) tasks: Arc<Tasks>,
}

impl Api {
    /// The API of a node with this name.
    pub fn new(indices: Arc<Indices>, node: impl Into<String>) -> Api {
        Api {
            indices,
            started: Instant::now(),
            node: node.into(),
            contexts: Contexts::default(),
            tasks: Arc::default(),
        }
    }

    /// Ends the requests that go on without their clients: each ends after the batch that it is at. When it returns, none runs.
    pub fn end(&self) {
        self.tasks.close();
    }

    /// Names the node to clients.
    pub(super) fn node_id(&self) -> &str {
        self.indices.uuid()
    }
}

/// The options of requests that name indices whether or not they are closed.
pub(super) fn any_state() -> ResolveOptions {
    ResolveOptions { forbid_closed: false, ..ResolveOptions::default() }
}

/// The indices of a request.
pub(super) fn resolved(
    api: &Api,
    request: &RestRequest,
    names: &str,
    options: ResolveOptions,
) -> Result<Vec<Resolved>, SearchError> {
    api.indices.resolve(names, options.of(&request.parameters)?)
}
