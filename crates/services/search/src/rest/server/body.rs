//! Bodies of requests: read whole, with a bound for each, a bound for all together, and a time.
//!
//! ```text
//!   bytes of the socket --read--> BodyMemory grows --> bytes --unpacked, if gzip--> bytes for the handler
//!                                     |
//!                        budget of all bodies: a body that does not fit is refused (429)
//! ```
//!
//! Invariants: a declared length beyond the bound is refused before a byte of it is read; a body counts what arrived and not
//! what it declares, so that declarations alone take nothing from others; the memory is given back when the request has
//! ended on its thread.

use std::io::Read;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use flate2::read::MultiGzDecoder;
use http_body_util::BodyExt;
use hyper::HeaderMap;
use hyper::body::{Body, Incoming};
use hyper::header::CONTENT_ENCODING;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout, timeout_at};

use super::options::{HttpOptions, HttpTimes};
use crate::error::SearchError;

/// The unit in which memory of bodies is counted.
const UNIT_BYTES: usize = 1024;

/// How much is unpacked at a time.
const STEP_BYTES: usize = 64 << 10;

/// Memory of all bodies, and the bound of one.
#[derive(Debug, Clone)]
pub(super) struct BodyBudget {
    units: Arc<Semaphore>,
    bytes: usize,
    body_bytes_max: usize,
}

/// The part of the budget that one request holds, until it is dropped.
#[derive(Debug)]
pub(super) struct BodyMemory {
    budget: BodyBudget,
    held: Option<OwnedSemaphorePermit>,
}

/// A body as it arrived.
#[derive(Debug)]
pub(super) struct ArrivedBody {
    bytes: Bytes,
    is_gzip: bool,
    memory: BodyMemory,
}

impl BodyBudget {
    pub(super) fn new(options: &HttpOptions) -> BodyBudget {
        let units = options.bodies_bytes.div_ceil(UNIT_BYTES).min(Semaphore::MAX_PERMITS);
        BodyBudget {
            units: Arc::new(Semaphore::new(units)),
            bytes: options.bodies_bytes,
            body_bytes_max: options.body_bytes_max,
        }
    }

    /// The same memory, for a body of so many bytes at most.
    pub(super) fn at_most(&self, bytes: usize) -> BodyBudget {
        BodyBudget { body_bytes_max: self.body_bytes_max.min(bytes), ..self.clone() }
    }

    fn too_large(&self) -> SearchError {
        let reason = format!("the body of the request has more than {} bytes", self.body_bytes_max);
        SearchError::new(413, "content_too_long_exception", reason)
    }

    fn is_full(&self, wanted: usize) -> SearchError {
        let used = self.bytes.saturating_sub(self.units.available_permits() * UNIT_BYTES);
        let reason = format!(
            "[parent] Data too large, data for [<http_request>] would be [{wanted}b] besides the [{used}b] of other requests, which \
             is larger than the limit of [{}b]",
            self.bytes
        );
        SearchError::new(429, "circuit_breaking_exception", reason)
    }

    /// Reads a body. Errors: it is too large, there is no memory for it, it came too slowly, or its client went away.
    pub(super) async fn read(
        &self,
        headers: &HeaderMap,
        body: &mut Incoming,
        times: &HttpTimes,
    ) -> Result<ArrivedBody, SearchError> {
        let is_gzip = is_gzip(headers)?;
        let mut memory = BodyMemory { budget: self.clone(), held: None };
        let declared = usize::try_from(body.size_hint().exact().unwrap_or(0)).unwrap_or(usize::MAX);
        if declared > self.body_bytes_max {
            return Err(self.too_large());
        }
        if declared > self.units.available_permits() * UNIT_BYTES {
            return Err(self.is_full(declared));
        }
        let mut bytes = BytesMut::with_capacity(declared);
        let end = Instant::now() + times.body;
        loop {
            let frame = match timeout_at(end, timeout(times.silence, body.frame())).await {
                Ok(Ok(Some(Ok(frame)))) => frame,
                Ok(Ok(Some(Err(error)))) => {
                    return Err(SearchError::body(format!("the body of the request did not arrive: {error}")));
                }
                Ok(Ok(None)) => break,
                Ok(Err(_)) | Err(_) => {
                    let reason = "the body of the request did not arrive in time";
                    return Err(SearchError::new(408, "timeout_exception", reason));
                }
            };
            let Ok(data) = frame.into_data() else { continue };
            if bytes.len() + data.len() > self.body_bytes_max {
                return Err(self.too_large());
            }
            bytes.extend_from_slice(&data);
            // The memory behind a declared length is touched only as it fills; that of other bodies is made as they grow.
            memory.grow(if declared > 0 { bytes.len() } else { bytes.capacity() })?;
        }
        Ok(ArrivedBody { bytes: bytes.freeze(), is_gzip, memory })
    }
}

fn is_gzip(headers: &HeaderMap) -> Result<bool, SearchError> {
    match headers.get(CONTENT_ENCODING).map(|encoding| encoding.to_str().unwrap_or("?").trim()) {
        None | Some("" | "identity") => Ok(false),
        Some("gzip" | "x-gzip") => Ok(true),
        Some(other) => {
            let reason = format!("Content-Encoding [{other}] is not supported: only [gzip] is");
            Err(SearchError::new(415, "illegal_argument_exception", reason))
        }
    }
}

impl BodyMemory {
    /// Holds so much in all. Errors: there is not so much left.
    fn grow(&mut self, bytes: usize) -> Result<(), SearchError> {
        let has = self.held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let more = bytes.div_ceil(UNIT_BYTES).saturating_sub(has);
        if more == 0 {
            return Ok(());
        }
        let more = u32::try_from(more).map_err(|_| self.budget.too_large())?;
        let units = Arc::clone(&self.budget.units);
        let units = units.try_acquire_many_owned(more).map_err(|_| self.budget.is_full(bytes))?;
        match &mut self.held {
            Some(held) => held.merge(units),
            held => *held = Some(units),
        }
        Ok(())
    }
}

impl ArrivedBody {
    /// Whether nothing arrived.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Whether the handler gets no more bytes than this.
    pub(super) fn is_at_most(&self, bytes: usize) -> bool {
        !self.is_gzip && self.bytes.len() <= bytes
    }

    /// The body for the handler, and what holds its memory. It unpacks: call it on a thread for that.
    ///
    /// Errors: it is not gzip as declared, or is too large when unpacked.
    pub(super) fn unpacked(mut self) -> Result<(Bytes, BodyMemory), SearchError> {
        if !self.is_gzip || self.bytes.is_empty() {
            return Ok((self.bytes, self.memory));
        }
        let packed = self.bytes.len();
        let mut unpacked = Vec::new();
        let mut from = MultiGzDecoder::new(&self.bytes[..]);
        loop {
            let before = unpacked.len();
            let read = from.by_ref().take(STEP_BYTES as u64).read_to_end(&mut unpacked);
            read.map_err(|error| SearchError::body(format!("the body of the request is no gzip: {error}")))?;
            if unpacked.len() > self.memory.budget.body_bytes_max {
                return Err(self.memory.budget.too_large());
            }
            self.memory.grow(packed + unpacked.capacity())?;
            if unpacked.len() == before {
                return Ok((unpacked.into(), self.memory));
            }
        }
    }
}
