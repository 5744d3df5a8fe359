//! CSV whose heading names its columns: what a script makes of any other trace.
//!
//! `object`, `key`, `id`, `obj_id` or `obj` is needed; `time` (seconds), `size` (bytes), and `op` (read, get, write, set, flush, delete) may be
//! there. Other columns are left out. The heading may begin with `#`, and blanks may stand around fields.

use super::parser::{Parsed, Parser, Request, RequestKind, number, seconds, text};
use crate::hash::number_of;

const COLUMNS_MAX: usize = 256;

/// The names in a heading, without blanks, in small letters.
pub(super) fn columns_of(line: &[u8]) -> Result<Vec<String>, String> {
    let line = text(line, "heading")?;
    let names: Vec<String> =
        line.trim_start_matches('#').split(',').map(|name| name.trim().to_ascii_lowercase()).collect();
    if names.len() > COLUMNS_MAX { Err(format!("its heading has more than {COLUMNS_MAX} columns")) } else { Ok(names) }
}

#[derive(Default)]
pub(super) struct Csv {
    columns: Option<CsvColumns>,
}

struct CsvColumns {
    many: usize,
    object: usize,
    time: Option<usize>,
    size: Option<usize>,
    operation: Option<usize>,
}

impl Parser for Csv {
    fn parse(&mut self, line: &[u8]) -> Parsed {
        let Some(columns) = &self.columns else {
            let names = columns_of(line)?;
            let at = |wanted: &[&str]| names.iter().position(|name| wanted.contains(&name.as_str()));
            let object = at(&["object", "key", "id", "obj_id", "obj"]);
            self.columns = Some(CsvColumns {
                many: names.len(),
                object: object.ok_or("its heading has no column object, key, id, obj_id or obj")?,
                time: at(&["time", "timestamp", "clock_time"]),
                size: at(&["size", "obj_size", "bytes"]),
                operation: at(&["op", "operation"]),
            });
            return Ok(None);
        };
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b',').collect();
        if fields.len() != columns.many {
            return if line.is_empty() { Ok(None) } else { Err("it has not as many fields as the heading".into()) };
        }
        let kind = match columns.operation {
            None => RequestKind::Read,
            Some(at) => match text(fields[at], "operation")?.to_ascii_lowercase().as_str() {
                "read" | "get" | "r" => RequestKind::Read,
                "write" | "set" | "put" | "w" => RequestKind::Write,
                "flush" | "sync" => RequestKind::Flush,
                "delete" | "discard" | "trim" => RequestKind::Other,
                _ => return Err("its operation is none of read, get, write, set, flush, delete".into()),
            },
        };
        let bytes = columns.size.map_or(Ok(0), |at| number(fields[at], "size"))?;
        if bytes == 0 && columns.size.is_some() && kind != RequestKind::Flush {
            return Err("its size is 0".into());
        }
        Ok(Some(Request {
            time_us: columns.time.map_or(Ok(0), |at| seconds(fields[at], "time"))?,
            device: 0,
            place: number_of(fields[columns.object].trim_ascii()),
            bytes,
            kind,
            times: 1,
        }))
    }
}
