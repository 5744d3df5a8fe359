//! The plan for a message: a production, the queues of its operations, and how outputs are stored.
//!
//! Invariant: the rules of a service name operations and transforms by their places in the production that they were compiled with. So
//! whoever takes messages in holds a service with its plan, as a [`PlannedService`]: what its rules decide is carried out by that
//! plan, also where another one was put in force meanwhile. The queues of a plan that is in force no more live on.

use std::ops::Deref;
use std::sync::Arc;

use crate::production::{Production, Service};
use crate::queue::Queue;

/// How outputs are stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Bodies {
    /// Only what the transform changed, with references into the message as received.
    #[default]
    Delta,
    /// Whole.
    Full,
}

/// A production with the queues of its operations, in the same order.
#[derive(Debug)]
pub struct Plan {
    /// The production.
    pub production: Arc<Production>,
    /// One queue an operation.
    pub queues: Vec<Arc<Queue>>,
}

/// A service, with the plan that it is of.
#[derive(Debug)]
pub struct PlannedService {
    service: Arc<Service>,
    plan: Arc<Plan>,
}

impl PlannedService {
    /// The service of a name; none if the plan's production has none.
    pub fn of(plan: &Arc<Plan>, name: &str) -> Option<Arc<PlannedService>> {
        let service = Arc::clone(plan.production.services.get(name)?);
        Some(Arc::new(PlannedService { service, plan: Arc::clone(plan) }))
    }

    /// The plan.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }
}

impl Deref for PlannedService {
    type Target = Service;

    fn deref(&self) -> &Service {
        &self.service
    }
}
