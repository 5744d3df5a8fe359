//! [`MessageQuery`]: which messages are asked for; and the states of their outputs.

use serde::{Deserialize, Serialize};

/// State of one output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OutputState {
    /// Not delivered yet.
    Waiting,
    /// The receiver took it.
    Delivered,
    /// Given up.
    Failed,
    /// Somebody took it out of the way: it is not sent by itself.
    #[serde(rename = "set-aside")]
    SetAside,
}

impl OutputState {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            OutputState::Waiting => "waiting",
            OutputState::Delivered => "delivered",
            OutputState::Failed => "failed",
            OutputState::SetAside => "set-aside",
        }
    }
}

/// Which messages are wanted; every given condition holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MessageQuery {
    /// Of this service.
    pub service: Option<String>,
    /// Of this service, or with an output to this operation.
    pub interface: Option<String>,
    /// With this decision: `routed`, `dropped`, `unmatched`, `rejected`, `errored`.
    pub status: Option<String>,
    /// With an output in this state.
    pub output: Option<OutputState>,
    /// With this MSH-10.
    pub control_id: Option<String>,
    /// With this PID-3.1.
    pub mrn: Option<String>,
    /// Of this type: `ADT`, or with its event `ADT^A01`.
    pub kind: Option<String>,
    /// Where the value at a path equals a text.
    pub wanted: Vec<(String, String)>,
    /// Received at or after, microseconds since 1970.
    pub since_us: Option<i64>,
    /// Received before.
    pub until_us: Option<i64>,
    /// Behind this place: the `next` of an earlier page.
    pub before: Option<(i64, u64)>,
    /// Lines of the page.
    pub limit: usize,
}
