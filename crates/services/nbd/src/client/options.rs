//! Settings of a client: the address, times, and the bounds of its memory. Each has a default that suits a server in the same building.

use std::sync::Arc;
use std::time::Duration;

use node::ConnectionRegistry;

use crate::error::NbdError;
use crate::tls::ClientTls;
use crate::uri::NbdUri;

/// Settings of a client. Made by [`ClientOptions::new`], then changed as needed.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// The export. Its name may end with an epoch (`name@41`), which then is [`ClientOptions::epoch`].
    pub uri: NbdUri,
    /// Certificates, for an address with TLS. Default: none.
    pub tls: Option<ClientTls>,
    /// The epoch under which the export is opened, from whoever decides who owns it; the client never makes one up. Default: none.
    pub epoch: Option<u64>,
    /// Who the client is, other than 0: before the server opens the export for it, it ends what any device with this number has open
    /// there. For whoever opens an export again after a device of it was given up. Default: drawn for each device.
    pub client: Option<u64>,
    /// Time for one attempt to connect, with TLS and negotiation. Default: 10 s.
    pub connect_timeout: Duration,
    /// Time for the reply to one request. After it the connection counts as dead: it is cut, and the client connects again. Default:
    /// 30 s.
    pub request_timeout: Duration,
    /// How long requests wait for a connection that works before they fail and the device is poisoned. Default: 60 s.
    pub reconnect_for: Duration,
    /// Bytes of acknowledged writes that are not flushed and of which copies are kept, to be sent again on the next connection; 128
    /// bytes more for each. Once there are as many, the client flushes before it sends further writes. Default: 64 MiB.
    pub unflushed_bytes: u64,
    /// Requests on the wire at a time. Default: 128.
    pub queue_depth: usize,
    /// Bytes of the reads and writes on the wire at a time; one request is always allowed. Default: 16 MiB.
    pub in_flight_bytes: u64,
    /// Where its connections are listed, and can be closed: it then connects again. Default: nowhere.
    pub connections: Option<Arc<ConnectionRegistry>>,
}

impl ClientOptions {
    /// The defaults, for an export.
    pub fn new(uri: NbdUri) -> ClientOptions {
        ClientOptions {
            uri,
            tls: None,
            epoch: None,
            client: None,
            connect_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(30),
            reconnect_for: Duration::from_secs(60),
            unflushed_bytes: 64 << 20,
            queue_depth: 128,
            in_flight_bytes: 16 << 20,
            connections: None,
        }
    }

    /// The name of the export without an epoch, and the epoch.
    ///
    /// # Errors
    /// [`NbdError::Address`]: there are two epochs, or TLS without certificates.
    pub(super) fn target(&self) -> Result<(String, Option<u64>), NbdError> {
        let refused = |problem: &str| NbdError::Address { address: self.uri.to_string(), problem: problem.to_owned() };
        if self.uri.tls != self.tls.is_some() {
            return Err(refused("TLS needs both a scheme of nbds and certificates"));
        }
        let digits = |epoch: &str| !epoch.is_empty() && epoch.bytes().all(|byte| byte.is_ascii_digit());
        let named = self.uri.name.rsplit_once('@').filter(|(_, epoch)| digits(epoch));
        match (named, self.epoch) {
            (None, epoch) => Ok((self.uri.name.clone(), epoch)),
            (Some(_), Some(_)) => Err(refused("it has an epoch, and so have the options")),
            (Some((name, epoch)), None) => {
                let epoch = epoch.parse().map_err(|_| refused("its epoch is too large"))?;
                Ok((name.to_owned(), Some(epoch)))
            }
        }
    }
}
