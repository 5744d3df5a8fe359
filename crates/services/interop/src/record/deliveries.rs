//! Outcomes of outputs: the records that hold a group of them, and the rows that they become. The layout is in `record`.
//!
//! Invariant: an outcome that a person decided says who; one that the engine found has nobody.

use bytes::Bytes;

use super::sections::Cut;
use super::{KIND_DELIVERIES, put_short};
use crate::error::InteropError;

/// The outcome of one output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeliveryOutcome {
    /// The receiver took it.
    Delivered,
    /// Given up on, by the reply table or the limit of tries. It can be resent by hand.
    Failed,
    /// A person took it out of the queue; it is never delivered by itself. It can be resent by hand.
    SetAside,
}

/// State of one output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OutputState {
    /// Not delivered yet.
    Waiting,
    /// The receiver took it.
    Delivered,
    /// Given up on.
    Failed,
    /// Taken out of the queue by a person.
    SetAside,
}

impl DeliveryOutcome {
    /// Its name, for display and in SQL.
    pub fn name(self) -> &'static str {
        match self {
            DeliveryOutcome::Delivered => "delivered",
            DeliveryOutcome::Failed => "failed",
            DeliveryOutcome::SetAside => "set-aside",
        }
    }

    fn code(self) -> u8 {
        match self {
            DeliveryOutcome::Delivered => 0,
            DeliveryOutcome::Failed => 1,
            DeliveryOutcome::SetAside => 2,
        }
    }

    fn of(code: u8) -> Option<DeliveryOutcome> {
        [DeliveryOutcome::Delivered, DeliveryOutcome::Failed, DeliveryOutcome::SetAside]
            .into_iter()
            .find(|outcome| outcome.code() == code)
    }
}

/// The outcome of one output, as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// The message.
    pub id: u64,
    /// Which of its outputs, from 0.
    pub output: u16,
    /// Its outcome.
    pub outcome: DeliveryOutcome,
    /// When, microseconds since 1970.
    pub at_us: i64,
    /// The reply code, why it failed, or why it was set aside.
    pub detail: String,
    /// Who set it aside; empty for other outcomes.
    pub by: String,
}

/// The payload of a group of deliveries; at most 65,535.
pub fn encode_deliveries(deliveries: &[Delivery]) -> Vec<u8> {
    let count = u16::try_from(deliveries.len()).expect("the message log groups fewer than 65536");
    let mut out = Vec::with_capacity(2 + deliveries.len() * 28);
    out.extend_from_slice(&count.to_le_bytes());
    for delivery in deliveries {
        out.extend_from_slice(&delivery.id.to_le_bytes());
        out.extend_from_slice(&delivery.output.to_le_bytes());
        out.push(delivery.outcome.code());
        out.extend_from_slice(&delivery.at_us.to_le_bytes());
        put_short(&mut out, &delivery.detail);
        if delivery.outcome == DeliveryOutcome::SetAside {
            put_short(&mut out, &delivery.by);
        }
    }
    out
}

/// Reads a group of deliveries.
///
/// # Errors
/// `UnknownRecord` where the payload is not one of this version.
pub fn decode_deliveries(payload: &Bytes) -> Result<Vec<Delivery>, InteropError> {
    let mut all = Vec::new();
    let read = each_delivery(payload, |id, output, row| {
        all.push(decode_outcome(id, output, row).expect("it was read just now"));
    });
    read.map(|()| all).ok_or(InteropError::UnknownRecord { kind: KIND_DELIVERIES })
}

/// The group of deliveries of a record, one by one: message, output, and the bytes from the outcome on, as a row holds them.
/// `None` where it is not one of this version.
pub(crate) fn each_delivery(payload: &[u8], mut each: impl FnMut(u64, u16, &[u8])) -> Option<()> {
    let mut r = Cut { payload, at: 0 };
    for _ in 0..r.u16()? {
        let id = r.array().map(u64::from_le_bytes)?;
        let output = r.u16()?;
        let start = r.at;
        read_outcome(&mut r)?;
        each(id, output, &payload[start..r.at]);
    }
    (r.at == payload.len()).then_some(())
}

/// Outcome, time, detail and who it is by.
fn read_outcome<'a>(r: &mut Cut<'a>) -> Option<(DeliveryOutcome, i64, &'a str, &'a str)> {
    let [code] = r.array()?;
    let outcome = DeliveryOutcome::of(code)?;
    let at_us = r.array().map(i64::from_le_bytes)?;
    let detail = r.text()?;
    let by = if outcome == DeliveryOutcome::SetAside { r.text()? } else { "" };
    Some((outcome, at_us, detail, by))
}

/// The outcome that a row begins with.
pub(crate) fn outcome_of(row: &[u8]) -> Option<DeliveryOutcome> {
    DeliveryOutcome::of(*row.first()?)
}

/// The outcome of an output, as in a row: from the outcome on.
pub(crate) fn decode_outcome(id: u64, output: u16, row: &[u8]) -> Option<Delivery> {
    let mut r = Cut { payload: row, at: 0 };
    let (outcome, at_us, detail, by) = read_outcome(&mut r)?;
    let (detail, by) = (detail.to_owned(), by.to_owned());
    (r.at == row.len()).then_some(Delivery { id, output, outcome, at_us, detail, by })
}
