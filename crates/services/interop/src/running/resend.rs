//! Sending a stored message again: its outputs as they are, or a body that a person has edited.

use std::sync::Arc;

use bytes::Bytes;
use hl7::{Path, Reading};

use super::operator_request::EditedRequest;
use crate::engine::Engine;
use crate::error::InteropError;
use crate::message_log::Destination;
use crate::queue::Entry;
use crate::record::search::SearchKeys;
use crate::record::{Derivation, Head, MessageOrigin, Status, Stored, Writer};
use crate::rows::Reader;

async fn read(engine: &Engine, id: u64) -> Result<Stored, InteropError> {
    let message_log = Arc::clone(&engine.message_log);
    let read = move || {
        message_log.wait_visible()?;
        Reader::new(message_log.store()).message(id)
    };
    tokio::task::spawn_blocking(read).await.unwrap_or(Err(InteropError::Stopping))
}

/// Refuses an operation that a message has no output to.
fn check_operations(stored: &Stored, wanted: &[String]) -> Result<(), InteropError> {
    let names: Vec<&str> = stored.outputs.iter().map(|output| output.operation.as_str()).collect();
    match wanted.iter().find(|wanted| !names.contains(&wanted.as_str())) {
        None => Ok(()),
        Some(wrong) => {
            let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            Err(InteropError::NoSuch { what: "output of this message", name: wrong.clone(), known })
        }
    }
}

/// Stores a stored message's outputs again, as a new message, and sends them: all, or those to `operations`.
///
/// # Errors
/// No such message, output or operation; the journal refuses.
pub(super) async fn resend(engine: &Engine, id: u64, operations: &[String], by: &str) -> Result<u64, InteropError> {
    let stored = read(engine, id).await?;
    check_operations(&stored, operations)?;
    let origin = MessageOrigin { id, derivation: Derivation::Resent, key: String::new() };
    let chosen = stored.outputs.iter().filter(|o| operations.is_empty() || operations.contains(&o.operation));
    let bodies: Vec<_> = chosen.map(|output| (&*output.operation, &*output.transform, &output.body)).collect();
    let new = NewMessage { origin: &origin, stored: &stored, raw: &stored.raw, keys: &stored.keys, by };
    new.send(engine, &bodies).await
}

/// Stores an edited body as a new message, and sends it in the place of a stored message's output.
///
/// # Errors
/// As [`resend`]; the body is no message, or it is open which operation it is for.
pub(super) async fn resend_edited(engine: &Engine, request: &EditedRequest, by: &str) -> Result<u64, InteropError> {
    let refused = |text: String| Err(InteropError::Refused(text));
    let Some(body) = request.bytes() else { return refused("the edited body is not bytes as characters".to_owned()) };
    let stored = read(engine, request.id).await?;
    check_operations(&stored, &request.to)?;
    if let Err(why) = check_body(&body, &stored) {
        return refused(format!("the edited body cannot be sent: {why}"));
    }
    let mut to: Vec<&str> = request.to.iter().map(String::as_str).collect();
    if to.is_empty() {
        to.extend(stored.outputs.iter().map(|output| output.operation.as_str()));
    }
    to.sort_unstable();
    to.dedup();
    if request.to.is_empty() && to.len() > 1 {
        let all = to.join(", ");
        return refused(format!("message {} went to several operations: choose with --to: {all}", request.id));
    }
    let keys = SearchKeys::read(&stored.service, &body, stored.charset);
    let origin = MessageOrigin { id: request.id, derivation: Derivation::Edited, key: String::new() };
    let bodies: Vec<_> = to.iter().map(|operation| (*operation, "", &body)).collect();
    let new = NewMessage { origin: &origin, stored: &stored, raw: &body, keys: &keys, by };
    new.send(engine, &bodies).await
}

/// Whether bytes are one message that a receiver can acknowledge. The error says nothing of what is in it.
fn check_body(body: &Bytes, stored: &Stored) -> Result<(), String> {
    let reading = Reading::of(body, stored.charset).map_err(|error| error.to_string())?;
    let message = reading.message().map_err(|error| error.to_string())?;
    if hl7::batch::split(body).messages.len() != 1 {
        return Err("it is not one message".to_owned());
    }
    for (path, what) in [("MSH-9.1", "message type"), ("MSH-10", "control id")] {
        let path: Path = path.parse().expect("a constant path");
        if !message.get(&path).is_valued() {
            return Err(format!("it has no {what}, {path}"));
        }
    }
    match hl7::mllp::uncarriable(body) {
        None => Ok(()),
        Some(at) => Err(format!("MLLP cannot carry the control character at byte {at}")),
    }
}

/// A message that is made from a stored one, without deciding anew.
struct NewMessage<'a> {
    origin: &'a MessageOrigin,
    stored: &'a Stored,
    raw: &'a Bytes,
    keys: &'a SearchKeys,
    by: &'a str,
}

impl NewMessage<'_> {
    /// Stores it with these outputs (operation, transform, body), and sends them; its id, once it is durable.
    async fn send(&self, engine: &Engine, bodies: &[(&str, &str, &Bytes)]) -> Result<u64, InteropError> {
        let NewMessage { origin, stored, raw, keys, by } = *self;
        if bodies.is_empty() {
            let text = format!(
                "message {} went nowhere: there is nothing to send again; `terrace message reprocess` decides on it anew",
                origin.id
            );
            return Err(InteropError::Refused(text));
        }
        let plan = engine.plan();
        let received_us = engine.clock.now_us();
        let reason = format!("{} by {by}", if origin.derivation == Derivation::Edited { "edited" } else { "resent" });
        let head = Head {
            status: Status::Routed,
            duplicate: false,
            origin: Some(origin),
            received_us,
            // It was decided then, and is not decided anew.
            generation: stored.generation,
            service: &stored.service,
            charset: stored.charset,
            reason: &reason,
        };
        let mut writer = Writer::with_keys(&head, raw, keys);
        let mut destinations = Vec::new();
        for (n, (name, transform, body)) in bodies.iter().enumerate() {
            let operation = plan.production.operation(name)?;
            let at = plan.production.operations.iter().position(|o| Arc::ptr_eq(o, operation)).expect("found just now");
            let queue = Arc::clone(&plan.queues[at]);
            let reading = Reading::lenient(raw, stored.charset);
            let key_hash = reading.message().map_or(0, |message| queue.key_hash(&message));
            let lane = queue.lane_of(key_hash);
            let output = u16::try_from(n).expect("a record has fewer outputs than 65536");
            writer.whole(name, transform, |out| out.extend_from_slice(body));
            let body = Some(Bytes::copy_from_slice(body));
            let entry = Entry { id: 0, output, received_us, charset: stored.charset, body };
            destinations.push(Destination { queue, lane, entry });
        }
        destinations.iter().for_each(|d| d.queue.reserve());
        let submitted = engine.message_log.submit(writer.finish(), destinations);
        let durable = submitted.map_err(|refusal| InteropError::Refused(refusal.to_string()))?;
        Ok(durable.await.map_err(|_| InteropError::Stopping)?.0)
    }
}
