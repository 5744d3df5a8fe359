//! [`LdapConnection`]: one connection to a directory server: TCP, TLS or StartTLS, then one request after the other.
//!
//! Invariants: nothing waits longer than the time that it was given; what was read before TLS is not taken for what came through it;
//! an answer counts only with the number of its request; all answers of a connection together are bounded
//! ([`RECEIVED_BYTES_MAX`]). After a failure the connection is dropped, since what comes next on it is unknown.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use super::answer::{self, LdapAnswer, LdapEntry, LdapOutcome, NotLdap};
use super::failure::{LdapError, LdapFailure, LdapStep};
use super::request::{self, LdapSearch};
use super::settings::{LdapSecurity, LdapServer};
use crate::name_lookup;

/// Most bytes that one connection receives.
const RECEIVED_BYTES_MAX: usize = 16 << 20;

/// How many bytes are read at once.
const READ_BYTES: usize = 16 << 10;

/// What a connection is over.
trait Transport: AsyncRead + AsyncWrite + Unpin + Send + Sync {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send + Sync> Transport for T {}

/// A connection to a server.
pub(super) struct LdapConnection {
    server: LdapServer,
    transport: Box<dyn Transport>,
    /// For each answer.
    time: Duration,
    /// Bytes that were received and not read yet.
    received: Vec<u8>,
    received_count: usize,
    last_id: u32,
}

impl LdapConnection {
    /// Connects, with TLS where the server's URL demands it. `told` gets what was reached.
    ///
    /// # Errors
    /// The step that failed.
    pub(super) async fn open(
        server: &LdapServer,
        tls: Option<&Arc<ClientConfig>>,
        time: Duration,
        told: &mut (dyn FnMut(LdapStep, String) + Send),
    ) -> Result<LdapConnection, LdapError> {
        let fail =
            |step, reason: String| LdapError { server: server.url.clone(), step, failure: LdapFailure::Away, reason };
        let connected = timeout(time, name_lookup::connect(&server.host, server.port)).await;
        let connected = connected.map_err(|_| fail(LdapStep::Connect, waited(time)))?;
        let socket = connected.map_err(|error| fail(LdapStep::Connect, error.to_string()))?;
        let address = socket.peer_addr().map_or_else(|_| server.host.clone(), |address| address.to_string());
        told(LdapStep::Connect, format!("connected to {address}"));
        let mut connection = LdapConnection {
            server: server.clone(),
            transport: Box::new(tokio::io::empty()),
            time,
            received: Vec::new(),
            received_count: 0,
            last_id: 0,
        };
        let socket = match server.security {
            LdapSecurity::Clear => {
                connection.transport = Box::new(socket);
                told(LdapStep::Tls, "not used: the server is on this machine".to_owned());
                return Ok(connection);
            }
            LdapSecurity::Tls => socket,
            LdapSecurity::StartTls => connection.start_tls(socket).await?,
        };
        let Some(tls) = tls else { return Err(fail(LdapStep::Tls, "there is no authority".to_owned())) };
        let name = ServerName::try_from(server.host.clone()).map_err(|error| fail(LdapStep::Tls, error.to_string()))?;
        let shaken = timeout(time, TlsConnector::from(Arc::clone(tls)).connect(name, socket)).await;
        let shaken = shaken.map_err(|_| fail(LdapStep::Tls, waited(time)))?;
        let stream = shaken.map_err(|error| fail(LdapStep::Tls, error.to_string()))?;
        let version = stream.get_ref().1.protocol_version().map(|version| format!("{version:?}"));
        told(LdapStep::Tls, format!("{}, the certificate is right", version.unwrap_or_else(|| "TLS".to_owned())));
        connection.transport = Box::new(stream);
        Ok(connection)
    }

    /// Asks for TLS on a socket; it is returned for the handshake.
    async fn start_tls(&mut self, mut socket: TcpStream) -> Result<TcpStream, LdapError> {
        let id = self.next_id();
        let step = LdapStep::Tls;
        let exchange = async {
            socket.write_all(&request::start_tls(id)).await.map_err(|error| self.away(step, &error.to_string()))?;
            let mut bytes = Vec::new();
            loop {
                match answer::whole(&bytes).map_err(|why| self.not_ldap(step, why))? {
                    Some(end) if end == bytes.len() => break,
                    // What comes in clear behind the answer would be taken for what came through TLS.
                    Some(_) => return Err(self.away(step, "the server sent more than its answer before TLS")),
                    None => {}
                }
                let mut part = [0; 1024];
                match socket.read(&mut part).await {
                    Ok(0) => return Err(self.away(step, "the server ended the connection")),
                    Ok(count) => bytes.extend_from_slice(&part[..count]),
                    Err(error) => return Err(self.away(step, &error.to_string())),
                }
                if bytes.len() > READ_BYTES {
                    return Err(self.away(step, "the server's answer is too long"));
                }
            }
            match answer::read(&bytes).map_err(|why| self.not_ldap(step, why))? {
                (of, LdapAnswer::Extended(LdapOutcome { code: 0, .. })) if of == id => Ok(()),
                (_, LdapAnswer::Extended(LdapOutcome { code, text })) => {
                    Err(self.away(step, &format!("the server refuses StartTLS (code {code}: {text})")))
                }
                _ => Err(self.away(step, "the server answered something else")),
            }
        };
        timeout(self.time, exchange).await.unwrap_or_else(|_| Err(self.away(step, &waited(self.time))))?;
        Ok(socket)
    }

