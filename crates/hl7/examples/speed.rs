//! How fast one core reads and edits messages, with `hl7-parser` as a peer.
//!
//! `cargo run --release -p hl7 --example speed [-- DIR]` reads every `.hl7` file below DIR (default: `TERRACE_CORPORA`,
//! else `../shared/corpora`, its folder `hl7`); where there is none it makes messages of about 1.5 KB. Files are split
//! where a line starts with MSH. Each kind of work runs over all messages in turn, in rounds, so that a slow moment of
//! the machine hits all kinds alike. Shown are the fastest round and the median: on a machine that has nothing else to
//! do they are close, else compare the fastest.

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::Instant;

use hl7::{Draft, Message};

/// Paths of a typical router: type, event, control id, patient id, visit or order.
const PATHS: [&str; 5] = ["MSH-9.1", "MSH-9.2", "MSH-10", "PID-3.1", "OBR-4.1"];
/// Edits of a typical transform, in four segments.
const EDITS: [(&str, &str); 4] =
    [("MSH-5", "TERRACE"), ("PID-3[1].4.1", "HOSPITAL"), ("OBX[last]-11", "C"), ("OBR-4.2", "renamed")];
/// Rounds per kind of work; of so many, the fastest is steady to about 2 % even on a busy machine.
const ROUNDS: usize = 41;

type Work<'w> = (&'static str, Box<dyn Fn(&[u8]) -> u64 + 'w>);

fn main() {
    let dir = std::env::args().nth(1).map(PathBuf::from).unwrap_or_else(default_dir);
    let mut messages = Vec::new();
    read_below(&dir, &mut messages);
    let source = if messages.is_empty() { "generated".to_owned() } else { dir.display().to_string() };
    if messages.is_empty() {
        messages = (0..400).map(generate).collect();
    }
    messages.retain(|message| Message::parse(message).is_ok());
    let bytes: usize = messages.iter().map(Vec::len).sum();
    let mut sizes: Vec<_> = messages.iter().map(Vec::len).collect();
    sizes.sort_unstable();
    println!(
        "{source}: {} messages, {bytes} bytes; median {} bytes, 95 % below {}, largest {}",
        messages.len(),
        sizes[sizes.len() / 2],
        sizes[sizes.len() * 95 / 100],
        sizes[sizes.len() - 1]
    );
    measure(&messages, bytes);
}

fn measure(messages: &[Vec<u8>], bytes: usize) {
    let paths: Vec<hl7::Path> = PATHS.iter().map(|path| path.parse().expect("written here")).collect();
    let edits: Vec<(hl7::Path, &[u8])> =
        EDITS.iter().map(|(path, value)| (path.parse().expect("written here"), value.as_bytes())).collect();
    let masker = hl7::mask::Masker::default();
    let works: [Work<'_>; 7] = [
        ("parse", Box::new(|raw| Message::parse(raw).expect("kept only those that parse").len() as u64)),
        ("parse + five paths", Box::new(|raw| five_paths(raw, &paths))),
        ("parse + index of all fields", Box::new(index)),
        ("parse + four edits + write", Box::new(|raw| edit(raw, &edits))),
        ("mask, default paths", Box::new(|raw| masker.mask(raw, None).len() as u64)),
        ("hl7-parser: parse", Box::new(peer)),
        ("hl7-parser: parse + five paths", Box::new(peer_paths)),
    ];
    let mut times = vec![Vec::new(); works.len()];
    for _ in 0..ROUNDS {
        for ((_, work), times) in works.iter().zip(&mut times) {
            let start = Instant::now();
            let sum = messages.iter().fold(0u64, |sum, message| sum.wrapping_add(work(black_box(message))));
            times.push(start.elapsed());
            black_box(sum);
        }
    }
    println!(
        "{:<34} {:>10} {:>12} {:>14} {:>12}",
        "work (one core)", "best MB/s", "median MB/s", "messages/s", "ns/message"
    );
    for ((name, _), times) in works.iter().zip(&mut times) {
        times.sort_unstable();
        let (best, median) = (times[0].as_secs_f64(), times[ROUNDS / 2].as_secs_f64());
        let (megabytes, count) = (bytes as f64 / 1e6, messages.len() as f64);
        println!(
            "{name:<34} {:>10.0} {:>12.0} {:>14.0} {:>12.0}",
            megabytes / best,
            megabytes / median,
            count / best,
            best * 1e9 / count
        );
    }
}

