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

use super::{Filter, ListQuery, OutputWait, Trace, filter, page};
use crate::error::InteropError;
use crate::record::search::SearchKeys;
use crate::record::{Delivery, DeliveryOutcome, MessageOrigin, Output, Status, Stored};
use crate::rows::{DerivedMessage, Reader, check};

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

/// Says why outputs of a message wait, by number and operation: those without an outcome.
pub(crate) type WhyItWaits<'a> = &'a dyn Fn(u64, &[(u16, &str)]) -> Vec<OutputWait>;

/// A message as a response: with its bodies, or with the reason why they are left out; masked by `masker`, if there is one.
pub(crate) fn message(
    reader: &Reader,
    id: u64,
    withheld: Option<String>,
    masker: Option<&Masker>,
    waits: WhyItWaits<'_>,
) -> Result<Value, InteropError> {
    let mut trace = super::trace(reader, id, masker)?;
    let is_open = |n: u16| !trace.deliveries.iter().any(|delivery| delivery.output == n);
    let open: Vec<(u16, &str)> = (0..)
        .zip(&trace.stored.outputs)
        .filter(|(n, _)| is_open(*n))
        .map(|(n, output)| (n, output.operation.as_str()))
        .collect();
    trace.waits = waits(id, &open);
    Ok(json(&Wire::of(&trace, withheld)))
}

/// A message without its bodies, as a running node answers it.
pub(super) fn outline(reader: &Reader, id: u64) -> Result<Value, InteropError> {
    let withheld = Some("the bodies are left out, as requested".to_owned());
    Ok(json(&Wire::of(&super::trace(reader, id, None)?, withheld)))
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    origin: Option<MessageOrigin>,
    received_us: i64,
    /// The generation of the production that decided.
    #[serde(default)]
    generation: u32,
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
    /// Why outputs wait; the running node adds it.
    #[serde(default)]
    waits: Vec<OutputWait>,
    #[serde(default)]
    derived: Vec<DerivedMessage>,
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
    #[serde(default, skip_serializing_if = "String::is_empty")]
    by: String,
}

/// Bytes as characters, byte b as U+00b.
pub(crate) fn text_of(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

/// The bytes of such characters; none of others.
pub fn bytes_of(text: &str) -> Option<Bytes> {
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
            by: d.by.clone(),
        };
        Wire {
            status: stored.status,
            duplicate: stored.duplicate,
            origin: stored.origin.clone().map(MessageOrigin::shown),
            received_us: stored.received_us,
            generation: stored.generation,
            service: stored.service.clone(),
            charset: stored.charset.map(|charset| charset.name().to_owned()),
            reason: stored.reason.clone(),
            bytes: stored.raw.len(),
            raw: text_of(&stored.raw),
            outputs: stored.outputs.iter().map(output).collect(),
            outcomes: trace.deliveries.iter().map(outcome).collect(),
            withheld,
            masked: trace.masked,
            waits: trace.waits.clone(),
            derived: trace.derived.clone(),
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
            origin: self.origin,
            received_us: self.received_us,
            generation: self.generation,
            service: self.service,
            charset,
            reason: self.reason,
            raw,
            outputs,
        };
        let outcomes = self.outcomes.into_iter();
        let deliveries = outcomes
            .map(|f| Delivery { id, output: f.output, outcome: f.outcome, at_us: f.at_us, detail: f.detail, by: f.by })
            .collect();
        let (bytes, withheld, masked) = (self.bytes, self.withheld, self.masked);
        let (waits, derived) = (self.waits, self.derived);
        Some(Trace { id, stored, deliveries, waits, derived, bytes, output_bytes, withheld, masked })
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
