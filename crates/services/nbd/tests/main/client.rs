//! A client of raw bytes, with time limits on its socket. Its numbers are written out from `doc/proto.md` of the NBD
//! project: a wrong number of the server's must not be right here too.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How long a test waits for an answer that must come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(8);

pub(crate) const READ: u16 = 0;
pub(crate) const WRITE: u16 = 1;
pub(crate) const DISCONNECT: u16 = 2;
pub(crate) const FLUSH: u16 = 3;
pub(crate) const TRIM: u16 = 4;
pub(crate) const CACHE: u16 = 5;
pub(crate) const ZEROES: u16 = 6;
pub(crate) const STATUS: u16 = 7;

pub(crate) const FUA: u16 = 1;
pub(crate) const NO_HOLE: u16 = 2;
pub(crate) const DONT_FRAGMENT: u16 = 4;
pub(crate) const ONE_EXTENT: u16 = 8;
pub(crate) const FAST_ZERO: u16 = 16;

pub(crate) const ACK: u32 = 1;

/// A stream of bytes.
pub(crate) trait Wire: Read + Write + Send {}
impl<T: Read + Write + Send> Wire for T {}

/// A connection.
pub(crate) struct Client {
    wire: Box<dyn Wire>,
    /// Lengths of reads that are not answered: a simple reply does not state its own.
    reads: HashMap<u64, usize>,
    cookie: u64,
}

/// What `GO` states.
#[derive(Debug, PartialEq, Eq, Default)]
pub(crate) struct Facts {
    pub(crate) bytes: u64,
    pub(crate) flags: u16,
    pub(crate) blocks: [u32; 3],
}

/// A reply to a request.
#[derive(Debug, PartialEq, Eq, Default, Clone)]
pub(crate) struct Reply {
    pub(crate) cookie: u64,
    pub(crate) error: u32,
    pub(crate) data: Vec<u8>,
    /// How many of the bytes came as holes.
    pub(crate) hole_bytes: usize,
    /// Block status: context, then lengths and states.
    pub(crate) status: Vec<(u32, Vec<(u32, u32)>)>,
}

pub(crate) fn unix(path: &Path) -> UnixStream {
    let stream = UnixStream::connect(path).expect("the server listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time limit");
    stream.set_write_timeout(Some(PATIENCE)).expect("a time limit");
    stream
}

pub(crate) fn tcp(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time limit");
    stream.set_write_timeout(Some(PATIENCE)).expect("a time limit");
    stream.set_nodelay(true).expect("no delay");
    stream
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().expect("as many bytes as the number has")
}

/// A string with its length in front.
pub(crate) fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()
}

/// The data of `INFO` and `GO`.
pub(crate) fn named(name: &str, infos: &[u16]) -> Vec<u8> {
    let mut data = string(name);
    data.extend_from_slice(&(infos.len() as u16).to_be_bytes());
    infos.iter().for_each(|info| data.extend_from_slice(&info.to_be_bytes()));
    data
}

/// The data of the options of contexts.
pub(crate) fn queries(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = string(name);
    data.extend_from_slice(&(queries.len() as u32).to_be_bytes());
    queries.iter().for_each(|query| data.extend_from_slice(&string(query)));
    data
}

/// An option as it is sent.
pub(crate) fn option(code: u32, data: &[u8]) -> Vec<u8> {
    [b"IHAVEOPT", &code.to_be_bytes()[..], &(data.len() as u32).to_be_bytes(), data].concat()
}

/// A request as it is sent, without payload.
pub(crate) fn request(flags: u16, command: u16, cookie: u64, offset: u64, length: u32) -> Vec<u8> {
    let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
    bytes.extend_from_slice(&flags.to_be_bytes());
    bytes.extend_from_slice(&command.to_be_bytes());
    bytes.extend_from_slice(&cookie.to_be_bytes());
    bytes.extend_from_slice(&offset.to_be_bytes());
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes
}

impl Client {
    pub(crate) fn new(wire: impl Wire + 'static) -> Client {
        Client { wire: Box::new(wire), reads: HashMap::new(), cookie: 0 }
    }

    /// Receives the greeting, and answers with these flags.
    pub(crate) fn greeted(wire: impl Wire + 'static, flags: u32) -> Client {
        let mut client = Client::new(wire);
        assert_eq!(client.take(18), b"NBDMAGICIHAVEOPT\x00\x03", "fixed newstyle, and zeros may be left out");
        client.send(&flags.to_be_bytes());
        client
    }

