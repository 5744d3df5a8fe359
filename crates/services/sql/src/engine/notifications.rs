//! [`Notifications`]: which sessions listen to which channel, and what waits to be sent to them.
//!
//! ```text
//!   NOTIFY --> PendingNotifications of a transaction --commit--> Mailbox of each session that listens --port--> its client
//!                                       --rollback--> nothing
//! ```
//!
//! As in PostgreSQL, equal notifications of one transaction are sent once, and those of several arrive in the order of their commits: a
//! transaction that has some commits under one lock. LISTEN and UNLISTEN take effect at the commit too, before what it sends.
//!
//! Everything is in memory and bounded, and nothing of it outlives the node. A session whose client does not take its notifications is
//! ended when its mailbox is full: its client then knows that some are lost, and who sends is never kept waiting by who listens.
//! PostgreSQL has one queue of 8 GB instead, and fails those that send when it is full.
//!
//! [`of_messages`] has the channels of new messages.

pub(crate) mod of_messages;

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, watch};

use crate::SqlError;
use crate::identity::SessionIdentity;
use of_messages::{MessageSource, is_of_messages};

/// Bytes of a channel's name, and of a payload: PostgreSQL's.
const CHANNEL_BYTES_MAX: usize = 63;
const PAYLOAD_BYTES_MAX: usize = 7999;

/// Bytes that a notification counts besides its texts.
const EACH_BYTES: usize = 64;
/// Bytes of the notifications of one transaction.
const PENDING_BYTES_MAX: usize = 512 << 10;
/// Bytes that wait for one session.
const MAILBOX_BYTES_MAX: usize = 1 << 20;
/// Channels of one session, and changes of them in one transaction.
const CHANNELS_MAX: usize = 1024;

/// The channels of this prefix are the node's own.
const OWN_PREFIX: &str = "hl7:";

/// A notification.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Notification {
    pub(crate) channel: String,
    pub(crate) payload: String,
}

impl Notification {
    /// A notification of a session. Errors: 22023; 42501 for a channel of the node's own.
    pub(crate) fn new(channel: String, payload: String) -> Result<Notification, SqlError> {
        let wrong = |what: &str| Err(SqlError::value("22023", what));
        match (channel.len(), payload.len()) {
            (0, _) => wrong("channel name cannot be empty"),
            (channel, _) if channel > CHANNEL_BYTES_MAX => wrong("channel name too long"),
            (_, payload) if payload > PAYLOAD_BYTES_MAX => wrong("payload string too long"),
            _ if is_of_messages(&channel) => {
                let message = format!("permission denied to send to a channel whose name begins with {OWN_PREFIX}");
                Err(SqlError::statement("42501", message))
            }
            _ => Ok(Notification { channel, payload }),
        }
    }

    fn bytes(&self) -> usize {
        self.channel.len() + self.payload.len() + EACH_BYTES
    }
}

/// The name of a channel in LISTEN, UNLISTEN and NOTIFY, cut as PostgreSQL cuts identifiers.
pub(crate) fn channel_name(name: &str) -> String {
    name[..name.floor_char_boundary(CHANNEL_BYTES_MAX)].to_owned()
}

/// What LISTEN and UNLISTEN do at the commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Listening {
    Begin(String),
    End(String),
    EndAll,
}

/// What a transaction will do when it commits.
#[derive(Debug, Default)]
pub(crate) struct PendingNotifications {
    listening: Vec<Listening>,
    sent: Vec<Notification>,
    known: HashSet<Notification>,
    bytes: usize,
}

impl PendingNotifications {
    /// LISTEN and UNLISTEN. Errors: 54000.
    pub(crate) fn listen(&mut self, listening: Listening) -> Result<(), SqlError> {
        if self.listening.len() == CHANNELS_MAX {
            return Err(too_many("LISTEN and UNLISTEN"));
        }
        self.listening.push(listening);
        Ok(())
    }

