//! The engine against a server that the test plays: what is sent, in which order, and what callers are told.

use std::sync::Arc;
use std::time::{Duration, Instant};

use device::{AlignedBuffer, BLOCK_BYTES, DeviceError, IoRequest, IoSink};
use parking_lot::Mutex;

use super::engine::{Bounds, Due, Engine, Persistence};
use super::job::Job;
use super::options::ClientOptions;
use crate::protocol::asking::Opened;
use crate::protocol::reply::Head;
use crate::protocol::request::{REQUEST_BYTES, Request, RequestFrame};
use crate::protocol::{ExportFacts, command, errno, export_flag};
use crate::uri::NbdUri;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Results by token.
#[derive(Default)]
struct Results(Mutex<Vec<(u64, Result<(), DeviceError>)>>);

impl IoSink for Results {
    fn complete(&self, request: IoRequest, result: Result<(), DeviceError>) {
        self.0.lock().push((request.token, result));
    }
}

/// An engine, its callers and its server.
struct Play {
    engine: Engine,
    results: Arc<Results>,
    now: Instant,
}

impl Play {
    /// With a server that has flush, and no FUA.
    fn new() -> Play {
        let engine = Engine::new("a", BLOCK, Persistence::Flush { fua: false }, Bounds::of(&Play::options()));
        let mut play = Play { engine, results: Arc::default(), now: Instant::now() };
        play.engine.connected(&Play::opened());
        play
    }

    fn options() -> ClientOptions {
        ClientOptions::new(NbdUri::tcp("a", 1, "b"))
    }

    fn opened() -> Opened {
        let flags = export_flag::HAS_FLAGS | export_flag::FLUSH;
        let facts = ExportFacts { bytes: 1 << 20, flags, min_block: 1, max_payload: 1 << 20, ..ExportFacts::default() };
        Opened { facts, ..Opened::default() }
    }

    fn push(&mut self, request: IoRequest) {
        let sink = Arc::clone(&self.results) as Arc<dyn IoSink>;
        self.engine.push(Job::of_request(request, sink, false), self.now);
    }

    fn write(&mut self, block: u64, byte: u8, token: u64) {
        self.push(IoRequest::write(block * BLOCK, AlignedBuffer::from(&[byte; BLOCK_BYTES][..]), token));
    }

    /// What is sent now: cookie, command, block, and the first byte of a payload.
    fn sent(&mut self) -> Vec<(u64, u16, u64, u8)> {
        let mut out = Vec::new();
        self.engine.emit(&mut out, self.now);
        let (mut all, mut rest) = (Vec::new(), &out[..]);
        while let RequestFrame::Whole(request) = Request::frame(rest) {
            let payload = request.payload() as usize;
            let byte = if payload > 0 { rest[REQUEST_BYTES] } else { 0 };
            all.push((request.cookie, request.command, request.offset / BLOCK, byte));
            rest = &rest[REQUEST_BYTES + payload..];
        }
        all
    }

    fn answer(&mut self, cookie: u64, error: u32) {
        let reply = Head::simple(cookie, error);
        let used = self.engine.receive(reply.as_slice(), self.now).expect("a proper reply");
        assert_eq!(used, reply.as_slice().len());
        self.engine.deliver();
    }

    /// Sends and answers one write.
    fn written(&mut self, block: u64, byte: u8) {
        self.write(block, byte, 0);
        let sent = self.sent();
        assert_eq!(sent.iter().map(|sent| (sent.1, sent.2)).collect::<Vec<_>>(), [(command::WRITE, block)]);
        self.answer(sent[0].0, 0);
    }

    fn reconnect(&mut self) {
        self.engine.lost("a test", self.now);
        self.engine.connected(&Play::opened());
    }

    /// Tokens and outcomes since the last call.
    fn results(&mut self) -> Vec<(u64, bool)> {
        self.engine.deliver();
        std::mem::take(&mut *self.results.0.lock()).into_iter().map(|(token, result)| (token, result.is_ok())).collect()
    }
}

