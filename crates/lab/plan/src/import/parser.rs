//! What a parser of a trace makes of one line or record, and what parsers share.

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
