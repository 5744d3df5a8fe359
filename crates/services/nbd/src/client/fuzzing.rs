//! The entry point of the fuzz target of the client's reading side: an [`Engine`] with requests of every kind, and bytes of a server that
//! may be anybody. Besides not panicking, each request comes back exactly once, and its buffer keeps its length.

use std::sync::Arc;
use std::time::Instant;

use device::{AlignedBuffer, BLOCK_BYTES, DeviceError, IoKind, IoRequest, IoSink};
use parking_lot::Mutex;

use super::engine::{Bounds, Engine, Persistence};
use super::job::{ExtentsWaiter, Job};
use super::options::ClientOptions;
use crate::protocol::asking::Opened;
use crate::protocol::{ExportFacts, export_flag};
use crate::uri::NbdUri;

/// Requests that came back: token, and whether it succeeded.
#[derive(Default)]
struct Returned(Mutex<Vec<(u64, bool)>>);

impl IoSink for Returned {
    fn complete(&self, request: IoRequest, result: Result<(), DeviceError>) {
        assert!(
            request.kind != IoKind::Read || request.buffer.len() as u64 == request.bytes,
            "a buffer changed its length"
        );
        self.0.lock().push((request.token, result.is_ok()));
    }
}

/// What the export is, by a byte of the input.
fn opened(choice: u8) -> Opened {
    let has = |bit: u8, flag: u16| if choice & bit != 0 { flag } else { 0 };
    let flags = has(2, export_flag::FLUSH) | has(4, export_flag::FUA) | has(8, export_flag::WRITE_ZEROES);
    let facts = ExportFacts {
        bytes: 1 << 20,
        flags: flags | export_flag::HAS_FLAGS,
        min_block: if choice & 16 != 0 { 16384 } else { 1 },
        max_payload: if choice & 32 != 0 { 16384 } else { 1 << 20 },
        ..ExportFacts::default()
    };
    let structured = choice & 1 != 0;
    Opened { facts, structured, allocation: structured.then_some(1) }
}

/// A byte that chooses the export, one that says where to cut, then what a server sends.
pub(crate) fn device_bytes(input: &[u8]) {
    let Some(([choice, cut], bytes)) = input.split_first_chunk::<2>() else { return };
    let (opened, now) = (opened(*choice), Instant::now());
    let mut options = ClientOptions::new(NbdUri::tcp("a", 1, "b"));
    options.unflushed_bytes = 3 * BLOCK_BYTES as u64;
    let mut engine = Engine::new("a", BLOCK_BYTES as u64, Persistence::of(&opened), Bounds::of(&options));
    let returned = Arc::new(Returned::default());
    let block = || AlignedBuffer::zeroed(BLOCK_BYTES);
    let requests = [
        IoRequest::read(4096, AlignedBuffer::zeroed(3 * BLOCK_BYTES), 0),
        IoRequest::write(4096, block(), 1),
        IoRequest::write_flush(20480, block(), 2),
        IoRequest::discard(8192, 8192, 3),
        IoRequest::flush(4),
        IoRequest::write(0, block(), 5),
        IoRequest::read(0, block(), 6),
    ];
    let count = requests.len();
    for request in requests {
        engine.push(Job::of_request(request, Arc::clone(&returned) as Arc<dyn IoSink>, false), now);
    }
    engine.push(Job::extents(0, 65536, Arc::new(ExtentsWaiter::default())), now);
    let step = 1 + usize::from(*cut);
    let (mut from, mut to) = (0, 0);
    engine.connected(&opened);
    let mut out = Vec::new();
    while to < bytes.len() && !engine.is_dead() {
        out.clear();
        engine.emit(&mut out, now);
        to = (to + step).min(bytes.len());
        match engine.receive(&bytes[from..to], now) {
            Ok(used) => {
                assert!(used <= to - from, "more was used than there was");
                from += used;
            }
            Err(why) => {
                // The next connection; whatever comes is the beginning of it.
                engine.lost(why, now);
                from = to;
                if !engine.is_dead() {
                    engine.connected(&opened);
                }
            }
        }
        assert!(engine.unflushed_bytes() <= options.unflushed_bytes, "copies take more memory than allowed");
        engine.deliver();
    }
    engine.end("the input ends");
    engine.deliver();
    let mut tokens: Vec<_> = returned.0.lock().iter().map(|(token, _)| *token).collect();
    tokens.sort_unstable();
    assert_eq!(tokens, (0..count as u64).collect::<Vec<_>>(), "each request comes back once");
}
