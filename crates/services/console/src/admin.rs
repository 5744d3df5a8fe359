//! [`Admin`]: everything that the console asks of a node, each request with who asks.
//!
//! ```text
//!   page, API --Caller, request--> Admin --> the node's requests: right, entry in the audit, masking --> answer
//! ```
//!
//! The program implements it over the functions that the control socket's requests use; this crate knows no service and no store.
//!
//! Invariants of an implementation: it decides by the node's one place for rights; what it returns of a message is masked for who may
//! not see it otherwise; a body that it returns is in the audit, durable, before it returns; a change has its entry before it begins.
//!
//! Not here: who a caller is (`gate`), and what pages make of an answer.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use node::audit::{AuditPage, AuditQuery};
use node::identity::{Caller, RoleReport};
use node::trouble::Trouble;
use serde::{Deserialize, Serialize};

pub use crate::admin_error::AdminError;
use crate::connections::ConnectionAdmin;
use crate::lending::{SearchSource, SqlSource};
use crate::operator::OperatorAdmin;
use crate::profile_admin::ProfileAdmin;
use crate::tail_admin::TailAdmin;
use crate::transfer_admin::TransferAdmin;

pub use crate::message_query::{MessageQuery, OutputState};
use crate::watch::WatchAdmin;

/// What a node is asked. See the module's text.
#[async_trait]
pub trait Admin:
    OperatorAdmin + WatchAdmin + ConnectionAdmin + ProfileAdmin + TailAdmin + TransferAdmin + Send + Sync + 'static
{
    /// The figures of now, for all who look: the console asks for `node-status` before it shows them.
    async fn figures(&self) -> Result<NodeFigures, AdminError>;

    /// A page of the list of messages. Needs `message-metadata` on some service, and `message-body` for a condition on a body.
    async fn messages(&self, caller: &Caller, query: &MessageQuery) -> Result<MessagePage, AdminError>;

    /// A full-text search. Needs `message-body` and `unmasked` on all services, and a node that indexes its messages.
    async fn search(&self, caller: &Caller, text: &str) -> Result<FoundPage, AdminError>;

    /// A message: with its bodies as far as the caller may read them, where `bodies`. Needs `message-metadata` on its service.
    async fn message(&self, caller: &Caller, id: u64, bodies: bool) -> Result<MessageView, AdminError>;

    /// Stores a message's outputs again, those to `operations` or all, and sends them; the new message. Needs `message-resend`.
    async fn resend(&self, caller: &Caller, id: u64, operations: &[String]) -> Result<u64, AdminError>;

    /// Suspends or resumes an operation. Needs `operation-suspend` on it.
    async fn set_suspended(&self, caller: &Caller, operation: &str, suspended: bool) -> Result<(), AdminError>;

    /// The first messages that wait for an operation, as far as the caller may list them. Needs `node-status`.
    async fn queue(&self, caller: &Caller, operation: &str) -> Result<Vec<MessageLine>, AdminError>;

    /// Takes a right to messages of a service for a time, with a reason. Needs `break-glass`.
    async fn break_glass(&self, caller: &Caller, request: &GlassRequest) -> Result<(), AdminError>;

    /// The rules and transforms of the production's folder. Needs `production-load`.
    async fn sources(&self, caller: &Caller) -> Result<ProductionSources, AdminError>;

    /// Tries rules or a transform on stored messages. Needs `production-load`, and `message-body` and `unmasked` on their services.
    async fn try_on_stored(&self, caller: &Caller, request: &TryRequest) -> Result<TryReport, AdminError>;

    /// A page of the audit. Needs `audit-read`.
    async fn audit(&self, caller: &Caller, query: &AuditQuery) -> Result<AuditPage, AdminError>;

    /// All roles. Needs `user-administer`.
    async fn roles(&self, caller: &Caller) -> Result<Vec<RoleReport>, AdminError>;

    /// The volumes that the caller may see.
    async fn volumes(&self, caller: &Caller) -> Result<Vec<VolumeLine>, AdminError>;

    /// The SQL service; none where it does not run.
    fn sql(&self) -> Option<Arc<dyn SqlSource>>;

    /// The search service; none where it does not run.
    fn indices(&self) -> Option<Arc<dyn SearchSource>>;

    /// The searches that the caller has saved, by name. They are the caller's own: no right is needed, and nobody else sees them.
    async fn saved_searches(&self, caller: &Caller) -> Result<Vec<SavedSearch>, AdminError>;

    /// Saves a search under its name, also in the place of another one, or without a target forgets it; durable before it returns.
    async fn save_search(&self, caller: &Caller, name: &str, target: Option<&str>) -> Result<(), AdminError>;
}

