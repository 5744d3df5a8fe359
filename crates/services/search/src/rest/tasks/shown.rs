//! A task as responses show it.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use super::{RunningTask, TaskAbout};

/// Characters of a search that its description shows.
const SHOWN_CHARS: usize = 1_000;

/// A task as responses show it.
pub(in crate::rest) fn shown(node: &str, task: &RunningTask, detailed: bool) -> Value {
    let mut shown = json!({
        "node": node, "id": task.id, "type": "transport", "action": task.action,
        "start_time_in_millis": task.started_millis, "running_time_in_nanos": task.started.elapsed().as_nanos() as u64,
        "cancellable": task.is_cancellable, "headers": {},
    });
    if task.is_cancellable {
        shown["cancelled"] = json!(task.cancelled.load(Ordering::Relaxed));
    }
    if let Some(id) = &task.opaque_id {
        shown["headers"]["X-Opaque-Id"] = json!(id);
    }
    if detailed {
        shown["description"] = json!(description(task));
        if let Some(progress) = &task.progress {
            shown["status"] = Value::Object(progress.shown());
        }
    }
    shown
}

/// What a task is about, in words.
pub(in crate::rest) fn description(task: &RunningTask) -> String {
    match &task.about {
        TaskAbout::Text(text) => text.clone(),
        TaskAbout::Bulk(indices, bytes) => format!("indices[{indices}], bytes[{bytes}]"),
        TaskAbout::Search(indices, body) => {
            let source: String = String::from_utf8_lossy(body).chars().take(SHOWN_CHARS).collect();
            format!("indices[{indices}], search_type[QUERY_THEN_FETCH], source[{}]", source.trim())
        }
    }
}
