//! The settings of services and operations: one TOML file each, every key documented here with its default.
//!
//! A file's stem is the name. Unknown keys are errors, sizes and durations carry units, and nothing here touches the
//! network or the disk: the settings of a file are checked before anything starts.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use hl7::charset::Charset;
use serde::{Deserialize, Serialize};

use node::{Bounds, Network, Policy, Schedule};

use super::units::{Bytes, CharsetName, FileMode, Span};

/// `production.toml`: the production's name and settings for all of it. The file may be absent.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct General {
    /// Shown in status and logs. Default: the folder's name.
    pub name: String,
    /// Free text for readers.
    pub description: String,
}

/// An inbound service: where messages come from.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum ServiceSettings {
    /// Listens for MLLP connections.
    Mllp(MllpService),
    /// Picks files up from a folder.
    File(FileService),
}

/// `[intake]`: which messages a service accepts, and how it treats doubtful ones.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Intake {
    /// What to do with a message whose MSH-3, MSH-4 and MSH-10 were seen before. Default `flag`.
    pub duplicates: Duplicates,
    /// Message types taken, as `ADT` or `ADT^A01`; others are rejected (table 0357 code 200 or 201). Default: all.
    pub types: Vec<String>,
    /// Versions (MSH-12.1) taken; others are rejected with code 203. Default: all.
    pub versions: Vec<String>,
    /// Processing ids (MSH-11.1) taken; others are rejected with code 202. Default: all.
    pub processing_ids: Vec<String>,
    /// What to answer when no rule matches: `accept` (stored, marked unmatched) or `reject`. Default `accept`.
    pub unmatched: Unmatched,
    /// Largest message taken. Default 16 MiB.
    pub message_bytes: Bytes,
    /// Processor time that the rules and transforms of one message may take, at least 10 ms. For a message that takes
    /// longer, the answer is an error (AE) that names the statement. Messages over 256 KiB, and any that takes longer
    /// than a moment, are decided on by other threads, so the other connections do not wait. Default 10 s.
    pub decision_time: Span,
    /// The character set of messages that declare none in MSH-18, as `8859/1`, `SHIFT_JIS`, `GB 18030-2000`. Default:
    /// UTF-8 where the bytes are that, else one byte a character; a message that looks like a set whose characters hide
    /// delimiters is refused.
    pub charset: Option<CharsetName>,
}

/// A service of `kind = "mllp"`.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct MllpService {
    /// Always `mllp`.
    pub kind: String,
    /// Address and port to listen on, as `127.0.0.1:2575`.
    pub listen: SocketAddr,
    /// The rules file (without `.rules`) that routes its messages. Default: none; messages are stored and go nowhere.
    pub rules: Option<String>,
    /// Which messages it takes.
    #[serde(default)]
    pub intake: Intake,
    /// When to acknowledge. Default `auto`: original or enhanced mode by MSH-15 and MSH-16.
    #[serde(default)]
    pub acknowledge: Acknowledge,
    /// MLLP release 2: answer each frame with a commit byte (ACK or NAK) before any acknowledgement. Default off.
    #[serde(default)]
    pub commit_bytes: bool,
    /// Refuse frames whose end is not followed by a carriage return. Default off (tolerated).
    #[serde(default)]
    pub require_final_cr: bool,
    /// Close a connection that has been silent this long. Default: never.
    pub idle_timeout: Option<Span>,
    /// A frame must become whole this long after it began, or grow by another MiB; else its connection is closed. Default 1 m.
    #[serde(default = "one_minute")]
    pub frame_timeout: Span,
    /// Memory that unfinished frames of all its connections may take, but for frames up to 64 KiB, which are not counted.
    /// Beyond it one frame goes on, the others are not read; those that do not grow meanwhile end. Default 128 MiB.
    #[serde(default = "default_frame_memory")]
    pub frame_memory: Bytes,
    /// Connections at most at one time, 1 or more. For one more, the first that came is closed of those that have not sent a
    /// message in 5 s, of the address with most of them; where there is none, the new one is. Default 256.
    #[serde(default = "default_connections")]
    pub connections: usize,
    /// Of them from one address (IPv4, or the first 64 bits of IPv6), 1 or more. Default: half of `connections`.
    pub connections_per_address: Option<usize>,
    /// Addresses and networks that may connect, as `["10.1.2.3", "10.4.0.0/16", "fd00::/8"]`. Default: all.
    #[serde(default)]
    pub peers: Vec<Network>,
    /// Listen beyond this machine without TLS: every machine on the network path can read every message. Default off;
    /// an address of this machine (127.0.0.1, ::1) needs neither.
    #[serde(default)]
    pub plaintext: bool,
    /// When it takes messages: outside, connections are closed before a byte of them is read. Default: always.
    pub schedule: Option<Schedule>,
    /// Serve TLS.
    pub tls: Option<ServerTls>,
}

