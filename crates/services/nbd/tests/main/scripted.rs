//! A server of raw bytes that is strict about what it offered, and misbehaves by a script. Its numbers are written out from
//! `doc/proto.md` of the NBD project.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use tempfile::TempDir;

use crate::client::{FLUSH, FUA, READ, STATUS, WRITE, ZEROES};

pub(crate) const HAS_FLAGS: u16 = 1;
pub(crate) const CAN_FLUSH: u16 = 4;
pub(crate) const CAN_FUA: u16 = 8;
pub(crate) const CAN_ZERO: u16 = 64;

/// A request as the server got it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Got {
    pub(crate) flags: u16,
    pub(crate) command: u16,
    pub(crate) cookie: u64,
    pub(crate) offset: u64,
    pub(crate) length: u32,
}

/// What the server does with a request.
pub(crate) enum Twist {
    /// What it should.
    Obey,
    /// Answers an error.
    Fail(u32),
    /// Sends bytes instead of a reply.
    Send(Vec<u8>),
    /// Does nothing.
    Ignore,
    /// Ends the connection.
    Close,
}

/// The number of the connection and of the request in it, from 0, and the request.
type Twister = dyn Fn(usize, usize, &Got) -> Twist + Send + Sync;

/// What the server offers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Offer {
    pub(crate) bytes: u64,
    pub(crate) flags: u16,
    pub(crate) structured: bool,
    /// Smallest, preferred, largest; none stated otherwise.
    pub(crate) blocks: Option<[u32; 3]>,
    /// `GO` is unknown to it.
    pub(crate) is_old: bool,
}

impl Default for Offer {
    fn default() -> Offer {
        let flags = HAS_FLAGS | CAN_FLUSH | CAN_FUA | CAN_ZERO;
        Offer { bytes: 1 << 20, flags, structured: false, blocks: Some([1, 4096, 32 << 20]), is_old: false }
    }
}

/// The server, on a unix socket, with one memory for all connections.
pub(crate) struct Scripted {
    pub(crate) socket: PathBuf,
    shared: Arc<Shared>,
    _folder: TempDir,
}

struct Shared {
    offer: Offer,
    memory: Mutex<Vec<u8>>,
    got: Mutex<Vec<Got>>,
    faults: Mutex<Vec<String>>,
    twist: Box<Twister>,
}

impl Scripted {
    pub(crate) fn new(offer: Offer, twist: impl Fn(usize, usize, &Got) -> Twist + Send + Sync + 'static) -> Scripted {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("nbd.sock");
        let listener = UnixListener::bind(&socket).expect("listens");
        let memory = vec![0; offer.bytes.min(64 << 20) as usize];
        let (got, faults) = (Mutex::default(), Mutex::default());
        let shared = Arc::new(Shared { offer, memory: Mutex::new(memory), got, faults, twist: Box::new(twist) });
        let inside = Arc::clone(&shared);
        std::thread::spawn(move || {
            for (number, stream) in listener.incoming().flatten().enumerate() {
                let shared = Arc::clone(&inside);
                std::thread::spawn(move || shared.serve(number, stream));
            }
        });
        Scripted { socket, shared, _folder: folder }
    }

    /// The requests since the last call.
    pub(crate) fn got(&self) -> Vec<Got> {
        std::mem::take(&mut self.shared.got.lock())
    }

    pub(crate) fn memory(&self) -> Vec<u8> {
        self.shared.memory.lock().clone()
    }

    /// Requests that this server never offered to carry out.
    pub(crate) fn assert_content(&self) {
        assert_eq!(*self.shared.faults.lock(), [""; 0]);
    }
}

fn answer(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let head = [option.to_be_bytes(), kind.to_be_bytes(), (data.len() as u32).to_be_bytes()].concat();
    [&0x0003_e889_0455_65a9_u64.to_be_bytes()[..], &head, data].concat()
}

/// A simple reply.
pub(crate) fn simple(cookie: u64, error: u32) -> Vec<u8> {
    [&0x6744_6698_u32.to_be_bytes()[..], &error.to_be_bytes(), &cookie.to_be_bytes()].concat()
}

/// A chunk.
pub(crate) fn chunk(cookie: u64, is_last: bool, kind: u16, payload: &[u8]) -> Vec<u8> {
    let head = [u16::from(is_last).to_be_bytes(), kind.to_be_bytes()].concat();
    let length = (payload.len() as u32).to_be_bytes();
    [&0x668e_33ef_u32.to_be_bytes()[..], &head, &cookie.to_be_bytes(), &length, payload].concat()
}

impl Shared {
    fn serve(&self, number: usize, mut stream: UnixStream) {
        let _ = self.negotiate(&mut stream).and_then(|()| self.transmit(number, &mut stream));
    }