#[test]
fn copies_that_overlap_are_sent_again_one_after_the_other_and_all_before_anything_else() {
    let mut play = Play::new();
    for (block, byte) in [(0, 1), (1, 2), (0, 3), (2, 4)] {
        play.written(block, byte);
    }
    play.write(5, 9, 7);
    play.write(6, 9, 8);
    assert_eq!(play.sent().len(), 2);
    play.push(IoRequest::flush(9));
    play.reconnect();
    let first = play.sent();
    assert_eq!(first.iter().map(|sent| sent.3).collect::<Vec<_>>(), [1, 2], "the third overlaps the first");
    play.answer(first[1].0, 0);
    assert_eq!(play.sent(), []);
    play.answer(first[0].0, 0);
    let second = play.sent();
    assert_eq!(second.iter().map(|sent| sent.3).collect::<Vec<_>>(), [3, 4]);
    assert!(!play.engine.is_settled());
    play.answer(second[0].0, 0);
    assert_eq!(play.sent(), [], "nothing new before the last copy is answered");
    play.answer(second[1].0, 0);
    assert!(play.engine.is_settled());
    let rest = play.sent();
    let expected = [(command::WRITE, 5), (command::WRITE, 6), (command::FLUSH, 0)];
    assert_eq!(rest.iter().map(|sent| (sent.1, sent.2)).collect::<Vec<_>>(), expected);
}

#[test]
fn a_flush_covers_the_writes_that_were_acknowledged_before_it_was_sent_and_no_other() {
    let mut play = Play::new();
    play.written(0, 1);
    play.write(1, 2, 1);
    let late = play.sent()[0].0;
    play.push(IoRequest::flush(2));
    let flush = play.sent()[0].0;
    play.answer(late, 0);
    play.answer(flush, 0);
    assert_eq!(play.results(), [(0, true), (1, true), (2, true)]);
    play.reconnect();
    let again = play.sent();
    assert_eq!(again.iter().map(|sent| (sent.1, sent.2)).collect::<Vec<_>>(), [(command::WRITE, 1)]);
    // A flush that is lost with its connection covers nothing.
    play.answer(again[0].0, 0);
    play.push(IoRequest::flush(3));
    play.sent();
    play.reconnect();
    let again = play.sent();
    assert_eq!(again.iter().map(|sent| sent.1).collect::<Vec<_>>(), [command::WRITE]);
    assert_eq!(play.results(), []);
}

#[test]
fn once_a_change_failed_no_other_succeeds_whatever_the_server_answers() {
    let mut play = Play::new();
    play.write(0, 1, 0);
    play.push(IoRequest::write_flush(BLOCK, AlignedBuffer::zeroed(BLOCK_BYTES), 1));
    play.push(IoRequest::flush(2));
    let sent = play.sent();
    assert_eq!(sent.len(), 3);
    play.answer(sent[2].0, errno::IO);
    assert_eq!(play.results(), [(2, false)]);
    // The server did these, but what of them is persistent is unknown.
    play.answer(sent[0].0, 0);
    play.answer(sent[1].0, 0);
    for (cookie, kind, ..) in play.sent() {
        assert_eq!(kind, command::FLUSH);
        play.answer(cookie, 0);
    }
    assert_eq!(play.results(), [(0, false), (1, false)]);
    play.write(3, 1, 4);
    assert_eq!(play.sent(), [], "nothing is sent any more");
    assert_eq!(play.results(), [(4, false)]);
}

#[test]
fn time_limits_are_of_the_oldest_reply_and_of_waiting_for_a_connection() {
    let mut play = Play::new();
    let options = Play::options();
    assert_eq!((play.engine.deadline(), play.engine.due(play.now)), (None, None));
    play.written(0, 1);
    play.write(1, 1, 1);
    play.sent();
    assert_eq!(play.engine.deadline(), Some(play.now + options.request_timeout));
    assert_eq!(play.engine.due(play.now + options.request_timeout - Duration::from_millis(1)), None);
    assert_eq!(play.engine.due(play.now + options.request_timeout), Some(Due::Cut));
    play.engine.lost("a test", play.now);
    assert_eq!(play.engine.due(play.now + options.reconnect_for - Duration::from_millis(1)), None);
    assert_eq!(play.engine.due(play.now + options.reconnect_for), Some(Due::End));
    // A connection that never serves a request does not count, one that does begins anew.
    play.now += options.reconnect_for / 2;
    play.engine.connected(&Play::opened());
    let copy = play.sent()[0].0;
    play.answer(copy, 0);
    play.reconnect();
    assert_eq!(play.engine.due(play.now + options.reconnect_for / 2), Some(Due::End));
    let copy = play.sent()[0].0;
    play.answer(copy, 0);
    let write = play.sent()[0].0;
    play.answer(write, 0);
    assert_eq!(play.engine.deadline(), None);
}
