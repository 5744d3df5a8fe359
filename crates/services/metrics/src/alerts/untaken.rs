//! [`UntakenMessage`]: why a channel did not take a message, and the time that each waits for an answer.

use std::time::Duration;

/// Why a channel did not take a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UntakenMessage {
    /// In words, without secrets.
    pub(super) why: String,
    /// Who was asked refuses this message, and most likely will again.
    pub(super) is_final: bool,
}

impl From<String> for UntakenMessage {
    fn from(why: String) -> UntakenMessage {
        UntakenMessage { why, is_final: false }
    }
}

/// Waits for an answer so long. Errors: there was none, or its own.
pub(super) async fn within<T>(
    time: Duration,
    answer: impl Future<Output = Result<T, UntakenMessage>>,
) -> Result<T, UntakenMessage> {
    let none = |_| Err(format!("no answer within {} s", time.as_secs_f64()).into());
    tokio::time::timeout(time, answer).await.unwrap_or_else(none)
}
