//! What the settings of services that listen share: TLS, and its renewal on a reload of the node.
//!
//! Services of messages have settings of their own kind, in the production.

use std::net::SocketAddr;
use std::path::Path;

use interop::InteropError;
use interop::running::{Renewed, RunningProduction};
use node::{Renewal, TlsOptions};

/// TLS of a service whose settings are the table `table`. It is required beyond this machine where nothing else is set.
/// Errors: a setting that cannot work, by its name.
#[cfg_attr(not(any(feature = "sql", feature = "search")), expect(dead_code, reason = "no service has it"))]
pub fn tls(
    table: &str,
    files: (Option<&Path>, Option<&Path>),
    required: Option<bool>,
    listen: SocketAddr,
) -> anyhow::Result<Option<TlsOptions>> {
    let tls = match files {
        (None, None) => None,
        (Some(certificate), Some(key)) => Some(TlsOptions {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            required: required.unwrap_or(!listen.ip().is_loopback()),
        }),
        _ => anyhow::bail!("{table}.certificate and {table}.key go together"),
    };
    anyhow::ensure!(tls.is_some() || required != Some(true), "{table}.tls_required needs a certificate and a key");
    Ok(tls)
}

/// Has a reload of the node read the service's certificate again.
#[cfg_attr(not(any(feature = "sql", feature = "search")), expect(dead_code, reason = "no service has it"))]
pub fn renew_with(node: &RunningProduction, renewal: Renewal, service: &'static str) {
    if !renewal.is_needed() {
        return;
    }
    node.on_reload(Box::new(move || -> Result<Renewed, InteropError> {
        let read = renewal.read().map_err(|error| InteropError::Refused(format!("{service}: {error}")))?;
        let renewed: Renewed = Box::new(move || {
            read();
            vec![format!("{service}: certificate and key were read again")]
        });
        Ok(renewed)
    }));
}
