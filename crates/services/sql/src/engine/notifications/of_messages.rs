//! Channels of new messages: who listens to `hl7:ADT^A01` is told the id of each message of that type, once `hl7.messages` shows it.
//!
//! The node sends there, and no session. A session is told of a message if it may see its row: by SELECT on `hl7.messages`, and
//! `message-metadata` on the message's service, asked for each message. Where the type of a message is masked, also by `unmasked`.
//!
//! A client that does not take them in time does not lose its session: what its mailbox has no room for becomes one notification of the
//! channel with an empty payload, which says that there were more. The same is sent when more come than can be told.

use std::collections::HashMap;
use std::sync::Arc;

use node::identity::{Action, Object};

use super::{MAILBOX_BYTES_MAX, Mailbox, Notification, Notifications, OWN_PREFIX};
use crate::SqlError;
use crate::identity::SessionIdentity;

/// The process number of the node itself.
const NODE: i32 = 0;

/// The table whose rows tell what the notifications are about.
const TABLE: Object<'_> = Object::Table { schema: "hl7", name: "messages", columns: &[] };

/// Where messages come from.
pub trait MessageSource: std::fmt::Debug + Send + Sync {
    /// A session listens to messages from now on: each that comes after this has returned is to be sent. It must not wait.
    fn open(&self);
}

/// A message that has come.
#[derive(Clone, Debug)]
pub struct NewMessage {
    /// Its id.
    pub id: u64,
    /// The service that took it.
    pub service: String,
    /// Its type, as `ADT^A01`.
    pub kind: String,
}

/// Whether messages of a service may be told to a reader.
fn may(reader: Option<&SessionIdentity>, service: &str, is_masked: bool) -> bool {
    let Some(identity) = reader else { return true };
    let (view, caller) = (identity.guard().view(), identity.caller());
    let has = |action, object| view.may(caller, action, object).is_ok();
    let service = || Object::Service(service);
    has(Action::TableSelect, TABLE)
        && has(Action::MessageMetadata, service())
        && (!is_masked || has(Action::Unmasked, service()))
}

/// Refuses to listen to messages for who may see none. Errors: 42501.
pub(crate) fn check(reader: Option<&SessionIdentity>) -> Result<(), SqlError> {
    let Some(identity) = reader else { return Ok(()) };
    let (view, caller) = (identity.guard().view(), identity.caller());
    let may_read = view.may(caller, Action::TableSelect, TABLE).is_ok();
    match may_read && view.may_some(caller, Action::MessageMetadata).is_ok() {
        true => Ok(()),
        false => Err(SqlError::statement("42501", "permission denied for table messages")
            .with_hint("It needs SELECT on hl7.messages, and message-metadata on a service.")),
    }
}

/// Whether a channel is one of messages.
pub(crate) fn is_of_messages(channel: &str) -> bool {
    channel.starts_with(OWN_PREFIX)
}

impl Notifications {
    /// Waits until a session listens to messages.
    pub(crate) async fn until_messages_are_wanted(&self) {
        // The sender lives as long as this.
        let _ = self.of_messages.subscribe().wait_for(|listeners| *listeners > 0).await;
    }

    /// Messages come from there. Without effect if it was said before.
    pub(crate) fn set_message_source(&self, source: Arc<dyn MessageSource>) {
        let _ = self.source.set(source);
    }

    /// Whether there is a place where messages come from.
    pub(crate) fn has_message_source(&self) -> bool {
        self.source.get().is_some()
    }

    /// Whether a session listens to messages.
    pub(crate) fn are_messages_wanted(&self) -> bool {
        *self.of_messages.borrow() > 0
    }

