//! From the requests of a trace to the accesses of a profile.
//!
//! ```text
//!   a request of blocks   offset .. offset + length  ->  one access for each page that it touches, of the size of a page
//!   a request of objects                             ->  one access of the object's size
//! ```
//!
//! With `objects`, requests of blocks are objects too, named by their first byte: that is how cache simulators read block traces.

use std::io::BufRead;

use super::formats::TraceFormat;
use super::lines::{next_line, next_record};
use super::parser::{Parser, Request, RequestKind};
use crate::PlanError;
use crate::profile::{Access, Lack, Origin, Recorder, RecorderOptions, Summary};
use crate::reuse::{ReuseCounts, StackDistances};

/// Bytes of one request at most: a line must not keep an import busy.
const REQUEST_BYTES_MAX: u64 = 64 << 20;

/// Bad lines that are reported with their numbers.
const REPORTED: usize = 10;

/// How a trace is imported.
#[derive(Clone, Debug)]
pub struct ImportOptions {
    /// The format.
    pub format: TraceFormat,
    /// Requests of blocks are objects, named by their first byte.
    pub objects: bool,
    /// Each object counts as one page, whatever its size.
    pub same_size: bool,
    /// Bad lines that are left out; with one more the import fails.
    pub bad_lines_max: u64,
    /// Compute the exact curve too: memory grows with the number of keys.
    pub exact: bool,
}

/// What an import made.
#[derive(Clone, Debug)]
pub struct Imported {
    /// What the profile says.
    pub summary: Summary,
    /// Requests that were accesses.
    pub requests: u64,
    /// The first bad lines that were left out, with their numbers.
    pub bad_lines: Vec<String>,
    /// The exact reuse, if it was wanted.
    pub exact: Option<ReuseCounts>,
}

/// Imports a trace; the profile is written to `out`.
///
/// # Errors
/// The first bad line beyond `bad_lines_max`; a trace without a request; those of reading and writing.
pub fn import(
    trace: &mut impl BufRead,
    options: &ImportOptions,
    recorder: RecorderOptions,
    out: &mut impl std::io::Write,
) -> Result<Imported, PlanError> {
    let page_bytes = recorder.page_bytes;
    let of_pages = options.format.is_of_blocks() && !options.objects;
    let salt = recorder.salt;
    let mut conversion = Conversion {
        recorder: Recorder::new(recorder)?,
        salt,
        of_pages,
        same_size: options.same_size,
        page_bytes,
        begin_us: None,
        requests: 0,
        others: 0,
        flushes: 0,
        has_times: false,
        has_sizes: false,
        has_writes: false,
        exact: options.exact.then(|| (StackDistances::default(), ReuseCounts::default())),
    };
    let (bad, bad_lines) = read(trace, options, &mut conversion)?;
    if conversion.requests == 0 {
        return Err(PlanError::Refused("the trace has no request that reads or writes".into()));
    }
    let lacks = conversion.lacks(options.format);
    let has_flushes = !options.format.lacks().contains(&Lack::Flushes);
    let origin = Origin {
        kind: options.format.name().to_owned(),
        made_by: format!("terrace {}", env!("CARGO_PKG_VERSION")),
        keys: if of_pages { "page" } else { "object" }.to_owned(),
        bad_lines: bad,
        other_requests: conversion.others,
        flushes: has_flushes.then_some(conversion.flushes),
        times_back: 0,
    };
    let Conversion { recorder, requests, exact, .. } = conversion;
    let summary = recorder.finish(origin, &lacks, out)?;
    Ok(Imported { summary, requests, bad_lines, exact: exact.map(|(_, counts)| counts) })
}

