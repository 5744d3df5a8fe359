//! The profile of a node for the console: requests of the control socket, as other pages have theirs.

use async_trait::async_trait;
use node::identity::Caller;
use node::profiling::{ProfileReport, ProfileRequest, REQUEST, StartRecording};
use serde_json::json;
use web_console::{AdminError, ProfileAdmin};

use super::admin::NodeAdmin;

fn line_of(request: &ProfileRequest) -> String {
    format!("{REQUEST} {}", json!(request))
}

#[async_trait]
impl ProfileAdmin for NodeAdmin {
    async fn profile(&self, caller: &Caller) -> Result<ProfileReport, AdminError> {
        self.read(caller, &line_of(&ProfileRequest::Status)).await
    }

    async fn start_profile(&self, caller: &Caller, start: StartRecording) -> Result<ProfileReport, AdminError> {
        self.read(caller, &line_of(&ProfileRequest::Start(start))).await
    }

    async fn stop_profile(&self, caller: &Caller) -> Result<ProfileReport, AdminError> {
        self.read(caller, &line_of(&ProfileRequest::Stop)).await
    }
}
