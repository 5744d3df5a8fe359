//! Traces of block devices as text: blkparse, fio, MSR Cambridge, CloudPhysics.

use super::parser::{Parsed, Parser, Request, RequestKind, number, seconds, text};
use crate::hash::number_of;

/// Bytes of a sector, in which blkparse and CloudPhysics count.
pub(super) const SECTOR_BYTES: u64 = 512;

/// Offset and length of sectors, in bytes.
pub(super) fn sectors(number: u64) -> Result<u64, String> {
    number.checked_mul(SECTOR_BYTES).ok_or_else(|| "the sector is beyond any device".to_owned())
}

/// The default output of blkparse:
///
/// ```text
///   8,0    3        1     0.000000000   697  G   W 223490 + 8 [kjournald]
///   dev  cpu  sequence     seconds     pid  act rwbs sector + sectors [process]
/// ```
///
/// Requests are counted when they are queued (Q): what was asked of the device, before anything is merged. The summary at its end is left out.
#[derive(Default)]
pub(super) struct Blkparse {
    is_summary: bool,
}

impl Parser for Blkparse {
    fn parse(&mut self, line: &[u8]) -> Parsed {
        let text = text(line, "line")?;
        if text.starts_with("CPU") || text.starts_with("Total") {
            self.is_summary = true;
        }
        if self.is_summary || text.is_empty() {
            return Ok(None);
        }
        let fields: Vec<&str> = text.split_whitespace().collect();
        let [device, cpu, sequence, time, _pid, action, rest @ ..] = fields.as_slice() else {
            return Err("it has less than six fields".into());
        };
        let is_device = device.split_once(',').is_some_and(|(major, minor)| {
            major.parse::<u32>().is_ok() && minor.parse::<u32>().is_ok() && cpu.parse::<u32>().is_ok()
        });
        if !is_device || sequence.parse::<u64>().is_err() {
            return Err("it does not begin with a device, a processor and a number".into());
        }
        let time_us = seconds(time.as_bytes(), "time")?;
        if *action != "Q" {
            return Ok(None);
        }
        let [flags, place @ ..] = rest else { return Err("it has no flags".into()) };
        let flush = Request {
            time_us,
            device: number_of(device.as_bytes()),
            place: 0,
            bytes: 0,
            kind: RequestKind::Flush,
            times: 1,
        };
        let kind = match flags.trim_start_matches('F').as_bytes().first() {
            Some(b'R') => RequestKind::Read,
            // A flush in front of it, or forced unit access.
            Some(b'W') if flags.contains('F') => RequestKind::DurableWrite,
            Some(b'W') => RequestKind::Write,
            Some(b'D') => RequestKind::Other,
            _ if flags.starts_with('F') => return Ok(Some(flush)),
            _ => return Ok(Some(Request { kind: RequestKind::Other, ..flush })),
        };
        match place {
            [sector, "+", length, ..] => {
                let bytes = sectors(number(length.as_bytes(), "length")?)?;
                if bytes == 0 && flags.starts_with('F') {
                    return Ok(Some(flush));
                }
                Ok(Some(Request { place: sectors(number(sector.as_bytes(), "sector")?)?, bytes, kind, ..flush }))
            }
            _ if flags.starts_with('F') => Ok(Some(flush)),
            _ => Err("it has no sector and length".into()),
        }
    }
}

/// `fio --write_iolog`:
///
/// ```text
///   fio version 2 iolog              fio version 3 iolog
///   FILE add | open | close          US FILE add | open | close
///   FILE read OFFSET LENGTH          US FILE read OFFSET LENGTH       write, trim, sync, datasync alike
///   FILE wait US 0
/// ```
///
/// Names of files may contain blanks: the fields are read from the end. Times of version 3 are microseconds
/// after the begin (fio 3.33 writes them so, 2026-11-27).
#[derive(Default)]
pub(super) struct FioLog {
    version: Option<u8>,
    waited_us: u64,
}

