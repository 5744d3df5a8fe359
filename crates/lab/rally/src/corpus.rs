//! Documents like the log of a web server, from a seed: the same seed gives the same lines, and more lines begin with fewer.
//!
//! ```text
//! {"@timestamp":1767225600,"clientip":"10.4.2.0","request":"GET /results/laboratory.html HTTP/1.1","status":200,"size":5120}
//! ```
//!
//! 20,000 paths are requested, a few of them very often and most of them seldom; 60,000 clients; about 12 requests a second.
//! The first paths of the list are fixed, since queries name them.

use std::fmt::Write as _;
use std::io::{self, Write};

use fastrand::Rng;

/// Different paths.
const PATHS: usize = 20_000;
/// Different clients.
const CLIENTS: usize = 60_000;
/// Time of the first line: 2026-01-01, UTC.
const FIRST_SECOND: u64 = 1_767_225_600;
/// A line of so many, on average, begins a new second.
const LINES_A_SECOND: u32 = 12;

/// Words of paths.
const WORDS: [&str; 48] = [
    "results",
    "orders",
    "images",
    "reports",
    "patients",
    "ward",
    "wards",
    "clinic",
    "radiology",
    "laboratory",
    "pathology",
    "oncology",
    "cardiology",
    "surgery",
    "pharmacy",
    "billing",
    "registry",
    "archive",
    "letters",
    "notes",
    "charts",
    "vitals",
    "allergies",
    "calendar",
    "visits",
    "beds",
    "transfers",
    "staff",
    "roster",
    "messages",
    "inbox",
    "search",
    "help",
    "forms",
    "consent",
    "devices",
    "monitors",
    "infusion",
    "blood",
    "culture",
    "urine",
    "biopsy",
    "north",
    "south",
    "east",
    "west",
    "today",
    "history",
];
/// Endings of paths.
const ENDINGS: [&str; 5] = [".html", ".json", ".png", ".pdf", ""];
/// Paths that queries name, the most frequent ones.
const FIXED_PATHS: [&str; 4] =
    ["/results/laboratory.html", "/orders/radiology.html", "/ward/images/today.png", "/oncology/images.json"];
/// Methods of 100 requests: the rest is GET.
const HEADS: u32 = 2;
const POSTS: u32 = 2;

/// Makes lines.
#[derive(Clone, Debug)]
pub struct Corpus {
    rng: Rng,
    paths: Vec<String>,
    clients: Vec<String>,
    second: u64,
}

impl Corpus {
    /// The corpus of a seed, at its first line.
    pub fn new(seed: u64) -> Corpus {
        let mut rng = Rng::with_seed(seed);
        let paths =
            (0..PATHS).map(|at| FIXED_PATHS.get(at).map_or_else(|| path(&mut rng), |fixed| (*fixed).to_owned()));
        let paths = paths.collect();
        let clients =
            (0..CLIENTS).map(|_| format!("{}.{}.{}.0", rng.u8(1..=250), rng.u8(0..=250), rng.u8(0..=250))).collect();
        Corpus { rng, paths, clients, second: FIRST_SECOND }
    }

    /// Adds the next document, without an end of line.
    pub fn next_into(&mut self, out: &mut String) {
        let rng = &mut self.rng;
        self.second += u64::from(rng.u32(0..LINES_A_SECOND) == 0);
        // The logarithm of a path's place is uniform: the first of 20,000 gets 7 % of all requests, the last 1 in 200,000.
        let path = &self.paths[((PATHS as f64).powf(rng.f64()) as usize).clamp(1, PATHS) - 1];
        let client = &self.clients[rng.usize(0..CLIENTS)];
        let status = status(rng.u32(0..100));
        let size = if status == 304 { 0 } else { size(rng) };
        let method = match rng.u32(0..100) {
            of if of < HEADS => "HEAD",
            of if of < HEADS + POSTS => "POST",
            _ => "GET",
        };
        let version = rng.u8(0..=1);
        let second = self.second;
        // Writing to a text cannot fail. Nothing in it needs an escape.
        let _ = write!(
            out,
            r#"{{"@timestamp":{second},"clientip":"{client}","request":"{method} {path} HTTP/1.{version}","status":{status},"size":{size}}}"#
        );
    }

    /// Writes the next `documents` lines; returns their bytes.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(&mut self, documents: usize, out: &mut impl Write) -> io::Result<u64> {
        let (mut bytes, mut line) = (0, String::new());
        for _ in 0..documents {
            line.clear();
            self.next_into(&mut line);
            line.push('\n');
            bytes += line.len() as u64;
            out.write_all(line.as_bytes())?;
        }
        Ok(bytes)
    }
}

fn path(rng: &mut Rng) -> String {
    let mut path = String::new();
    for _ in 0..rng.u32(1..=4) {
        path.push('/');
        path.push_str(WORDS[rng.usize(0..WORDS.len())]);
    }
    path + ENDINGS[rng.usize(0..ENDINGS.len())]
}

/// The status of a request, from a number below 100.
fn status(of: u32) -> u16 {
    match of {
        0..79 => 200,
        79..92 => 304,
        92..96 => 404,
        96..98 => 206,
        98 => 400,
        _ => 500,
    }
}

/// A size of about 3 KB, from some bytes to a megabyte: e to the power of what is nearly a normal distribution.
fn size(rng: &mut Rng) -> u64 {
    let sum: f64 = (0..12).map(|_| rng.f64()).sum();
    (8.0 + 1.6 * (sum - 6.0)).exp() as u64
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::Value;

    use super::*;

    fn lines(seed: u64, documents: usize) -> Vec<Value> {
        let mut out = Vec::new();
        let bytes = Corpus::new(seed).write(documents, &mut out).expect("memory");
        assert_eq!(bytes, out.len() as u64);
        let text = String::from_utf8(out).expect("a text");
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    #[test]
    fn the_same_seed_gives_the_same_lines_and_another_one_others() {
        assert_eq!(lines(7, 200)[..100], lines(7, 100)[..]);
        assert_ne!(lines(7, 10), lines(8, 10));
    }

    #[test]
    fn every_query_of_the_track_has_something_to_find_in_20_000_lines() {
        let lines = lines(1, 20_000);
        let mut counts = BTreeMap::new();
        for line in &lines {
            let text = |key: &str| line[key].as_str().expect("a text").to_owned();
            let request = text("request");
            for (what, is) in [
                ("term", request == "GET /results/laboratory.html HTTP/1.1"),
                ("phrase", request.contains("ward/images")),
                ("prefix", request.starts_with("POST /orders")),
                ("and", request.contains("oncology") && request.contains("images") && line["status"] == 404),
                ("400", line["status"] == 400),
                ("range", (4_000..5_000).contains(&line["size"].as_u64().expect("a number"))),
                ("after the first minutes", line["@timestamp"].as_u64() > Some(FIRST_SECOND + 120)),
            ] {
                *counts.entry(what).or_insert(0) += u32::from(is);
            }
        }
        assert!(counts.values().all(|count| (5..19_000).contains(count)), "{counts:?}");
    }
}
