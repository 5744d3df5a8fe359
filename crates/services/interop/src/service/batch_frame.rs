//! Frames that hold more than one message: several MSH, or a batch (FHS, BHS).
//!
//! ```text
//! FHS BHS MSH.. MSH.. BTS FTS --> engine.ingest each, in order --> all durable --> one frame: FHS BHS MSH MSA, MSH MSA BTS FTS
//! MSH.. MSH..                 --> engine.ingest each, in order --> all durable --> a frame for each message
//! BHS, other bytes, MSH..     --> refused whole: the other bytes would be lost
//! ```
//!
//! Invariants: no answer is sent before every message of the frame is durable; the answer contains an acknowledgement
//! for each of them. On a connection that ends before that, no answer was sent, and its sender sends the frame again. A frame waits
//! for room in the queues before its first message is taken, and not between two of them: a queue may be over its bound by one frame.

use std::io;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use hl7::batch::{self, Batch, Kind};
use hl7::mllp;
use memchr::memmem::Finder;

use crate::engine::{Engine, Ingested, Waits};
use crate::intake::MessageProblem;
use crate::plan::PlannedService;
use crate::timestamp::hl7_timestamp;

/// Messages of one frame at most; their answers are held until all of them are durable, about 300 bytes each.
const MESSAGES_MAX: usize = 10_000;

/// Parts of one frame at most: its messages, and headers and trailers.
const PARTS_MAX: usize = 4 * MESSAGES_MAX;

/// Messages that are on their way to the journal at a time.
const TOGETHER: usize = 64;

static HEADER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"MSH"));

/// A frame that is no one message.
pub(super) enum Several<'a> {
    /// Its parts.
    Batch(Batch<'a>),
    /// It has more than [`PARTS_MAX`].
    TooMany,
}

/// The parts of a frame that is no one message; none for one that is, or is nothing at all.
pub(super) fn several(frame: &[u8]) -> Option<Several<'_>> {
    let blank = |byte: &u8| matches!(byte, b'\r' | b'\n' | 0 | b' ' | b'\t' | 0xEF | 0xBB | 0xBF);
    let start = frame.iter().position(|byte| !blank(byte))?;
    let starts_batch = frame[start..].starts_with(b"FHS") || frame[start..].starts_with(b"BHS");
    // Every message comes by here: looking for three bytes is all that one costs.
    if !starts_batch && HEADER.find(frame.get(start + 3..)?).is_none() {
        return None;
    }
    let Some(batch) = batch::split_within(frame, PARTS_MAX) else { return Some(Several::TooMany) };
    let begins = batch.parts.first().is_some_and(|part| matches!(part.kind, Kind::FileHeader | Kind::BatchHeader));
    (begins || batch.messages.len() > 1).then_some(Several::Batch(batch))
}

/// Takes each message of a frame in; the answer waits for all of them.
pub(super) async fn take(
    engine: &Engine,
    service: &Arc<PlannedService>,
    frame: &Bytes,
    several: &Several<'_>,
    waits: &Waits,
) -> Ingested {
    let batch = match fit(several) {
        Ok(batch) => batch,
        Err(text) => {
            tracing::warn!(service = service.name, "a frame was refused: {text}");
            let problem = MessageProblem { code: 100, location: None, text };
            return engine.ingest_refused(service, frame.clone(), problem);
        }
    };
    if let Some(problem) = batch.problems.first() {
        let problems = batch.problems.len();
        tracing::warn!(service = service.name, problems, "a batch does not add up; its messages were taken: {problem}");
    }
    match take_each(engine, service, frame, batch, waits).await {
        Ok((answers, accepted)) => Ingested::Now { answer: respond(engine, batch, &answers), accepted, lasts: false },
        // As for a single message: no answer, and the connection ends.
        Err(_) => Ingested::Closed,
    }
}

/// The parts of a frame that is taken. Errors: why nothing of it is.
fn fit<'s, 'a>(several: &'s Several<'a>) -> Result<&'s Batch<'a>, String> {
    let Several::Batch(batch) = several else {
        return Err(format!("more than {PARTS_MAX} messages, headers and trailers in one frame; send smaller batches"));
    };
    if batch.messages.is_empty() {
        return Err("a batch (FHS, BHS) without a message".to_owned());
    }
    if batch.messages.len() > MESSAGES_MAX {
        return Err(format!("more than {MESSAGES_MAX} messages in one frame; send smaller batches"));
    }
    if batch.problems.iter().any(|problem| matches!(problem, batch::BatchProblem::Stray { .. })) {
        return Err("a batch (FHS, BHS) with segments that belong to no message; nothing of it was taken".to_owned());
    }
    Ok(batch)
}

