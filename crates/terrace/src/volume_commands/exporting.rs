//! `terrace volume export` without a node: lock, control socket and server of this process, until Ctrl-C.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use node::{Admission, Descriptors, DirectoryLock, control};
use tokio::sync::watch;

use super::report;
use crate::config::Config;
use crate::volumes::{
    ExportArgs, NodeVolumes, RunningVolumes, VolumeHost, VolumeReport, VolumeRequest, VolumeRequests,
};

/// Serves volumes until it is stopped.
pub fn run(mut config: Config, data: &Path, args: &ExportArgs) -> anyhow::Result<ExitCode> {
    let settings = config.take_services().volumes.with_flags(args.listen, args.socket.clone());
    crate::logging::begin(&config)?;
    settings.options(data)?;
    let threads = config.threads();
    let plan = config.plan_of(data)?;
    let lock = DirectoryLock::acquire_to_serve(data)?;
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
        let requests = Arc::new(VolumeRequests::of(&running, stop.clone()));
        let broken = stop.clone();
        let listened = control::listen(data, &admission, stopping.clone(), requests, move |why| {
            tracing::error!(why, "the control socket has ended");
            broken.send_replace(true);
        });
        let served = match listened {
            Ok(()) => serve(running.host(), args, stopping).await,
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
