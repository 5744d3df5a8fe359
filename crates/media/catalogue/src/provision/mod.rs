//! Provisioning: what a machine has, what its persistent memory is to become, and the commands that make it so.
//!
//! ```text
//!   /sys, /proc ---- read ----> Machine                      what is there; also read from a file, or invented
//!                                  |
//!              Goal, Wish -----> plan ------> Plan           steps in order, capacities asked and usable, notes
//!              (percent,           |            |
//!               namespaces)     refused       Progress       which step is next, across the restart a goal needs
//! ```
//!
//! Planning is a pure function: the same machine and wishes give the same plan, on a laptop too. Progress is a state
//! machine that says what to run next and is told what came of it; running is the caller's (`terrace tier apply`).
//!
//! Two tools do the work on real hardware, and both have surprises that a plan says beforehand: `ipmctl` divides Intel
//! modules between memory and App Direct, in percent, and what it does happens at the next restart; `ndctl` divides
//! regions into namespaces, and what remains after its metadata and alignment is less than what was asked for.
//!
//! A third, `daxctl` with `cxl`, makes memory behind a link memory of the system ([`system_ram`]).
//!
//! What this does not do: talk to firmware, read a module's health, or change a namespace that exists unless told to.

mod cxl;
pub mod geometry;
pub mod goal;
pub mod machine;
mod nvdimm;
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
    /// What was asked for is not well formed; the text says what would be.
    #[error("{0}")]
    Malformed(String),
    /// The machine cannot do this, or should not; ask for something else.
    #[error("{reason}\n  {advice}")]
    Refused {
        /// What is wrong with it.
        reason: String,
        /// What to change.
        advice: String,
    },
    /// Something there would be lost or is in use; say that it may go, or free it first.
    #[error("{what} is {state}\n  {advice}")]
    Occupied {
        /// The namespace or device.
        what: String,
        /// Mounted, in use, or holding data.
        state: String,
        /// How to go on.
        advice: String,
    },
    /// A file or directory of the machine's description cannot be read.
    #[error("cannot read {path}: {source}")]
    Unreadable {
        /// Which.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
}

impl ProvisionError {
    pub(crate) fn refused(reason: impl Into<String>, advice: impl Into<String>) -> ProvisionError {
        ProvisionError::Refused { reason: reason.into(), advice: advice.into() }
    }
}
