//! Orders of people to an operation: suspend, resume, start outside its schedule. Each is durable before it is in force, and the last one is what
//! counts, also after a restart.

use serde_json::Value;

use super::operator_request::StartRequest;
use super::{RunningProduction, stored};
use crate::error::InteropError;
use crate::queue::Suspension;
use crate::record::Switch;

/// What is ordered.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ordered {
    Suspend,
    /// It works again, by its schedule if it has one.
    Resume,
    /// It works up to this time, whatever its schedule says, microseconds since 1970.
    Start {
        until_us: i64,
    },
}

impl Ordered {
    pub(super) fn of(suspended: bool) -> Ordered {
        if suspended { Ordered::Suspend } else { Ordered::Resume }
    }
}

/// Starts an operation that has a schedule, up to a time to come.
pub(super) async fn start(running: &RunningProduction, request: StartRequest, by: &str) -> Result<Value, InteropError> {
    let StartRequest { operation, until_us } = request;
    if until_us <= running.engine.clock.now_us() {
        let text = "the time up to which it is to be started is over; nothing was changed";
        return Err(InteropError::Refused(text.to_owned()));
    }
    switch(running, &operation, Ordered::Start { until_us }, by).await
}

/// Carries an order out.
pub(super) async fn switch(
    running: &RunningProduction,
    operation: &str,
    ordered: Ordered,
    by: &str,
) -> Result<Value, InteropError> {
    // A reload moves queues: not while one is searched. And what is stored last is what is in force.
    let _no_reload = running.reloading.lock().await;
    let queue = stored::queue_during(running, operation)?;
    if queue.is_broken() {
        return Err(InteropError::Refused(format!(
            "operation {operation} has stopped because of a programming error (see the log): `terrace stop` and `terrace serve` start it again"
        )));
    }
    let has_schedule = queue.orders().borrow().operation.settings.schedule().is_some();
    if !has_schedule && matches!(ordered, Ordered::Start { .. }) {
        return Err(InteropError::Refused(format!(
            "operation {operation} has no schedule: `terrace operation resume {operation}` ends a suspension"
        )));
    }
    let (suspended, until_us) = match ordered {
        Ordered::Suspend => (true, None),
        Ordered::Resume => (false, None),
        Ordered::Start { until_us } => (false, Some(until_us)),
    };
    let at_us = running.engine.clock.now_us();
    let switch = Switch { operation: operation.to_owned(), suspended, until_us, at_us, reason: format!("by {by}") };
    let stored = running.engine.message_log.switch(&switch);
    let durable = stored.map_err(|refusal| InteropError::Refused(refusal.to_string()))?;
    durable.await.map_err(|_| InteropError::Stopping)?;
    let suspension = suspended.then(|| Suspension { since_us: at_us, reason: switch.reason.into() });
    queue.order(|orders| (orders.suspended, orders.started_until_us) = (suspension, until_us));
    Ok(Value::Null)
}