    /// Opens an export, with structured replies and these contexts if any are given.
    pub(crate) fn open(wire: impl Wire + 'static, name: &str, contexts: Option<&[&str]>) -> Client {
        let mut client = Client::greeted(wire, 3);
        if let Some(contexts) = contexts {
            assert_eq!(client.negotiate(8, &[]), [(ACK, vec![])]);
            let answers = client.negotiate(10, &queries(name, contexts));
            assert_eq!(answers.len(), contexts.len() + 1, "{answers:?}");
        }
        client.go(name).unwrap_or_else(|kind| panic!("{name} does not open: {kind:#x}"));
        client
    }

    /// `GO`; an error is its kind.
    pub(crate) fn go(&mut self, name: &str) -> Result<Facts, u32> {
        let mut facts = Facts::default();
        for (kind, data) in self.negotiate(7, &named(name, &[])) {
            match (kind, data.get(..2)) {
                (3, Some([0, 0])) => {
                    facts.bytes = u64::from_be_bytes(array(&data[2..10]));
                    facts.flags = u16::from_be_bytes(array(&data[10..12]));
                }
                (3, Some([0, 3])) => {
                    facts.blocks = [2, 6, 10].map(|at| u32::from_be_bytes(array(&data[at..at + 4])));
                }
                (ACK, _) => return Ok(facts),
                (kind, _) => return Err(kind),
            }
        }
        panic!("GO without a last reply")
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.wire.write_all(bytes).expect("the server receives");
        self.wire.flush().expect("the server receives");
    }

    /// Sends as much as the server takes; whether that was all.
    pub(crate) fn try_send(&mut self, bytes: &[u8]) -> bool {
        self.wire.write_all(bytes).and_then(|()| self.wire.flush()).is_ok()
    }

    pub(crate) fn take(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.wire.read_exact(&mut bytes).expect("the server sends");
        bytes
    }

    fn u16(&mut self) -> u16 {
        u16::from_be_bytes(array(&self.take(2)))
    }

    fn u32(&mut self) -> u32 {
        u32::from_be_bytes(array(&self.take(4)))
    }

    fn u64(&mut self) -> u64 {
        u64::from_be_bytes(array(&self.take(8)))
    }

    /// Waits for the end of the stream; returns what came before.
    pub(crate) fn until_end(&mut self) -> Vec<u8> {
        let (mut bytes, mut chunk) = (Vec::new(), [0; 4096]);
        loop {
            match self.wire.read(&mut chunk) {
                Ok(0) => return bytes,
                Ok(count) => bytes.extend_from_slice(&chunk[..count]),
                Err(error) => match error.kind() {
                    std::io::ErrorKind::ConnectionReset | std::io::ErrorKind::BrokenPipe => return bytes,
                    std::io::ErrorKind::UnexpectedEof => return bytes,
                    _ => panic!("the server does not end the session: {error}, after {} bytes", bytes.len()),
                },
            }
        }
    }

    /// Sends an option; returns its replies up to the last one.
    pub(crate) fn negotiate(&mut self, code: u32, data: &[u8]) -> Vec<(u32, Vec<u8>)> {
        self.send(&option(code, data));
        self.answers(code)
    }

    pub(crate) fn answers(&mut self, code: u32) -> Vec<(u32, Vec<u8>)> {
        let mut answers = Vec::new();
        loop {
            assert_eq!(self.u64(), 0x0003_e889_0455_65a9, "the magic of a reply to an option");
            assert_eq!(self.u32(), code, "the option that is replied to");
            let (kind, length) = (self.u32(), self.u32());
            let data = self.take(length as usize);
            answers.push((kind, data));
            if kind == ACK || kind >> 31 == 1 {
                return answers;
            }
        }
    }

    /// One reply to an option, unless the server ended the session.
    pub(crate) fn try_answer(&mut self) -> Option<()> {
        let mut head = [0; 20];
        self.wire.read_exact(&mut head).ok()?;
        let length = u32::from_be_bytes(array(&head[16..]));
        self.wire.read_exact(&mut vec![0; length as usize]).ok()
    }

