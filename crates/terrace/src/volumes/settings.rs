//! `[volumes]` of terrace.toml: where clients reach the exports of a node's volumes.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::ensure;
use interop::production::units::{Bytes, Span};
use nbd::{ClientTls, ServerOptions, ServerTls};
use node::identity::check_name;
use node::{Bounds, Network};
use serde::Deserialize;

/// The unix socket, below the data directory, where nothing is set.
const SOCKET: &str = "nbd.sock";

/// The least memory of all sessions: one request of the largest size with its reply.
const MEMORY_MIN: u64 = 64 << 20;

/// `[volumes]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct VolumeSettings {
    /// TCP address of the exports. Default: none. Beyond this machine TLS is required, or `plaintext`.
    listen: Option<SocketAddr>,
    /// Unix socket of the exports; only the user of the node may open it. Default `nbd.sock` in the data directory.
    socket: Option<PathBuf>,
    /// Certificate, PEM. Default: no TLS.
    certificate: Option<PathBuf>,
    /// Its key, PEM.
    key: Option<PathBuf>,
    /// Authorities of other servers, PEM: copies and tiers on exports whose address is `nbds` are reached with them, and with the certificate
    /// above if there is one. Default: no such addresses.
    authority: Option<PathBuf>,
    /// Authorities of clients, PEM: each client has to show a certificate of one of them. Default: clients show none.
    client_authority: Option<PathBuf>,
    /// Revocation lists of these authorities, PEM. Default: none.
    client_revocations: Option<PathBuf>,
    /// Role of a connection over TCP from this machine that shows no certificate. Default: it may open nothing on a node.
    anonymous: Option<String>,
    /// All users of this machine may open the socket of a node; each opens what its role may. Default no.
    shared_socket: bool,
    /// Refuse sessions without TLS. Default: where it listens beyond this machine.
    tls_required: Option<bool>,
    /// `listen` may be beyond this machine without TLS. Default no.
    plaintext: bool,
    /// From where connections over TCP may come: addresses and networks. Default: everywhere.
    peers: Vec<String>,
    /// Most connections at a time, 1 or more. Default 4096.
    connections: Option<usize>,
    /// Most of them from one address over TCP. Default: half of them.
    connections_per_address: Option<usize>,
    /// Memory for requests and replies of all sessions, at least 64 MiB. Default 512 MiB.
    memory: Option<Bytes>,
    /// Time between the ends of two scrubs of a volume; 0s: none. Default 7 days.
    scrub: Option<Span>,
}

/// Checked settings.
#[derive(Debug, Clone)]
pub struct VolumeOptions {
    /// The server.
    pub server: ServerOptions,
    /// TCP address, if any.
    pub listen: Option<SocketAddr>,
    /// Certificates for exports of others, where their address is `nbds`.
    pub client: Option<ClientTls>,
    /// Unix socket.
    pub socket: PathBuf,
    /// Role of connections over TCP from this machine without a certificate.
    pub anonymous: Option<String>,
    /// Time between two scrubs, if any.
    pub scrub: Option<std::time::Duration>,
}

impl VolumeSettings {
    /// Settings of `terrace volume export` without a node: an address and a socket by flags.
    pub fn with_flags(self, listen: Option<SocketAddr>, socket: Option<PathBuf>) -> VolumeSettings {
        VolumeSettings { listen: listen.or(self.listen), socket: socket.or(self.socket), ..self }
    }