/// The frame that is taken, also where its connection ends meanwhile.
struct Rest<'w>(&'w Waits);

impl Drop for Rest<'_> {
    fn drop(&mut self) {
        self.0.rest_of_frame(false);
    }
}

/// The answers to the messages, in order, and whether all were accepted.
async fn take_each(
    engine: &Engine,
    service: &Arc<PlannedService>,
    frame: &Bytes,
    batch: &Batch<'_>,
    waits: &Waits,
) -> io::Result<(Vec<Vec<u8>>, bool)> {
    let mut answers = Vec::with_capacity(batch.messages.len());
    let mut all = true;
    let _rest = Rest(waits);
    for together in batch.messages.chunks(TOGETHER) {
        let mut ingested = Vec::with_capacity(together.len());
        for range in together {
            ingested.push(engine.ingest(service, frame.slice(range.clone()), waits).await);
            // The first one waits for room, with nothing taken; the others are in memory already, and come with it.
            waits.rest_of_frame(true);
        }
        for ingested in ingested {
            let (answer, accepted) = ingested.answer(engine, service).await?;
            answers.push(answer);
            all &= accepted;
        }
    }
    Ok((answers, all))
}

/// One frame for a batch, since the answer to a batch is a batch; for messages without batch headers a frame each.
fn respond(engine: &Engine, batch: &Batch<'_>, answers: &[Vec<u8>]) -> Vec<u8> {
    let plain = batch.parts.iter().all(|part| part.kind == Kind::Message);
    if plain || answers.iter().all(Vec::is_empty) {
        return answers.concat();
    }
    let answers: Vec<Vec<u8>> = answers.iter().map(|frames| unframed(frames)).collect();
    let timestamp = hl7_timestamp(&engine.clock, engine.clock.now_us());
    let response = batch::respond(batch, &answers, &timestamp, || engine.control_id());
    let mut frame = Vec::new();
    mllp::encode(&response, &mut frame);
    frame
}

/// The payload of our own frames, which contain no VT or FS.
fn unframed(frames: &[u8]) -> Vec<u8> {
    let ends = |byte: &u8| matches!(*byte, mllp::START | mllp::END);
    frames.split(ends).filter(|part| *part != [mllp::CR]).flatten().copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_taken_apart_only_where_it_holds_several_messages_or_a_batch() {
        let header = "MSH|^~\\&|A||||||ADT^A01|1|P|2.5\r";
        let cases = [
            (header.to_owned(), false),
            (format!("{header}OBX|1|TX|||MSH is a segment|\r"), false),
            (format!("{header}OBX|1|TX|||text\nMSH: no header\r"), false),
            ("hello".to_owned(), false),
            (String::new(), false),
            (format!("hello\r{header}"), false),
            (format!("{header}{header}"), true),
            (format!("{header}MSH#^~\\&#other separators\r"), true),
            (format!("\u{feff}\r\nBHS|^~\\&\r{header}"), true),
            ("FHS|^~\\&\r".to_owned(), true),
        ];
        for (frame, expected) in cases {
            assert_eq!(several(frame.as_bytes()).is_some(), expected, "{frame:?}");
        }
    }

    #[test]
    fn a_frame_of_too_many_parts_is_refused_before_it_takes_their_memory() {
        for line in ["MSH|\r", "BHS|\r", "BTS|x\r", "FHS|\rx\r"] {
            let frame = format!("BHS|^~\\&\rMSH|^~\\&|A||||||ADT^A01|1|P|2.5\r{}", line.repeat(1 << 20));
            let several = several(frame.as_bytes()).expect("it is no message");
            assert!(matches!(several, Several::TooMany), "{line:?}");
            assert!(fit(&several).is_err_and(|why| why.contains("send smaller batches")), "{line:?}");
        }
    }

    #[test]
    fn frames_are_taken_off_again() {
        let mut frames = Vec::new();
        mllp::encode(b"MSH|a\rMSA|b\r", &mut frames);
        mllp::encode(b"MSH|c\r", &mut frames);
        assert_eq!(unframed(&frames), b"MSH|a\rMSA|b\rMSH|c\r");
        assert_eq!(unframed(b""), b"");
    }
}
