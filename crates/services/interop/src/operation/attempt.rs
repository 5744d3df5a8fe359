//! One attempt to deliver one message, for both kinds of operations.

use std::sync::Arc;

use bytes::Bytes;
use node::ConnectionRegistry;

use super::mllp::Link;
use super::reply::Answer;
use super::{Step, file};
use crate::production::{Operation, settings};
use crate::queue::Entry;
use crate::queue::progress::{ConnectionState, LaneEvent};

/// Sends messages of one lane; holds the connection between them.
pub(super) struct Sender {
    operation: Arc<Operation>,
    link: Link,
    /// Files were written, and persistent.
    wrote: bool,
}

impl Sender {
    /// Not connected yet. Its connections are in `connections`.
    pub(super) fn new(operation: &Arc<Operation>, connections: &Arc<ConnectionRegistry>) -> Self {
        Self { operation: Arc::clone(operation), link: Link::new(connections), wrote: false }
    }

    /// Whether it was made from these very settings; a reload makes new ones, and the connection is made anew.
    pub(super) fn made_from(&self, operation: &Arc<Operation>) -> bool {
        Arc::ptr_eq(&self.operation, operation)
    }

    /// How many messages it takes at a time.
    pub(super) fn group(&self) -> usize {
        match &self.operation.settings {
            settings::OperationSettings::Mllp(_) => 1,
            settings::OperationSettings::File(_) => file::GROUP,
        }
    }

    /// Whether it holds a connection.
    pub(super) fn is_connected(&self) -> bool {
        self.link.is_open()
    }

    /// Connects without sending, where it holds no connection. Error: why that failed.
    pub(super) async fn connect(&mut self, operation: &Operation) -> Result<(), String> {
        match &operation.settings {
            settings::OperationSettings::Mllp(settings) => self.link.connect(operation, settings).await,
            settings::OperationSettings::File(_) => Ok(()),
        }
    }

    /// Tries a group of messages once, each with its body; an answer for each in order, or up to the first that is not
    /// delivered. None at all: nothing was sent, since nothing is to be sent any more.
    pub(super) async fn attempt(
        &mut self,
        operation: &Operation,
        group: &[(Entry, Bytes)],
        step: Step<'_>,
    ) -> Vec<Answer> {
        let Some((entry, body)) = group.first() else { return Vec::new() };
        match &operation.settings {
            settings::OperationSettings::Mllp(settings) => {
                let answer = self.link.exchange((operation, settings), (entry, body), step).await;
                let state = answer.as_ref().map_or(ConnectionState::Connected, |answer| self.link.state(answer));
                (step.note)(LaneEvent::Connection(state));
                answer.into_iter().collect()
            }
            settings::OperationSettings::File(settings) => {
                // Reading the bodies may have taken long.
                if !(step.may_send)() {
                    return Vec::new();
                }
                (step.note)(LaneEvent::Writing);
                let items = group.iter().map(|(entry, body)| (entry.id, entry.output, body.clone()));
                let answers = file::write(settings, items.collect(), self.wrote).await;
                self.wrote |= answers.contains(&Answer::Written);
                answers
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::production::settings::OperationSettings;

    #[tokio::test]
    async fn no_file_is_written_where_nothing_may_be_sent_any_more() {
        let dir = tempfile::tempdir().expect("a folder");
        let text = format!("kind = \"file\"\nfolder = \"{}\"\n", dir.path().display());
        let settings = OperationSettings::File(toml::from_str(&text).expect("they are right"));
        let operation = Arc::new(Operation { name: "out".to_owned(), settings, key: None, tls: None });
        let mut sender = Sender::new(&operation, &Arc::new(ConnectionRegistry::default()));
        let entry = Entry { id: 1, output: 0, received_us: 0, charset: None, body: None };
        let group = [(entry, Bytes::from_static(b"MSH"))];
        let note = |_: LaneEvent| {};
        for (may, files) in [(false, 0), (true, 1)] {
            let may_send = || may;
            let step = Step { note: &note, may_send: &may_send };
            assert_eq!(sender.attempt(&operation, &group, step).await.len(), files);
            assert_eq!(std::fs::read_dir(dir.path()).expect("it is there").count(), files);
        }
    }
}