/// A search of messages that somebody has saved.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedSearch {
    /// Its name, 1 to [`SavedSearch::NAME_BYTES_MAX`] bytes on one line.
    pub name: String,
    /// The query of the page of messages, as in its address; [`SavedSearch::TARGET_BYTES_MAX`] bytes at most.
    pub target: String,
}

impl SavedSearch {
    /// Searches of one user at most.
    pub const MOST: usize = 50;
    /// The longest name.
    pub const NAME_BYTES_MAX: usize = 100;
    /// The longest target.
    pub const TARGET_BYTES_MAX: usize = 4_000;
}

/// Everything that is counted of a node, at one moment. Counts are since its start.
#[derive(Debug, Clone, Default, Serialize)]
pub struct NodeFigures {
    /// The moment, microseconds since 1970.
    pub at_us: i64,
    /// The production's name.
    pub production: String,
    /// The data directory, for commands.
    pub data: String,
    /// The process.
    pub pid: u32,
    /// The services, by name.
    pub services: Vec<ServiceFigures>,
    /// The operations, by name.
    pub operations: Vec<OperationFigures>,
    /// Messages that wait for an operation that the production does not have.
    pub homeless: BTreeMap<String, u64>,
    /// What keeps the node from doing all of its work, the worst first.
    pub troubles: Vec<Trouble>,
    /// Messages stored.
    pub stored: u64,
    /// Messages refused.
    pub refused: u64,
    /// Messages seen before.
    pub duplicates: u64,
    /// Stored messages that somebody has to look at.
    pub to_do: ToDoFigures,
    /// Damaged pages that were set aside.
    pub damaged_pages: u64,
    /// The tiers in use.
    pub tiers: Vec<TierFigures>,
    /// The page cache.
    pub cache: CacheFigures,
    /// The journal.
    pub journal: JournalFigures,
    /// Checkpoints that are over.
    pub checkpoints: u64,
    /// Milliseconds that the last one took.
    pub last_checkpoint_ms: u64,
    /// How often updates waited for one.
    pub checkpoint_waits: u64,
}

/// Stored messages that somebody has to look at, each counted up to [`ToDoFigures::MOST`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ToDoFigures {
    /// A rule or a transform failed on them.
    pub errored: u64,
    /// With an output that was given up.
    pub failed: u64,
    /// No rule matched.
    pub unmatched: u64,
}

impl ToDoFigures {
    /// Where counting ends.
    pub const MOST: u64 = 1_000;
}

/// A service.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ServiceFigures {
    /// Its name.
    pub name: String,
    /// `mllp` or `file`.
    pub kind: String,
    /// Address and port, or folder.
    pub at: String,
    /// Whether it speaks TLS.
    pub tls: bool,
    /// The rules that it uses.
    pub rules: Option<String>,
    /// Open connections; none of a folder.
    pub connections: Option<u64>,
    /// Connections refused.
    pub refused: u64,
    /// Why it takes no messages, or not all files; empty where it does.
    pub note: String,
}

/// An operation.
#[derive(Debug, Clone, Default, Serialize)]
pub struct OperationFigures {
    /// Its name.
    pub name: String,
    /// `mllp` or `file`.
    pub kind: String,
    /// Host and port, or folder.
    pub to: String,
    /// Whether it speaks TLS.
    pub tls: bool,
    /// Its state.
    pub state: OperationState,
    /// Since when, microseconds since 1970, and why; of one that was suspended.
    pub since: Option<(i64, String)>,
    /// Why messages wait, in words; empty where none does.
    pub cause: String,
    /// Messages that wait.
    pub waiting: u64,
    /// The oldest of them, and when it came in, microseconds since 1970.
    pub oldest: Option<(u64, i64)>,
    /// Bytes of them in memory.
    pub memory_bytes: u64,
    /// Connections that it may have at a time.
    pub lanes: u64,
    /// Delivered.
    pub delivered: u64,
    /// Given up.
    pub failed: u64,
    /// Tries that were followed by another one.
    pub retried: u64,
}

