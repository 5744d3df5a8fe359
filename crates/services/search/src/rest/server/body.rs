//! Bodies of requests: read whole, with a bound for each, a bound for all together, and a time.
//!
//! ```text
//!   bytes of the socket --read--> BodyMemory grows --> bytes --unpacked, if gzip--> bytes for the handler
//!                                     |
//!                        budget of all bodies: a body that does not fit is refused (429)
//! ```
//!
//! A role has three quarters of the budget at most, or one body that is larger: whoever sends many bodies slowly takes none from the others.
//!
//! Invariants: a declared length beyond the bound is refused before a byte of it is read; a body counts what arrived and not
//! what it declares, so that declarations alone take nothing from others; the memory is given back when the request has
//! ended on its thread.

use std::collections::HashMap;
use std::io::Read;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use flate2::read::MultiGzDecoder;
use http_body_util::BodyExt;
use hyper::HeaderMap;
use hyper::body::{Body, Incoming};
use hyper::header::CONTENT_ENCODING;
use node::identity::RoleId;
use parking_lot::Mutex;
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
    /// Units that the bodies of each role hold.
    of_roles: Arc<Mutex<HashMap<RoleId, usize>>>,
    /// Whose body it is.
    role: RoleId,
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
            of_roles: Arc::default(),
            role: RoleId::PUBLIC,
            bytes: options.bodies_bytes,
            body_bytes_max: options.body_bytes_max,
        }
    }

    /// The same memory, for a body of so many bytes at most of a role.
    pub(super) fn at_most(&self, bytes: usize, role: RoleId) -> BodyBudget {
        BodyBudget { body_bytes_max: self.body_bytes_max.min(bytes), role, ..self.clone() }
    }

    /// Counts more units of a body that has some. Errors: the other bodies of its role leave it none.
    fn count(&self, has: usize, more: usize) -> Result<(), SearchError> {
        let mut of_roles = self.of_roles.lock();
        let of_role = of_roles.entry(self.role).or_default();
        if *of_role > has && *of_role + more > self.bytes.div_ceil(UNIT_BYTES) / 4 * 3 {
            return Err(self.is_full((has + more) * UNIT_BYTES));
        }
        *of_role += more;
        Ok(())
    }

    /// Gives units back.
    fn uncount(&self, units: usize) {
        let mut of_roles = self.of_roles.lock();
        if let Some(of_role) = of_roles.get_mut(&self.role) {
            *of_role -= units;
            if *of_role == 0 {
                of_roles.remove(&self.role);
            }
        }
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
        let permits = u32::try_from(more).map_err(|_| self.budget.too_large())?;
        self.budget.count(has, more)?;
        let units = Arc::clone(&self.budget.units);
        let units = units.try_acquire_many_owned(permits).map_err(|_| {
            self.budget.uncount(more);
            self.budget.is_full(bytes)
        })?;
        match &mut self.held {
            Some(held) => held.merge(units),
            held => *held = Some(units),
        }
        Ok(())
    }
}

impl Drop for BodyMemory {
    fn drop(&mut self) {
        if let Some(held) = &self.held {
            self.budget.uncount(held.num_permits());
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_leaves_a_quarter_of_the_memory_to_others_unless_it_has_one_body_that_is_larger() {
        let options = HttpOptions { body_bytes_max: 100 << 10, bodies_bytes: 100 << 10, ..HttpOptions::default() };
        let budget = BodyBudget::new(&options);
        let of = |role| BodyMemory { budget: budget.at_most(usize::MAX, RoleId(role)), held: None };
        let (mut first, mut second, mut other) = (of(1), of(1), of(2));
        first.grow(60 << 10).expect("there is room");
        second.grow(15 << 10).expect("three quarters are its own");
        assert_eq!(second.grow(16 << 10).expect_err("more is for others").status, 429);
        other.grow(25 << 10).expect("it is left for them");
        assert_eq!(other.grow(26 << 10).expect_err("nothing is left").status, 429);
        drop((second, other));
        first.grow(100 << 10).expect("a body alone may have all");
        drop(first);
        assert!(budget.of_roles.lock().is_empty() && budget.units.available_permits() == 100);
    }
}