impl Parser for FioLog {
    fn parse(&mut self, line: &[u8]) -> Parsed {
        let line = text(line, "line")?;
        let Some(version) = self.version else {
            self.version = match line {
                "fio version 2 iolog" => Some(2),
                "fio version 3 iolog" => Some(3),
                _ => return Err("the first line is not `fio version 2 iolog` or `fio version 3 iolog`".into()),
            };
            return Ok(None);
        };
        if line.is_empty() {
            return Ok(None);
        }
        let (time_us, line) = match version {
            2 => (self.waited_us, line),
            _ => {
                let (time, rest) = line.split_once(' ').ok_or("it has no time")?;
                (number(time.as_bytes(), "time")?, rest)
            }
        };
        let mut ends = line.rsplitn(4, ' ');
        let (last, third, action, file) = (ends.next(), ends.next(), ends.next(), ends.next());
        if let Some(action) = last
            && matches!(action, "add" | "open" | "close" | "sync" | "datasync")
        {
            let file = line.strip_suffix(action).unwrap_or(line).trim_end();
            return Ok(match action {
                "sync" | "datasync" => Some(Self::request(time_us, file, 0, 0, RequestKind::Flush)),
                _ => None,
            });
        }
        let (Some(length), Some(offset), Some(action), Some(file)) = (last, third, action, file) else {
            return Err("it is neither FILE ACTION nor FILE ACTION OFFSET LENGTH".into());
        };
        let (offset, length) = (number(offset.as_bytes(), "offset")?, number(length.as_bytes(), "length")?);
        let kind = match action {
            "read" => RequestKind::Read,
            "write" => RequestKind::Write,
            "trim" => RequestKind::Other,
            "sync" | "datasync" => RequestKind::Flush,
            "wait" => {
                self.waited_us = self.waited_us.saturating_add(offset);
                return Ok(None);
            }
            _ => return Err("its action is none of fio's".into()),
        };
        Ok(Some(Self::request(time_us, file, offset, length, kind)))
    }
}

impl FioLog {
    fn request(time_us: u64, file: &str, place: u64, bytes: u64, kind: RequestKind) -> Request {
        Request { time_us, device: number_of(file.as_bytes()), place, bytes, kind, times: 1 }
    }
}

/// MSR Cambridge (SNIA IOTTA 388): `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`; times in tenths of microseconds since 1601.
#[derive(Default)]
pub(super) struct Msr {
    is_begun: bool,
}

impl Parser for Msr {
    fn parse(&mut self, line: &[u8]) -> Parsed {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b',').collect();
        let is_first = !std::mem::replace(&mut self.is_begun, true);
        let [time, host, disk, kind, offset, bytes, _response] = fields.as_slice() else {
            return if line.is_empty() { Ok(None) } else { Err("it has not seven fields".into()) };
        };
        if is_first && time.eq_ignore_ascii_case(b"timestamp") {
            return Ok(None);
        }
        let kind = match text(kind, "type")?.to_ascii_lowercase().as_str() {
            "read" => RequestKind::Read,
            "write" => RequestKind::Write,
            _ => return Err("its type is neither Read nor Write".into()),
        };
        Ok(Some(Request {
            time_us: number(time, "timestamp")? / 10,
            device: number_of(&[*host, b",".as_slice(), *disk].concat()),
            place: number(offset, "offset")?,
            bytes: number(bytes, "size")?,
            kind,
            times: 1,
        }))
    }
}

/// CloudPhysics as CSV: `version,time,op,size,lbn`; time in seconds, the SCSI operation in hexadecimal, the size in bytes, the block of 512.
#[derive(Default)]
pub(super) struct CloudPhysics {
    is_begun: bool,
}

impl Parser for CloudPhysics {
    fn parse(&mut self, line: &[u8]) -> Parsed {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b',').collect();
        let is_first = !std::mem::replace(&mut self.is_begun, true);
        let [version, time, command, bytes, block] = fields.as_slice() else {
            return if line.is_empty() { Ok(None) } else { Err("it has not five fields".into()) };
        };
        if is_first && *version == b"version" {
            return Ok(None);
        }
        let command = u16::from_str_radix(text(command, "operation")?, 16);
        let kind = command.ok().and_then(scsi).ok_or("its operation is no SCSI read or write")?;
        Ok(Some(Request {
            time_us: seconds(time, "time")?,
            device: 0,
            place: sectors(number(block, "block")?)?,
            bytes: number(bytes, "size")?,
            kind,
            times: 1,
        }))
    }
}

/// What a SCSI command does (SBC-4); `None`: neither read nor write.
pub(super) fn scsi(command: u16) -> Option<RequestKind> {
    match command {
        // READ 6, 10, 16, 12
        0x08 | 0x28 | 0x88 | 0xa8 => Some(RequestKind::Read),
        // WRITE 6, 10, 16, 12, WRITE AND VERIFY 10, 16, 12
        0x0a | 0x2a | 0x8a | 0xaa | 0x2e | 0x8e | 0xae => Some(RequestKind::Write),
        // SYNCHRONIZE CACHE 10, 16
        0x35 | 0x91 => Some(RequestKind::Flush),
        _ => None,
    }
}
