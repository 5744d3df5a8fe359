//! MLLP framing: where one message ends and the next begins on a byte stream.
//!
//! ```text
//!   0x0B  payload ...........................  0x1C 0x0D
//!   VT    bytes >= 0x20, and CR between        FS   CR
//!         segments
//! ```
//!
//! The block format is the Minimal Lower Layer Protocol of the HL7 standard (implementation guide, appendix C; kept by
//! MLLP release 1 and 2). VT and FS are below 0x20, so no text encoding MLLP can carry (ASCII, ISO 8859, UTF-8,
//! Shift_JIS, GB 18030) contains them; UTF-16 and UTF-32 do and cannot be carried.
//!
//! A [`Decoder`] owns the receive buffer. A server reads its socket into [`Decoder::buffer`], then takes events until
//! there are no more:
//!
//! ```text
//!   Between --VT--> Inside --FS (CR)--> Between        Frame
//!      |              |--VT--> Inside                  Restarted: the sender began again
//!    Junk             '--too long--> Skipping          Oversize, once
//!                                      |--FS (CR)--> Between
//!                                      '--VT--> Inside             Restarted
//! ```
//!
//! Invariants:
//! - The events depend on the bytes alone, never on how reads cut them.
//! - Every byte is examined once (twice where an FS is the last byte of a read): a long message in many small reads
//!   costs linear time. [`Decoder::examined`] counts.
//! - The buffer never holds more than `message_bytes` and what one read added, however long the frame on the wire is.
//! - A frame that did not end is never delivered.
//! - Between frames the buffer is as small as its content, however long the frame before was.
//!
//! The meaning of an FS: with `require_final_cr` unset (the default) FS ends the frame and a CR after it is dropped, so
//! peers that omit the CR get their acknowledgement. With it set, FS CR ends the frame, FS VT too (the next frame has
//! begun), and FS before anything else is a byte of the payload.
//!
//! Not here: sockets, timeouts, the content of answers. The caller implements the release 2 retry protocol; only its
//! two commit frames are known here.

use bytes::{Buf, Bytes, BytesMut};
use memchr::{memchr, memchr2};
use std::fmt;

/// First byte of a frame: VT.
pub const START: u8 = 0x0B;
/// Ends the payload: FS.
pub const END: u8 = 0x1C;
/// Follows [`END`]; also ends each segment inside the payload.
pub const CR: u8 = 0x0D;
/// What goes before a payload, for vectored writes.
pub const HEADER: [u8; 1] = [START];
/// What goes after a payload, for vectored writes.
pub const TRAILER: [u8; 2] = [END, CR];

/// ASCII ACK, the payload of [`COMMIT_ACK`].
const ACK: u8 = 0x06;
/// ASCII NAK, the payload of [`COMMIT_NAK`].
const NAK: u8 = 0x15;
/// The release 2 frame that means "stored".
pub const COMMIT_ACK: [u8; 4] = [START, ACK, END, CR];
/// The release 2 frame that means "not stored, send it again".
pub const COMMIT_NAK: [u8; 4] = [START, NAK, END, CR];

/// How much of a run of junk is kept for the log: a TLS record header, an HTTP request line or `MSH|^~\&|` fit.
pub const FIRST_BYTES: usize = 16;
/// A run of junk that does not end is reported again each so many bytes, so that the server can hang up.
pub const JUNK_REPORT_BYTES: usize = 64 * 1024;
/// How much of an oversize frame is handed out. MSH comes first: the longest of 435 in public test messages has 989
/// bytes (counted 2026-11).
pub const SEEN_BYTES: usize = 4096;
/// Free space a read is offered: two pages, above the 95th percentile of message sizes (9,989 bytes is two reads).
const READ_BYTES: usize = 8192;
/// An empty buffer that grew beyond this for one long frame is given back, so that idle connections stay small.
const KEEP_BYTES: usize = 256 * 1024;

/// What a decoder accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest payload delivered, in bytes; a longer one becomes [`Event::Oversize`]. Default 16 MiB.
    pub message_bytes: usize,
    /// Whether FS must be followed by CR (or by the VT of the next frame) to end a frame. Default no.
    pub require_final_cr: bool,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { message_bytes: 16 * 1024 * 1024, require_final_cr: false }
    }
}

