//! The console in a node: the settings, and the service on a runtime of its own.
//!
//! ```text
//!   [console] of terrace.toml --> ConsoleSettings --start--> RunningConsole: ConsoleServer over NodeAdmin
//!                                                                 |
//!                            the node's users, rights, audit      +--> the requests of the control socket, by the caller of the page
//!                                                                 +--> SQL and search, which the program lends to it
//! ```
//!
//! Pages are answered on threads of their own, apart from those that serve sockets of messages.

mod admin;
mod connections;
mod figures;
mod profile;
mod saved;
mod tail;
mod transfer;
mod trying;
mod watch;
mod work;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use interop::running::RunningProduction;
use node::TlsOptions;
use serde::Deserialize;
use web_console::{ConsoleOptions, ConsoleServer};

use crate::listeners::{self, TlsKeys};
pub use admin::LentServices;
use admin::NodeAdmin;

/// Threads that serve pages.
const THREADS: usize = 2;

/// The address where nothing is set.
const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8480);

/// Bounds where nothing is set.
const CONNECTIONS: usize = 256;
const TABS: usize = 100;

/// Requests that run at a time.
const REQUESTS: usize = 32;

/// `[console]`: there is a console where the table is there.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConsoleSettings {
    /// Address to listen on. Default 127.0.0.1:8480. Beyond this machine TLS is a must.
    listen: Option<SocketAddr>,
    /// Certificate, PEM. Default: no TLS.
    certificate: Option<PathBuf>,
    /// Its key, PEM.
    key: Option<PathBuf>,
    /// Refuse connections without TLS. Default: where it listens beyond this machine.
    tls_required: Option<bool>,
    /// Most connections at a time, 1 or more. Default 256.
    connections: Option<usize>,
    /// Most of them from one address (IPv4, or the first 64 bits of IPv6), 1 or more. Default: half of `connections`.
    connections_per_address: Option<usize>,
    /// Most pages that are live at a time, 1 or more. Default 100.
    tabs: Option<usize>,
}

/// What the settings decide, checked.
#[derive(Debug)]
pub struct CheckedConsole {
    listen: SocketAddr,
    tls: Option<TlsOptions>,
    connections: usize,
    connections_per_address: Option<usize>,
    tabs: usize,
}

impl ConsoleSettings {
    /// What they decide. Errors: a setting that cannot work, by its name.
    pub fn options(&self) -> anyhow::Result<CheckedConsole> {
        let listen = self.listen.unwrap_or(LISTEN);
        let keys = TlsKeys {
            certificate: self.certificate.as_deref(),
            key: self.key.as_deref(),
            tls_required: self.tls_required,
            ..TlsKeys::default()
        };
        let tls = listeners::tls("console", keys, listen)?;
        let has_places = self.connections != Some(0) && self.connections_per_address != Some(0);
        anyhow::ensure!(
            has_places,
            "console.connections and console.connections_per_address are at least 1: otherwise nobody could connect"
        );
        anyhow::ensure!(self.tabs != Some(0), "console.tabs is at least 1: otherwise no page could be live");
        anyhow::ensure!(
            listen.ip().is_loopback() || tls.as_ref().is_some_and(|tls| tls.required),
            "console.listen = \"{listen}\" is beyond this machine: set console.certificate and console.key, and require TLS"
        );
        Ok(CheckedConsole {
            listen,
            tls,
            connections: self.connections.unwrap_or(CONNECTIONS),
            connections_per_address: self.connections_per_address,
            tabs: self.tabs.unwrap_or(TABS),
        })
    }

    /// Starts the console of a node, which asks the services that are lent to it.
    pub fn start(&self, node: &Arc<RunningProduction>, lent: LentServices) -> anyhow::Result<RunningConsole> {
        let CheckedConsole { listen, tls, connections, connections_per_address, tabs } = self.options()?;
        let store = node.store().clone();
        let options = ConsoleOptions {
            listen,
            tls,
            connections_max: connections,
            connections_per_address,
            tabs_max: tabs,
            requests_max: REQUESTS,
            guard: Arc::clone(node.guard()),
            audit: Arc::clone(node.audit()),
            admission: Arc::clone(node.admission()),
            failed: Arc::new(move |why| store.fail(&format_args!("the console ended: {why}"))),
        };
        let admin = Arc::new(NodeAdmin::new(Arc::clone(node), lent));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("console")
            .enable_all()
            .build()
            .context("the runtime of the console cannot start")?;
        // From another runtime's thread: spawned there, and waited for here.
        runtime.spawn(saved::follow_roles(node.store().clone(), Arc::clone(node.guard())));
        let (answer, started) = std::sync::mpsc::channel();
        runtime.spawn(async move { answer.send(ConsoleServer::start(admin, options).await) });
        match started.recv().context("the console cannot start").and_then(|server| Ok(server?)) {
            Ok(server) => {
                tracing::info!(address = %server.address(), "console");
                listeners::renew_with(node, server.renewal(), "console");
                Ok(RunningConsole { server, runtime })
            }
            Err(error) => {
                // A runtime must not be dropped on a thread of another one.
                runtime.shutdown_background();
                Err(error)
            }
        }
    }
}

/// The console, until it is stopped.
#[derive(Debug)]
pub struct RunningConsole {
    server: ConsoleServer,
    runtime: tokio::runtime::Runtime,
}

impl RunningConsole {
    /// Ends all streams and connections; requests under way may end for a while.
    pub async fn stop(self) {
        self.server.stop().await;
        self.runtime.shutdown_background();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_would_let_passwords_be_read_or_nobody_in_are_refused() {
        let tls = "certificate = 'c.pem'\nkey = 'c.key'";
        for (text, refused) in [
            ("".to_owned(), None),
            ("listen = '0.0.0.0:8480'".to_owned(), Some("require TLS")),
            (format!("listen = '0.0.0.0:8480'\n{tls}"), None),
            (format!("listen = '0.0.0.0:8480'\ntls_required = false\n{tls}"), Some("require TLS")),
            ("tabs = 0".to_owned(), Some("at least 1")),
            ("connections = 0".to_owned(), Some("at least 1")),
            ("certificate = 'c.pem'".to_owned(), Some("go together")),
        ] {
            let settings: ConsoleSettings = toml::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
            match (settings.options(), refused) {
                (Ok(_), None) => {}
                (Err(error), Some(why)) => assert!(error.to_string().contains(why), "{error:#}: {text}"),
                (answer, _) => panic!("{answer:?}: {text}"),
            }
        }
    }
}
