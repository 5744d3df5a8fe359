//! MLLP framing, case by case. [`decodes`] feeds each case whole, byte by byte and cut in two at every place: the
//! claim that reads do not matter is part of every test.

use bytes::{BufMut, Bytes};
use hl7::mllp::{self, Decoder, Event, Limits, Stray};

const VT: &str = "\x0b";
const LIMITS: Limits = Limits { message_bytes: 1000, require_final_cr: false };
const STRICT: Limits = Limits { require_final_cr: true, ..LIMITS };

fn frame(payload: impl AsRef<[u8]>) -> Event {
    Event::Frame(Bytes::copy_from_slice(payload.as_ref()))
}

fn junk(bytes: usize, first: impl AsRef<[u8]>) -> Event {
    Event::Junk { bytes, first: first.as_ref().to_vec() }
}

fn restarted(discarded: usize) -> Event {
    Event::Restarted { discarded }
}

/// The events of a stream read in these pieces, and of its end.
fn events<'a>(limits: Limits, pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<Event> {
    drain(Decoder::new(limits), pieces)
}

fn drain<'a>(mut decoder: Decoder, pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<Event> {
    let mut events = Vec::new();
    for piece in pieces {
        decoder.buffer().put_slice(piece);
        events.extend(decoder.by_ref());
    }
    events.extend(std::iter::from_fn(|| decoder.end()));
    events
}

#[track_caller]
fn decodes(limits: Limits, stream: impl AsRef<[u8]>, expected: &[Event]) {
    let stream = stream.as_ref();
    assert_eq!(events(limits, [stream]), expected, "in one read");
    assert_eq!(events(limits, stream.chunks(1)), expected, "byte by byte");
    for at in 0..=stream.len() {
        let (head, tail) = stream.split_at(at);
        assert_eq!(events(limits, [head, tail]), expected, "cut at {at}");
    }
}

#[test]
fn one_frame_is_its_payload() {
    decodes(LIMITS, "\x0bMSH|^~\\&|A\rPID|1\r\x1c\r", &[frame("MSH|^~\\&|A\rPID|1\r")]);
    decodes(STRICT, "\x0bMSH|^~\\&|A\rPID|1\r\x1c\r", &[frame("MSH|^~\\&|A\rPID|1\r")]);
}

#[test]
fn case_a_frames_in_one_read_all_come_out_in_order() {
    let stream = "\x0bone\x1c\r\x0btwo\x1c\r\x0bthree\x1c\r";
    decodes(LIMITS, stream, &[frame("one"), frame("two"), frame("three")]);
    decodes(STRICT, stream, &[frame("one"), frame("two"), frame("three")]);
}

#[test]
fn case_b_a_read_may_end_between_fs_and_cr() {
    let mut decoder = Decoder::new(STRICT);
    decoder.buffer().put_slice(b"\x0bone\x1c");
    assert_eq!(decoder.next(), None, "with a final CR required, FS alone is not yet the end");
    assert!(decoder.inside());
    decoder.buffer().put_slice(b"\r\x0btwo");
    assert_eq!(decoder.next(), Some(frame("one")));
    assert_eq!(decoder.next(), None);

    let mut decoder = Decoder::new(LIMITS);
    decoder.buffer().put_slice(b"\x0bone\x1c");
    assert_eq!(decoder.next(), Some(frame("one")), "a peer that never sends the CR is answered at FS");
    decoder.buffer().put_slice(b"\r");
    assert_eq!(decoder.next(), None, "a CR that comes later belongs to the frame");
    assert_eq!(decoder.end(), None);
}

#[test]
fn case_c_bytes_between_frames_are_dropped_and_counted() {
    decodes(
        LIMITS,
        "\r\n\x0bone\x1c\r\0\0\x0btwo\x1c\r\n",
        &[junk(2, "\r\n"), frame("one"), junk(2, "\0\0"), frame("two"), junk(1, "\n")],
    );
    decodes(LIMITS, "\x0bone\x1c\r\r\n\x0btwo\x1c\r", &[frame("one"), junk(2, "\r\n"), frame("two")]);
    decodes(STRICT, "\x1c\r\x0bone\x1c\r", &[junk(2, "\x1c\r"), frame("one")]);
    assert_eq!(mllp::explain(b"\0\r\n \t"), Stray::Blank);
}

