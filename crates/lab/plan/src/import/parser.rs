//! What a parser of a trace makes of one line or record, and the table of formats.

use clap::ValueEnum;

use super::block::{Blkparse, CloudPhysics, FioLog, Msr};
use super::csv::Csv;
use super::objects::{MetaKv, Twitter};
use super::records::{OracleGeneral, Vscsi};
use crate::profile::Lack;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// It reads.
    Read,
    /// It writes.
    Write,
    /// It writes, and what it wrote is persistent when it is done: a write and a flush.
    DurableWrite,
    /// It makes earlier writes persistent.
    Flush,
    /// It discards or deletes: counted, and no access.
    Other,
}

/// A request of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Microseconds since any time; 0 if the trace has no times.
    pub time_us: u64,
    /// The device or file of a block; 0 for objects.
    pub device: u64,
    /// The offset of the first byte on the device; or the number of the object.
    pub place: u64,
    /// Bytes; 0 if the trace has no sizes.
    pub bytes: u64,
    /// What it does.
    pub kind: RequestKind,
    /// How often it is made at once, at least 1.
    pub times: u32,
}

/// The result of one line.
pub(super) type Parsed = Result<Option<Request>, String>;

/// Reads a trace line by line, or record by record.
pub(super) trait Parser {
    /// Bytes of a record; `None` for lines. The first bytes of the file help to decide.
    fn record_bytes(&mut self, _head: &[u8]) -> Result<Option<usize>, String> {
        Ok(None)
    }

    /// Parses a line without its end, or a record. Errors: what is wrong, without the content of the line.
    fn parse(&mut self, line: &[u8]) -> Parsed;
}

/// Formats of traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TraceFormat {
    /// What blkparse prints of a blktrace, in its default format
    Blkparse,
    /// A log of `fio --write_iolog`, version 2 or 3
    Fio,
    /// MSR Cambridge: Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime
    Msr,
    /// CloudPhysics as CSV: version,time,op,size,lbn
    Cloudphysics,
    /// CloudPhysics and vscsiStats, binary, record version 1 or 2
    Vscsi,
    /// Twitter's cache clusters: timestamp,key,key size,value size,client,operation,TTL
    Twitter,
    /// Meta's key-value traces for CacheBench, with a heading that names the columns
    MetaKv,
    /// libCacheSim's oracleGeneral, binary: time, object, size, next access
    OracleGeneral,
    /// Any CSV whose first line names its columns: time, object (or key, id), size, op
    Csv,
}

impl TraceFormat {
    /// Its name on the command line and in profiles.
    pub fn name(self) -> &'static str {
        match self {
            TraceFormat::Blkparse => "blkparse",
            TraceFormat::Fio => "fio",
            TraceFormat::Msr => "msr",
            TraceFormat::Cloudphysics => "cloudphysics",
            TraceFormat::Vscsi => "vscsi",
            TraceFormat::Twitter => "twitter",
            TraceFormat::MetaKv => "meta-kv",
            TraceFormat::OracleGeneral => "oracle-general",
            TraceFormat::Csv => "csv",
        }
    }

    /// Whether its requests are of blocks of a device; otherwise of objects.
    pub fn is_of_blocks(self) -> bool {
        use TraceFormat::{Blkparse, Cloudphysics, Fio, Msr, Vscsi};
        matches!(self, Blkparse | Fio | Msr | Cloudphysics | Vscsi)
    }

    /// What a trace of this format never has; what a single trace lacks beyond that is found while it is read.
    pub fn lacks(self) -> Vec<Lack> {
        let mut lacks = vec![Lack::Structures, Lack::Journal, Lack::Cpu, Lack::Concurrency];
        match self {
            TraceFormat::Blkparse | TraceFormat::Fio => lacks.push(Lack::HitsAbove),
            TraceFormat::Msr | TraceFormat::Cloudphysics | TraceFormat::Vscsi => {
                lacks.extend([Lack::HitsAbove, Lack::Flushes]);
            }
            TraceFormat::Twitter | TraceFormat::MetaKv | TraceFormat::Csv => lacks.push(Lack::Flushes),
            TraceFormat::OracleGeneral => lacks.extend([Lack::Flushes, Lack::Writes]),
        }
        lacks
    }

    pub(super) fn parser(self) -> Box<dyn Parser> {
        match self {
            TraceFormat::Blkparse => Box::new(Blkparse::default()),
            TraceFormat::Fio => Box::new(FioLog::default()),
            TraceFormat::Msr => Box::new(Msr::default()),
            TraceFormat::Cloudphysics => Box::new(CloudPhysics::default()),
            TraceFormat::Vscsi => Box::new(Vscsi::default()),
            TraceFormat::Twitter => Box::new(Twitter),
            TraceFormat::MetaKv => Box::new(MetaKv::default()),
            TraceFormat::OracleGeneral => Box::new(OracleGeneral),
            TraceFormat::Csv => Box::new(Csv::default()),
        }
    }
}

/// The text of a field without blanks around it; what is wrong otherwise.
pub(super) fn text<'a>(field: &'a [u8], name: &str) -> Result<&'a str, String> {
    std::str::from_utf8(field).map(str::trim).map_err(|_| format!("the {name} is no text"))
}

/// A whole number.
pub(super) fn number(field: &[u8], name: &str) -> Result<u64, String> {
    text(field, name)?.parse().map_err(|_| format!("the {name} is no whole number"))
}

/// Seconds with up to nine decimals, as microseconds.
pub(super) fn seconds(field: &[u8], name: &str) -> Result<u64, String> {
    let bad = || format!("the {name} is no time in seconds");
    let (whole, decimals) = text(field, name)?.split_once('.').unwrap_or((text(field, name)?, ""));
    if decimals.len() > 9 || !decimals.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(bad());
    }
    let micros = format!("{decimals:0<6}")[..6].parse::<u64>().map_err(|_| bad())?;
    let whole = whole.parse::<u64>().map_err(|_| bad())?;
    whole.checked_mul(1_000_000).and_then(|time| time.checked_add(micros)).ok_or_else(bad)
}
