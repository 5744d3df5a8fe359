//! A connection to where messages go: to a host and port, with TLS or without.
//!
//! Invariants: without TLS only to an address of this machine, whatever a name resolves to; with TLS the server is verified by the
//! authorities of a file, or by those of the system.

use std::io;
use std::path::Path;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

use super::files::{bytes_of, reading};

/// Most bytes of a file with authorities: those of a system are a quarter of a million.
const AUTHORITY_MAX: usize = 4 << 20;

/// Stands for all files of the system's authorities.
const SYSTEM: &str = "/etc/ssl/certs";

/// Bytes in both directions.
pub(super) trait Wire: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Wire for T {}

/// A connection without TLS; with `here_only` to this machine only.
///
/// Errors: no address of the name can be connected to.
pub(super) async fn connect(host: &str, port: u16, here_only: bool) -> io::Result<Box<dyn Wire>> {
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in node::name_lookup::addresses(host, port).await? {
        if here_only && !address.ip().is_loopback() {
            failed = io::Error::new(io::ErrorKind::PermissionDenied, "without TLS only this machine is connected to");
            continue;
        }
        match TcpStream::connect(address).await {
            Ok(socket) => return Ok(Box::new(socket)),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// The same connection with TLS. Errors: the server cannot be verified, or there is nothing to verify it with.
pub(super) async fn secured(
    wire: Box<dyn Wire>,
    host: &str,
    authority: Option<&Path>,
) -> Result<Box<dyn Wire>, String> {
    let trust = match authority {
        Some(file) => reading(file, trust_of).await?,
        None => reading(Path::new(SYSTEM), |_| system_trust()).await?,
    };
    let name = ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?;
    let secured = TlsConnector::from(trust).connect(name, wire).await.map_err(|error| error.to_string())?;
    Ok(Box::new(secured))
}

/// The authorities of a PEM file.
fn trust_of(file: &Path) -> Result<Arc<ClientConfig>, String> {
    let fault = |why: &dyn std::fmt::Display| format!("{}: {why}", file.display());
    let bytes = bytes_of(file, AUTHORITY_MAX)?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&bytes) {
        let certificate = certificate.map_err(|error| fault(&format_args!("no certificates can be read: {error}")))?;
        roots.add(certificate).map_err(|error| fault(&error))?;
    }
    if roots.is_empty() {
        return Err(fault(&"it holds no certificate (PEM, BEGIN CERTIFICATE)"));
    }
    trusting(roots)
}

/// The authorities that this machine trusts.
fn system_trust() -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    for certificate in rustls_native_certs::load_native_certs().certs {
        // One that cannot be used is as good as one that is not there.
        let _ = roots.add(certificate);
    }
    if roots.is_empty() {
        return Err(
            "this machine has no authorities that a server could be verified with (ca-certificates): name a file as authority"
                .to_owned(),
        );
    }
    trusting(roots)
}

fn trusting(roots: RootCertStore) -> Result<Arc<ClientConfig>, String> {
    let config = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
}