#[test]
fn case_c_a_long_run_is_reported_early_then_by_its_rest() {
    let run = "0123456789abcdefghij";
    decodes(LIMITS, format!("{run}\x0bone\x1c\r"), &[junk(16, &run[..16]), junk(4, "ghij"), frame("one")]);
    decodes(LIMITS, format!("{}\x0bone\x1c\r", &run[..16]), &[junk(16, &run[..16]), frame("one")]);
    let endless = vec![b'x'; 16 + 2 * mllp::JUNK_REPORT_BYTES + 1];
    let report = || junk(mllp::JUNK_REPORT_BYTES, "x".repeat(16));
    let expected = [junk(16, "x".repeat(16)), report(), report(), junk(1, "x")];
    assert_eq!(events(LIMITS, [&endless[..]]), expected);
    assert_eq!(events(LIMITS, endless.chunks(1000)), expected);
}

#[test]
fn case_d_a_missing_final_cr_is_tolerated_unless_required() {
    decodes(LIMITS, "\x0bone\x1c\x0btwo\x1c", &[frame("one"), frame("two")]);
    decodes(LIMITS, "\x0bone\x1c\n\x0btwo\x1c\n", &[frame("one"), junk(1, "\n"), frame("two"), junk(1, "\n")]);
    decodes(STRICT, "\x0bone\x1c", &[Event::Truncated { bytes: 4 }]);
}

#[test]
fn case_e_fs_then_vt_begins_the_next_frame() {
    decodes(LIMITS, "\x0bone\x1c\x0btwo\x1c\r", &[frame("one"), frame("two")]);
    decodes(STRICT, "\x0bone\x1c\x0btwo\x1c\r", &[frame("one"), frame("two")]);
}

#[test]
fn fs_before_anything_else_is_payload_where_the_final_cr_is_required() {
    decodes(STRICT, "\x0bone\x1ctwo\x1c\r", &[frame("one\x1ctwo")]);
    decodes(STRICT, "\x0bone\x1c\x1c\r", &[frame("one\x1c")]);
    decodes(LIMITS, "\x0bone\x1ctwo\x1c\r", &[frame("one"), junk(5, "two\x1c\r")]);
}

#[test]
fn case_f_a_vt_inside_a_frame_drops_the_partial_frame() {
    for limits in [LIMITS, STRICT] {
        decodes(limits, "\x0bpart\x0bwhole\x1c\r", &[restarted(4), frame("whole")]);
        decodes(limits, "\x0b\x0b\x0bone\x1c\r", &[restarted(0), restarted(0), frame("one")]);
    }
    // Framed twice by the sender: the message comes out once.
    decodes(LIMITS, "\x0b\x0bone\x1c\r\x1c\r", &[restarted(0), frame("one"), junk(2, "\x1c\r")]);
}

#[test]
fn case_g_the_end_of_the_stream_inside_a_frame_never_delivers() {
    for limits in [LIMITS, STRICT] {
        decodes(limits, "\x0bone\x1c\r\x0bMSH|", &[frame("one"), Event::Truncated { bytes: 4 }]);
        decodes(limits, VT, &[Event::Truncated { bytes: 0 }]);
        decodes(limits, "", &[]);
    }
    let mut decoder = Decoder::new(LIMITS);
    decoder.buffer().put_slice(b"\x0bMSH|");
    assert_eq!(decoder.end(), Some(Event::Truncated { bytes: 4 }));
    decoder.buffer().put_slice(b"\x0bone\x1c\r");
    assert_eq!(decoder.next(), Some(frame("one")), "after the end it starts afresh");
}

