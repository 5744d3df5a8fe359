//! The fuzz targets' bodies of framing, batches and acknowledgements, over the corpora, damaged messages and words.
//!
//! A failure prints its seed; `HL7_SEED=<seed> cargo test -p hl7 protocol` runs that one alone.

use fastrand::Rng;
use hl7::fuzzing;

use crate::corpus;

/// Tries. Takes about a second.
const TRIES: u64 = 20_000;

const BATCH: &[u8] = b"FHS|^~\\&|A|B|C|D|2026|||c|F1\rBHS|^~\\&|A|B|C|D|2026|||c|B1\r\
    MSH|^~\\&#|A|B\\T\\C|D||20260101||ORU^R01^ORU_R01|1|P|2.5.1|||NE|AL||8859/1\rPID|1\rOBX|1|TX|GLU||line\nline\r\
    MSH*!%?:*A*B***2026**ADT!A01*2*P*2.3\rPID*1\rBTS|2\rMSH|^~\\&|||||||ACK|3|P|2.7\rMSA|AA|1|x\rERR|||207\rFTS|2\r";

const WORDS: &[&str] = &[
    "\x0b",
    "\x0b",
    "\x1c",
    "\x1c",
    "\r",
    "\r",
    "\n",
    "\r\n",
    "\0",
    "\u{feff}",
    " ",
    "|",
    "^",
    "~",
    "\\",
    "&",
    "#",
    "*",
    "FHS|^~\\&|",
    "BHS|^~\\&|",
    "BHS*!*",
    "BTS|1\r",
    "BTS|",
    "BTS",
    "FTS|1\r",
    "FTS|",
    "MSH|^~\\&|",
    "MSH*!%?:*",
    "MSH",
    "MSH|^|",
    "MSA|AA|1",
    "\rMSA|",
    "\rERR|",
    "PID|1\r",
    "\nPID|",
    "ACK",
    "ADT^A01",
    "2.3",
    "2.4",
    "2.5.1",
    "2.7",
    "1",
    "\"\"",
    "AL",
    "|AL|NE|",
    "8859/1",
    "\x06",
    "\x15",
    "\x0b\x06\x1c\r",
    "\u{e9}",
    "text",
    "A very long word indeed",
];

fn words(rng: &mut Rng, most: usize) -> Vec<u8> {
    (0..rng.usize(0..most)).flat_map(|_| rng.choice(WORDS).expect("not empty").bytes()).collect()
}

fn damaged(rng: &mut Rng, from: &[u8]) -> Vec<u8> {
    let mut bytes = from.to_vec();
    for _ in 0..rng.usize(0..8) {
        let at = rng.usize(..=bytes.len());
        match rng.u8(..4) {
            0 => drop(bytes.drain(at..(at + rng.usize(1..6)).min(bytes.len()))),
            1 if at < bytes.len() => bytes[at] = rng.u8(..),
            _ => drop(bytes.splice(at..at, rng.choice(WORDS).expect("not empty").bytes())),
        }
    }
    bytes
}

fn run(seed: u64) {
    let mut rng = Rng::with_seed(seed);
    fuzzing::mllp(&[&[rng.u8(..), rng.u8(..12)], &words(&mut rng, 40)[..]].concat());
    fuzzing::batch(&words(&mut rng, 20));
    fuzzing::batch(&damaged(&mut rng, BATCH));
    let header = rng.choice([&b"MSH|^~\\&|"[..], b"MSH*!%?:*", b"MSH|^|", b"MSH|^~\\&#|"]).expect("not empty");
    let fields: Vec<Vec<u8>> = (0..rng.usize(0..20)).map(|_| words(&mut rng, 3)).collect();
    fuzzing::ack(&[header, &fields.join(&header[3])].concat());
    let start = rng.usize(..BATCH.len());
    fuzzing::ack(&damaged(&mut rng, &BATCH[start..]));
}

#[test]
fn the_fuzz_invariants_hold_for_damaged_batches_and_random_words() {
    if let Ok(seed) = std::env::var("HL7_SEED") {
        return run(seed.parse().expect("HL7_SEED is a number"));
    }
    for seed in 0..TRIES {
        if let Err(panic) = std::panic::catch_unwind(|| run(seed)) {
            println!("failed with HL7_SEED={seed}");
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn the_fuzz_invariants_hold_for_every_corpus_file() {
    for (_, file) in corpus::files() {
        fuzzing::batch(&file);
        fuzzing::ack(&file);
        fuzzing::mllp(&[b"\xfd\x40", &file[..]].concat());
    }
}
