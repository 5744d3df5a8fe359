//! Metrics and health of a node over HTTP: the settings, the listener, and where the figures come from.
//!
//! ```text
//!   [metrics] of terrace.toml --> MetricsSettings --listen--> RunningMetrics, before the store is opened: /healthz, /readyz
//!                                                                  |  serve, once the node runs
//!   node, store, tiers, sql, search, volumes, process --sources--> /metrics
//! ```
//!
//! Sources take counters and short locks, never one that a message waits for longer than for a copy of some numbers; they are asked at
//! most once a second, on threads of the listener.

mod process;
mod sources;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use interop::running::{Options, RunningProduction};
use node::trouble::Matter;
use node_metrics::{MetricsOptions, MetricsServer, Served, Snapshots, Source};
use serde::Deserialize;

use crate::assemble::Assembled;
use crate::listeners::{self, TlsKeys};

#[cfg(feature = "search")]
pub use sources::search;
#[cfg(feature = "sql")]
pub use sources::sql;
pub use sources::{certificates, volumes};

/// `[metrics]`: there is a listener where the table is there.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MetricsSettings {
    /// Address to listen on. Default 127.0.0.1:9464. Beyond this machine TLS is a must.
    listen: Option<SocketAddr>,
    /// Requests from this machine need no token. Default yes.
    trust: Option<bool>,
    /// Certificate, PEM. Default: no TLS.
    certificate: Option<PathBuf>,
    /// Its key, PEM.
    key: Option<PathBuf>,
    /// Authorities of clients, PEM: each client inside TLS has to show a certificate of one of them. Default: clients show none.
    client_authority: Option<PathBuf>,
    /// Revocation lists of these authorities, PEM. Default: none.
    client_revocations: Option<PathBuf>,
    /// Refuse connections without TLS. Default: where it listens beyond this machine.
    tls_required: Option<bool>,
    /// Most connections at a time, 1 or more. Default 16.
    connections: Option<usize>,
    /// Most of them from one address (IPv4, or the first 64 bits of IPv6), 1 or more. Default: half of `connections`.
    connections_per_address: Option<usize>,
}

impl MetricsSettings {
    /// The options of the listener. Errors: a setting that cannot work, by its name.
    pub fn options(&self) -> anyhow::Result<MetricsOptions> {
        let defaults = MetricsOptions::default();
        let listen = self.listen.unwrap_or(defaults.listen);
        let keys = TlsKeys {
            certificate: self.certificate.as_deref(),
            key: self.key.as_deref(),
            client_authority: self.client_authority.as_deref(),
            client_revocations: self.client_revocations.as_deref(),
            tls_required: self.tls_required,
        };
        let tls = listeners::tls("metrics", keys, listen)?;
        anyhow::ensure!(
            self.connections != Some(0) && self.connections_per_address != Some(0),
            "metrics.connections and metrics.connections_per_address are at least 1: otherwise nobody could connect"
        );
        anyhow::ensure!(
            listen.ip().is_loopback() || tls.as_ref().is_some_and(|tls| tls.required),
            "metrics.listen = \"{listen}\" is beyond this machine: set metrics.certificate and metrics.key, and require TLS"
        );
        Ok(MetricsOptions {
            listen,
            trust: self.trust.unwrap_or(defaults.trust),
            tls,
            connections_max: self.connections.unwrap_or(defaults.connections_max),
            connections_per_address: self.connections_per_address,
            ..defaults
        })
    }

    /// Listens for a node that is about to start with these options. Errors: a setting, or the address, cannot be used.
    pub fn listen(&self, node: &Options) -> anyhow::Result<RunningMetrics> {
        let options =
            MetricsOptions { admission: Arc::clone(&node.admission), access: node.access.clone(), ..self.options()? };
        let server = MetricsServer::start(options)?;
        tracing::info!(address = %server.address(), "metrics");
        Ok(RunningMetrics { server })
    }
}

/// The listener, until it is stopped.
#[derive(Debug)]
pub struct RunningMetrics {
    server: MetricsServer,
}

impl RunningMetrics {
    /// The node runs: serves its figures.
    pub fn serve(&self, node: &Arc<RunningProduction>, snapshots: &Arc<Snapshots>) {
        let asked = Arc::downgrade(node);
        self.server.serve(Served {
            guard: Arc::clone(node.guard()),
            audit: Arc::clone(node.audit()),
            snapshots: Arc::clone(snapshots),
            hindrances: Box::new(move || match asked.upgrade() {
                Some(node) => hindrances(&node),
                None => vec!["stopping".to_owned()],
            }),
        });
        listeners::renew_with(node, self.server.renewal(), "metrics");
    }

    /// The node is being stopped: it is not ready any more.
    pub fn ends(&self) {
        self.server.ends();
    }

    /// Ends the listener; nothing of the node is held any more then.
    pub async fn stop(self) {
        // It joins a thread. It fails only if that panicked, which was reported.
        let _ = tokio::task::spawn_blocking(move || self.server.stop()).await;
    }
}

/// The figures of a node, with those of `others`: its services, its alerts.
pub fn snapshots(assembled: &Assembled, others: Vec<Box<Source>>) -> Arc<Snapshots> {
    let mut all = sources::of(assembled);
    all.extend(others);
    Snapshots::new(all)
}

/// Troubles with which the node takes no messages.
const HINDERS: [Matter; 3] = [Matter::Failed, Matter::Full, Matter::Descriptors];

/// Why a node takes no messages, in one line each.
fn hindrances(node: &RunningProduction) -> Vec<String> {
    let troubles = node.troubles().into_iter().filter(|trouble| HINDERS.contains(&trouble.matter));
    troubles.map(|trouble| format!("{}: {}", trouble.matter.name(), trouble.reason)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_would_show_figures_on_the_way_or_let_nobody_in_are_refused() {
        let tls = "certificate = 'c.pem'\nkey = 'c.key'";
        for (text, refused) in [
            ("".to_owned(), None),
            ("trust = false".to_owned(), None),
            ("listen = '0.0.0.0:9464'".to_owned(), Some("require TLS")),
            (format!("listen = '0.0.0.0:9464'\n{tls}"), None),
            (format!("listen = '0.0.0.0:9464'\ntls_required = false\n{tls}"), Some("require TLS")),
            ("connections = 0".to_owned(), Some("at least 1")),
        ] {
            let settings: MetricsSettings = toml::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
            match (settings.options(), refused) {
                (Ok(_), None) => {}
                (Err(error), Some(why)) => assert!(error.to_string().contains(why), "{error:#}: {text}"),
                (answer, _) => panic!("{answer:?}: {text}"),
            }
        }
    }
}