/// A service of `kind = "file"`.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FileService {
    /// Always `file`.
    pub kind: String,
    /// The folder to watch. Relative to the production folder.
    pub folder: PathBuf,
    /// The rules file (without `.rules`) that routes its messages. Default: none; messages are stored and go nowhere.
    pub rules: Option<String>,
    /// Take only names that end so. Default `.hl7`.
    #[serde(default = "default_suffix")]
    pub suffix: String,
    /// How often to look. Default 1 s.
    #[serde(default = "one_second")]
    pub every: Span,
    /// Leave a file alone until size and time of change have stayed the same for this long. Default 5 s.
    #[serde(default = "five_seconds")]
    pub settle: Span,
    /// Where files go once their messages are durable, on the file system of `folder`. Relative to the production folder. Default:
    /// `FOLDER/done`.
    pub done: Option<PathBuf>,
    /// Where files go that hold no readable message, or one over `message_bytes` (the others in it are taken), and links; on the file
    /// system of `folder`. Default: `FOLDER/error`.
    pub error: Option<PathBuf>,
    /// Which messages it takes.
    #[serde(default)]
    pub intake: Intake,
    /// When it takes files: outside, they stay where they are. Default: always.
    pub schedule: Option<Schedule>,
}

/// An outbound operation: where messages go.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum OperationSettings {
    /// Sends over MLLP and waits for the acknowledgement.
    Mllp(MllpOperation),
    /// Writes a file per message.
    File(FileOperation),
}

/// An operation of `kind = "mllp"`.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct MllpOperation {
    /// Always `mllp`.
    pub kind: String,
    /// `host:port` of the receiver. A name is resolved at each connection.
    pub address: String,
    /// Give up connecting after. Default 10 s.
    #[serde(default = "ten_seconds")]
    pub connect_timeout: Span,
    /// Give up waiting for the acknowledgement after; the socket is closed, so a late answer matches nothing. Default 30 s.
    #[serde(default = "thirty_seconds")]
    pub ack_timeout: Span,
    /// Pause between a failed try and the next.
    #[serde(default)]
    pub retry: Retry,
    /// The reaction to each kind of answer.
    #[serde(default)]
    pub reply: BTreeMap<ReplyKind, ReplyAction>,
    /// The character set to send in: messages are converted, and MSH-18 is set to it. Default: none, bytes stay as received.
    pub charset: Option<CharsetName>,
    /// Replaces a character that `charset` does not have, as `?`; none of the usual delimiters. Default: none; the
    /// message is in error (AE) and is not delivered.
    pub replacement: Option<String>,
    /// Order of delivery.
    #[serde(default)]
    pub order: OrderSettings,
    /// Bounds of the queue.
    #[serde(default)]
    pub queue: QueueSettings,
    /// Largest answer taken. Default 1 MiB.
    #[serde(default = "default_reply_bytes")]
    pub reply_bytes: Bytes,
    /// The receiver answers with MLLP release 2 commit bytes (ACK or NAK) and nothing else. Default off.
    #[serde(default)]
    pub commit_bytes: bool,
    /// Deliver only while the last try of this other operation to connect succeeded. Default: none.
    pub requires: Option<String>,
    /// When it delivers: outside, messages wait. Default: always.
    pub schedule: Option<Schedule>,
    /// Use TLS.
    pub tls: Option<ClientTls>,
}