/// The state of an operation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OperationState {
    /// It sends what waits.
    #[default]
    Running,
    /// It sends nothing until somebody resumes it.
    Suspended,
    /// The production has it no more; it sends what waits.
    Ending,
    /// A programming error stopped it until the next start.
    Broken,
}

impl OperationState {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            OperationState::Running => "running",
            OperationState::Suspended => "suspended",
            OperationState::Ending => "ending",
            OperationState::Broken => "stopped by an error",
        }
    }
}

/// A tier, with what passed through it. What is not counted there is none.
#[derive(Debug, Clone, Default, Serialize)]
pub struct TierFigures {
    /// Its name.
    pub name: String,
    /// The medium and how it is used, in words.
    pub medium: String,
    /// Whether the medium is real; otherwise it is a timing model.
    pub real: bool,
    /// `power-fail-safe`, `emulated` or `none`.
    pub durability: String,
    /// What lies there.
    pub holds: Vec<String>,
    /// Bytes that are used, and that there are.
    pub used: Option<(u64, u64)>,
    /// Reads.
    pub reads: Option<u64>,
    /// Writes.
    pub writes: Option<u64>,
    /// Bytes read.
    pub read_bytes: Option<u64>,
    /// Bytes written.
    pub written_bytes: Option<u64>,
    /// Of a model: accesses that took longer on the host than in the model.
    pub late: Option<u64>,
}

/// The page cache.
#[derive(Debug, Clone, Default, Serialize)]
pub struct CacheFigures {
    /// How its memory is placed.
    pub mode: String,
    /// Found in near memory.
    pub near_hits: u64,
    /// Found in far memory.
    pub far_hits: u64,
    /// Read from a device.
    pub misses: u64,
    /// Bytes of near memory.
    pub near_bytes: u64,
    /// Bytes of far memory.
    pub far_bytes: u64,
}

/// The journal.
#[derive(Debug, Clone, Default, Serialize)]
pub struct JournalFigures {
    /// Writes, each followed by a flush.
    pub writes: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Records.
    pub records: u64,
    /// Microseconds that the writes took with their flushes, together.
    pub write_us: u64,
    /// Bytes kept.
    pub kept_bytes: u64,
}

/// A line of the list of messages.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageLine {
    /// The id.
    pub id: u64,
    /// When it came in, microseconds since 1970.
    pub received_us: i64,
    /// The service.
    pub service: String,
    /// MSH-9.
    pub kind: String,
    /// MSH-10.
    pub control_id: String,
    /// The decision.
    pub status: String,
    /// Seen before.
    #[serde(default)]
    pub duplicate: bool,
    /// The message that it resends.
    #[serde(default)]
    pub resent_from: Option<u64>,
    /// Bytes received.
    #[serde(default)]
    pub bytes: u64,
    /// Operation and state of each output.
    #[serde(default)]
    pub outputs: Vec<(String, OutputState)>,
    /// Why it cannot be read; then only the id counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damaged: Option<String>,
}

/// Some lines, the newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct MessagePage {
    /// The lines.
    pub lines: Vec<MessageLine>,
    /// Where the next page begins; none where there are no more.
    pub next: Option<(i64, u64)>,
    /// Messages that were looked at.
    pub looked_at: u64,
    /// Whether the page ended early, because looking took too long.
    pub is_partial: bool,
}

/// A message that a full-text search found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct FoundLine {
    /// The line; its outputs are not known.
    pub line: MessageLine,
    /// Numbers of the patient.
    pub mrn: Vec<String>,
    /// The patient's name.
    pub name: String,
}

/// What a full-text search found, the newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct FoundPage {
    /// The newest of them.
    pub lines: Vec<FoundLine>,
    /// Messages that match.
    pub total: u64,
    /// Whether there are no more than that.
    pub total_is_exact: bool,
    /// How long it took, microseconds.
    pub took_us: u64,
    /// Whether messages are stored that are not indexed yet.
    pub is_behind: bool,
}

