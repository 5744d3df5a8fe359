//! Requests of other services of the node at the control socket: each service names the word that its requests begin with.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::control_request::{ControlRequest, ReadRequest, first_word};
use super::lock;
use crate::error::InteropError;

/// The requests of other services.
pub(super) struct ServiceVerbs {
    verbs: Mutex<Vec<ServiceVerb>>,
    /// Whether services follow that have not started yet.
    follow: AtomicBool,
}

/// The requests of another service that begin with a word.
struct ServiceVerb {
    word: &'static str,
    /// Whether it has nothing to do with stored messages.
    at_once: bool,
    read: Arc<ReadRequest>,
}

impl ServiceVerbs {
    /// None yet. `follow`: services will start that have some.
    pub(super) fn new(follow: bool) -> ServiceVerbs {
        ServiceVerbs { verbs: Mutex::default(), follow: AtomicBool::new(follow) }
    }

    /// From now on requests that begin with `word` are those that `read` reads.
    pub(super) fn add(&self, word: &'static str, at_once: bool, read: Box<ReadRequest>) {
        lock(&self.verbs).push(ServiceVerb { word, at_once, read: Arc::from(read) });
    }

    /// Every service that was to follow has started.
    pub(super) fn all_started(&self) {
        self.follow.store(false, Ordering::Release);
    }

    /// Whether services are still starting.
    pub(super) fn are_starting(&self) -> bool {
        self.follow.load(Ordering::Acquire)
    }

    /// A request that begins with the word of one of them; none where no service has it.
    pub(super) fn request(&self, line: &str) -> Option<Result<ControlRequest, InteropError>> {
        let (word, rest) = first_word(line);
        let verbs = lock(&self.verbs);
        let (at_once, read) =
            verbs.iter().find(|verb| verb.word == word).map(|verb| (verb.at_once, Arc::clone(&verb.read)))?;
        drop(verbs);
        let read = read(rest).map(|request| ControlRequest::OfService { request, at_once });
        Some(read.map_err(InteropError::Refused))
    }
}
