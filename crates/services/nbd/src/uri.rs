//! Addresses of exports, as the NBD project writes them.
//!
//! ```text
//!   nbd://host[:port]/name                  TCP
//!   nbds://host[:port]/name                 TCP with TLS
//!   nbd+unix:///name?socket=/path           unix socket
//!   nbds+unix:///name?socket=/path          unix socket with TLS
//! ```
//!
//! Name and path are percent-decoded. The name may contain slashes and an epoch (`vol-7/b@41`); it may be empty, which is the default
//! export of a server. What is written reads back as the same address.
//!
//! Left out: vsock, ssh, user names, and the parameters `tls-...`: certificates are part of the options of the client.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use url::Host;

use crate::error::NbdError;
use crate::protocol::{PORT, STRING_BYTES_MAX};

/// The longest path of a unix socket on Linux.
const PATH_BYTES_MAX: usize = 107;

/// Where an export is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NbdUri {
    /// Where the server listens.
    pub endpoint: Endpoint,
    /// Whether the connection has to use TLS.
    pub tls: bool,
    /// The name of the export; empty for the default one.
    pub name: String,
}

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// TCP.
    Tcp {
        /// A name or an address, without brackets.
        host: String,
        /// The port.
        port: u16,
    },
    /// A unix socket.
    Unix(PathBuf),
}

impl NbdUri {
    /// An export over a unix socket.
    pub fn unix(socket: &Path, name: &str) -> NbdUri {
        NbdUri { endpoint: Endpoint::Unix(socket.to_owned()), tls: false, name: name.to_owned() }
    }

    /// An export over TCP.
    pub fn tcp(host: &str, port: u16, name: &str) -> NbdUri {
        NbdUri { endpoint: Endpoint::Tcp { host: host.to_owned(), port }, tls: false, name: name.to_owned() }
    }

    fn parsed(text: &str) -> Result<NbdUri, String> {
        let (scheme, rest) = text.split_once("://").ok_or("it has no scheme")?;
        let (is_unix, tls) = match scheme.to_ascii_lowercase().as_str() {
            "nbd" => (false, false),
            "nbds" => (false, true),
            "nbd+unix" => (true, false),
            "nbds+unix" => (true, true),
            _ => return Err(format!("the scheme {scheme} is none of nbd, nbds, nbd+unix, nbds+unix")),
        };
        if rest.contains('#') {
            return Err("it has a fragment (#)".to_owned());
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, name) = rest.split_once('/').unwrap_or((rest, ""));
        let name = String::from_utf8(decoded(name)?).map_err(|_| "the name is not UTF-8")?;
        if name.len() > STRING_BYTES_MAX || name.contains('\0') {
            return Err(format!("the name has more than {STRING_BYTES_MAX} bytes, or a zero"));
        }
        let socket = socket(query)?;
        let endpoint = match (is_unix, socket) {
            (true, Some(path)) if authority.is_empty() => Endpoint::Unix(path),
            (true, Some(_)) => return Err("an address of a unix socket has no host".to_owned()),
            (true, None) => return Err("the parameter socket is missing".to_owned()),
            (false, Some(_)) => return Err("the parameter socket needs nbd+unix".to_owned()),
            (false, None) => tcp(authority)?,
        };
        Ok(NbdUri { endpoint, tls, name })
    }
}

/// The only parameter.
fn socket(query: &str) -> Result<Option<PathBuf>, String> {
    let mut socket = None;
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        if key != "socket" || socket.is_some() {
            return Err(format!("the parameter {key} is unknown, or there twice"));
        }
        let path = decoded(value)?;
        if !(1..=PATH_BYTES_MAX).contains(&path.len()) || path.contains(&0) {
            return Err(format!("the path of a socket has 1 to {PATH_BYTES_MAX} bytes, and no zero"));
        }
        socket = Some(std::os::unix::ffi::OsStringExt::from_vec(path)).map(|path: std::ffi::OsString| path.into());
    }
    Ok(socket)
}

fn tcp(authority: &str) -> Result<Endpoint, String> {
    if authority.contains('@') {
        return Err("user names are not supported".to_owned());
    }
    let host_end = authority.rfind(']').map_or(0, |bracket| bracket + 1);
    let (host, port) = match authority[host_end..].find(':') {
        None => (authority, PORT),
        Some(colon) => {
            let (host, port) = authority.split_at(host_end + colon);
            let port = port[1..]
                .parse()
                .ok()
                .filter(|port: &u16| *port > 0 && port.to_string() == authority[host.len() + 1..]);
            (host, port.ok_or("the port is no number from 1 to 65535")?)
        }
    };
    let host = match Host::parse(host).map_err(|error| format!("the host {host:?} is none: {error}"))? {
        Host::Domain(name) => name,
        Host::Ipv4(address) => address.to_string(),
        Host::Ipv6(address) => address.to_string(),
    };
    Ok(Endpoint::Tcp { host, port })
}

