//! One attempt to open an export: connect, TLS, negotiation, and whether what the server offers can be a device.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use node::connections::EXPORT_KIND;
use node::{ConnectionRegistry, CountedIo, OutgoingConnection};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use super::options::ClientOptions;
use crate::error::NbdError;
use crate::protocol::asking::{Asking, AskingError, Opened, Progress, Refusal, Wish};
use crate::protocol::{ExportFacts, export_flag};
use crate::socket::{Carrier, Socket};
use crate::uri::Endpoint;

/// The smallest unit that a server may state, at most.
const BLOCK_BYTES_MAX: u32 = 64 << 10;

/// The unit that is assumed of a server that states none.
const ASSUMED_BLOCK_BYTES: u64 = 512;

/// Bytes that are read at a time.
const READ_BYTES: usize = 4096;

/// The name that a certificate has to carry where the address has no host.
const LOCAL_NAME: &str = "localhost";

/// An open export.
pub(super) struct Link {
    pub(super) stream: Box<dyn Carrier>,
    pub(super) opened: Opened,
    /// Bytes that came behind the negotiation.
    pub(super) rest: Vec<u8>,
    /// Its place in the list of the node's connections; dropped behind the stream.
    pub(super) place: Option<OutgoingConnection>,
}

/// How an export is reached.
#[derive(Clone)]
pub(super) struct Dialer {
    /// The address, for errors.
    pub(super) address: String,
    endpoint: Endpoint,
    /// The name without an epoch.
    name: String,
    /// Tells a server which sessions are of this client.
    client: u64,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    timeout: Duration,
    connections: Option<Arc<ConnectionRegistry>>,
}

impl Dialer {
    /// # Errors
    /// [`NbdError::Address`], [`NbdError::Tls`].
    pub(super) fn new(options: &ClientOptions, name: String) -> Result<Dialer, NbdError> {
        let host = match &options.uri.endpoint {
            Endpoint::Tcp { host, .. } => host,
            Endpoint::Unix(_) => LOCAL_NAME,
        };
        Ok(Dialer {
            address: options.uri.to_string(),
            endpoint: options.uri.endpoint.clone(),
            name,
            // The hasher of the standard library has a random key.
            client: options.client.unwrap_or_else(|| RandomState::new().hash_one("client") | 1),
            tls: options.tls.as_ref().map(|tls| tls.load(host)).transpose()?,
            timeout: options.connect_timeout,
            connections: options.connections.clone(),
        })
    }

    /// Opens the export under an epoch.
    ///
    /// # Errors
    /// [`NbdError::Connect`], [`NbdError::Refused`], [`NbdError::Superseded`], [`NbdError::NotADevice`].
    pub(super) async fn dial(&self, epoch: Option<u64>) -> Result<Link, NbdError> {
        let late = || self.failed(io::Error::new(io::ErrorKind::TimedOut, "no answer in time"));
        let mut link = tokio::time::timeout(self.timeout, self.open(epoch)).await.unwrap_or_else(|_| Err(late()))?;
        usable(&mut link.opened).map_err(|problem| self.unusable(problem))?;
        Ok(link)
    }

    async fn open(&self, epoch: Option<u64>) -> Result<Link, NbdError> {
        let mut socket = self.connect().await.map_err(|error| self.failed(error))?;
        let place =
            self.connections.as_ref().map(|all| all.outgoing((EXPORT_KIND, &self.name), &self.address, &socket));
        let name = epoch.map_or_else(|| self.name.clone(), |epoch| format!("{}@{epoch}", self.name));
        let mut asking = Asking::new(Wish { name, tls: self.tls.is_some(), client: self.client });
        if let Some((opened, rest)) = self.negotiate(&mut asking, &mut socket, Vec::new(), epoch).await? {
            return Ok(Link { stream: counted(socket, place.as_ref()), opened, rest, place });
        }
        let (connector, name) = self.tls.as_ref().expect("TLS was requested");
        let mut stream = connector.connect(name.clone(), socket).await.map_err(|error| self.failed(error))?;
        let mut out = Vec::new();
        asking.secured(&mut out);
        match self.negotiate(&mut asking, &mut stream, out, epoch).await? {
            Some((opened, rest)) => {
                if let Some(place) = &place {
                    place.connection().secured();
                }
                Ok(Link { stream: counted(stream, place.as_ref()), opened, rest, place })
            }
            None => Err(self.unusable("it wants TLS inside TLS".to_owned())),
        }
    }