    /// NOTIFY. Errors: 54000.
    pub(crate) fn send(&mut self, notification: Notification) -> Result<(), SqlError> {
        if self.known.contains(&notification) {
            return Ok(());
        }
        let bytes = self.bytes + notification.bytes();
        if bytes > PENDING_BYTES_MAX {
            return Err(too_many("notifications"));
        }
        self.bytes = bytes;
        self.known.insert(notification.clone());
        self.sent.push(notification);
        Ok(())
    }

    /// How much there is, for [`keep`](PendingNotifications::keep).
    pub(crate) fn count(&self) -> (usize, usize) {
        (self.listening.len(), self.sent.len())
    }

    /// ROLLBACK TO SAVEPOINT: forgets what came later.
    pub(crate) fn keep(&mut self, (listening, sent): (usize, usize)) {
        self.listening.truncate(listening);
        for notification in self.sent.drain(sent.min(self.sent.len())..) {
            self.bytes -= notification.bytes();
            self.known.remove(&notification);
        }
    }
}

fn too_many(what: &str) -> SqlError {
    SqlError::transaction("54000", format!("too many {what} in one transaction")).with_hint("Commit earlier.")
}

/// What waits for the client of one session.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    inner: Mutex<Waiting>,
    filled: Notify,
    /// For whom the session's statements ask; `None`: the node itself.
    reader: Mutex<Option<SessionIdentity>>,
}

#[derive(Debug, Default)]
struct Waiting {
    /// The channels to which the session listens.
    channels: BTreeSet<String>,
    /// With the process number of who sent it.
    queue: VecDeque<(Arc<Notification>, i32)>,
    bytes: usize,
    /// Whether something was left out.
    is_over: bool,
}

impl Mailbox {
    /// The session's statements ask for this one from now on.
    pub(crate) fn set_reader(&self, reader: Option<SessionIdentity>) {
        *self.reader.lock() = reader;
    }

    /// Waits until something comes. Giving up this wait loses nothing.
    pub(crate) async fn filled(&self) {
        self.filled.notified().await;
    }

    /// Takes what is there. Errors: 54000 if something was left out: the session ends.
    pub(crate) fn take(&self) -> Result<VecDeque<(Arc<Notification>, i32)>, SqlError> {
        let mut inner = self.inner.lock();
        if inner.is_over {
            let message = "notifications were lost because this session did not take them in time";
            return Err(SqlError::transaction("54000", message).with_hint("Connect again, and read what has changed."));
        }
        inner.bytes = 0;
        Ok(std::mem::take(&mut inner.queue))
    }

    /// Whether something was left out.
    pub(crate) fn is_over(&self) -> bool {
        self.inner.lock().is_over
    }

    /// The channels to which the session listens.
    pub(crate) fn channels(&self) -> Vec<String> {
        self.inner.lock().channels.iter().cloned().collect()
    }

    fn put(&self, notification: &Arc<Notification>, process: i32) {
        let mut inner = self.inner.lock();
        if inner.is_over {
            return;
        }
        let bytes = inner.bytes + notification.bytes();
        match bytes > MAILBOX_BYTES_MAX {
            true => {
                *inner = Waiting { is_over: true, channels: std::mem::take(&mut inner.channels), ..Waiting::default() }
            }
            false => {
                inner.bytes = bytes;
                inner.queue.push_back((Arc::clone(notification), process));
            }
        }
        drop(inner);
        self.filled.notify_one();
    }
}

/// The channels of an engine.
#[derive(Debug, Default)]
pub(crate) struct Notifications {
    /// Who listens, by channel.
    channels: Mutex<HashMap<String, Vec<Arc<Mailbox>>>>,
    /// Held while a transaction with notifications commits.
    order: Mutex<()>,
    /// How many times sessions listen to messages.
    of_messages: watch::Sender<usize>,
    /// Where messages come from.
    source: OnceLock<Arc<dyn MessageSource>>,
}