/// An operation of `kind = "file"`.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FileOperation {
    /// Always `file`.
    pub kind: String,
    /// The folder to write to. Relative to the production folder; made when absent, when the production is loaded.
    pub folder: PathBuf,
    /// Ending of the names; a name is the message id, so a second write of one message replaces the first. Default `.hl7`.
    #[serde(default = "default_suffix")]
    pub suffix: String,
    /// The access rights of the files, as chmod(1) writes them in octal: `"0600"` the node's user alone, `"0640"` its
    /// group may read them, `"0660"`, `"0644"` and `"0666"` likewise. A folder that the node makes is open to the same.
    /// Default `"0600"`.
    #[serde(default)]
    pub mode: FileMode,
    /// The character set to write in: messages are converted, and MSH-18 is set to it. Default: none, bytes stay as received.
    pub charset: Option<CharsetName>,
    /// Replaces a character that `charset` does not have, as `?`; none of the usual delimiters. Default: none; the
    /// message is in error (AE) and is not delivered.
    pub replacement: Option<String>,
    /// Pause between a failed try and the next.
    #[serde(default)]
    pub retry: Retry,
    /// Bounds of the queue.
    #[serde(default)]
    pub queue: QueueSettings,
    /// Deliver only while the last try of this other operation to connect succeeded. Default: none.
    pub requires: Option<String>,
    /// When it delivers: outside, messages wait. Default: always.
    pub schedule: Option<Schedule>,
}

/// What to do with a message seen before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Duplicates {
    /// Do not look.
    Allow,
    /// Deliver again, and mark the stored message.
    #[default]
    Flag,
    /// Acknowledge again without storing or delivering, if id and content are the same; same id with other content is flagged.
    Drop,
}

/// What to answer where no rule matches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unmatched {
    /// Stored, acknowledged, marked as unmatched.
    #[default]
    Accept,
    /// Stored and rejected (AR, code 207).
    Reject,
}

/// When a service acknowledges.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Acknowledge {
    /// By MSH-15 and MSH-16 of each message.
    #[default]
    Auto,
    /// Always in original mode, whatever MSH-15 and MSH-16 are.
    Original,
    /// Never. The sender does not learn what became of its message.
    Never,
}

/// Pause between a failed try and the next: doubled from `first` up to `max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Retry {
    /// The first pause. Default 1 s.
    pub first: Span,
    /// The longest pause, and so about the longest that a receiver which is back waits for its first message: each try
    /// begins with a connection, and nothing is sent where there is none. Default 5 s.
    pub max: Span,
    /// Tries before the message is marked failed and the next one goes; 0 = without end (the queue waits). Default 0.
    pub attempts: u32,
}

impl Retry {
    /// The pause after so many tries that failed, 1 or more.
    pub fn pause_after(&self, tries: u32) -> Duration {
        let doublings = tries.saturating_sub(1).min(31);
        self.first.0.saturating_mul(1u32 << doublings).min(self.max.0)
    }
}

/// Order in which an operation delivers.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct OrderSettings {
    /// A path: messages with the same value keep their order, others go in parallel. Default: none, one strict line.
    pub key: Option<String>,
    /// Connections in parallel when a key is given; 1 to 64. Default 1.
    pub lanes: usize,
}

/// Bounds of an operation's queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct QueueSettings {
    /// Messages waiting before its services stop reading (senders then wait; nothing is dropped). Default 1,000,000.
    pub messages: usize,
    /// Bodies held in memory; those beyond are read again from the journal. Default 64 MiB.
    pub memory: Bytes,
}

