//! What the settings of services that listen share: TLS, and its renewal on a reload of the node.
//!
//! Services of messages have settings of their own kind, in the production.

use std::net::SocketAddr;
use std::path::Path;

use interop::InteropError;
use interop::running::{Renewed, RunningProduction};
use node::{Renewal, TlsOptions};

/// The keys of TLS that such a service has.
#[derive(Debug, Default, Clone, Copy)]
pub struct TlsKeys<'a> {
    /// Certificate, PEM.
    pub certificate: Option<&'a Path>,
    /// Its key, PEM.
    pub key: Option<&'a Path>,
    /// Authorities of clients, PEM.
    pub client_authority: Option<&'a Path>,
    /// Revocation lists of these, PEM.
    pub client_revocations: Option<&'a Path>,
    /// Whether connections without TLS are refused.
    pub tls_required: Option<bool>,
}

/// TLS of a service whose settings are the table `table`. It is required beyond this machine where nothing else is set.
/// Errors: a setting that cannot work, by its name.
pub fn tls(table: &str, keys: TlsKeys<'_>, listen: SocketAddr) -> anyhow::Result<Option<TlsOptions>> {
    let required = keys.tls_required;
    let tls = match (keys.certificate, keys.key) {
        (None, None) => None,
        (Some(certificate), Some(key)) => Some(TlsOptions {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            client_authority: keys.client_authority.map(Path::to_owned),
            client_revocations: keys.client_revocations.map(Path::to_owned),
            required: required.unwrap_or(!listen.ip().is_loopback()),
        }),
        _ => anyhow::bail!("{table}.certificate and {table}.key go together"),
    };
    anyhow::ensure!(tls.is_some() || required != Some(true), "{table}.tls_required needs a certificate and a key");
    let has_clients = keys.client_authority.is_some();
    anyhow::ensure!(tls.is_some() || !has_clients, "{table}.client_authority needs a certificate and a key");
    anyhow::ensure!(
        keys.client_revocations.is_none() || has_clients,
        "{table}.client_revocations needs {table}.client_authority"
    );
    Ok(tls)
}

/// Has a reload of the node read the service's certificate again.
pub fn renew_with(node: &RunningProduction, renewal: Renewal, service: &'static str) {
    if !renewal.is_needed() {
        return;
    }
    node.on_reload(Box::new(move || -> Result<Renewed, InteropError> {
        let read = renewal.read().map_err(|error| InteropError::Refused(format!("{service}: {error}")))?;
        let renewed: Renewed = Box::new(move || {
            read();
            vec![format!("{service}: certificates and revocations were read again")]
        });
        Ok(renewed)
    }));
}
