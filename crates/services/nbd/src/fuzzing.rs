//! Entry points of the fuzz targets: bytes of a hostile client, and of a hostile server, and addresses.
//!
//! Besides not panicking, a parser must use no more than it was given and come to the same end however the bytes are cut.

use crate::protocol::asking::{Asking, Progress, Wish};
use crate::protocol::negotiation::{self, Action, Negotiation, OPTION_HEAD_BYTES, OptionFrame, Purpose, TlsPolicy};
use crate::protocol::reply::{self, ReplyFrame};
use crate::protocol::request::{Agreed, REQUEST_BYTES, Request, RequestFrame};
use crate::protocol::{ExportFacts, export_flag, status};
use crate::uri::NbdUri;

fn facts() -> ExportFacts {
    let flags = export_flag::HAS_FLAGS | export_flag::FLUSH;
    ExportFacts {
        bytes: 1 << 20,
        flags,
        min_block: 1,
        max_payload: 32 << 20,
        has_epochs: true,
        ..ExportFacts::default()
    }
}

/// What a client sends: flags, options, then requests.
pub fn client_bytes(input: &[u8]) {
    let Some((flags, mut rest)) = input.split_first_chunk::<4>() else { return };
    let Some(mut state) = Negotiation::new(TlsPolicy::Offered, u32::from_be_bytes(*flags)) else { return };
    let mut out = Vec::new();
    let mut is_open = false;
    while let OptionFrame::Whole { option, length } = negotiation::frame(rest) {
        let data = &rest[OPTION_HEAD_BYTES..OPTION_HEAD_BYTES + length];
        rest = &rest[OPTION_HEAD_BYTES + length..];
        let before = out.len();
        match state.apply(option, data, &mut out) {
            Action::Continue => assert!(out.len() > before, "an option without an answer"),
            Action::List => state.list(["a"].into_iter(), &mut out),
            Action::Find { purpose, wants_names, .. } => {
                state.opened(purpose, wants_names, &facts(), &mut out);
                is_open = purpose != Purpose::Look;
            }
            Action::FindContexts { name, queries, set } => state.contexts(&name, &queries, set, true, &mut out),
            Action::StartTls => state.secured(),
            Action::End => return,
        }
        if is_open {
            break;
        }
    }
    let agreed = Agreed { structured: state.is_structured(), contexts: true };
    while let RequestFrame::Whole(request) = Request::frame(rest) {
        assert_eq!(request.encode()[..], rest[..REQUEST_BYTES], "a request reads back");
        if request.check(&facts(), agreed).is_ok() {
            let end = request.offset.checked_add(u64::from(request.length)).expect("it was checked");
            assert!(end <= facts().bytes, "a request past the end was allowed");
        }
        let used = REQUEST_BYTES + request.payload() as usize;
        let Some(behind) = rest.get(used..) else { return };
        rest = behind;
    }
}

/// What a server sends: greeting and answers to options, then replies.
pub fn server_bytes(input: &[u8]) {
    let Some((wants_tls, bytes)) = input.split_first() else { return };
    let wish = Wish { name: "a@1".to_owned(), tls: wants_tls & 1 != 0, client: 7 };
    let whole = negotiate(wish.clone(), bytes, bytes.len().max(1));
    let cut = negotiate(wish, bytes, 1 + usize::from(wants_tls >> 1));
    // Cut elsewhere, a server that sends too early may be noticed or not; everything else ends alike.
    if let (Some(whole), Some(cut)) = (&whole, &cut) {
        assert_eq!(whole, cut, "the end depends on where the bytes are cut");
    }
    let mut rest = &bytes[whole.unwrap_or(0).min(bytes.len())..];
    loop {
        let used = match reply::frame(rest) {
            ReplyFrame::Simple { .. } => reply::SIMPLE_BYTES,
            ReplyFrame::Chunk(head) => {
                let Some(payload) = rest.get(reply::CHUNK_BYTES..reply::CHUNK_BYTES + head.length as usize) else {
                    return;
                };
                if let Some(reply::SmallPayload::Status(payload)) = reply::small_payload(head.kind, payload)
                    && let Some((context, list)) = status::decode(payload)
                {
                    assert_eq!(status::encode(context, &list), payload, "a status reads back");
                }
                reply::CHUNK_BYTES + payload.len()
            }
            ReplyFrame::Incomplete | ReplyFrame::Broken => return,
        };
        rest = &rest[used..];
    }
}

