//! Requests of other services of the node at the control socket: each service names the word that its requests begin with.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::control_request::{ControlRequest, ReadRequest, first_word};
use super::{RunningProduction, lock};
use crate::error::InteropError;

/// The requests of another service that begin with a word.
pub(super) struct ServiceVerb {
    word: &'static str,
    /// Whether it has nothing to do with stored messages.
    at_once: bool,
    read: Arc<ReadRequest>,
}

impl RunningProduction {
    /// From now on requests that begin with `word` are those that `read` reads. One `at_once` has nothing to do with stored
    /// messages, and is answered also while the store cannot be read.
    pub fn serve_requests(&self, word: &'static str, at_once: bool, read: Box<ReadRequest>) {
        lock(&self.service_verbs).push(ServiceVerb { word, at_once, read: Arc::from(read) });
    }

    /// Every service that was to follow has started.
    pub fn services_started(&self) {
        self.services_follow.store(false, Ordering::Release);
    }

    /// A request that begins with the word of one of them; none where no service has it.
    pub(super) fn service_request(&self, line: &str) -> Option<Result<ControlRequest, InteropError>> {
        let (word, rest) = first_word(line);
        let verbs = lock(&self.service_verbs);
        let (at_once, read) =
            verbs.iter().find(|verb| verb.word == word).map(|verb| (verb.at_once, Arc::clone(&verb.read)))?;
        drop(verbs);
        let read = read(rest).map(|request| ControlRequest::OfService { request, at_once });
        Some(read.map_err(InteropError::Refused))
    }
}
