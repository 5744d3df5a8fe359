//! `terrace serve`, `stop`, `status`: a node and its neighbours.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use interop::running::{NodeStatus, Origin, RunningProduction};
use node::backups::BackupRecord;
use node::status::{ModelStatus, PlaceStatus};
use node::trouble::Trouble;
use node::{AdmissionStatus, Descriptors, DirectoryLock, control};
use node_metrics::alerts::AlertRules;

use crate::access;
use crate::alerts::{self, KeeperPlace, RunningAlerts};
use crate::assemble::Assembled;
use crate::cli::{ClockCommand, Place, ServeArgs, StatusArgs};
use crate::config::{Config, FILE};
use crate::connections;
use crate::history::RunningHistory;
use crate::logging;
use crate::metrics::RunningMetrics;
use crate::operations;
use crate::profiles;
use crate::rewrite_command;
use crate::services::Services;
use crate::show::{TextTable, bytes, count, time};
use crate::supervision::Supervision;
use crate::volumes::NodeVolumes;

/// How long the end of a node waits for threads in a file system that hangs. The store is closed before.
const HANGING_GRACE: Duration = Duration::from_secs(30);

/// Runs a node until it is stopped (SIGTERM, SIGINT, `terrace stop`). A node that has failed keeps running: stored data
/// can be read, and senders and `terrace status` get the reason.
pub fn run(args: &ServeArgs) -> anyhow::Result<ExitCode> {
    Descriptors::current().enough()?;
    let config = Config::read(args.config.as_deref())?;
    logging::begin(&config)?;
    logging::ended(serve(args, config))
}

fn serve(args: &ServeArgs, mut config: Config) -> anyhow::Result<ExitCode> {
    let mut services = config.take_services();
    let supervision = Supervision::begin()?;
    let (runtime, keeps_history) = (runtime(config.threads())?, config.history());
    let plan = config.plan(args)?;
    // Settings that cannot work are refused before anything is made or listened on.
    services.check(&plan.options().data, &plan.placed_search())?;
    if node::encryption::is_encrypted(&plan.options().data)? {
        tracing::warn!(
            encrypted = node::encryption::COVERED,
            in_clear = node::encryption::NOT_COVERED,
            "the data directory is encrypted"
        );
    }
    plan.tiers().list_in(plan.options().admission.connections());
    let volumes = NodeVolumes::new(&plan.options().data, &services.volumes, plan.tiers())?;
    let rules = alerts::read(args.config.as_deref())?;
    let production = match &plan.options().origin {
        Origin::Folder(folder) => Some(folder.clone()),
        Origin::StoreOnly(_) => None,
    };
    let metrics = services.metrics.take().map(|metrics| metrics.listen(plan.options())).transpose()?;
    let ended: anyhow::Result<ExitCode> = runtime.block_on(async move {
        let assembled = match plan.start().await {
            Ok(assembled) => assembled,
            Err(error) => {
                stop_metrics(metrics).await;
                volumes.stop().await;
                return Err(error);
            }
        };
        let node = &assembled.node;
        access::renew_with(node, args.config.as_deref());
        connections::serve(node);
        if production.is_none() {
            tracing::warn!("no production folder: messages are stored and go nowhere; `terrace production new production` writes one");
        }
        let services = match services.start(node, assembled.search.clone(), &volumes).await {
            Ok(services) => services,
            Err(error) => {
                stop_metrics(metrics).await;
                assembled.stop().await;
                volumes.stop().await;
                return Err(error);
            }
        };
        let watching = Watching { rules, settings: args.config.as_deref(), production, keeps_history };
        let watches = match watching.start(&assembled, &services, metrics.as_ref()) {
            Ok(watches) => watches,
            Err(error) => {
                services.stop().await;
                stop_metrics(metrics).await;
                assembled.stop().await;
                volumes.stop().await;
                return Err(error);
            }
        };
        node.services_started();
        node.admission().check(node.outgoing());
        tracing::info!(data = %node.data().display(), "ready");
        let watched = supervision.ready(node);
        until_the_end(node).await?;
        watched.stopping();
        end(assembled, services, (metrics, watches), &volumes).await
    });
    // What hangs in a file system of others, as a share whose server is gone, would hold up the end for ever.
    runtime.shutdown_timeout(HANGING_GRACE);
    ended
}

