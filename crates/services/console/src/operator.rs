//! [`OperatorAdmin`]: what operators ask of a node beyond looking: setting aside, deciding anew, sending edited, the to-do list,
//! generations of the production.
//!
//! ```text
//!   page, API --Caller, order--> OperatorAdmin --the same requests as the command line--> right, entry in the audit --> answer
//! ```
//!
//! Answers are read from the JSON that the command line reads, under the same keys, and the API returns them so. What counts for an
//! implementation of [`Admin`](crate::Admin) counts here.

use async_trait::async_trait;
use node::identity::Caller;
use serde::{Deserialize, Serialize};

use crate::admin_error::AdminError;

/// See the module's text.
#[async_trait]
pub trait OperatorAdmin: Send + Sync + 'static {
    /// Sets a message aside that waits in an operation, durably. Needs `operation-set-aside`.
    async fn set_aside(&self, caller: &Caller, order: &SetAsideOrder) -> Result<SetAsideReport, AdminError>;

    /// Decides on stored messages anew, or tells what would become of them; a page of them. Needs `message-resend` on their services.
    async fn reprocess(&self, caller: &Caller, order: &ReprocessOrder) -> Result<ReprocessReport, AdminError>;

    /// Sends an edited body in the place of a message's output to each of these operations; the new message. Needs `message-edit`,
    /// `message-body` and `unmasked`.
    async fn resend_edited(
        &self,
        caller: &Caller,
        id: u64,
        operations: &[String],
        body: &[u8],
    ) -> Result<u64, AdminError>;

    /// A page of the messages that need a person, of the services that the caller may list.
    async fn todo(&self, caller: &Caller, query: &TodoQuery) -> Result<TodoList, AdminError>;

    /// Changes what is noted about a message. Needs `message-resend` on its service.
    async fn change_todo(&self, caller: &Caller, id: u64, act: &TodoAct) -> Result<(), AdminError>;

    /// The newest generations of the production, and which is in force. Needs `production-read`.
    async fn generations(&self, caller: &Caller, last: usize) -> Result<GenerationLines, AdminError>;

    /// What differs between two generations, or a generation and the folder (`disk`). Needs `production-read`.
    async fn generation_diff(&self, caller: &Caller, from: &str, to: &str) -> Result<GenerationDiff, AdminError>;

    /// Loads an earlier generation again, as a new one. Needs `production-load`.
    async fn go_back(&self, caller: &Caller, generation: u32) -> Result<WentBackReport, AdminError>;

    /// Loads the folder of the production as it is now; what changed. `shown`: only if it has this hash, which a difference told, of
    /// hexadecimal digits. Needs `production-load`.
    async fn load_folder(&self, caller: &Caller, shown: Option<&str>) -> Result<Vec<String>, AdminError>;
}

/// Which message is to be set aside, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SetAsideOrder {
    /// The operation.
    pub operation: String,
    /// The message.
    pub message: u64,
    /// Why, 1 to 500 bytes on one line. No patient data belongs in it.
    pub reason: String,
}

/// A message was set aside, durably.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetAsideReport {
    /// The operation.
    pub operation: String,
    /// The message.
    pub message: u64,
    /// The message that is now at the head of its lane; none where nothing else waits there.
    pub next: Option<u64>,
}

/// Which messages are to be decided on anew.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ReprocessOrder {
    /// These, 100 at most; or none, and a search.
    pub ids: Vec<u64>,
    /// All that match, the oldest first.
    pub search: Option<ReprocessFilter>,
    /// Of a search: only ids above this; the `next` of the page before.
    pub after: u64,
    /// Of a search: so many at most; 0, or more than 100: 100.
    pub limit: usize,
    /// The idempotency key, 1 to 100 bytes: under the same one no message is made twice from another, also across a restart.
    pub key: Option<String>,
    /// Only tell what would be done.
    pub preview: bool,
    /// Only by this generation of the production, which a preview told.
    pub generation: Option<u32>,
}

/// Which messages a search is for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ReprocessFilter {
    /// `errored`, `unmatched`, `rejected` or `dropped`.
    pub status: String,
    /// Of this service.
    pub service: Option<String>,
    /// Received at or after, microseconds since 1970.
    pub since_us: Option<i64>,
    /// Received before, microseconds since 1970.
    pub until_us: Option<i64>,
}

/// What became of a page of messages, or would become of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReprocessReport {
    /// Each message.
    pub results: Vec<ReprocessLine>,
    /// Where the search goes on; none at its end.
    pub next: Option<u64>,
    /// Why the page ended early, if it did.
    #[serde(default)]
    pub stopped: Option<String>,
    /// The generation of the production that decided, or would; 0 where it has no number.
    #[serde(default)]
    pub generation: u32,
}

