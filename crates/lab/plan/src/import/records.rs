//! Binary traces: records of one length, little-endian.
//!
//! ```text
//!   oracleGeneral   0  4 time, seconds      4  8 object      12  4 size      16  8 next access
//!   vscsi 1         0  4 number   4  4 bytes   8  4 parts   12  2 command   14  2 version << 8   16  8 block of 512   24  8 time, us
//!   vscsi 2         0  2 command  2  2 version << 8   4  4 number   8  4 bytes   12  4 parts   16  8 block   24  8 time, us   32  8 response
//! ```

use super::block::{scsi, sectors};
use super::parser::{Parsed, Parser, Request, RequestKind};

fn u16_at(record: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([record[at], record[at + 1]])
}

fn u32_at(record: &[u8], at: usize) -> u32 {
    u32::from(u16_at(record, at)) | u32::from(u16_at(record, at + 2)) << 16
}

fn u64_at(record: &[u8], at: usize) -> u64 {
    u64::from(u32_at(record, at)) | u64::from(u32_at(record, at + 4)) << 32
}

/// libCacheSim's oracleGeneral.
pub(super) struct OracleGeneral;

impl Parser for OracleGeneral {
    fn record_bytes(&mut self, _head: &[u8]) -> Result<Option<usize>, String> {
        Ok(Some(24))
    }

    fn parse(&mut self, record: &[u8]) -> Parsed {
        let bytes = u64::from(u32_at(record, 12));
        if bytes == 0 {
            return Err("its size is 0".into());
        }
        Ok(Some(Request {
            time_us: u64::from(u32_at(record, 0)) * 1_000_000,
            device: 0,
            place: u64_at(record, 4),
            bytes,
            kind: RequestKind::Read,
            times: 1,
        }))
    }
}

/// vscsiStats, as CloudPhysics published.
#[derive(Default)]
pub(super) struct Vscsi {
    is_second: bool,
}

impl Parser for Vscsi {
    fn record_bytes(&mut self, head: &[u8]) -> Result<Option<usize>, String> {
        // Two records in a row tell the versions apart.
        let is = |length: usize, at: usize, version: u16| {
            head.len() >= length
                && (0..head.len() / length).take(2).all(|number| u16_at(head, number * length + at) >> 8 == version)
        };
        self.is_second = is(40, 2, 2);
        if self.is_second {
            Ok(Some(40))
        } else if is(32, 14, 1) {
            Ok(Some(32))
        } else {
            Err("it has records of neither version 1 nor version 2".into())
        }
    }

    fn parse(&mut self, record: &[u8]) -> Parsed {
        let (command, version, bytes) = match self.is_second {
            true => (u16_at(record, 0), u16_at(record, 2), u32_at(record, 8)),
            false => (u16_at(record, 12), u16_at(record, 14), u32_at(record, 4)),
        };
        if version >> 8 != if self.is_second { 2 } else { 1 } {
            return Err("its version is another than that of the first record".into());
        }
        let kind = scsi(command).ok_or("its command is no SCSI read or write")?;
        Ok(Some(Request {
            time_us: u64_at(record, 24),
            device: 0,
            place: sectors(u64_at(record, 16))?,
            bytes: bytes.into(),
            kind,
            times: 1,
        }))
    }
}