/// Passes all requests on; returns the number of bad lines, and the first ones.
fn read(
    trace: &mut impl BufRead,
    options: &ImportOptions,
    conversion: &mut Conversion,
) -> Result<(u64, Vec<String>), PlanError> {
    let mut parser = options.format.parser();
    let record_bytes = parser.record_bytes(trace.fill_buf()?).map_err(PlanError::Refused)?;
    let unit = if record_bytes.is_some() { "record" } else { "line" };
    let (mut line, mut number) = (Vec::new(), 0u64);
    let (mut bad, mut bad_lines) = (0, Vec::new());
    loop {
        let next = match record_bytes {
            Some(length) => next_record(trace, &mut line, length)?,
            None => next_line(trace, &mut line)?,
        };
        number += 1;
        let parsed = match next {
            Ok(false) => return Ok((bad, bad_lines)),
            Ok(true) => parse(&mut *parser, &line, conversion.of_pages),
            Err(what) => Err(what),
        };
        match parsed {
            Ok(None) => {}
            Ok(Some(request)) => conversion.take(request)?,
            Err(what) => {
                bad += 1;
                if bad > options.bad_lines_max {
                    return Err(PlanError::BadLine { unit, number, what });
                }
                if bad_lines.len() < REPORTED {
                    bad_lines.push(format!("{unit} {number}: {what}"));
                }
            }
        }
    }
}

/// One line, with the bounds that hold for every format.
fn parse(parser: &mut dyn Parser, line: &[u8], of_pages: bool) -> Result<Option<Request>, String> {
    let Some(request) = parser.parse(line)? else { return Ok(None) };
    if matches!(request.kind, RequestKind::Flush | RequestKind::Other) {
        return Ok(Some(request));
    }
    if of_pages {
        if request.bytes == 0 {
            return Err("its length is 0".into());
        }
        if request.bytes > REQUEST_BYTES_MAX {
            return Err(format!("its length is above {REQUEST_BYTES_MAX} bytes"));
        }
        if request.place.checked_add(request.bytes).is_none() {
            return Err("its end is beyond any device".into());
        }
    } else if u32::try_from(request.bytes).is_err() {
        return Err("its size is above 4 GiB".into());
    }
    Ok(Some(request))
}

struct Conversion {
    recorder: Recorder,
    salt: crate::hash::Salt,
    of_pages: bool,
    same_size: bool,
    page_bytes: u64,
    begin_us: Option<u64>,
    requests: u64,
    others: u64,
    flushes: u64,
    has_times: bool,
    has_sizes: bool,
    has_writes: bool,
    exact: Option<(StackDistances, ReuseCounts)>,
}

impl Conversion {
    fn take(&mut self, request: Request) -> Result<(), PlanError> {
        match request.kind {
            RequestKind::Flush => self.flushes += 1,
            RequestKind::Other => self.others += 1,
            RequestKind::Read | RequestKind::Write => return self.access(request),
            RequestKind::DurableWrite => {
                self.flushes += 1;
                return self.access(request);
            }
        }
        Ok(())
    }

    fn access(&mut self, request: Request) -> Result<(), PlanError> {
        let begin_us = *self.begin_us.get_or_insert(request.time_us);
        let time_us = request.time_us.saturating_sub(begin_us);
        let is_write = matches!(request.kind, RequestKind::Write | RequestKind::DurableWrite);
        self.requests += 1;
        self.has_times |= time_us > 0;
        self.has_sizes |= request.bytes > 0;
        self.has_writes |= is_write;
        if !self.of_pages {
            let bytes = if self.same_size || request.bytes == 0 { self.page_bytes } else { request.bytes };
            let access =
                Access { time_us, key: request.device ^ request.place, bytes: bytes as u32, structure: 0, is_write };
            for _ in 0..request.times {
                self.record(access)?;
            }
            return Ok(());
        }
        let pages = request.place / self.page_bytes..=(request.place + (request.bytes - 1)) / self.page_bytes;
        for page in pages {
            let bytes = self.page_bytes as u32;
            self.record(Access { time_us, key: request.device ^ page, bytes, structure: 0, is_write })?;
        }
        Ok(())
    }

    fn record(&mut self, access: Access) -> Result<(), PlanError> {
        self.recorder.record(access)?;
        if let Some((distances, counts)) = &mut self.exact {
            counts.count_exact(distances.access(self.salt.hash(access.key), access.bytes.max(1).into()));
        }
        Ok(())
    }

    fn lacks(&self, format: TraceFormat) -> Vec<Lack> {
        let mut lacks = format.lacks();
        for (has, lack) in [
            (self.has_times, Lack::Times),
            (self.has_sizes && !self.same_size, Lack::Sizes),
            (self.has_writes, Lack::Writes),
        ] {
            if !has && !lacks.contains(&lack) {
                lacks.push(lack);
            }
        }
        lacks
    }
}
