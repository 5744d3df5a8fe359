//! The fuzz targets' bodies over available inputs: the corpora, damaged corpora and random bytes. The long search is
//! `cargo xtask fuzz`; this catches what a few thousand tries can find.
//!
//! A failure prints its seed; `HL7_SEED=<seed> cargo test -p hl7 invariants` runs that one alone.

use fastrand::Rng;
use hl7::fuzzing;

use crate::corpus;

/// Tries per target. Takes about a second in all.
const TRIES: u64 = 10_000;

const MESSAGE: &[u8] = b"\xEF\xBB\xBF\r\nMSH|^~\\&#|A|B\\T\\C|||20260101||ORU^R01^ORU_R01|1|P|2.5.1|||NE|AL||8859/1\r\
    PID|1||1^^^H&1.2&ISO^MR~2^^^^SS||DOE^J\\.br\\O||\"\"|F\n\nZPD||~~^^&|\r\nOBX|1|TX|^&||line\nline\n two\\X0D0A\\|\n\
    NTE\rjunk\r\r\rOBX|2|NM|GLU||5.4~\r\n\n";

const WORDS: &[&str] = &[
    "MSH",
    "PID",
    "OBX",
    "-",
    ".",
    ":",
    "[",
    "]",
    "(",
    ")",
    "*",
    "last",
    "=",
    "'",
    "''",
    "\"",
    "0",
    "1",
    "2",
    "3",
    "65535",
    "65536",
    " ",
    "/",
    "GLU",
    "-3",
    "-5.1",
    "[2]",
    "[3.1='GLU']",
    "\r",
    "\n",
    "|",
    "^",
    "~",
    "\\",
    "&",
    "#",
    "\t",
    "\nPID|",
    "\r\n",
    "\\F\\",
    "\\X0D\\",
    "\\.sp3\\",
    "\\Zx\\",
    "\\.br\\",
    "+",
    "i",
    "d",
    "s",
    "=PID-3[2].1\tx",
    "=OBX[*]-5\tA\nB",
    "-OBX[last]-5[1]",
    "sOBX|9",
    "sZZZ",
    "d\u{3}",
    "i\u{2}",
    "\u{1}",
    "\u{0}",
    "\u{e9}",
];

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

fn words(rng: &mut Rng, most: usize) -> Vec<u8> {
    (0..rng.usize(0..most)).flat_map(|_| rng.choice(WORDS).expect("not empty").bytes()).collect()
}

fn script(rng: &mut Rng) -> Vec<u8> {
    let mut script = Vec::new();
    for _ in 0..rng.usize(1..6) {
        script.push(*rng.choice(b"=+-ids").expect("not empty"));
        let path = ["OBX", "OBX[2]", "OBX[*]", "OBX[last]", "PID", "ZPD", "NTE", "MSH"][rng.usize(..8)];
        script.extend_from_slice(path.as_bytes());
        if rng.u8(..4) > 0 {
            script.extend(format!("-{}", rng.u8(1..9)).bytes());
            script.extend(["", "[1]", "[2]", "[last]", "[*]"][rng.usize(..5)].bytes());
            script.extend(["", ".1", ".2", ".1.2"][rng.usize(..4)].bytes());
        }
        script.push(b'\t');
        script.extend(words(rng, 4).into_iter().filter(|&b| b != 0 && b != b'\n'));
        script.push(b'\n');
    }
    script
}

/// Paths to mask, or none.
fn mask_paths(rng: &mut Rng) -> String {
    let mut paths = String::new();
    for _ in 0..rng.usize(..4) {
        paths += ["PID", "OBX", "ZPD", "NTE", "MSH"][rng.usize(..5)];
        for separator in ["-", ".", "."].into_iter().take(rng.usize(..4)) {
            paths += &format!("{separator}{}", rng.u8(1..8));
        }
        paths.push('\n');
    }
    paths
}

fn run(seed: u64, seeds: &[Vec<u8>]) {
    let mut rng = Rng::with_seed(seed);
    let from = rng.choice(seeds).expect("at least our own");
    let bytes = damaged(&mut rng, from);
    fuzzing::message(&bytes);
    fuzzing::reading(&[&[rng.u8(..)], &bytes[..]].concat());
    fuzzing::path(&words(&mut rng, 12));
    fuzzing::mask(&[mask_paths(&mut rng).as_bytes(), &[0], &bytes[..]].concat());
    let mut script = if rng.bool() { script(&mut rng) } else { words(&mut rng, 20) };
    script.push(0);
    script.extend_from_slice(&bytes);
    fuzzing::draft(&script);
    let mut punctuation = *b"^~\\&#!$*+.,:;/?@";
    rng.shuffle(&mut punctuation);
    let mut choice = *b"^~\\&#^~\\&#";
    choice[5..].copy_from_slice(&punctuation[..5]);
    if rng.bool() {
        choice[..5].copy_from_slice(&punctuation[5..10]);
    }
    for half in [0, 5] {
        if rng.u8(..3) == 0 {
            choice[half + rng.usize(1..5)] = b'a'; // MSH-2 ends here
        }
    }
    let text = words(&mut rng, 12);
    let text = if rng.bool() { text } else { text.iter().map(|&b| if b == b'\\' { choice[2] } else { b }).collect() };
    fuzzing::escape(&[&choice[..], &text].concat());
}

#[test]
fn the_fuzz_invariants_hold_for_damaged_messages_and_random_words() {
    let mut seeds = vec![MESSAGE.to_vec(); 1];
    seeds.extend(corpus::files().into_iter().map(|(_, file)| file).filter(|file| file.len() < 4000).take(40));
    seeds.resize_with(seeds.len() * 2, || MESSAGE.to_vec());
    if let Ok(seed) = std::env::var("HL7_SEED") {
        return run(seed.parse().expect("HL7_SEED is a number"), &seeds);
    }
    for seed in 0..TRIES {
        if let Err(panic) = std::panic::catch_unwind(|| run(seed, &seeds)) {
            println!("failed with HL7_SEED={seed}");
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn the_fuzz_invariants_hold_for_every_corpus_file() {
    for (_, file) in corpus::files() {
        fuzzing::message(&file);
        fuzzing::reading(&[&[0], &file[..]].concat());
        fuzzing::mask(&[&[0], &file[..]].concat());
        fuzzing::mask(&[b"PID-3.1\nPID-5.1.1\nOBX-3.2\nPV1\n\0", &file[..]].concat());
        fuzzing::draft(&[b"=MSH-10\tx\n-PID-3\ni\x02\nd\x03\n=OBX[*]-5[last].2\ty\n\0", &file[..]].concat());
    }
}
