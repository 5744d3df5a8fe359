//! [`RowExchange`]: what a statement needs while it sends rows to the client or receives them.

use std::sync::Arc;

use pgwire::messages::response::CommandComplete;
use tokio::sync::Notify;

use crate::Session;
use crate::wire::Reply;
use crate::wire::connection::Connection;
use crate::wire::connection_error::ConnectionError;
use crate::wire::figures::SqlFigures;
use crate::wire::reply_text::sent;

/// See the head comment of this file. It borrows from the connection that is served, for one statement.
pub(super) struct RowExchange<'s> {
    pub(super) connection: &'s mut Connection,
    /// For memory.
    pub(super) session: &'s mut Session,
    /// Notified when the statement is cancelled.
    pub(super) cancelled: Arc<Notify>,
    /// Where completed statements are counted.
    pub(super) figures: &'s SqlFigures,
    /// The largest message of a client, in bytes.
    pub(super) message_bytes_max: usize,
}

impl RowExchange<'_> {
    /// Sends that the statement is complete.
    pub(super) async fn complete(&mut self, tag: &str) -> Result<(), ConnectionError> {
        self.figures.completed(tag);
        self.connection.reply(Reply::CommandComplete(CommandComplete::new(sent(tag)))).await
    }
}