/// Kinds of answer in the reply table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[allow(clippy::upper_case_acronyms, reason = "HL7 table 0008 writes them so")]
pub enum ReplyKind {
    /// Application accept.
    AA,
    /// Application error.
    AE,
    /// Application reject.
    AR,
    /// Commit accept.
    CA,
    /// Commit error.
    CE,
    /// Commit reject.
    CR,
    /// No answer within `ack_timeout`.
    #[serde(rename = "timeout")]
    Timeout,
    /// An acknowledgement of another message (MSA-2 is not our MSH-10).
    #[serde(rename = "wrong-id")]
    WrongId,
    /// Something that is no acknowledgement.
    #[serde(rename = "unreadable")]
    Unreadable,
}

/// The reaction to an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ReplyAction {
    /// Delivered.
    Complete,
    /// Delivered, with a warning in the log.
    Warn,
    /// Send again after the pause; the line behind it waits.
    Retry,
    /// Mark failed and go on with the next; it can be resent by hand.
    Fail,
    /// Stop the operation with the message at its head until someone resumes it.
    Suspend,
}

/// TLS of a service.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ServerTls {
    /// PEM file with the certificate chain, leaf first. Relative to the production folder.
    pub certificate: PathBuf,
    /// PEM file with the private key.
    pub key: PathBuf,
    /// PEM file with the authorities whose client certificates are required. Default: no client certificate is
    /// requested.
    pub client_authority: Option<PathBuf>,
    /// PEM file with revocation lists of these authorities. Default: none.
    pub client_revocations: Option<PathBuf>,
    /// Names of which a client's certificate must carry one, as host names or addresses (subjectAltName; a common name
    /// alone does not count). Needs `client_authority`. Default: any that the authority signed.
    #[serde(default)]
    pub client_names: Vec<String>,
    /// A TLS handshake must be over within. Default 10 s.
    #[serde(default = "ten_seconds")]
    pub handshake_timeout: Span,
}

/// TLS of an operation.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ClientTls {
    /// PEM file with the authorities that may sign the receiver's certificate. Relative to the production folder.
    pub authority: PathBuf,
    /// Name the certificate must carry. Default: the host part of `address`.
    pub server_name: Option<String>,
    /// PEM file with our own certificate chain, where the receiver demands one.
    pub certificate: Option<PathBuf>,
    /// PEM file with our own key.
    pub key: Option<PathBuf>,
}

impl ServiceSettings {
    /// The rules file that routes its messages.
    pub fn rules(&self) -> Option<&str> {
        match self {
            Self::Mllp(s) => s.rules.as_deref(),
            Self::File(s) => s.rules.as_deref(),
        }
    }

    /// When it takes messages; none: always.
    pub fn schedule(&self) -> Option<&Schedule> {
        match self {
            Self::Mllp(s) => s.schedule.as_ref(),
            Self::File(s) => s.schedule.as_ref(),
        }
    }

    /// Which messages it takes.
    pub fn intake(&self) -> &Intake {
        match self {
            Self::Mllp(s) => &s.intake,
            Self::File(s) => &s.intake,
        }
    }
}

impl Intake {
    /// The character set of messages that declare none.
    pub fn charset(&self) -> Option<Charset> {
        self.charset.map(|name| name.0)
    }
}

impl OperationSettings {
    /// The character set to send in, and the replacement for a character that it does not have.
    pub fn charset(&self) -> (Option<Charset>, Option<&str>) {
        let (charset, replacement) = match self {
            Self::Mllp(o) => (o.charset, &o.replacement),
            Self::File(o) => (o.charset, &o.replacement),
        };
        (charset.map(|name| name.0), replacement.as_deref())
    }

    /// Bounds of the queue.
    pub fn queue(&self) -> QueueSettings {
        match self {
            Self::Mllp(o) => o.queue,
            Self::File(o) => o.queue,
        }
    }