/// A message with what became of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MessageView {
    /// The id.
    pub id: u64,
    /// When it came in, microseconds since 1970.
    pub received_us: i64,
    /// The service.
    pub service: String,
    /// The charset that the service assumes where the message declares none.
    pub charset: Option<String>,
    /// The decision.
    pub status: String,
    /// Why: the rule, or what failed.
    pub reason: String,
    /// Seen before.
    pub duplicate: bool,
    /// The message that it was made from: resent, edited or decided anew.
    pub resent_from: Option<u64>,
    /// How it was made from that: `resent`, `edited` or `reprocessed`; empty where it came in.
    pub made: String,
    /// Of one that was imported: where it is from, in words.
    pub imported: Option<String>,
    /// The messages that were made from it, and how.
    pub derived: Vec<(u64, String)>,
    /// The generation of the production that decided; 0 where it is not known.
    pub generation: u32,
    /// Bytes received.
    pub bytes: u64,
    /// The message as received, as far as it is shown.
    pub raw: Bytes,
    /// Why bodies are left out, where they are.
    pub withheld: Option<String>,
    /// Whether what is shown is masked.
    pub masked: bool,
    /// The outputs.
    pub outputs: Vec<OutputView>,
}

/// An output of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputView {
    /// The operation.
    pub operation: String,
    /// The transform; empty for none.
    pub transform: String,
    /// Its size.
    pub bytes: u64,
    /// The output, as far as it is shown.
    pub body: Bytes,
    /// Its state.
    pub state: OutputState,
    /// When it ended, microseconds since 1970, and what the receiver answered.
    pub ended: Option<(i64, String)>,
    /// What differs from the message as received, as far as it is shown.
    pub differences: Vec<Difference>,
}

/// A right that is taken for a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GlassRequest {
    /// The service whose messages are to be read.
    pub service: String,
    /// Whether patient data is to be seen without the mask as well.
    pub unmasked: bool,
    /// Minutes.
    pub minutes: u32,
    /// Why.
    pub reason: String,
}

/// What can be tried.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProductionSources {
    /// The production's folder; none where the node has none.
    pub folder: Option<String>,
    /// Names and texts of files of rules.
    pub rules: Vec<(String, String)>,
    /// Names and texts of transforms.
    pub transforms: Vec<(String, String)>,
}

/// A trial.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TryRequest {
    /// Whether it is of rules; otherwise of a transform.
    pub of_rules: bool,
    /// The name of the rules or the transform.
    pub name: String,
    /// The text to try in the place of the file's; none: the file as it is.
    pub text: Option<String>,
    /// On which messages.
    pub query: MessageQuery,
}

/// What a trial found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct TryReport {
    /// As it was.
    pub same: u64,
    /// With another decision or output.
    pub changed: u64,
    /// On which a rule or transform fails.
    pub errored: u64,
    /// That do not go through what is tried, and resent ones.
    pub left_out: u64,
    /// Those that differ or fail.
    pub messages: Vec<TriedLine>,
    /// How long it took, microseconds.
    pub took_us: u64,
}

/// A message on which a trial differs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct TriedLine {
    /// The message.
    pub id: u64,
    /// Its type.
    pub kind: String,
    /// Whether it fails now.
    pub errored: bool,
    /// The decision now, and the one then where it was another.
    pub decision: String,
    /// The same of then.
    pub before: Option<String>,
    /// Each output that differs.
    pub outputs: Vec<TriedOutput>,
}

/// An output of a trial.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct TriedOutput {
    /// Where it goes, through which transform, and whether it is new or gone.
    pub title: String,
    /// What differs.
    pub differences: Vec<Difference>,
}

/// A difference between two messages: a field, or a segment that is new or gone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The field; empty of a whole segment.
    pub path: String,
    /// As it was; none of a new segment.
    pub before: Option<String>,
    /// As it is; none of a segment that is gone.
    pub now: Option<String>,
}

/// A volume.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct VolumeLine {
    /// Its name.
    pub name: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// Its state, in words.
    pub state: String,
    /// Whether all is well.
    pub is_well: bool,
    /// Its copies, in words.
    pub copies: Vec<String>,
    /// Where clients reach it; none where it is not exported.
    pub export: Option<String>,
}
