//! The responses of a running node to requests for messages, and how a client reads them.
//!
//! Bodies are bytes of any charset, and JSON holds characters: byte b goes as character U+00b, and back.

use bytes::Bytes;
use hl7::charset::Charset;
use node::NodeError;
use node::control::read_response;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Filter, Trace, filter};
use crate::error::InteropError;
use crate::record::search::SearchKeys;
use crate::record::{Delivery, DeliveryOutcome, Output, Status, Stored};
use crate::rows::{Reader, check};

/// The answer to a request about messages; none where it is no such request.
pub(crate) fn answer(reader: &Reader, request: &str) -> Option<Result<Value, InteropError>> {
    let (word, rest) = request.trim().split_once(' ').unwrap_or((request.trim(), ""));
    let answer = match (word, rest.trim()) {
        ("messages", text) => {
            let wanted: Result<Filter, _> = serde_json::from_str(text);
            match wanted {
                Ok(wanted) => filter::list(reader, &wanted).map(|lines| json(&lines)),
                Err(error) => Err(InteropError::Refused(format!("`{text}` is no filter: {error}"))),
            }
        }
        ("message", id) => match id.parse() {
            Ok(id) => super::trace(reader, id).map(|trace| json(&Wire::of(&trace))),
            Err(_) => Err(InteropError::Refused(format!("`{id}` is not a message id"))),
        },
        ("count", "") => filter::count(reader).map(|counts| json(&counts)),
        ("check", "") => check::check(reader).map(|report| json(&report)),
        _ => return None,
    };
    Some(answer)
}

fn json(value: &impl Serialize) -> Value {
    serde_json::to_value(value).expect("plain data becomes JSON")
}

/// A message as returned by a running node.
pub(super) fn trace_of(id: u64, answer: Value) -> Result<Trace, InteropError> {
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
    raw: String,
    outputs: Vec<WireOutput>,
    outcomes: Vec<WireOutcome>,
}

#[derive(Serialize, Deserialize)]
struct WireOutput {
    operation: String,
    transform: String,
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
    fn of(trace: &Trace) -> Wire {
        let stored = &trace.stored;
        let output = |output: &Output| WireOutput {
            operation: output.operation.clone(),
            transform: output.transform.clone(),
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
            raw: text_of(&stored.raw),
            outputs: stored.outputs.iter().map(output).collect(),
            outcomes: trace.deliveries.iter().map(outcome).collect(),
        }
    }

    fn read(self, id: u64) -> Option<Trace> {
        let mut outputs = Vec::new();
        for output in self.outputs {
            let WireOutput { operation, transform, body, new_bytes } = output;
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
        Some(Trace { id, stored, deliveries })
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