    /// Binds. Returns how it ended: only code 0 is a login.
    ///
    /// # Errors
    /// The server did not answer.
    pub(super) async fn bind(&mut self, step: LdapStep, name: &str, password: &str) -> Result<LdapOutcome, LdapError> {
        // RFC 4513, 5.1.2: a server answers these with success, and nobody has proven anything.
        if name.is_empty() || password.is_empty() {
            return Err(self.failed(step, LdapFailure::WrongPassword, "an empty name or password is never sent"));
        }
        let id = self.next_id();
        self.send(step, &request::bind(id, name, password)).await?;
        match self.answer(step, id).await? {
            LdapAnswer::Bound(outcome) => Ok(outcome),
            _ => Err(self.away(step, "the server answered something else")),
        }
    }

    /// Searches. Returns the entries, at most as many as asked for and one more, and how it ended.
    ///
    /// # Errors
    /// The server did not answer; the filter is none.
    pub(super) async fn search(
        &mut self,
        step: LdapStep,
        search: &LdapSearch<'_>,
    ) -> Result<(Vec<LdapEntry>, LdapOutcome), LdapError> {
        let id = self.next_id();
        let Some(bytes) = request::search(id, search) else {
            return Err(self.failed(step, LdapFailure::Settings, "the filter cannot be read"));
        };
        self.send(step, &bytes).await?;
        let mut entries = Vec::new();
        loop {
            match self.answer(step, id).await? {
                LdapAnswer::Entry(entry) if entries.len() <= search.entries_max as usize => entries.push(entry),
                LdapAnswer::Entry(_) => {
                    return Err(self.away(step, "the server sends more entries than were asked for"));
                }
                LdapAnswer::Passed => {}
                LdapAnswer::Done(outcome) => return Ok((entries, outcome)),
                _ => return Err(self.away(step, "the server answered something else")),
            }
        }
    }

    /// Ends the connection as LDAP wants it.
    pub(super) async fn end(mut self) {
        let id = self.next_id();
        // It ends without, too.
        let _ = timeout(self.time, self.transport.write_all(&request::unbind(id))).await;
        let _ = timeout(self.time, self.transport.shutdown()).await;
    }

    /// A failure of this connection.
    pub(super) fn failed(&self, step: LdapStep, failure: LdapFailure, reason: &str) -> LdapError {
        LdapError { server: self.server.url.clone(), step, failure, reason: reason.to_owned() }
    }

    fn away(&self, step: LdapStep, reason: &str) -> LdapError {
        self.failed(step, LdapFailure::Away, reason)
    }

    fn not_ldap(&self, step: LdapStep, NotLdap(why): NotLdap) -> LdapError {
        self.away(step, &format!("the server's answer is not LDAP: {why}"))
    }

    fn next_id(&mut self) -> u32 {
        self.last_id += 1;
        self.last_id
    }

    async fn send(&mut self, step: LdapStep, bytes: &[u8]) -> Result<(), LdapError> {
        let sending = async {
            self.transport.write_all(bytes).await?;
            self.transport.flush().await
        };
        match timeout(self.time, sending).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(self.away(step, &error.to_string())),
            Err(_) => Err(self.away(step, &waited(self.time))),
        }
    }

    /// The next answer to a request.
    async fn answer(&mut self, step: LdapStep, wanted: u32) -> Result<LdapAnswer, LdapError> {
        let time = self.time;
        let message = timeout(time, self.message(step)).await;
        let message = message.map_err(|_| self.away(step, &waited(time)))??;
        match answer::read(&message).map_err(|why| self.not_ldap(step, why))? {
            (id, answer) if id == wanted => Ok(answer),
            (0, LdapAnswer::Extended(LdapOutcome { text, .. })) => {
                Err(self.away(step, &format!("the server ends the connection: {text}")))
            }
            _ => Err(self.away(step, "the server answered another request")),
        }
    }

    async fn message(&mut self, step: LdapStep) -> Result<Vec<u8>, LdapError> {
        loop {
            if let Some(end) = answer::whole(&self.received).map_err(|why| self.not_ldap(step, why))? {
                return Ok(self.received.drain(..end).collect());
            }
            let mut part = vec![0; READ_BYTES];
            let count = match self.transport.read(&mut part).await {
                Ok(0) => return Err(self.away(step, "the server ended the connection")),
                Ok(count) => count,
                Err(error) => return Err(self.away(step, &error.to_string())),
            };
            self.received_count += count;
            if self.received_count > RECEIVED_BYTES_MAX {
                return Err(self.away(step, "the server sends too much"));
            }
            self.received.extend_from_slice(&part[..count]);
        }
    }
}

fn waited(time: Duration) -> String {
    format!("no answer within {} ms", time.as_millis())
}