/// Ends a node and what runs beside it. Errors: why it had failed, if it had.
async fn end(
    assembled: Assembled,
    services: Services,
    (metrics, (alerts, history)): (Option<RunningMetrics>, Watches),
    volumes: &NodeVolumes,
) -> anyhow::Result<ExitCode> {
    let failure = assembled.node.failed().borrow().clone();
    if let Some(metrics) = &metrics {
        metrics.ends();
    }
    alerts.stop().await;
    history.stop().await;
    services.stop().await;
    // Their figures are those of an open store.
    stop_metrics(metrics).await;
    assembled.stop().await;
    // After the store, which may lie on them.
    volumes.stop().await;
    match failure {
        None => Ok(ExitCode::SUCCESS),
        Some(cause) => {
            anyhow::bail!(
                "the node had failed, and nothing more was acknowledged: {cause}; check the medium, then start again"
            )
        }
    }
}

/// What looks at the figures of a node.
type Watches = (RunningAlerts, RunningHistory);

/// What is needed to look at the figures of a node.
struct Watching<'a> {
    /// Rules of alerts, where there is a file.
    rules: Option<AlertRules>,
    settings: Option<&'a Path>,
    production: Option<PathBuf>,
    keeps_history: bool,
}

impl Watching<'_> {
    /// Serves the figures of a node that runs, watches and keeps them.
    fn start(
        self,
        assembled: &Assembled,
        services: &Services,
        metrics: Option<&RunningMetrics>,
    ) -> anyhow::Result<Watches> {
        let (keeper, node) = (KeeperPlace::default(), &assembled.node);
        let mut others = services.sources();
        others.push(alerts::source(&keeper));
        let settings = self.settings.unwrap_or(Path::new(FILE)).to_owned();
        others.push(crate::metrics::certificates(settings, self.production));
        let snapshots = crate::metrics::snapshots(assembled, others);
        if let Some(metrics) = metrics {
            metrics.serve(node, &snapshots);
        }
        let history = RunningHistory::start(node, &snapshots, self.keeps_history)?;
        let alerts = RunningAlerts::start(node, (self.rules, self.settings), &snapshots, &keeper)?;
        Ok((alerts, history))
    }
}

/// Ends the listener of metrics, if there is one.
async fn stop_metrics(metrics: Option<RunningMetrics>) {
    if let Some(metrics) = metrics {
        metrics.stop().await;
    }
}

/// The runtime of sockets.
pub fn runtime(threads: usize) -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_name("node")
        .enable_all()
        .build()
        .context("the runtime cannot start")
}

/// Waits for a reason to end.
async fn until_the_end(node: &RunningProduction) -> anyhow::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut stopping = node.stopping();
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        _ = stopping.wait_for(|stop| *stop) => {}
    }
    Ok(())
}

/// How long a node may take to end: connections and lanes have 5 s each, then changed pages are written.
const END_PATIENCE: Duration = Duration::from_secs(300);

/// Stops the node on a data directory, and waits until it has ended: another one can be started then.
pub fn stop(place: &Place) -> anyhow::Result<ExitCode> {
    control::request(&place.data, "stop")?;
    anyhow::ensure!(
        DirectoryLock::wait_for_end(&place.data, END_PATIENCE)?,
        "the node is stopping, and has not ended after {} s; its log shows the reason",
        END_PATIENCE.as_secs()
    );
    Ok(ExitCode::SUCCESS)
}

/// Has a node read its production, and the certificates of all its ports, again.
pub fn reload(place: &Place) -> anyhow::Result<ExitCode> {
    let changes = control::request(&place.data, "reload")?;
    let changes: Vec<String> = serde_json::from_value(changes)?;
    println!("reloaded; connections stayed open");
    changes.iter().for_each(|change| println!("  {change}"));
    Ok(ExitCode::SUCCESS)
}

/// `terrace clock confirm`
pub fn clock(command: &ClockCommand) -> anyhow::Result<ExitCode> {
    let ClockCommand::Confirm(place) = command;
    control::request(&place.data, "confirm-clock")?;
    println!("the clock counts as right");
    Ok(ExitCode::SUCCESS)
}

