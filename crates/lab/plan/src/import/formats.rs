//! The formats of traces: their names, what each lacks, and its parser.

use clap::ValueEnum;

use super::block::{Blkparse, CloudPhysics, FioLog, Msr};
use super::csv::Csv;
use super::objects::{MetaKv, Twitter};
use super::parser::Parser;
use super::records::{OracleGeneral, Vscsi};
use crate::profile::Lack;

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
