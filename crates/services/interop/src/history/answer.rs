//! The responses of a running node to requests for messages, and how a client reads them.
//!
//! Bodies are bytes of any charset, and JSON holds characters: byte b goes as character U+00b, and back.

use bytes::Bytes;
use hl7::charset::Charset;
use hl7::mask::Masker;
use node::NodeError;
use node::control::read_response;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Filter, ListQuery, Trace, filter, page};
use crate::error::InteropError;
use crate::record::search::SearchKeys;
use crate::record::{Delivery, DeliveryOutcome, Output, Status, Stored};
use crate::rows::{Reader, check};

/// The messages that match, of those services that `may_see` allows, each as `seen` returns it, as a response.
pub(crate) fn list(
    reader: &Reader,
    filter: &Filter,
    may_see: &mut dyn FnMut(&str) -> bool,
    seen: &dyn Fn(Stored) -> Stored,
) -> Result<Value, InteropError> {
    filter::list(reader, filter, may_see, seen).map(|lines| json(&lines))
}

/// A page of the same, as a response.
pub(crate) fn page(
    reader: &Reader,
    query: &ListQuery,
    may_see: &mut dyn FnMut(&str) -> bool,
    seen: &dyn Fn(Stored) -> Stored,
) -> Result<Value, InteropError> {
    page::page(reader, query, may_see, seen).map(|page| json(&page))
}

/// A message as a response: with its bodies, or with the reason why they are left out; masked by `masker`, if there is one.
pub(crate) fn message(
    reader: &Reader,
    id: u64,
    withheld: Option<String>,
    masker: Option<&Masker>,
) -> Result<Value, InteropError> {
    let trace = super::trace(reader, id, masker)?;
    Ok(json(&Wire::of(&trace, withheld)))
}

/// How much is stored, as a response.
pub(crate) fn count(reader: &Reader) -> Result<Value, InteropError> {
    filter::count(reader).map(|counts| json(&counts))
}

/// Whether all rows fit together, as a response.
pub(crate) fn check(reader: &Reader) -> Result<Value, InteropError> {
    check::check(reader).map(|report| json(&report))
}

fn json(value: &impl Serialize) -> Value {
    serde_json::to_value(value).expect("plain data becomes JSON")
}

/// A message as returned by a running node.
///
/// # Errors
/// `Node`: it is of another release.
pub fn trace_of(id: u64, answer: Value) -> Result<Trace, InteropError> {
    let wire: Wire = read_response(answer)?;
    wire.read(id).ok_or_else(|| {
        NodeError::NodeRefused("a body that cannot be read; is it of the same release?".to_owned()).into()
    })
}

#[derive(Serialize, Deserialize)]
struct Wire {
    status: Status,
    duplicate: bool,
    resent_from: Option<u64>,
    received_us: i64,
    service: String,
    #[serde(default)]
    charset: Option<String>,
    reason: String,
    /// The size of `raw`, which may be left out.
    bytes: usize,
    raw: String,
    /// Why bodies are left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    withheld: Option<String>,
    #[serde(default)]
    masked: bool,
    outputs: Vec<WireOutput>,
    outcomes: Vec<WireOutcome>,
}

#[derive(Serialize, Deserialize)]
struct WireOutput {
    operation: String,
    transform: String,
    /// The size of `body`, which may be left out.
    bytes: usize,
    body: String,
    new_bytes: usize,
}

#[derive(Serialize, Deserialize)]
struct WireOutcome {
    output: u16,
    outcome: DeliveryOutcome,
    at_us: i64,
    detail: String,
}

fn text_of(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

fn bytes_of(text: &str) -> Option<Bytes> {
    let bytes: Option<Vec<u8>> = text.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect();
    bytes.map(Bytes::from)
}

impl Wire {
    fn of(trace: &Trace, withheld: Option<String>) -> Wire {
        let stored = &trace.stored;
        let text_of = |bytes: &[u8]| if withheld.is_none() { text_of(bytes) } else { String::new() };
        let output = |output: &Output| WireOutput {
            operation: output.operation.clone(),
            transform: output.transform.clone(),
            bytes: output.body.len(),
            body: text_of(&output.body),
            new_bytes: output.new_bytes,
        };
        let outcome = |d: &Delivery| WireOutcome {
            output: d.output,
            outcome: d.outcome,
            at_us: d.at_us,
            detail: d.detail.clone(),
        };
        Wire {
            status: stored.status,
            duplicate: stored.duplicate,
            resent_from: stored.resent_from,
            received_us: stored.received_us,
            service: stored.service.clone(),
            charset: stored.charset.map(|charset| charset.name().to_owned()),
            reason: stored.reason.clone(),
            bytes: stored.raw.len(),
            raw: text_of(&stored.raw),
            outputs: stored.outputs.iter().map(output).collect(),
            outcomes: trace.deliveries.iter().map(outcome).collect(),
            withheld,
            masked: trace.masked,
        }
    }

    fn read(self, id: u64) -> Option<Trace> {
        let (mut outputs, mut output_bytes) = (Vec::new(), Vec::new());
        for output in self.outputs {
            let WireOutput { operation, transform, bytes, body, new_bytes } = output;
            output_bytes.push(bytes);
            outputs.push(Output { operation, transform, body: bytes_of(&body)?, new_bytes });
        }
        let charset = self.charset.and_then(|name| Charset::named(name.as_bytes()));
        let raw = bytes_of(&self.raw)?;
        let stored = Stored {
            // Not sent: they follow from the rest.
            keys: SearchKeys::read(&self.service, &raw, charset),
            status: self.status,
            duplicate: self.duplicate,
            resent_from: self.resent_from,
            received_us: self.received_us,
            service: self.service,
            charset,
            reason: self.reason,
            raw,
            outputs,
        };
        let outcomes = self.outcomes.into_iter();
        let deliveries = outcomes
            .map(|f| Delivery { id, output: f.output, outcome: f.outcome, at_us: f.at_us, detail: f.detail })
            .collect();
        let (bytes, withheld, masked) = (self.bytes, self.withheld, self.masked);
        Some(Trace { id, stored, deliveries, bytes, output_bytes, withheld, masked })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_byte_goes_over_and_back() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(bytes_of(&text_of(&all)).as_deref(), Some(&all[..]));
        assert_eq!(bytes_of("\u{100}"), None);
    }
}
