//! One request to a provider over HTTP/1.1, by hyper: a connection, one request, a bounded answer.
//!
//! Invariants: everything together takes no longer than the time given; an answer has at most `limit` bytes; redirects are not
//! followed; with https the certificate is verified, and nothing is sent before.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::Request;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use super::settings::{CheckedUrl, check_url};
use crate::name_lookup;

/// What is asked for.
pub(super) enum Asking<'a> {
    /// A document.
    Document,
    /// An answer to a form; with a header of authorization if there is one.
    Form { body: String, authorization: Option<&'a str> },
}

/// Asks a provider. Returns the status and the body.
///
/// # Errors
/// Why there is no answer.
pub(super) async fn request(
    url: &str,
    asking: Asking<'_>,
    tls: Option<&Arc<ClientConfig>>,
    (time, limit): (Duration, usize),
) -> Result<(u16, Bytes), String> {
    let checked = check_url(url)?;
    let work = async {
        let socket = name_lookup::connect(&checked.host, checked.port).await.map_err(|error| error.to_string())?;
        if !checked.is_tls {
            return exchange(socket, &checked, asking, limit).await;
        }
        let tls = tls.ok_or("there is no authority for https")?;
        let name = ServerName::try_from(checked.host.clone()).map_err(|error| error.to_string())?;
        let stream = TlsConnector::from(Arc::clone(tls)).connect(name, socket).await;
        exchange(stream.map_err(|error| error.to_string())?, &checked, asking, limit).await
    };
    let ended = tokio::time::timeout(time, work).await;
    ended.unwrap_or_else(|_| Err(format!("no answer within {} ms", time.as_millis())))
}

async fn exchange(
    socket: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    url: &CheckedUrl,
    asking: Asking<'_>,
    limit: usize,
) -> Result<(u16, Bytes), String> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(socket)).await.map_err(|error| error.to_string())?;
    let host = if url.host.contains(':') { format!("[{}]", url.host) } else { url.host.clone() };
    // As browsers write it: servers compare it with their names.
    let usual = if url.is_tls { 443 } else { 80 };
    let host = if url.port == usual { host } else { format!("{host}:{}", url.port) };
    let request = Request::builder().uri(&url.target).header("Host", host);
    let request = request.header("Accept", "application/json").header("User-Agent", "terrace");
    let request = match asking {
        Asking::Document => request.method("GET").body(Full::new(Bytes::new())),
        Asking::Form { body, authorization } => {
            let request = request.method("POST").header("Content-Type", "application/x-www-form-urlencoded");
            let request = match authorization {
                Some(own) => request.header("Authorization", own),
                None => request,
            };
            request.body(Full::new(Bytes::from(body)))
        }
    };
    let request = request.map_err(|error| error.to_string())?;
    let answer = async {
        let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
        let status = response.status().as_u16();
        let body = Limited::new(response.into_body(), limit).collect().await.map_err(|error| error.to_string())?;
        Ok::<_, String>((status, body.to_bytes()))
    };
    // The connection has to be driven while the answer is waited for, and ends with it.
    tokio::pin!(connection);
    tokio::pin!(answer);
    tokio::select! {
        biased;
        ended = &mut answer => ended,
        driven = &mut connection => {
            driven.map_err(|error| error.to_string())?;
            answer.await
        }
    }
}
