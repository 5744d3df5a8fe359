//! TLS: the files of certificates, keys, authorities and revocations, for every port; and the certificate of a listener
//! that is in force, which can be renewed while the service runs.
//!
//! ```text
//!   ServerFiles --load--> rustls' settings of a listener, with or without certificates of clients
//!        ^
//!   TlsOptions --load--> TlsInForce --> watch channel --> each new connection
//!                                        ^
//!                        Renewal::read --+   the files again, on a reload of the node
//! ```
//!
//! Invariants: TLS 1.2 at least, 1.3 where both sides have it, with ring's cryptography; files that cannot be used change
//! nothing; connections keep the certificate that they began with; with revocations a client's certificate counts only
//! if a list of its authority is there and does not name it.
//!
//! Not here: what the names in a certificate may do ([`crate::certificate`], [`crate::identity`]).

use std::fmt::{self, Display};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig, crypto, version};

use crate::certificate;

/// Certificate or key cannot be used: put another file there.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{}: {problem}", .file.display())]
pub struct TlsError {
    /// The file.
    pub file: PathBuf,
    /// The fault in it.
    pub problem: String,
}

fn unusable(file: &Path, error: &dyn Display) -> TlsError {
    TlsError { file: file.to_owned(), problem: error.to_string() }
}

/// The certificates of a PEM file, at least one.
///
/// # Errors
/// It cannot be read, or has none.
pub fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all: Vec<_> = CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect)
        .map_err(|error| unusable(file, &format!("no certificates can be read: {error}")))?;
    match all.is_empty() {
        false => Ok(all),
        true => Err(unusable(file, &"it holds no certificate (PEM, BEGIN CERTIFICATE)")),
    }
}

/// The private key of a PEM file.
///
/// # Errors
/// It cannot be read, or has none.
pub fn key(file: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_file(file).map_err(|error| unusable(file, &format!("no private key can be read: {error}")))
}

/// The authorities of a PEM file.
///
/// # Errors
/// As [`certificates`].
pub fn authorities(file: &Path) -> Result<RootCertStore, TlsError> {
    let mut store = RootCertStore::empty();
    for certificate in certificates(file)? {
        store.add(certificate).map_err(|error| unusable(file, &error))?;
    }
    Ok(store)
}

/// TLS of connections to servers that the authorities of a PEM file vouch for, without a certificate of ours.
///
/// # Errors
/// As [`certificates`].
pub fn client_config(file: &Path) -> Result<ClientConfig, TlsError> {
    client_config_of(authorities(file)?, file)
}

fn client_config_of(roots: RootCertStore, file: &Path) -> Result<ClientConfig, TlsError> {
    let builder = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(file, &error))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// Where systems keep the authorities that they trust: Debian, Fedora, SUSE, Alpine.
const SYSTEM_AUTHORITIES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The same, by the authorities that the system trusts; of these, those that cannot be read are left out.
///
/// # Errors
/// The system has no file of authorities, or none of them can be used.
pub fn client_config_of_system() -> Result<ClientConfig, TlsError> {
    let file = SYSTEM_AUTHORITIES.iter().map(Path::new).find(|file| file.exists());
    let Some(file) = file else {
        let all = SYSTEM_AUTHORITIES.join(", ");
        return Err(unusable(Path::new("the system's authorities"), &format!("there is none of {all}")));
    };
    let mut roots = RootCertStore::empty();
    match roots.add_parsable_certificates(certificates(file)?) {
        (0, _) => Err(unusable(file, &"none of its certificates can be used")),
        _ => client_config_of(roots, file),
    }
}

/// The revocation lists of a PEM file, at least one.
fn revocations(file: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    let all: Vec<_> = CertificateRevocationListDer::pem_file_iter(file)
        .and_then(Iterator::collect)
        .map_err(|error| unusable(file, &format!("no revocation lists can be read: {error}")))?;
    match all.is_empty() {
        false => Ok(all),
        true => Err(unusable(file, &"it holds no revocation list (PEM, BEGIN X509 CRL)")),
    }
}

