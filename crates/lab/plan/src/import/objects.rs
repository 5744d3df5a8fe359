//! Traces of key-value caches: Twitter, Meta.

use super::csv::columns_of;
use super::parser::{Parsed, Parser, Request, RequestKind, number, seconds, text};
use crate::hash::number_of;

/// So often one line may be counted at most: a line must not keep an import busy.
const TIMES_MAX: u64 = 100_000;

/// Twitter's cache clusters (github.com/twitter/cache-trace): `timestamp,key,key size,value size,client id,operation,TTL`; no heading.
pub(super) struct Twitter;

impl Parser for Twitter {
    fn parse(&mut self, line: &[u8]) -> Parsed {
        // Keys may contain commas: the other fields are counted from the end.
        let mut ends = line.rsplitn(6, |byte| *byte == b',');
        let mut end = || ends.next().ok_or_else(|| "it has less than seven fields".to_owned());
        let (_ttl, operation, _client) = (end()?, end()?, end()?);
        let (value_bytes, key_bytes, front) = (end()?, end()?, end()?);
        let comma = memchr::memchr(b',', front).ok_or("it has less than seven fields")?;
        let kind = match text(operation, "operation")? {
            "get" | "gets" => RequestKind::Read,
            "set" | "add" | "replace" | "cas" | "append" | "prepend" | "incr" | "decr" => RequestKind::Write,
            "delete" => RequestKind::Other,
            _ => return Err("its operation is none of memcached's".into()),
        };
        let bytes = number(key_bytes, "key size")?.checked_add(number(value_bytes, "value size")?);
        Ok(Some(Request {
            time_us: seconds(&front[..comma], "timestamp")?,
            device: 0,
            place: number_of(&front[comma + 1..]),
            bytes: bytes.ok_or("its sizes are too large")?,
            kind,
            times: 1,
        }))
    }
}

/// Meta's key-value traces (cachelib.org, kvcache): the heading names the columns, of which there are `key, op, size`, and often
/// `op_time, op_count, key_size` and others.
#[derive(Default)]
pub(super) struct MetaKv {
    columns: Option<MetaColumns>,
}

struct MetaColumns {
    many: usize,
    key: usize,
    operation: usize,
    size: usize,
    key_size: Option<usize>,
    time: Option<usize>,
    count: Option<usize>,
}

impl Parser for MetaKv {
    fn parse(&mut self, line: &[u8]) -> Parsed {
        let Some(columns) = &self.columns else {
            let names = columns_of(line)?;
            let at = |name: &str| names.iter().position(|column| column == name);
            let needed = |name: &str| at(name).ok_or_else(|| format!("its heading has no column {name}"));
            self.columns = Some(MetaColumns {
                many: names.len(),
                key: needed("key")?,
                operation: needed("op")?,
                size: needed("size")?,
                key_size: at("key_size"),
                time: at("op_time"),
                count: at("op_count"),
            });
            return Ok(None);
        };
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b',').collect();
        if fields.len() != columns.many {
            return if line.is_empty() { Ok(None) } else { Err("it has not as many fields as the heading".into()) };
        }
        let kind = match text(fields[columns.operation], "operation")?.to_ascii_uppercase().as_str() {
            "GET" | "GET_LEASE" => RequestKind::Read,
            "SET" | "SET_LEASE" => RequestKind::Write,
            "DELETE" => RequestKind::Other,
            _ => return Err("its operation is none of GET, SET, DELETE and those with a lease".into()),
        };
        let times = columns.count.map_or(Ok(1), |at| number(fields[at], "op_count"))?;
        if !(1..=TIMES_MAX).contains(&times) {
            return Err(format!("its op_count is not 1 to {TIMES_MAX}"));
        }
        let key_bytes = columns.key_size.map_or(Ok(0), |at| number(fields[at], "key_size"))?;
        let bytes = number(fields[columns.size], "size")?.checked_add(key_bytes);
        Ok(Some(Request {
            time_us: columns.time.map_or(Ok(0), |at| seconds(fields[at], "op_time"))?,
            device: 0,
            place: number_of(fields[columns.key]),
            bytes: bytes.ok_or("its sizes are too large")?,
            kind,
            times: times as u32,
        }))
    }
}