    fn negotiate(&self, stream: &mut UnixStream) -> std::io::Result<()> {
        stream.write_all(b"NBDMAGICIHAVEOPT\x00\x03")?;
        stream.read_exact(&mut [0; 4])?;
        let Offer { bytes, flags, structured, blocks, is_old } = self.offer;
        loop {
            let mut head = [0; 16];
            stream.read_exact(&mut head)?;
            let option = u32::from_be_bytes(head[8..12].try_into().expect("four bytes"));
            let length = u32::from_be_bytes(head[12..].try_into().expect("four bytes"));
            stream.read_exact(&mut vec![0; length as usize])?;
            let facts = [&bytes.to_be_bytes()[..], &flags.to_be_bytes()].concat();
            match option {
                1 => return stream.write_all(&facts),
                8 if structured => stream.write_all(&answer(8, 1, &[]))?,
                10 if structured => {
                    let context = [&7u32.to_be_bytes()[..], b"base:allocation"].concat();
                    stream.write_all(&[answer(10, 4, &context), answer(10, 1, &[])].concat())?;
                }
                7 if !is_old => {
                    let mut all = answer(7, 3, &[&[0, 0], &facts[..]].concat());
                    if let Some(blocks) = blocks {
                        let stated = blocks.iter().flat_map(|block| block.to_be_bytes()).collect::<Vec<_>>();
                        all.extend(answer(7, 3, &[&[0, 3], &stated[..]].concat()));
                    }
                    all.extend(answer(7, 1, &[]));
                    return stream.write_all(&all);
                }
                other => stream.write_all(&answer(other, 0x8000_0001, &[]))?,
            }
        }
    }

    fn transmit(&self, connection: usize, stream: &mut UnixStream) -> std::io::Result<()> {
        for number in 0.. {
            let mut head = [0; 28];
            stream.read_exact(&mut head)?;
            let small = |at: usize| u16::from_be_bytes(head[at..at + 2].try_into().expect("two bytes"));
            let large = |at: usize| u64::from_be_bytes(head[at..at + 8].try_into().expect("eight bytes"));
            let length = u32::from_be_bytes(head[24..].try_into().expect("four bytes"));
            let got = Got { flags: small(4), command: small(6), cookie: large(8), offset: large(16), length };
            let mut payload = vec![0; if got.command == WRITE { length as usize } else { 0 }];
            stream.read_exact(&mut payload)?;
            self.got.lock().push(got);
            self.check(&got);
            match (self.twist)(connection, number, &got) {
                Twist::Obey => stream.write_all(&self.obey(&got, &payload))?,
                Twist::Fail(error) if self.offer.structured && got.command == READ => {
                    let payload = [&error.to_be_bytes()[..], &[0, 2], b"no"].concat();
                    stream.write_all(&chunk(got.cookie, true, 0x8001, &payload))?;
                }
                Twist::Fail(error) => stream.write_all(&simple(got.cookie, error))?,
                Twist::Send(bytes) => stream.write_all(&bytes)?,
                Twist::Ignore => {}
                Twist::Close => return Ok(()),
            }
        }
        Ok(())
    }

    /// Notes what was not offered.
    fn check(&self, got: &Got) {
        let [least, _, most] = self.offer.blocks.unwrap_or([512, 4096, 32 << 20]);
        let has = |flag| self.offer.flags & flag != 0;
        let is_fine = match got.command {
            2 => true,
            FLUSH => has(CAN_FLUSH) && got.length == 0,
            ZEROES => has(CAN_ZERO),
            READ => got.length <= most,
            WRITE => got.length <= most,
            STATUS => self.offer.structured,
            _ => false,
        };
        let is_aligned = got.offset.is_multiple_of(least.into()) && got.length.is_multiple_of(least);
        let is_inside = got.offset + u64::from(got.length) <= self.offer.bytes;
        if !is_fine || !is_aligned || !is_inside || (got.flags & FUA != 0 && !has(CAN_FUA)) {
            self.faults.lock().push(format!("{got:?}"));
        }
    }

    fn obey(&self, got: &Got, payload: &[u8]) -> Vec<u8> {
        let mut memory = self.memory.lock();
        let range = got.offset as usize..got.offset as usize + got.length as usize;
        match got.command {
            READ if self.offer.structured => {
                // In two chunks, the second part first.
                let half = got.length as usize / 2;
                let data = |from: usize, to: usize| {
                    [&((got.offset as usize + from) as u64).to_be_bytes()[..], &memory[range.start..][from..to]]
                        .concat()
                };
                let later = chunk(got.cookie, false, 1, &data(half, got.length as usize));
                [later, chunk(got.cookie, true, 1, &data(0, half))].concat()
            }
            READ => [&simple(got.cookie, 0), &memory[range]].concat(),
            STATUS => {
                let each = [7u32, (got.length / 2).max(1), 3]
                    .iter()
                    .flat_map(|number| number.to_be_bytes())
                    .collect::<Vec<_>>();
                chunk(got.cookie, true, 5, &each)
            }
            WRITE => {
                memory[range].copy_from_slice(payload);
                simple(got.cookie, 0)
            }
            ZEROES => {
                memory[range].fill(0);
                simple(got.cookie, 0)
            }
            _ => simple(got.cookie, 0),
        }
    }
}