fn five_paths(raw: &[u8], paths: &[hl7::Path]) -> u64 {
    let message = Message::parse(raw).expect("kept only those that parse");
    paths.iter().map(|path| message.get(path).bytes().len() as u64).sum()
}

fn index(raw: &[u8]) -> u64 {
    let message = Message::parse(raw).expect("kept only those that parse");
    let index = message.index_fields();
    (0..message.len()).map(|segment| index.fields(segment) as u64).sum()
}

fn edit(raw: &[u8], edits: &[(hl7::Path, &[u8])]) -> u64 {
    let message = Message::parse(raw).expect("kept only those that parse");
    let mut draft = Draft::new(&message);
    for (path, value) in edits {
        // A message without the segment refuses; that is part of the work.
        black_box(draft.set(path, value).is_ok());
    }
    let mut out = Vec::with_capacity(raw.len() + 64);
    draft.write_to(&mut out);
    out.len() as u64
}

/// The peer reads text only; messages that are not UTF-8 count as read.
fn peer(raw: &[u8]) -> u64 {
    let Ok(text) = std::str::from_utf8(raw) else { return 0 };
    hl7_parser::parse_message_with_lenient_newlines(text).map_or(0, |message| message.segments.len() as u64)
}

fn peer_paths(raw: &[u8]) -> u64 {
    let Ok(text) = std::str::from_utf8(raw) else { return 0 };
    let Ok(message) = hl7_parser::parse_message_with_lenient_newlines(text) else { return 0 };
    let paths = ["MSH.9.1", "MSH.9.2", "MSH.10", "PID.3[1].1", "OBR.4.1"];
    paths.iter().map(|path| message.query(*path).map_or(0, |value| value.raw_value().len() as u64)).sum()
}

fn default_dir() -> PathBuf {
    let corpora = std::env::var_os("TERRACE_CORPORA").map(PathBuf::from);
    corpora.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpora")).join("hl7")
}

fn read_below(dir: &Path, messages: &mut Vec<Vec<u8>>) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            read_below(&path, messages);
        } else if path.extension().is_some_and(|extension| extension == "hl7") {
            split(&std::fs::read(&path).unwrap_or_default(), messages);
        }
    }
}

/// Cuts before each line that starts with MSH.
fn split(file: &[u8], messages: &mut Vec<Vec<u8>>) {
    let starts: Vec<usize> = (0..file.len())
        .filter(|&at| file[at..].starts_with(b"MSH") && (at == 0 || matches!(file[at - 1], b'\r' | b'\n' | 0xBF)))
        .collect();
    for (nth, &start) in starts.iter().enumerate() {
        messages.push(file[start..starts.get(nth + 1).copied().unwrap_or(file.len())].to_vec());
    }
}

/// A result message of about 1.5 KB.
fn generate(seed: u64) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut number = |most: u32| rng.u32(1..=most);
    let mut text = format!(
        "MSH|^~\\&|LAB|NORTH|EHR|SOUTH|20260101120000||ORU^R01^ORU_R01|{seed:08}|P|2.5.1\r\
         PID|1||{}^^^NORTH^MR~{}^^^SS^SS||DOE{}^JANE^Q^^MS||19700101|F|||1 MAIN ST^^TOWN^ST^12345||5551234\r\
         PV1|1|I|WARD^{}^1||||1234^WHO^DOCTOR|||MED||||||||V{}|||||||||||||||||||||||||20260101\r\
         ORC|RE|P{}|F{}||CM||||20260101\r\
         OBR|1|P1|F1|24323-8^Comprehensive metabolic panel^LN|||20260101115500|||||||||1234^WHO^DOCTOR\r",
        number(999_999),
        number(999_999),
        number(999),
        number(400),
        number(999_999),
        number(99_999),
        number(99_999)
    );
    for nth in 1..=14 {
        text += &format!(
            "OBX|{nth}|NM|{}-{}^Analyte {}^LN||{}.{}|mmol/L^^UCUM|3.5-5.1|N|||F|||20260101115500\r",
            number(99_999),
            number(9),
            number(500),
            number(200),
            number(9)
        );
    }
    text.into_bytes()
}