/// What became of a message, or would become of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReprocessLine {
    /// The stored message.
    pub id: u64,
    /// `routed`, `dropped`, `again` (made before under this key), `already` (reprocessed before), or why nothing was stored:
    /// `errored`, `rejected`, `unmatched`, `refused`.
    pub outcome: String,
    /// The rule, or the error.
    pub reason: String,
    /// The message that was made from it, now or before.
    pub new: Option<u64>,
    /// Where it goes, an operation for each output.
    pub operations: Vec<String>,
}

impl ReprocessLine {
    /// Whether something is made of it: now, or under the same key before.
    pub(crate) fn is_made(&self) -> bool {
        matches!(self.outcome.as_str(), "routed" | "dropped" | "again")
    }
}

/// Which part of the to-do list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TodoQuery {
    /// Only ids above this; the `next` of the page before.
    pub after: u64,
    /// So many at most, 1 to 100.
    pub limit: usize,
    /// Only those that this role or user takes care of.
    pub owner: Option<String>,
    /// Also those that are done.
    pub done: bool,
}

/// A page of the messages that need a person, the oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TodoList {
    /// The messages.
    pub items: Vec<TodoLine>,
    /// Where the list goes on; none at its end.
    pub next: Option<u64>,
}

/// A message that needs a person.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TodoLine {
    /// The message.
    pub id: u64,
    /// When it came in, microseconds since 1970.
    pub received_us: i64,
    /// The service that took it.
    pub service: String,
    /// `errored`, `unmatched`, `failed` or `set-aside`.
    pub reason: String,
    /// The words of the decision or the outcome.
    pub detail: String,
    /// Who takes care of it.
    pub owner: Option<String>,
    /// Whether it is done.
    pub done: bool,
    /// What was said, the newest last.
    pub comments: Vec<TodoWords>,
}

/// What somebody said about a message.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TodoWords {
    /// By whom.
    pub by: String,
    /// When, microseconds since 1970.
    pub at_us: i64,
    /// What.
    pub text: String,
}

/// A change of what is noted about a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TodoAct {
    /// Who asks takes care of it from now on.
    Take,
    /// Something is said about it, 1 to 500 bytes on one line.
    Comment(String),
    /// It is done.
    Done,
}

/// Generations of the production.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GenerationLines {
    /// The newest first.
    pub generations: Vec<GenerationLine>,
    /// The one in force; none of a node without a folder.
    pub in_force: Option<u32>,
}

/// A generation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GenerationLine {
    /// Its number, from 1.
    pub number: u32,
    /// When it was loaded, microseconds since 1970.
    pub loaded_us: i64,
    /// By whom.
    pub by: String,
    /// How.
    pub how: LoadedHow,
    /// The name of the production.
    pub name: String,
    /// The commit that its folder was checked out at, where it is one of git.
    #[serde(default)]
    pub commit: Option<String>,
    /// The SHA-256 of all of it, in hexadecimal.
    pub hash: String,
    /// Its files, by path.
    pub files: Vec<GenerationFileLine>,
}

/// How a generation came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LoadedHow {
    /// The node started with it.
    Start,
    /// It was loaded by a running node.
    Reload,
    /// An earlier one was loaded again.
    Back(u32),
}

/// A file of a generation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GenerationFileLine {
    /// Its path below the folder of the production.
    pub path: String,
    /// Its bytes.
    pub bytes: u64,
    /// The SHA-256 of its text, in hexadecimal.
    pub hash: String,
}

/// What differs between two.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GenerationDiff {
    /// What was compared with, in words.
    pub from: String,
    /// What was compared, in words.
    pub to: String,
    /// The files that differ.
    pub files: Vec<FileDiff>,
    /// Where a side is a folder that can be loaded: the SHA-256 of all of it.
    #[serde(default)]
    pub folder: Option<String>,
}

/// A file that differs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileDiff {
    /// Its path.
    pub path: String,
    /// `came`, `went` or `changed`.
    pub change: String,
    /// Lines that came.
    pub added: u64,
    /// Lines that went.
    pub removed: u64,
    /// The differences, as `diff -u` writes them without its first two lines; empty where they are not shown.
    pub lines: String,
    /// Why they are not shown, or not all of them.
    #[serde(default)]
    pub note: Option<String>,
}

/// What going back did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WentBackReport {
    /// The generation that it is now.
    pub generation: u32,
    /// What changed in the running production.
    pub changes: Vec<String>,
    /// The folder of the production, which was not changed.
    pub folder: String,
    /// What differs between what is in force and that folder.
    pub on_disk: Vec<FileDiff>,
}