/// What the decoder found, in stream order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// One whole payload, not copied: a slice of the receive buffer, which lives as long as the slice does. May be
    /// empty (VT FS CR).
    Frame(Bytes),
    /// Bytes outside a frame, dropped. A run is reported when it has reached [`FIRST_BYTES`] (a peer that does not
    /// frame waits for an answer, and the log should explain), then each [`JUNK_REPORT_BYTES`], then its rest when a
    /// frame begins or the stream ends. [`explain`] classifies it.
    Junk {
        /// Bytes dropped since the last report.
        bytes: usize,
        /// The first of them, at most [`FIRST_BYTES`]; it may hold patient data.
        first: Vec<u8>,
    },
    /// A VT inside a frame: the sender began again, or its text contains a VT. The payload so far is dropped.
    Restarted {
        /// Payload bytes dropped.
        discarded: usize,
    },
    /// The payload is longer than allowed. Reported once per frame, as soon as it is known; the rest is skipped.
    Oversize {
        /// The first bytes of the payload, at most [`SEEN_BYTES`]: enough to answer by its MSH.
        seen: Bytes,
    },
    /// A release 2 commit: whether the peer accepted. Only after [`Decoder::expect_commits`].
    Commit(bool),
    /// The stream ended inside a frame; only from [`Decoder::end`].
    Truncated {
        /// Payload bytes dropped.
        bytes: usize,
    },
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Outside a frame. `trailing`: the last byte was an FS that ended a frame, so that one CR belongs to it.
    Between { trailing: bool },
    /// The buffer starts with the payload; its first `checked` bytes hold no boundary.
    Inside { checked: usize },
    /// In an oversize frame of which `dropped` bytes are gone.
    Skipping { dropped: usize },
}

/// What a boundary search inside a frame found.
enum Boundary {
    /// FS at this offset of the buffer ends the frame; the offset is where to go on.
    End { at: usize, next: usize },
    /// VT at this offset.
    Start { at: usize },
    /// Not in the first so many bytes.
    Absent { checked: usize },
}

/// Cuts a byte stream into frames. As an iterator it yields what the buffered bytes complete; `None` means "read
/// more", and the next call may yield again.
#[derive(Debug)]
pub struct Decoder {
    limits: Limits,
    commit_frames: bool,
    buffer: BytesMut,
    state: State,
    /// Junk since the last report, and whether this run had one.
    junk: usize,
    first: Vec<u8>,
    reported: bool,
    examined: u64,
}

impl Decoder {
    /// An empty decoder, between frames.
    pub fn new(limits: Limits) -> Decoder {
        Decoder {
            limits,
            commit_frames: false,
            buffer: BytesMut::new(),
            state: State::Between { trailing: false },
            junk: 0,
            first: Vec::new(),
            reported: false,
            examined: 0,
        }
    }

    /// Has other limits count from now on. To be called between frames: the frame that it is inside of would be measured by both.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// From now on a payload of one ACK or NAK byte is a release 2 commit; without this it is a frame of one byte.
    #[must_use]
    pub fn expect_commits(mut self) -> Decoder {
        self.commit_frames = true;
        self
    }

    /// Where to append what was read, with room for a read. Take all events after each read: the bound on memory
    /// holds between drained buffers.
    pub fn buffer(&mut self) -> &mut BytesMut {
        if self.buffer.is_empty() && self.buffer.capacity() > KEEP_BYTES {
            self.buffer = BytesMut::new();
        }
        if self.buffer.capacity() - self.buffer.len() < READ_BYTES / 2 {
            self.buffer.reserve(READ_BYTES);
        }
        &mut self.buffer
    }

    /// Whether the stream is inside a frame: a peer that stays silent now is stuck, not idle.
    pub fn inside(&self) -> bool {
        !matches!(self.state, State::Between { .. })
    }

    /// How many bytes were examined so far. At most twice the bytes received; tests hold it to that.
    pub fn examined(&self) -> u64 {
        self.examined
    }