/// Shows what a node is doing; exit code 1 where something is the matter.
pub fn status(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    let mut answer = control::request(&args.place.data, "status")?;
    let profile = profiles::of_running(&args.place.data);
    let status: NodeStatus =
        serde_json::from_value(answer.clone()).context("the node's status cannot be read by this release")?;
    let well = status.troubles.is_empty() && status.quarantined.is_empty();
    let code = if well { ExitCode::SUCCESS } else { ExitCode::from(1) };
    if args.json {
        if let Some(profile) = profile {
            answer["profile"] = serde_json::json!(profile);
        }
        println!("{answer:#}");
        return Ok(code);
    }
    for Trouble { matter, since_us, reason, next } in &status.troubles {
        println!("{} since {}: {reason}\n  next: {next}\n", matter.name(), time(*since_us));
    }
    println!("production {}, process {}, data in {}\n", status.production, status.pid, status.data.display());
    let mut services = TextTable::new(&["service", "kind", "at", "tls", "rules"]);
    for s in &status.services {
        let tls = if s.tls { "yes" } else { "no" };
        services.row(&[&s.name, &s.kind, &s.at, tls, s.rules.as_deref().unwrap_or("-")]);
    }
    println!("{services}");
    for s in status.services.iter().filter(|service| !service.closed.is_empty()) {
        println!("{}: {}; senders are disconnected, and files stay where they are\n", s.name, s.closed);
    }
    for s in status.services.iter().filter(|service| !service.hindered.is_empty()) {
        println!("{}: {}\n", s.name, s.hindered);
    }
    let headings = ["operation", "waiting", "in memory", "delivered", "failed", "set aside", "retried", "state"];
    let mut table = TextTable::new(&headings);
    for o in &status.operations {
        table.row(&[
            &o.name,
            &count(o.waiting as u64),
            &bytes(o.memory_bytes as u64),
            &count(o.delivered),
            &count(o.failed),
            &count(o.set_aside),
            &count(o.retried),
            operations::state(o),
        ]);
    }
    println!("{table}");
    for o in status.operations.iter().filter(|operation| !operation.cause.is_empty()) {
        let oldest = o.oldest.map_or_else(String::new, |id| format!(" (the oldest is message {id})"));
        println!("{}: {}{oldest}\n", o.name, o.cause);
    }
    println!("{}", sockets(&status.admission));
    println!("{}", totals(&status));
    status.backup.iter().for_each(print_backups);
    for (operation, waiting) in &status.homeless {
        println!("{waiting} messages wait for operation {operation}, which the production does not have");
    }
    if let Some(rewrite) = rewrite_command::of_running(&args.place.data) {
        println!("{}", rewrite_command::line(&rewrite));
    }
    profile.iter().flat_map(profiles::status_lines).for_each(|line| println!("{line}"));
    print_quarantined(&status);
    Ok(code)
}

/// The last good backup by schedule, and why the last try failed.
fn print_backups(record: &BackupRecord) {
    match &record.good {
        Some(good) => {
            let checked =
                if good.verified { "its pages and journal were read back" } else { "its pages were read back" };
            println!("last backup: {}, of {}, {checked}", good.folder.display(), time(good.began_us));
        }
        None => println!("last backup: none was made yet"),
    }
    if let Some(failed) = &record.failed {
        println!(
            "the last try failed {} ({} in a row): {}",
            time(failed.at_us),
            count(failed.tries.into()),
            failed.why
        );
        println!("  next: correct that; it is tried again every 15 min, or make one by `terrace backup FOLDER`");
    }
    println!();
}

/// The damage, and what to do about it.
fn print_quarantined(status: &NodeStatus) {
    if status.quarantined.is_empty() {
        return;
    }
    println!("\n{} pages are damaged and set aside; all else goes on:", count(status.store.pages_quarantined));
    for damaged in &status.quarantined {
        println!("damaged: tree {}: {}", damaged.tree, damaged.why);
    }
    println!("`terrace verify` checks all data; with the node stopped, `terrace repair` shows what can be repaired");
}

/// The connections of each service, and those refused and ended since the start.
fn sockets(admission: &AdmissionStatus) -> TextTable {
    let mut table =
        TextTable::new(&["connections", "open", "proven", "of", "of one address", "frames hold", "refused", "ended"]);
    for door in &admission.doors {
        let name =
            if door.kind == door.service { door.kind.clone() } else { format!("{} {}", door.kind, door.service) };
        table.row(&[
            &name,
            &count(door.open as u64),
            &count(door.proven as u64),
            &count(door.bound as u64),
            &count(door.of_address as u64),
            &bytes(door.frame_bytes),
            &reasons(&door.refused),
            &reasons(&door.ended),
        ]);
    }
    table
}

/// How many, and why.
fn reasons(counts: &BTreeMap<String, u64>) -> String {
    let all: Vec<String> = counts.iter().map(|(reason, times)| format!("{reason}: {}", count(*times))).collect();
    if all.is_empty() { "-".to_owned() } else { all.join(", ") }
}

