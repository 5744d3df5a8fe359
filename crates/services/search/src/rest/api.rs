//! [`Api`]: what every request has: the indices of a node, and what clients hold open.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Instant;

use node::Audit;
use node::identity::Guard;

use super::contexts::Contexts;
use super::message::{RestRequest, RestResponse};
use super::tasks::Tasks;
use crate::error::SearchError;
use crate::indices::{Indices, ResolveOptions, Resolved};
use crate::rights::Asker;

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
    pub(super) guard: Arc<Guard>,
    /// Where reads of messages are recorded; none for embedders.
    pub(super) audit: Option<Arc<Audit>>,
}

/// A request whose route may be asked for, with who asks.
pub(super) struct AskedRequest<'r> {
    pub(super) request: &'r RestRequest,
    pub(super) asker: Asker,
}

impl Deref for AskedRequest<'_> {
    type Target = RestRequest;

    fn deref(&self) -> &RestRequest {
        self.request
    }
}

impl Api {
    /// The API of a node with this name, whose roles and rights `guard` knows.
    pub fn new(indices: Arc<Indices>, guard: Arc<Guard>, node: impl Into<String>) -> Api {
        Api {
            indices,
            started: Instant::now(),
            node: node.into(),
            contexts: Contexts::default(),
            tasks: Arc::default(),
            guard,
            audit: None,
        }
    }

    /// The same, recording in the audit of its node.
    #[must_use]
    pub fn with_audit(self, audit: Arc<Audit>) -> Api {
        Api { audit: Some(audit), ..self }
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
    request: &AskedRequest<'_>,
    names: &str,
    options: ResolveOptions,
) -> Result<Vec<Resolved>, SearchError> {
    api.indices.resolve(names, options.of(&request.parameters)?, &request.asker)
}
