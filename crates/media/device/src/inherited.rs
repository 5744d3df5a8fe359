//! Descriptors that a process was started with, as a service manager passes listening sockets on (sd_listen_fds(3)).
//!
//! ```text
//!   number 3, 4, ..   opened by the parent, numbers only  --fcntl(F_DUPFD_CLOEXEC)-->  OwnedFd, another number
//! ```
//!
//! Invariants: a number from outside is never owned here. It is duplicated, and only the duplicate, which the kernel has just opened for
//! this call, becomes an [`OwnedFd`]; so a wrong number closes nothing of somebody else. What is no listening socket is refused. The
//! original stays open until the process ends, and is not passed on to programs that this process starts.
//!
//! Not here: which numbers there are and what they are for (`node::service_manager`).

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// A descriptor of our own for the listening stream socket with this number.
///
/// # Errors
/// Those of the system: `EBADF` where nothing is open, `ENOTSOCK` where it is no socket; `InvalidInput` where it does not listen.
pub fn listening_socket(number: RawFd) -> io::Result<OwnedFd> {
    if option(number, libc::SO_ACCEPTCONN)? == 0 || option(number, libc::SO_TYPE)? != libc::SOCK_STREAM {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no socket that listens for connections"));
    }
    // SAFETY: fcntl takes and returns numbers; F_SETFD changes a flag of an open descriptor, and no memory.
    if unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: fcntl takes and returns numbers.
    let own = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) };
    if own < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened `own` for this call, so nobody else owns or closes it.
    Ok(unsafe { OwnedFd::from_raw_fd(own) })
}

/// A whole number that getsockopt(2) reports of a socket.
fn option(number: RawFd, name: libc::c_int) -> io::Result<libc::c_int> {
    let mut value: libc::c_int = 0;
    let mut length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: value and length live until the call returns, and length is the size of value.
    let result = unsafe { libc::getsockopt(number, libc::SOL_SOCKET, name, (&raw mut value).cast(), &raw mut length) };
    if result == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::fd::AsRawFd;

    #[test]
    fn a_duplicate_of_a_listening_socket_accepts_after_the_original_is_closed() {
        let original = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = original.local_addr().expect("an address");
        let own = TcpListener::from(listening_socket(original.as_raw_fd()).expect("it listens"));
        drop(original);
        let client = TcpStream::connect(address).expect("it still listens");
        let (_, peer) = own.accept().expect("a connection");
        assert_eq!(peer, client.local_addr().expect("an address"));
    }

    #[test]
    fn what_does_not_listen_is_refused() {
        let file = tempfile::tempfile().expect("a file");
        assert_eq!(listening_socket(file.as_raw_fd()).expect_err("a file").raw_os_error(), Some(libc::ENOTSOCK));
        let datagrams = UdpSocket::bind("127.0.0.1:0").expect("a port");
        assert!(listening_socket(datagrams.as_raw_fd()).is_err());
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let client = TcpStream::connect(listener.local_addr().expect("an address")).expect("it listens");
        assert_eq!(listening_socket(client.as_raw_fd()).expect_err("connected").kind(), io::ErrorKind::InvalidInput);
        assert_eq!(listening_socket(1_000_000).expect_err("not open").raw_os_error(), Some(libc::EBADF));
    }
}
