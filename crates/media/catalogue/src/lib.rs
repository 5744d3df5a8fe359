//! The catalogue of media: published figures with their sources, the timing models built from them, and the placement
//! of a node's structures.
//!
//! ```text
//!   media/*.toml   figures, each with unit, source and confidence
//!        |
//!      Medium ----> Model ----> a device slowed to the figures of a medium it is not
//!        |
//!      Tiers, Mode, Placement       which structure lies on which tier
//!      Price                        dated, in separate files; nothing is computed from them
//!      Machine, Goal, Plan          the memory of a machine, and how persistent memory would be provisioned on it
//! ```
//!
//! Nothing here stores bytes itself: devices do, in the crate below.

#![forbid(unsafe_code)]

pub mod budget;
pub mod calibrate;
pub mod clock;
pub mod device;
pub mod error;
pub mod medium;
pub mod model;

pub use budget::Budget;
pub use calibrate::{Calibration, calibrate};
pub use clock::{Timing, VirtualClock};
pub use device::{ModelDevice, ModelMemory, ModelShelf};
pub use error::CatalogueError;
pub use medium::{Medium, MediumKind, media};
pub use model::Model;

pub mod placement;
pub mod price;
pub mod provision;