    /// At the end of the stream: the events left, then `None`. Call until then; the decoder is as new after it.
    pub fn end(&mut self) -> Option<Event> {
        if let Some(event) = self.next() {
            return Some(event);
        }
        let left = self.buffer.len();
        self.buffer.clear();
        match std::mem::replace(&mut self.state, State::Between { trailing: false }) {
            State::Between { .. } => self.end_junk(),
            State::Inside { .. } => Some(Event::Truncated { bytes: left }),
            State::Skipping { dropped } => Some(Event::Truncated { bytes: dropped + left }),
        }
    }

    /// Drops bytes up to the next VT.
    fn between(&mut self, trailing: bool) -> Option<Event> {
        let &first = self.buffer.first()?;
        self.state = State::Between { trailing: false };
        if trailing && first == CR {
            self.buffer.advance(1);
        }
        let report_at = if self.reported { JUNK_REPORT_BYTES } else { FIRST_BYTES };
        let window = &self.buffer[..self.buffer.len().min(report_at - self.junk)];
        let start = memchr(START, window);
        let junk = start.unwrap_or(window.len());
        self.examined += junk as u64;
        let keep = junk.min(FIRST_BYTES - self.first.len());
        self.first.extend_from_slice(&window[..keep]);
        self.junk += junk;
        self.buffer.advance(junk);
        if start.is_some() {
            self.buffer.advance(1);
            self.state = State::Inside { checked: 0 };
            return self.end_junk();
        }
        if self.junk == report_at {
            self.reported = true;
            return self.take_junk();
        }
        None
    }

    fn end_junk(&mut self) -> Option<Event> {
        self.reported = false;
        self.take_junk()
    }

    fn take_junk(&mut self) -> Option<Event> {
        let bytes = std::mem::take(&mut self.junk);
        let first = std::mem::take(&mut self.first);
        (bytes > 0).then_some(Event::Junk { bytes, first })
    }

    /// Looks for the end of the payload at the start of the buffer.
    fn inside_frame(&mut self, checked: usize) -> Option<Event> {
        // A boundary may follow right after the longest payload, no later.
        let window = self.buffer.len().min(self.limits.message_bytes.saturating_add(1));
        match self.boundary(checked, window) {
            Boundary::End { at, next } => {
                let payload = self.buffer.split_to(at).freeze();
                self.finish_frame(next - at);
                self.let_go(at);
                Some(self.deliver(payload))
            }
            Boundary::Start { at } => {
                self.buffer.advance(at + 1);
                self.let_go(at);
                self.state = State::Inside { checked: 0 };
                Some(Event::Restarted { discarded: at })
            }
            Boundary::Absent { checked } if checked > self.limits.message_bytes => {
                let seen = Bytes::copy_from_slice(&self.buffer[..checked.min(SEEN_BYTES)]);
                self.buffer.advance(checked);
                self.let_go(checked);
                self.state = State::Skipping { dropped: checked };
                Some(Event::Oversize { seen })
            }
            Boundary::Absent { checked } => {
                self.state = State::Inside { checked };
                None
            }
        }
    }

    fn deliver(&self, payload: Bytes) -> Event {
        match (self.commit_frames, &payload[..]) {
            (true, [ACK]) => Event::Commit(true),
            (true, [NAK]) => Event::Commit(false),
            _ => Event::Frame(payload),
        }
    }

    /// Leaves the memory of a complete long frame of `bytes` bytes to the owner of the frame. The bytes read after it
    /// are few, and would otherwise keep all of that memory while the connection is idle.
    fn let_go(&mut self, bytes: usize) {
        if bytes > KEEP_BYTES {
            self.buffer = BytesMut::from(&self.buffer[..]);
        }
    }

    /// Drops the rest of an oversize frame.
    fn skipping(&mut self, dropped: usize) -> Option<Event> {
        match self.boundary(0, self.buffer.len()) {
            Boundary::End { next, .. } => {
                self.finish_frame(next);
                None
            }
            Boundary::Start { at } => {
                self.buffer.advance(at + 1);
                self.state = State::Inside { checked: 0 };
                Some(Event::Restarted { discarded: dropped + at })
            }
            Boundary::Absent { checked } => {
                self.buffer.advance(checked);
                self.state = State::Skipping { dropped: dropped + checked };
                None
            }
        }
    }

