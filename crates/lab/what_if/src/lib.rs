//! A user's own command on a file system over media that are not there, in turns with the disk that is.
//!
//! ```text
//! command       `terrace bench what-if -- COMMAND`
//! measure       every place in turns: this disk, the path over memory, each medium
//!   media       what is under a mount: modelled, a mirror of models, an NBD export
//!   mount       export -> nbdfuse -> loop device -> ext4, and its removal
//!   delay       a device that completes each request when the medium would have, the path's own cost taken off
//!   calibrate   what the path costs, and whether the delays come out
//!     probe     single requests on the loop device
//!   child       the command: its output, its time, its end
//!   figures     the rate and the latency that a command printed
//!   runs        what runs achieved and used, together
//!   line        a straight line through measured points
//! report, text  JSON, text
//! ```
//!
//! Invariants: a medium that is slower than the path is run as it is; one that is faster never is: its rate is read off runs at four added
//! delays, marked as extrapolated, and refused where these do not lie on a line. A command that fails ends the measurement.
//!
//! Not here: an emulation of what media do beyond time (atoms, torn writes, failures), and a model of the command.
#![forbid(unsafe_code)]

pub mod calibrate;
pub mod child;
pub mod command;
pub mod delay;
pub mod figures;
pub mod line;
pub mod measure;
pub mod media;
pub mod mount;
pub mod options;
pub mod probe;
pub mod report;
pub mod runs;
mod text;

pub use command::WhatIfArgs;
