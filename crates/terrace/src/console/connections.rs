//! The node's connections for the console: requests of the control socket, as other pages have theirs.

use async_trait::async_trait;
use node::ConnectionLine;
use node::identity::Caller;
use serde_json::json;
use web_console::connections::ConnectionClosed;
use web_console::{AdminError, ConnectionAdmin};

use super::admin::NodeAdmin;
use crate::connections::{ClosedConnection, ConnectionRequest, ListedConnections, REQUEST, what_follows};

fn line_of(request: &ConnectionRequest) -> String {
    format!("{REQUEST} {}", json!(request))
}

#[async_trait]
impl ConnectionAdmin for NodeAdmin {
    async fn connections(&self, caller: &Caller, port: Option<&str>) -> Result<Vec<ConnectionLine>, AdminError> {
        let request = ConnectionRequest::List { port: port.map(str::to_owned), statements: false };
        let listed: ListedConnections = self.read(caller, &line_of(&request)).await?;
        Ok(listed.connections)
    }

    async fn close_connection(&self, caller: &Caller, id: u64) -> Result<ConnectionClosed, AdminError> {
        let closed = self.read(caller, &line_of(&ConnectionRequest::Close { id })).await;
        let ClosedConnection { connection, ended } = closed?;
        let next = what_follows(&connection).map(str::to_owned);
        Ok(ConnectionClosed { connection, ended, next })
    }
}
