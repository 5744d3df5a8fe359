//! The services of a running production: their sockets and watched folders, by name.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tokio::net::TcpListener;

use super::lock;
use super::status::ServiceStatus;
use crate::engine::{Engine, Plan, PlannedService};
use crate::error::InteropError;
use crate::patience::{FOLDER_PATIENCE, all_within};
use crate::production::{Production, Service, settings};
use crate::service::{file, mllp};

/// A service that runs.
#[derive(Debug)]
enum RunningService {
    Mllp(mllp::Listening),
    File(file::Watching),
}

impl RunningService {
    fn stop(&self) {
        match self {
            Self::Mllp(listening) => listening.stop(),
            Self::File(watching) => watching.stop(),
        }
    }
}

/// A service with its socket, bound and not yet accepting.
pub(super) struct BoundService {
    service: Arc<Service>,
    listener: Option<TcpListener>,
}

/// Binds every MLLP service of a production. A file service whose folders cannot be used, as where a share is not mounted yet
/// or hangs, keeps no node from starting: it tries that at each look, and says why it takes nothing.
///
/// # Errors
/// `Listen` with the first address that cannot be listened on.
pub(super) async fn bind_all(production: &Production) -> Result<Vec<BoundService>, InteropError> {
    let (mut all, mut folders) = (Vec::new(), Vec::new());
    for service in production.services.values() {
        if let settings::ServiceSettings::File(settings) = &service.settings {
            let settings = settings.clone();
            folders.push(((), move || file::prepare(&settings)));
            all.push(BoundService { service: Arc::clone(service), listener: None });
        } else {
            all.push(bind(service).await?);
        }
    }
    // The service itself says what is wrong, at its first look.
    drop(all_within(FOLDER_PATIENCE, folders).await);
    Ok(all)
}

/// Binds a service of a reload.
///
/// # Errors
/// As [`bind_all`]; `File` with a folder that cannot be made, or that hangs; `Refused` where a file service could not move its files.
async fn bind(service: &Arc<Service>) -> Result<BoundService, InteropError> {
    let listener = match &service.settings {
        settings::ServiceSettings::Mllp(settings) => Some(mllp::bind(service, settings.listen).await?),
        settings::ServiceSettings::File(settings) => {
            file::prepare_in_time(settings).await?;
            None
        }
    };
    Ok(BoundService { service: Arc::clone(service), listener })
}

/// A service of the production that a plan was made of.
fn planned(plan: &Arc<Plan>, name: &str) -> Arc<PlannedService> {
    PlannedService::of(plan, name).expect("its name is from there")
}

/// Whether a socket can be reached from other machines.
fn is_beyond(listener: &TcpListener) -> bool {
    listener.local_addr().is_ok_and(|address| !address.ip().is_loopback())
}

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct RunningServices {
    by_name: Mutex<BTreeMap<String, RunningService>>,
    /// At the folders of file services, also of those that a reload took away.
    turns: Arc<file::FolderTurns>,
}

impl RunningServices {
    /// Lets services of the plan in force take messages.
    pub(super) fn start(&self, engine: &Arc<Engine>, bound: Vec<BoundService>) -> Result<(), InteropError> {
        let plan = engine.plan();
        for BoundService { service, listener } in bound {
            let name = service.name.clone();
            let service = planned(&plan, &name);
            let is_plain = service.tls.is_none() && listener.as_ref().is_some_and(is_beyond);
            let running = match listener {
                Some(listener) => {
                    let listening = mllp::serve(Arc::clone(engine), service, listener)
                        .map_err(InteropError::file("listen for", &name))?;
                    tracing::info!(service = name, address = %listening.address, "listening");
                    if is_plain {
                        tracing::warn!(service = name, address = %listening.address, "messages can be read on the way: no TLS");
                    }
                    RunningService::Mllp(listening)
                }
                None => RunningService::File(file::watch(Arc::clone(engine), service, &self.turns)),
            };
            lock(&self.by_name).insert(name, running);
        }
        Ok(())
    }

    /// Binds the services of a production that cannot go on with the socket of a running one.
    pub(super) async fn bind_new(&self, production: &Production) -> Result<Vec<BoundService>, InteropError> {
        let mut bound = Vec::new();
        for service in production.services.values() {
            if !self.keeps_socket(service) {
                bound.push(bind(service).await?);
            } else if let settings::ServiceSettings::File(settings) = &service.settings {
                // It may have other folders.
                file::prepare_in_time(settings).await?;
            }
        }
        Ok(bound)
    }

    /// Whether a running service of this name can go on with its socket.
    fn keeps_socket(&self, service: &Service) -> bool {
        match (lock(&self.by_name).get(&service.name), &service.settings) {
            (Some(RunningService::Mllp(listening)), settings::ServiceSettings::Mllp(new)) => {
                match &listening.service().settings {
                    settings::ServiceSettings::Mllp(old) => old.listen == new.listen,
                    settings::ServiceSettings::File(_) => false,
                }
            }
            (Some(RunningService::File(_)), settings::ServiceSettings::File(_)) => true,
            _ => false,
        }
    }

    /// Puts the services of the plan in force in the place of those that run. Until then these go on by the plan that they have.
    pub(super) fn swap(
        &self,
        engine: &Arc<Engine>,
        bound: Vec<BoundService>,
        changes: &mut Vec<String>,
    ) -> Result<(), InteropError> {
        {
            let plan = engine.plan();
            let mut services = lock(&self.by_name);
            services.retain(|name, running| {
                let stays = plan.production.services.contains_key(name);
                if !stays {
                    changes.push(format!("service {name} went"));
                    running.stop();
                }
                stays
            });
            for BoundService { service, .. } in &bound {
                changes.push(format!("service {} listens anew", service.name));
                if let Some(old) = services.remove(&service.name) {
                    old.stop();
                }
            }
            for (name, running) in services.iter() {
                let service = planned(&plan, name);
                match running {
                    RunningService::Mllp(listening) => listening.replace(service),
                    RunningService::File(watching) => watching.replace(service),
                }
            }
        }
        self.start(engine, bound)
    }

    /// Stops all of them: no new connections or messages.
    pub(super) fn stop(&self) {
        for (_, running) in std::mem::take(&mut *lock(&self.by_name)) {
            running.stop();
        }
    }

    /// Those that run, of the production in force.
    pub(super) fn status(&self, production: &Production, now_us: i64) -> Vec<ServiceStatus> {
        let services = lock(&self.by_name);
        let status = |(name, running): (&String, &RunningService)| {
            let service = production.services.get(name)?;
            let (kind, at) = match (running, &service.settings) {
                (RunningService::Mllp(listening), _) => ("mllp", listening.address.to_string()),
                (RunningService::File(_), settings::ServiceSettings::File(file)) => {
                    ("file", file.folder.display().to_string())
                }
                (RunningService::File(_), _) => return None,
            };
            let hindered = match running {
                RunningService::Mllp(_) => String::new(),
                RunningService::File(watching) => watching.hindered(),
            };
            Some(ServiceStatus {
                name: name.clone(),
                hindered,
                kind: kind.to_owned(),
                at,
                tls: service.tls.is_some(),
                rules: service.settings.rules().map(str::to_owned),
                closed: service.settings.schedule().and_then(|schedule| schedule.words(now_us)).unwrap_or_default(),
            })
        };
        services.iter().filter_map(status).collect()
    }
}
