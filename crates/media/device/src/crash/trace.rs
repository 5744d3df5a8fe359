//! The recording: the operations in the order of their calls, with the thread and the return of each.

use std::fmt;
use std::sync::Arc;

use super::content::{Content, FileId, State};
use crate::Operation;

/// The change that an operation makes.
#[derive(Clone, Debug)]
pub(super) enum Action {
    /// To a drive: sectors.
    Write {
        file: FileId,
        offset: u64,
        data: Arc<[u8]>,
    },
    Discard {
        file: FileId,
        offset: u64,
        bytes: u64,
    },
    Flush {
        file: FileId,
    },
    /// To persistent memory: words, in ascending order.
    Store {
        file: FileId,
        offset: u64,
        data: Arc<[u8]>,
        past_cache: bool,
    },
    WriteBack {
        file: FileId,
        line: u64,
    },
    Fence,
    Sync {
        file: FileId,
        offset: u64,
        bytes: u64,
    },
    Create {
        file: FileId,
        bytes: u64,
    },
    Remove,
    Rename {
        to: String,
    },
}

impl Action {
    /// Whether it makes other operations persistent.
    pub(super) fn instruction(&self) -> Option<Instruction> {
        match self {
            Action::Flush { .. } => Some(Instruction::Flush),
            Action::WriteBack { .. } => Some(Instruction::WriteBack),
            Action::Fence => Some(Instruction::Fence),
            Action::Sync { .. } => Some(Instruction::Sync),
            _ => None,
        }
    }
}

/// Makes earlier writes persistent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Instruction {
    /// A drive's cache flush.
    Flush,
    /// Of one line of persistent memory.
    WriteBack,
    /// A store fence.
    Fence,
    /// A sync of pages by the file system.
    Sync,
}

impl fmt::Display for Instruction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Instruction::Flush => "flush",
            Instruction::WriteBack => "write-back",
            Instruction::Fence => "fence",
            Instruction::Sync => "sync",
        })
    }
}

/// One instruction of persistence of a recording; from [`super::CrashShelf::persists`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Persist {
    /// The kind of instruction.
    pub instruction: Instruction,
    /// Its index among the operations.
    pub step: usize,
    /// How many atoms (sectors or words) it made persistent, or a write-back requested. 0: it changed nothing.
    pub atoms: usize,
}

/// One operation of the recording.
#[derive(Clone, Debug)]
pub struct Step {
    /// The device's name when it was opened, or the name that the operation changes.
    pub(super) name: String,
    pub(super) action: Action,
    /// Threads are numbered in the order of their first operation.
    pub(super) thread: usize,
    /// The machine left it out, see [`super::CrashShelf::omit`].
    pub(super) is_omitted: bool,
    /// How many operations had been called when this one returned; `None` if it never did.
    pub(super) returned: Option<usize>,
}

impl Step {
    pub(super) fn new(name: &str, action: Action, thread: usize) -> Step {
        Step { name: name.into(), action, thread, is_omitted: false, returned: None }
    }

    /// The operation that was called. Stores count as writes; write-backs, fences and syncs as flushes.
    pub fn operation(&self) -> Operation {
        match self.action {
            Action::Write { .. } | Action::Store { .. } => Operation::Write,
            Action::Discard { .. } => Operation::Discard,
            Action::Flush { .. } | Action::WriteBack { .. } | Action::Fence | Action::Sync { .. } => Operation::Flush,
            Action::Create { .. } => Operation::Create,
            Action::Remove => Operation::Remove,
            Action::Rename { .. } => Operation::Rename,
        }
    }

    /// The name of the device.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it makes earlier operations persistent, and how.
    pub fn instruction(&self) -> Option<Instruction> {
        self.action.instruction()
    }

    /// Whether it had returned before operation `point` was called.
    pub(super) fn is_complete_at(&self, point: usize) -> bool {
        self.returned.is_some_and(|returned| returned <= point)
    }

    /// The range that it writes: device, offset, number of bytes.
    pub(crate) fn range(&self) -> Option<(FileId, u64, u64)> {
        match &self.action {
            Action::Write { file, offset, data } | Action::Store { file, offset, data, .. } => {
                Some((*file, *offset, data.len() as u64))
            }
            Action::Discard { file, offset, bytes } => Some((*file, *offset, *bytes)),
            _ => None,
        }
    }

    /// Applies the bytes from `at` on, counted from the start of the device; they must lie inside the step's range.
    pub(super) fn apply_bytes(&self, state: &mut State, at: u64, bytes: u64) {
        match &self.action {
            Action::Write { file, offset, data } | Action::Store { file, offset, data, .. } => {
                let from = (at - offset) as usize;
                state.files[*file].write(at, &data[from..from + bytes as usize]);
            }
            Action::Discard { file, .. } => state.files[*file].write(at, &vec![0; bytes as usize]),
            _ => {}
        }
    }

    /// Applies the whole operation. A created device's bytes must be in `state` already, see [`Step::prepare`].
    pub(super) fn apply(&self, state: &mut State) {
        if let Some((_, offset, bytes)) = self.range() {
            self.apply_bytes(state, offset, bytes);
        }
        match &self.action {
            Action::Create { file, .. } => {
                state.names.insert(self.name.clone(), *file);
            }
            Action::Remove => {
                state.names.remove(&self.name);
            }
            Action::Rename { to } => {
                if let Some(file) = state.names.remove(&self.name) {
                    state.names.insert(to.clone(), file);
                }
            }
            _ => {}
        }
    }

    /// Adds the zeros of a created device, without a name.
    pub(super) fn prepare(&self, state: &mut State) {
        if let Action::Create { file, bytes } = self.action {
            assert_eq!(file, state.files.len(), "devices are numbered in the order of their creation");
            state.files.push(Content::zeroed(bytes));
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.name;
        match &self.action {
            Action::Write { offset, data, .. } => write!(f, "write {name} {offset}+{}", data.len()),
            Action::Discard { offset, bytes, .. } => write!(f, "discard {name} {offset}+{bytes}"),
            Action::Flush { .. } => write!(f, "flush {name}"),
            Action::Store { offset, data, past_cache: false, .. } => write!(f, "store {name} {offset}+{}", data.len()),
            Action::Store { offset, data, .. } => write!(f, "store past the cache {name} {offset}+{}", data.len()),
            Action::WriteBack { line, .. } => write!(f, "write back {name} {line}"),
            Action::Fence => write!(f, "fence for {name}"),
            Action::Sync { offset, bytes, .. } => write!(f, "sync {name} {offset}+{bytes}"),
            Action::Create { bytes, .. } => write!(f, "create {name} {bytes}"),
            Action::Remove => write!(f, "remove {name}"),
            Action::Rename { to } => write!(f, "rename {name} {to}"),
        }?;
        if self.thread > 0 {
            write!(f, " by thread {}", self.thread)?;
        }
        if self.is_omitted { f.write_str(", left out") } else { Ok(()) }
    }
}