impl Notifications {
    /// Held by a transaction from before its commit until what it sends is in the mailboxes.
    pub(crate) fn in_order(&self, pending: &PendingNotifications) -> Option<MutexGuard<'_, ()>> {
        (!pending.sent.is_empty()).then(|| self.order.lock())
    }

    /// Does what a transaction that has committed asked for; `process` is the number of its connection.
    pub(crate) fn apply(&self, pending: PendingNotifications, (mailbox, process): (&Arc<Mailbox>, i32)) {
        let mut channels = self.channels.lock();
        for listening in pending.listening {
            match listening {
                Listening::Begin(channel) => self.begin(&mut channels, channel, mailbox),
                Listening::End(channel) => self.end(&mut channels, &channel, mailbox),
                Listening::EndAll => self.end_all(&mut channels, mailbox),
            }
        }
        for notification in pending.sent {
            if let Some(listeners) = channels.get(&notification.channel) {
                let notification = Arc::new(notification);
                listeners.iter().for_each(|listener| listener.put(&notification, process));
            }
        }
    }

    /// Checks that a session may listen to one more channel. Errors: 54000.
    pub(crate) fn check_room(&self, mailbox: &Mailbox) -> Result<(), SqlError> {
        match mailbox.inner.lock().channels.len() >= CHANNELS_MAX {
            true => {
                Err(SqlError::transaction("54000", format!("a session listens to at most {CHANNELS_MAX} channels")))
            }
            false => Ok(()),
        }
    }

    fn forget(&self, mailbox: &Arc<Mailbox>) {
        self.end_all(&mut self.channels.lock(), mailbox);
    }
}

type Channels = HashMap<String, Vec<Arc<Mailbox>>>;

impl Notifications {
    fn begin(&self, channels: &mut Channels, channel: String, mailbox: &Arc<Mailbox>) {
        let mut inner = mailbox.inner.lock();
        if inner.channels.len() < CHANNELS_MAX && inner.channels.insert(channel.clone()) {
            let of_messages = usize::from(is_of_messages(&channel));
            channels.entry(channel).or_default().push(Arc::clone(mailbox));
            self.of_messages.send_modify(|listeners| *listeners += of_messages);
            if let Some(source) = self.source.get().filter(|_| of_messages > 0) {
                source.open();
            }
        }
    }

    fn end(&self, channels: &mut Channels, channel: &str, mailbox: &Arc<Mailbox>) {
        mailbox.inner.lock().channels.remove(channel);
        let Some(listeners) = channels.get_mut(channel) else { return };
        let before = listeners.len();
        listeners.retain(|listener| !Arc::ptr_eq(listener, mailbox));
        if is_of_messages(channel) {
            let ended = before - listeners.len();
            self.of_messages.send_modify(|listeners| *listeners -= ended);
        }
        if listeners.is_empty() {
            channels.remove(channel);
        }
    }

    fn end_all(&self, channels: &mut Channels, mailbox: &Arc<Mailbox>) {
        let all = std::mem::take(&mut mailbox.inner.lock().channels);
        all.iter().for_each(|channel| self.end(channels, channel, mailbox));
    }
}

/// A session's place among those that listen; dropping it leaves all channels.
#[derive(Debug)]
pub(crate) struct Listener {
    all: Arc<Notifications>,
    pub(crate) mailbox: Arc<Mailbox>,
    /// The number of its connection, which a port sets.
    pub(crate) process: i32,
}

impl Listener {
    /// A place that listens to nothing yet.
    pub(crate) fn new(all: Arc<Notifications>, reader: Option<SessionIdentity>) -> Listener {
        let mailbox = Arc::<Mailbox>::default();
        mailbox.set_reader(reader);
        Listener { all, mailbox, process: 0 }
    }

    /// Who a transaction of the session sends as, and for whom it listens.
    pub(crate) fn sender(&self) -> (Arc<Mailbox>, i32) {
        (Arc::clone(&self.mailbox), self.process)
    }

    /// Errors: 54000 beyond the bound of channels.
    pub(crate) fn check_room(&self) -> Result<(), SqlError> {
        self.all.check_room(&self.mailbox)
    }

    /// Listens to nothing any more, from now on.
    pub(crate) fn leave_all(&self) {
        self.all.forget(&self.mailbox);
    }

