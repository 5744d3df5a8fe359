//! [`SocketName`]: a connected socket that somebody else owns, by which it can be ended from outside.
//!
//! ```text
//!   number, inode   --fcntl(F_DUPFD_CLOEXEC)--> OwnedFd --fstat(2): the same inode?--> shutdown(2)
//! ```
//!
//! Invariants: a name keeps nothing open, and costs no descriptor. The number may be another file's by the time it is used: it is
//! duplicated first, which fixes what it means, and the duplicate is left alone unless it is the socket that was named. The kernel
//! gives each socket an inode number of its own.
//!
//! Not here: who may end what, and what its owner does then.

use std::io;
use std::mem::MaybeUninit;
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

/// See the module's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketName {
    number: RawFd,
    inode: u64,
}

impl SocketName {
    /// The name of a socket.
    ///
    /// # Errors
    /// Those of the system; `InvalidInput` where it is no socket.
    pub fn of(socket: &impl AsFd) -> io::Result<SocketName> {
        let number = socket.as_fd().as_raw_fd();
        Ok(SocketName { number, inode: inode_of(number)? })
    }

    /// Ends both directions of the socket, as shutdown(2) does: its owner reads the end of the stream, and can write nothing more.
    /// Returns false where it is closed already.
    ///
    /// # Errors
    /// Those of the system: no descriptor is free.
    pub fn shut_down(self) -> io::Result<bool> {
        // SAFETY: fcntl takes and returns numbers.
        let own = unsafe { libc::fcntl(self.number, libc::F_DUPFD_CLOEXEC, 3) };
        if own < 0 {
            let error = io::Error::last_os_error();
            return if error.raw_os_error() == Some(libc::EBADF) { Ok(false) } else { Err(error) };
        }
        // SAFETY: the kernel has just opened `own` for this call, so nobody else owns or closes it.
        let own = unsafe { OwnedFd::from_raw_fd(own) };
        match inode_of(own.as_raw_fd()) {
            Ok(inode) if inode == self.inode => {}
            _ => return Ok(false),
        }
        // The call is the same for every kind of connected socket.
        match TcpStream::from(own).shutdown(Shutdown::Both) {
            Ok(()) => Ok(true),
            // Its peer has ended it.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(true),
            Err(error) => Err(error),
        }
    }
}

/// The inode of an open socket.
fn inode_of(number: RawFd) -> io::Result<u64> {
    let mut found = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: `found` lives until the call returns, and fstat writes nothing but a stat there.
    if unsafe { libc::fstat(number, found.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: fstat has succeeded, and has filled it.
    let found = unsafe { found.assume_init() };
    match found.st_mode & libc::S_IFMT {
        libc::S_IFSOCK => Ok(found.st_ino),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no socket")),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_named_socket_is_ended_in_both_directions_while_its_owner_has_it() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut client = TcpStream::connect(listener.local_addr().expect("an address")).expect("it listens");
        let (mut server, _) = listener.accept().expect("a connection");
        let (mut left, mut right) = UnixStream::pair().expect("two sockets");
        let names = [SocketName::of(&server).expect("a socket"), SocketName::of(&left).expect("a socket")];
        assert!(names.iter().all(|name| name.shut_down().expect("a descriptor")));
        let mut some = [0; 8];
        assert_eq!(server.read(&mut some).expect("the end"), 0);
        assert_eq!(client.read(&mut some).expect("the end"), 0);
        assert_eq!(left.read(&mut some).expect("the end"), 0);
        assert_eq!(right.read(&mut some).expect("the end"), 0);
        assert!(server.write(b"x").is_err() && left.write(b"x").is_err());
    }

    #[test]
    fn a_number_that_is_another_file_by_now_is_left_alone() {
        let (left, mut right) = UnixStream::pair().expect("two sockets");
        let name = SocketName::of(&left).expect("a socket");
        // The same number with another inode, as after a close and an accept.
        let stale = SocketName { inode: name.inode.wrapping_add(1), ..name };
        assert!(!stale.shut_down().expect("it is looked at only"));
        (&left).write_all(b"y").expect("it works as before");
        let mut some = [0; 1];
        right.read_exact(&mut some).expect("it came");
        assert!(!SocketName { number: 1_000_000, ..name }.shut_down().expect("nothing is open there"));
        let file = tempfile::tempfile().expect("a file");
        assert!(SocketName::of(&file).is_err());
        assert!(!SocketName { number: file.as_raw_fd(), ..name }.shut_down().expect("it is no socket"));
    }
}
