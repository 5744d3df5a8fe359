//! What the server sends, written straight into the buffer that goes to the socket.
//!
//! Each function appends one whole message: `| kind u8 | length u32 | ... |`. A row is written value by value, see
//! `Row`; nothing is kept but the buffer, so that the memory of an answer is what has not been sent of it.
//!
//! What it deliberately does not do: send. `connection` sends when the buffer is large or the client waits.

use bytes::{BufMut, BytesMut};

use super::fault::Fault;
use super::message::Format;
use super::oid::Described;

/// How the session stands, as `ReadyForQuery` tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    /// No transaction.
    Idle,
    /// In a transaction.
    InTransaction,
    /// In a transaction that failed.
    Failed,
}

/// Asks the client for a step of SASL, or says that it is in.
#[derive(Debug)]
pub(crate) enum Authentication<'a> {
    /// Logged in.
    Ok,
    /// The mechanisms there are.
    Sasl(&'a [&'a str]),
    /// A message of the mechanism.
    SaslContinue(&'a str),
    /// Its last.
    SaslFinal(&'a str),
}

/// Appends a message of `kind` whose body `body` writes.
fn framed(out: &mut BytesMut, kind: u8, body: impl FnOnce(&mut BytesMut)) {
    out.put_u8(kind);
    let at = out.len();
    out.put_u32(0);
    body(out);
    let length = (out.len() - at) as u32;
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
}

/// Text and a zero byte. A zero byte inside would end the text early and shift what follows, so it is left out.
fn text(out: &mut BytesMut, text: &str) {
    out.extend(text.bytes().filter(|byte| *byte != 0));
    out.put_u8(0);
}

/// `Authentication*`.
pub(crate) fn authentication(out: &mut BytesMut, step: Authentication<'_>) {
    framed(out, b'R', |out| match step {
        Authentication::Ok => out.put_u32(0),
        Authentication::Sasl(mechanisms) => {
            out.put_u32(10);
            mechanisms.iter().for_each(|mechanism| text(out, mechanism));
            out.put_u8(0);
        }
        Authentication::SaslContinue(data) => {
            out.put_u32(11);
            out.put_slice(data.as_bytes());
        }
        Authentication::SaslFinal(data) => {
            out.put_u32(12);
            out.put_slice(data.as_bytes());
        }
    });
}

/// `NegotiateProtocolVersion`: protocol 3.0, and what was asked for and is not known.
pub(crate) fn negotiate(out: &mut BytesMut, unknown: &[&str]) {
    framed(out, b'v', |out| {
        out.put_u32(3 << 16);
        out.put_u32(unknown.len() as u32);
        unknown.iter().for_each(|name| text(out, name));
    });
}

/// `ParameterStatus`.
pub(crate) fn parameter(out: &mut BytesMut, name: &str, value: &str) {
    framed(out, b'S', |out| {
        text(out, name);
        text(out, value);
    });
}

/// `BackendKeyData`.
pub(crate) fn key(out: &mut BytesMut, process: u32, secret: &[u8]) {
    framed(out, b'K', |out| {
        out.put_u32(process);
        out.put_slice(secret);
    });
}

/// `ReadyForQuery`.
pub(crate) fn ready(out: &mut BytesMut, status: Status) {
    framed(out, b'Z', |out| {
        out.put_u8(match status {
            Status::Idle => b'I',
            Status::InTransaction => b'T',
            Status::Failed => b'E',
        });
    });
}

/// `ErrorResponse`; `fatal` if the connection ends with it.
pub(crate) fn error(out: &mut BytesMut, fault: &Fault, fatal: bool) {
    let severity = if fatal { "FATAL" } else { "ERROR" };
    framed(out, b'E', |out| {
        let mut field = |tag: u8, value: &str| {
            out.put_u8(tag);
            text(out, value);
        };
        field(b'S', severity);
        field(b'V', severity);
        field(b'C', fault.code);
        field(b'M', &fault.message);
        if let Some(detail) = &fault.detail {
            field(b'D', detail);
        }
        if let Some(hint) = &fault.hint {
            field(b'H', hint);
        }
        if let Some(position) = fault.position {
            field(b'P', &position.to_string());
        }
        if let Some(context) = &fault.context {
            field(b'W', context);
        }
        out.put_u8(0);
    });
}

/// `CommandComplete`.
pub(crate) fn complete(out: &mut BytesMut, tag: &str) {
    framed(out, b'C', |out| text(out, tag));
}

/// `EmptyQueryResponse`.
pub(crate) fn empty_query(out: &mut BytesMut) {
    framed(out, b'I', |_| {});
}

/// `ParseComplete`.
pub(crate) fn parsed(out: &mut BytesMut) {
    framed(out, b'1', |_| {});
}

/// `BindComplete`.
pub(crate) fn bound(out: &mut BytesMut) {
    framed(out, b'2', |_| {});
}

/// `CloseComplete`.
pub(crate) fn closed(out: &mut BytesMut) {
    framed(out, b'3', |_| {});
}

/// `NoData`.
pub(crate) fn no_data(out: &mut BytesMut) {
    framed(out, b'n', |_| {});
}

/// `PortalSuspended`.
pub(crate) fn suspended(out: &mut BytesMut) {
    framed(out, b's', |_| {});
}

/// `ParameterDescription`: the type numbers of a statement's parameters.
pub(crate) fn parameters(out: &mut BytesMut, types: &[u32]) {
    framed(out, b't', |out| {
        out.put_u16(types.len() as u16);
        types.iter().for_each(|number| out.put_u32(*number));
    });
}

/// `RowDescription`.
pub(crate) fn description(out: &mut BytesMut, columns: &[Described], formats: &[Format]) {
    framed(out, b'T', |out| {
        out.put_u16(columns.len() as u16);
        for (column, format) in columns.iter().zip(formats) {
            text(out, &column.name);
            out.put_u32(0); // the table: not told
            out.put_u16(0); // its column: not told
            out.put_u32(column.kind.oid());
            out.put_i16(column.kind.length());
            out.put_i32(column.modifier);
            out.put_u16(*format as u16);
        }
    });
}

/// `CopyInResponse` and `CopyOutResponse`.
pub(crate) fn copying(out: &mut BytesMut, inward: bool, format: Format, columns: usize) {
    framed(out, if inward { b'G' } else { b'H' }, |out| {
        out.put_u8(format as u8);
        out.put_u16(columns as u16);
        (0..columns).for_each(|_| out.put_u16(format as u16));
    });
}

/// `CopyData`, its body written by `body`.
pub(crate) fn copy_data<E>(out: &mut BytesMut, body: impl FnOnce(&mut BytesMut) -> Result<(), E>) -> Result<(), E> {
    let start = out.len();
    let mut result = Ok(());
    framed(out, b'd', |out| result = body(out));
    if result.is_err() {
        out.truncate(start);
    }
    result
}

/// `CopyDone`.
pub(crate) fn copy_done(out: &mut BytesMut) {
    framed(out, b'c', |_| {});
}

/// A `DataRow`, written value by value into `out`; an error leaves no trace of the row.
pub(crate) fn row<E>(
    out: &mut BytesMut,
    columns: usize,
    mut value: impl FnMut(usize, &mut BytesMut) -> Result<bool, E>,
) -> Result<(), E> {
    let start = out.len();
    let mut result = Ok(());
    framed(out, b'D', |out| {
        out.put_u16(columns as u16);
        for column in 0..columns {
            result = sized(out, |out| value(column, out));
            if result.is_err() {
                return;
            }
        }
    });
    if result.is_err() {
        out.truncate(start);
    }
    result
}

/// A value behind its length; `value` answers whether there is one, else it is NULL.
pub(crate) fn sized<E>(out: &mut BytesMut, value: impl FnOnce(&mut BytesMut) -> Result<bool, E>) -> Result<(), E> {
    let at = out.len();
    out.put_i32(-1);
    if value(out)? {
        let length = (out.len() - at - 4) as u32;
        out[at..at + 4].copy_from_slice(&length.to_be_bytes());
    }
    Ok(())
}

/// The one byte that answers a wish for encryption.
pub(crate) fn encryption(out: &mut BytesMut, granted: bool) {
    out.put_u8(if granted { b'S' } else { b'N' });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_fails_leaves_nothing_behind() {
        let mut out = BytesMut::new();
        complete(&mut out, "SELECT 1");
        let before = out.clone();
        let failed = row(&mut out, 2, |column, out| {
            out.put_slice(b"half");
            if column == 1 { Err("no") } else { Ok(true) }
        });
        assert_eq!(failed, Err("no"));
        assert_eq!(out, before);
        row(&mut out, 2, |column, out| {
            out.put_slice(if column == 0 { b"ab" } else { b"" });
            Ok::<_, ()>(column == 0)
        })
        .expect("it is written");
        assert_eq!(&out[before.len()..], b"D\0\0\0\x10\0\x02\0\0\0\x02ab\xff\xff\xff\xff");
    }

    #[test]
    fn a_zero_byte_in_a_text_does_not_shift_what_follows() {
        let mut out = BytesMut::new();
        parameter(&mut out, "na\0me", "x");
        assert_eq!(&out[..], b"S\0\0\0\x0bname\0x\0");
    }
}
