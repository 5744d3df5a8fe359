//! Certificates of both sides, read at the start and when they are renewed, so that a wrong file is reported then and not
//! at the first session. rustls does the protocol, versions 1.2 and 1.3, with ring's cryptography.
//!
//! A server that names an authority of clients accepts no client without a certificate of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use node::tls::{ServerFiles, TlsError, authorities, certificates, key};
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, crypto};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::error::NbdError;

/// TLS of a server.
#[derive(Debug, Clone)]
pub struct ServerTls {
    /// The certificate and the chain to its authority, PEM.
    pub certificate: PathBuf,
    /// The certificate's private key, PEM.
    pub key: PathBuf,
    /// Authorities of clients, PEM: each client has to show a certificate of one of them. `None`: clients show none.
    pub client_authority: Option<PathBuf>,
    /// Revocation lists of these authorities, PEM. `None`: no certificate of them is revoked.
    pub client_revocations: Option<PathBuf>,
    /// Whether sessions without TLS are refused.
    pub required: bool,
}

/// TLS of a client.
#[derive(Debug, Clone)]
pub struct ClientTls {
    /// The authorities of servers, PEM.
    pub authority: PathBuf,
    /// The client's own certificate and key, PEM, where the server wants one.
    pub own: Option<(PathBuf, PathBuf)>,
    /// The name that the server's certificate must carry; by default the host of the address.
    pub server_name: Option<String>,
}

impl From<TlsError> for NbdError {
    fn from(TlsError { file, problem }: TlsError) -> NbdError {
        NbdError::Tls { file, problem }
    }
}

impl ServerTls {
    /// Reads the files.
    ///
    /// # Errors
    /// [`NbdError::Tls`]: one of them cannot be used.
    pub(crate) fn load(&self) -> Result<TlsAcceptor, NbdError> {
        let files = ServerFiles {
            certificate: &self.certificate,
            key: &self.key,
            client_authority: self.client_authority.as_deref(),
            client_revocations: self.client_revocations.as_deref(),
        };
        Ok(TlsAcceptor::from(Arc::new(files.load()?)))
    }
}

impl ClientTls {
    /// Reads the files; `host` is the name of the server where none is set.
    ///
    /// # Errors
    /// [`NbdError::Tls`]: one of them cannot be used.
    pub fn load(&self, host: &str) -> Result<(TlsConnector, ServerName<'static>), NbdError> {
        let builder = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(&self.authority, &error))?
            .with_root_certificates(authorities(&self.authority)?);
        let config = match &self.own {
            None => builder.with_no_client_auth(),
            Some((certificate, own)) => builder
                .with_client_auth_cert(certificates(certificate)?, key(own)?)
                .map_err(|error| unusable(certificate, &error))?,
        };
        let name = self.server_name.as_deref().unwrap_or(host).trim_matches(['[', ']']).to_owned();
        let problem = format!("`{name}` is no name that a certificate could carry; set the server's name");
        let name = ServerName::try_from(name).map_err(|_| NbdError::Tls { file: self.authority.clone(), problem })?;
        Ok((TlsConnector::from(Arc::new(config)), name))
    }
}

fn unusable(file: &Path, error: &dyn std::fmt::Display) -> NbdError {
    NbdError::Tls { file: file.to_owned(), problem: error.to_string() }
}