    /// Checks the settings, of a node with this data directory.
    ///
    /// # Errors
    /// A setting that cannot work, by its name.
    pub fn options(&self, data: &Path) -> anyhow::Result<VolumeOptions> {
        let is_here = self.listen.is_none_or(|listen| listen.ip().is_loopback());
        let required = self.tls_required.unwrap_or(!is_here && !self.plaintext);
        let tls = match (&self.certificate, &self.key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => {
                let (certificate, key) = (certificate.clone(), key.clone());
                let client_authority = self.client_authority.clone();
                let client_revocations = self.client_revocations.clone();
                Some(ServerTls { certificate, key, client_authority, client_revocations, required })
            }
            _ => anyhow::bail!("volumes.certificate and volumes.key go together"),
        };
        ensure!(tls.is_some() || self.tls_required != Some(true), "volumes.tls_required needs a certificate and a key");
        ensure!(
            tls.is_some() || self.client_authority.is_none(),
            "volumes.client_authority needs a certificate and a key of this node"
        );
        ensure!(
            self.client_authority.is_some() || self.client_revocations.is_none(),
            "volumes.client_revocations needs volumes.client_authority"
        );
        ensure!(
            is_here || self.plaintext || tls.as_ref().is_some_and(|tls| tls.required),
            "volumes.listen = \"{}\" is beyond this machine, where every machine on the network path could read and write all volumes: set \
             volumes.certificate and volumes.key, or write `plaintext = true` under [volumes]",
            self.listen.map_or_else(String::new, |listen| listen.to_string())
        );
        ensure!(
            self.anonymous.as_deref().is_none_or(|role| check_name(role).is_ok()),
            "volumes.anonymous is no name of a role"
        );
        ensure!(self.connections != Some(0), "volumes.connections is at least 1: otherwise nobody could connect");
        ensure!(self.connections_per_address != Some(0), "volumes.connections_per_address is at least 1");
        ensure!(self.memory.is_none_or(|memory| memory.0 >= MEMORY_MIN), "volumes.memory is less than 64MiB");
        let peers = self.peers.iter().map(|text| text.parse::<Network>()).collect::<Result<_, _>>()?;
        let defaults = ServerOptions::default();
        let sockets = self.connections.unwrap_or(defaults.bounds.sockets);
        let bounds = Bounds::of(sockets, self.connections_per_address);
        let memory = self.memory.map_or(defaults.memory, |memory| memory.0);
        let (plaintext, shared_socket) = (self.plaintext, self.shared_socket);
        let server = ServerOptions { bounds, peers, memory, tls, plaintext, shared_socket, ..defaults };
        let scrub = match self.scrub {
            None => volume::Options::new(0).scrub_interval,
            Some(Span(span)) => (!span.is_zero()).then_some(span),
        };
        let own = self.certificate.clone().zip(self.key.clone());
        let client = self.authority.clone().map(|authority| ClientTls { authority, own, server_name: None });
        let socket = self.socket.clone().unwrap_or_else(|| data.join(SOCKET));
        let anonymous = self.anonymous.clone();
        Ok(VolumeOptions { server, listen: self.listen, client, socket, anonymous, scrub })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_beyond_this_machine_needs_tls_of_everybody_or_to_be_stated_as_plaintext() {
        let tls = "certificate = 'c.pem'\nkey = 'k.pem'\n";
        for (listen, keys, is_right) in [
            ("127.0.0.1:10809", "", true),
            ("[::1]:10809", "", true),
            ("0.0.0.0:10809", "", false),
            ("[::]:10809", "", false),
            ("192.0.2.7:10809", "plaintext = false", false),
            ("192.0.2.7:10809", "plaintext = true", true),
            ("192.0.2.7:10809", tls, true),
            ("192.0.2.7:10809", &format!("{tls}tls_required = false"), false),
            ("192.0.2.7:10809", &format!("{tls}tls_required = false\nplaintext = true"), true),
        ] {
            let text = format!("listen = \"{listen}\"\n{keys}");
            let settings: VolumeSettings = toml::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
            match settings.options(Path::new("data")) {
                Ok(options) => {
                    assert!(is_right, "{text}");
                    // The server checks the same again.
                    let is_here = options.listen.is_none_or(|listen| listen.ip().is_loopback());
                    let is_required = options.server.tls.as_ref().is_some_and(|tls| tls.required);
                    assert!(is_here || is_required || options.server.plaintext, "{text}");
                }
                Err(error) => {
                    let said = error.to_string();
                    assert!(!is_right && said.contains("plaintext = true") && said.contains(listen), "{text}: {said}");
                }
            }
        }
    }
}