/// What a server sends to a client with requests on the wire; see `client::fuzzing`.
pub fn device_bytes(input: &[u8]) {
    crate::client::fuzzing::device_bytes(input);
}

/// An address: what is one is written as one that reads back as the same.
pub fn uri(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let Ok(uri) = text.parse::<NbdUri>() else { return };
    let written = uri.to_string();
    assert_eq!(written.parse::<NbdUri>().ok(), Some(uri), "{written} does not read back");
}

/// Negotiates with bytes that come in steps; returns how many were used when it was ready.
fn negotiate(wish: Wish, bytes: &[u8], step: usize) -> Option<usize> {
    let (mut asking, mut out) = (Asking::new(wish), Vec::new());
    let (mut from, mut to) = (0, 0);
    while to < bytes.len() {
        to = (to + step).min(bytes.len());
        loop {
            let (used, progress) = asking.apply(&bytes[from..to], &mut out).ok()?;
            assert!(used <= to - from, "more was used than there was");
            from += used;
            match progress {
                Progress::More => break,
                Progress::Ready(opened) => {
                    assert!(opened.facts.min_block.is_power_of_two() && opened.facts.max_payload > 0);
                    return Some(from);
                }
                Progress::StartTls => asking.secured(&mut out),
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::reply::Head;

    /// A reply that makes sense more often than random bytes do.
    fn reply(random: &mut fastrand::Rng) -> Vec<u8> {
        let cookie = random.u64(0..14);
        let error = if random.u8(..6) == 0 { random.u32(..120) } else { 0 };
        let (offset, length) = (random.u64(..8) * 4096, 1 << random.u32(9..15));
        match random.u8(..9) {
            0..=2 => [Head::simple(cookie, error).as_slice(), &vec![1; random.usize(..2) * 4096]].concat(),
            3..=4 => [Head::data(cookie, offset, length, random.bool()).as_slice(), &vec![2; length as usize]].concat(),
            5 => Head::hole(cookie, offset, length, random.bool()).as_slice().to_vec(),
            6 => Head::error(cookie, error).as_slice().to_vec(),
            7 => {
                let list = status::encode(1, &[status::Descriptor { bytes: length, status: random.u32(..4) }]);
                [Head::status(cookie, list.len() as u32, random.bool()).as_slice(), &list].concat()
            }
            _ => (0..random.usize(..40)).map(|_| random.u8(..)).collect(),
        }
    }

    #[test]
    fn no_bytes_of_a_peer_and_no_address_break_a_promise() {
        let seed = std::env::var("SEED").map_or(11, |seed| seed.parse().expect("a number"));
        println!("SEED={seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let words =
            ["nbd", "s", "+unix", "://", "/", "a", "[::1]", ":1", "?", "socket=", "%2", "%00", "@4", "&", "#", "."];
        for _ in 0..20_000 {
            let mut bytes = vec![random.u8(..), random.u8(..)];
            for _ in 0..random.usize(..24) {
                bytes.extend(reply(&mut random));
            }
            if random.bool() {
                let at = random.usize(..bytes.len());
                bytes[at] ^= 1 << random.u32(..8);
            }
            device_bytes(&bytes);
            server_bytes(&bytes);
            client_bytes(&bytes);
            let address: String = (0..random.usize(..9)).map(|_| words[random.usize(..words.len())]).collect();
            uri(address.as_bytes());
        }
    }
}