#[test]
fn case_h_an_oversize_frame_is_reported_once_and_skipped() {
    let four = Limits { message_bytes: 4, ..LIMITS };
    let seen = |bytes: &'static str| Event::Oversize { seen: Bytes::from(bytes) };
    for limits in [four, Limits { require_final_cr: true, ..four }] {
        decodes(limits, "\x0b1234\x1c\r", &[frame("1234")]);
        decodes(limits, "\x0b12345\x1c\r\x0b1234\x1c\r", &[seen("12345"), frame("1234")]);
        decodes(limits, "\x0b123456789\x1c\r\x0bok\x1c\r", &[seen("12345"), frame("ok")]);
        decodes(limits, "\x0b12345678\x0bok\x1c\r", &[seen("12345"), restarted(8), frame("ok")]);
        decodes(limits, "\x0b12345678", &[seen("12345"), Event::Truncated { bytes: 8 }]);
        decodes(limits, "\x0b1234\x0bok\x1c\r", &[restarted(4), frame("ok")]);
    }
    let strict = Limits { require_final_cr: true, ..four };
    decodes(strict, "\x0b1234\x1c6\x1c\r\x0bok\x1c\r", &[seen("1234\x1c"), frame("ok")]);
    decodes(strict, "\x0b123456\x1c8\x1c\r\x0bok\x1c\r", &[seen("12345"), frame("ok")]);
    decodes(strict, "\x0b1234567\x1c", &[seen("12345"), Event::Truncated { bytes: 8 }]);
}

#[test]
fn case_h_memory_stays_bounded_while_a_frame_is_skipped() {
    let limits = Limits { message_bytes: 100_000, ..LIMITS };
    let mut decoder = Decoder::new(limits);
    decoder.buffer().put_slice(b"\x0bMSH|^~\\&|A|B|C|D\r");
    let chunk = [b'x'; 4096];
    let (mut oversize, mut largest) = (0, 0);
    for _ in 0..5_000 {
        decoder.buffer().put_slice(&chunk);
        for event in decoder.by_ref() {
            let Event::Oversize { seen } = event else { panic!("{event:?}") };
            assert_eq!(seen.len(), mllp::SEEN_BYTES);
            assert!(seen.starts_with(b"MSH|^~\\&|A|B|C|D\r"));
            oversize += 1;
        }
        largest = largest.max(decoder.buffer().capacity());
    }
    decoder.buffer().put_slice(b"\x1c\r\x0bok\x1c\r");
    assert_eq!(decoder.next(), Some(frame("ok")), "the next frame is found");
    assert_eq!(oversize, 1);
    assert!(largest <= 4 * limits.message_bytes, "20 MB went through a buffer of {largest} bytes");
}

#[test]
fn case_h_the_memory_of_a_long_frame_goes_with_the_frame() {
    let mut decoder = Decoder::new(Limits { message_bytes: 1 << 20, ..LIMITS });
    let long = vec![b'x'; 1 << 20];
    for behind in ["", "\x0bMSH|"] {
        let mut stream = Vec::new();
        mllp::encode(&long, &mut stream);
        stream.extend_from_slice(behind.as_bytes());
        decoder.buffer().put_slice(&stream);
        let Some(Event::Frame(frame)) = decoder.next() else { panic!("it is whole") };
        assert_eq!((frame.len(), decoder.next()), (1 << 20, None));
        assert!(frame.is_unique(), "the decoder keeps none of it, with `{behind}` behind it");
    }
}

#[test]
fn case_k_unframed_hl7_is_reported_before_the_peer_gives_up_waiting() {
    let mut decoder = Decoder::new(LIMITS);
    decoder.buffer().put_slice(b"\nMSH|^~\\&|LAB|HOSPITAL|||2026");
    let event = decoder.next();
    assert_eq!(event, Some(junk(16, "\nMSH|^~\\&|LAB|HO")));
    for (first, stray) in [
        ("\nMSH|^~\\&|LAB|HO", Stray::Unframed),
        ("\u{feff}MSH|^~\\&|", Stray::Unframed),
        ("FHS|^~\\&|", Stray::Unframed),
        ("\x16\x03\x01\x02\0\x01", Stray::Tls),
        ("GET / HTTP/1.1\r\n", Stray::Http),
        ("\r\n\0 ", Stray::Blank),
        ("", Stray::Blank),
        ("hello", Stray::Unknown),
    ] {
        assert_eq!(mllp::explain(first.as_bytes()), stray, "{first:?}: {stray}");
    }
}