    /// Steps over the `trailer` bytes that ended a frame: FS, or FS CR.
    fn finish_frame(&mut self, trailer: usize) {
        self.buffer.advance(trailer);
        self.state = State::Between { trailing: !self.limits.require_final_cr };
    }

    /// The first boundary at or after `from` and before `window`.
    fn boundary(&mut self, from: usize, window: usize) -> Boundary {
        let mut checked = from;
        while let Some(found) = memchr2(START, END, &self.buffer[checked..window]) {
            let at = checked + found;
            self.examined += found as u64 + 1;
            if self.buffer[at] == START {
                return Boundary::Start { at };
            }
            if !self.limits.require_final_cr {
                return Boundary::End { at, next: at + 1 };
            }
            match self.buffer.get(at + 1) {
                Some(&CR) => return Boundary::End { at, next: at + 2 },
                Some(&START) => return Boundary::End { at, next: at + 1 },
                Some(_) => checked = at + 1,
                // The next byte decides the meaning of this FS: examine it again then.
                None => return Boundary::Absent { checked: at },
            }
        }
        self.examined += (window - checked) as u64;
        Boundary::Absent { checked: window }
    }
}

impl Iterator for Decoder {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        // A pass that yields nothing and does not move has used all bytes.
        loop {
            let before = std::mem::discriminant(&self.state);
            let event = match self.state {
                State::Between { trailing } => self.between(trailing),
                State::Inside { checked } => self.inside_frame(checked),
                State::Skipping { dropped } => self.skipping(dropped),
            };
            if event.is_some() || std::mem::discriminant(&self.state) == before {
                return event;
            }
        }
    }
}

/// Appends the frame of `payload`. The payload must be carriable: see [`uncarriable`].
pub fn encode(payload: &[u8], out: &mut Vec<u8>) {
    out.reserve(payload.len() + HEADER.len() + TRAILER.len());
    out.extend_from_slice(&HEADER);
    out.extend_from_slice(payload);
    out.extend_from_slice(&TRAILER);
}

/// Offset of the first byte of `payload` that a frame cannot carry (VT or FS). A peer would take it for a boundary
/// and lose the message, so a client refuses to send it.
pub fn uncarriable(payload: &[u8]) -> Option<usize> {
    memchr2(START, END, payload)
}

/// What bytes outside a frame look like, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stray {
    /// NUL, CR, LF, tab or space only: separators or keep-alives between frames.
    Blank,
    /// HL7 without a frame around it.
    Unframed,
    /// A TLS handshake.
    Tls,
    /// An HTTP request.
    Http,
    /// None of these.
    Unknown,
}

/// What the first bytes of a run of junk look like.
pub fn explain(first: &[u8]) -> Stray {
    let blank = |byte: &u8| matches!(byte, 0 | b'\t' | b'\n' | b'\r' | b' ');
    let Some(start) = first.iter().position(|byte| !blank(byte)) else {
        return Stray::Blank;
    };
    let text = &first[start..];
    let text = text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text);
    let starts = |words: &[&str]| words.iter().any(|word| text.starts_with(word.as_bytes()));
    if starts(&["MSH", "FHS", "BHS"]) {
        Stray::Unframed
    } else if text.starts_with(&[0x16, 0x03]) {
        Stray::Tls // record type 22 (handshake), major version 3: RFC 8446 section 5.1
    } else if starts(&["GET ", "POST ", "PUT ", "HEAD ", "OPTIONS ", "CONNECT "]) {
        Stray::Http
    } else {
        Stray::Unknown
    }
}

impl fmt::Display for Stray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stray::Blank => "blanks between frames",
            Stray::Unframed => "HL7 without MLLP framing: no VT (0x0B) before it; set the sender to MLLP",
            Stray::Tls => "a TLS handshake on a plain MLLP port; turn TLS on here or off at the sender",
            Stray::Http => "an HTTP request on an MLLP port",
            Stray::Unknown => "bytes outside an MLLP frame",
        })
    }
}
