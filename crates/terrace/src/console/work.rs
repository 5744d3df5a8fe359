//! What operators ask for on pages, as the requests of the control socket that the command line sends: see `admin`, whose invariant counts
//! here.

use async_trait::async_trait;
use interop::running::{EditedRequest, ProductionRequest};
use node::identity::Caller;
use serde_json::{Value, json};
use web_console::AdminError;
use web_console::operator::{
    GenerationDiff, GenerationLines, OperatorAdmin, ReprocessOrder, ReprocessReport, SetAsideOrder, SetAsideReport,
    TodoAct, TodoList, TodoQuery, WentBackReport,
};

use super::admin::NodeAdmin;

#[async_trait]
impl OperatorAdmin for NodeAdmin {
    async fn set_aside(&self, caller: &Caller, order: &SetAsideOrder) -> Result<SetAsideReport, AdminError> {
        self.read(caller, &format!("set-aside {}", json!(order))).await
    }

    async fn reprocess(&self, caller: &Caller, order: &ReprocessOrder) -> Result<ReprocessReport, AdminError> {
        self.read(caller, &format!("reprocess {}", json!(order))).await
    }

    async fn resend_edited(
        &self,
        caller: &Caller,
        id: u64,
        operations: &[String],
        body: &[u8],
    ) -> Result<u64, AdminError> {
        let request = EditedRequest::new(id, operations.to_vec(), body);
        self.read(caller, &format!("resend-edited {}", json!(request))).await
    }

    async fn todo(&self, caller: &Caller, query: &TodoQuery) -> Result<TodoList, AdminError> {
        let TodoQuery { after, limit, owner, done } = query;
        let request = json!({ "verb": "list", "after": after, "limit": limit, "owner": owner, "done": done });
        self.read(caller, &format!("todo {request}")).await
    }

    async fn change_todo(&self, caller: &Caller, id: u64, act: &TodoAct) -> Result<(), AdminError> {
        let request = json!({ "verb": "change", "id": id, "change": act });
        self.read::<Value>(caller, &format!("todo {request}")).await.map(drop)
    }

    async fn generations(&self, caller: &Caller, last: usize) -> Result<GenerationLines, AdminError> {
        self.read(caller, &ProductionRequest::Generations { last }.line()).await
    }

    async fn generation_diff(&self, caller: &Caller, from: &str, to: &str) -> Result<GenerationDiff, AdminError> {
        let request = ProductionRequest::Diff { from: from.to_owned(), to: to.to_owned() };
        self.read(caller, &request.line()).await
    }

    async fn go_back(&self, caller: &Caller, generation: u32) -> Result<WentBackReport, AdminError> {
        self.read(caller, &ProductionRequest::Back { generation }.line()).await
    }

    async fn load_folder(&self, caller: &Caller, shown: Option<&str>) -> Result<Vec<String>, AdminError> {
        self.read(caller, &format!("reload {}", shown.unwrap_or_default())).await
    }
}

#[cfg(test)]
mod tests {
    use interop::running::{ReprocessRequest, SetAsideRequest, TodoRequest};
    use web_console::operator::ReprocessFilter;

    use super::*;

    #[test]
    fn the_orders_of_pages_are_the_requests_of_the_command_line() {
        let order = SetAsideOrder { operation: "out".into(), message: 7, reason: "why".into() };
        let read: SetAsideRequest = serde_json::from_value(json!(order)).expect("it can be read");
        assert_eq!((read.operation.as_str(), read.message, read.reason.as_str()), ("out", Some(7), "why"));
        let filter = ReprocessFilter { status: "errored".into(), since_us: Some(1), ..ReprocessFilter::default() };
        let order = ReprocessOrder {
            search: Some(filter),
            after: 3,
            key: Some("k".into()),
            generation: Some(4),
            ..Default::default()
        };
        let read: ReprocessRequest = serde_json::from_value(json!(order)).expect("it can be read");
        assert!(read.search.is_some() && read.after == 3 && read.key.as_deref() == Some("k") && !read.preview);
        assert_eq!(read.generation, Some(4));
        for act in [TodoAct::Take, TodoAct::Comment("x".into()), TodoAct::Done] {
            let request = json!({ "verb": "change", "id": 1, "change": act });
            assert!(serde_json::from_value::<TodoRequest>(request).is_ok(), "{act:?}");
        }
    }
}