#[test]
fn case_l_an_empty_frame_is_an_empty_payload() {
    decodes(LIMITS, "\x0b\x1c\r\x0b\x1c\r", &[frame(""), frame("")]);
    decodes(STRICT, "\x0b\x1c\r", &[frame("")]);
}

#[test]
fn release_2_commits_are_told_from_messages_only_where_asked_for() {
    let stream = [mllp::COMMIT_ACK, mllp::COMMIT_NAK].concat();
    let commits = |stream: &[u8]| drain(Decoder::new(LIMITS).expect_commits(), stream.chunks(1));
    assert_eq!(commits(&stream), [Event::Commit(true), Event::Commit(false)]);
    assert_eq!(commits(b"\x0b\x06\x06\x1c\r"), [frame("\x06\x06")]);
    decodes(LIMITS, &stream, &[frame("\x06"), frame("\x15")]);
    assert_eq!(mllp::COMMIT_ACK, *b"\x0b\x06\x1c\r");
    assert_eq!(mllp::COMMIT_NAK, *b"\x0b\x15\x1c\r");
}

#[test]
fn an_encoded_payload_decodes_to_itself() {
    let mut out = b"kept".to_vec();
    mllp::encode(b"MSH|^~\\&|\r", &mut out);
    assert_eq!(out, b"kept\x0bMSH|^~\\&|\r\x1c\r");
    assert_eq!([&mllp::HEADER[..], b"MSH|^~\\&|\r", &mllp::TRAILER].concat(), &out[4..]);
    assert_eq!(mllp::uncarriable(b"MSH|^~\\&|\r\n\x1e"), None);
    assert_eq!(mllp::uncarriable(b"OBX|1|\x0b"), Some(6), "a Word line break would cut the message in two");
    assert_eq!(mllp::uncarriable(b"OBX|1\x1c"), Some(5));
}

#[test]
fn frames_are_slices_of_the_receive_buffer() {
    let mut decoder = Decoder::new(LIMITS);
    decoder.buffer().put_slice(b"\x0bMSH|one\r\x1c\r\x0bMSH|two\r\x1c\r");
    let start = decoder.buffer().as_ptr() as usize;
    let Some(Event::Frame(one)) = decoder.next() else { panic!("no frame") };
    let Some(Event::Frame(two)) = decoder.next() else { panic!("no frame") };
    assert_eq!((one.as_ptr() as usize, two.as_ptr() as usize), (start + 1, start + 12), "no payload byte was copied");
}

#[test]
fn a_long_message_in_small_reads_is_examined_once() {
    let payload = vec![b'x'; 10_000_000];
    let mut stream = Vec::new();
    mllp::encode(&payload, &mut stream);
    for (limits, read) in [(LIMITS, 1), (LIMITS, 4096), (STRICT, 4096)] {
        let mut decoder = Decoder::new(Limits { message_bytes: payload.len(), ..limits });
        let mut frames = 0;
        for piece in stream.chunks(read) {
            decoder.buffer().put_slice(piece);
            frames += decoder.by_ref().count();
        }
        assert_eq!(frames, 1);
        let twice = stream.len() as u64 + 1;
        assert!(decoder.examined() <= twice, "{} bytes examined of {}", decoder.examined(), stream.len());
    }
}

#[test]
fn no_byte_is_examined_more_than_twice() {
    // The worst case: every byte an FS that the next one makes data, in a frame that fits and in one that does not.
    for message_bytes in [1 << 20, 100] {
        let mut decoder = Decoder::new(Limits { message_bytes, ..STRICT });
        let mut bytes = 0;
        for piece in [&b"\x0b"[..]].into_iter().chain(std::iter::repeat_n(&b"x\x1c"[..], 1000)) {
            decoder.buffer().put_slice(piece);
            let _ = decoder.by_ref().count();
            bytes += piece.len() as u64;
            assert!(decoder.examined() <= 2 * bytes, "{} of {bytes}", decoder.examined());
        }
        for _ in 0..100_000 {
            decoder.buffer().put_slice(b"\x1c");
            let _ = decoder.by_ref().count();
            bytes += 1;
        }
        assert!(decoder.examined() <= 2 * bytes, "{} of {bytes}", decoder.examined());
    }
}

