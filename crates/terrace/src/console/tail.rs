//! Messages as they come, for the console: the request `tail` of the control socket, by the caller of the stream.

use async_trait::async_trait;
use node::identity::Caller;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use web_console::tail_admin::TailQuery;
use web_console::{AdminError, TailAdmin};

use super::admin::NodeAdmin;

#[async_trait]
impl TailAdmin for NodeAdmin {
    async fn tail(&self, caller: &Caller, query: &TailQuery, parts: mpsc::Sender<Value>) -> Result<(), AdminError> {
        self.stream(caller, &format!("tail {}", json!(query)), parts).await
    }
}
