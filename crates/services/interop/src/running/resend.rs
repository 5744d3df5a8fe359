//! Sending a stored message again.

use std::sync::Arc;

use bytes::Bytes;
use hl7::Reading;

use crate::engine::Engine;
use crate::error::InteropError;
use crate::message_log::Destination;
use crate::queue::Entry;
use crate::record::{Head, Status, Writer};
use crate::rows::Reader;

/// Stores a stored message's outputs again, as a new message, and sends them: all, or those to `operations`.
///
/// # Errors
/// No such message, output or operation; the journal refuses.
pub(super) async fn resend(engine: &Engine, id: u64, operations: &[&str]) -> Result<u64, InteropError> {
    let message_log = Arc::clone(&engine.message_log);
    let read = move || {
        message_log.wait_visible()?;
        Reader::new(message_log.store()).message(id)
    };
    let stored = tokio::task::spawn_blocking(read).await.unwrap_or(Err(InteropError::Stopping))?;
    let names: Vec<&str> = stored.outputs.iter().map(|o| o.operation.as_str()).collect();
    if let Some(wrong) = operations.iter().find(|wanted| !names.contains(wanted)) {
        let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        return Err(InteropError::NoSuch { what: "output of this message", name: (*wrong).to_owned(), known });
    }
    let plan = engine.plan();
    let received_us = engine.clock.now_us();
    let head = Head {
        status: Status::Routed,
        duplicate: false,
        resent_from: Some(id),
        received_us,
        service: &stored.service,
        charset: stored.charset,
        reason: "resent by hand",
    };
    let mut writer = Writer::with_keys(&head, &stored.raw, &stored.keys);
    let mut destinations = Vec::new();
    let chosen = stored.outputs.iter().filter(|o| operations.is_empty() || operations.contains(&o.operation.as_str()));
    for (n, output) in chosen.enumerate() {
        let operation = plan.production.operation(&output.operation)?;
        let at = plan.production.operations.iter().position(|o| Arc::ptr_eq(o, operation)).expect("found just now");
        let queue = Arc::clone(&plan.queues[at]);
        let reading = Reading::lenient(&stored.raw, stored.charset);
        let key_hash = reading.message().map_or(0, |message| queue.key_hash(&message));
        let lane = queue.lane_of(key_hash);
        let index = u16::try_from(n).expect("a record has fewer outputs than 65536");
        writer.whole(&output.operation, &output.transform, |out| out.extend_from_slice(&output.body));
        let body = Some(Bytes::copy_from_slice(&output.body));
        let entry = Entry { id: 0, output: index, charset: stored.charset, body, received_us };
        destinations.push(Destination { queue, lane, entry });
    }
    if destinations.is_empty() {
        return Err(InteropError::Refused(format!("message {id} went nowhere: there is nothing to send again")));
    }
    destinations.iter().for_each(|d| d.queue.reserve());
    let submitted = engine.message_log.submit(writer.finish(), destinations);
    let durable = submitted.map_err(|refusal| InteropError::Refused(refusal.to_string()))?;
    Ok(durable.await.map_err(|_| InteropError::Stopping)?.0)
}
