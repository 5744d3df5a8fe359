//! One attempt to deliver one message, by whichever kind the operation is.

use std::sync::Arc;

use bytes::Bytes;

use super::file;
use super::mllp::Link;
use super::reply::Answer;
use crate::production::{Operation, settings};
use crate::queue::Entry;

/// Sends messages of one lane; holds the connection between them.
pub(super) struct Sender {
    operation: Arc<Operation>,
    link: Link,
}

impl Sender {
    /// Not connected yet.
    pub(super) fn new(operation: &Arc<Operation>) -> Self {
        Self { operation: Arc::clone(operation), link: Link::default() }
    }

    /// Whether it was made from these very settings; a reload makes new ones, and the connection is made anew.
    pub(super) fn made_from(&self, operation: &Arc<Operation>) -> bool {
        Arc::ptr_eq(&self.operation, operation)
    }

    /// Tries once.
    pub(super) async fn attempt(&mut self, operation: &Operation, entry: &Entry, frame: &Bytes) -> Answer {
        match &operation.settings {
            settings::Operation::Mllp(settings) => self.link.exchange(operation, settings, frame).await,
            settings::Operation::File(settings) => file::write(settings, entry.id, entry.output, frame).await,
        }
    }
}
