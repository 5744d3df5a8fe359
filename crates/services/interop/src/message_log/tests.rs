//! A panic of what the node needs fails it, and one of a session does not.

use node::task::session;

use super::*;
use crate::rows::Rows;

#[tokio::test]
async fn a_panic_of_a_task_that_the_node_needs_fails_it_and_one_of_a_session_ends_that_alone() {
    let options = store::Options { interpreter: Some(Arc::new(Rows)), ..store::Options::default() };
    let message_log = MessageLog::new(Store::in_memory(options).expect("memory"));
    session("peer", async { panic!("of a session") }).await.expect("it was caught");
    assert!(!message_log.has_failed());
    message_log.supervise("housekeeping", async { panic!("number {}", 7) }).await.expect("it was caught");
    let cause = message_log.failed().borrow().clone().expect("it has failed");
    assert_eq!(&*cause, "the task housekeeping panicked: number 7");
    assert_eq!(message_log.store().poisoned().as_deref(), Some("the task housekeeping panicked: number 7"));
}
