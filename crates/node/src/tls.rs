//! TLS of a listener: its files, and the certificate that is in force, which can be renewed while the service runs.
//!
//! ```text
//!   TlsOptions --load--> acceptor --> watch channel --> each new connection
//!                                        ^
//!                        Renewal::read --+   the files again, on a reload of the node
//! ```
//!
//! Invariant: files that cannot be used change nothing; connections keep the certificate that they began with.
//!
//! Clients are not asked for certificates: the interface engine, which does that, has a loader of its own.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ServerConfig, crypto};

/// Certificate or key cannot be used: put another file there.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{}: {problem}", .file.display())]
pub struct TlsError {
    /// The file.
    pub file: PathBuf,
    /// The fault in it.
    pub problem: String,
}

/// TLS of a listener. Versions 1.2 and 1.3.
#[derive(Debug, Clone)]
pub struct TlsOptions {
    /// The certificate and the chain to its authority, PEM.
    pub certificate: PathBuf,
    /// The certificate's private key, PEM.
    pub key: PathBuf,
    /// Whether connections without TLS are refused.
    pub required: bool,
}

impl TlsOptions {
    /// Reads the files.
    ///
    /// # Errors
    /// One of them cannot be read, or they do not belong together.
    pub fn load(&self) -> Result<TlsAcceptor, TlsError> {
        let unusable =
            |file: &Path, error: &dyn fmt::Display| TlsError { file: file.to_owned(), problem: error.to_string() };
        let chain: Vec<_> = CertificateDer::pem_file_iter(&self.certificate)
            .and_then(Iterator::collect)
            .map_err(|error| unusable(&self.certificate, &error))?;
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(|error| unusable(&self.key, &error))?;
        let config = ServerConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(&self.certificate, &error))?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(|error| unusable(&self.certificate, &error))?;
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

/// Renews the certificate of a running listener.
#[derive(Clone)]
pub struct Renewal {
    options: Option<TlsOptions>,
    certificate: watch::Sender<Option<TlsAcceptor>>,
}

impl fmt::Debug for Renewal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Renewal").finish_non_exhaustive()
    }
}

impl Renewal {
    /// Reads the files for the first time. The receiver has the acceptor in force; none of a listener without TLS.
    ///
    /// # Errors
    /// As [`TlsOptions::load`].
    pub fn first(options: Option<TlsOptions>) -> Result<(Renewal, watch::Receiver<Option<TlsAcceptor>>), TlsError> {
        let (certificate, in_force) = watch::channel(options.as_ref().map(TlsOptions::load).transpose()?);
        Ok((Renewal { options, certificate }, in_force))
    }

    /// Whether the listener uses TLS.
    pub fn is_needed(&self) -> bool {
        self.options.is_some()
    }

    /// Reads certificate and key again. New connections use them after the returned function was called.
    ///
    /// # Errors
    /// As [`TlsOptions::load`]; nothing changes.
    pub fn read(&self) -> Result<impl FnOnce() + Send + use<>, TlsError> {
        let acceptor = self.options.as_ref().map(TlsOptions::load).transpose()?;
        let certificate = self.certificate.clone();
        Ok(move || _ = certificate.send_replace(acceptor))
    }
}