    /// Does at once what was asked for outside of a transaction.
    pub(crate) fn apply(&self, pending: PendingNotifications) {
        let order = self.all.in_order(&pending);
        self.all.apply(pending, (&self.mailbox, self.process));
        drop(order);
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.all.forget(&self.mailbox);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pending(listening: &[Listening], sent: &[(&str, &str)]) -> PendingNotifications {
        let mut pending = PendingNotifications::default();
        listening.iter().for_each(|one| pending.listen(one.clone()).expect("there is room"));
        for (channel, payload) in sent {
            let one = Notification::new((*channel).into(), (*payload).into()).expect("it is allowed");
            pending.send(one).expect("there is room");
        }
        pending
    }

    fn taken(listener: &Listener) -> Vec<String> {
        let all = listener.mailbox.take().expect("nothing is lost");
        all.iter().map(|(one, process)| format!("{}:{} {process}", one.channel, one.payload)).collect()
    }

    #[test]
    fn what_is_sent_reaches_those_who_listen_once_and_in_order() {
        let all = Arc::<Notifications>::default();
        let [mut a, b] = [(); 2].map(|()| Listener::new(all.clone(), None));
        a.process = 7;
        b.apply(pending(&[Listening::Begin("x".into())], &[]));
        a.apply(pending(&[Listening::Begin("x".into())], &[("x", "1"), ("y", "2"), ("x", "3"), ("x", "1")]));
        assert_eq!(
            (taken(&a), taken(&b)),
            (vec!["x:1 7".into(), "x:3 7".into()], vec!["x:1 7".into(), "x:3 7".into()])
        );
        b.apply(pending(&[Listening::EndAll], &[]));
        a.apply(pending(&[], &[("x", "4")]));
        assert_eq!((taken(&a), taken(&b)), (vec!["x:4 7".into()], Vec::<String>::new()));
        drop(a);
        assert!(all.channels.lock().is_empty());
    }

    #[test]
    fn what_came_after_a_savepoint_is_forgotten_with_it() {
        let mut pending = pending(&[Listening::Begin("x".into())], &[("x", "1")]);
        let (mark, bytes) = (pending.count(), pending.bytes);
        pending.listen(Listening::EndAll).expect("there is room");
        let two = Notification::new("x".into(), "2".into()).expect("it is allowed");
        pending.send(two.clone()).expect("there is room");
        pending.keep(mark);
        assert_eq!((pending.count(), pending.bytes), ((1, 1), bytes));
        pending.send(two).expect("it is sent again");
        assert_eq!(pending.count(), (1, 2));
    }

    #[test]
    fn a_session_that_takes_nothing_is_told_so_and_keeps_nobody_from_sending() {
        let listener = Listener::new(Arc::default(), None);
        listener.apply(pending(&[Listening::Begin("x".into())], &[]));
        let text = "x".repeat(PAYLOAD_BYTES_MAX);
        for _ in 0..=MAILBOX_BYTES_MAX / PAYLOAD_BYTES_MAX {
            listener.apply(pending(&[], &[("x", &text)]));
        }
        assert!(listener.mailbox.is_over());
        assert_eq!(listener.mailbox.take().expect_err("some are lost").code(), "54000");
    }

    #[test]
    fn names_and_payloads_are_bounded_and_so_is_what_a_transaction_sends() {
        let long = "x".repeat(PAYLOAD_BYTES_MAX + 1);
        for (channel, payload, code) in
            [("", "", "22023"), (&long[..64], "", "22023"), ("x", &long, "22023"), ("hl7:ADT^A01", "1", "42501")]
        {
            let error = Notification::new(channel.into(), payload.into()).expect_err("it is not allowed");
            assert_eq!(error.code(), code);
        }
        assert_eq!(channel_name(&format!("{}\u{e4}", "x".repeat(62))).len(), 62);
        let mut pending = PendingNotifications::default();
        let mut send =
            |number: usize| pending.send(Notification { channel: "x".into(), payload: format!("{number:07000}") });
        let most = PENDING_BYTES_MAX / (7000 + 1 + EACH_BYTES);
        (0..most).for_each(|number| send(number).expect("there is room"));
        assert_eq!(send(most).expect_err("there is none").code(), "54000");
    }
}
