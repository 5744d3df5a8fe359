//! Volumes that are served: their host, the server of the exports, and what asks for them.
//!
//! ```text
//!   terrace serve           RunningVolumes beside the other services; the node has the control socket
//!   terrace volume export   the same without a node: lock, control socket and server of this process, until Ctrl-C
//! ```

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use anyhow::Context;
use device::Device;
use interop::InteropError;
use interop::running::{Audited, Needs, Renewed, Requirement, RunningProduction, ServiceRequest};
use nbd::{NbdServer, ServerOptions, ServerRights};
use node::Admission;
use node::audit::AuditEntry;
use node::control::{LocalPeer, ProgressSender, Requests};
use node::identity::{Caller, Guard, Object};
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::host::{Exports, VolumeHost};
use super::requests::{REQUEST, VolumeRequest};
use super::rights::{self, Concerned};
use super::settings::{VolumeOptions, VolumeSettings};
use crate::assemble::{OwnExports, TierShelves, VolumeSource};

/// How long listening waits for volumes to be opened.
const OPEN_PATIENCE: Duration = Duration::from_secs(5);

/// The volumes of a node that starts: made when the first tier needs one, or when they are served; the lock of the data directory is held
/// by then.
#[derive(Debug)]
pub struct NodeVolumes {
    data: PathBuf,
    options: VolumeOptions,
    tiers: TierShelves,
    host: Mutex<Option<Arc<VolumeHost>>>,
}

impl NodeVolumes {
    /// Those of a data directory, with checked settings. Tiers of kind volume take theirs from here.
    ///
    /// # Errors
    /// A setting that cannot work, by its name.
    pub fn new(data: &Path, settings: &VolumeSettings, tiers: &TierShelves) -> anyhow::Result<Arc<NodeVolumes>> {
        let (data, options) = (data.to_owned(), settings.options(data)?);
        let volumes = Arc::new(NodeVolumes { data, options, tiers: tiers.clone(), host: Mutex::default() });
        tiers.reach_with(volumes.options.client.clone());
        tiers.exports_are(OwnExports { socket: volumes.options.socket.clone(), listen: volumes.options.listen });
        tiers.take_volumes_from(Arc::clone(&volumes) as Arc<dyn VolumeSource>);
        Ok(volumes)
    }

    fn host(&self) -> anyhow::Result<Arc<VolumeHost>> {
        let mut host = self.host.lock().unwrap_or_else(PoisonError::into_inner);
        if host.is_none() {
            *host = Some(VolumeHost::new(&self.data, &self.tiers, self.options.scrub)?);
        }
        Ok(Arc::clone(host.as_ref().expect("it was made")))
    }

    /// Closes all volumes, after the node's store; also those of a node that did not start.
    pub async fn stop(&self) {
        let host = self.host.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(host) = host {
            host.stop().await;
        }
    }
}

impl VolumeSource for NodeVolumes {
    fn take(&self, name: &str) -> anyhow::Result<Arc<dyn Device>> {
        self.host()?.take(name)
    }
}

/// Volumes of a process that are served, until that is stopped.
#[derive(Debug)]
pub struct RunningVolumes {
    host: Arc<VolumeHost>,
}

impl RunningVolumes {
    /// Opens all volumes of a data directory, whose lock the caller has, and listens. Called inside a runtime.
    ///
    /// # Errors
    /// An address cannot be listened on; a certificate cannot be read.
    pub fn start(
        volumes: &NodeVolumes,
        admission: &Arc<Admission>,
        failed: impl Fn(&str) + Send + Sync + 'static,
    ) -> anyhow::Result<RunningVolumes> {
        let running = RunningVolumes::open(volumes, admission, None, failed)?;
        running.listen(&volumes.options)?;
        Ok(running)
    }

    /// Starts them beside the other services of a node.
    ///
    /// # Errors
    /// As [`start`](RunningVolumes::start).
    pub fn start_in(volumes: &NodeVolumes, node: &RunningProduction) -> anyhow::Result<RunningVolumes> {
        let failed = |why: &str| {
            tracing::error!(why, "the server of volumes has ended; `terrace stop` and `terrace serve` start it again")
        };
        let rights = rights_of(&volumes.options, node);
        volumes.host()?.profile.pass_to(node.store().access_tap());
        let running = RunningVolumes::open(volumes, node.admission(), Some(rights), failed)?;
        // Requests are answered while volumes are still being opened.
        let (host, guard) = (Arc::downgrade(&running.host), Arc::clone(node.guard()));
        node.serve_requests(
            REQUEST,
            true,
            Box::new(move |text| {
                let (host, guard) = (Weak::clone(&host), Arc::clone(&guard));
                Ok(Box::new(GuardedRequest { host, guard, request: read(text)? }))
            }),
        );
        running.renew_with(node, &volumes.options);
        let host = Arc::downgrade(&running.host);
        node.watch_troubles(Box::new(move || host.upgrade().map(|host| host.troubles()).unwrap_or_default()));
        running.listen(&volumes.options)?;
        Ok(running)
    }

    /// Has a reload of the node read the certificates again.
    fn renew_with(&self, node: &RunningProduction, options: &VolumeOptions) {
        if options.server.tls.is_none() {
            return;
        }
        let host = Arc::downgrade(&self.host);
        node.on_reload(Box::new(move || -> Result<Renewed, InteropError> {
            let host = host.upgrade();
            let exports = host.as_ref().and_then(|host| host.exports());
            let Some(exports) = exports else { return Ok(Box::new(Vec::new)) };
            let renew = exports.server.renew().map_err(|error| InteropError::Refused(format!("volumes: {error}")))?;
            Ok(Box::new(move || {
                renew();
                vec!["volumes: certificates and revocations were read again".to_owned()]
            }))
        }));
    }

