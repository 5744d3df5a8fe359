//! `encryption-rewrite` of the control socket: rewriting with a new data key, of the store and of what services have beside it.
//!
//! ```text
//!   terrace encryption rewrite --> RewriteRequest --rights, audit--> node::rewriting::Rewriting --> store, index files
//! ```

use std::ops::ControlFlow;
use std::sync::{Arc, Weak};

use interop::running::{Audited, Needs, Requirement, RunningProduction, ServiceRequest};
use node::Clock;
use node::audit::AuditEntry;
use node::identity::{Action, Caller, Object};
use node::rewriting::{OtherFiles, REQUEST, RewriteRequest, Rewriting};
use serde_json::{Value, json};
use store::Store;

use crate::search::{self, RunningSearch};

/// A request, and who answers it: the node may have ended.
struct Requested {
    rewriting: Weak<Rewriting>,
    request: RewriteRequest,
}

impl ServiceRequest for Requested {
    fn requirement(&self) -> Requirement<'_> {
        let change = |entry| (Needs::Right(Action::RightsGrant, Object::Node), Some((Audited::Change, entry)));
        let (needs, entry) = match self.request {
            RewriteRequest::Status => (Needs::Right(Action::NodeStatus, Object::Node), None),
            RewriteRequest::Start { bytes_per_second, drops_kept_journal } => {
                let entry = AuditEntry::new("encryption.rewrite", "");
                let entry = entry.with("bytes_per_second", bytes_per_second.to_string());
                change(entry.with("drops_kept_journal", drops_kept_journal.to_string()))
            }
            RewriteRequest::Stop => change(AuditEntry::new("encryption.rewrite-stop", "")),
        };
        Requirement { needs, entry }
    }

    fn answer(&self, _: &Caller) -> Result<Value, String> {
        let rewriting = self.rewriting.upgrade().ok_or("the node is stopping")?;
        rewriting.handle(self.request).map(|status| json!(status)).map_err(|error| error.to_string())
    }
}

/// Goes on with what was being rewritten, and answers requests from now on.
pub fn start(node: &RunningProduction, search: Option<&RunningSearch>) -> Arc<Rewriting> {
    let files = files(node.store(), search);
    let (rewriting, begun) = Rewriting::start(node.data(), node.store(), node.audit(), Clock::system(), files);
    if let Err(error) = begun {
        tracing::error!(%error, "what was being written anew with a new data key does not go on");
    }
    let answers = Arc::downgrade(&rewriting);
    node.serve_requests(
        REQUEST,
        true,
        Box::new(move |text| match serde_json::from_str(text) {
            Ok(request) => Ok(Box::new(Requested { rewriting: Weak::clone(&answers), request })),
            Err(error) => Err(format!("`{REQUEST} {text}` is not a request: {error}")),
        }),
    );
    rewriting
}

/// Rewrites the index files; says what keeps its key where there are some and search does not run.
fn files(store: &Store, search: Option<&RunningSearch>) -> Box<OtherFiles> {
    if let Some(rewrite) = search.and_then(RunningSearch::rewrites) {
        return rewrite;
    }
    let store = store.clone();
    Box::new(move |data_key, _| match search::data_keys_in_use(&store) {
        Ok(keys) if keys.iter().all(|key| *key == data_key) => Ok(ControlFlow::Continue(())),
        Ok(_) => Err("some need an older data key, and search does not run: start the node with [search]".to_owned()),
        Err(error) => Err(format!("{error:#}")),
    })
}