    async fn connect(&self) -> io::Result<Socket> {
        match &self.endpoint {
            Endpoint::Unix(path) => Ok(Socket::Unix(UnixStream::connect(path).await?)),
            Endpoint::Tcp { host, port } => {
                let stream = node::name_lookup::connect(host, *port).await?;
                node::socket::prepare(&stream)?;
                stream.set_nodelay(true)?;
                Ok(Socket::Tcp(stream))
            }
        }
    }

    /// Negotiates; `None`: TLS begins.
    async fn negotiate<S: Carrier>(
        &self,
        asking: &mut Asking,
        stream: &mut S,
        mut out: Vec<u8>,
        epoch: Option<u64>,
    ) -> Result<Option<(Opened, Vec<u8>)>, NbdError> {
        let mut input = Vec::new();
        loop {
            stream.write_all(&out).await.map_err(|error| self.failed(error))?;
            stream.flush().await.map_err(|error| self.failed(error))?;
            out.clear();
            let from = input.len();
            input.resize(from + READ_BYTES, 0);
            let count = stream.read(&mut input[from..]).await.map_err(|error| self.failed(error))?;
            input.truncate(from + count);
            if count == 0 {
                return Err(self.failed(io::Error::new(io::ErrorKind::UnexpectedEof, "it ended the connection")));
            }
            let (used, progress) = asking.apply(&input, &mut out).map_err(|source| self.refused(source, epoch))?;
            input.drain(..used);
            match progress {
                Progress::More => {}
                Progress::StartTls => return Ok(None),
                Progress::Ready(mut opened) => {
                    if !asking.has_block_sizes() && !opened.facts.bytes.is_multiple_of(ASSUMED_BLOCK_BYTES) {
                        // It has no such blocks, whatever the protocol advises to assume.
                        opened.facts.min_block = 1 << opened.facts.bytes.trailing_zeros();
                    }
                    return Ok(Some((opened, input)));
                }
            }
        }
    }

    fn failed(&self, source: io::Error) -> NbdError {
        NbdError::Connect { address: self.address.clone(), source }
    }

    fn refused(&self, source: AskingError, epoch: Option<u64>) -> NbdError {
        let address = self.address.clone();
        match (&source, epoch) {
            // The wording of this project's server: a lower epoch than the one in force.
            (AskingError::Refused { kind: Refusal::Policy, text }, Some(epoch)) if text.contains(" is over") => {
                NbdError::Superseded { address, epoch, text: text.clone() }
            }
            _ => NbdError::Refused { address, source },
        }
    }

    pub(super) fn unusable(&self, problem: String) -> NbdError {
        NbdError::NotADevice { address: self.address.clone(), problem }
    }
}

/// Whether an export can be a device; makes what it states consistent.
fn usable(opened: &mut Opened) -> Result<(), String> {
    let facts = &mut opened.facts;
    if !facts.has(export_flag::HAS_FLAGS) {
        facts.flags = 0;
    }
    let ExportFacts { bytes, min_block, max_payload, .. } = *facts;
    if bytes == 0 || i64::try_from(bytes).is_err() {
        return Err(format!("its size is {bytes} bytes"));
    }
    if min_block > BLOCK_BYTES_MAX || max_payload < min_block {
        return Err(format!("its smallest block has {min_block} bytes, its largest request {max_payload}"));
    }
    if !bytes.is_multiple_of(min_block.into()) {
        return Err(format!("its size of {bytes} bytes is no multiple of its block of {min_block}"));
    }
    Ok(())
}

/// The stream, with its bytes counted where it is listed.
fn counted<S: Carrier + 'static>(stream: S, place: Option<&OutgoingConnection>) -> Box<dyn Carrier> {
    match place {
        Some(place) => Box::new(CountedIo::new(stream, place.connection())),
        None => Box::new(stream),
    }
}

/// Whether a new connection leads to the export that the device was made of.
///
/// # Errors
/// What is different.
pub(super) fn is_same(first: &Opened, now: &Opened) -> Result<(), String> {
    let (old, new) = (&first.facts, &now.facts);
    if new.bytes < old.bytes {
        return Err(format!("the export has shrunk from {} to {} bytes", old.bytes, new.bytes));
    }
    for (flag, name) in [
        (export_flag::READ_ONLY, "read-only"),
        (export_flag::FLUSH, "flush"),
        (export_flag::FUA, "FUA"),
        (export_flag::WRITE_ZEROES, "zeros"),
    ] {
        if new.has(flag) != old.has(flag) {
            return Err(format!("the export is another one: its flag {name} has changed"));
        }
    }
    if new.min_block != old.min_block {
        return Err(format!("the export's smallest block has changed from {} to {}", old.min_block, new.min_block));
    }
    if old.has_epochs && !new.has_epochs {
        return Err("the server does not confirm epochs any more".to_owned());
    }
    Ok(())
}