    /// Tells those who listen of messages that `hl7.messages` shows; `is_masked`: their type is masked for readers without `unmasked`.
    pub(crate) fn send_messages(&self, messages: &[NewMessage], is_masked: bool) {
        let mut known: HashMap<(*const Mailbox, &str), bool> = HashMap::new();
        for message in messages {
            let channel = format!("{OWN_PREFIX}{}", message.kind);
            let listeners = self.channels.lock().get(&channel).cloned().unwrap_or_default();
            let told = Arc::new(Notification { channel, payload: message.id.to_string() });
            for listener in listeners {
                let of = (Arc::as_ptr(&listener), message.service.as_str());
                let is_told = *known
                    .entry(of)
                    .or_insert_with(|| may(listener.reader.lock().as_ref(), &message.service, is_masked));
                if is_told {
                    listener.put_or_send_gap(&told);
                }
            }
        }
    }

    /// Says to all that listen to messages that there were more than could be told.
    pub(crate) fn send_gap(&self) {
        let all: Vec<(String, Vec<Arc<Mailbox>>)> = {
            let channels = self.channels.lock();
            let own = channels.iter().filter(|(channel, _)| is_of_messages(channel));
            own.map(|(channel, listeners)| (channel.clone(), listeners.clone())).collect()
        };
        for (channel, listeners) in all {
            listeners.iter().for_each(|listener| listener.send_gap_of(&channel));
        }
    }
}

impl Mailbox {
    /// Adds a notification; beyond half of the room only one that says that there were more.
    fn put_or_send_gap(&self, notification: &Arc<Notification>) {
        let is_full = self.inner.lock().bytes + notification.bytes() > MAILBOX_BYTES_MAX / 2;
        match is_full {
            true => self.send_gap_of(&notification.channel),
            false => self.put(notification, NODE),
        }
    }

    /// Adds a notification without a payload, unless one of the channel waits behind all others of it.
    fn send_gap_of(&self, channel: &str) {
        let is_said = {
            let inner = self.inner.lock();
            let last = inner.queue.iter().rev().find(|(one, _)| one.channel == channel);
            last.is_some_and(|(one, _)| one.payload.is_empty())
        };
        if !is_said {
            self.put(&Arc::new(Notification { channel: channel.to_owned(), payload: String::new() }), NODE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Listener, Listening, PendingNotifications};
    use super::*;

    fn messages(count: u64) -> Vec<NewMessage> {
        let message = |id| NewMessage { id, service: "in".into(), kind: "ADT^A01".into() };
        (1..=count).map(message).collect()
    }

    fn listening(all: &Arc<Notifications>) -> Listener {
        let listener = Listener::new(all.clone(), None);
        let mut pending = PendingNotifications::default();
        pending.listen(Listening::Begin("hl7:ADT^A01".into())).expect("there is room");
        listener.apply(pending);
        listener
    }

    #[tokio::test]
    async fn who_listens_to_a_type_is_told_the_ids_of_its_messages() {
        let all = Arc::<Notifications>::default();
        assert!(!all.are_messages_wanted());
        let listener = listening(&all);
        all.until_messages_are_wanted().await;
        all.send_messages(&messages(2), false);
        all.send_messages(&[NewMessage { id: 3, service: "in".into(), kind: "ORU^R01".into() }], false);
        let told: Vec<String> =
            listener.mailbox.take().expect("all").iter().map(|(one, _)| one.payload.clone()).collect();
        assert_eq!(told, ["1", "2"]);
        drop(listener);
        assert!(!all.are_messages_wanted());
    }

    #[test]
    fn what_a_mailbox_has_no_room_for_becomes_one_notification_without_an_id() {
        let all = Arc::<Notifications>::default();
        let listener = listening(&all);
        all.send_messages(&messages(20_000), false);
        all.send_gap();
        let told = listener.mailbox.take().expect("the session goes on");
        assert!(told.len() > 1000 && told.len() < 10_000, "{}", told.len());
        let without = told.iter().filter(|(one, _)| one.payload.is_empty()).count();
        assert_eq!((without, told.back().map(|(one, _)| one.payload.as_str())), (1, Some("")));
        all.send_gap();
        assert_eq!(listener.mailbox.take().expect("it is told").len(), 1);
    }
}
