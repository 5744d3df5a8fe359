//! Volumes that are served: their host, the server of the exports, and what asks for them.
//!
//! ```text
//!   terrace serve           RunningVolumes beside the other services; the node has the control socket
//!   terrace volume export   the same without a node: lock, control socket and server of this process, until Ctrl-C
//! ```

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use device::Device;
use interop::running::RunningProduction;
use nbd::NbdServer;
use node::control::{ProgressSender, Requests};
use node::{Admission, Descriptors, DirectoryLock, control};
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::args::ExportArgs;
use super::host::{Exports, VolumeHost};
use super::requests::{REQUEST, VolumeReport, VolumeRequest};
use super::settings::{VolumeOptions, VolumeSettings};
use super::{report, serve_args};
use crate::assemble::{TierShelves, VolumeSource};
use crate::config::Config;

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
        let options = volumes.options.clone();
        let has_tls = options.server.tls.is_some();
        let server = NbdServer::start(options.server, admission, failed)?;
        server.listen_unix(&options.socket)?;
        let socket = std::path::absolute(&options.socket).unwrap_or(options.socket);
        let mut addresses = vec![("nbd+unix:///".to_owned(), format!("?socket={}", socket.display()))];
        if let Some(listen) = options.listen {
            let bound = server.listen_tcp(listen)?;
            let scheme = if has_tls { "nbds" } else { "nbd" };
            addresses.push((format!("{scheme}://{bound}/"), String::new()));
        }
        let exports = Exports { server, runtime: Handle::current(), addresses };
        let host = volumes.host()?;
        host.start(exports)?;
        Ok(RunningVolumes { host })
    }

    /// Starts them beside the other services of a node.
    ///
    /// # Errors
    /// As [`start`](RunningVolumes::start).
    pub fn start_in(volumes: &NodeVolumes, node: &RunningProduction) -> anyhow::Result<RunningVolumes> {
        let failed = |why: &str| {
            tracing::error!(why, "the server of volumes has ended; `terrace stop` and `terrace serve` start it again")
        };
        let volumes = RunningVolumes::start(volumes, node.admission(), failed)?;
        let host = Arc::downgrade(&volumes.host);
        node.serve_requests_at_once(Box::new(move |line| {
            let request = line.strip_prefix(REQUEST)?.strip_prefix(' ')?;
            let host = host.upgrade().ok_or_else(|| "the volumes of this node are being closed".to_owned());
            Some(host.and_then(|host| answer(&host, request)))
        }));
        let host = Arc::downgrade(&volumes.host);
        node.watch_troubles(Box::new(move || host.upgrade().map(|host| host.troubles()).unwrap_or_default()));
        Ok(volumes)
    }

    /// Ends the exports. The volumes stay open until [`NodeVolumes::stop`].
    pub async fn stop(self) {
        self.host.end_exports().await;
    }
}

fn answer(host: &VolumeHost, request: &str) -> Result<Value, String> {
    let request: VolumeRequest =
        serde_json::from_str(request).map_err(|error| format!("not a request of this release: {error}"))?;
    host.handle(request).map_err(|error| format!("{error:#}"))
}

/// The control socket of a process that serves volumes only.
struct VolumeRequests {
    host: Arc<VolumeHost>,
    stop: watch::Sender<bool>,
}

impl Requests for VolumeRequests {
    async fn handle(&self, line: &str, _: ProgressSender) -> Result<Value, String> {
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

/// `terrace volume export` without a node: serves volumes until it is stopped.
pub fn run(mut config: Config, data: &Path, args: &ExportArgs) -> anyhow::Result<ExitCode> {
    let settings = config.take_services().volumes.with_flags(args.listen, args.socket.clone());
    crate::serve::log(config.log())?;
    settings.options(data)?;
    let threads = config.threads();
    let plan = config.plan(&serve_args(data))?;
    let lock = DirectoryLock::acquire(data)?;
    let volumes = NodeVolumes::new(data, &settings, plan.tiers())?;
    let runtime = crate::serve::runtime(threads)?;
    let ended = runtime.block_on(async {
        let admission = Admission::new(Descriptors::current(), 0);
        let (stop, stopping) = watch::channel(false);
        let failed = stop.clone();
        let running = RunningVolumes::start(&volumes, &admission, move |why| {
            tracing::error!(why, "the server of volumes has ended");
            failed.send_replace(true);
        })?;
        let requests = Arc::new(VolumeRequests { host: Arc::clone(&running.host), stop: stop.clone() });
        let broken = stop.clone();
        let listened = control::listen(data, &admission, stopping.clone(), requests, move |why| {
            tracing::error!(why, "the control socket has ended");
            broken.send_replace(true);
        });
        let served = match listened {
            Ok(()) => serve(&running.host, args, stopping).await,
            Err(error) => Err(error.into()),
        };
        stop.send_replace(true);
        running.stop().await;
        volumes.stop().await;
        served
    });
    drop(lock);
    ended.map(|()| ExitCode::SUCCESS)
}

async fn serve(host: &Arc<VolumeHost>, args: &ExportArgs, mut stopping: watch::Receiver<bool>) -> anyhow::Result<()> {
    for name in args.names.clone() {
        let (host, read_only) = (Arc::clone(host), args.read_only);
        let export = move || {
            host.open_now(&name)?;
            host.handle(VolumeRequest::Export { name, read_only })
        };
        let value = tokio::task::spawn_blocking(export).await.context("the export panicked")??;
        let exported: VolumeReport = serde_json::from_value(value)?;
        report::export(&exported);
    }
    println!("Ctrl-C, or `terrace stop`, ends this");
    use tokio::signal::unix::{SignalKind, signal};
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        _ = stopping.wait_for(|stop| *stop) => {}
    }
    Ok(())
}
