//! Where a node serves its own exports: no copy and no tier of it lies on one of them, since it would wait for itself.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::path::{Path, PathBuf};

use nbd::{Endpoint, NbdUri};

/// The addresses of a node's own exports.
#[derive(Clone, Debug)]
pub struct OwnExports {
    /// Its unix socket.
    pub socket: PathBuf,
    /// Where it listens over TCP, if it does.
    pub listen: Option<SocketAddr>,
}

impl OwnExports {
    /// Whether an export is one of this node, whatever its name.
    pub(super) fn has(&self, address: &NbdUri) -> bool {
        match &address.endpoint {
            Endpoint::Unix(path) => same_file(path, &self.socket),
            Endpoint::Tcp { host, port } => self.listen.is_some_and(|listen| {
                let is_own = |found: SocketAddr| reaches(found.ip().to_canonical(), listen.ip().to_canonical());
                // A name that cannot be resolved reaches nobody.
                listen.port() == *port && (host.as_str(), *port).to_socket_addrs().is_ok_and(|mut all| all.any(is_own))
            }),
        }
    }
}

fn same_file(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| {
        // The socket may not be there yet; its folder is.
        let (folder, name) = (path.parent()?, path.file_name()?);
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        path.canonicalize().or_else(|_| folder.canonicalize().map(|folder| folder.join(name))).ok()
    };
    real(one).is_some_and(|one| real(other) == Some(one))
}

/// Whether who listens at an address is reached at another one.
fn reaches(found: IpAddr, listens: IpAddr) -> bool {
    // Only an address of this machine can be bound.
    let is_here = || found.is_loopback() || UdpSocket::bind((found, 0)).is_ok();
    found == listens || (listens.is_unspecified() && is_here())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_export_of_the_node_itself_is_known_at_each_of_its_addresses() {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("nbd.sock");
        let other = folder.path().join("link");
        std::os::unix::fs::symlink(folder.path(), &other).expect("a link");
        let unix = |path: &Path| format!("nbd+unix:///v?socket={}", path.display());
        let cases = [
            (None, unix(&socket), true),
            (None, unix(&other.join("nbd.sock")), true),
            (None, unix(&folder.path().join("other.sock")), false),
            (None, unix(Path::new("/nowhere/nbd.sock")), false),
            (None, "nbd://127.0.0.1:10809/v".to_owned(), false),
            (Some("127.0.0.1:10809"), "nbd://127.0.0.1/v".to_owned(), true),
            (Some("127.0.0.1:10809"), "nbds://localhost:10809/v".to_owned(), true),
            (Some("127.0.0.1:10809"), "nbd://127.0.0.1:10810/v".to_owned(), false),
            (Some("127.0.0.1:10809"), "nbd://127.0.0.2:10809/v".to_owned(), false),
            (Some("0.0.0.0:10809"), "nbd://127.0.0.1/v".to_owned(), true),
            (Some("[::]:10809"), "nbd://127.0.0.1/v".to_owned(), true),
            (Some("0.0.0.0:10809"), "nbd://192.0.2.7/v".to_owned(), false),
        ];
        for (listen, uri, expected) in cases {
            let own =
                OwnExports { socket: socket.clone(), listen: listen.map(|text| text.parse().expect("an address")) };
            assert_eq!(own.has(&uri.parse().expect("an address")), expected, "{listen:?} {uri}");
        }
    }
}
