//! What must hold for any bytes in framing, batches and acknowledgements.

use crate::ack::{self, Code, Problem, Reply};
use crate::batch::{self, Batch, Kind};
use crate::mllp::{self, Decoder, Event, Limits};
use crate::{Message, Path, escape};

/// Framing: the events of a stream do not depend on how reads cut it, no byte is examined more than twice, and what
/// was delivered can be framed again. The first byte chooses limits, the second where the reads are cut.
pub fn mllp(data: &[u8]) {
    let Some((&[choice, cut], stream)) = data.split_first_chunk::<2>() else { return };
    let limits = Limits { message_bytes: usize::from(choice >> 2), require_final_cr: choice & 1 == 1 };
    let decoder = || {
        let decoder = Decoder::new(limits);
        if choice & 2 == 2 { decoder.expect_commits() } else { decoder }
    };
    let whole = events(decoder(), [stream].into_iter());
    assert_eq!(events(decoder(), stream.chunks(1)), whole, "byte by byte");
    assert_eq!(events(decoder(), stream.chunks(usize::from(cut) + 1)), whole, "in reads of {} bytes", cut + 1);
    let (head, tail) = stream.split_at(usize::from(cut).min(stream.len()));
    assert_eq!(events(decoder(), [head, tail].into_iter()), whole, "cut at {cut}");

    let frames: Vec<_> = whole.iter().filter(|event| matches!(event, Event::Frame(_))).cloned().collect();
    let mut again = Vec::new();
    for frame in &frames {
        let Event::Frame(payload) = frame else { continue };
        assert!(payload.len() <= limits.message_bytes && !payload.contains(&mllp::START));
        assert!(limits.require_final_cr || mllp::uncarriable(payload).is_none());
        mllp::encode(payload, &mut again);
    }
    assert_eq!(events(decoder(), again.chunks(3)), frames);
}

fn events<'a>(mut decoder: Decoder, reads: impl Iterator<Item = &'a [u8]>) -> Vec<Event> {
    let (mut events, mut bytes) = (Vec::new(), 0);
    for read in reads {
        decoder.buffer().extend_from_slice(read);
        bytes += read.len() as u64;
        events.extend(decoder.by_ref());
        assert!(decoder.examined() <= 2 * bytes, "{} of {bytes}", decoder.examined());
    }
    events.extend(std::iter::from_fn(|| decoder.end()));
    events
}

/// Batches: the parts tile the input, each message is one, and a batch's answer is a batch without a fault.
pub fn batch(data: &[u8]) {
    let batch = batch::split(data);
    let mut end = 0;
    for (at, part) in batch.parts.iter().enumerate() {
        assert!(part.range.start == end && part.range.end > end, "the parts tile the input");
        end = part.range.end;
        assert!(part.kind != Kind::Stray || batch.segment(at).is_none());
    }
    assert_eq!(end, data.len());
    assert!(batch.problems.iter().all(|problem| problem.part() < batch.parts.len()));

    check_stream(&batch);
    let mut answers = Vec::new();
    for range in batch.messages.iter().cloned() {
        let alone = batch::split(&data[range.clone()]);
        assert!(alone.parts[0].kind == Kind::Message, "a message alone starts with a message");
        let reply = Reply { code: Code::AE, control_id: "2", timestamp: "2026", text: None, problem: None };
        answers.push(match Message::parse(&data[range]) {
            Ok(message) => ack::build(&message, &reply),
            Err(_) => ack::build_without_header(&reply),
        });
    }
    check_response(&batch, &answers);
    if answers.len() > 1 {
        answers[0].clear();
        check_response(&batch, &answers);
    }
}

/// A stream finds what splitting the whole finds, however the input is cut.
fn check_stream(batch: &Batch<'_>) {
    let data = batch.raw();
    let wanted: Vec<_> = batch.messages.iter().map(|range| (range.start, data[range.clone()].to_vec())).collect();
    for size in [1, 2, 7, data.len().max(1)] {
        let (mut messages, mut problems, mut events) = (Vec::new(), Vec::new(), Vec::new());
        let mut stream = batch::Stream::new(data.contains(&b'\r'), usize::MAX);
        data.chunks(size).for_each(|piece| stream.feed(piece, &mut events));
        stream.end(&mut events);
        for event in events {
            match event {
                batch::BatchEvent::Message { at, bytes } => messages.push((at, bytes)),
                batch::BatchEvent::Problem(problem) => problems.push(problem),
                batch::BatchEvent::Oversize { .. } => panic!("there is no bound"),
            }
        }
        problems.sort_by_key(batch::BatchProblem::part);
        assert!(messages == wanted, "in pieces of {size} bytes");
        assert_eq!(problems, batch.problems);
    }
}

fn check_response(batch: &Batch<'_>, answers: &[Vec<u8>]) {
    let response = batch::respond(batch, answers, "2026", || "3".to_owned());
    let again = batch::split(&response);
    assert_eq!(again.problems, [], "{}", response.escape_ascii());
    let messages: Vec<&[u8]> = again.messages.iter().map(|range| &response[range.clone()]).collect();
    assert!(messages.into_iter().eq(answers.iter().filter(|answer| !answer.is_empty())));
}

/// Acknowledgements: the answer to any message can be framed, parses, has its delimiters and names its control id.
pub fn ack(data: &[u8]) {
    let Ok(message) = Message::parse(data) else { return };
    if let Some(received) = ack::read(&message) {
        assert!(ack::is_acknowledgement(&message));
        assert_eq!(ack::matches(&received, received.control_id), !received.control_id.trim_ascii_end().is_empty());
    }
    const TEXT: &str = "a|b^c&d~e\\f\nGLU #1";
    let location: Path = "OBX[3.1='GLU']-5[2].1".parse().expect("a path");
    let problem = Problem { code: 103, location: Some(&location), text: TEXT };
    for (code, problem) in [(Code::AA, None), (Code::AE, Some(problem)), (Code::CR, Some(problem))] {
        let reply = Reply { code, control_id: "9001", timestamp: "20260101", text: Some(TEXT), problem };
        let answer = ack::build(&message, &reply);
        let parsed = Message::parse(&answer).expect("an answer is a message");
        assert!(mllp::uncarriable(&answer).is_none() && ack::is_acknowledgement(&parsed));
        assert_eq!(parsed.delimiters(), message.delimiters());
        assert_eq!(parsed.header().field(10).bytes(), b"9001");
        let names: Vec<String> = parsed.segments().map(|segment| segment.name().to_string()).collect();
        assert!(["MSH", "MSA", "ERR"].starts_with(&names.iter().map(String::as_str).collect::<Vec<_>>()));
        assert!(problem.is_none() || names.len() == 3);

        let received = ack::read(&parsed).expect("an answer has an MSA");
        let control_id = message.header().field(10).bytes();
        let unbroken = |byte: &u8| if matches!(*byte, b'\n' | mllp::START | mllp::END) { b' ' } else { *byte };
        assert!(received.code == code && received.control_id.iter().copied().eq(control_id.iter().map(unbroken)));
        if message.delimiters().escape.is_some() {
            let text = escape::unescape(received.text.bytes(), message.delimiters());
            assert_eq!(text, TEXT.as_bytes(), "{}", answer.escape_ascii());
        }
    }
}
