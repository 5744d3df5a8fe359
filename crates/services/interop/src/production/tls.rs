//! Certificates and keys of a production, read when it is loaded so that a wrong file is reported then and not at the first
//! connection. rustls does the protocol; versions 1.2 and 1.3, with ring's cryptography.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use node::tls::{ServerFiles, TlsError, authorities, certificates, key};
use tokio_rustls::rustls::client::verify_server_name;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::{ClientConfig, ServerConfig, crypto};

use super::{Tls, settings};
use crate::error::InteropError;

/// The server side of a service.
pub(super) fn server(folder: &Path, settings: &settings::ServerTls) -> Result<Arc<ServerConfig>, InteropError> {
    let in_folder = |file: &Option<PathBuf>| file.as_ref().map(|file| folder.join(file));
    let (authority, revocations) = (in_folder(&settings.client_authority), in_folder(&settings.client_revocations));
    let files = ServerFiles {
        certificate: &folder.join(&settings.certificate),
        key: &folder.join(&settings.key),
        client_authority: authority.as_deref(),
        client_revocations: revocations.as_deref(),
    };
    Ok(Arc::new(files.load()?))
}

impl From<TlsError> for InteropError {
    fn from(TlsError { file, problem }: TlsError) -> InteropError {
        InteropError::Tls { file, problem }
    }
}

/// The names of which a client's certificate must carry one.
pub(super) fn client_names(settings: &settings::ServerTls) -> Result<Vec<ServerName<'static>>, InteropError> {
    let wrong = |problem: String| InteropError::Tls { file: settings.certificate.clone(), problem };
    if settings.client_authority.is_none() && !settings.client_names.is_empty() {
        return Err(wrong(
            "`client_names` needs `client_authority`: without it no client is asked for a certificate".to_owned(),
        ));
    }
    let name = |name: &String| {
        let problem = format!("`{name}` in `client_names` is no name that a certificate could carry");
        ServerName::try_from(name.clone()).map_err(|_| wrong(problem))
    };
    settings.client_names.iter().map(name).collect()
}

/// Whether a client that showed these certificates, which were checked already, carries one of the names; any does where there
/// are none.
pub(crate) fn carries(shown: Option<&[CertificateDer<'_>]>, names: &[ServerName<'static>]) -> bool {
    if names.is_empty() {
        return true;
    }
    let Some(certificate) = shown.and_then(<[_]>::first) else { return false };
    let Ok(parsed) = ParsedCertificate::try_from(certificate) else { return false };
    names.iter().any(|name| verify_server_name(&parsed, name).is_ok())
}

/// The client side of an operation that connects to `address` (host:port).
pub(super) fn client(folder: &Path, settings: &settings::ClientTls, address: &str) -> Result<Tls, InteropError> {
    let authority = folder.join(&settings.authority);
    let builder = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(&authority, &error))?
        .with_root_certificates(authorities(&authority)?);
    let config = match (&settings.certificate, &settings.key) {
        (None, None) => builder.with_no_client_auth(),
        (Some(certificate), Some(own)) => {
            let file = folder.join(certificate);
            builder
                .with_client_auth_cert(certificates(&file)?, key(&folder.join(own))?)
                .map_err(|error| unusable(&file, &error))?
        }
        _ => {
            let problem = "our own certificate needs both `certificate` and `key`".to_owned();
            return Err(InteropError::Tls { file: authority, problem });
        }
    };
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let name = settings.server_name.as_deref().unwrap_or(host).trim_matches(['[', ']']).to_owned();
    let server_name = ServerName::try_from(name.clone()).map_err(|_| InteropError::Tls {
        file: authority,
        problem: format!("`{name}` is no name that a certificate could carry; set `server_name`"),
    })?;
    Ok(Tls { config: Arc::new(config), server_name })
}

fn unusable(file: &Path, error: &dyn std::fmt::Display) -> InteropError {
    InteropError::Tls { file: file.to_owned(), problem: error.to_string() }
}
