//! The simulated machine behind a shelf: its recording, and whether it has power.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

use super::Medium;
use super::content::{FileId, State};
use super::moment::Moment;
use super::trace::{Action, Step};
use crate::DeviceError;

pub(super) struct Machine {
    pub(super) seed: u64,
    pub(super) medium: Medium,
    pub(super) recording: Mutex<Recording>,
}

/// The recording, from which a power failure at any point can be computed.
pub(super) struct Recording {
    /// The persistent state with which the machine started.
    pub(super) base: State,
    /// The content that reads see.
    pub(super) live: State,
    pub(super) steps: Vec<Step>,
    /// A thread's number is its index here.
    pub(super) threads: Vec<ThreadId>,
    /// The last moment that was requested: the next one is probably later.
    pub(super) moment: Option<Moment>,
    /// Instructions of persistence so far, and the one that the machine leaves out.
    pub(super) persists: usize,
    pub(super) omit: Option<usize>,
    /// The operation at which the power fails, or the process is killed.
    pub(super) crash_at: Option<usize>,
    pub(super) kill_at: Option<usize>,
    pub(super) is_off: bool,
}

impl Machine {
    pub(super) fn recording(&self) -> MutexGuard<'_, Recording> {
        // A panic under this lock is an assertion of a caller's error, before anything changed.
        self.recording.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records an operation: its call and its return are two moments, so operations of several threads can overlap.
    pub(super) fn perform(
        &self,
        name: &str,
        action: impl FnOnce(&Recording) -> Result<Action, DeviceError>,
    ) -> Result<(), DeviceError> {
        let called = self.recording().call(name, action)?;
        self.recording().return_from(called)
    }
}

impl Recording {
    pub(super) fn check_power(&self) -> Result<(), DeviceError> {
        if self.is_off || self.is_killed() { Err(DeviceError::PowerLost) } else { Ok(()) }
    }

    pub(super) fn is_killed(&self) -> bool {
        self.kill_at.is_some_and(|operation| self.steps.len() >= operation)
    }

    fn thread(&mut self) -> usize {
        let current = std::thread::current().id();
        self.threads.iter().position(|thread| *thread == current).unwrap_or_else(|| {
            self.threads.push(current);
            self.threads.len() - 1
        })
    }

    pub(super) fn find(&self, name: &str) -> Result<FileId, DeviceError> {
        self.live.names.get(name).copied().ok_or_else(|| DeviceError::NotFound { name: name.into() })
    }

    pub(super) fn check_free(&self, name: &str) -> Result<(), DeviceError> {
        match self.live.names.contains_key(name) {
            true => Err(DeviceError::AlreadyExists { name: name.into() }),
            false => Ok(()),
        }
    }

    pub(super) fn call(
        &mut self,
        name: &str,
        action: impl FnOnce(&Recording) -> Result<Action, DeviceError>,
    ) -> Result<usize, DeviceError> {
        self.check_power()?;
        let action = action(self)?;
        let thread = self.thread();
        let mut step = Step::new(name, action, thread);
        if step.instruction().is_some() {
            step.is_omitted = self.omit == Some(self.persists);
            self.persists += 1;
        }
        let index = self.steps.len();
        if self.crash_at == Some(index) {
            self.is_off = true;
        } else {
            step.prepare(&mut self.live);
            step.apply(&mut self.live);
        }
        self.steps.push(step);
        if self.is_off { Err(DeviceError::PowerLost) } else { Ok(index) }
    }

    pub(super) fn return_from(&mut self, index: usize) -> Result<(), DeviceError> {
        // The power may have failed during another thread's operation.
        if self.is_off {
            return Err(DeviceError::PowerLost);
        }
        self.steps[index].returned = Some(self.steps.len());
        Ok(())
    }
}
