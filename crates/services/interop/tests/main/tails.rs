//! Tails of messages and what becomes of them, where retention is quicker than they are.

use std::sync::Arc;
use std::time::Duration;

use node::identity::Caller;
use tokio::time::{Instant, timeout};

use crate::receiver::Accepting;
use crate::rig::{Rig, adt};

#[tokio::test(flavor = "multi_thread")]
async fn what_retention_removes_before_a_tail_has_looked_at_it_is_said_to_be_left_out() {
    let out = Accepting::start().await;
    let rig = Rig::to(out.address);
    let running = rig.start().await;
    for request in ["tail {}", r#"tail {"service":"in"}"#] {
        let (to, mut parts) = tokio::sync::mpsc::channel(64);
        let node = Arc::clone(&running.node);
        let tail = tokio::spawn(async move { node.stream_of(&Caller::node(), "console", (request, to)).await });
        let began = timeout(Duration::from_secs(20), parts.recv()).await.expect("it begins").expect("it goes on");
        assert_eq!(began["event"], "began", "{began}");
        let mut sender = running.sender().await;
        let until = Instant::now() + Duration::from_secs(60);
        let mut left_out = 0;
        for n in 0.. {
            assert!(Instant::now() < until, "{request}: none was left out");
            sender.accepted(&adt(&format!("m{n}"))).await;
            running.idle("out").await;
            running.until_outcomes(1).await;
            running.node.prune(true).await.expect("it goes on");
            // A message and its outcome, each shown or counted.
            let mut told = 0;
            while told < 2 {
                let part = tokio::time::timeout_at(until, parts.recv()).await;
                let part = part.unwrap_or_else(|_| panic!("{request}: {told} of 2 were told of")).expect("it goes on");
                let count = part["count"].as_u64().unwrap_or(0);
                match part["event"].as_str() {
                    Some("message" | "outcome") => told += 1,
                    Some("left-out") => (told, left_out) = (told + count, left_out + count),
                    _ => {}
                }
            }
            if left_out > 0 {
                break;
            }
        }
        drop(parts);
        tail.await.expect("it does not panic").expect("it ends with its client");
    }
    running.stop().await;
}
