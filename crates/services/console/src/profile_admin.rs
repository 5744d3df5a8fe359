//! [`ProfileAdmin`]: the profile of what a node uses, as the console asks for it.

use async_trait::async_trait;
use node::identity::Caller;
use node::profiling::{ProfileReport, StartRecording};

use crate::admin_error::AdminError;

/// What a node is asked about its profiles; a part of [`Admin`](crate::Admin).
#[async_trait]
pub trait ProfileAdmin: Send + Sync + 'static {
    /// What is recorded, and which profiles there are. Needs `node-metrics`.
    async fn profile(&self, caller: &Caller) -> Result<ProfileReport, AdminError>;

    /// Starts a recording. Needs `node-profile`.
    async fn start_profile(&self, caller: &Caller, start: StartRecording) -> Result<ProfileReport, AdminError>;

    /// Ends it, and waits until its profile is written. Needs `node-profile`.
    async fn stop_profile(&self, caller: &Caller) -> Result<ProfileReport, AdminError>;
}