/// The node's counts and measurements since its start.
fn totals(status: &NodeStatus) -> TextTable {
    let mut totals = TextTable::new(&["since the start", ""]);
    for (name, value) in [
        ("messages stored", status.stored),
        ("outputs made", status.outputs),
        ("messages refused", status.refused),
        ("duplicates", status.duplicates),
        ("refused, disk full", status.full),
        ("removed beyond the retention", status.pruned),
        ("given up for a full disk", status.pruned_full),
        ("bytes outside frames", status.junk_bytes),
        ("partial frames", status.partial),
        ("over the size bound", status.oversize),
        ("connections open", status.connections),
        ("failed logins, lately", status.failed_logins),
        ("journal writes", status.journal.writes),
    ] {
        totals.row(&[name, &count(value)]);
    }
    let admission = &status.admission;
    let open = admission.descriptors_open.map_or_else(|| "an unknown number".to_owned(), count);
    let (limit, kept) = (count(admission.descriptors_limit), count(admission.descriptors_reserved));
    totals.row(&["descriptors open", &format!("{open} of {limit}, {kept} kept for storage")]);
    let frames = format!("{} of {}", bytes(admission.frame_bytes), bytes(admission.frame_bytes_max));
    totals.row(&["unfinished frames hold", &frames]);
    for (name, value) in [
        ("journal lies on", status.journal.tier.as_str()),
        ("journal's medium", &status.journal.device),
        ("journal's durability", &status.journal.durability),
        ("journal is real or modelled", if status.journal.real { "real" } else { "modelled" }),
    ] {
        totals.row(&[name, value]);
    }
    totals.row(&["journal written", &bytes(status.journal.bytes)]);
    let store = &status.store;
    totals.row(&[
        "cache",
        &format!("{} of {}, {} behind it", store.cache_mode, bytes(store.near_bytes), bytes(store.far_bytes)),
    ]);
    for (name, place) in places(status) {
        totals.row(&[name, &lies_on(place)]);
    }
    for model in &status.models {
        totals.row(&[&format!("late on tier {}", model.tier), &late(model)]);
    }
    totals.row(&["found in the cache", &found(store.cache_hits, store.cache_misses)]);
    if store.external_hits + store.external_misses > 0 {
        totals.row(&["of it external files", &found(store.external_hits, store.external_misses)]);
    }
    if store.far_bytes > 0 {
        let text = format!("{} in near memory, {} in far memory", count(store.near_hits), count(store.far_hits));
        totals.row(&["of it by tier", &text]);
    }
    totals.row(&["pages", &format!("{} of {} in use", count(store.pages_used), count(store.pages))]);
    totals.row(&["pages read", &format!("{} in {} reads", bytes(store.read_bytes), count(store.reads))]);
    totals.row(&["pages written", &format!("{} in {} writes", bytes(store.written_bytes), count(store.writes))]);
    let checkpoints = format!("{}, the last took {} ms", count(store.cycles), count(store.last_cycle_ms));
    totals.row(&["checkpoints", &checkpoints]);
    let images = format!("{} of {} pages", bytes(store.image_bytes), count(store.image_pages));
    totals.row(&["write images", &images]);
    totals.row(&["updates waited for a checkpoint", &count(store.cycle_waits)]);
    totals.row(&["not in the pages yet", &bytes(store.dirty_bytes)]);
    totals.row(&["journal kept", &bytes(status.journal.durable - status.journal.first)]);
    totals
}

/// What lies on a tier besides the journal and the cache.
fn places(status: &NodeStatus) -> impl Iterator<Item = (&'static str, &PlaceStatus)> {
    let all = [
        ("far memory lies on", status.store.far.as_ref()),
        ("write images lie on", Some(&status.images)),
        ("pages lie on", Some(&status.data_pages)),
        ("index files lie on", status.search.as_ref()),
        ("large index files lie on", status.search_capacity.as_ref()),
    ];
    all.into_iter().filter_map(|(name, place)| Some((name, place?)))
}

/// Tier and medium of a structure; a model is named as one by the medium's own words.
fn lies_on(place: &PlaceStatus) -> String {
    format!("{}: {}, {}", place.tier, place.device, if place.real { "real" } else { "modelled" })
}

/// How many accesses took longer on the host than on the medium: these measured the host.
fn late(model: &ModelStatus) -> String {
    let ModelStatus { medium, modules, accesses, late, late_us, .. } = model;
    let (late, accesses, late_us) = (count(*late), count(*accesses), count(*late_us));
    format!("{late} of {accesses} accesses, {late_us} us together (modelled {modules} x {medium})")
}

/// Hits of all lookups.
fn found(hits: u64, misses: u64) -> String {
    format!("{} of {}", count(hits), count(hits + misses))
}