    /// Order of delivery; a file operation has one strict line.
    pub fn order(&self) -> OrderSettings {
        match self {
            Self::Mllp(o) => o.order.clone(),
            Self::File(_) => OrderSettings::default(),
        }
    }

    /// When it delivers; none: always.
    pub fn schedule(&self) -> Option<&Schedule> {
        match self {
            Self::Mllp(o) => o.schedule.as_ref(),
            Self::File(o) => o.schedule.as_ref(),
        }
    }

    /// The operation whose connection it waits for.
    pub fn requires(&self) -> Option<&str> {
        match self {
            Self::Mllp(o) => o.requires.as_deref(),
            Self::File(o) => o.requires.as_deref(),
        }
    }

    /// Pauses between tries.
    pub fn retry(&self) -> Retry {
        match self {
            Self::Mllp(o) => o.retry,
            Self::File(o) => o.retry,
        }
    }
}

impl MllpService {
    /// A service on an address, without rules, and with the defaults of everything else.
    pub fn on(listen: SocketAddr) -> MllpService {
        MllpService {
            kind: "mllp".to_owned(),
            listen,
            rules: None,
            intake: Intake::default(),
            acknowledge: Acknowledge::default(),
            commit_bytes: false,
            require_final_cr: false,
            idle_timeout: None,
            frame_timeout: one_minute(),
            frame_memory: default_frame_memory(),
            connections: default_connections(),
            connections_per_address: None,
            peers: Vec::new(),
            // Naming the address is a decision of the operator.
            plaintext: true,
            schedule: None,
            tls: None,
        }
    }

    /// Which peers may connect, and how many.
    pub fn policy(&self) -> Policy {
        let bounds = Bounds::of(self.connections, self.connections_per_address);
        Policy { bounds, peers: self.peers.clone() }
    }
}

impl MllpOperation {
    /// The reaction to `kind`: the table's entry, else the default. The defaults lose nothing and keep the order: an
    /// error about this message (AE, CE) marks it failed, all else is tried again.
    pub fn action(&self, kind: ReplyKind) -> ReplyAction {
        self.reply.get(&kind).copied().unwrap_or(match kind {
            ReplyKind::AA | ReplyKind::CA => ReplyAction::Complete,
            ReplyKind::AE | ReplyKind::CE => ReplyAction::Fail,
            _ => ReplyAction::Retry,
        })
    }
}

impl Default for Intake {
    fn default() -> Self {
        Self {
            duplicates: Duplicates::default(),
            types: Vec::new(),
            versions: Vec::new(),
            processing_ids: Vec::new(),
            unmatched: Unmatched::default(),
            message_bytes: default_message_bytes(),
            decision_time: ten_seconds(),
            charset: None,
        }
    }
}

impl Default for Retry {
    fn default() -> Self {
        Self { first: one_second(), max: five_seconds(), attempts: 0 }
    }
}

impl Default for OrderSettings {
    fn default() -> Self {
        Self { key: None, lanes: 1 }
    }
}

impl Default for QueueSettings {
    fn default() -> Self {
        Self { messages: 1_000_000, memory: Bytes(64 << 20) }
    }
}

fn default_message_bytes() -> Bytes {
    Bytes(16 << 20)
}
fn default_reply_bytes() -> Bytes {
    Bytes(1 << 20)
}
fn default_frame_memory() -> Bytes {
    Bytes(128 << 20)
}
fn default_connections() -> usize {
    256
}
fn default_suffix() -> String {
    ".hl7".to_owned()
}
fn one_second() -> Span {
    Span(Duration::from_secs(1))
}
fn five_seconds() -> Span {
    Span(Duration::from_secs(5))
}
fn ten_seconds() -> Span {
    Span(Duration::from_secs(10))
}
fn one_minute() -> Span {
    Span(Duration::from_secs(60))
}
fn thirty_seconds() -> Span {
    Span(Duration::from_secs(30))
}