fn decoded(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digit = |at: usize| behind.get(at).and_then(|byte| char::from(*byte).to_digit(16));
        let (Some(high), Some(low)) = (digit(0), digit(1)) else {
            return Err("behind a % there are not two hexadecimal digits".to_owned());
        };
        bytes.push((high << 4 | low) as u8);
        rest = &behind[2..];
    }
    Ok(bytes)
}

/// Writes what may be in a path and in a parameter as it is, and the rest as `%41`.
fn encode(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-._~/@:,+=".contains(byte) {
            write!(f, "{}", char::from(*byte))?;
        } else {
            write!(f, "%{byte:02X}")?;
        }
    }
    Ok(())
}

impl FromStr for NbdUri {
    type Err = NbdError;

    /// # Errors
    /// [`NbdError::Address`].
    fn from_str(text: &str) -> Result<NbdUri, NbdError> {
        NbdUri::parsed(text).map_err(|problem| NbdError::Address { address: text.to_owned(), problem })
    }
}

impl fmt::Display for NbdUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tls = if self.tls { "s" } else { "" };
        match &self.endpoint {
            Endpoint::Tcp { host, port } => {
                let (open, close) = if host.contains(':') { ("[", "]") } else { ("", "") };
                write!(f, "nbd{tls}://{open}{host}{close}")?;
                if *port != PORT {
                    write!(f, ":{port}")?;
                }
                f.write_str("/")?;
                encode(self.name.as_bytes(), f)
            }
            Endpoint::Unix(path) => {
                write!(f, "nbd{tls}+unix:///")?;
                encode(self.name.as_bytes(), f)?;
                f.write_str("?socket=")?;
                encode(path.as_os_str().as_encoded_bytes(), f)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_reads_as_what_it_means_and_is_written_in_one_way() {
        for (text, written) in [
            ("nbd://host", "nbd://host/"),
            ("nbd://host/", "nbd://host/"),
            ("NBD://HOST:10809/a", "nbd://host/a"),
            ("nbds://10.0.0.7:7000/vol-7/b@41", "nbds://10.0.0.7:7000/vol-7/b@41"),
            ("nbd://[::1]:7/a%20b", "nbd://[::1]:7/a%20b"),
            ("nbd://[2001:DB8::1]/%2fa", "nbd://[2001:db8::1]//a"),
            ("nbd+unix:///a?socket=/run/a.sock", "nbd+unix:///a?socket=/run/a.sock"),
            ("nbds+unix:///?socket=/run/a%20b%25.sock", "nbds+unix:///?socket=/run/a%20b%25.sock"),
            ("nbd+unix://?socket=rel.sock", "nbd+unix:///?socket=rel.sock"),
            ("nbd://host/%C3%A4", "nbd://host/%C3%A4"),
        ] {
            let uri: NbdUri = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(uri.to_string(), written, "{text}");
            assert_eq!(written.parse::<NbdUri>().expect("what was written reads back"), uri, "{text}");
        }
        let uri: NbdUri = "nbds+unix:///vol%2F7?socket=%2Frun%2Fx".parse().expect("an address");
        assert_eq!(uri, NbdUri { tls: true, ..NbdUri::unix(Path::new("/run/x"), "vol/7") });
        assert_eq!("nbd://[::1]".parse::<NbdUri>().expect("an address"), NbdUri::tcp("::1", 10809, ""));
    }

    #[test]
    fn what_is_no_address_is_refused_with_the_fault_in_it() {
        for (text, problem) in [
            ("", "no scheme"),
            ("host:10809", "no scheme"),
            ("http://host/a", "scheme http"),
            ("nbd+vsock://1/a", "scheme nbd+vsock"),
            ("nbd:///a", "the host"),
            ("nbd://user@host/a", "user names"),
            ("nbd://host:/a", "port"),
            ("nbd://host:0/a", "port"),
            ("nbd://host:+7/a", "port"),
            ("nbd://host:70000/a", "port"),
            ("nbd://a b/a", "the host"),
            ("nbd://[::1/a", "the port"),
            ("nbd://[::1]x/a", "the host"),
            ("nbd://host/a#b", "fragment"),
            ("nbd://host/%4", "hexadecimal"),
            ("nbd://host/%zz", "hexadecimal"),
            ("nbd://host/%ff", "UTF-8"),
            ("nbd://host/%00", "a zero"),
            ("nbd://host/a?socket=/x", "needs nbd+unix"),
            ("nbd+unix:///a", "socket is missing"),
            ("nbd+unix:///a?socket=", "1 to 107 bytes"),
            ("nbd+unix://host/a?socket=/x", "has no host"),
            ("nbd+unix:///a?socket=/x&socket=/y", "twice"),
            ("nbds+unix:///a?socket=/x&tls-certificates=/y", "tls-certificates is unknown"),
        ] {
            let error = text.parse::<NbdUri>().expect_err(text).to_string();
            assert!(error.contains(problem), "{text}: {error}");
        }
        let long = format!("nbd://host/{}", "x".repeat(STRING_BYTES_MAX + 1));
        assert!(long.parse::<NbdUri>().is_err());
    }
}