#[test]
fn random_streams_give_the_same_events_however_they_are_cut() {
    const ALPHABET: &[u8] = b"\x0b\x0b\x1c\x1c\r\r\n\0MSH|a\x06";
    let first = seed();
    for seed in first..first + 3_000 {
        let mut random = fastrand::Rng::with_seed(seed);
        let stream: Vec<u8> = (0..random.usize(0..120)).map(|_| ALPHABET[random.usize(0..ALPHABET.len())]).collect();
        let limits = Limits { message_bytes: random.usize(0..12), require_final_cr: random.bool() };
        let whole = events(limits, [&stream[..]]);
        for _ in 0..8 {
            let mut pieces = Vec::new();
            let mut rest = &stream[..];
            while !rest.is_empty() {
                let (piece, after) = rest.split_at(random.usize(0..=rest.len().min(9)));
                pieces.push(piece);
                rest = after;
            }
            let cut = events(limits, pieces.iter().copied());
            assert_eq!(cut, whole, "TERRACE_SEED={seed}: {limits:?} {} as {pieces:?}", stream.escape_ascii());
        }
        accounts_for_every_byte(&whole, &stream, limits, seed);
    }
}

#[test]
fn a_stream_of_every_case_cut_in_three_at_every_place_gives_the_same_events() {
    let stream = b"\r\n\x0bone\x1c\r\x0b\x0btwo\x1c\r\0\x0btoo long\x1cx\x1c\r\x0b\x1c\x0bfour\x1c\x1c\r\nMSH|^~\\&|unframed\r\x0bend";
    for require_final_cr in [false, true] {
        let limits = Limits { message_bytes: 5, require_final_cr };
        let whole = events(limits, [&stream[..]]);
        assert!(whole.len() > 8, "{whole:?}");
        for first in 0..=stream.len() {
            for second in first..=stream.len() {
                let pieces = [&stream[..first], &stream[first..second], &stream[second..]];
                assert_eq!(events(limits, pieces), whole, "cut at {first} and {second}");
            }
        }
    }
}

#[test]
fn corpus_files_framed_in_a_row_decode_to_themselves() {
    let files = super::corpus::files();
    let mut stream = Vec::new();
    for (path, file) in &files {
        assert_eq!(mllp::uncarriable(file), None, "{path:?}");
        mllp::encode(file, &mut stream);
    }
    let expected: Vec<Event> = files.iter().map(|(_, file)| frame(file)).collect();
    let limits = Limits { message_bytes: 1 << 20, require_final_cr: true };
    for read in [stream.len().max(1), 1460, 7] {
        assert_eq!(events(limits, stream.chunks(read)), expected, "in reads of {read} bytes");
    }
}

/// Payloads, junk and drops never claim more bytes than came, and nothing but framing bytes and the tails of oversize
/// frames goes unreported.
fn accounts_for_every_byte(events: &[Event], stream: &[u8], limits: Limits, seed: u64) {
    let reported: usize = events
        .iter()
        .map(|event| match event {
            Event::Frame(payload) => payload.len(),
            Event::Junk { bytes, .. } | Event::Truncated { bytes } => *bytes,
            Event::Restarted { discarded } => *discarded,
            Event::Commit(_) => 1,
            Event::Oversize { .. } => 0,
        })
        .sum();
    let framing = stream.iter().filter(|byte| matches!(**byte, mllp::START | mllp::END | mllp::CR)).count();
    assert!(reported <= stream.len(), "TERRACE_SEED={seed}: {} {events:?}", stream.escape_ascii());
    if !events.iter().any(|event| matches!(event, Event::Oversize { .. })) {
        let text = stream.len() - framing;
        assert!(reported >= text, "TERRACE_SEED={seed}: {limits:?} {} {events:?}", stream.escape_ascii());
    }
}

/// Where random tests begin: fixed, or the TERRACE_SEED of a failure to replay.
fn seed() -> u64 {
    std::env::var("TERRACE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1)
}
