//! The way from callers to the loop: jobs and orders, and a wake-up.
//!
//! Invariants: once the loop has ended, what is put here is answered at once, by being dropped.

use std::sync::Arc;
use std::task::{Context, Waker};

use parking_lot::{Condvar, Mutex};

use super::job::Job;
use crate::error::NbdError;

/// The order to open the export under a higher epoch.
#[derive(Debug)]
pub(super) struct RaiseOrder {
    pub(super) epoch: u64,
    answer: Arc<RaiseAnswer>,
}

/// Waits for the end of an order.
#[derive(Debug, Default)]
pub(super) struct RaiseAnswer {
    result: Mutex<Option<Result<(), NbdError>>>,
    done: Condvar,
}

impl RaiseAnswer {
    pub(super) fn wait(&self) -> Result<(), NbdError> {
        let mut result = self.result.lock();
        loop {
            match result.take() {
                Some(result) => return result,
                None => self.done.wait(&mut result),
            }
        }
    }
}

impl RaiseOrder {
    pub(super) fn new(epoch: u64) -> (RaiseOrder, Arc<RaiseAnswer>) {
        let answer = Arc::new(RaiseAnswer::default());
        (RaiseOrder { epoch, answer: Arc::clone(&answer) }, answer)
    }

    pub(super) fn finish(self, result: Result<(), NbdError>) {
        *self.answer.result.lock() = Some(result);
    }
}

impl Drop for RaiseOrder {
    fn drop(&mut self) {
        self.answer.result.lock().get_or_insert(Err(NbdError::Ended));
        self.answer.done.notify_all();
    }
}

/// What the loop finds.
#[derive(Default)]
pub(super) struct Post {
    pub(super) jobs: Vec<Job>,
    pub(super) raise: Vec<RaiseOrder>,
    /// The device was dropped.
    pub(super) is_closed: bool,
}

/// See the head comment of this module.
#[derive(Default)]
pub(super) struct ClientMailbox {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    post: Post,
    has_ended: bool,
    waker: Option<Waker>,
}

impl ClientMailbox {
    /// Passes something to the loop.
    fn put(&self, add: impl FnOnce(&mut Post)) {
        let mut inner = self.inner.lock();
        if inner.has_ended {
            // Answered by being dropped, but outside the lock: a caller's sink runs then.
            let mut post = Post::default();
            drop(inner);
            return add(&mut post);
        }
        add(&mut inner.post);
        let waker = inner.waker.take();
        drop(inner);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(super) fn put_job(&self, job: Job) {
        self.put(|post| post.jobs.push(job));
    }

    pub(super) fn put_jobs(&self, jobs: impl Iterator<Item = Job>) {
        self.put(|post| post.jobs.extend(jobs));
    }

    pub(super) fn put_raise(&self, order: RaiseOrder) {
        self.put(|post| post.raise.push(order));
    }

    /// The device was dropped.
    pub(super) fn close(&self) {
        self.put(|post| post.is_closed = true);
    }

    /// Takes what there is into `post`; wakes the task of `context` when more comes. Returns whether there was anything.
    pub(super) fn take(&self, post: &mut Post, context: &Context<'_>) -> bool {
        let mut inner = self.inner.lock();
        let before = post.jobs.len() + post.raise.len();
        post.jobs.append(&mut inner.post.jobs);
        post.raise.append(&mut inner.post.raise);
        let is_new = post.jobs.len() + post.raise.len() > before || (inner.post.is_closed && !post.is_closed);
        post.is_closed = inner.post.is_closed;
        if !inner.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            inner.waker = Some(context.waker().clone());
        }
        is_new
    }

    /// The loop has ended: nothing is passed any more.
    pub(super) fn end(&self) {
        let mut inner = self.inner.lock();
        inner.has_ended = true;
        let post = std::mem::take(&mut inner.post);
        drop(inner);
        drop(post);
    }
}
