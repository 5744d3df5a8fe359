//! Provisioning: the memory of a machine, the intended use of its persistent memory, and the commands for that.
//!
//! ```text
//!   /sys, /proc ---- read ----> Machine                      the present state; also loaded from a file, or hypothetical
//!                                  |
//!              Goal, Wish -----> plan ------> Plan           steps in order, requested and usable capacities, notes
//!              (percent,           |            |
//!               namespaces)     refused       Progress       the next step, across the restart that a goal needs
//! ```
//!
//! Planning is a pure function: the same machine and wishes give the same plan, even on a laptop. Progress is a state
//! machine that returns the next step and receives its result; the caller runs the steps (`terrace tier apply`).
//!
//! Two tools do the work on real hardware, and a plan describes their side effects in advance. `ipmctl` divides Intel
//! modules between memory and App Direct, in percent, and takes effect at the next restart. `ndctl` divides regions
//! into namespaces, and after its metadata and alignment less is usable than was requested.
//!
//! A third, `daxctl` with `cxl`, turns memory behind a link into system memory ([`system_ram`]).
//!
//! Provisioning does not communicate with firmware, read a module's health, or change an existing namespace unless
//! requested.

mod attributes;
mod cxl;
pub mod geometry;
pub mod goal;
pub mod machine;
mod nvdimm;
mod outcome;
pub mod plan;
pub mod progress;
mod read;
mod split;
mod steps;
pub mod system_ram;
#[cfg(test)]
mod system_ram_tests;
#[cfg(test)]
mod tests;
pub mod wish;

pub use goal::Goal;
pub use machine::Machine;
pub use plan::{Plan, plan};
pub use progress::{Next, Progress};
pub use steps::{Command, Step};
pub use wish::{FileSystem, Hypothesis, NamespaceWish, Wish};

/// Why something cannot be provisioned, named by what the caller can do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProvisionError {
    /// The request is not well formed; the text contains the correct form.
    #[error("{0}")]
    Malformed(String),
    /// The machine cannot do this, or should not; request something else.
    #[error("{reason}\n  {advice}")]
    Refused {
        /// What is wrong.
        reason: String,
        /// What to change.
        advice: String,
    },
    /// Existing data would be lost or is in use; allow its removal, or free it first.
    #[error("{what} is {state}\n  {advice}")]
    Occupied {
        /// The namespace or device.
        what: String,
        /// Mounted, in use, or containing data.
        state: String,
        /// How to continue.
        advice: String,
    },
    /// A file or directory of the machine's description cannot be read.
    #[error("cannot read {path}: {source}")]
    Unreadable {
        /// The path.
        path: String,
        /// The system's error.
        source: std::io::Error,
    },
}

impl ProvisionError {
    pub(crate) fn refused(reason: impl Into<String>, advice: impl Into<String>) -> ProvisionError {
        ProvisionError::Refused { reason: reason.into(), advice: advice.into() }
    }
}
