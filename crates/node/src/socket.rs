//! Options that all TCP sockets of a node have.

use std::io;
use std::time::Duration;

use tokio::net::TcpStream;

/// Silence after which TCP probes whether the peer is still there ...
const KEEPALIVE: Duration = Duration::from_secs(60);

/// ... how long it waits before it probes again ...
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// ... and after how many questions the peer counts as gone: two minutes of silence in all. Linux' own values would let a
/// connection of a peer that lost its power hold its place for twelve.
const KEEPALIVE_RETRIES: u32 = 4;

/// Small frames are sent at once, and dead peers are noticed.
///
/// # Errors
/// Those of the system; the socket can be used all the same.
pub fn prepare(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let keepalive = socket2::TcpKeepalive::new()
        .with_time(KEEPALIVE)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_RETRIES);
    socket2::SockRef::from(socket).set_tcp_keepalive(&keepalive)
}
