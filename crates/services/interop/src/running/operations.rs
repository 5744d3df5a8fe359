//! The operations of a running production: their queues, and the lanes that empty them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tokio::task::JoinHandle;

use super::lock;
use crate::engine::{Engine, Plan};
use crate::error::InteropError;
use crate::operation::{self, Surroundings};
use crate::production::Production;
use crate::queue::Queue;
use crate::recovery::{self, Found, Homeless};
use crate::rows::Reader;

/// See the module's text.
#[derive(Debug)]
pub(super) struct RunningOperations {
    engine: Arc<Engine>,
    lanes: Mutex<Vec<JoinHandle<()>>>,
    /// Queues of operations that a reload took away. They stay, with their lanes: a message that was on its way in when
    /// the operation went may yet come, and the operation may be back, when its queue must not be served twice.
    retired: Mutex<Vec<Arc<Queue>>>,
    homeless: Mutex<Found>,
}

impl RunningOperations {
    /// With what recovery found that has no operation; no lane runs yet.
    pub(super) fn new(engine: &Arc<Engine>, found: Found) -> RunningOperations {
        RunningOperations {
            engine: Arc::clone(engine),
            lanes: Mutex::default(),
            retired: Mutex::default(),
            homeless: Mutex::new(found),
        }
    }

    /// Starts the lanes of queues.
    pub(super) fn start_lanes(&self, queues: &[Arc<Queue>], surroundings: &Surroundings) {
        let mut lanes = lock(&self.lanes);
        lanes.retain(|lane| !lane.is_finished());
        for queue in queues {
            lanes.extend(operation::start(queue, surroundings));
        }
    }

    /// The lanes, to wait for their end.
    pub(super) fn take_lanes(&self) -> Vec<JoinHandle<()>> {
        std::mem::take(&mut *lock(&self.lanes))
    }

    /// All queues that may hold something.
    pub(super) fn queues(&self) -> Vec<Arc<Queue>> {
        let mut queues = self.engine.plan().queues.clone();
        queues.extend(lock(&self.retired).iter().cloned());
        queues
    }

    /// Waiting outputs by operation that the production does not have.
    pub(super) fn homeless(&self) -> BTreeMap<String, u64> {
        lock(&self.homeless).homeless.clone()
    }

    /// The plan of a new production: queues of operations that stay or are back, and new ones for those that came,
    /// which are listed as they have no lanes yet.
    pub(super) fn plan_for(&self, production: &Arc<Production>, changes: &mut Vec<String>) -> (Plan, Vec<Arc<Queue>>) {
        let old = self.engine.plan();
        let mut kept: BTreeMap<&str, &Arc<Queue>> = old.queues.iter().map(|q| (q.name.as_str(), q)).collect();
        let mut retired = lock(&self.retired);
        let (mut queues, mut fresh) = (Vec::new(), Vec::new());
        for operation in &production.operations {
            let name = operation.name.as_str();
            let back = retired.iter().position(|queue| queue.name == name).map(|at| retired.swap_remove(at));
            if back.is_some() {
                changes.push(format!("operation {name} is back"));
            }
            let queue = match kept.remove(name).cloned().or(back) {
                Some(queue) => {
                    let before = queue.orders().borrow().operation.settings.clone();
                    if before != operation.settings {
                        changes.push(format!("operation {name} changed"));
                    }
                    if before.order() != operation.settings.order() {
                        changes.push(format!("operation {name}: its order changes at the next start"));
                    }
                    queue.order(|orders| {
                        orders.operation = Arc::clone(operation);
                        orders.retired = false;
                    });
                    queue
                }
                None => {
                    changes.push(format!("operation {name} came"));
                    fresh.push(lock(&self.homeless).queue(operation));
                    Arc::clone(&fresh[fresh.len() - 1])
                }
            };
            queues.push(queue);
        }
        for (name, queue) in kept {
            changes.push(format!("operation {name} went ({} messages still go out)", queue.depth()));
            queue.order(|orders| orders.retired = true);
            retired.push(Arc::clone(queue));
        }
        (Plan { production: Arc::clone(production), queues }, fresh)
    }

    /// Reads what waits for the operations of a production that is to be in force, and changes nothing.
    ///
    /// # Errors
    /// `AtStake`: later messages would be sent ahead of one that cannot be read.
    pub(super) fn read_homeless(&self, production: &Production) -> Result<Homeless, InteropError> {
        let reader = Reader::new(self.engine.message_log.store());
        recovery::read_homeless(&reader, production, &lock(&self.homeless))
    }

    /// Queues what waited for an operation that is back.
    pub(super) fn adopt_homeless(&self, homeless: Homeless, plan: &Plan) {
        let queued = recovery::adopt(homeless, plan, &mut lock(&self.homeless));
        if queued > 0 {
            tracing::info!(queued, "messages that waited for an operation go out now");
        }
    }
}