    /// Sends a request; returns its cookie.
    pub(crate) fn begin(&mut self, flags: u16, command: u16, offset: u64, length: u32, payload: &[u8]) -> u64 {
        self.cookie += 1;
        let cookie = self.cookie << 32 | 0x5a;
        if command == READ {
            self.reads.insert(cookie, length as usize);
        }
        let mut bytes = request(flags, command, cookie, offset, length);
        bytes.extend_from_slice(payload);
        self.send(&bytes);
        cookie
    }

    /// Sends many reads of the first MiB at once: as many small calls would wait for a server that takes no more.
    pub(crate) fn begin_reads(&mut self, count: u64) {
        self.reads.extend((0..count).map(|cookie| (cookie, 1 << 20)));
        let requests: Vec<u8> = (0..count).flat_map(|cookie| request(0, READ, cookie, 0, 1 << 20)).collect();
        self.send(&requests);
    }

    /// Sends a request and waits for its reply.
    pub(crate) fn request(&mut self, flags: u16, command: u16, offset: u64, length: u32, payload: &[u8]) -> Reply {
        let cookie = self.begin(flags, command, offset, length, payload);
        let reply = self.reply();
        assert_eq!(reply.cookie, cookie, "the reply to command {command}");
        reply
    }

    /// Sends a command that no server knows; its reply, which comes before those to requests in the device.
    pub(crate) fn refused(&mut self) -> Reply {
        self.request(0, 999, 0, 0, &[])
    }

    pub(crate) fn read(&mut self, offset: u64, length: u32) -> Vec<u8> {
        let reply = self.request(0, READ, offset, length, &[]);
        assert_eq!(reply.error, 0, "reading {offset}+{length}");
        reply.data
    }

    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) -> u32 {
        self.request(0, WRITE, offset, bytes.len() as u32, bytes).error
    }

    /// One whole reply.
    pub(crate) fn reply(&mut self) -> Reply {
        match self.u32() {
            0x6744_6698 => self.simple(),
            0x668e_33ef => self.structured(),
            magic => panic!("{magic:#x} begins no reply"),
        }
    }

    fn simple(&mut self) -> Reply {
        let (error, cookie) = (self.u32(), self.u64());
        let length = self.reads.remove(&cookie).unwrap_or(0);
        let data = if error == 0 { self.take(length) } else { Vec::new() };
        Reply { cookie, error, data, ..Reply::default() }
    }

    fn structured(&mut self) -> Reply {
        let mut reply = Reply::default();
        let (mut next, mut length) = (None, None);
        loop {
            let (flags, kind, cookie, bytes) = (self.u16(), self.u16(), self.u64(), self.u32());
            assert!(length.is_none() || cookie == reply.cookie, "this server does not mix chunks of two replies");
            reply.cookie = cookie;
            let length = *length.get_or_insert_with(|| self.reads.remove(&cookie).unwrap_or(0));
            let payload = self.take(bytes as usize);
            let at = |range: std::ops::Range<usize>| u64::from_be_bytes(array(&payload[range]));
            let small = |at: usize| u32::from_be_bytes(array(&payload[at..at + 4]));
            match kind {
                0 => assert!(payload.is_empty() && flags & 1 == 1, "a chunk of nothing is the last"),
                1 | 2 => {
                    let offset = at(0..8);
                    assert_eq!(offset, *next.get_or_insert(offset), "chunks are in order, without gaps");
                    let before = reply.data.len();
                    if kind == 1 {
                        reply.data.extend_from_slice(&payload[8..]);
                    } else {
                        reply.data.resize(before + small(8) as usize, 0);
                        reply.hole_bytes += small(8) as usize;
                    }
                    next = Some(offset + (reply.data.len() - before) as u64);
                }
                5 => {
                    let list = (4..payload.len()).step_by(8).map(|place| (small(place), small(place + 4)));
                    reply.status.push((small(0), list.collect()));
                }
                0x8001 => {
                    reply.error = small(0);
                    let text = usize::from(u16::from_be_bytes(array(&payload[4..6])));
                    assert_eq!(payload.len(), 6 + text, "the text of an error has its length");
                }
                kind => panic!("chunk of kind {kind:#x}"),
            }
            if flags & 1 == 1 {
                assert!(reply.error != 0 || reply.data.len() == length, "a read has all of its bytes");
                return reply;
            }
            assert_eq!(self.u32(), 0x668e_33ef, "the magic of the next chunk");
        }
    }
}