/// The files of a listener.
#[derive(Debug, Clone, Copy)]
pub struct ServerFiles<'a> {
    /// The certificate and the chain to its authority, PEM.
    pub certificate: &'a Path,
    /// The certificate's private key, PEM.
    pub key: &'a Path,
    /// Authorities of clients, PEM: each client has to show a certificate of one of them. `None`: clients show none.
    pub client_authority: Option<&'a Path>,
    /// Revocation lists of these authorities, PEM. A list whose time is over still counts.
    pub client_revocations: Option<&'a Path>,
}

impl ServerFiles<'_> {
    /// Reads them.
    ///
    /// # Errors
    /// One of them cannot be read, or they do not belong together.
    pub fn load(&self) -> Result<ServerConfig, TlsError> {
        let provider = Arc::new(crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&version::TLS13, &version::TLS12])
            .map_err(|error| unusable(self.certificate, &error))?;
        let builder = match (self.client_authority, self.client_revocations) {
            (None, None) => builder.with_no_client_auth(),
            (None, Some(file)) => {
                return Err(unusable(
                    file,
                    &"revocations need an authority of clients: none is asked for a certificate",
                ));
            }
            (Some(authority), lists) => {
                let mut verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(authorities(authority)?), provider);
                if let Some(lists) = lists {
                    verifier = verifier.with_crls(revocations(lists)?);
                }
                let faulty = |error: &VerifierBuilderError| match error {
                    VerifierBuilderError::InvalidCrl(_) => lists.unwrap_or(authority),
                    _ => authority,
                };
                builder.with_client_cert_verifier(verifier.build().map_err(|error| unusable(faulty(&error), &error))?)
            }
        };
        builder
            .with_single_cert(certificates(self.certificate)?, key(self.key)?)
            .map_err(|error| unusable(self.certificate, &error))
    }
}

/// TLS of a listener. Versions 1.2 and 1.3.
#[derive(Debug, Clone)]
pub struct TlsOptions {
    /// The certificate and the chain to its authority, PEM.
    pub certificate: PathBuf,
    /// The certificate's private key, PEM.
    pub key: PathBuf,
    /// Authorities of clients, PEM: each client has to show a certificate of one of them. `None`: clients show none.
    pub client_authority: Option<PathBuf>,
    /// Revocation lists of these authorities, PEM. `None`: no certificate of them is revoked.
    pub client_revocations: Option<PathBuf>,
    /// Whether connections without TLS are refused.
    pub required: bool,
}

/// What a new connection of a listener with TLS gets.
#[derive(Clone)]
pub struct TlsInForce {
    /// Does the handshake.
    pub acceptor: TlsAcceptor,
    /// The hash of the certificate, to which clients can bind a login; `None` for a certificate that has none.
    pub end_point: Option<Arc<[u8]>>,
}

impl fmt::Debug for TlsInForce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsInForce").finish_non_exhaustive()
    }
}

impl TlsOptions {
    /// Reads the files.
    ///
    /// # Errors
    /// One of them cannot be read, or they do not belong together.
    pub fn load(&self) -> Result<TlsInForce, TlsError> {
        let files = ServerFiles {
            certificate: &self.certificate,
            key: &self.key,
            client_authority: self.client_authority.as_deref(),
            client_revocations: self.client_revocations.as_deref(),
        };
        let acceptor = TlsAcceptor::from(Arc::new(files.load()?));
        let own = certificates(&self.certificate)?;
        let end_point = own.first().and_then(|own| certificate::end_point(own)).map(Arc::from);
        Ok(TlsInForce { acceptor, end_point })
    }
}

/// Renews the certificate of a running listener.
#[derive(Clone)]
pub struct Renewal {
    options: Option<TlsOptions>,
    certificate: watch::Sender<Option<TlsInForce>>,
}

impl fmt::Debug for Renewal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Renewal").finish_non_exhaustive()
    }
}

impl Renewal {
    /// Reads the files for the first time. The receiver has what is in force; none of a listener without TLS.
    ///
    /// # Errors
    /// As [`TlsOptions::load`].
    pub fn first(options: Option<TlsOptions>) -> Result<(Renewal, watch::Receiver<Option<TlsInForce>>), TlsError> {
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
        let read = self.options.as_ref().map(TlsOptions::load).transpose()?;
        let certificate = self.certificate.clone();
        Ok(move || _ = certificate.send_replace(read))
    }
}