    /// Begins to open all volumes, and to keep them open.
    fn open(
        volumes: &NodeVolumes,
        admission: &Arc<Admission>,
        rights: Option<ServerRights>,
        failed: impl Fn(&str) + Send + Sync + 'static,
    ) -> anyhow::Result<RunningVolumes> {
        let options = ServerOptions { rights, ..volumes.options.server.clone() };
        let server = NbdServer::start(options, admission, failed)?;
        let host = volumes.host()?;
        host.start(Exports { server, runtime: Handle::current(), addresses: parking_lot::Mutex::default() })?;
        Ok(RunningVolumes { host })
    }

    fn listen(&self, options: &VolumeOptions) -> anyhow::Result<()> {
        // A client that connects again after a restart finds its export, unless opening it takes long.
        tokio::task::block_in_place(|| self.host.wait_tried(OPEN_PATIENCE));
        let exports = self.host.exports().context("it was started")?;
        exports.server.listen_unix(&options.socket)?;
        let socket = std::path::absolute(&options.socket).unwrap_or_else(|_| options.socket.clone());
        let mut addresses = vec![("nbd+unix:///".to_owned(), format!("?socket={}", socket.display()))];
        if let Some(listen) = options.listen {
            let bound = exports.server.listen_tcp(listen)?;
            let scheme = if options.server.tls.is_some() { "nbds" } else { "nbd" };
            addresses.push((format!("{scheme}://{bound}/"), String::new()));
        }
        *exports.addresses.lock() = addresses;
        Ok(())
    }

    /// What answers requests about them.
    pub fn host(&self) -> &Arc<VolumeHost> {
        &self.host
    }

    /// Ends the exports. The volumes stay open until [`NodeVolumes::stop`].
    pub async fn stop(self) {
        self.host.end_exports().await;
    }
}

/// The rights of a node, for its exports.
fn rights_of(options: &VolumeOptions, node: &RunningProduction) -> ServerRights {
    let asks_for_certificates = options.server.tls.as_ref().is_some_and(|tls| tls.client_authority.is_some());
    match (&options.anonymous, options.listen) {
        (Some(role), Some(_)) => tracing::warn!(
            role,
            "[volumes] anonymous: every program of this machine opens exports over TCP with the rights of this role"
        ),
        (None, Some(listen)) if !asks_for_certificates => tracing::warn!(
            %listen,
            "nobody can open an export over TCP: set client_authority under [volumes], or anonymous for this machine"
        ),
        _ => {}
    }
    let (guard, audit) = (Arc::clone(node.guard()), Some(Arc::clone(node.audit())));
    ServerRights { guard, anonymous: options.anonymous.clone(), audit }
}

fn answer(host: &VolumeHost, request: &str) -> Result<Value, String> {
    host.handle(read(request)?).map_err(|error| format!("{error:#}"))
}

fn read(request: &str) -> Result<VolumeRequest, String> {
    serde_json::from_str(request).map_err(|error| format!("not a request of this release: {error}"))
}

/// A request over the control socket of a node, which has rights.
struct GuardedRequest {
    host: Weak<VolumeHost>,
    guard: Arc<Guard>,
    request: VolumeRequest,
}

impl ServiceRequest for GuardedRequest {
    fn requirement(&self) -> Requirement<'_> {
        let (action, concerned) = rights::action_of(&self.request);
        let names = match concerned {
            Concerned::Named(names) => names,
            Concerned::All => &[],
        };
        let needs = match names {
            [name] => Needs::Right(action, Object::Volume(name)),
            // Each of several is asked for with its answer, and of all those are shown that may be seen.
            _ => Needs::Some(action),
        };
        let entry = action.is_audited().then(|| {
            // What else it says, such as sizes and copies; a key file is a path, and no key.
            let text = serde_json::to_value(&self.request).unwrap_or_default();
            let verb = text["verb"].as_str().unwrap_or_default();
            let entry = AuditEntry::new(format!("volume.{verb}"), names.first().map_or("", String::as_str));
            (Audited::Change, entry.with_long("request", &text.to_string()))
        });
        Requirement { needs, entry }
    }

    fn answer(&self, caller: &Caller) -> Result<Value, String> {
        let host = self.host.upgrade().ok_or("the volumes of this node are being closed")?;
        rights::handle(&host, &self.guard.view(), caller, self.request.clone()).map_err(|error| format!("{error:#}"))
    }
}

/// The control socket of a process that serves volumes only. It has no store, so no roles: who can open the socket may do all, as
/// who can read the files can.
#[derive(Debug)]
pub struct VolumeRequests {
    host: Arc<VolumeHost>,
    stop: watch::Sender<bool>,
}

impl VolumeRequests {
    /// Those of running volumes; `stop` is set when the process is asked to end.
    pub fn of(volumes: &RunningVolumes, stop: watch::Sender<bool>) -> VolumeRequests {
        VolumeRequests { host: Arc::clone(&volumes.host), stop }
    }
}

impl Requests for VolumeRequests {
    async fn handle(&self, line: &str, _: &LocalPeer, _: ProgressSender) -> Result<Value, String> {
        if line == "stop" {
            self.stop.send_replace(true);
            return Ok(Value::Null);
        }
        let Some(request) = line.strip_prefix(REQUEST).and_then(|line| line.strip_prefix(' ')) else {
            return Err(
                "this process serves volumes only: `terrace volume status`, or start `terrace serve`".to_owned()
            );
        };
        let (host, request) = (Arc::clone(&self.host), request.to_owned());
        let answered = tokio::task::spawn_blocking(move || answer(&host, &request)).await;
        answered.unwrap_or_else(|_| Err("the request panicked: see the output of the process".to_owned()))
    }
}
