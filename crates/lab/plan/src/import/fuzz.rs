//! The fuzz target of importers.

use std::io::Write;

use super::convert::{ImportOptions, import};
use super::formats::TraceFormat;
use crate::PlanError;
use crate::hash::Salt;
use crate::profile::{ProfileReader, RecorderOptions};

const FORMATS: [TraceFormat; 9] = [
    TraceFormat::Blkparse,
    TraceFormat::Fio,
    TraceFormat::Msr,
    TraceFormat::Cloudphysics,
    TraceFormat::Vscsi,
    TraceFormat::Twitter,
    TraceFormat::MetaKv,
    TraceFormat::OracleGeneral,
    TraceFormat::Csv,
];

/// A file in memory that is not worth more than so many bytes.
struct Bounded(Vec<u8>);

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        assert!(self.0.len() < 64 << 20, "a profile of more than 64 MiB");
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Imports the bytes: the first one names the format, and how. What is imported makes a profile that can be read, with as many accesses.
pub fn trace(input: &[u8]) {
    let Some((choice, trace)) = input.split_first() else { return };
    let format = FORMATS[usize::from(choice & 15) % FORMATS.len()];
    let options = ImportOptions {
        format,
        objects: choice & 16 != 0,
        same_size: choice & 32 != 0,
        bad_lines_max: if choice & 64 != 0 { 1000 } else { 0 },
        exact: false,
    };
    let mut recorder = RecorderOptions::new(Salt::of_seed(1), &["all"], 1 << 20, &std::env::temp_dir());
    (recorder.keys, recorder.stream_keys) = (64, 64);
    let mut out = Bounded(Vec::new());
    let imported = match import(&mut { trace }, &options, recorder, &mut out) {
        Ok(imported) => imported,
        Err(PlanError::Io(error)) => panic!("{error}"),
        Err(_) => return,
    };
    assert!(imported.summary.origin.bad_lines <= options.bad_lines_max, "too many bad lines");
    let mut reader = ProfileReader::new(out.0.as_slice()).expect("what was written can be read");
    let mut entries = 0;
    while let Some(chunk) = reader.next_chunk().expect("to its end") {
        entries += chunk.len() as u64;
    }
    assert_eq!(reader.summary(), &imported.summary);
    assert_eq!(entries, imported.summary.stream_entries, "{format:?}");
}
