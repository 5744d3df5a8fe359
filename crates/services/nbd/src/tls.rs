//! Certificates of both sides, read once, so that a wrong file is reported then and not at the first session. rustls
//! does the protocol, versions 1.2 and 1.3, with ring's cryptography.
//!
//! A server that names an authority of clients accepts no client without a certificate of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig, crypto};
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

impl ServerTls {
    /// Reads the files.
    ///
    /// # Errors
    /// [`NbdError::Tls`]: one of them cannot be used.
    pub(crate) fn load(&self) -> Result<TlsAcceptor, NbdError> {
        let provider = Arc::new(crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(&self.certificate, &error))?;
        let builder = match &self.client_authority {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(authorities(path)?), provider);
                builder.with_client_cert_verifier(verifier.build().map_err(|error| unusable(path, &error))?)
            }
        };
        let config = builder
            .with_single_cert(certificates(&self.certificate)?, key(&self.key)?)
            .map_err(|error| unusable(&self.certificate, &error))?;
        Ok(TlsAcceptor::from(Arc::new(config)))
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

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, NbdError> {
    let all: Vec<_> = CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect)
        .map_err(|error| unusable(file, &format!("no certificates can be read: {error}")))?;
    if all.is_empty() {
        return Err(unusable(file, &"it has no certificate (PEM, BEGIN CERTIFICATE)"));
    }
    Ok(all)
}

fn key(file: &Path) -> Result<PrivateKeyDer<'static>, NbdError> {
    PrivateKeyDer::from_pem_file(file).map_err(|error| unusable(file, &format!("no private key can be read: {error}")))
}

fn authorities(file: &Path) -> Result<RootCertStore, NbdError> {
    let mut store = RootCertStore::empty();
    for certificate in certificates(file)? {
        store.add(certificate).map_err(|error| unusable(file, &error))?;
    }
    Ok(store)
}
