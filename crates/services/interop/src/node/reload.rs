//! Starting services, and putting a changed production in force while messages flow.
//!
//! A reload compares by name. A service that keeps its address keeps its socket and connections and uses the new rules
//! from its next message on; one whose address or kind changed listens anew. An operation that stays keeps its queue
//! and takes the new settings with its next message (its key and lanes are fixed until a restart, since moving
//! messages between lanes would break their order); one that went away keeps sending what it has, with its old
//! settings, and then ends.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::net::TcpListener;

use super::{Node, Running, load, lock};
use crate::engine::Plan;
use crate::error::InteropError;
use crate::production::{Production, Service, settings};
use crate::queue::Queue;
use crate::service::{file, mllp};

/// A service with its socket, bound and not yet accepting.
pub(super) struct Ready {
    service: Arc<Service>,
    listener: Option<TcpListener>,
}

/// Binds every MLLP service of a production.
pub(super) async fn bind_all(production: &Production) -> Result<Vec<Ready>, InteropError> {
    let mut all = Vec::new();
    for service in production.services.values() {
        all.push(bind(service).await?);
    }
    Ok(all)
}

async fn bind(service: &Arc<Service>) -> Result<Ready, InteropError> {
    let listener = match &service.settings {
        settings::Service::Mllp(settings) => Some(mllp::bind(service, settings.listen).await?),
        settings::Service::File(settings) => {
            file::prepare(settings)?;
            None
        }
    };
    Ok(Ready { service: Arc::clone(service), listener })
}

/// Whether a socket can be reached from other machines.
fn is_beyond(listener: &TcpListener) -> bool {
    listener.local_addr().is_ok_and(|address| !address.ip().is_loopback())
}

/// Reads again what another service of the process has of its own, and answers how to put it in force, which cannot fail.
pub type Renew = dyn Fn() -> Result<Renewed, InteropError> + Send + Sync;

/// Puts in force what was read; what changed, for people.
pub type Renewed = Box<dyn FnOnce() -> Vec<String> + Send>;

impl Node {
    /// From now on a reload asks `renew` too: before anything is changed, and whole or not at all.
    pub fn on_reload(&self, renew: Box<Renew>) {
        lock(&self.renewals).push(renew);
    }

    pub(super) fn start_services(&self, ready: Vec<Ready>) -> Result<(), InteropError> {
        for Ready { service, listener } in ready {
            let name = service.name.clone();
            let is_plain = service.tls.is_none() && listener.as_ref().is_some_and(is_beyond);
            let running = match listener {
                Some(listener) => {
                    let listening = mllp::serve(Arc::clone(&self.engine), service, listener)
                        .map_err(InteropError::file("listen for", &name))?;
                    tracing::info!(service = name, address = %listening.address, "listening");
                    if is_plain {
                        tracing::warn!(service = name, address = %listening.address, "messages can be read on the way: no TLS");
                    }
                    Running::Mllp(listening)
                }
                None => Running::File(file::watch(Arc::clone(&self.engine), service)),
            };
            lock(&self.services).insert(name, running);
        }
        Ok(())
    }

    /// Reads the production folder again and puts it in force. What it says changed.
    ///
    /// # Errors
    /// The production is wrong or an address is taken: the old one stays in force, whole.
    pub async fn reload(&self) -> Result<Vec<String>, InteropError> {
        let _one = self.reloading.lock().await;
        let production = Arc::new(load(&self.options)?);
        let mut changes = Vec::new();
        // Everything that can fail comes first.
        let mut ready = Vec::new();
        for service in production.services.values() {
            if !self.keeps_socket(service) {
                ready.push(bind(service).await?);
            }
        }
        let renewed = lock(&self.renewals).iter().map(|renew| renew()).collect::<Result<Vec<_>, _>>()?;
        let (plan, fresh) = self.plan_for(&production, &mut changes);
        // Before anybody can put a newer message in front of them.
        self.adopt_homeless(&plan)?;
        self.engine.replace_plan(plan);
        self.start_lanes(&fresh);
        self.swap_services(&production, ready, &mut changes)?;
        changes.extend(renewed.into_iter().flat_map(|renewed| renewed()));
        super::status::write_ready(self);
        tracing::info!(changes = changes.len(), "production reloaded");
        Ok(changes)
    }

    /// Whether a running service of this name can go on with its socket.
    fn keeps_socket(&self, service: &Service) -> bool {
        match (lock(&self.services).get(&service.name), &service.settings) {
            (Some(Running::Mllp(listening)), settings::Service::Mllp(new)) => match &listening.service().settings {
                settings::Service::Mllp(old) => old.listen == new.listen,
                settings::Service::File(_) => false,
            },
            (Some(Running::File(_)), settings::Service::File(_)) => true,
            _ => false,
        }
    }

    /// The plan of a new production: queues of operations that stay or are back, and new ones for those that came,
    /// which are listed as they have no lanes yet.
    fn plan_for(&self, production: &Arc<Production>, changes: &mut Vec<String>) -> (Plan, Vec<Arc<Queue>>) {
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
                    let suspended = lock(&self.homeless).suspended.contains(name);
                    fresh.push(Arc::new(Queue::new(Arc::clone(operation), suspended)));
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

    fn swap_services(
        &self,
        production: &Production,
        ready: Vec<Ready>,
        changes: &mut Vec<String>,
    ) -> Result<(), InteropError> {
        {
            let mut services = lock(&self.services);
            services.retain(|name, running| {
                let stays = production.services.contains_key(name);
                if !stays {
                    changes.push(format!("service {name} went"));
                    running.stop();
                }
                stays
            });
            for Ready { service, .. } in &ready {
                changes.push(format!("service {} listens anew", service.name));
                if let Some(old) = services.remove(&service.name) {
                    old.stop();
                }
            }
            for (name, running) in services.iter() {
                let service = Arc::clone(&production.services[name]);
                match running {
                    Running::Mllp(listening) => listening.replace(service),
                    Running::File(watching) => watching.replace(service),
                }
            }
        }
        self.start_services(ready)
    }

    /// Queues what waited for an operation that is back.
    fn adopt_homeless(&self, plan: &Plan) -> Result<(), InteropError> {
        let mut found = lock(&self.homeless);
        found.homeless.clear();
        let reader = crate::rows::Reader::new(self.engine.ledger.store());
        let queued = crate::recovery::requeue(&reader, plan, &mut found)?;
        if queued > 0 {
            tracing::info!(queued, "messages that waited for an operation go out now");
        }
        Ok(())
    }
}
